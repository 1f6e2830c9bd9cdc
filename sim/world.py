"""One run: a disk, a clock, a server that lives several lives, clients, and the model beside it.

Every choice comes from one seeded generator, so a seed is a run. Time is the world's own and only
rises; a boot's steady clock is the wall clock at its start plus what has passed since, and the wall
clock jumps when the seed says so. Whatever the yard does, the model is asked afterwards, and a
crash may come between any two calls to the disk.
"""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Final
from zlib import crc32

from jobyard.engine.tick import tick
from jobyard.errors import StorageFailed, StorageFull
from jobyard.journal.journal import FULL_RETRY_MS
from sim import checkers, workload
from sim.boot import SYNC_INTERVAL_MS, Boot
from sim.model import Model
from sim.network import Connection
from sim.state import Violation
from sim.storage import UNLIMITED, Stopped, VirtualDisk
from sim.workload import Author, Command, Swarm, draw

START_MS: Final = 1_700_000_000_000
TRACE_MAX: Final = 60
# Commands on their way on one connection; more would reach the session's own limits.
AHEAD_MAX: Final = 30
STARTS_MAX: Final = 40
COMPACTIONS_MAX: Final = 3000
# Nothing in a run is delayed longer, nor leased longer.
LONGEST_DELAY_MS: Final = 61_000

KILL: Final = "kill"
POWER: Final = "power cut"


