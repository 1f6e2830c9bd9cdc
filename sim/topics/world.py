"""One run with topics clients over HTTP, next to clients of the other doors now and then.

Disk, clock, faults and snapshots are those of runs with bunqueue clients. Every answer is compared
with the topics model; what a restart brings back is compared with the model as it was when the
newest recovered batch was sealed.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from jobyard.engine.state.tasks import FIRST_UNITS, UNITS_PER_TURN
from sim.bunqueue.memory import Snapshot
from sim.bunqueue.world import BunFinale, BunWorld
from sim.state import Violation
from sim.topics.boot import TopicsBoot
from sim.topics.checkers import check_books, check_topics
from sim.topics.memory import Memory, Recall, adopt, logs_dump
from sim.topics.model import TopicsModel
from sim.topics.network import Disclosed, HttpLine, Promise
from sim.topics.nouns import Ask
from sim.topics.redrives import RedriveAuthor
from sim.topics.txn_author import TxnAuthor
from sim.topics.txn_book import STAGE_MS
from sim.topics.workload import PREFIX, TopicsAuthor, TopicsSwarm

if TYPE_CHECKING:
    from collections.abc import Callable

    from jobyard.engine.state.yard import Yard
    from sim.boot import Boot
    from sim.bunqueue.network import BunConnection
    from sim.bunqueue.nouns import Ask as BunAsk
    from sim.topics.answer import Answer

DRAIN_ROUNDS: Final = 40
# Longer than any lease, delay, or time to live.
LONGEST_MS: Final = 31_000
# A budget that no run uses up.
ROOM_FOR_ALL: Final = 1 << 30


class TopicsSnapshot(Snapshot):
    """A yard at the moment a batch was sealed, and the topics model of that moment."""

    def __init__(self, yard: Yard, bodies: dict[int, bytes], memory: Memory) -> None:
        super().__init__(yard, bodies)
        self.memory = memory


class TopicsWorld(BunWorld):
    """A run of one seed with topics clients."""

    boot_kind = TopicsBoot

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        # What a full disk refuses, and when, is tested in other runs.
        self.swarm.faults.discard("full")
        self.bun.may_fill = False
        self.rng3 = Random(seed * 2_654_435_761 + 11)
        has_memory = self.swarm.body_budget >= ROOM_FOR_ALL
        self.topics_swarm = TopicsSwarm(self.rng3, has_memory=has_memory)
        cursor_rng = Random(seed * 40_503 + 7)
        self.author3 = TopicsAuthor(self.rng3, self.topics_swarm, cursor_rng)
        keys_rng = Random(seed * 31_511 + 9)
        more_rng = Random(seed * 65_537 + 13)
        self.author4 = TxnAuthor(
            Random(seed * 97_003 + 5), keys_rng, more_rng, has_memory=has_memory
        )
        redrive_rng = Random(seed * 60_013 + 3)
        self.author5 = RedriveAuthor(redrive_rng, has_memory=has_memory)
        self.topics = TopicsModel(self.reach)
        self.http_lines: list[HttpLine] = []
        self.topics_boot: TopicsBoot
        self._is_clean = False
        self._has_failed = False
        self._starts_count = 0
        self._makes_router = False
        # The newest seq of each log that was disclosed to any client, by its name and incarnation.
        self._disclosed: dict[tuple[str, int], int] = {}

    # -- starts and stops of the server ----------------------------------------------------------

    def run(self) -> None:
        """Run to the end."""
        self.start(0)
        for _ in range(self.swarm.steps_count):
            self._attempt(self._step)
        self._attempt(TopicsFinale(self).play)

    def stop(self) -> None:
        """Stop cleanly and start again: everything must come back."""
        self._is_clean = True
        super().stop()

    def _crash(self, how: str) -> None:
        self._has_failed = True
        super()._crash(how)

    def _begin_process(self) -> Boot:
        self._starts_count += 1
        return super()._begin_process()

    def _adopt(self, yard: Yard) -> None:
        boot = self.boot
        assert isinstance(boot, TopicsBoot)
        self.topics_boot = boot
        yard.txns.stage_ms = STAGE_MS
        self.http_lines.clear()
        super()._adopt(yard)
        for name, log in yard.logs.items():
            told = self._disclosed.get((name, int(log.incarnation)), 0)
            if int(log.next_seq) <= told:
                raise Violation("seqs", f"{log.next_seq} is next in {name}, {told} was disclosed")
        self._check_queue_seqs(yard)
        adopt(self.topics, yard, self.now_ms())
        self.topics.dropped.clear()
        self._is_clean = self._has_failed = False
        self._starts_count = 0

    def _check_queue_seqs(self, yard: Yard) -> None:
        """Check that no queue assigns a seq twice; one that was lost as a whole may."""
        places: set[tuple[str, int]] = set()
        for name, queue in yard.queues.items():
            place = (name, -int(queue.number))
            places.add(place)
            told = self._disclosed.get(place, 0)
            if queue.config is not None and int(queue.next_seq) <= told:
                raise Violation("seqs", f"{queue.next_seq} is next in {name}, {told} was disclosed")
        for place in [one for one in self._disclosed if one[1] <= 0 and one not in places]:
            del self._disclosed[place]

    def _compare_more(self, yard: Yard, snapshot: Snapshot) -> None:
        assert isinstance(snapshot, TopicsSnapshot)
        recall = Recall(
            yard,
            self.now_ms(),
            is_clean=self._is_clean,
            is_unsure=self._has_failed or self._starts_count > 1,
            has_jumped=self._has_jumped,
        )
        recall.check(snapshot.memory)

    def _snapshot(self) -> Snapshot:
        check_topics(self.boot.yard, self.topics)
        memory = Memory(self.topics, self.boot.yard)
        bodies = {number: job.data for number, job in self.bun.jobs.items()}
        return TopicsSnapshot(self.boot.yard, bodies, memory)

    def _dump(self, yard: Yard) -> list[tuple[object, ...]]:
        return [*super()._dump(yard), *logs_dump(yard)]

    # -- the wire --------------------------------------------------------------------------------

    def _converse(self) -> None:
        rng = self.rng3
        if rng.random() < self.topics_swarm.others_odds:
            self.reach("topics beside others")
            super()._converse()
            return
        lines = self.http_lines
        if not lines or (len(lines) < self.topics_swarm.clients_max and rng.random() < 0.2):
            self.open_http()
        line = rng.choice(lines)
        if "network" in self.swarm.faults and rng.random() < 0.03:
            self.close_http(line)
            return
        if not line.asked:
            if self.author4.rolls():
                self.request(line, [self.author4.write(self.topics)])
                return
            if self.author5.rolls(self.topics):
                self.request(line, [self.author5.write(self.topics)])
                return
            asks = [self.author3.write(self.topics)]
            # Waiting clients may be served between two requests.
            is_free = not any(queue.waiting for queue in self.topics.queues.values())
            while is_free and rng.random() < 0.2 and asks[-1].is_quick():
                asks.append(self.author3.write(self.topics))
            self.request(line, asks)

    def open_http(self) -> HttpLine:
        """Connect one more client."""
        self._connections_total += 1
        line = HttpLine(self.topics_boot, self._connections_total, self._reached_client)
        self.http_lines.append(line)
        return line

    def close_http(self, line: HttpLine) -> None:
        """Close a connection; what it claimed stays with its node."""
        self.reach("reset")
        self.note(f"{line.number} resets")
        self.http_lines.remove(line)
        for ask in line.asked:
            topic = self.topics.logs.get(ask.name) or self.topics.queues.get(ask.name)
            if topic is not None and ask in topic.waiting:
                topic.waiting.remove(ask)
        self._begin()
        line.close(self.now_ms())
        self._end(None, None, None)

    def _begin(self) -> None:
        self._let_routers_keep_up()
        super()._begin()

    def _let_routers_keep_up(self) -> None:
        """Make work long only where there is no router: in the model, routers copy at once.

        A late one does not forward what its source drops meanwhile.
        """
        tasks = self.boot.yard.tasks
        if self.swarm.units_per_turn:
            is_routed = self._makes_router or bool(self.topics.routers)
            tasks.units_per_turn = UNITS_PER_TURN if is_routed else self.swarm.units_per_turn
            tasks.first_units = FIRST_UNITS if is_routed else 1

    def request(self, line: HttpLine, asks: list[Ask]) -> None:
        """Deliver requests, in one piece or in two."""
        data = b"".join(ask.request() for ask in asks)
        for ask in asks:
            self.note(f"{line.number}< {ask!r}")
        line.asked += asks
        self._makes_router = any(ask.verb == "route" for ask in asks)
        self._begin()
        cut = int(self.rng3.random() * len(data)) if self.rng3.random() < 0.1 else 0
        if cut:
            line.session.receive(data[:cut], self.now_ms())
        line.session.receive(data[cut:], self.now_ms())
        self._hear(line, lambda: None)
        self._end(None, None, None)

    def _tick(self) -> None:
        super()._tick()
        self.topics.check_late()

    def _end(
        self, line: BunConnection | None, ask: BunAsk | None, also: Callable[[], None] | None
    ) -> None:
        self._hear(None, self.topics.tick if also is not None else lambda: None)
        super()._end(line, ask, also)

    def _hear(self, acting: HttpLine | None, first: Callable[[], None]) -> None:
        """Compare the answers to HTTP clients with what the model allows."""
        while self.boot.finish_tasks(self.now_ms()) and acting is not None:
            acting.session.resume(self.now_ms())
        model = self.topics
        journal = self.boot.journal
        model.now = self.now_ms()
        model.wall_offset = int(journal.wall_offset_ms)
        model.batch = self._opened
        first()
        wake = list(self.boot.wake)
        if acting is not None:
            self._take_answers(acting)
            if acting.asked:
                (ask,) = acting.asked
                model.wait(ask, self.now_ms() + ask.number("wait_ms", 0))
        model.forget_old()
        for line in self.http_lines:
            if line is not acting and line.ear in wake:
                line.session.resume(self.now_ms())
                self._take_answers(line)
        for line in self.http_lines:
            for ask in line.asked:
                model.check_waiting(ask)

    def _take_answers(self, line: HttpLine) -> None:
        for answer, data in line.collect():
            self._answered(line, answer, data)
        line.handed()

    def _answered(self, line: HttpLine, answer: Answer, data: bytes) -> None:
        self.note(f"{line.number}> {answer.status} {str(answer.body)[:200]}")
        if not line.asked:
            raise Violation("reply", f"client {line.number}: unexpected answer {answer.body}")
        ask = line.asked.pop(0)
        batch = self.topics.answered(ask, answer)
        told: Disclosed | None = None
        log = self.boot.yard.logs.get(ask.name)
        head = answer.body.get("head_seq")
        if log is not None and isinstance(head, int):
            told = (ask.name, int(log.incarnation), head)
        queue = self.boot.yard.queues.get(ask.name)
        if queue is not None and queue.config is not None and isinstance(head, int):
            # Identified by its number, negated: a log has a stamp there.
            told = (ask.name, -int(queue.number), head)
        topic = self.topics.logs.get(ask.name) or self.topics.queues.get(ask.name)
        is_synced = topic is not None and topic.config.fields["durability"] == "fsync"
        line.hand(data, Promise(batch, is_synced, told))

    def _reached_client(self, promise: Promise) -> None:
        """Check that a delivered answer depends on safe batches, and note what it discloses."""
        self._delivered(promise.batch)
        if promise.is_synced and promise.batch > self.promises.synced:
            self.reach("synced though others are only written")
            if not self.disk.is_safe(promise.batch):
                raise Violation("answer before its record", f"batch {promise.batch} of class fsync")
            self.promises.synced = promise.batch
        if promise.told is not None:
            name, incarnation, seq = promise.told
            place = (name, incarnation)
            self._disclosed[place] = max(self._disclosed.get(place, 0), seq)

    # -- checks ----------------------------------------------------------------------------------

    def close_done(self) -> None:
        """Check that no session ended on its own: none had a reason to."""
        super().close_done()
        for line in self.http_lines:
            if line.session.is_finished:
                raise Violation("reply", f"client {line.number} was disconnected")

    def _jobs_count(self) -> int:
        count = sum(len(queue.jobs) for queue in self.topics.queues.values())
        return super()._jobs_count() + count

    def _check_memory(self) -> None:
        check_books(self.boot.yard)

    def check_all(self) -> None:
        """Recount everything that can be counted."""
        check_topics(self.boot.yard, self.topics)
        super().check_all()


class TopicsFinale(BunFinale):
    """Drains a world through one last client of each kind."""

    def __init__(self, world: TopicsWorld) -> None:
        super().__init__(world)
        self._topics = world

    def play(self) -> None:
        """Bring everything to its end."""
        world = self._topics
        world.disk.heal()
        self._settle()
        for line in list(world.http_lines):
            world.close_http(line)
        last = world.open_http()
        model = world.topics
        world.pass_time(LONGEST_MS)
        for number in range(DRAIN_ROUNDS):
            world.pass_time(1000)
            if number == DRAIN_ROUNDS // 2:
                # A dead letter may be larger than its log may ever be.
                for name in list(model.logs):
                    self._ask(last, "put", name, {"type": "log"})
            for name in list(model.queues):
                self._drain_queue(last, name)
            for name in list(model.logs):
                self._ask(last, "diff", name, {"limit": 1000})
                self._ask(last, "delete", name, {"before_seq": model.logs[name].next_seq})
            self._settle()
            is_behind = any(router.is_behind for router in model.routers.values())
            if not is_behind and not any(queue.jobs for queue in model.queues.values()):
                break
        else:
            left = [(name, list(queue.jobs.values())) for name, queue in model.queues.items()]
            raise Violation("liveness", f"jobs do not drain: {left}"[:1500])
        if world.rng3.random() < 0.5:
            for name in [*model.logs, *model.queues]:
                self._ask(last, "drop", name, {})
        self._ask(last, "list", PREFIX, {})
        world.close_http(last)
        super().play()

    def _drain_queue(self, last: HttpLine, name: str) -> None:
        """Finish all jobs of a queue that can be claimed, and bring its dead jobs back."""
        queue = self._topics.topics.queues[name]
        self._ask(last, "claim", name, {"node": "last", "max": 1000})
        held = [job.seq for job in queue.jobs.values() if job.holder]
        self._ask(last, "ack", name, {"node": "last", "seqs": held})
        if queue.dead():
            self._ask(last, "redrive", name, {"max": 1000})

    def _ask(self, last: HttpLine, verb: str, name: str, fields: dict[str, object]) -> None:
        self._topics.request(last, [Ask(verb, name, fields)])
