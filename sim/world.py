"""One run: a disk, a clock, a server that restarts several times, clients, and the model.

Every choice comes from one seeded generator, so a seed is a run. World time only
rises; a boot's steady clock is the wall clock at its start plus the time since, and the wall
clock jumps when the seed says so. After every action of the yard the model is asked, and a
crash may come between any two calls to the disk.
"""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Final
from zlib import crc32

from jobyard.engine.jobs.tick import tick
from jobyard.engine.state.yard import Yard
from jobyard.errors import JournalDamaged, ReadFailed, StorageFailed, StorageFull
from jobyard.journal.batches import FULL_RETRY_MS
from sim import checkers, workload
from sim.beanstalk.model import Model
from sim.boot import Boot
from sim.diary import Diary
from sim.finale import Finale
from sim.mending import Dump, Trial
from sim.network import Connection
from sim.promises import Promises
from sim.state import Violation
from sim.storage import UNLIMITED, Stopped, VirtualDisk
from sim.trials import try_all
from sim.workload import Author, Swarm, draw

START_MS: Final = 1_700_000_000_000
TRACE_MAX: Final = 60
# Commands in transit on one connection; more would reach the session's own limits.
AHEAD_MAX: Final = 30
AHEAD_BYTES_MAX: Final = 50_000
STARTS_MAX: Final = 40
# The share of starts after which a trial runs on a copy.
TRIAL_ODDS: Final = 0.15

KILL: Final = "kill"
POWER: Final = "power cut"


