"""One run with glide-mq clients over RESP, next to clients of other doors now and then.

Disk, clock, faults and snapshots are those of runs with bunqueue clients. Commands are cut at any
byte, and the rest may come later or never. Every answer is compared with the glide-mq model;
what a restart brings back is compared with the yard as it was when the newest recovered batch
was sealed. Commands that take effect as a whole must be in one batch.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from jobyard.journal.format.segment import BatchHead
from jobyard.model.job import BLOCKED, LEASED
from jobyard.protocols.glidemq.session import GlidemqSession
from sim import checkers
from sim.bunqueue.world import BunFinale, BunWorld
from sim.glidemq.boot import GlideBoot
from sim.glidemq.memory import GlideSnapshot, Showing
from sim.glidemq.model import GlideModel
from sim.glidemq.network import RespLine, pack
from sim.glidemq.nouns import Ask
from sim.glidemq.visitor import Visitor
from sim.glidemq.words import phrase
from sim.glidemq.workload import GlideAuthor, GlideSwarm
from sim.state import Violation

if TYPE_CHECKING:
    from collections.abc import Callable

    from jobyard.engine.state.yard import Yard
    from sim.bunqueue.memory import Snapshot
    from sim.bunqueue.network import BunConnection
    from sim.bunqueue.nouns import Ask as BunAsk
    from sim.glidemq.network import Answer

DRAIN_ROUNDS: Final = 40
# Room for the stored values of a run, which are always in memory too.
SIDE_BUDGET: Final = 24_000
# Commands that take effect as a whole, or not at all.
ECHOED: Final = frozenset({"ok", "queued"})
WHOLE: Final = ECHOED | {"exec", "flow", "add", "dedup", "complete", "fail", "remove", "revoke"}


class GlideWorld(BunWorld):
    """A run of one seed with glide-mq clients."""

    boot_kind = GlideBoot

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        # What a full disk refuses, and when, is tested in other runs.
        self.swarm.faults.discard("full")
        self.bun.may_fill = False
        self.swarm.body_budget = max(self.swarm.body_budget, SIDE_BUDGET)
        self.rng3 = Random(seed * 2_654_435_761 + 13)
        is_steady = "clock" not in self.swarm.faults
        self.glide_swarm = GlideSwarm(self.rng3, is_steady=is_steady)
        self.glide_author = GlideAuthor(self.rng3, self.glide_swarm)
        self.glide = GlideModel(self.reach)
        # Drawn from a separate generator, so that older seeds keep their runs.
        self._visits = Random(seed * 2_654_435_761 + 23)
        self._visits_odds = self._visits.choice((0.0, 0.0, 0.1))
        self.visitor = Visitor(self.glide_swarm.queues, self._delivered)
        self.resp_lines: list[RespLine] = []
        self.glide_boot: GlideBoot
        self._is_tick = False
        self._is_alone = False
        # The connection whose bytes the server has just received.
        self._acting: RespLine | None = None

    # -- starts and stops of the server ----------------------------------------------------------

    def run(self) -> None:
        """Run to the end."""
        self.start(0)
        for _ in range(self.swarm.steps_count):
            self._attempt(self._step)
        self._attempt(GlideFinale(self).play)

    def _adopt(self, yard: Yard) -> None:
        boot = self.boot
        assert isinstance(boot, GlideBoot)
        self.glide_boot = boot
        self.resp_lines.clear()
        # The last process may have ended in the middle of either.
        self._is_tick = False
        self._acting = None
        super()._adopt(yard)
        self._set_time()
        self.glide.adopt(yard)
        if self._visits_odds:
            self.visitor.enter(boot, self.now_ms())

    def stop(self) -> None:
        """Stop cleanly and start again: clients must see what they saw before."""
        self._set_time()
        queues = self.glide_swarm.queues
        before = Showing(self.glide_boot, self.glide, queues)
        super().stop()
        if "clock" not in self.swarm.faults:
            before.check(Showing(self.glide_boot, self.glide, queues))

    def _set_time(self) -> None:
        self.glide.now = self.now_ms()
        self.glide.wall_offset = int(self.boot.journal.wall_offset_ms)

    def _compare_more(self, yard: Yard, snapshot: Snapshot) -> None:
        assert isinstance(snapshot, GlideSnapshot)
        snapshot.check_side(yard, has_jumped=self._has_jumped)

    def _snapshot(self) -> Snapshot:
        bodies = {number: job.data for number, job in self.bun.jobs.items()}
        bodies |= {number: job.data for number, job in self.glide.jobs.items()}
        return GlideSnapshot(self.boot.yard, bodies, self.now_ms())

    # -- the wire --------------------------------------------------------------------------------

    def _converse(self) -> None:
        rng = self.rng3
        if rng.random() < self.glide_swarm.others_odds:
            self.reach("glide-mq beside others")
            super()._converse()
            return
        for _ in range(1 + int(rng.random() * self.glide_swarm.eagerness)):
            self._speak()

    def _speak(self) -> None:
        """Let one client send something, or disconnect it."""
        rng = self.rng3
        lines = self.resp_lines
        if not lines or (len(lines) < self.glide_swarm.clients_max and rng.random() < 0.2):
            self.open_resp()
        line = rng.choice(lines)
        if "network" in self.swarm.faults and rng.random() < 0.03:
            self.close_resp(line)
            return
        if line.unsent:
            self.send(line)
        elif not line.asked:
            self._set_time()
            self.request(line, self.glide_author.write(self.glide, line.number))
        if self._visits_odds and self._visits.random() < self._visits_odds:
            self._visit()

    def _visit(self) -> None:
        """Let a beanstalk client take a job and end its run."""
        model = self.glide
        visitor = self.visitor
        self._begin()
        answer = visitor.say(b"reserve-with-timeout 0", self.now_ms())
        self.note(f"visitor> {answer[:60]!r}")
        self._begin_turn()
        job = visitor.taken(model, answer)
        self._end(None, None, None)
        if job is None:
            return
        self.reach("taken at another door")
        is_good = self._visits.random() < 0.7
        word = b"delete %d" if is_good else b"bury %d 0"
        self._begin()
        answer = visitor.say(word % job.number, self.now_ms())
        self.note(f"visitor> {answer!r}")
        self._begin_turn()
        visitor.ended(model, job, answer, is_good=is_good)
        self._end(None, None, None)

    def _begin_turn(self) -> None:
        self._set_time()
        self.glide.batch = self._opened
        self.glide.just_given = set()
        self.glide.follow_old()

    def open_resp(self) -> RespLine:
        """Connect one more client."""
        self._connections_total += 1
        line = RespLine(self.glide_boot, self._connections_total, self._delivered)
        self.resp_lines.append(line)
        if self.rng3.random() < 0.4:
            hello = Ask("hello")
            hello.words = [b"HELLO", b"3"]
            self.request(line, [hello])
        return line

    def close_resp(self, line: RespLine) -> None:
        """Close a connection; the jobs it took stay with its consumer."""
        self.reach("reset in a command" if line.unsent else "reset")
        self.note(f"{line.number} resets")
        self.resp_lines.remove(line)
        self._begin()
        line.close(self.now_ms())
        self.glide.closed(line.number)
        self._end(None, None, None)

    def request(self, line: RespLine, asks: list[Ask]) -> None:
        """Let a client send commands; bytes that are not delivered yet come later."""
        for ask in asks:
            self.note(f"{line.number}< {ask!r}")
            line.write(ask, pack(ask.words))
        self.send(line)

    def send(self, line: RespLine) -> None:
        """Deliver bytes to the server: all of them, or some."""
        rng = self.rng3
        size = len(line.unsent)
        if "network" in self.swarm.faults and rng.random() < self.swarm.cut_odds:
            size = int(rng.random() * size)
        while size > 0 and line in self.resp_lines:
            # Waiting clients are served between two commands, so each is checked separately.
            part = min(size, line.next_size()) if self._waiting() else size
            size -= part
            self._carry(line, part)

    def _carry(self, line: RespLine, size: int) -> None:
        is_quiet = not self._waiting()
        data, arrived = line.take(size)
        self._set_time()
        for ask in arrived:
            if ask.block:
                ask.until = self.now_ms() + ask.block
            if ask.kind == "read":
                self.glide.note_reader(ask)
        self._is_alone = len(arrived) == 1
        is_whole = is_quiet and bool(arrived) and all(ask.kind in WHOLE for ask in arrived)
        journal = self.boot.journal
        sealed_count, open_size = len(journal.pending), int(journal.open_bytes())
        self._begin()
        line.session.receive(data, self.now_ms())
        real = [ask for ask in arrived if ask.kind not in ECHOED]
        # Jobs removed to keep a maximum count are removed one by one, and other jobs may be too.
        is_whole = is_whole and not _is_at_work(line)
        if is_whole and len(real) == 1 and real[0].mode != b"count":
            self._check_whole(real[0], sealed_count, open_size)
        self._acting = line
        self._end(None, None, None)
        self._acting = None

    def _check_whole(self, ask: Ask, sealed_count: int, open_size: int) -> None:
        """Check that batches closed during a command contain nothing of that command."""
        sealed = [one for one in self.boot.journal.pending[sealed_count:] if not one.is_seal]
        for one in sealed:
            # The header of a long one is empty before that.
            one.sum(int(one.size) + 1)
        heads = [BatchHead(one.pieces[0], 0) for one in sealed]
        size = sum(int(head.records_size + head.part2_size) for head in heads)
        if sealed:
            self.reach("batch closed before a whole")
        if sealed and size != open_size:
            raise Violation("pieces", f"{ask} is in more than one batch")

    def _waiting(self) -> list[Ask]:
        """Return the commands that wait."""
        return [line.asked[0] for line in self.resp_lines if line.is_waiting()]

    # -- the yard and the model in step ------------------------------------------------------------

    def _tick(self) -> None:
        self._is_tick = True
        super()._tick()
        self._is_tick = False

    def _end(
        self, line: BunConnection | None, ask: BunAsk | None, also: Callable[[], None] | None
    ) -> None:
        self._hear()
        super()._end(line, ask, also)

    def _hear(self) -> None:
        """Compare the answers to RESP clients with what the model allows."""
        has_recorded = self._has_appended()
        # Removed jobs are freed alongside commands: no refusal depends on that.
        has_recorded = self._has_appended() if self._finish_work() else has_recorded
        model = self.glide
        acting = self._acting
        self._set_time()
        model.batch = self._opened
        if self._is_tick:
            model.tick()
        wake = list(self.boot.wake)
        said: list[tuple[RespLine, Answer, bytes]] = []
        for line in sorted(self.resp_lines, key=lambda one: one is not acting):
            if line is not acting and line.ear in wake:
                line.session.resume(self.now_ms())
            if line is acting or line.ear in wake:
                said += [(line, answer, data) for answer, data in line.collect()]
        model.just_given = set()
        for line, answer, _ in said:
            if line is not acting:
                self._note_given(line, answer)
        # Commands sent together with a following one check no job's age, and no client waits
        # then: if any found expired jobs, the last did.
        finder = max(sum(line is acting for line, _, _ in said) - 1, 0)
        for at, (line, answer, data) in enumerate(said):
            if at == finder and line.asked and line.asked[0].kind != "active":
                model.follow_old()
            self._answered(line, answer, data, has_recorded=has_recorded)
        # A run that ended may have been of an expired job.
        model.follow_old()
        model.settle()
        for ask in self._waiting():
            model.check_waiting(ask)

    def _has_appended(self) -> bool:
        """Return whether anything was recorded since the server began to act."""
        return int(self.boot.journal.records_count) > self._records

    def _finish_work(self) -> bool:
        """Run long commands to the end of their work and answers; return whether there were any."""
        has_any = self.boot.finish_tasks(self.now_ms())
        for line in self.resp_lines:
            if _is_at_work(line):
                self.reach("long RESP command")
                assert isinstance(line.session, GlidemqSession)
                self.glide_boot.finish_work(line.session, self.now_ms())
                has_any = True
        return has_any

    def _note_given(self, line: RespLine, answer: Answer) -> None:
        """Note which jobs were given to waiting clients in this turn."""
        if not isinstance(answer, list):
            return
        queue = line.asked[0].queue
        pair = answer[0] if len(answer) == 1 else answer
        assert isinstance(pair, list)
        assert isinstance(pair[1], list)
        for entry in pair[1]:
            assert isinstance(entry, list)
            fields = entry[1]
            assert isinstance(fields, list)
            assert isinstance(fields[1], bytes)
            self.glide.just_given.add((queue, fields[1].decode()))

    def _answered(self, line: RespLine, answer: Answer, data: bytes, *, has_recorded: bool) -> None:
        self.note(f"{line.number}> {data[:160]!r}")
        ask = line.answered()
        if ask is None:
            raise Violation("reply", f"client {line.number}: unexpected answer {answer!r}")
        batch = self.glide.answered(ask, answer)
        if ask.kind == "refused" and self._is_alone and has_recorded:
            raise Violation("refusal", f"{ask} was refused and left a record")
        line.hand(data, batch)

    # -- checks ----------------------------------------------------------------------------------

    def close_done(self) -> None:
        """Check that no session ended on its own, except after an incomplete command."""
        super().close_done()
        for line in list(self.resp_lines):
            if line.session.is_finished:
                if not line.unsent:
                    raise Violation("reply", f"client {line.number} was disconnected")
                self.reach("half a command given up")
                self.close_resp(line)

    def _check_model(self) -> None:
        super()._check_model()
        self.glide.check()

    def _jobs_count(self) -> int:
        return super()._jobs_count() + len(self.glide.jobs)

    def _check_memory(self) -> None:
        yard = self.boot.yard
        kept = checkers.kept_bytes(yard)
        side = sum(int(one.weight) for one in yard.stored_values.keys.values())
        if kept + side != int(yard.bodies.in_memory):
            story = f"{yard.bodies.in_memory} bytes counted, {kept} of bodies and {side} of keys"
            raise Violation("counters", story)


class GlideFinale(BunFinale):
    """Drains a world through one last client of each kind."""

    def __init__(self, world: GlideWorld) -> None:
        super().__init__(world)
        self._glide = world

    def play(self) -> None:
        """Bring everything to its end."""
        world = self._glide
        world.disk.heal()
        world.swarm.faults.discard("network")
        self._settle()
        for line in list(world.resp_lines):
            world.close_resp(line)
        last = world.open_resp()
        model = world.glide
        queues = world.glide_swarm.queues
        for queue in queues:
            self._ask(last, Ask("pause", queue))
        for _ in range(DRAIN_ROUNDS):
            for queue in queues:
                self._empty_queue(last, queue)
            self._settle()
            if not any(job.is_open() for job in model.jobs.values()):
                break
        else:
            left = [job for job in model.jobs.values() if job.is_open()]
            raise Violation("liveness", f"{len(left)} jobs do not drain: {left[:3]}")
        world.close_resp(last)
        super().play()

    def _ask(self, last: RespLine, ask: Ask) -> None:
        world = self._glide
        world.request(last, [phrase(ask, world.now_ms() + world.glide.wall_offset)])

    def _empty_queue(self, last: RespLine, queue: str) -> None:
        """Promote, take and complete all jobs; remove those that wait for ever."""
        world = self._glide
        model = world.glide
        world.pass_time(10_000)
        while self._take_all(last, queue):
            for job in model.of_queue(queue, LEASED):
                done = Ask("complete", queue, job.id)
                done.entry = "" if job.held is not None and job.held.is_list else job.entry()
                done.mode = b"0"
                self._ask(last, done)
        for job in model.of_queue(queue, BLOCKED):
            children = [model.jobs.get(number) for number, _ in job.members.values()]
            if not any(child is not None and child.is_open() for child in children):
                self._ask(last, Ask("remove", queue, job.id))

    def _take_all(self, last: RespLine, queue: str) -> bool:
        """Promote and take all jobs; return whether any job runs then."""
        self._ask(last, Ask("promote", queue))
        pop = Ask("pop", queue)
        pop.mode, pop.count = b"both", 900
        self._ask(last, pop)
        read = Ask("read", queue)
        read.consumer, read.count, read.number = "last", 900, last.number
        self._ask(last, read)
        return bool(self._glide.glide.of_queue(queue, LEASED))


def _is_at_work(line: RespLine) -> bool:
    """Return whether a long command of a connection is in progress."""
    session = line.session
    assert isinstance(session, GlidemqSession)
    return session.is_at_work()
