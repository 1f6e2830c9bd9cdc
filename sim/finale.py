"""The end of a run: faults are over, so all jobs must drain and the disk must be freed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jobyard.journal.batches import FULL_RETRY_MS
from sim import checkers, workload
from sim.boot import SYNC_INTERVAL_MS
from sim.state import Violation
from sim.workload import Command

if TYPE_CHECKING:
    from sim.network import Connection
    from sim.world import World

COMPACTIONS_MAX: Final = 3000
# No delay and no lease in a run is longer.
LONGEST_DELAY_MS: Final = 61_000
TAKEN_AT_ONCE: Final = 20


class Finale:
    """Drains a world through one last client."""

    def __init__(self, world: World) -> None:
        self._world = world

    def play(self) -> None:
        """Bring everything to its end."""
        world = self._world
        world.disk.heal()
        world.note("faults end")
        self._settle()
        if world.rng.random() < 0.5:
            self._rest()
        for connection in list(world.connections):
            world.close(connection)
        last = world.connect()
        world.pass_time(LONGEST_DELAY_MS)
        self._wake(last)
        self._empty(last)
        self._put(last)
        self._rest()
        world.stop()
        world.note_disk()

    def _settle(self) -> None:
        """Commit everything, and let the server notice that the disk has room again."""
        world = self._world
        world.pass_time(FULL_RETRY_MS)
        world.boot.journal.retry_full(world.now_ms())
        world.boot.finish_sync()
        world.pass_time(SYNC_INTERVAL_MS)
        world.commit(is_late=False)
        world.close_done()

    def _rest(self) -> None:
        """Run compaction to its end, and check what is left on the disk."""
        world = self._world
        idle = 0
        for _ in range(COMPACTIONS_MAX):
            idle = 0 if world.boot.compactor.step() else idle + 1
            self._settle()
            if idle > 3:
                break
        else:
            raise Violation("liveness", "compaction does not finish")
        world.check_all()
        checkers.check_room(world.boot.yard, world.disk, world.swarm)

    def _send(self, connection: Connection) -> None:
        self._world.deliver(connection, len(connection.unsent))
        self._settle()

    def _wake(self, last: Connection) -> None:
        """Watch every tube, unpause it and kick its buried jobs."""
        for tube in list(self._world.model.tubes):
            name = tube.encode()
            last.write(b"watch %s\r\n" % name, [Command(workload.WATCH, text=tube)])
            last.write(b"use %s\r\n" % name, [Command(workload.USE, text=tube)])
            last.write(b"pause-tube %s 0\r\n" % name, [Command(workload.PAUSE_TUBE, text=tube)])
            last.write(b"kick 1000\r\n", [Command(workload.KICK, 1000)])
        self._send(last)

    def _empty(self, last: Connection) -> None:
        """Reserve and delete until nothing is left."""
        jobs = self._world.model.jobs
        for _ in range(len(jobs) // TAKEN_AT_ONCE + 2):
            for _ in range(TAKEN_AT_ONCE):
                word = b"reserve-with-timeout 0\r\n"
                last.write(word, [Command(workload.RESERVE_WITH_TIMEOUT)])
            self._send(last)
            for number in list(last.client.held):
                last.write(b"delete %d\r\n" % number, [Command(workload.DELETE, number)])
            self._send(last)
        if jobs:
            raise Violation("liveness", f"{len(jobs)} jobs do not drain: {list(jobs)[:9]}")

    def _put(self, last: Connection) -> None:
        """Put a last job, which must be accepted, and delete it."""
        model = self._world.model
        number = model.next_id
        line = b"put 0 0 1 4\r\n"
        begun = Command(workload.PUT_LINE, len(line))
        last.write(line + b"last\r\n", [begun, Command(workload.PUT, c=1, body=b"last")])
        self._send(last)
        if number not in model.jobs:
            raise Violation("liveness", "a put is refused after all faults ended")
        last.write(b"delete %d\r\n" % number, [Command(workload.DELETE, number)])
        self._send(last)
