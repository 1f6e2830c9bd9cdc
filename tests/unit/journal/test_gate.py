from hypothesis import given
from hypothesis import strategies as st

from jobyard.journal.gate import Gate, Outbox, Sink


class Wire(Sink):
    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def deliver(self, data: bytes) -> None:
        self.sent.append(data)


def pair(gate: Gate) -> tuple[Outbox, Wire]:
    wire = Wire()
    return Outbox(gate, wire), wire


def test_an_answer_waits_for_its_batch() -> None:
    gate = Gate()
    outbox, wire = pair(gate)
    outbox.hand(b"a", 1)
    assert wire.sent == []
    assert not outbox.is_empty()
    assert outbox.held_bytes == 1
    gate.release(1)
    assert wire.sent == [b"a"]
    assert outbox.is_empty()
    assert outbox.held_bytes == 0
    assert gate.held == []


def test_an_answer_that_is_safe_leaves_at_once() -> None:
    gate = Gate()
    gate.release(5)
    outbox, wire = pair(gate)
    outbox.hand(b"a", 5)
    assert wire.sent == [b"a"]
    assert gate.held == []


def test_a_safe_answer_never_overtakes_one_that_waits() -> None:
    gate = Gate()
    outbox, wire = pair(gate)
    outbox.hand(b"a", 2)
    outbox.hand(b"b", 0)
    assert wire.sent == []
    gate.release(2)
    assert b"".join(wire.sent) == b"ab"


def test_connections_do_not_wait_for_each_other() -> None:
    gate = Gate()
    slow, slow_wire = pair(gate)
    fast, fast_wire = pair(gate)
    slow.hand(b"s", 9)
    fast.hand(b"f", 1)
    gate.release(1)
    assert fast_wire.sent == [b"f"]
    assert slow_wire.sent == []
    assert gate.held == [slow]
    gate.release(9)
    assert slow_wire.sent == [b"s"]


def test_what_may_go_together_is_sent_together() -> None:
    gate = Gate()
    outbox, wire = pair(gate)
    for number, data in enumerate((b"a", b"b", b"c"), 1):
        outbox.hand(data, number)
    gate.release(0)
    assert wire.sent == []
    gate.release(2)
    assert wire.sent == [b"ab"]
    assert outbox.held_bytes == 1
    gate.release(3)
    assert wire.sent == [b"ab", b"c"]


def test_a_connection_that_is_gone_gets_nothing_and_is_forgotten() -> None:
    gate = Gate()
    outbox, wire = pair(gate)
    outbox.hand(b"a", 1)
    outbox.hand(b"b", 2)
    outbox.discard()
    assert outbox.held_bytes == 0
    gate.release(2)
    assert wire.sent == []
    assert gate.held == []


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 8), st.booleans()), max_size=60))
def test_answers_leave_in_order_and_never_before_they_are_safe(
    steps: list[tuple[int, int, bool]],
) -> None:
    gate = Gate()
    pairs = [pair(gate), pair(gate)]
    handed: list[list[tuple[int, bytes]]] = [[], []]
    safe = 0
    for number, (who, batch, is_release) in enumerate(steps):
        if is_release:
            safe = max(safe, batch)
            gate.release(safe)
        else:
            data = b"%d," % number
            handed[who].append((batch, data))
            pairs[who][0].hand(data, batch)
        for (outbox, wire), answers in zip(pairs, handed, strict=True):
            ahead = next((i for i, (wanted, _) in enumerate(answers) if wanted > safe), None)
            wanted = b"".join(data for _, data in answers[:ahead])
            assert b"".join(wire.sent) == wanted
            assert outbox.held_bytes == len(b"".join(data for _, data in answers)) - len(wanted)


def test_the_seam_takes_anything_and_does_nothing() -> None:
    Sink().deliver(b"a")
