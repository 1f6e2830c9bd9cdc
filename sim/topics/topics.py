"""The model of all topics of a yard: what one does to another, and what time does to all.

Routers forward records in the turn of the write; jobs that were delivered too often become records
of a log. Where the yard may choose the moment of an expiry, the model reads what it did,
and raises a Violation if it took too long.
"""

from __future__ import annotations

from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from sim.state import Violation
from sim.topics.logs import Log
from sim.topics.nouns import Config, Content, Job, Refusal, Reply, Router, Write
from sim.topics.queues import Queue
from sim.topics.txn_book import TxnBook

if TYPE_CHECKING:
    from collections.abc import Callable

    from jobyard.engine.state.yard import Yard
    from sim.topics.txn_book import ClaimSet, Place, StagedRow

RETRY_MS: Final = 1000
PUT_OFF_MS: Final = 1000
MARK: Final = "$dead_letter_"
FROM: Final = "$dead_letter_from"


class Topics:
    """Logs, queues and routers by their names."""

    def __init__(self, reach: Callable[[str], None]) -> None:
        self.reach = reach
        self.now = 0
        # The offset from the steady clock to the wall clock.
        self.wall_offset = 0
        # The batch that was open when the yard began to act.
        self.batch = 0
        self.logs: dict[str, Log] = {}
        self.queues: dict[str, Queue] = {}
        self.routers: dict[str, Router] = {}
        self.yard: Yard
        # The batch with the end of each topic that was dropped in this boot.
        self.dropped: dict[str, int] = {}
        # When each node that holds jobs is next checked for expired leases. That may be early:
        # ending a lease does not change it.
        self._rings: dict[str, int] = {}
        self.lease_ids: set[str] = set()
        self.incarnations: set[int] = set()
        self.txns = TxnBook()
        # Everything that was ever staged, committed or claimed, for what a restart brings back.
        self.staged_before: dict[tuple[str, Place], list[list[StagedRow]]] = {}
        self.digests: dict[str, str] = {}
        self.sets_before: dict[tuple[str, str], ClaimSet] = {}
        # A dead letter is written in the middle of a claim: nothing is forwarded meanwhile.
        self._is_held = False

    def _queue(self, name: str) -> Queue:
        if name in self.logs:
            raise Refusal(409, "not_a_queue")
        return self._there(self.queues.get(name))

    def _there(self, queue: Queue | None) -> Queue:
        if queue is None:
            raise Refusal(404, "topic_not_found")
        return queue

    def _open(self, name: str, config: Config) -> None:
        if config.type == "log":
            self.logs[name] = Log(name, config, self.now)
        else:
            self.queues[name] = Queue(name, config, self.now)

    # -- writing -----------------------------------------------------------------------------------

    def _append(self, log: Log, contents: list[Content], key: str) -> tuple[Write, bool]:
        known = log.known(key, self.now)
        if known is not None:
            return known, True
        first = log.append(contents, key, self.now, self.now + self.wall_offset, self.batch)
        write = Write(first, log.head, self.now, self.batch if log.config.is_written else 0)
        self._pass_on(log)
        # No more records expire, even if the removed ones blocked older records.
        log.trim_excess()
        self._tell(log)
        return write, False

    def _produce(self, queue: Queue, contents: list[Content], key: str) -> tuple[Write, bool]:
        known = queue.known(key, self.now) if key else None
        if known is not None:
            return known, True
        # A commit has made room, before jobs that it ends came back.
        first = queue.produce(contents, key, self.now, self.batch, has_room=self._is_held)
        return Write(first, queue.head, self.now, self.batch), False

    def enter_job(self, queue: Queue, content: Content) -> Write:
        """Write one job."""
        return self._produce(queue, [content], "")[0]

    def enter_held(self, log: Log | None, name: str, contents: list[Content]) -> Write:
        """Write what a commit writes: routers forward it later."""
        was_held, self._is_held = self._is_held, True
        try:
            if log is not None:
                return self._append(log, contents, "")[0]
            return self._produce(self.queues[name], contents, "")[0]
        finally:
            self._is_held = was_held

    def _tell(self, log: Log) -> None:
        """Let the readers that wait for a log read again."""
        for ask in list(log.waiting):
            assert ask.query is not None
            page = log.read(ask.query, self.now)
            if page.wanted or page.tombstone is not None:
                self.reach("reader served")
                ask.page = page
                ask.is_over = True
                log.waiting.remove(ask)
            else:
                ask.query.after = page.head

    # -- routers -----------------------------------------------------------------------------------

    def _pass_on(self, log: Log) -> None:
        for router in [one for one in self.routers.values() if one.source == log.name]:
            if router.is_behind:
                continue
            if self._is_held:
                router.is_behind = True
                router.retry = self.now
            else:
                self._forward(router)

    def _forward(self, router: Router) -> None:
        log = self.logs[router.source]
        rows = [row for row in log.rows.values() if row.seq > router.cursor]
        rows = [row for row in rows if router.takes(row.content.tag)]
        router.cursor = log.head
        taken = self._deliver(router, [router.copy_of(row) for row in rows]) if rows else 0
        if taken == len(rows):
            if router.is_behind:
                self.reach("router caught up")
            router.is_behind = False
            return
        router.cursor = rows[taken].seq - 1
        if not router.is_behind:
            self.reach("router falls behind")
            router.is_behind = True
            router.retry = self.now + RETRY_MS

    def _deliver(self, router: Router, contents: list[Content]) -> int:
        """Write to the destination; return how many records it took or will never take."""
        self.reach("routed")
        try:
            self._deliver_all(router, contents)
        except Refusal as no:
            if len(contents) == 1:
                return 1 if no.status == 400 else 0
        else:
            return len(contents)
        for at, content in enumerate(contents):
            try:
                self._deliver_all(router, [content])
            except Refusal as no:
                if no.status != 400:
                    return at
        return len(contents)

    def _deliver_all(self, router: Router, contents: list[Content]) -> None:
        queue = self.queues.get(router.dest)
        if queue is not None:
            self._produce(queue, contents, "")
        else:
            self._append(self.logs[router.dest], contents, "")

    def _leads(self, source: str, dest: str) -> bool:
        """Return whether routers lead from one topic to another."""
        ways = {one.dest: one.source for one in self.routers.values()}
        topic: str | None = dest
        while topic is not None and topic != source:
            topic = ways.get(topic)
        return topic == source

    # -- taking, and dead letters ------------------------------------------------------------------

    def _take(self, queue: Queue, most: int) -> list[Job]:
        """Return the jobs that a claim gets; expired jobs are dropped, spent ones dead-lettered."""
        taken: list[Job] = []
        config = queue.config
        for job in queue.ready():
            if len(taken) == most:
                break
            is_spent = 0 < config.most_deliveries <= job.deliveries and config.letters != ""
            if queue.is_old(job, self.now):
                queue.outlived(job)
            elif is_spent and config.letters not in self.queues:
                self._send_letter(queue, job)
            else:
                taken.append(job)
        return taken

    def _send_letter(self, queue: Queue, job: Job) -> None:
        """Make a dead letter of a job that was delivered too often, or try again later."""
        if not self._is_letter(queue, job, "max_deliveries", job.error):
            self.reach("letter put off")
            queue.free(job, PUT_OFF_MS, job.freed)
            job.due = self.now + PUT_OFF_MS

    def give_up(self, queue: Queue, job: Job, error: str) -> None:
        """Make a dead letter of a job that its holder gives up, or a dead job."""
        letters = queue.config.letters
        if letters and letters not in self.queues:
            if self._is_letter(queue, job, "given_up", error):
                self.reach("dead letter of a commit")
                return
            self.reach("letter refused by its log")
        queue.bury(job, self.now)
        job.error = error or job.error

    def _is_letter(self, queue: Queue, job: Job, reason: str, error: str) -> bool:
        """Make a dead letter of a job; return whether its log took it."""
        name = queue.config.letters
        if name not in self.logs:
            self._open(name, Config({}))
        marks: Reply = {
            FROM: queue.name,
            MARK + "deliveries": str(job.deliveries),
            MARK + "src_seq": str(job.seq),
            MARK + "job_id": str(job.number),
            MARK + "reason": reason,
        }
        if error:
            marks[MARK + "error"] = error
        content = job.content
        # A router may have copied it from another letter.
        kept = {name: one for name, one in content.meta.items() if not name.startswith(MARK)}
        meta = {**kept, **marks}
        letter = Content(content.data, meta, content.tag, content.node)
        self._is_held = True
        try:
            self._append(self.logs[name], [letter], "")
        except Refusal:
            return False
        finally:
            self._is_held = False
        self.reach("dead letter")
        del queue.jobs[job.seq]
        queue.dead_lettered += 1
        return True

    def _letters(self, queue: Queue, most: int) -> tuple[Log | None, list[int]]:
        log = self.logs.get(queue.config.letters)
        if log is None:
            return None, []
        rows = log.rows.values()
        return log, [row.seq for row in rows if row.content.meta.get(FROM) == queue.name][:most]

    # -- time --------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Apply everything that is due."""
        for log in self.logs.values():
            log.look(self.now)
        for queue in self.queues.values():
            queue.end_delays(self.now)
        self._ring()
        self.txns.expire(self.now, self.batch, self.reach)
        for log in self.logs.values():
            found = self.yard.logs[log.name]
            if int(found.ttl_floor) != log.ttl_floor:
                self.reach("records outlived their time")
                log.trim(self.now)
            elif int(found.cap_floor) != log.cap_floor:
                # Checked for its time to live, it lost what a cursor no longer holds.
                log.trim_excess()
            for ask in list(log.waiting):
                if ask.until <= self.now:
                    self.reach("reader waited in vain")
                    assert ask.query is not None
                    ask.page = log.read(ask.query, self.now)
                    ask.is_over = True
                    log.waiting.remove(ask)

    def _ring(self) -> None:
        """End leases and let routers try again, in order of time.

        After a pause much is due at once. For a copy, jobs whose holder comes after it are still
        leased, and are not evicted for it.
        """
        due: list[tuple[int, bool, Callable[[], None]]] = [
            (router.retry, False, partial(self._try_again, router))
            for router in self.routers.values()
            if router.is_behind
        ]
        jobs = [job for queue in self.queues.values() for job in queue.jobs.values()]
        due += [
            (self._rings[node], True, partial(self._end_leases, node))
            for node in sorted({job.holder for job in jobs if job.holder})
        ]
        for at, _, ring in sorted(due, key=itemgetter(0, 1)):
            if at <= self.now:
                ring()

    def _try_again(self, router: Router) -> None:
        self._forward(router)
        if router.is_behind:
            router.retry = self.now + RETRY_MS

    def _end_leases(self, node: str) -> None:
        """End all expired leases of a node, and schedule the next check for the others."""
        for queue in self.queues.values():
            queue.end_leases(node, self.now)
        left = self._deadlines(node)
        if left:
            self._rings[node] = min(left)

    def ring_by(self, node: str, deadline: int) -> None:
        """Check a node no later than at the end of a lease that begins or changes now."""
        is_known = bool(self._deadlines(node))
        self._rings[node] = min(deadline, self._rings[node]) if is_known else deadline

    def ring_again(self) -> None:
        """Note when nodes are next checked after a restart, which resumes durable leases."""
        jobs = [job for queue in self.queues.values() for job in queue.jobs.values()]
        nodes = {job.holder for job in jobs if job.holder}
        self._rings = {node: min(self._deadlines(node)) for node in nodes}

    def _deadlines(self, node: str) -> list[int]:
        jobs = [job for queue in self.queues.values() for job in queue.jobs.values()]
        return [job.deadline for job in jobs if job.holder == node]

    def forget_old(self) -> None:
        """Drop expired jobs, as far as the yard has."""
        for queue in self.queues.values():
            if queue.config.ttl:
                jobs_by_seq = self.yard.queues[queue.name].jobs_by_seq
                assert jobs_by_seq is not None
                there = {seq for seq in queue.jobs if jobs_by_seq.find(seq) is not None}
                queue.forget_old(there, self.now)

    def check_late(self) -> None:
        """Check that expired data went soon enough."""
        for log in self.logs.values():
            if log.is_late(self.now):
                raise Violation("ttl", f"{log.name} keeps {log.earliest}")
        for queue in self.queues.values():
            late = queue.late_job(self.now)
            if late is not None:
                raise Violation("ttl", f"{queue.name} keeps {late}")
        if any(one.is_behind and one.retry <= self.now for one in self.routers.values()):
            raise Violation("routers", "a late router does not try again")
