import pytest

from jobyard.sessions.session import Entrance, Peer, Session


def test_the_seams_promise_and_do_nothing() -> None:
    peer = Peer()
    peer.stirred()
    with pytest.raises(NotImplementedError):
        Entrance().enter(peer)
    session = Session(peer)
    for call in (session.resume, session.half_close, session.end_input, session.closed):
        with pytest.raises(NotImplementedError):
            call(0)
    with pytest.raises(NotImplementedError):
        session.receive(b"", 0)
    with pytest.raises(NotImplementedError):
        session.unread_size()


def test_output_is_taken_once() -> None:
    session = Session(Peer())
    assert session.take_output() == b""
    session.out.write(b"abc")
    assert session.take_output() == b"abc"
    assert session.take_output() == b""
    assert (session.awaits, session.is_finished, session.is_stalled) == (0, False, False)
