"""Commands that only read: one job, or the jobs of a queue.

Maps the state words of the protocol to states. A ready job is `waiting`; it is counted and listed
again as `prioritized` if it has a priority, and as `paused` while its queue is paused.
"""

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from jobyard.engine.jobs.listing import (
    ALL_STATES,
    SORTED_AT_ONCE,
    JobSelection,
    count_of,
    jobs_by_seq_of,
    jobs_in,
    seq_of,
)
from jobyard.engine.jobs.queues import settings_of
from jobyard.engine.state.tasks import Task
from jobyard.engine.state.yard import Yard
from jobyard.errors import Refused
from jobyard.journal.damage import CORRUPT_RESULT
from jobyard.model.details import FailureReason
from jobyard.model.job import BLOCKED, DEAD, DELAYED, DONE, GONE, LEASED, READY, Job
from jobyard.model.limits import NEVER_MS
from jobyard.model.queue import Queue
from jobyard.protocols.bunqueue.command import Command
from jobyard.protocols.bunqueue.commands import push_options
from jobyard.protocols.bunqueue.commands.jobs import named_job
from jobyard.protocols.bunqueue.commands.push_options import SAFE_INTEGER_MAX
from jobyard.protocols.bunqueue.door import Answer
from jobyard.protocols.bunqueue.ids import find_job
from jobyard.protocols.bunqueue.job_fields import (
    job_value,
    result_of,
    shown_priority,
    state_text,
)
from jobyard.protocols.bunqueue.long_answers import PAGE_BYTES_MAX, WRITTEN_PER_UNIT, LongList
from jobyard.protocols.bunqueue.progress import progress_message, progress_number
from jobyard.protocols.bunqueue.request import Request
from jobyard.protocols.bunqueue.session import BunqueueSession
from jobyard.wire.msgpack.forms import KIND_ABSENT, KIND_NIL
from jobyard.wire.msgpack.read import MapFields
from jobyard.wire.msgpack.write import Raw

if TYPE_CHECKING:
    from jobyard.model.index.jobs_by_seq import JobsBySeq

LIST_LIMIT_DEFAULT: Final = 100
# Jobs of a long queue that are read together; the cost of encoding one job in units of work.
_JOBS_PER_LOOK: Final = 256
SHOW_UNITS: Final = 8

QUERIED_STATES: Final[dict[str, int]] = {
    "waiting": READY,
    "wait": READY,
    "delayed": DELAYED,
    "active": LEASED,
    "completed": DONE,
    "failed": DEAD,
    "waiting-children": BLOCKED,
}
PRIORITIZED: Final = "prioritized"
PAUSED: Final = "paused"


# -- one job -----------------------------------------------------------------------------------


def get_job(session: BunqueueSession, request: Request) -> Answer:
    """Show a job."""
    return {"job": job_value(session.door, named_job(session, request.fields))}


def get_state(session: BunqueueSession, request: Request) -> Answer:
    """Show the state of a job; `unknown` if it does not exist."""
    name = asked_id(request.fields)
    job = find_job(session.yard, name.encode())
    return {"id": name, "state": "unknown" if job is None else state_text(job)}


def get_result(session: BunqueueSession, request: Request) -> Answer:
    """Show the result of a done job, nil if it has none; the field is absent if it is not done."""
    name = asked_id(request.fields)
    answer: Answer = {"id": name}
    job = find_job(session.yard, name.encode())
    if job is not None and job.state == DONE:
        result = result_value(session.yard, job)
        answer["result"] = result
        if result is None:
            add_result_lost(answer, job)
    return answer


def add_result_lost(answer: Answer, job: Job) -> None:
    """Add `resultLost` if the result of a done job was lost: nil alone may be a real result."""
    outcome = job.outcome()
    if outcome.reason == FailureReason.RESULT_LOST:
        answer["resultLost"] = outcome.error
    elif outcome.result_size > 0:
        answer["resultLost"] = CORRUPT_RESULT


def asked_id(fields: MapFields) -> str:
    """Return the id that a command gives; the job need not exist."""
    name = fields.text(b"id")
    if name is None:
        raise Refused("id must be a string")
    return name


