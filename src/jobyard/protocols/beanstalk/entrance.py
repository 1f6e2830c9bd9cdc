"""Creates the sessions of beanstalk connections."""

from typing import final

from jobyard.protocols.beanstalk.door import BeanstalkDoor
from jobyard.protocols.beanstalk.session import BeanstalkSession
from jobyard.protocols.session import Entrance, Peer, Session


@final
class BeanstalkEntrance(Entrance):
    """Creates the sessions of one door."""

    def __init__(self, door: BeanstalkDoor) -> None:
        self._door = door

    def enter(self, peer: Peer) -> Session:
        """Return the session of a new connection."""
        return BeanstalkSession(self._door, peer)
