"""One connection of a client without a socket: bytes in, bytes out, and what wakes it.

`Connection` calls its session as a connection of a server would: bytes as they arrive, `resume`
after the peer was woken, `closed` once. What the bytes mean is the business of its subclasses,
one for each protocol.
"""

from collections import deque
from typing import TYPE_CHECKING, Protocol

from jobyard.protocols.session import Entrance, Peer, Session

if TYPE_CHECKING:
    from tests.support.site.site import Site


class Resumable(Protocol):
    """A connection without a socket."""

    def resume(self) -> None:
        """Resume the session."""


class Ears(Peer):
    """The far end of a connection: counts its wake-ups, and may read slowly.

    A session that was woken is queued for a later call, if there is a queue for them; it is never
    called from within.
    """

    def __init__(
        self, woken: deque[Resumable] | None = None, owner: Resumable | None = None
    ) -> None:
        self._woken = woken
        self._owner = owner
        self.wakes = 0
        self.unsent = 0

    def wake(self) -> None:
        self.wakes += 1
        if self._woken is not None and self._owner is not None:
            self._woken.append(self._owner)

    def unsent_size(self) -> int:
        return self.unsent


class Connection:
    """A session and its client's end."""

    def __init__(self, site: "Site", entrance: Entrance) -> None:
        self.site = site
        self.entrance = entrance
        self.ears = Ears(site.woken, self)
        self.session: Session = entrance.enter(self.ears)
        self.unread = b""
        self.is_open = True

    def feed(self, data: bytes) -> None:
        """Send bytes, and let every client that was woken go on."""
        self.session.receive(data, self.site.now_ms)
        self.collect()
        self.site.settle()

    def collect(self) -> None:
        """Take the session's output."""
        self.unread += self.session.take_output()

    def take_unread(self) -> bytes:
        """Return the bytes that have come, once."""
        self.collect()
        data, self.unread = self.unread, b""
        return data

    def resume(self) -> None:
        """Resume the session, as a connection does once it was woken."""
        if self.is_open:
            self.session.resume(self.site.now_ms)
            self.collect()

    def shut_down(self) -> None:
        """End the input."""
        if self.is_open:
            self.session.end_input(self.site.now_ms)
            self.collect()
            self.site.settle()

    def leave(self) -> None:
        """Break the connection, and end no turn."""
        if self.is_open:
            self.is_open = False
            self.session.closed(self.site.now_ms)

    def close(self) -> None:
        """Close the connection, and let every client that was woken go on."""
        if self.is_open:
            self.leave()
            self.site.settle()


class FullyRead(Connection):
    """A connection whose client reads all there is, and closes once the session is finished."""

    def collect(self) -> None:
        super().collect()
        while self.session.is_stalled:
            self.session.resume(self.site.now_ms)
            super().collect()
        if self.session.is_finished:
            self.close()