def result_value(yard: Yard, job: Job) -> Raw | None:
    """Return the result of a done job, or None."""
    if job.state != DONE:
        return None
    return result_of(job, yard.bodies.fetch_result(job))


def get_job_by_custom_id(session: BunqueueSession, request: Request) -> Answer:
    """Show the job with a custom id."""
    name = request.fields.text(b"customId")
    job = None if name is None else session.yard.names.named(name)
    if job is None:
        raise Refused("Job not found")
    return {"job": job_value(session.door, job)}


def get_progress(session: BunqueueSession, request: Request) -> Answer:
    """Show the progress of a running job."""
    job = named_job(session, request.fields)
    refuse_unless_active(job)
    details = job.details
    if details is None:
        return {"progress": 0, "message": None}
    return {"progress": progress_number(details), "message": progress_message(details)}


def refuse_unless_active(job: Job) -> None:
    """Refuse a command that applies only to running jobs."""
    if job.state != LEASED:
        raise Refused(f"Job is not active (current state: {state_text(job)})")


# -- the jobs of a queue -----------------------------------------------------------------------


@final
class JobPage(Task):
    """Encodes a page of the selected jobs in the order of their arrival.

    The jobs of a long queue are read by seq, as they change between two slices.
    """

    def __init__(
        self, session: BunqueueSession, queue: Queue, choice: JobSelection, offset: i64, limit: i64
    ) -> None:
        super().__init__()
        self.is_reading = True
        self._door = session.door
        self._choice = choice
        self._offset: i64 = offset
        # At most the number of matches, so that the search ends with the last one.
        self._left: i64 = min(limit, choice.count(queue) - offset)
        self._jobs_by_seq: JobsBySeq | None = None
        self._queue = queue
        self._cursor: i64 = 0
        self._found: list[Job] = []
        self._oldest_first: bool = True
        self.shown = LongList()

    def start(self, *, oldest_first: bool) -> None:
        """Start with the oldest or the newest job."""
        self._oldest_first = oldest_first
        if self._choice.count(self._queue) > SORTED_AT_ONCE:
            self._jobs_by_seq = jobs_by_seq_of(self._queue)
            self._cursor = 0 if oldest_first else NEVER_MS
        else:
            self._found = self._choice.jobs(self._queue)
            self._found.sort(key=seq_of, reverse=oldest_first)

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  it only reads
        """Encode some jobs."""
        done: i64 = 0
        while done < most and self._left > 0:
            if not self._found and not self._find():
                break
            job = self._found.pop()
            done += 1
            if job.state == GONE or not self._choice.has(job):
                continue
            if self._offset > 0:
                self._offset -= 1
                continue
            self._left -= 1
            value = job_value(self._door, job).data
            if self.shown.count > 0 and self.shown.size() + len(value) > PAGE_BYTES_MAX:
                self._left = 0
                break
            self.shown.add(value)
            done += SHOW_UNITS + len(value) // WRITTEN_PER_UNIT
        return done

    def _find(self) -> bool:
        """Read more jobs; False if there are none."""
        jobs_by_seq = self._jobs_by_seq
        if jobs_by_seq is None:
            return False
        if self._oldest_first:
            self._found = jobs_by_seq.walk(self._cursor, _JOBS_PER_LOOK)
        else:
            self._found = jobs_by_seq.back(self._cursor, _JOBS_PER_LOOK)
        if not self._found:
            return False
        self._cursor = self._found[len(self._found) - 1].key
        self._found.reverse()
        return True


def get_jobs(session: BunqueueSession, request: Request) -> Answer | None:
    """List jobs, oldest first by default."""
    fields = request.fields
    name = push_options.queue_name(fields)
    words = state_words(fields)
    offset = push_options.number(fields, b"offset", 0, 0, SAFE_INTEGER_MAX)
    limit = push_options.number(fields, b"limit", LIST_LIMIT_DEFAULT, 0, SAFE_INTEGER_MAX)
    queue = session.yard.queues.get(name)
    if queue is None:
        return {"jobs": []}
    listed = JobPage(session, queue, chosen(queue, words, request.now_ms), offset, limit)
    listed.start(oldest_first=not fields.is_false(b"asc"))
    return session.begin(request, listed, lambda: {"jobs": listed.shown.value()})


