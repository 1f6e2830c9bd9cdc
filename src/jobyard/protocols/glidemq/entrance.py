"""Creates the sessions of new glide-mq connections."""

from typing import final

from jobyard.protocols.glidemq.door import GlidemqDoor
from jobyard.protocols.glidemq.session import GlidemqSession
from jobyard.protocols.session import Entrance, Peer, Session


@final
class GlidemqEntrance(Entrance):
    """Creates the sessions of one door."""

    def __init__(self, door: GlidemqDoor) -> None:
        self._door = door

    def enter(self, peer: Peer) -> Session:
        """Return the session of a new connection."""
        session = GlidemqSession(self._door, peer)
        if not session.is_known:
            session.expect_auth(self._door.yard.now_ms)
        return session
