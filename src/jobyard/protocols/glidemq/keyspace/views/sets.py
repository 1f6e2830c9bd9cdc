"""Sorted sets, plain sets, lists and numbers of a queue, as its jobs and lanes make them up.

Counts are counters. A page of those at rest, or of those that are scheduled, costs what it tells
and what stands before it. What else there is, is little, and gathered for every reading.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.glidemq import add as glide_add
from jobyard.engine.glidemq.flows import suspended_jobs
from jobyard.engine.jobs.listing import roster_of
from jobyard.engine.jobs.subscriptions import waiting_repeats
from jobyard.engine.state.yard import Yard
from jobyard.model.details import DROPPED, Outcome
from jobyard.model.family import GLIDE
from jobyard.model.glidemq.subscriptions import Repeat
from jobyard.model.index.heap import Heap
from jobyard.model.index.item import Item
from jobyard.model.index.sorted_view import Listing, Listings
from jobyard.model.job import DEAD, DELAYED, DONE, READY, Job
from jobyard.model.limits import NEVER_MS
from jobyard.model.queue import LISTED, Queue
from jobyard.model.throttle.ordering_group import Lane
from jobyard.model.throttle.ready_lists import PROMOTED, STACK, STAGED, Shelves
from jobyard.protocols.glidemq.keyspace import key_parts
from jobyard.protocols.glidemq.keyspace.gather import ListingGather
from jobyard.protocols.glidemq.keyspace.key import Scored, ScoreRange
from jobyard.protocols.glidemq.keyspace.key_parts import Place, bytes_of
from jobyard.protocols.glidemq.keyspace.sorted_ids import MANY, ListedIds
from jobyard.protocols.glidemq.keyspace.views.job import priority_of

# A priority is the upper bits of a score, a time in milliseconds the lower.
PRIORITY_SHIFT: Final = 42
# Between the id of a job and the subscription that is to get it again.
_REPEATED: Final = b"||"
# Jobs that are not shown; beyond these the first is shown again.
HIDDEN_MAX: Final = 10_000
# Of a job that waits for a signal without end.
SUSPENDED_FOR_EVER: Final = 9_999_999_999_999


def shelves_of(queue: Queue) -> Shelves | None:
    """Return the shelves of a queue that has any."""
    rules = queue.rules
    return None if rules is None else rules.shelves


# -- orders ------------------------------------------------------------------------------------


def listings_of(queue: Queue) -> Listings:
    """Return the listings of a queue, which are made as they are asked for."""
    roster = roster_of(queue)
    listings = roster.listings
    if listings is None:
        listings = Listings()
        roster.listings = listings
    return listings


def renewed(queue: Queue, listing: Listing, count: i64) -> Listing:
    """Return a listing as it is now; `count` jobs belong to it."""
    listing.renew(roster_of(queue).walk(listing.seen_seq(), NEVER_MS), count)
    return listing


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

    def endings(self, yard: Yard, queue: Queue, state: i64) -> set[Item]:
        """Return how jobs of a queue came to rest that are in a state and not shown."""
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
class ScheduledListing(Listing):
    """Jobs that wait to be promoted, by their scores."""

    def __init__(self, yard: Yard) -> None:
        super().__init__()
        self._yard = yard
        # By which the scores of jobs at other doors are told; with another they are others.
        self._offset_ms: i64 = yard.journal.wall_offset_ms

    def has(self, job: Job) -> bool:
        """Tell whether a job waits to be promoted."""
        return is_scheduled(job)

    def place_of(self, job: Job) -> i64:
        """Return its score."""
        return scheduled_score(self._yard, job)

    def check_offset(self) -> None:
        """Begin anew if the wall clock was set."""
        offset_ms = self._yard.journal.wall_offset_ms
        if offset_ms != self._offset_ms:
            self._offset_ms = offset_ms
            self.forget()


def scheduled_listing(yard: Yard, queue: Queue) -> Listing:
    """Return the order of the schedule, which may not be up to date."""
    listings = listings_of(queue)
    listing = listings.scheduled
    if listing is None:
        listing = ScheduledListing(yard)
        listings.scheduled = listing
    assert isinstance(listing, ScheduledListing)
    listing.check_offset()
    return listing


def _schedule(yard: Yard, queue: Queue) -> Listing:
    return renewed(queue, scheduled_listing(yard, queue), scheduled_count(queue))


@final
class ScheduledGather(ListingGather):
    """Jobs that wait to be promoted, by scores from `low` to `high`."""

    def __init__(self, yard: Yard, queue: Queue, low: i64, high: i64, *, is_reversed: bool) -> None:
        super().__init__(queue, low, high, is_reversed=is_reversed)
        self._yard = yard

    def listing(self) -> Listing:
        """Return the order of the schedule."""
        return scheduled_listing(self._yard, self._queue)

    def length(self) -> i64:
        """Return how many jobs wait."""
        return scheduled_count(self._queue)


def scheduled_count(queue: Queue) -> i64:
    """Return how many jobs wait to be promoted."""
    shelves = shelves_of(queue)
    staged: i64 = 0 if shelves is None else shelves.staged_count
    return len(queue.delayed.items) + staged


def scheduled_page(
    yard: Yard, queue: Queue, start: i64, end: i64, *, is_reversed: bool
) -> list[Job]:
    """Return jobs that wait to be promoted, from one rank up to before another."""
    return _schedule(yard, queue).page(start, end - start, is_reversed=is_reversed)


def scheduled_within(
    yard: Yard, queue: Queue, within: ScoreRange, *, is_reversed: bool
) -> list[Job]:
    """Return jobs that wait to be promoted and whose scores lie in a range."""
    low, high = within.least(), within.most()
    return _schedule(yard, queue).between(low, high, -1, is_reversed=is_reversed)


def few_members(yard: Yard, queue: Queue, place: Place) -> list[Scored]:
    """Return the members of a sorted set that never has many, least score first."""
    found: list[Scored] = []
    if place.part == key_parts.RATELIMITED:
        found = _shut_lanes(yard, queue)
    elif place.part == key_parts.SUSPENDED:
        found = _suspended(yard, queue)
    found.sort(key=rank_of)
    return found


def rank_of(one: Scored) -> tuple[float, bytes]:
    """Return by what a member stands where it does."""
    return one[1], one[0]


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
        apart = shelves.staged_count - len(shelves.staged.items)
        found += lane_jobs(shelves, STAGED, apart)
    return found


def _gather(found: list[Job], heap: Heap) -> None:
    for item in heap.items:
        assert isinstance(item, Job)
        found.append(item)


def scheduled_member(yard: Yard, job: Job) -> Scored:
    """Return a job that waits to be promoted with its score."""
    return bytes_of(glide_add.id_of(job)), float(scheduled_score(yard, job))


def repeats(yard: Yard, queue: Queue) -> list[Scored]:
    """Return what subscriptions are to get again, each with when that is; in no order."""
    return [_repeated(yard, repeat) for repeat in waiting_repeats(queue)]


def _repeated(yard: Yard, repeat: Repeat) -> Scored:
    member = bytes_of(glide_add.id_of(repeat.job)) + _REPEATED + repeat.subscription.name
    label = repeat.sort_key + yard.journal.wall_offset_ms
    return member, float((priority_of(repeat.job) << PRIORITY_SHIFT) + label)


def scheduled_score(yard: Yard, job: Job) -> i64:
    """Return priority and due time of a job as one number."""
    return (priority_of(job) << PRIORITY_SHIFT) + due_label(yard, job)


def due_label(yard: Yard, job: Job) -> i64:
    """Return when a job is due by the clock of who said so; 0 for one that waits for no time."""
    if job.state == READY and job.delay_ms <= 0 and job.deliveries == 0:
        return 0
    if job.family == GLIDE and job.deliveries == 0 and job.due_ms == job.created_ms + job.delay_ms:
        return job.own_ms + job.delay_ms
    return job.due_ms + yard.journal.wall_offset_ms


def resting_member(yard: Yard, item: Item) -> Scored:
    """Return a job at rest with the time it came to rest."""
    assert isinstance(item, Outcome)
    return bytes_of(glide_add.id_of(item.job)), ended_at(yard, item)


def ended_at(yard: Yard, item: Item) -> float:
    """Return when a job came to rest, as the score it has."""
    assert isinstance(item, Outcome)
    return float(item.ended_ms + yard.journal.wall_offset_ms)


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
        found.append((bytes_of(glide_add.id_of(job)), float(score)))
    return found


# -- sets and lists ----------------------------------------------------------------------------


def members_of(job: Job) -> list[bytes]:
    """Return those a job waits for or has waited for."""
    extra = job.extra
    if extra is None or extra.members is None:
        return []
    return [bytes_of(member.label) for member in extra.members if member.state != DROPPED]


def has_members(job: Job) -> bool:
    """Tell whether there is one that a job waits for or has waited for."""
    extra = job.extra
    if extra is None or extra.members is None:
        return False
    return any(member.state != DROPPED for member in extra.members)


def parents_of(yard: Yard, job: Job) -> list[bytes]:
    """Return those who wait for a job, each with its queue."""
    return [
        bytes_of(f"{parent.queue.name}:{glide_add.id_of(parent)}")
        for parent in yard.names.dependents.get(int(job.id)) or ()
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
    if shelves.listed_apart > 0:
        return len(list_jobs(queue, place))
    return len(shelves.heap(shelf_of(place)).items)


def shelf_of(place: Place) -> i64:
    """Return where the jobs of a list stand."""
    return PROMOTED if place.part == key_parts.PRIORITY else STACK


def list_items(queue: Queue, place: Place) -> list[bytes]:
    """Return the ids in one of the lists; the last is the first to be taken."""
    return [bytes_of(glide_add.id_of(job)) for job in list_jobs(queue, place)]


def list_jobs(queue: Queue, place: Place) -> list[Job]:
    """Return the jobs of one of the lists; behind the first, those that wait for their turn."""
    found: list[Job] = []
    shelves = shelves_of(queue)
    if shelves is None:
        return found
    shelf = shelf_of(place)
    if shelves.listed_apart > 0:
        found = lane_jobs(shelves, shelf, shelves.listed_apart)
        found.sort(key=_turn_of, reverse=True)
    standing: list[Job] = []
    _gather(standing, shelves.heap(shelf))
    standing.sort(key=_turn_of, reverse=True)
    return found + standing


def find_ids(queue: Queue, place: Place) -> ListedIds | None:
    """Return the work of listing the ids in one of the lists; None where they are few."""
    shelves = shelves_of(queue)
    if shelves is None or list_count(queue, place) <= MANY:
        return None
    shelf = shelf_of(place)
    standing: list[Job] = []
    _gather(standing, shelves.heap(shelf))
    return ListedIds(lane_jobs(shelves, shelf, shelves.listed_apart), standing, shelf)


def lane_jobs(shelves: Shelves, shelf: i64, most: i64) -> list[Job]:
    """Return up to `most` jobs of a shelf that wait in their lanes, in no order."""
    found: list[Job] = []
    for lane in shelves.lanes.values():
        for item in lane.waiting.items:
            assert isinstance(item, Job)
            if item.shelf == shelf and len(found) < most:
                found.append(item)
        if len(found) == most:
            break
    return found


def parked_jobs(queue: Queue, key: str) -> list[Job]:
    """Return the jobs of an ordering key that wait for others of it, the next to start first."""
    shelves = shelves_of(queue)
    lane = None if shelves is None else shelves.lanes.get(key)
    found: list[Job] = []
    if lane is None:
        return found
    for item in lane.waiting.items:
        assert isinstance(item, Job)
        if item.shelf != STAGED and lane.is_parked(item):
            found.append(item)
    found.sort(key=_turn_of)
    return found


def parked_count(queue: Queue, key: str) -> i64:
    """Return how many jobs of an ordering key wait for the others of it."""
    shelves = shelves_of(queue)
    lane = None if shelves is None else shelves.lanes.get(key)
    if shelves is None or lane is None:
        return 0
    if lane.front is None and shelves.staged_count == len(shelves.staged.items):
        # None of those that wait here is to be promoted first.
        return len(lane.waiting.items)
    return len(parked_jobs(queue, key))


def _turn_of(job: Job) -> tuple[int, int]:
    return job.sort_key, job.stamp


def log_lines(job: Job) -> list[bytes]:
    """Return what workers wrote about a job."""
    extra = job.extra
    if extra is None or extra.logs is None:
        return []
    return [bytes_of(line.text) for line in extra.logs]


def list_active(queue: Queue) -> i64:
    """Return how many jobs run that were taken from the lists.

    Also where there are no lists any more: after a restart such a job is taken up again by its id.
    """
    count: i64 = 0
    for item in queue.leased.items:
        assert isinstance(item, Job)
        lease = item.lease
        if lease is not None and lease.terms.proof == LISTED:
            count += 1
    return count
