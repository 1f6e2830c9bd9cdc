"""Sorted sets, plain sets, lists and numbers of a queue, computed from its jobs.

Counts are counters. A page of ended or scheduled jobs costs as much as the page and what precedes
it. Everything else is small, and collected for every read.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.glidemq import add as glide_add
from jobyard.engine.glidemq.flows import suspended_jobs
from jobyard.engine.jobs.listing import jobs_by_seq_of
from jobyard.engine.state.yard import Yard
from jobyard.engine.subscriptions.subscriptions import waiting_redeliveries
from jobyard.model.details import Outcome
from jobyard.model.family import GLIDE
from jobyard.model.glidemq.subscriptions import Redelivery
from jobyard.model.index.heap import Heap
from jobyard.model.index.item import Item
from jobyard.model.index.sorted_view import SortedView, SortedViews
from jobyard.model.job import DEAD, DELAYED, DONE, READY, Job
from jobyard.model.lease import Proof
from jobyard.model.limits import NEVER_MS
from jobyard.model.members import MemberState
from jobyard.model.queue import Queue
from jobyard.model.throttle.ordering_group import OrderingGroup, find_ordering
from jobyard.model.throttle.ready_lists import ReadyList, ReadyLists
from jobyard.protocols.glidemq.keyspace import key_parts
from jobyard.protocols.glidemq.keyspace.gather import SortedViewGather
from jobyard.protocols.glidemq.keyspace.key import Scored, ScoreRange
from jobyard.protocols.glidemq.keyspace.key_parts import KeyPlace, bytes_of
from jobyard.protocols.glidemq.keyspace.sorted_ids import LISTED_AT_ONCE, ListedIds
from jobyard.protocols.glidemq.keyspace.views.job import priority_of

# A priority is the upper bits of a score, a time in milliseconds the lower bits.
PRIORITY_SHIFT: Final = 42
# Separates the id of a job from the subscription that it is redelivered to.
_REPEATED: Final = b"||"
# Maximum number of hidden jobs; beyond it, the first is shown again.
HIDDEN_MAX: Final = 10_000
# Score of a job that waits for a signal without a timeout.
SUSPENDED_FOR_EVER: Final = 9_999_999_999_999


def ready_lists_of(queue: Queue) -> ReadyLists | None:
    """Return the ready lists of a queue, if it has any."""
    rules = queue.rules
    return None if rules is None else rules.ready_lists


# -- sorted views ------------------------------------------------------------------------------


def listings_of(queue: Queue) -> SortedViews:
    """Return the sorted views of a queue, each created on first use."""
    jobs_by_seq = jobs_by_seq_of(queue)
    listings = jobs_by_seq.listings
    if listings is None:
        listings = SortedViews()
        jobs_by_seq.listings = listings
    return listings


def renewed(queue: Queue, listing: SortedView, count: i64) -> SortedView:
    """Return a sorted view brought up to date; `count` jobs belong to it."""
    listing.renew(jobs_by_seq_of(queue).walk(listing.seen_seq(), NEVER_MS), count)
    return listing


# -- hidden jobs -------------------------------------------------------------------------------


@final
class HiddenMembers:
    """Ended jobs that a client removed from their sorted set, until they end again.

    In memory only: a client does this as the first step of reviving a job.
    """

    def __init__(self) -> None:
        # By job id: the key of the outcome that is not shown.
        self._endings: dict[int, int] = {}

    def add(self, job: Job) -> None:
        """Hide the current outcome of a job."""
        if len(self._endings) >= HIDDEN_MAX:
            del self._endings[next(iter(self._endings))]
        self._endings[int(job.id)] = int(job.outcome().key)

    def endings(self, yard: Yard, queue: Queue, state: i64) -> set[Item]:
        """Return the hidden outcomes of a queue's jobs in a state."""
        found: set[Item] = set()
        over: list[int] = []
        for job_id, ending in self._endings.items():
            job = yard.jobs.get(job_id)
            if job is None or job.state not in (DEAD, DONE) or job.outcome().key != ending:
                over.append(job_id)
            elif job.queue is queue and job.state == state:
                found.add(job.outcome())
        for job_id in over:
            del self._endings[job_id]
        return found