class World:
    """A run of one seed."""

    disk_kind = VirtualDisk
    boot_kind = Boot

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.swarm = Swarm(self.rng)
        self.author = Author(self.rng, self.swarm)
        self.reached: dict[str, int] = {}
        self.trace: deque[str] = deque(maxlen=TRACE_MAX)
        self.digest = 0
        self.steps_count = 0
        # World time, and the wall clock's distance from it.
        self.now = 0
        self.wall_offset = START_MS
        self.base = START_MS
        self.disk = self.disk_kind(self.rng, self.reach)
        self.model = Model(self._is_refusal_fair)
        self.model.may_skip_leases = "full" in self.swarm.faults
        self.boot: Boot
        self.connections: list[Connection] = []
        self._connections_total = 0
        # Records that a restart must bring back: after the end of a process, after a power cut.
        self._written_floor = 0
        self._synced_floor = 0
        # (last record, batch it is in or an earlier one), (batch, records in it and before).
        self._batches: deque[tuple[int, int]] = deque()
        self._writes: deque[tuple[int, int]] = deque()
        self._disclosed_max = 0
        self._refused_ms = -FULL_RETRY_MS
        self._refusals_count = 0
        self._compaction_phase = 0

    def reach(self, point: str) -> None:
        """Count that a rare point was reached."""
        self.reached[point] = self.reached.get(point, 0) + 1

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        self.digest = crc32(text.encode(), self.digest)
        self.trace.append(f"{self.now:>8} {text}")

    def now_ms(self) -> int:
        """Return the steady clock of this boot."""
        return self.now + self.base

    def run(self) -> None:
        """Live through the whole run."""
        self.start()
        for step in range(self.swarm.steps_count):
            self.steps_count = step
            self.attempt(self._step)
        self.attempt(self._finish)

    def attempt(self, act: Callable[[], None]) -> None:
        """Do something that may end the process."""
        try:
            act()
        except Stopped:
            power = "power" in self.swarm.faults and (
                "kill" not in self.swarm.faults or self.rng.random() < 0.5
            )
            self.crash(POWER if power else KILL)
        except StorageFailed as error:
            self.note(f"the server stops: {error}")
            self.crash(KILL)

    # -- lives of the server -------------------------------------------------------------------

    def crash(self, how: str) -> None:
        """End the process here and now, and start another."""
        self.note(how)
        self.reach(how)
        self._compaction_phase = int(self.boot.compactor.phase)
        if self._compaction_phase:
            self.reach(f"{how} in compaction phase {self._compaction_phase}")
        floor = self._written_floor if how == KILL else self._synced_floor
        if how == POWER:
            self.disk.cut_power()
        self.start(floor)

    def start(self, floor: int = 0) -> None:
        """Start a server, however often it takes, and compare what it remembers."""
        self.connections.clear()
        for _ in range(STARTS_MAX):
            self.base = self.wall_offset
            before = self.disk.clone()
            try:
                self.boot = self.boot_kind(self.swarm, self.disk, self.now_ms())
            except Stopped:
                self.reach("stop during a start")
                self.disk.disarm()
                if self.rng.random() < 0.5:
                    self.disk.cut_power()
                    floor = min(floor, self._synced_floor)
            except StorageFailed as error:
                self.note(f"start failed: {error}")
            except StorageFull:
                self.note("no room to start")
                self.reach("start on a full disk")
                self.disk.budget = UNLIMITED
            else:
                self._compare(before, floor)
                return
            self._arm_start()
        raise Violation("liveness", "the server does not start")

    def _arm_start(self) -> None:
        """Now and then let the next start be stopped as well."""
        if "midway" in self.swarm.faults and self.rng.random() < 0.3:
            self.disk.stop_in = int(self.rng.random() * 40)

    def _compare(self, before: VirtualDisk, floor: int) -> None:
        """Hold the recovered yard against the model, then let the model go on from there."""
        boot = self.boot
        self.disk.disarm()
        self._count_recovery()
        restart = checkers.Restart(self.model, boot.yard, self.now, self.base)
        cut = restart.find_cut(floor)
        self.note(f"recovered up to record {cut} of {self.model.records_count}, floor {floor}")
        if cut < self.model.records_count:
            self.reach("records lost")
        checkers.check_stamps(boot.yard)
        if boot.journal.next_id <= self._disclosed_max:
            story = f"{boot.journal.next_id} comes next, {self._disclosed_max} was seen"
            raise Violation("ids", story)
        if self.rng.random() < 0.3:
            checkers.check_repeatable(before, boot.yard, self.swarm, self.now_ms())
        if "flip" in self.swarm.faults:
            self.reach(
                checkers.check_flip(before, boot.yard, self.swarm, self.now_ms(), self.rng)
            )
        restart.collapse(cut)
        checkers.check_yard(boot.yard, self.model)
        if "many-ids" in self.swarm.faults:
            # As if that many jobs had come and gone.
            boot.journal.next_id += int(self.rng.random() * 100_000)
            self.model.next_id = int(boot.journal.next_id)
        self._synced_floor = self._written_floor = self.model.records_count
        self._batches.clear()
        self._writes.clear()
        self._refusals_count = self.disk.refusals_count

    def _count_recovery(self) -> None:
        recovered = self.boot.recovered
        for point, is_reached in (
            ("torn tail cut", recovered.cut_bytes > 0),
            ("superseded victim", len(recovered.superseded) > 0),
            ("many segments", recovered.segments_count > 8),
        ):
            if is_reached:
                self.reach(point)

    # -- one step ------------------------------------------------------------------------------

    def _step(self) -> None:
        swarm = self.swarm
        rng = self.rng
        self._arm()
        if rng.random() < swarm.leap_odds:
            self._leap()
        else:
            self._pass(int(rng.random() * 30))
        if len(self.connections) < swarm.clients_max and rng.random() < 0.2 or not self.connections:
            self._connect()
        self._talk()
        if rng.random() < 0.1:
            self.boot.add_spare()
        self.boot.journal.retry_full(self.now_ms())
        if rng.random() < swarm.compaction_odds:
            self._compact()
        self._commit()
        self._close_done()
        checkers.check_counts(self.boot.yard, self.model)
        if rng.random() < 0.03:
            self._check_all()

    def _arm(self) -> None:
        """Let the seed decide what goes wrong next."""
        rng = self.rng
        faults = self.swarm.faults
        disk = self.disk
        odds = self.swarm.crash_odds
        if "midway" in faults and rng.random() < odds * 2:
            disk.stop_in = int(rng.random() * 25)
        if "failed-sync" in faults and rng.random() < odds:
            disk.fail_sync_in = int(rng.random() * 8)
        if "failed-write" in faults and rng.random() < odds:
            disk.fail_write_in = int(rng.random() * 8)
        if "failed-read" in faults and rng.random() < odds:
            disk.fail_read_in = int(rng.random() * 8)
        if "full" in faults and rng.random() < 0.03:
            is_tight = rng.random() < 0.6
            disk.budget = disk.usage() + int(rng.random() * 9000) if is_tight else UNLIMITED
            self.note(f"disk budget {disk.budget}")
        if "slow-sync" in faults and rng.random() < 0.05:
            disk.sync_ms = rng.choice((0, 0, 3, 40, 900))
        if "clock" in faults and rng.random() < 0.02:
            self.wall_offset += rng.choice((-3_600_000, -2000, 1500, 3_600_000, 315_360_000_000))
            self.note(f"the wall clock jumps to {self.wall_offset}")
        if rng.random() < odds:
            self._end_process()

    def _end_process(self) -> None:
        """Stop the server between two steps, if this run knows of such ends."""
        choices = [how for how in ("kill", "power", "freeze") if how in self.swarm.faults]
        how = self.rng.choice([*choices, "stop"])
        if how == "freeze":
            # Time passes and nobody looks: the process stands still.
            self.now += int(self.rng.random() * 5000)
            self.note("frozen")
        elif how == "stop":
            self._stop()
        else:
            self.crash(KILL if how == "kill" else POWER)

    def _stop(self) -> None:
        """Stop in good order and start again: all must come back."""
        self.note("stop")
        self.boot.stop()
        if self.rng.random() < 0.5:
            self.disk.cut_power()
        self.start(self.model.records_count)

    # -- time ----------------------------------------------------------------------------------

    def _pass(self, ms: int) -> None:
        """Let time go by, with a tick whenever something is due."""
        until = self.now + ms
        while True:
            due = int(self.boot.yard.next_timer_ms()) - self.base
            if due > until:
                break
            self.now = max(self.now, due)
            self._tick()
        self.now = until

    def _leap(self) -> None:
        """Let some seconds go by, sometimes without a tick on the way."""
        ms = int(self.rng.random() * self.rng.random() * 8000)
        if "freeze" in self.swarm.faults and self.rng.random() < 0.3:
            self.now += ms
            self._tick()
        else:
            self._pass(ms)

    def _tick(self) -> None:
        opened = int(self.boot.journal.open_number)
        now_ms = self.now_ms()
        while tick(self.boot.yard, now_ms) <= now_ms:
            self.reach("tick with work left")
        self.model.now = self.now
        self._check(opened, [], self.model.tick)

    def _correct_wall(self) -> None:
        """Tell the journal what the wall clock says, as a server does every so often."""
        offset = self.wall_offset - self.base
        if int(self.boot.journal.wall_offset_ms) != offset:
            self.boot.journal.wall_offset_ms = offset
            self.model.note_wall(self.wall_offset)

    # -- the wire ------------------------------------------------------------------------------

    def _connect(self) -> None:
        self._connections_total += 1
        client = self.model.connect(self._connections_total)
        self.connections.append(Connection(self.boot, client, self._on_delivered))

    def _talk(self) -> None:
        rng = self.rng
        connection = self.connections[int(rng.random() * len(self.connections))]
        if "network" in self.swarm.faults and rng.random() < 0.03:
            self._trouble(connection)
            return
        if not connection.client.is_ended and len(connection.unsent) < 50_000:
            for _ in range(1 + int(rng.random() * self.swarm.pipeline_max)):
                self._write(connection)
        self._deliver(connection)

    def _write(self, connection: Connection) -> None:
        """Add a command to what the client sends."""
        rng = self.rng
        model = self.model
        if len(connection.client.commands) > AHEAD_MAX:
            return
        kind = draw(rng, self.swarm.commands)
        if len(model.jobs) > self.swarm.jobs_aimed and kind == workload.PUT and rng.random() < 0.7:
            kind = workload.DELETE
        held = list(connection.client.held)
        known = list(model.jobs) if len(model.jobs) < 200 else list(held)
        connection.write(*self.author.write(kind, held, known))

    def _deliver(self, connection: Connection) -> None:
        """Let some of the bytes on the line arrive."""
        size = len(connection.unsent)
        if self.rng.random() < self.swarm.cut_odds:
            size = int(self.rng.random() * size)
        data = connection.send(size)
        if data and not connection.session.is_finished:
            self._drive(
                connection,
                lambda: connection.session.receive(data, self.now_ms()),
                lambda: self.model.run(connection.client),
            )

    def send_all(self, connection: Connection) -> None:
        """Deliver everything a client wrote, and commit."""
        data = connection.send(len(connection.unsent))
        self._drive(
            connection,
            lambda: connection.session.receive(data, self.now_ms()),
            lambda: self.model.run(connection.client),
        )
        self._settle()

    def _trouble(self, connection: Connection) -> None:
        """Let a client shut its side, or vanish in the middle of a word."""
        if self.rng.random() < 0.5:
            self._deliver(connection)
            if connection not in self.connections or connection.client.is_ended:
                return
            self.note(f"{connection.client.number} half-closes")
            connection.unsent.clear()
            if not connection.session.is_finished:
                self._drive(
                    connection,
                    lambda: connection.session.end_input(self.now_ms()),
                    lambda: self.model.end_input(connection.client),
                )
        else:
            self.note(f"{connection.client.number} resets")
            self._close(connection)

    def _close(self, connection: Connection) -> None:
        self.connections.remove(connection)
        opened = int(self.boot.journal.open_number)
        connection.close(self.now_ms())
        self.model.now = self.now
        self._check(opened, [], lambda: self.model.closed(connection.client))

    def _close_done(self) -> None:
        for connection in [c for c in self.connections if c.is_done()]:
            self.note(f"{connection.client.number} ends")
            self._close(connection)

    # -- the yard and the model in step --------------------------------------------------------

    def _drive(
        self, connection: Connection, act: Callable[[], None], expect: Callable[[], None]
    ) -> None:
        opened = int(self.boot.journal.open_number)
        act()
        self.model.now = self.now
        self._check(opened, [connection], expect)

    def _resume(self, connection: Connection) -> None:
        self._drive(
            connection,
            lambda: connection.session.resume(self.now_ms()),
            lambda: self.model.run(connection.client),
        )

    def _check(self, opened: int, acting: list[Connection], expect: Callable[[], None]) -> None:
        """Compare what was said with what the model expects, then let stirred sessions go on."""
        self._note_refusals()
        stirred = list(self.boot.stirred)
        self.boot.stirred.clear()
        heard = acting + [c for c in self.connections if c.ear in stirred and c not in acting]
        for connection in heard:
            connection.collect()
            said = connection.client.observed
            if said:
                self.note(f"{connection.client.number}> {said[:60]!r} {crc32(said)}")
        before = self.model.records_count
        expect()
        if self.model.records_count > before:
            self._batches.append((self.model.records_count, opened))
        for connection in heard:
            connection.hand()
        for connection in heard:
            if connection.ear in stirred:
                self._resume(connection)

    def _note_refusals(self) -> None:
        if self.disk.refusals_count != self._refusals_count:
            self._refusals_count = self.disk.refusals_count
            self._refused_ms = self.now

    def _is_refusal_fair(self) -> bool:
        self.reach("put refused")
        return self.now - self._refused_ms <= FULL_RETRY_MS

    # -- commits -------------------------------------------------------------------------------

    def _compact(self) -> None:
        for _ in range(1 + int(self.rng.random() * 3)):
            if not self.boot.compactor.step():
                break
        self._note_refusals()
        if self.boot.compactor.damaged:
            raise Violation("compaction", f"found damage: {self.boot.compactor.damaged}")

    def _commit(self) -> None:
        boot = self.boot
        rng = self.rng
        if boot.late is not None and rng.random() < 0.5:
            boot.finish_sync()
            self._note_durable()
        is_due = boot.swarm.is_os and boot.is_sync_due(self.now_ms())
        if rng.random() < self.swarm.commit_odds or is_due:
            if rng.random() < 0.5:
                self._correct_wall()
            self._commit_now(is_late=self.swarm.is_sync_late and rng.random() < 0.7)
        self.now += self.disk.owed_ms
        self.disk.owed_ms = 0

    def _commit_now(self, *, is_late: bool) -> None:
        boot = self.boot
        boot.commit(self.now_ms(), is_late=is_late)
        self._written_floor = self.model.records_count
        self._writes.append((int(boot.journal.written), self.model.records_count))
        self._note_durable()
        checkers.check_memory(boot.bodies, self.swarm)

    def _note_durable(self) -> None:
        """Hold the journal to its word: what it calls durable is, and stays."""
        durable = int(self.boot.journal.durable)
        if not self.disk.is_safe(durable):
            raise Violation("durable mark", f"batch {durable} or one before it is not on disk")
        while self._writes and self._writes[0][0] <= durable:
            self._synced_floor = max(self._synced_floor, self._writes.popleft()[1])
        self.model.settle(self._synced_floor)

    def _on_delivered(self, connection: Connection) -> None:
        """Check that an answer that reaches its client rests on what is safe by now."""
        promises = connection.client.promises
        while promises and promises[0][0] <= connection.received_size:
            _, record, disclosed = promises.pop(0)
            self._disclosed_max = max(self._disclosed_max, disclosed)
            if record > self._safe_floor():
                self._check_safe(record)
                self._written_floor = max(self._written_floor, record)
                if not self.swarm.is_os:
                    self._synced_floor = max(self._synced_floor, record)

    def _safe_floor(self) -> int:
        return self._written_floor if self.swarm.is_os else self._synced_floor

    def _check_safe(self, record: int) -> None:
        """Look on the disk itself for the batch of a record that an answer rests on."""
        while self._batches[0][0] < record:
            self._batches.popleft()
        batch = self._batches[0][1]
        disk = self.disk
        is_safe = batch <= disk.written_batch if self.swarm.is_os else disk.is_safe(batch)
        if not is_safe:
            raise Violation("answer before its record", f"record {record}, batch {batch}")

    # -- the end -------------------------------------------------------------------------------

    def _check_all(self) -> None:
        """Recount everything there is to count."""
        checkers.check_yard(self.boot.yard, self.model)
        journal = self.boot.journal
        if not journal.has_open_records() and not journal.pending:
            checkers.check_live(self.boot.yard, self.disk, self.swarm, self.now_ms())

    def _finish(self) -> None:
        """Take the faults away: everything must drain, and the disk must come free."""
        self.disk.heal()
        self.note("faults end")
        self._settle()
        if self.rng.random() < 0.5:
            self._rest()
        for connection in list(self.connections):
            self._close(connection)
        self._connect()
        drain = Drain(self, self.connections[0])
        self._pass(LONGEST_DELAY_MS)
        drain.wake()
        drain.empty()
        drain.put()
        self._rest()
        self._check_all()
        self._stop()

    def _settle(self) -> None:
        """Commit everything."""
        self._pass(FULL_RETRY_MS)
        self.boot.journal.retry_full(self.now_ms())
        self.boot.finish_sync()
        self._pass(SYNC_INTERVAL_MS)
        self._commit_now(is_late=False)
        self._close_done()

    def _rest(self) -> None:
        """Let compaction come to an end, and see what is left on the disk."""
        idle = 0
        for _ in range(COMPACTIONS_MAX):
            idle = 0 if self.boot.compactor.step() else idle + 1
            self._settle()
            if idle > 3:
                break
        else:
            raise Violation("liveness", "compaction does not come to an end")
        self._check_all()
        checkers.check_room(self.boot.yard, self.disk, self.swarm)


