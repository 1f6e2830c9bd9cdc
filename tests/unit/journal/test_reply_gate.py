from hypothesis import given
from hypothesis import strategies as st

from jobyard.journal.reply_gate import Gate, Outbox, Sink


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


def test_an_answer_may_wait_for_the_disk_where_others_go_before_it() -> None:
    gate = Gate()
    careful, careful_wire = pair(gate)
    plain, plain_wire = pair(gate)
    careful.hand_synced(b"c", 3, 3)
    plain.hand(b"p", 3)
    gate.release_up_to(3, 0)
    assert (careful_wire.sent, plain_wire.sent) == ([], [b"p"])
    assert gate.held_sync_batch == 3
    assert gate.held == [careful]
    gate.release_up_to(4, 3)
    assert careful_wire.sent == [b"c"]
    assert gate.held == []


def test_answers_behind_one_that_waits_for_the_disk_wait_too() -> None:
    gate = Gate()
    outbox, wire = pair(gate)
    outbox.hand(b"a", 1)
    outbox.hand_synced(b"b", 2, 1)
    outbox.hand(b"c", 1)
    gate.release_up_to(9, 1)
    assert wire.sent == [b"a"]
    gate.release_up_to(9, 2)
    assert wire.sent == [b"a", b"bc"]


def test_an_answer_that_is_on_the_disk_asks_for_nothing() -> None:
    gate = Gate()
    gate.release_up_to(7, 5)
    outbox, wire = pair(gate)
    outbox.hand_synced(b"a", 7, 5)
    assert wire.sent == [b"a"]
    assert gate.held_sync_batch == 0
    outbox.hand_synced(b"b", 8, 5)
    assert wire.sent == [b"a"]
    gate.release_up_to(8, 5)
    assert wire.sent == [b"a", b"b"]


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


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 8), st.integers(0, 8)), max_size=60))
def test_answers_of_both_kinds_leave_in_order_and_in_time(
    steps: list[tuple[int, int, int]],
) -> None:
    gate = Gate()
    outbox, wire = pair(gate)
    handed: list[tuple[int, int, bytes]] = []
    safe = durable = 0
    for number, (kind, batch, synced) in enumerate(steps):
        data = b"%d," % number
        if kind == 0:
            safe = max(safe, batch)
            durable = max(durable, min(synced, safe))
            gate.release_up_to(safe, durable)
        elif kind == 1:
            handed.append((batch, 0, data))
            outbox.hand(data, batch)
        else:
            # What was on the disk when it was passed in no longer matters.
            handed.append((batch, max(batch, synced) if synced > durable else 0, data))
            outbox.hand_synced(data, batch, synced)
        ahead = next(
            (i for i, (wanted, disk, _) in enumerate(handed) if wanted > safe or disk > durable),
            None,
        )
        assert b"".join(wire.sent) == b"".join(data for _, _, data in handed[:ahead])


def test_the_seam_takes_anything_and_does_nothing() -> None:
    Sink().deliver(b"a")


PIECES = [b"a" * 100_000, b"b" * 200_000, b"c"]


def test_a_long_answer_that_is_safe_leaves_at_once_and_in_pieces() -> None:
    gate = Gate()
    gate.release(5)
    outbox, wire = pair(gate)
    outbox.hand_all(PIECES, 5, 0)
    assert wire.sent == PIECES
    assert gate.held == []


def test_every_piece_of_a_long_answer_waits_for_its_batch_and_is_not_copied() -> None:
    gate = Gate()
    outbox, wire = pair(gate)
    outbox.hand(b"before", 1)
    outbox.hand_all(PIECES, 2, 0)
    outbox.hand(b"behind", 0)
    size = sum(map(len, PIECES)) + 12
    assert outbox.held_bytes == size
    gate.release(1)
    assert wire.sent == [b"before"]
    assert outbox.held_bytes == size - 6
    gate.release(2)
    assert wire.sent[1:] == [*PIECES, b"behind"]
    assert all(sent is piece for sent, piece in zip(wire.sent[1:], PIECES, strict=False))
    assert (outbox.held_bytes, gate.held) == (0, [])


def test_a_long_answer_may_wait_for_the_disk() -> None:
    gate = Gate()
    outbox, wire = pair(gate)
    outbox.hand_all(PIECES, 2, 3)
    assert gate.held_sync_batch == 3
    gate.release_up_to(3, 2)
    assert wire.sent == []
    gate.release_up_to(4, 3)
    assert wire.sent == PIECES
    outbox.hand_all([b"d"], 4, 3)
    assert wire.sent[3:] == [b"d"], "that batch is on the disk already"