# -- sorted sets -------------------------------------------------------------------------------


@final
class ScheduledListing(SortedView):
    """Jobs that wait to be promoted, by their scores."""

    def __init__(self, yard: Yard) -> None:
        super().__init__()
        self._yard = yard
        # Scores of jobs from other doors depend on it: when it changes, so do they.
        self._offset_ms: i64 = yard.journal.wall_offset_ms

    def has(self, job: Job) -> bool:
        """Return whether a job waits to be promoted."""
        return is_scheduled(job)

    def place_of(self, job: Job) -> i64:
        """Return its score."""
        return scheduled_score(self._yard, job)

    def check_offset(self) -> None:
        """Start over if the wall clock was set."""
        offset_ms = self._yard.journal.wall_offset_ms
        if offset_ms != self._offset_ms:
            self._offset_ms = offset_ms
            self.forget()


def scheduled_listing(yard: Yard, queue: Queue) -> SortedView:
    """Return the sorted view of scheduled jobs, which may not be up to date."""
    listings = listings_of(queue)
    listing = listings.scheduled
    if listing is None:
        listing = ScheduledListing(yard)
        listings.scheduled = listing
    assert isinstance(listing, ScheduledListing)
    listing.check_offset()
    return listing


def _schedule(yard: Yard, queue: Queue) -> SortedView:
    return renewed(queue, scheduled_listing(yard, queue), scheduled_count(queue))


@final
class ScheduledGather(SortedViewGather):
    """Jobs that wait to be promoted, by scores from `low` to `high`."""

    def __init__(self, yard: Yard, queue: Queue, low: i64, high: i64, *, is_reversed: bool) -> None:
        super().__init__(queue, low, high, is_reversed=is_reversed)
        self._yard = yard

    def listing(self) -> SortedView:
        """Return the sorted view of scheduled jobs."""
        return scheduled_listing(self._yard, self._queue)

    def length(self) -> i64:
        """Return how many jobs wait."""
        return scheduled_count(self._queue)


def scheduled_count(queue: Queue) -> i64:
    """Return how many jobs wait to be promoted."""
    ready_lists = ready_lists_of(queue)
    staged: i64 = 0 if ready_lists is None else ready_lists.staged_count
    return len(queue.delayed.items) + staged


def scheduled_page(
    yard: Yard, queue: Queue, start: i64, end: i64, *, is_reversed: bool
) -> list[Job]:
    """Return jobs that wait to be promoted, from rank `start` up to, not including, `end`."""
    return _schedule(yard, queue).page(start, end - start, is_reversed=is_reversed)


def scheduled_within(
    yard: Yard, queue: Queue, within: ScoreRange, *, is_reversed: bool
) -> list[Job]:
    """Return jobs that wait to be promoted and whose scores are in a range."""
    low, high = within.least(), within.most()
    return _schedule(yard, queue).between(low, high, -1, is_reversed=is_reversed)


def few_members(yard: Yard, queue: Queue, place: KeyPlace) -> list[Scored]:
    """Return the members of a sorted set that never has many, least score first."""
    found: list[Scored] = []
    if place.part == key_parts.KeyPart.RATELIMITED:
        found = _shut_orderings(yard, queue)
    elif place.part == key_parts.KeyPart.SUSPENDED:
        found = _suspended(yard, queue)
    found.sort(key=rank_of)
    return found


def rank_of(one: Scored) -> tuple[float, bytes]:
    """Return the sort key of a member."""
    return one[1], one[0]


def is_scheduled(job: Job) -> bool:
    """Return whether a job waits to be promoted."""
    return job.state == DELAYED or (job.state == READY and job.ready_list == ReadyList.STAGED)


def scheduled_jobs(queue: Queue) -> list[Job]:
    """Return all jobs that wait to be promoted, in no order."""
    found: list[Job] = []
    _gather(found, queue.delayed)
    ready_lists = ready_lists_of(queue)
    if ready_lists is not None and ready_lists.staged_count > 0:
        _gather(found, ready_lists.staged)
        apart = ready_lists.staged_count - len(ready_lists.staged.items)
        found += ordering_jobs(ready_lists, ReadyList.STAGED, apart)
    return found


