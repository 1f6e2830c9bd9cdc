"""The entrance of the bunqueue door: makes the session of each connection."""

from typing import final

from jobyard.engine.jobs.schedule import crons_of
from jobyard.protocols.bunqueue.commands.control import arm_rate_ends
from jobyard.protocols.bunqueue.commands.repeats import DoorScheduleHooks
from jobyard.protocols.bunqueue.commands.table import Commands
from jobyard.protocols.bunqueue.door import BunqueueDoor
from jobyard.protocols.bunqueue.session import BunqueueSession
from jobyard.protocols.session import Entrance, Peer, Session


@final
class BunqueueEntrance(Entrance):
    """Makes the sessions of one door."""

    def __init__(self, door: BunqueueDoor) -> None:
        self._door = door
        door.commands = Commands()
        crons_of(door.yard).hooks = DoorScheduleHooks(door)
        arm_rate_ends(door.yard, door.started_ms)

    def enter(self, peer: Peer) -> Session:
        """Return the session of a new connection."""
        session = BunqueueSession(self._door, peer)
        session.is_counted = True
        if not session.is_known:
            session.expect_auth(self._door.yard.now_ms)
        door = self._door
        door.sessions_count += 1
        if door.observer is not None:
            door.observer.publish("client:connected", {"transport": "tcp"})
        return session