def state_words(fields: MapFields) -> list[str] | None:
    """Return the state words of a command; None for all states."""
    if fields.kind(b"state") in (KIND_ABSENT, KIND_NIL):
        return None
    word = fields.text(b"state")
    if word is not None:
        return [word]
    words = fields.texts(b"state")
    if words is None:
        raise Refused("state must be a string or an array of strings")
    return words


def chosen(queue: Queue, words: list[str] | None, now_ms: i64) -> JobSelection:
    """Return the jobs that state words select; an unknown word selects none."""
    if words is None:
        return JobSelection(ALL_STATES)
    states = {QUERIED_STATES[word] for word in words if word in QUERIED_STATES}
    if PAUSED in words and is_paused(queue, now_ms):
        states.add(READY)
    return JobSelection(frozenset(states), with_prioritized=PRIORITIZED in words)


def is_paused(queue: Queue, now_ms: i64) -> bool:
    """Return whether a queue is paused, until it is resumed or for a time."""
    return settings_of(queue).is_paused or queue.pause_until_ms > now_ms


def get_job_counts(session: BunqueueSession, request: Request) -> Answer:
    """Count the jobs of a queue by state."""
    queue = session.yard.queues.get(push_options.queue_name(request.fields))
    counts: dict[str, object] = {}
    for word, state in QUERIED_STATES.items():
        if word != "wait":
            counts[word] = 0 if queue is None else int(count_of(queue, state))
    counts[PRIORITIZED] = 0 if queue is None else int(queue.ahead_count)
    counts[PAUSED] = 0
    if queue is not None and is_paused(queue, request.now_ms):
        counts[PAUSED] = counts["waiting"]
    return {"counts": counts}


@final
class PriorityCount(Task):
    """Counts waiting and delayed jobs by priority."""

    def __init__(self, queue: Queue) -> None:
        super().__init__()
        self.is_reading = True
        self._jobs: list[Job] = []
        self._jobs_by_seq: JobsBySeq | None = None
        self._cursor: i64 = 0
        if count_of(queue, READY) + count_of(queue, DELAYED) > SORTED_AT_ONCE:
            self._jobs_by_seq = jobs_by_seq_of(queue)
        else:
            self._jobs = jobs_in(queue, frozenset((READY, DELAYED)))
        self._counts: dict[int, int] = {}

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  it only reads
        """Count some jobs."""
        done: i64 = 0
        while done < most:
            if not self._jobs and self._jobs_by_seq is not None:
                self._jobs = self._jobs_by_seq.walk(self._cursor, _JOBS_PER_LOOK)
                if self._jobs:
                    self._cursor = self._jobs[len(self._jobs) - 1].key
            if not self._jobs:
                break
            job = self._jobs.pop()
            done += 1
            if job.state in (READY, DELAYED):
                priority = int(shown_priority(job))
                self._counts[priority] = self._counts.get(priority, 0) + 1
        return done

    def counts(self) -> dict[str, object]:
        """Return the count of each priority, lowest first."""
        return {str(priority): self._counts[priority] for priority in sorted(self._counts)}


def get_counts_per_priority(session: BunqueueSession, request: Request) -> Answer | None:
    """Count waiting and delayed jobs by priority."""
    name = push_options.queue_name(request.fields)
    queue = session.yard.queues.get(name)
    if queue is None:
        return {"queue": name, "counts": {}}
    task = PriorityCount(queue)
    return session.begin(request, task, lambda: {"queue": name, "counts": task.counts()})


def count(session: BunqueueSession, request: Request) -> Answer:
    """Count the jobs of a queue in all states."""
    queue = session.yard.queues.get(push_options.queue_name(request.fields))
    return {"count": 0 if queue is None else int(queue.jobs_count())}


QUERY_COMMANDS: Final[dict[bytes, Command]] = {
    b"GetJob": get_job,
    b"GetState": get_state,
    b"GetResult": get_result,
    b"GetJobByCustomId": get_job_by_custom_id,
    b"GetProgress": get_progress,
    b"GetJobs": get_jobs,
    b"GetJobCounts": get_job_counts,
    b"GetCountsPerPriority": get_counts_per_priority,
    b"Count": count,
}