def _gather(found: list[Job], heap: Heap) -> None:
    for item in heap.items:
        assert isinstance(item, Job)
        found.append(item)


def scheduled_member(yard: Yard, job: Job) -> Scored:
    """Return a job that waits to be promoted, with its score."""
    return bytes_of(glide_add.id_of(job)), float(scheduled_score(yard, job))


def repeats(yard: Yard, queue: Queue) -> list[Scored]:
    """Return the redeliveries of subscriptions with their due times; in no order."""
    return [_repeated(yard, repeat) for repeat in waiting_redeliveries(queue)]


def _repeated(yard: Yard, repeat: Redelivery) -> Scored:
    member = bytes_of(glide_add.id_of(repeat.job)) + _REPEATED + repeat.subscription.name
    label = repeat.sort_key + yard.journal.wall_offset_ms
    return member, float((priority_of(repeat.job) << PRIORITY_SHIFT) + label)


def scheduled_score(yard: Yard, job: Job) -> i64:
    """Return priority and due time of a job as one number."""
    return (priority_of(job) << PRIORITY_SHIFT) + due_label(yard, job)


def due_label(yard: Yard, job: Job) -> i64:
    """Return when a job is due, by the producer's clock if known; 0 if it waits for no time."""
    if job.state == READY and job.delay_ms <= 0 and job.deliveries == 0:
        return 0
    if job.family == GLIDE and job.deliveries == 0 and job.due_ms == job.created_ms + job.delay_ms:
        return job.own_ms + job.delay_ms
    return job.due_ms + yard.journal.wall_offset_ms


def resting_member(yard: Yard, item: Item) -> Scored:
    """Return an ended job with the time of its end."""
    assert isinstance(item, Outcome)
    return bytes_of(glide_add.id_of(item.job)), ended_at(yard, item)


def ended_at(yard: Yard, item: Item) -> float:
    """Return when a job ended, as its score."""
    assert isinstance(item, Outcome)
    return float(item.ended_ms + yard.journal.wall_offset_ms)


def _shut_orderings(yard: Yard, queue: Queue) -> list[Scored]:
    ready_lists = ready_lists_of(queue)
    found: list[Scored] = []
    if ready_lists is None:
        return found
    for item in ready_lists.shut.items:
        assert isinstance(item, OrderingGroup)
        score = item.sort_key + yard.journal.wall_offset_ms
        found.append((bytes_of(item.name), float(score)))
    return found


def _suspended(yard: Yard, queue: Queue) -> list[Scored]:
    found: list[Scored] = []
    for job in suspended_jobs(queue):
        assert job.details is not None
        assert job.details.glide is not None
        until_ms = job.details.glide.until_ms
        score: i64 = SUSPENDED_FOR_EVER
        if until_ms > 0:
            score = until_ms + yard.journal.wall_offset_ms
        found.append((bytes_of(glide_add.id_of(job)), float(score)))
    return found


# -- sets and lists ----------------------------------------------------------------------------


def members_of(job: Job) -> list[bytes]:
    """Return the children that a job waits for or has waited for."""
    details = job.details
    if details is None or details.members is None:
        return []
    return [
        bytes_of(member.label) for member in details.members if member.state != MemberState.DROPPED
    ]


def has_members(job: Job) -> bool:
    """Return whether a job waits, or has waited, for any child."""
    details = job.details
    if details is None or details.members is None:
        return False
    return any(member.state != MemberState.DROPPED for member in details.members)


def parents_of(yard: Yard, job: Job) -> list[bytes]:
    """Return the parents that wait for a job, each with its queue."""
    return [
        bytes_of(f"{parent.queue.name}:{glide_add.id_of(parent)}")
        for parent in yard.names.dependents.get(int(job.id)) or ()
    ]


def open_members(job: Job) -> i64:
    """Return how many children a job still waits for."""
    details = job.details
    return 0 if details is None else details.open_count()


