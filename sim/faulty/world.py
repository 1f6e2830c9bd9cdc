"""One run of topics and glide-mq clients on a faulty disk.

The disk fills up and is freed again, reads fail in series, bits of bodies flip, and the process
ends now and then, all while clients continue. Turns have room for little work, so routers are late.
Ledgers hold what clients were promised; every answer, turn and restart is compared with these.
"""

from __future__ import annotations

import io
from random import Random
from typing import TYPE_CHECKING, Final, TypeVar
from zlib import crc32

from jobyard.engine.jobs.tick import tick
from jobyard.engine.recovery.repair import repair_storage
from jobyard.errors import JournalDamaged
from jobyard.journal.batches import FULL_RETRY_MS
from jobyard.protocols.glidemq.door import GlidemqDoor
from jobyard.protocols.glidemq.entrance import GlidemqEntrance
from sim.faulty.clients import GlideQueue, TopicsLog, TopicsQueue, follow
from sim.glidemq.boot import Standstill
from sim.glidemq.network import RespLine, pack
from sim.promises import Promises
from sim.state import Violation
from sim.storage import NEVER
from sim.topics.boot import TopicsBoot
from sim.topics.network import HttpLine
from sim.topics.nouns import Ask
from sim.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from jobyard.protocols.session import Session
    from sim.boot import Boot
    from sim.faulty.ledger import Ledger
    from sim.glidemq.network import Answer as RespAnswer
    from sim.storage import VirtualDisk
    from sim.topics.answer import Answer
    from sim.workload import Swarm

Reply = TypeVar("Reply")

STEPS: Final = 160
# The most turns that a command may take.
TURNS_MAX: Final = 400
DRAIN_ROUNDS: Final = 60
FAULTS: Final = (("power", 0.4), ("kill", 0.4), ("midway", 0.3), ("full", 0.7), ("rot", 0.5))
# Sizes stored apart in a batch, and the offset that is hit: its sector holds nothing else.
LONG: Final = 4096
HIT_AT: Final = 1024
# Longer than any lease.
LONGEST_MS: Final = 61_000


class FaultyBoot(TopicsBoot):
    """A server process for HTTP and glide-mq."""

    def __init__(self, swarm: Swarm, disk: VirtualDisk, now_ms: int) -> None:
        super().__init__(swarm, disk, now_ms)
        if swarm.units_per_turn:
            self.yard.tasks.served_at_once = 1
        self.glidemq = GlidemqEntrance(GlidemqDoor(self.yard, Standstill(), now_ms))


