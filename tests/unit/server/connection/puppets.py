"""Sessions controlled by a test, to check how a connection reacts."""

from collections.abc import Callable

from jobyard.journal.journal import Journal
from jobyard.protocols.session import Entrance, Peer, Session


class Puppet(Session):
    """A session that records its calls and sends what the test wants."""

    def __init__(self, peer: Peer) -> None:
        super().__init__(peer, Journal(None, 1 << 20, ids_ahead=False))
        self.heard = b""
        self.calls: list[str] = []
        self.unread = 0
        self.on_data: Callable[[], None] | None = None
        self.on_resume: Callable[[], None] | None = None
        self.on_end: Callable[[], None] | None = None
        self.on_closed: Callable[[], None] | None = None

    def receive(self, data: bytes, now_ms: int) -> None:
        del now_ms
        self.heard += data
        if self.on_data is not None:
            self.on_data()

    def resume(self, now_ms: int) -> None:
        del now_ms
        self.calls.append("resume")
        if self.on_resume is not None:
            self.on_resume()

    def half_close(self, now_ms: int) -> None:
        del now_ms
        self.calls.append("half_close")

    def end_input(self, now_ms: int) -> None:
        del now_ms
        self.calls.append("end_input")
        self.is_finished = True
        if self.on_end is not None:
            self.on_end()

    def closed(self, now_ms: int) -> None:
        del now_ms
        self.calls.append("closed")
        if self.on_closed is not None:
            self.on_closed()

    def unread_size(self) -> int:
        return self.unread

    def say(self, data: bytes, awaits: int = 0) -> None:
        before = len(self.out)
        self.out.write(data)
        self.narrow(before, awaits)


class PuppetEntrance(Entrance):
    """Keeps every session it makes."""

    def __init__(self) -> None:
        self.sessions: list[Puppet] = []

    def enter(self, peer: Peer) -> Session:
        session = Puppet(peer)
        self.sessions.append(session)
        return session