def list_count(queue: Queue, place: KeyPlace) -> i64:
    """Return the number of jobs in one of the lists."""
    ready_lists = ready_lists_of(queue)
    if ready_lists is None:
        return 0
    if ready_lists.listed_apart > 0:
        return len(list_jobs(queue, place))
    return len(ready_lists.heap(ready_list_of(place)).items)


def ready_list_of(place: KeyPlace) -> i64:
    """Return the ready list that a key shows."""
    return ReadyList.PROMOTED if place.part == key_parts.KeyPart.PRIORITY else ReadyList.LIFO


def list_items(queue: Queue, place: KeyPlace) -> list[bytes]:
    """Return the ids in one of the lists; the last is taken first."""
    return [bytes_of(glide_add.id_of(job)) for job in list_jobs(queue, place)]


def list_jobs(queue: Queue, place: KeyPlace) -> list[Job]:
    """Return the jobs of one of the lists, the next to be taken last; held-up jobs come first."""
    found: list[Job] = []
    ready_lists = ready_lists_of(queue)
    if ready_lists is None:
        return found
    ready_list = ready_list_of(place)
    if ready_lists.listed_apart > 0:
        found = ordering_jobs(ready_lists, ready_list, ready_lists.listed_apart)
        found.sort(key=_turn_of, reverse=True)
    standing: list[Job] = []
    _gather(standing, ready_lists.heap(ready_list))
    standing.sort(key=_turn_of, reverse=True)
    return found + standing


def find_ids(queue: Queue, place: KeyPlace) -> ListedIds | None:
    """Return a task that lists the ids of one of the lists; None if there are few."""
    ready_lists = ready_lists_of(queue)
    if ready_lists is None or list_count(queue, place) <= LISTED_AT_ONCE:
        return None
    ready_list = ready_list_of(place)
    standing: list[Job] = []
    _gather(standing, ready_lists.heap(ready_list))
    return ListedIds(
        ordering_jobs(ready_lists, ready_list, ready_lists.listed_apart), standing, ready_list
    )


def ordering_jobs(ready_lists: ReadyLists, ready_list: i64, most: i64) -> list[Job]:
    """Return up to `most` jobs of a ready list that wait in their ordering groups, in no order."""
    found: list[Job] = []
    for ordering in ready_lists.orderings.values():
        for item in ordering.waiting.items:
            assert isinstance(item, Job)
            if item.ready_list == ready_list and len(found) < most:
                found.append(item)
        if len(found) == most:
            break
    return found


def parked_jobs(queue: Queue, key: str) -> list[Job]:
    """Return the jobs of an ordering key that wait for others of it, the next to start first."""
    ordering = find_ordering(ready_lists_of(queue), key)
    found: list[Job] = []
    if ordering is None:
        return found
    for item in ordering.waiting.items:
        assert isinstance(item, Job)
        if item.ready_list != ReadyList.STAGED and ordering.is_parked(item):
            found.append(item)
    found.sort(key=_turn_of)
    return found


def parked_count(queue: Queue, key: str) -> i64:
    """Return how many jobs of an ordering key wait for others of it."""
    ready_lists = ready_lists_of(queue)
    ordering = find_ordering(ready_lists, key)
    if ready_lists is None or ordering is None:
        return 0
    if ordering.next_job is None and ready_lists.staged_count == len(ready_lists.staged.items):
        # None of the waiting jobs is still to be promoted.
        return len(ordering.waiting.items)
    return len(parked_jobs(queue, key))


def _turn_of(job: Job) -> tuple[int, int]:
    return job.sort_key, job.stamp


def log_lines(job: Job) -> list[bytes]:
    """Return what workers wrote about a job."""
    details = job.details
    if details is None or details.logs is None:
        return []
    return [bytes_of(line.text) for line in details.logs]


def list_active(queue: Queue) -> i64:
    """Return how many running jobs were taken from the lists.

    This also counts where no lists are left: after a restart, such a job is resumed by its id.
    """
    count: i64 = 0
    for item in queue.leased.items:
        assert isinstance(item, Job)
        lease = item.lease
        if lease is not None and lease.terms.proof == Proof.LISTED:
            count += 1
    return count
