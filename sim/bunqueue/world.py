"""One run with bunqueue clients: the same disk, clock and faults, but another model.

Answers are compared with the model, job by job. What a restart brings back is compared with
snapshots of the running yard, one for every sealed batch; so a change that a verb makes in
memory and does not record is found, whether or not the model covers it.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from jobyard.engine.jobs.tick import tick
from jobyard.engine.recovery.open_yard import replay_all
from jobyard.engine.state.yard import Yard
from jobyard.errors import JournalDamaged, StorageFailed, StorageFull
from jobyard.journal.bodies import Bodies
from jobyard.journal.journal import Journal
from jobyard.model.job import BLOCKED, DONE, LEASED
from sim import checkers
from sim.bunqueue.boot import BunBoot
from sim.bunqueue.checkers import check_graves, check_indexes, check_results
from sim.bunqueue.guest import Guest
from sim.bunqueue.memory import Comparison, Snapshot, whole_dump
from sim.bunqueue.model import BunModel
from sim.bunqueue.network import BunConnection
from sim.bunqueue.nouns import NEVER, Ask, BunClient, BunJob, Reply
from sim.bunqueue.workload import BunAuthor, BunSwarm
from sim.finale import Finale
from sim.state import Violation
from sim.storage import Stopped
from sim.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.boot import Boot
    from sim.storage import VirtualDisk

WAITING_MAX: Final = 8
PULLS: Final = ("PULL", "PULLB")
# Commands that change nothing a restart would bring back.
FLEETING: Final = ("PULL", "PULLB", "JobHeartbeat", "ExtendLock")
DRAIN_ROUNDS: Final = 60


class BunWorld(World):
    """A run of one seed with bunqueue clients."""

    boot_kind = BunBoot

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.rng2 = Random(seed * 2_654_435_761 + 5)
        self.bun_swarm = BunSwarm(self.rng2)
        self.swarm.clients_max = self.bun_swarm.clients_max
        self.writer = BunAuthor(self.rng2, self.bun_swarm)
        guest_rng = Random(seed * 2_654_435_761 + 7)
        self._guest_odds = guest_rng.choice((0.0, 0.0, 0.4))
        self.guest = Guest(guest_rng, self._delivered)
        self.bun = BunModel(self._is_refusal_fair, self.reach)
        self.bun.may_fill = "full" in self.swarm.faults
        self.lines: list[BunConnection] = []
        self.bun_boot: BunBoot
        self._snapshots: dict[int, Snapshot] = {}
        self._is_changed = True
        # The batch that was open before the yard acted.
        self._opened = 0
        self._recovered = NEVER
        self._has_jumped = False
        self._has_recorded = False
        self._records = 0

    # -- starts and stops of the server ----------------------------------------------------------

    def run(self) -> None:
        """Run to the end."""
        self.start(0)
        for _ in range(self.swarm.steps_count):
            self._attempt(self._step)
        self._attempt(BunFinale(self).play)

    def _begin_process(self) -> Boot:
        """Start a process, and note how far the journal reached before it did."""
        before = self.disk.clone()
        try:
            boot = super()._begin_process()
        except (Stopped, StorageFailed, StorageFull, JournalDamaged):
            self._note_recovered(before, self.now_ms())
            raise
        self._recovered = min(self._recovered, int(boot.recovered.last_batch))
        return boot

    def _note_recovered(self, disk: VirtualDisk, now_ms: int) -> None:
        journal = Journal(disk, self.swarm.segment_size, ids_ahead=self.swarm.is_os)
        fresh = Yard(journal, Bodies(journal, 0))
        _, recovery = replay_all(fresh, disk, now_ms)
        self._recovered = min(self._recovered, int(recovery.next_number) - 1)

    def stop(self) -> None:
        """Stop cleanly and start again: everything must come back."""
        self.note("stop")
        self.reach("clean stop")
        self._remember()
        self.boot.stop()
        if self.rng.random() < 0.5:
            self.disk.cut_power()
        self.start(int(self.boot.journal.written))

    def _compare(self, before: VirtualDisk, floor: int) -> None:
        boot = self.boot
        assert isinstance(boot, BunBoot)
        self.bun_boot = boot
        yard = boot.yard
        self.lines.clear()
        self.disk.disarm()
        self._count_recovery()
        batch, self._recovered = self._recovered, NEVER
        self.note(f"recovered up to batch {batch}, floor {floor}")
        if batch < floor:
            raise Violation("restart", f"batch {batch} came back, {floor} was promised")
        if "clock" in self.swarm.faults and self.base != self._last_base:
            self._has_jumped = True
        self._compare_snapshot(yard, batch)
        self._adopt(yard)
        self.guest.enter(boot)
        if self.rng.random() < 0.3:
            self._check_repeatable(before, yard)
        self.try_mending(before, self._dump)
        if "damage" in self.swarm.faults:
            self._check_damage(before, yard)
        self._last_base = self.base
        self._snapshots = {}
        self._is_changed = True
        self._remember()
        self.promises.restart(int(boot.journal.durable))
        self._refusals_count = self.disk.refusals_count
        self._check_model()
        check_indexes(yard)

    _last_base = 0

    def _adopt(self, yard: Yard) -> None:
        """Continue the model from what came back."""
        self.bun.adopt(yard)

    def _compare_snapshot(self, yard: Yard, batch: int) -> None:
        """Compare what came back with the yard as it was when the batch was sealed."""
        known = self._snapshots
        newest = max(known, default=0)
        snapshot = known.get(min(batch, newest))
        if snapshot is None:
            if known:
                self.reach("no snapshot")
            return
        if batch < newest:
            self.reach("records lost")
        may_skip = "full" in self.swarm.faults
        jumped = self._has_jumped
        Comparison(self.now_ms(), may_skip=may_skip, has_jumped=jumped).check(yard, snapshot)
        self._compare_more(yard, snapshot)

    def _compare_more(self, yard: Yard, snapshot: Snapshot) -> None:
        """Compare what only some runs have."""

    def _check_repeatable(self, before: VirtualDisk, yard: Yard) -> None:
        disk = before.clone()
        wanted = self._dump(yard)
        for _ in range(2):
            again = checkers.open_copy(disk, self.swarm, self.now_ms())
            found = self._dump(again)
            if found != wanted:
                only = [one for one in found if one not in wanted]
                others = [one for one in wanted if one not in found]
                raise Violation("recovery twice", f"{only} is not {others}"[:2000])
            disk.cut_power()

    def _dump(self, yard: Yard) -> list[tuple[object, ...]]:
        """Return a yard as plain values, the bodies of jobs last in each."""
        return whole_dump(yard)

    def _check_damage(self, before: VirtualDisk, yard: Yard) -> None:
        disk = before.clone()
        ranges = checkers.known_ranges(disk)
        if not ranges:
            return
        what, where = checkers.damage(disk, ranges, self.rng)
        try:
            again = checkers.open_copy(disk, self.swarm, self.now_ms())
            found = self._dump(again)
        except JournalDamaged:
            self.reach(f"{what} refused")
            return
        wanted = self._dump(yard)
        if [one[:2] for one in found] != [one[:2] for one in wanted]:
            raise Violation("silent damage", f"{what}, {where}")
        for one, other in zip(found, wanted, strict=True):
            if one[2] != other[2] and one[2] is not None:
                raise Violation("silent damage", f"{what}, {where}: the body of {one[0]}")
        self.reach(f"{what} survived")

    # -- one step --------------------------------------------------------------------------------

    def _step(self) -> None:
        swarm = self.swarm
        rng = self.rng
        self._arm()
        if rng.random() < swarm.leap_odds:
            self._leap()
        else:
            self.pass_time(int(rng.random() * 30))
        self.boot.journal.retry_full(self.now_ms())
        self._note_refusals()
        if not self.lines or (len(self.lines) < swarm.clients_max and rng.random() < 0.2):
            self.open_line()
        self._converse()
        if self._guest_odds and self.guest.is_eager(self._guest_odds):
            self._let_guest_speak()
        if rng.random() < 0.1:
            self.boot.add_spare()
        if rng.random() < swarm.compaction_odds or self._is_tight():
            self._compact()
        self._commit_perhaps()
        self.close_done()
        self._check_model()
        if rng.random() < 0.03:
            self.check_all()

    def _converse(self) -> None:
        rng = self.rng2
        line = rng.choice(self.lines)
        if "network" in self.swarm.faults and rng.random() < 0.03:
            self.reach("reset")
            self.close_line(line)
            return
        for _ in range(1 + int(rng.random() * self.swarm.pipeline_max)):
            if len(line.client.asked) < WAITING_MAX:
                self.ask(line, self.writer.write(self.bun, line.client))

    def _correct_wall(self) -> None:
        offset = self.wall_offset - self.base
        if int(self.boot.journal.wall_offset_ms) != offset:
            self.boot.journal.wall_offset_ms = offset
            self._has_jumped = True

    # -- the wire --------------------------------------------------------------------------------

    def open_line(self) -> BunConnection:
        """Connect one more client."""
        self._connections_total += 1
        client = BunClient(self._connections_total)
        self.bun.clients.append(client)
        line = BunConnection(self.bun_boot, client, self._delivered)
        self.lines.append(line)
        return line

    def ask(self, line: BunConnection, ask: Ask) -> None:
        """Deliver a command, in one piece or in two."""
        frame = line.frame(ask)
        if "timeout" in ask.fields and ask.cmd in PULLS:
            ask.until = self.now_ms() + ask.number("timeout", 0)
        self.note(f"{line.client.number}< {ask!r}")
        self._begin()
        session = line.session
        cut = int(self.rng2.random() * len(frame)) if self.rng2.random() < 0.1 else 0
        if cut:
            session.receive(frame[:cut], self.now_ms())
        session.receive(frame[cut:], self.now_ms())
        self._end(line, ask, None)

    def _let_guest_speak(self) -> None:
        """Let the beanstalk client send a command."""
        self.reach("both protocols")
        self._begin()
        self.guest.say(self.now_ms())
        said = self.guest.told(self.now_ms(), self._opened)
        self.note(f"guest> {said[:40]!r}")
        self._end(None, None, None)

    def close_line(self, line: BunConnection) -> None:
        """Close a connection."""
        self.note(f"{line.client.number} resets")
        self.lines.remove(line)
        self._begin()
        line.close(self.now_ms())
        self._end(None, None, lambda: self.bun.closed(line.client))

    def close_done(self) -> None:
        """Check that no session ended on its own: none had a reason to."""
        for line in self.lines:
            if line.session.is_finished:
                raise Violation("reply", f"client {line.client.number} was disconnected")

    def _tick(self) -> None:
        now_ms = self.now_ms()
        self._begin()
        while tick(self.boot.yard, now_ms) <= now_ms:
            self.reach("tick with work left")
        self._end(None, None, self.bun.tick)

    def _begin(self) -> None:
        self._opened = int(self.boot.journal.open_number)
        # What is added to the open batch from now on describes a changed yard.
        self._snapshots.pop(self._opened, None)
        self._snapshots.pop(self._opened + 1, None)
        self._records = int(self.boot.journal.records_count)

    def _end(
        self, line: BunConnection | None, ask: Ask | None, also: Callable[[], None] | None
    ) -> None:
        """Compare the answers with what the model allows."""
        journal = self.boot.journal
        has_recorded = int(journal.records_count) > self._records
        # Removed jobs are freed alongside commands: no answer depends on that.
        if self.boot.finish_tasks(self.now_ms()):
            has_recorded = int(journal.records_count) > self._records
        self._has_recorded = has_recorded
        self._is_changed = True
        self._note_refusals()
        wake = list(self.boot.wake)
        self.boot.wake.clear()
        self.bun.now = self.now_ms()
        if also is not None:
            also()
        answers = []
        for one in self.lines:
            if one is line or one.ear in wake:
                answers += [(one, told, data) for told, data in one.collect()]
        if ask is not None:
            # The client that acted first: all others were served by its command.
            answers.sort(key=lambda each: each[0] is not line or each[1].get("reqId") != ask.req_id)
        is_loose = ask is None or ask.cmd in {"RetryDlq", "ACK", "ACKB"}
        self.bun.note_given([told for _, told, _ in answers], is_loose=is_loose)
        # The job that the command names was removed by the command, not by its age.
        self.bun.drop_old("" if ask is None else str(ask.fields.get("id", "")))
        for one, told, data in answers:
            self._told(one, told, data)
            self.bun.drop_old()
        for one in self.lines:
            for waiting in one.client.asked.values():
                self.bun.check_waiting(one.client, waiting)
            if one.ear in wake:
                one.session.resume(self.now_ms())

    def _told(self, line: BunConnection, told: Reply, data: bytes) -> None:
        client = line.client
        self.note(f"{client.number}> {str(told)[:200]}")
        ask = client.asked.pop(str(told.get("reqId")), None)
        if ask is None:
            raise Violation("reply", f"client {client.number}: unexpected answer {told}")
        before: set[BunJob] = set()
        if ask.cmd in PULLS:
            before = {job for job in self.bun.jobs.values() if job.state == LEASED}
        known = len(self.bun.jobs) + len(self.bun.gone)
        self.bun.answered(client, ask, told)
        is_duplicate = ask.cmd in {"PUSH", "PUSHB"} and known == len(self.bun.jobs) + len(
            self.bun.gone
        )
        batch = 0
        if ask.cmd in PULLS:
            given = [j for j in self.bun.jobs.values() if j.state == LEASED and j not in before]
            batch = max((job.batch for job in given), default=0)
        elif told["ok"] and ask.cmd not in FLEETING and self._has_recorded and not is_duplicate:
            batch = self._opened
        named = self.bun.by_id.get(str(told.get("id", "")))
        if named is not None:
            named.batch = batch = max(named.batch, batch)
        line.hand(data, batch)

    def _delivered(self, batch: int) -> None:
        """Check that a delivered answer depends only on safe batches."""
        promises = self.promises
        is_os = self.swarm.is_os
        if batch <= (promises.written if is_os else promises.synced):
            return
        disk = self.disk
        if not (batch <= disk.written_batch if is_os else disk.is_safe(batch)):
            raise Violation("answer before its record", f"batch {batch}")
        promises.written = max(promises.written, batch)
        if not is_os:
            promises.synced = max(promises.synced, batch)

    # -- snapshots and commits -------------------------------------------------------------------

    def _remember(self) -> None:
        """Take a snapshot of the yard for the batch that is sealed next."""
        journal = self.boot.journal
        number = int(journal.newest())
        if not self._is_changed and number in self._snapshots:
            return
        if self._is_changed:
            self._newest = self._snapshot()
            self._is_changed = False
        self._snapshots[number] = self._newest
        self._seen = int(journal.open_number)

    _newest: Snapshot
    _seen = 0

    def _snapshot(self) -> Snapshot:
        """Return what must come back of the yard as it is now."""
        bodies = {number: job.data for number, job in self.bun.jobs.items()}
        return Snapshot(self.boot.yard, bodies)

    def _compact(self) -> None:
        self._remember()
        first = int(self.boot.journal.open_number)
        super()._compact()
        for number in range(first, int(self.boot.journal.open_number) + 1):
            self._snapshots[number] = self._newest

    def commit(self, *, is_late: bool) -> None:
        """Commit what was appended; a late sync is left in progress."""
        boot = self.boot
        self._remember()
        first = int(boot.journal.open_number)
        for number in range(first, first + 2):
            self._snapshots.setdefault(number, self._newest)
        boot.commit(self.now_ms(), is_late=is_late)
        self.promises.note_write(int(boot.journal.written), int(boot.journal.written))
        self._note_durable()
        self._check_memory()
        if self.diary.look(boot.yard) > 0:
            self.reach("history read")
        if boot.journal.open_bytes() > 0:
            raise Violation("disk use", f"{boot.journal.open_bytes()} bytes stay after a commit")
        for number in list(self._snapshots):
            if number < self.promises.synced:
                del self._snapshots[number]

    def _note_durable(self) -> None:
        self.promises.note_durable(int(self.boot.journal.durable))

    def _check_memory(self) -> None:
        checkers.check_memory(self.boot.bodies, self.swarm)

    def _check_model(self) -> None:
        self.bun.check()
        yard = self.boot.yard
        check_graves(yard)
        self.guest.count(yard)
        count = self._jobs_count()
        if int(yard.jobs.count) != count:
            raise Violation("counters", f"{yard.jobs.count} jobs in the yard, {count} put")

    def _jobs_count(self) -> int:
        """Return how many jobs there should be."""
        return len(self.bun.jobs) + len(self.guest.jobs)

    def check_all(self) -> None:
        """Recount everything that can be counted."""
        check_indexes(self.boot.yard)
        if "failed-read" not in self.swarm.faults:
            check_results(self.boot.yard)
        self.diary.check(self.boot.yard)
        journal = self.boot.journal
        if not journal.has_open_records() and not journal.pending:
            checkers.check_live(self.boot.yard, self.disk, self.swarm, self.now_ms())


class BunFinale(Finale):
    """Drains a world through one last bunqueue client."""

    def __init__(self, world: BunWorld) -> None:
        super().__init__(world)
        self._bun = world

    def play(self) -> None:
        """Bring everything to its end."""
        world = self._bun
        world.disk.heal()
        world.note("faults end")
        self._settle()
        for line in list(world.lines):
            world.close_line(line)
        last = world.open_line()
        for queue in world.bun_swarm.queues:
            world.ask(last, Ask("Resume", {"queue": queue}))
            world.ask(last, Ask("ClearConcurrency", {"queue": queue}))
        for _ in range(DRAIN_ROUNDS):
            if not self._drain(last):
                break
        left = [job for job in world.bun.jobs.values() if job.state != DONE]
        if left:
            raise Violation("liveness", f"{len(left)} jobs do not drain: {left[:3]}")
        self._rest()
        world.stop()
        world.note_disk()

    def _drain(self, last: BunConnection) -> bool:
        """Run what is ready, revive what is dead, cancel what waits for ever."""
        world = self._bun
        model = world.bun
        world.pass_time(61_000)
        for queue in world.bun_swarm.queues:
            world.ask(last, Ask("RetryDlq", {"queue": queue}))
            world.ask(last, Ask("PULLB", {"queue": queue, "count": 50}))
        for job in [each for each in model.jobs.values() if each.state == LEASED]:
            lock = job.lock
            if lock is not None and lock.client is last.client:
                world.ask(last, Ask("ACK", {"id": job.id, "result": 1}))
        for job in [each for each in model.jobs.values() if each.state == BLOCKED]:
            if job.number in model.jobs and any(one not in model.jobs for one in job.waits):
                world.ask(last, Ask("Cancel", {"id": job.id}))
        self._settle()
        return any(job.state != DONE for job in model.jobs.values())
