"""The jobs of a queue as rows of an export: those in some states, whichever door put them.

Read page by page in the order of their seqs, each job as it is when its page is made. A job that is
in a wanted state all the time is there exactly once; one that changes its state meanwhile is there
if it was in such a state when its page was made. Changes nothing but the time of the last read.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from jobyard.engine.jobs.listing import jobs_by_seq_of
from jobyard.engine.state.history import queue_incarnation
from jobyard.engine.topics.topic_queue import record_meta_of
from jobyard.errors import TextDamaged
from jobyard.journal.bodies import place_text
from jobyard.journal.history.reader import FAMILIES, STATE_WORDS
from jobyard.model.family import BUNQUEUE, GLIDE
from jobyard.model.job import BLOCKED, BYTES, DEAD, DELAYED, DONE, JSON, LEASED, READY, Job
from jobyard.model.policy import NAME_DEFAULT
from jobyard.model.topic.columns import Column, NumberColumn, TextColumn
from jobyard.protocols.topics.body import invalid
from jobyard.protocols.topics.export.sources import NOT_KNOWN, VALUE_FIELD, RowPage, RowSource
from jobyard.protocols.topics.records.jobs import earliest_seq
from jobyard.wire.arrow.stream import BINARY, INT64, TIMESTAMP, UTF8, ArrowField
from jobyard.wire.payload import to_json

if TYPE_CHECKING:
    from jobyard.model.queue import Queue
    from jobyard.protocols.topics.door import TopicsDoor

# Jobs in a page, their size, and how many jobs one page may look at.
PAGE_JOBS: Final = 512
_PAGE_BYTES: Final = 256 << 10
JOBS_PER_LOOK: Final = 4096

JOB_FIELDS: Final = [
    ArrowField("job_id", INT64),
    ArrowField("queue_seq", INT64),
    ArrowField("client_id", UTF8, is_nullable=True),
    ArrowField("name", UTF8, is_nullable=True),
    ArrowField("queue", UTF8),
    ArrowField("state", UTF8),
    ArrowField("family", UTF8),
    ArrowField("priority", INT64),
    ArrowField("deliveries", INT64),
    ArrowField("attempts", INT64),
    ArrowField("max_attempts", INT64, is_nullable=True),
    ArrowField("worker", UTF8, is_nullable=True),
    ArrowField("enqueued_at", TIMESTAMP),
    ArrowField("available_at", TIMESTAMP, is_nullable=True),
    ArrowField("claimed_at", TIMESTAMP, is_nullable=True),
    ArrowField("finished_at", TIMESTAMP, is_nullable=True),
    ArrowField("due_at", TIMESTAMP, is_nullable=True),
    ArrowField("error", UTF8, is_nullable=True),
    ArrowField("tag", UTF8, is_nullable=True),
    ArrowField("meta", UTF8, is_nullable=True),
    ArrowField("data", UTF8),
    ArrowField(VALUE_FIELD, BINARY),
]
DATA_PLACE: Final = 20
VALUE_PLACE: Final = 21
_STATES: Final = {
    STATE_WORDS[state]: state for state in (READY, DELAYED, LEASED, DEAD, DONE, BLOCKED)
}


def read_states(word: str) -> frozenset[int]:
    """Return the states in the parameter `jobs`."""
    states: set[int] = set()
    for name in word.split(","):
        state = _STATES.get(name)
        if state is None:
            raise invalid(f"jobs must be states from {','.join(_STATES)}")
        states.add(state)
    return frozenset(states)


@final
class JobColumns:
    """Some jobs of a queue."""

    def __init__(self, door: TopicsDoor, queue: Queue, places: list[int]) -> None:
        self._door = door
        self._queue_name: bytes = queue.name.encode(errors="replace")
        self.has_data: bool = DATA_PLACE in places
        self.has_values: bool = VALUE_PLACE in places
        self._numbers = [NumberColumn() for _ in range(6)]
        self._times = [NumberColumn() for _ in range(5)]
        self._texts = [TextColumn() for _ in range(9)]
        self._data = TextColumn()
        self._values = TextColumn()
        self.count: i64 = 0

    def columns(self) -> list[Column]:
        """Return the columns in the order of JOB_FIELDS."""
        job_id, seq, priority, deliveries, attempts, attempts_max = self._numbers
        client_id, name, queue, state, family, worker, error, tag, meta = self._texts
        found: list[Column] = [job_id, seq, client_id, name, queue, state, family, priority]
        found += [deliveries, attempts, attempts_max, worker]
        found += self._times
        found += [error, tag, meta, self._data, self._values]
        return found

    def add(self, job: Job, body: bytes) -> None:
        """Append a job with this body."""
        self.count += 1
        self._add_numbers(job)
        self._add_times(job)
        self._add_texts(job)
        if not self.has_data and not self.has_values:
            return
        text = body
        if job.codec == BYTES:
            text = b"".join([b'{"$base64":"', b64encode(body), b'"}'])
        elif job.codec != JSON:
            body = to_json(i64(job.codec), body)
            text = body
        if self.has_data:
            self._data.add(text)
        if self.has_values:
            self._values.add(body)

    def _add_numbers(self, job: Job) -> None:
        job_id, seq, priority, deliveries, attempts, attempts_max = self._numbers
        job_id.add(job.id)
        seq.add(job.key)
        priority.add(-job.rank)
        deliveries.add(i64(job.deliveries))
        attempts.add(i64(job.attempts))
        attempts_max.add_known(job.policy.max_attempts)

    def _add_times(self, job: Job) -> None:
        state: i64 = i64(job.state)
        claimed_ms: i64 = 0
        finished_ms: i64 = 0
        if state in (DONE, DEAD):
            outcome = job.outcome()
            claimed_ms = outcome.started_ms
            finished_ms = outcome.ended_ms
        elif job.lease is not None:
            claimed_ms = job.lease.started_ms
        enqueued, available, claimed, finished, due = self._times
        enqueued.add(self._wall_us(job.created_ms))
        available.add_known(0 if state == BLOCKED else self._wall_us(job.due_ms))
        claimed.add_known(self._wall_us(claimed_ms))
        finished.add_known(self._wall_us(finished_ms))
        due.add_known(self._wall_us(job.due_ms) if state == DELAYED else 0)

    def _wall_us(self, steady_ms: i64) -> i64:
        return self._door.wall_ms(steady_ms) * 1000 if steady_ms != 0 else 0

    def _add_texts(self, job: Job) -> None:
        client_id, name, queue, state, family, worker, error, tag, meta = self._texts
        details = job.details
        lease = job.lease
        record_meta = record_meta_of(job)
        client_id.add_known(b"" if details is None else _encoded(details.custom_id))
        name.add_known(_encoded(_name_of(job)))
        queue.add(self._queue_name)
        state.add(STATE_WORDS[job.state].encode())
        family.add(FAMILIES[job.family].encode())
        worker.add_known(b"" if lease is None else _encoded(lease.terms.label))
        error.add_known(_encoded(_error_of(job)))
        tag.add_known(b"" if record_meta is None else _encoded(record_meta.tag))
        meta.add_known(b"" if record_meta is None else record_meta.meta)


def _encoded(text: str) -> bytes:
    return text.encode(errors="replace") if text else b""


def _name_of(job: Job) -> str:
    """Return the name of a job; empty if its door names no jobs, or its writer did not."""
    name = job.policy.name
    return name if job.family in (BUNQUEUE, GLIDE) or name != NAME_DEFAULT else ""


def _error_of(job: Job) -> str:
    """Return why a job is dead, or else why its last failed run failed."""
    details = job.details
    if details is None or job.state == DONE:
        return ""
    if job.state == DEAD and job.outcome().error:
        return job.outcome().error
    if details.last_error:
        return details.last_error
    return details.failures[-1].error if details.failures else ""


@final
class JobsSource(RowSource):
    """The jobs of a queue that are in some states."""

    def __init__(self, door: TopicsDoor, queue: Queue, states: frozenset[int]) -> None:
        self._door = door
        self._queue = queue
        self._states = states
        # A queue that was removed may go on under another number, for clients of other doors.
        self._number: i64 = queue.number

    def fields(self) -> list[ArrowField]:
        """Return the columns of jobs."""
        return JOB_FIELDS

    def incarnation(self) -> str:
        """Return the incarnation of the queue."""
        return queue_incarnation(self._door.yard, self._queue)

    def head_seq(self) -> i64:
        """Return the newest seq that was assigned."""
        return self._queue.next_seq - 1

    def earliest_seq(self) -> i64:
        """Return the seq of the oldest job that is not done."""
        return earliest_seq(self._queue)

    def floor(self) -> i64:
        """Return 1: a job that has gone is not missing in a snapshot."""
        return 1

    def gap_reason(self, after_seq: i64) -> str:  # noqa: ARG002  the trait's
        """Return nothing: there are no gaps."""
        return ""

    def is_gone(self) -> bool:
        """Return whether the queue was removed."""
        queue = self._queue
        is_other = self._number not in (0, queue.number)
        return is_other or self._door.yard.queues.get(queue.name) is not queue

    def is_settled(self) -> bool:
        """Return False: a page shows changes that were made after the request."""
        return False

    def batch(self) -> i64:
        """Return the newest batch: any of the jobs may be in it."""
        return self._door.yard.journal.newest()

    def count(self, after_seq: i64, to_seq: i64) -> i64:
        """Return NOT_KNOWN unless the range is empty: jobs change their states meanwhile."""
        return 0 if after_seq >= to_seq else NOT_KNOWN

    def seq_at(self, ts_ms: i64) -> i64:  # noqa: ARG002  the trait's
        """Return the next seq: jobs are not looked up by time."""
        return self._queue.next_seq

    def page(self, after_seq: i64, to_seq: i64, columns: list[int]) -> RowPage:
        """Return the wanted ones of the next jobs; it may advance without finding any."""
        made = JobColumns(self._door, self._queue, columns)
        page = RowPage([], to_seq)
        if after_seq < to_seq:
            self._fill(page, made, after_seq, to_seq)
        every = made.columns()
        page.columns = [every[place] for place in columns]
        return page

    def _fill(self, page: RowPage, made: JobColumns, after_seq: i64, to_seq: i64) -> None:
        """Add jobs to a page, and set how far it was read; it ends before damaged data."""
        jobs = jobs_by_seq_of(self._queue).walk(after_seq, JOBS_PER_LOOK)
        has_bodies = made.has_data or made.has_values
        left: i64 = _PAGE_BYTES
        reached = after_seq
        for job in jobs:
            if job.key > to_seq:
                return
            if int(job.state) in self._states:
                if made.count >= PAGE_JOBS or left <= 0:
                    page.reached_seq = reached
                    return
                body = self._door.yard.bodies.fetch(job) if has_bodies else b""
                if body is None:
                    if made.count == 0:
                        raise TextDamaged(int(job.key), int(job.key), place_text(job))
                    page.reached_seq = reached
                    return
                if made.count == 0:
                    page.first_seq = job.key
                page.last_seq = job.key
                made.add(job, body)
                left -= len(body)
            reached = job.key
        if len(jobs) == JOBS_PER_LOOK:
            page.reached_seq = reached