class FaultyWorld(World):
    """A run of one seed on a faulty disk."""

    boot_kind = FaultyBoot

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        rng = Random(seed * 2_654_435_761 + 17)
        swarm = self.swarm
        swarm.faults = {name for name, odds in FAULTS if rng.random() < odds}
        swarm.is_os = False
        swarm.segment_size = rng.choice((16_384, 65_536))
        swarm.body_budget = rng.choice((0, 0, 3000, 1 << 30))
        swarm.units_per_turn = rng.choice((0, 12, 12))
        self.promises = Promises(self.disk, is_os=False)
        self._rng = rng
        self._queues = [
            TopicsQueue(self, rng, "plain", is_kept=False),
            TopicsQueue(self, rng, "kept", is_kept=True),
        ]
        self._log = TopicsLog(self, rng, "log")
        self._glide = GlideQueue(self, rng, "g")
        self._clients = (*self._queues, self._log, self._glide)
        self._ledgers = [self._glide.ledger, *(one.ledger for one in self._queues)]
        self._streams = [self._log.stream, *(one.stream for one in self._queues)]
        self._http: HttpLine
        self._resp: RespLine
        self._starts_count = 0
        self._failed_seen = 0
        # Reads that have failed and killed no job yet.
        self._failed_spare = 0
        self._hits_count = 0

    # -- starts and stops of the server ----------------------------------------------------------

    def run(self) -> None:
        """Run to the end."""
        self.start(0)
        for client in self._clients:
            client.set_up()
        self.commit(is_late=False)
        for _ in range(STEPS):
            self._attempt(self._step)
        self._attempt(self._play_out)

    def _begin_process(self) -> Boot:
        """Start a process, after a repair if a flipped bit is in data that a start reads."""
        is_passing = self.disk.fail_read_in < NEVER // 2
        try:
            return super()._begin_process()
        except JournalDamaged as error:
            if is_passing or not self._hits_count:
                raise
            self.disk.disarm()
            out = io.StringIO()
            if not repair_storage(self.disk, "data", self.now_ms(), out):
                raise Violation("repair", f"{error} was not repaired: {out.getvalue()}") from error
            self.reach("repaired in the midst of a run")
            self.note(f"{error}, repaired: {crc32(out.getvalue().encode())}")
            return super()._begin_process()

    def _compare(self, before: VirtualDisk, floor: int) -> None:  # noqa: ARG002  the ledgers suffice
        boot = self.boot
        assert isinstance(boot, FaultyBoot)
        self.disk.disarm()
        self._http = HttpLine(boot, 1, _ignore)
        self._resp = RespLine(boot, 2, _ignore)
        self._starts_count += 1
        self.note(f"start {self._starts_count}, floor {floor}")
        if self._starts_count > 1:
            for client in self._clients:
                client.restart(boot.yard, floor)
        # A body that a start could not read does not concern the clients yet.
        self._failed_seen = self.disk.failed_reads_count
        self.promises.restart(int(boot.journal.durable))
        self._refusals_count = self.disk.refusals_count

    def _try(self, before: VirtualDisk) -> None:
        """Do nothing: the run itself is a trial."""

    def stop(self) -> None:
        """Stop cleanly and start again: everything must come back."""
        self.note("stop")
        self.reach("clean stop")
        self.boot.stop()
        self.start(int(self.boot.journal.written))

    # -- one step --------------------------------------------------------------------------------

    def _step(self) -> None:
        self._arm()
        if "rot" in self.swarm.faults:
            self._rot()
        self.pass_time(int(self._rng.random() * self._rng.choice((5, 400))))
        self.boot.journal.retry_full(self.now_ms())
        self._note_refusals()
        for _ in range(1 + int(self._rng.random() * 3)):
            self._rng.choice(self._clients).act()
            self._check_ledgers()
        stream = self._rng.choice(self._streams)
        if self._rng.random() < 0.1:
            stream.rewind()
        follow(self, stream, may_skip=self._may_skip())
        self._turn()

    def _turn(self) -> None:
        """Do what a server does at the end of a turn."""
        boot = self.boot
        boot.add_spare()
        boot.journal.retry_full(self.now_ms())
        if boot.yard.routers.late:
            self.reach("router late")
        boot.yard.tasks.proceed(self.now_ms())
        if self.rng.random() < self.swarm.compaction_odds or self.is_tight():
            for _ in range(3):
                boot.compactor.step()
        self._note_refusals()
        if self.rng.random() < 0.5 or self.is_tight():
            self.commit(is_late=False)
        self._check_ledgers()

    def _rot(self) -> None:
        """Make some reads fail once, or damage a body or the text of a record for good."""
        rng = self._rng
        if rng.random() < 0.2:
            self.disk.fail_read_in = int(rng.random() * 3)
        if rng.random() < 0.06:
            self._damage_job(rng.choice(self._ledgers))
        if self._log.texts and rng.random() < 0.03:
            self._damage_record(rng.choice(self._log.texts))

    def _damage_job(self, ledger: Ledger) -> None:
        """Damage the body of a job, if it is stored apart in a sealed segment."""
        journal = self.boot.journal
        for entry in ledger.jobs.values():
            job = ledger.find(self.boot.yard, entry.name)
            segment = None if job is None else journal.segments.get(job.place >> 32)
            if job is None or segment is None or not segment.is_sealed or not entry.is_open():
                continue
            at = int(job.place & 0xFFFFFFFF)
            view = self.disk.files[segment.name].view
            if len(entry.body) > LONG and view[at : at + len(entry.body)] == entry.body:
                entry.is_damaged = True
                self._hit(segment.name, at, is_flip=self._rng.random() < 0.5)
                return

    def _damage_record(self, text: bytes) -> None:
        """Flip a bit in a record of a log, or in its copy, in a sealed segment.

        A lost sector costs everything that was written with one call once that is repaired. A job
        may have the same text as its body, and its ledger would not show that it was hit.
        """
        bodies = {int(job.place) for job in self.boot.yard.jobs.all()}
        for segment in self.boot.journal.segments.values():
            view = self.disk.files[segment.name].view
            at = view.find(text) if segment.is_sealed else -1
            while at >= 0 and int(segment.number) << 32 | at in bodies:
                at = view.find(text, at + 1)
            if at >= 0:
                self._hit(segment.name, at, is_flip=True)
                return

    def _hit(self, name: str, at: int, *, is_flip: bool) -> None:
        """Flip a bit, or make the sector around it unreadable."""
        at += HIT_AT
        file = self.disk.files[name]
        if is_flip:
            file.view[at] ^= 4
            file.durable[at] ^= 4
        else:
            self.disk.spoil(name, at)
        self._hits_count += 1
        self.note(f"{name} is damaged at {at}")
        self.reach("damaged under load")

    def _may_skip(self) -> bool:
        """Return whether routers may skip records: they skip those that cannot be read."""
        return "rot" in self.swarm.faults or self._starts_count > 1

    def _check_ledgers(self) -> None:
        """Check that nothing is lost, and that only jobs that were hit are dead."""
        failed = self.disk.failed_reads_count
        self._failed_spare += failed - self._failed_seen
        self._failed_seen = failed
        for ledger in self._ledgers:
            before = ledger.corrupt_count()
            self._failed_spare -= ledger.check(self.boot.yard, self._failed_spare)
            if ledger.corrupt_count() > before:
                self.reach("job dead of damage under load")

    def _tick(self) -> None:
        now_ms = self.now_ms()
        while tick(self.boot.yard, now_ms) <= now_ms:
            self.reach("tick with work left")
        self._note_refusals()

    def commit(self, *, is_late: bool) -> None:
        """Commit what was appended."""
        boot = self.boot
        boot.commit(self.now_ms(), is_late=is_late)
        written = int(boot.journal.written)
        self.promises.note_write(written, written)
        self.promises.note_durable(int(boot.journal.durable))

    # -- the wire --------------------------------------------------------------------------------

    def http(self, verb: str, name: str, fields: dict[str, object]) -> Answer:
        """Send a request and return its answer."""
        ask = Ask(verb, name, fields)
        self.note(f"< {ask!r}")
        line = self._http
        line.session.receive(ask.request(), self.now_ms())
        answer = self._await(line.session, line.collect)
        self._note_refusals()
        self.note(f"> {answer.status} {str(answer.body)[:160]}")
        return answer

    def resp(self, words: list[bytes]) -> RespAnswer:
        """Send a command and return its answer."""
        self.note(f"< {b' '.join(words)[:160]!r}")
        line = self._resp
        line.session.receive(pack(words), self.now_ms())
        answer = self._await(line.session, line.collect)
        self._note_refusals()
        self.note(f"> {str(answer)[:160]}")
        return answer

    def _await(self, session: Session, collect: Callable[[], list[tuple[Reply, bytes]]]) -> Reply:
        """Return the one answer to a request, which may take several turns."""
        answers = collect()
        for _ in range(TURNS_MAX):
            if answers:
                break
            self.boot.yard.tasks.proceed(self.now_ms())
            session.resume(self.now_ms())
            answers = collect()
        ((answer, _),) = answers
        return answer

    def newest(self) -> int:
        """Return the batch of the last answered change, or a later one."""
        return int(self.boot.journal.newest())

    def is_tight(self) -> bool:
        """Return whether the disk is full, or was a moment ago."""
        return self._is_tight() or self.now - self._refused_ms <= FULL_RETRY_MS

    def see_refusal(self, story: object) -> None:
        """Check that a refusal for lack of room was justified."""
        self.reach("refused by a full disk")
        is_named = "storage_full" in str(story) or str(story).startswith("MISCONF")
        if self.now - self._refused_ms > FULL_RETRY_MS or not is_named:
            raise Violation("full disk", f"refused although there was room: {story}"[:300])

    # -- the end ---------------------------------------------------------------------------------

    def _play_out(self) -> None:
        """End the faults, and bring everything that was promised to its end."""
        self.disk.heal()
        self.note("faults end")
        self.swarm.faults.discard("full")
        self.pass_time(FULL_RETRY_MS)
        self._turn()
        self._glide.check_results()
        self.pass_time(LONGEST_MS)
        for _ in range(DRAIN_ROUNDS):
            self.pass_time(1000)
            for _ in range(20):
                self._turn()
            for stream in self._streams:
                follow(self, stream, may_skip=self._may_skip())
            for queue in self._queues:
                queue.claim(50)
                queue.ack(queue.ledger.open_jobs(self.now_ms(), is_held=True))
            self._glide.read(50)
            for entry in self._glide.ledger.open_jobs(self.now_ms(), is_held=True):
                self._glide.complete(entry)
            self._check_ledgers()
            if not self._left():
                break
        else:
            raise Violation("liveness", f"{self._left()} are left"[:800])
        self.commit(is_late=False)
        self.stop()

    def _left(self) -> list[object]:
        """Return the open jobs, and the routers that have not caught up."""
        left: list[object] = [
            entry for ledger in self._ledgers for entry in ledger.jobs.values() if entry.is_open()
        ]
        behind = [one for one in self.boot.yard.routers.by_name.values() if one.is_behind]
        may_skip = self._may_skip()
        left += [
            stream.dest
            for stream in self._streams
            if behind or (stream.passed < len(stream.written) and not may_skip)
        ]
        return left


def _ignore(_: object) -> None:
    """Ignore an answer: answers are checked when they are written."""