class Drain:
    """The client that takes everything out at the end."""

    def __init__(self, world: World, connection: Connection) -> None:
        self._world = world
        self._connection = connection

    def _say(self, data: bytes, command: Command) -> None:
        self._connection.write(data, [command])

    def _send(self) -> None:
        self._world.send_all(self._connection)

    def wake(self) -> None:
        """Watch every tube, open it and kick what is buried there."""
        for tube in list(self._world.model.tubes):
            name = tube.encode()
            self._say(b"watch %s\r\n" % name, Command(workload.WATCH, text=tube))
            self._say(b"use %s\r\n" % name, Command(workload.USE, text=tube))
            self._say(b"pause-tube %s 0\r\n" % name, Command(workload.PAUSE_TUBE, text=tube))
            self._say(b"kick 1000\r\n", Command(workload.KICK, 1000))
        self._send()

    def empty(self) -> None:
        """Reserve and delete until nothing is left."""
        client = self._connection.client
        jobs = self._world.model.jobs
        for _ in range(len(jobs) // 20 + 2):
            for _ in range(20):
                word = b"reserve-with-timeout 0\r\n"
                self._say(word, Command(workload.RESERVE_WITH_TIMEOUT))
            self._send()
            for number in list(client.held):
                self._say(b"delete %d\r\n" % number, Command(workload.DELETE, number))
            self._send()
        if jobs:
            raise Violation("liveness", f"{len(jobs)} jobs do not drain: {list(jobs)[:9]}")

    def put(self) -> None:
        """Put a last job, which must be taken in, and delete it."""
        model = self._world.model
        number = model.next_id
        line = Command(workload.PUT_LINE, len(b"put 0 0 1 4\r\n"))
        put = Command(workload.PUT, c=1, body=b"last")
        self._connection.write(b"put 0 0 1 4\r\nlast\r\n", [line, put])
        self._send()
        if number not in model.jobs:
            raise Violation("liveness", "a put is refused after all faults ended")
        self._say(b"delete %d\r\n" % number, Command(workload.DELETE, number))
        self._send()
