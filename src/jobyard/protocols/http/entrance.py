"""Creates the sessions of connections to the HTTP port."""

from typing import final

from jobyard.protocols.http.door import HttpDoor
from jobyard.protocols.http.session import HttpSession
from jobyard.protocols.session import Entrance, Peer, Session


@final
class HttpEntrance(Entrance):
    """Creates the sessions of the HTTP port."""

    def __init__(self, door: HttpDoor) -> None:
        self._door = door

    def enter(self, peer: Peer) -> Session:
        """Return the session of a new connection."""
        session = HttpSession(self._door, peer)
        session.begin(self._door.yard.now_ms)
        return session
