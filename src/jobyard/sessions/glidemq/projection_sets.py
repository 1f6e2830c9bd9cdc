"""Sorted sets, plain sets, lists and numbers of a queue, as its jobs and lanes make them up.

Counts are counters. Listings gather what they list: those at rest stand in their order, those that
are scheduled are put in order by every listing.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine import glide
from jobyard.engine.yard import Yard
from jobyard.model.extra import DROPPED, Outcome
from jobyard.model.glide import SUSPENDED
from jobyard.model.heap import Heap
from jobyard.model.job import BLOCKED, DEAD, DELAYED, DONE, GLIDE, READY, Job
from jobyard.model.lane import Lane
from jobyard.model.line import Line
from jobyard.model.queue import Queue
from jobyard.model.shelves import PROMOTED, STACK, STAGED, Shelves
from jobyard.sessions.glidemq import places
from jobyard.sessions.glidemq.keyed import Scored
from jobyard.sessions.glidemq.places import Place, bytes_of
from jobyard.sessions.glidemq.projection_job import priority_of

# A priority is the upper bits of a score, a time in milliseconds the lower.
PRIORITY_SHIFT: Final = 42
# Of a job that waits for a signal without end.
# Jobs that are not shown; beyond these the first is shown again.
HIDDEN_MAX: Final = 10_000
SUSPENDED_FOR_EVER: Final = 9_999_999_999_999


def shelves_of(queue: Queue) -> Shelves | None:
    """Return the shelves of a queue that has any."""
    rules = queue.rules
    return None if rules is None else rules.shelves


# -- jobs taken out of a list ------------------------------------------------------------------


@final
class Hidden:
    """Jobs at rest that a client took out of their sorted set, until they come to rest again.

    In memory only: a client does so on the way to bring a job back.
    """

    def __init__(self) -> None:
        # By the id of the job: the number of the ending that is not shown.
        self._endings: dict[int, int] = {}

    def add(self, job: Job) -> None:
        """Show the end of a job no more."""
        if len(self._endings) >= HIDDEN_MAX:
            del self._endings[next(iter(self._endings))]
        self._endings[int(job.id)] = int(job.outcome().key)

    def has(self, job: Job) -> bool:
        """Tell whether the end of a job is not to be shown."""
        if int(job.id) not in self._endings:
            return False
        return self._endings[int(job.id)] == int(job.outcome().key)

    def ids(self, yard: Yard, queue: Queue, state: i64) -> list[bytes]:
        """Return the jobs of a queue that are in a state and not shown."""
        found: list[bytes] = []
        for job_id in self._endings:
            job = yard.jobs.get(job_id)
            if job is not None and job.queue is queue and job.state == state and self.has(job):
                found.append(bytes_of(glide.id_of(job)))
        return found


# -- sorted sets -------------------------------------------------------------------------------


def sorted_count(yard: Yard, queue: Queue, place: Place) -> i64:
    """Return how many members a sorted set has."""
    part = place.part
    if part == places.SCHEDULED:
        shelves = shelves_of(queue)
        staged: i64 = 0 if shelves is None else shelves.staged_count
        return len(queue.delayed.items) + staged
    if part == places.COMPLETED:
        return queue.done.live_count
    if part == places.FAILED:
        return queue.dead.live_count
    return len(sorted_members(yard, queue, place))


def sorted_members(yard: Yard, queue: Queue, place: Place) -> list[Scored]:
    """Return the members of a sorted set, least score first."""
    part = place.part
    if part == places.SCHEDULED:
        found = [_scheduled(yard, job) for job in scheduled_jobs(queue)]
    elif part == places.COMPLETED:
        found = _resting(yard, queue.done)
    elif part == places.FAILED:
        found = _resting(yard, queue.dead)
    elif part == places.RATELIMITED:
        found = _shut_lanes(yard, queue)
    elif part == places.SUSPENDED:
        found = _suspended(yard, queue)
    else:
        found = []
    found.sort(key=_rank_of)
    return found


def _rank_of(one: Scored) -> tuple[float, bytes]:
    return one[1], one[0]


def score_of(yard: Yard, queue: Queue, place: Place, member: bytes) -> float | None:
    """Return the score of one member."""
    part = place.part
    if part in (places.SCHEDULED, places.COMPLETED, places.FAILED):
        job = glide.find(yard, queue, places.text_of(member))
        if job is None:
            return None
        if part == places.SCHEDULED:
            return float(scheduled_score(yard, job)) if is_scheduled(job) else None
        if job.state != (DONE if part == places.COMPLETED else DEAD):
            return None
        return float(job.outcome().ended_ms + yard.journal.wall_offset_ms)
    for one in sorted_members(yard, queue, place):
        if one[0] == member:
            return one[1]
    return None


def is_scheduled(job: Job) -> bool:
    """Tell whether a job waits to be promoted."""
    return job.state == DELAYED or (job.state == READY and job.shelf == STAGED)


def scheduled_jobs(queue: Queue) -> list[Job]:
    """Return all jobs that wait to be promoted, in no order."""
    found: list[Job] = []
    _gather(found, queue.delayed)
    shelves = shelves_of(queue)
    if shelves is not None and shelves.staged_count > 0:
        _gather(found, shelves.staged)
        if len(shelves.staged.items) < shelves.staged_count:
            for lane in shelves.lanes.values():
                for item in lane.waiting.items:
                    assert isinstance(item, Job)
                    if item.shelf == STAGED:
                        found.append(item)
    return found


def _gather(found: list[Job], heap: Heap) -> None:
    for item in heap.items:
        assert isinstance(item, Job)
        found.append(item)


def _scheduled(yard: Yard, job: Job) -> Scored:
    return bytes_of(glide.id_of(job)), float(scheduled_score(yard, job))


def scheduled_score(yard: Yard, job: Job) -> i64:
    """Return priority and due time of a job as one number."""
    return (priority_of(job) << PRIORITY_SHIFT) + due_label(yard, job)


def due_label(yard: Yard, job: Job) -> i64:
    """Return when a job is due by the clock of who said so; 0 for one that waits for no time."""
    if job.state == READY and job.delay_ms <= 0:
        return 0
    if job.family == GLIDE and job.deliveries == 0 and job.due_ms == job.created_ms + job.delay_ms:
        return job.own_ms + job.delay_ms
    return job.due_ms + yard.journal.wall_offset_ms


def _resting(yard: Yard, line: Line) -> list[Scored]:
    offset_ms = yard.journal.wall_offset_ms
    found: list[Scored] = []
    for item in line.items:
        if item.pos == 0:
            assert isinstance(item, Outcome)
            found.append((bytes_of(glide.id_of(item.job)), float(item.ended_ms + offset_ms)))
    return found


def resting_jobs(line: Line) -> list[Job]:
    """Return jobs that are done or dead, the first to end first."""
    found: list[Job] = []
    for item in line.items:
        if item.pos == 0:
            assert isinstance(item, Outcome)
            found.append(item.job)
    return found


def _shut_lanes(yard: Yard, queue: Queue) -> list[Scored]:
    shelves = shelves_of(queue)
    found: list[Scored] = []
    if shelves is None:
        return found
    for item in shelves.shut.items:
        assert isinstance(item, Lane)
        score = item.sort_key + yard.journal.wall_offset_ms
        found.append((bytes_of(item.name), float(score)))
    return found


def _suspended(yard: Yard, queue: Queue) -> list[Scored]:
    found: list[Scored] = []
    for job in suspended_jobs(queue):
        assert job.extra is not None
        assert job.extra.glide is not None
        until_ms = job.extra.glide.until_ms
        score: i64 = SUSPENDED_FOR_EVER
        if until_ms > 0:
            score = until_ms + yard.journal.wall_offset_ms
        found.append((bytes_of(glide.id_of(job)), float(score)))
    return found


def suspended_jobs(queue: Queue) -> list[Job]:
    """Return the jobs that wait for a signal."""
    found: list[Job] = []
    for item in queue.blocked.items:
        assert isinstance(item, Job)
        extra = item.extra
        part = None if extra is None else extra.glide
        if part is not None and part.flags & SUSPENDED and item.state == BLOCKED:
            found.append(item)
    return found


# -- sets and lists ----------------------------------------------------------------------------


def members_of(job: Job) -> list[bytes]:
    """Return those a job waits for or has waited for."""
    extra = job.extra
    if extra is None or extra.members is None:
        return []
    return [bytes_of(member.label) for member in extra.members if member.state != DROPPED]


def parents_of(yard: Yard, job: Job) -> list[bytes]:
    """Return those who wait for a job, each with its queue."""
    return [
        bytes_of(f"{parent.queue.name}:{glide.id_of(parent)}")
        for parent in yard.names.dependents.get(int(job.id), ())
    ]


def open_members(job: Job) -> i64:
    """Return how many a job still waits for."""
    extra = job.extra
    return 0 if extra is None else extra.open_count()


def list_count(queue: Queue, place: Place) -> i64:
    """Return how many jobs stand in one of the lists."""
    shelves = shelves_of(queue)
    if shelves is None:
        return 0
    return len(shelves.heap(PROMOTED if place.part == places.PRIORITY else STACK).items)


def list_items(queue: Queue, place: Place) -> list[bytes]:
    """Return the ids in one of the lists; the last is the first to be taken."""
    return [bytes_of(glide.id_of(job)) for job in list_jobs(queue, place)]


def list_jobs(queue: Queue, place: Place) -> list[Job]:
    """Return the jobs of one of the lists."""
    found: list[Job] = []
    shelves = shelves_of(queue)
    if shelves is not None:
        _gather(found, shelves.heap(PROMOTED if place.part == places.PRIORITY else STACK))
    found.sort(key=_turn_of, reverse=True)
    return found


def _turn_of(job: Job) -> tuple[int, int]:
    return job.sort_key, job.stamp


def log_lines(job: Job) -> list[bytes]:
    """Return what workers wrote about a job."""
    extra = job.extra
    if extra is None or extra.logs is None:
        return []
    return [bytes_of(line.text) for line in extra.logs]


def list_active(queue: Queue) -> i64:
    """Return how many jobs run that were taken from the lists."""
    count: i64 = 0
    if shelves_of(queue) is None:
        return count
    for item in queue.leased.items:
        assert isinstance(item, Job)
        lease = item.lease
        if lease is not None and lease.terms.is_list:
            count += 1
    return count