class World:
    """A run of one seed. The kinds of its parts are fields so that tests can replace one."""

    disk_kind = VirtualDisk
    boot_kind = Boot

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        # Trials use this one, so that the run continues as it would without them.
        self.mending = Random(seed)
        self.swarm = Swarm(self.rng)
        self.author = Author(self.rng, self.swarm)
        self.reached: dict[str, int] = {}
        self.trace: deque[str] = deque(maxlen=TRACE_MAX)
        self.digest = 0
        # World time, and the wall clock's distance from it.
        self.now = 0
        self.wall_offset = START_MS
        self.base = START_MS
        self.disk = self.disk_kind(self.rng, self.reach)
        self.promises = Promises(self.disk, is_os=self.swarm.is_os)
        self.model = Model(self._is_refusal_fair, self.reach)
        self.model.records.may_skip = "full" in self.swarm.faults
        self.boot: Boot
        self.connections: list[Connection] = []
        self._connections_total = 0
        self._refused_ms = -FULL_RETRY_MS
        self._refusals_count = 0
        self.diary = Diary(may_skip="full" in self.swarm.faults)
        # Drawn from a separate generator, so that older seeds keep their runs.
        self._trials = Random(seed * 2_654_435_761 + 31)

    def reach(self, point: str) -> None:
        """Count that a rare point was reached."""
        self.reached[point] = self.reached.get(point, 0) + 1

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        self.digest = crc32(text.encode(), self.digest)
        self.trace.append(f"{self.now:>8} {text}")

    def note_disk(self) -> None:
        """Add the contents of the disk to the trace."""
        for name in sorted(self.disk.files):
            self.note(f"{name} {crc32(self.disk.files[name].view)}")

    def now_ms(self) -> int:
        """Return the steady clock of this boot."""
        return self.now + self.base

    def run(self) -> None:
        """Run to the end."""
        self.start(0)
        for _ in range(self.swarm.steps_count):
            self._attempt(self._step)
        self._attempt(Finale(self).play)

    def _attempt(self, act: Callable[[], None]) -> None:
        """Perform an action that may end the process."""
        try:
            act()
        except Stopped:
            faults = self.swarm.faults
            is_power = "power" in faults and ("kill" not in faults or self.rng.random() < 0.5)
            self._crash(POWER if is_power else KILL)
        except ReadFailed as error:
            raise Violation("read error", f"a failed read stops the server: {error}") from error
        except StorageFailed as error:
            self.note(f"the server stops: {error}")
            self._crash(KILL)

    # -- starts and stops of the server --------------------------------------------------------

    def _crash(self, how: str) -> None:
        """End the process at once, and start another."""
        self.note(how)
        self.reach(how)
        phase = int(self.boot.compactor.phase)
        if phase:
            self.reach(f"{how} in compaction phase {phase}")
        if how == POWER:
            self.disk.cut_power()
        self.start(self.promises.written if how == KILL else self.promises.synced)

    def stop(self) -> None:
        """Stop cleanly and start again: everything must come back."""
        self.note("stop")
        self.reach("clean stop")
        self.boot.stop()
        if self.rng.random() < 0.5:
            self.disk.cut_power()
        self.start(self.model.records.count)

    def start(self, floor: int) -> None:
        """Start a server, however many attempts it takes, and compare what it recovered."""
        self.connections.clear()
        for _ in range(STARTS_MAX):
            self.base = self.wall_offset
            before = self.disk.clone()
            try:
                self.boot = self._try_process()
            except Stopped:
                self.reach("stop during a start")
                self.disk.disarm()
                if self.rng.random() < 0.5:
                    self.disk.cut_power()
                    floor = min(floor, self.promises.synced)
            except StorageFailed as error:
                self.note(f"start failed: {error}")
            except StorageFull:
                self.reach("no room to start")
                self.disk.budget = UNLIMITED
            else:
                self._compare(before, floor)
                self._try(before)
                return
            if "midway" in self.swarm.faults and self.rng.random() < 0.3:
                self.disk.stop_in = int(self.rng.random() * 40)
        raise Violation("liveness", "the server does not start")

    def _try(self, before: VirtualDisk) -> None:
        """Try on a copy what a full or damaged disk would do now."""
        if self._trials.random() < TRIAL_ODDS:
            self.reach(try_all(before, self.swarm, self.now_ms(), self._trials))

    def _try_process(self) -> Boot:
        """Start a process; a read that failed this time may succeed the next time."""
        reads = self.disk.failed_reads_count
        try:
            return self._begin_process()
        except ReadFailed as error:
            raise Violation("read error", f"a failed read stops a start: {error}") from error
        except JournalDamaged as error:
            if self.disk.failed_reads_count == reads:
                raise
            self.reach("start refused for a failed read")
            raise StorageFailed(str(error)) from error

    def _begin_process(self) -> Boot:
        return self.boot_kind(self.swarm, self.disk, self.now_ms())

    def _compare(self, before: VirtualDisk, floor: int) -> None:
        """Compare the recovered yard with the model, then continue the model from there."""
        yard = self.boot.yard
        swarm = self.swarm
        model = self.model
        self.disk.disarm()
        self._count_recovery()
        restart = checkers.Restart(model, yard, self.now, self.base)
        cut = restart.find_cut(floor)
        self.note(f"recovered up to record {cut} of {model.records.count}, floor {floor}")
        if cut < model.records.count:
            self.reach("records lost")
        checkers.check_stamps(yard)
        if yard.journal.next_id <= self.promises.disclosed_max:
            story = f"{yard.journal.next_id} is next, {self.promises.disclosed_max} was disclosed"
            raise Violation("ids", story)
        if self.rng.random() < 0.3:
            checkers.check_repeatable(before, yard, swarm, self.now_ms())
        self.try_mending(before, checkers.dump)
        if "damage" in swarm.faults:
            self.reach(checkers.check_damage(before, yard, swarm, self.now_ms(), self.rng))
        restart.collapse(cut)
        checkers.check_yard(yard, model)
        self.promises.restart(model.records.count)
        self._refusals_count = self.disk.refusals_count

    def try_mending(self, before: VirtualDisk, dump: Callable[[Yard], Dump]) -> None:
        """Interrupt starts and repairs of a copy, now and then."""
        if self.mending.random() < 0.15:
            trial = Trial(before, self.swarm, self.now_ms(), self.mending, dump)
            self.reach(trial.interrupt_starts())
            if "damage" in self.swarm.faults:
                self.reach(trial.damage_and_repair())

    def _count_recovery(self) -> None:
        self.diary.start(self.boot.yard)
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
            self.pass_time(int(rng.random() * 30))
        if not self.connections or (
            len(self.connections) < swarm.clients_max and rng.random() < 0.2
        ):
            self.connect()
        self._converse()
        if rng.random() < 0.1:
            self.boot.add_spare()
        self.boot.journal.retry_full(self.now_ms())
        if rng.random() < swarm.compaction_odds or self._is_tight():
            self._compact()
        self._commit_perhaps()
        self.close_done()
        checkers.check_counts(self.boot.yard, self.model)
        if rng.random() < 0.03:
            self.check_all()

    def _arm_disk(self) -> None:
        """Choose what goes wrong with the disk next."""
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

    def _arm(self) -> None:
        """Choose what goes wrong next."""
        self._arm_disk()
        rng = self.rng
        faults = self.swarm.faults
        if "clock" in faults and rng.random() < 0.02:
            self.wall_offset += rng.choice((-3_600_000, -2000, 1500, 3_600_000, 315_360_000_000))
            self.reach("wall clock jump")
            self.note(f"the wall clock jumps to {self.wall_offset}")
        if "many-ids" in faults and rng.random() < 0.04:
            # As if that many jobs had been put and removed.
            self.boot.journal.next_id += int(rng.random() * 400_000)
            self.model.next_id = int(self.boot.journal.next_id)
            if rng.random() < 0.3:
                self.disk.stop_in = int(rng.random() * 8)
        if rng.random() < self.swarm.crash_odds:
            self._end_process()

    def _end_process(self) -> None:
        """Stop the server between two steps, in one of the ways this run uses."""
        choices = [how for how in ("kill", "power") if how in self.swarm.faults]
        how = self.rng.choice([*choices, "stop"])
        if how == "stop":
            self.stop()
        else:
            self._crash(KILL if how == "kill" else POWER)

    # -- time ----------------------------------------------------------------------------------

    def pass_time(self, ms: int) -> None:
        """Let time pass, with a tick whenever something is due."""
        until = self.now + ms
        while True:
            due = int(self.boot.yard.next_timer_ms()) - self.base
            if due > until:
                break
            self.now = max(self.now, due)
            self._tick()
            if int(self.boot.yard.next_timer_ms()) - self.base <= self.now:
                raise Violation("timers", "something due does not happen")
        self.now = until

    def _leap(self) -> None:
        """Let several seconds pass; a process that was frozen meanwhile sees them all at once."""
        ms = int(self.rng.random() * self.rng.random() * 8000)
        if "freeze" in self.swarm.faults and self.rng.random() < 0.3:
            self.reach("freeze")
            self.now += ms
            self._tick()
        else:
            self.pass_time(ms)

    def _tick(self) -> None:
        opened = int(self.boot.journal.open_number)
        now_ms = self.now_ms()
        while tick(self.boot.yard, now_ms) <= now_ms:
            self.reach("tick with work left")
        self._check(opened, [], self.model.tick)

    def _correct_wall(self) -> None:
        """Report the wall clock to the journal, as a server does at intervals."""
        offset = self.wall_offset - self.base
        if int(self.boot.journal.wall_offset_ms) != offset:
            self.boot.journal.wall_offset_ms = offset
            self.model.records.note_wall(self.wall_offset, self.model.jobs.values())

    # -- the wire ------------------------------------------------------------------------------

    def connect(self) -> Connection:
        """Connect one more client."""
        self._connections_total += 1
        client = self.model.connect(self._connections_total)
        connection = Connection(self.boot, client, self.promises.on_delivered)
        self.connections.append(connection)
        return connection

    def _converse(self) -> None:
        rng = self.rng
        connection = self.connections[int(rng.random() * len(self.connections))]
        if "network" in self.swarm.faults and rng.random() < 0.03:
            self._trouble(connection)
            return
        if not connection.client.is_ended and len(connection.unsent) < AHEAD_BYTES_MAX:
            for _ in range(1 + int(rng.random() * self.swarm.pipeline_max)):
                self._write(connection)
        self._deliver_some(connection)

    def _write(self, connection: Connection) -> None:
        """Add a command to the client's output."""
        rng = self.rng
        jobs = self.model.jobs
        if len(connection.client.commands) > AHEAD_MAX:
            return
        kind = draw(rng, self.swarm.commands)
        if len(jobs) > self.swarm.jobs_aimed and kind == workload.PUT and rng.random() < 0.7:
            kind = workload.DELETE
        connection.write(*self.author.write(kind, list(connection.client.held), list(jobs)))

    def _deliver_some(self, connection: Connection) -> None:
        size = len(connection.unsent)
        if self.rng.random() < self.swarm.cut_odds:
            size = int(self.rng.random() * size)
        self.deliver(connection, size)

    def deliver(self, connection: Connection, size: int) -> None:
        """Let some of the bytes on the line arrive."""
        data = connection.send(size)
        session = connection.session
        if data and not session.is_finished:
            self._drive(
                connection,
                lambda: session.receive(data, self.now_ms()),
                lambda: self.model.run(connection.client),
            )

    def _trouble(self, connection: Connection) -> None:
        """Let a client half-close, or disconnect in the middle of a word."""
        client = connection.client
        if self.rng.random() < 0.5:
            self.reach("reset while waiting" if client.is_waiting else "reset")
            self.note(f"{client.number} resets")
            self.close(connection)
            return
        self._deliver_some(connection)
        connection.unsent.clear()
        session = connection.session
        if not client.is_ended and not session.is_finished:
            self.reach("half-close while waiting" if client.is_waiting else "half-close")
            self.note(f"{client.number} half-closes")
            self._drive(
                connection,
                lambda: session.end_input(self.now_ms()),
                lambda: self.model.end_input(client),
            )

    def close(self, connection: Connection) -> None:
        """Close a connection."""
        self.connections.remove(connection)
        opened = int(self.boot.journal.open_number)
        connection.close(self.now_ms())
        self._check(opened, [], lambda: self.model.closed(connection.client))

    def close_done(self) -> None:
        """Close connections that the server would close now."""
        for connection in [each for each in self.connections if each.is_done()]:
            self.note(f"{connection.client.number} ends")
            self.close(connection)

    # -- the yard and the model in step --------------------------------------------------------

    def _drive(
        self, connection: Connection, act: Callable[[], None], expect: Callable[[], None]
    ) -> None:
        opened = int(self.boot.journal.open_number)
        act()
        self._check(opened, [connection], expect)

    def _resume(self, connection: Connection) -> None:
        self._drive(
            connection,
            lambda: connection.session.resume(self.now_ms()),
            lambda: self.model.run(connection.client),
        )

    def _check(self, opened: int, acting: list[Connection], expect: Callable[[], None]) -> None:
        """Compare the answers with what the model expects, then run the sessions that were woken.

        `opened` is the batch that was open before the yard acted.
        """
        while self.boot.finish_tasks(self.now_ms()):
            # Commands sent behind a long one are served once that has ended.
            for connection in acting:
                connection.session.resume(self.now_ms())
        self._note_refusals()
        wake = list(self.boot.wake)
        self.boot.wake.clear()
        heard = acting + [c for c in self.connections if c.ear in wake and c not in acting]
        for connection in heard:
            connection.collect()
            said = connection.client.observed
            if said:
                self.note(f"{connection.client.number}> {said[:60]!r} {crc32(said)}")
        model = self.model
        model.now = self.now
        before = model.records.count
        expect()
        if model.records.count > before:
            self.promises.note_records(model.records.count, opened)
        for connection in heard:
            connection.hand()
        for connection in heard:
            if connection.ear in wake:
                self._resume(connection)

    def _note_refusals(self) -> None:
        if self.disk.refusals_count != self._refusals_count:
            self._refusals_count = self.disk.refusals_count
            self._refused_ms = self.now

    def _is_refusal_fair(self) -> bool:
        self.reach("put refused")
        return self.now - self._refused_ms <= FULL_RETRY_MS

    def _is_tight(self) -> bool:
        """Return whether the disk is full: then a server compacts and commits in every turn."""
        return self.disk.budget != UNLIMITED

    # -- commits -------------------------------------------------------------------------------

    def _compact(self) -> None:
        boot = self.boot
        dropped = int(boot.compactor.dropped_count)
        for _ in range(1 + int(self.rng.random() * 3)):
            if not boot.compactor.step():
                break
        self._note_refusals()
        if boot.compactor.dropped_count > dropped:
            self.reach("segment let go")
        if boot.journal.damages.segments:
            raise Violation("compaction", f"found damage: {boot.journal.damages.segments}")

    def _commit_perhaps(self) -> None:
        boot = self.boot
        rng = self.rng
        if boot.late is not None and rng.random() < 0.5:
            boot.finish_sync()
            self._note_durable()
        is_due = self.swarm.is_os and boot.is_sync_due(self.now_ms())
        if rng.random() < self.swarm.commit_odds or is_due or self._is_tight():
            if rng.random() < 0.5:
                self._correct_wall()
            self.commit(is_late=self.swarm.is_sync_late and rng.random() < 0.7)
        # While a slow disk works, nothing else is served.
        self.now += self.disk.owed_ms
        self.disk.owed_ms = 0

    def commit(self, *, is_late: bool) -> None:
        """Commit what was appended; a late sync is left in progress."""
        boot = self.boot
        boot.commit(self.now_ms(), is_late=is_late)
        if boot.late is not None:
            self.reach("late sync")
        if boot.journal.hot.size > boot.journal.segment_size:
            self.reach("long segment")
        self.promises.note_write(int(boot.journal.written), self.model.records.count)
        self._note_durable()
        checkers.check_memory(boot.bodies, self.swarm)
        if self.diary.look(boot.yard) > 0:
            self.reach("history read")

    def _note_durable(self) -> None:
        self.promises.note_durable(int(self.boot.journal.durable))
        self.model.records.settle(self.promises.synced)

    def check_all(self) -> None:
        """Recount everything that can be counted."""
        self.diary.check(self.boot.yard)
        checkers.check_yard(self.boot.yard, self.model)
        journal = self.boot.journal
        if not journal.has_open_records() and not journal.pending:
            checkers.check_live(self.boot.yard, self.disk, self.swarm, self.now_ms())
