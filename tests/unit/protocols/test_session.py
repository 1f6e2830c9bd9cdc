import pytest

from jobyard.journal.journal import Journal
from jobyard.journal.reply_gate import Gate, Outbox, Sink
from jobyard.protocols.session import OUTPUT_MAX, Entrance, Peer, Session
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard


def test_the_seams_promise_and_do_nothing() -> None:
    peer = Peer()
    peer.wake()
    with pytest.raises(NotImplementedError):
        Entrance().enter(peer)
    session = Session(peer, Journal(None, 1 << 20, ids_ahead=False))
    for call in (session.resume, session.half_close, session.end_input, session.closed):
        with pytest.raises(NotImplementedError):
            call(0)
    with pytest.raises(NotImplementedError):
        session.receive(b"", 0)
    with pytest.raises(NotImplementedError):
        session.unread_size()


def test_output_is_taken_once() -> None:
    session = Session(Peer(), Journal(None, 1 << 20, ids_ahead=False))
    assert session.take_output() == b""
    session.out.write(b"abc")
    assert session.take_output() == b"abc"
    assert session.take_output() == b""
    assert (session.awaits, session.is_finished, session.is_stalled) == (0, False, False)


def open_session() -> tuple[Session, Journal]:
    """Return a session over a journal whose batch 1 is open and has a record."""
    site = OpenYard(MemoryStorage())
    site.yard.journal.append_clean()
    return Session(Peer(), site.yard.journal), site.yard.journal


def test_output_waits_for_all_that_was_appended_unless_it_was_narrowed() -> None:
    session, journal = open_session()
    session.out.write(b"abc")
    session.take_output()
    assert session.awaits == journal.newest() == journal.open_number > 0


def test_narrowed_output_waits_for_less() -> None:
    session, journal = open_session()
    session.out.write(b"abc")
    session.narrow(0, 0)
    session.take_output()
    assert session.awaits == 0 < journal.newest()


def test_output_behind_and_before_what_was_narrowed_is_not() -> None:
    for order in ("before", "behind"):
        session, journal = open_session()
        if order == "before":
            session.out.write(b"refusal")
        start = len(session.out)
        session.out.write(b"answer")
        session.narrow(start, 0)
        if order == "behind":
            session.out.write(b"refusal")
        session.take_output()
        assert session.awaits == journal.newest() > 0


def test_what_is_unwritten_leaves_nothing_narrowed_behind() -> None:
    session, journal = open_session()
    session.out.write(b"a long answer")
    session.narrow(0, 0)
    session.unwrite(0)
    session.out.write(b"refusal")
    session.take_output()
    assert session.awaits == journal.newest() > 0


class Wire(Sink):
    """Notes what leaves."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def deliver(self, data: bytes) -> None:
        self.sent.append(data)


LONG = [b"%07d\n" % at * 32_768 for at in range(20)]


def test_the_pieces_of_a_long_answer_leave_as_they_are_and_in_order() -> None:
    session, journal = open_session()
    gate, wire = Gate(), Wire()
    outbox = Outbox(gate, wire)
    session.out.write(b"before")
    session.narrow(0, 0)
    session.write_long(list(LONG))
    assert session.has_long()
    assert len(session.out) > OUTPUT_MAX, "who looks there must see that there is much"
    start = len(session.out)
    session.out.write(b"behind")
    session.narrow(start, 0)
    session.hand_output(outbox)
    assert (len(session.out), session.has_long(), session.awaits) == (0, False, journal.newest())
    assert outbox.held_bytes == sum(map(len, LONG)) + 12
    gate.release(journal.newest() - 1)
    assert wire.sent == [], "it waits for all that was appended"
    gate.release(journal.newest())
    assert b"".join(wire.sent) == b"before" + b"".join(LONG) + b"behind"
    assert all(sent is piece for sent, piece in zip(wire.sent[1:10], LONG, strict=False))


def test_a_long_answer_waits_for_the_disk_if_it_is_told_to() -> None:
    session, journal = open_session()
    gate, wire = Gate(), Wire()
    session.await_synced(journal.newest())
    session.write_long(list(LONG))
    session.hand_output(Outbox(gate, wire))
    gate.release_up_to(journal.newest(), 0)
    assert wire.sent == []
    gate.release(journal.newest())
    assert b"".join(wire.sent) == b"".join(LONG)


def test_a_long_answer_can_be_taken_whole() -> None:
    session, _ = open_session()
    session.write_long(list(LONG))
    assert session.take_output() == b"".join(LONG)
    assert session.take_output() == b""
    session.write_long([b"not ", b"long"])
    assert not session.has_long()
    assert session.take_pieces() == [b"not long"]
    session.write_long(list(LONG))
    session.forget_connection()
    assert session.take_output() == b""
