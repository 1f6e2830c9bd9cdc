"""The stream of a queue, as its ready and its leased jobs make it up.

An entry is a job that stands in the stream or was taken from there; its id is the job's place in
line, so it changes when the job comes back. Whoever holds a job of the stream has its entry
pending, at whatever door it was taken.

What is read of the stream costs what is told. Those that are held are gone through by `held`.
"""

from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from jobyard.engine.glidemq import add as glide_add
from jobyard.engine.jobs.listing import roster_of
from jobyard.engine.state.tasks import Task
from jobyard.engine.state.yard import STAMP_SHIFT, abs_stamp
from jobyard.model.family import BEANSTALK, BUNQUEUE, GLIDE, TOPICS
from jobyard.model.index.sorted_view import FIRST, LAST, Listing
from jobyard.model.job import LEASED, READY, Job
from jobyard.model.queue import LISTED, Lease, Queue
from jobyard.model.throttle.ready_lists import STREAM
from jobyard.protocols.glidemq.keyspace.gather import ListingGather, ListingRefresh
from jobyard.protocols.glidemq.keyspace.key_parts import bytes_of
from jobyard.protocols.glidemq.keyspace.views.sets import (
    list_active,
    listings_of,
    renewed,
    shelves_of,
)
from jobyard.wire.resp.write import write_pair

GROUP: Final = b"workers"
ENTRY_MAX: Final = (1 << 63) - 1
_LOW_MAX: Final = (1 << STAMP_SHIFT) - 1
# What the greatest id may have before its dash.
_HIGH_MAX: Final = (1 << (63 - STAMP_SHIFT)) - 1
# So many are looked through one by one.
_FEW: Final = 4096
# So many jobs that an order does not know yet are taken in on the way.
_BEHIND_MAX: Final = 2048
# So many jobs without an entry may stand between those that have one, beside as many as these.
_BETWEEN_MAX: Final = 1024

_DOORS: Final[dict[int, str]] = {
    BEANSTALK: "beanstalk",
    BUNQUEUE: "bunqueue",
    GLIDE: "glide-mq",
    TOPICS: "topics",
}


def stream_length(queue: Queue) -> i64:
    """Return how many entries the stream has."""
    ready: i64 = len(queue.ready.items) + queue.held_count
    shelves = shelves_of(queue)
    if shelves is not None:
        listed: i64 = len(shelves.promoted.items) + len(shelves.stack.items) + shelves.listed_apart
        ready -= shelves.staged_count + listed
    return ready + pending_count(queue)


def pending_count(queue: Queue) -> i64:
    """Return how many entries somebody holds."""
    return len(queue.leased.items) - list_active(queue)


def last_taken(queue: Queue) -> i64:
    """Return the id of the entry that was taken last, 0 if none was since the server began."""
    return abs_stamp(queue.taken_stamp)


def entry_stamp(job: Job) -> i64:
    """Return the id of a job's entry as one number."""
    return abs_stamp(job.stamp)


def entry_text(stamp: i64) -> bytes:
    """Return the id of an entry as it is written."""
    return f"{int(stamp >> STAMP_SHIFT)}-{int(stamp & _LOW_MAX)}".encode()


def write_entry_id(out: BytesWriter, job: Job) -> None:
    """Write the id of a job's entry."""
    stamp = abs_stamp(job.stamp)
    write_pair(out, stamp >> STAMP_SHIFT, stamp & _LOW_MAX)


def parse_entry(text: bytes, low: i64) -> int | None:
    """Return an entry id as one number; `low` stands for what it leaves out; None for none."""
    head, dash, tail = text.partition(b"-")
    if not _is_count(head) or (dash and not _is_count(tail)):
        return None
    high = min(int(head), _HIGH_MAX)
    rest = min(int(tail), _LOW_MAX) if dash else min(int(low), _LOW_MAX)
    return high << STAMP_SHIFT | rest


def _is_count(text: bytes) -> bool:
    return text.isdigit() and len(text) <= 20


@final
class StreamListing(Listing):
    """Jobs that have an entry, by its id."""

    def has(self, job: Job) -> bool:
        """Tell whether a job has an entry."""
        if job.state == READY:
            return job.shelf == STREAM
        lease = job.lease
        return job.state == LEASED and lease is not None and lease.terms.proof != LISTED

    def place_of(self, job: Job) -> i64:
        """Return the id of its entry."""
        return entry_stamp(job)


_ENTRIES: Final = StreamListing()


def _stream(queue: Queue) -> Listing:
    return renewed(queue, stream_listing(queue), stream_length(queue))


@final
class StreamGather(ListingGather):
    """Jobs by their entries from `low` to `high`."""

    def listing(self) -> Listing:
        """Return the order of the stream."""
        return stream_listing(self._queue)

    def length(self) -> i64:
        """Return how many entries there are."""
        return stream_length(self._queue)

    def look(self, most: i64) -> i64:
        """Look at jobs as they came while they stand so; else at the order of their entries."""
        if not is_straight(self._queue):
            return super().look(most)
        step: i64 = -1 if self._is_reversed else 1
        if self._key == (LAST if self._is_reversed else FIRST):
            # It begins at this place; later it goes on behind one, which no two entries have.
            step = 0
        stretch = roster_of(self._queue).stretch(
            self._place + step,
            self._bound,
            self.span(most),
            _ENTRIES,
            is_reversed=self._is_reversed,
        )
        stretch.key = FIRST if self._is_reversed else LAST
        return self._take_all(stretch, 0)


def stream_listing(queue: Queue) -> Listing:
    """Return the order of the stream, which may not be up to date."""
    listings = listings_of(queue)
    if listings.stream is None:
        listings.stream = StreamListing()
    return listings.stream


def stream_upkeep(queue: Queue) -> Task | None:
    """Return the work of putting the entries of a queue in order, if there is much to it."""
    if is_straight(queue):
        return None
    listing = stream_listing(queue)
    behind = queue.next_seq - listing.seen_seq() + listing.news_count()
    return None if behind < _BEHIND_MAX else ListingRefresh(queue, listing, stream_length(queue))


def stream_page(queue: Queue, low: i64, high: i64, count: i64, *, is_reversed: bool) -> list[Job]:
    """Return up to `count` jobs by their entries from `low` to `high`; all if it is negative."""
    if is_straight(queue):
        roster = roster_of(queue)
        high = min(high, ENTRY_MAX - 1)
        return roster.between(low, high, count, _ENTRIES, is_reversed=is_reversed)
    return _stream(queue).between(low, high, count, is_reversed=is_reversed)


def is_straight(queue: Queue) -> bool:
    """Tell whether the entries of a queue stand in the order its jobs came, and few others between.

    So it is with plain jobs; no other order need be made for them then.
    """
    roster = roster_of(queue)
    return roster.is_straight and roster.length() <= 2 * stream_length(queue) + _BETWEEN_MAX


def find_entry(queue: Queue, stamp: i64) -> Job | None:
    """Return the job of an entry."""
    jobs = stream_page(queue, stamp, stamp, 1, is_reversed=False)
    return jobs[0] if jobs else None


def find_pending(queue: Queue, stamps: list[i64]) -> list[Job]:
    """Return the jobs of those of some entries that somebody holds, in the order they are named."""
    found: dict[int, Job] = {}
    if len(queue.leased.items) <= _FEW and not is_straight(queue):
        wanted = {int(stamp) for stamp in stamps}
        for item in queue.leased.items:
            assert isinstance(item, Job)
            stamp = int(entry_stamp(item))
            if stamp in wanted and _ENTRIES.has(item):
                found[stamp] = item
    else:
        for each in stamps:
            job = find_entry(queue, each)
            if job is not None and job.state == LEASED:
                found[int(each)] = job
    return [found[int(stamp)] for stamp in stamps if int(stamp) in found]


def entry_fields(job: Job) -> list[bytes]:
    """Return fields and values of an entry."""
    return [b"jobId", glide_add.id_bytes(job), b"name", bytes_of(job.policy.name)]


def consumer_of(lease: Lease) -> bytes:
    """Return who holds an entry: a consumer by its name, others by that of their door."""
    label = lease.terms.label
    return bytes_of(label or _DOORS.get(int(lease.terms.door), "other"))


def idle_ms(lease: Lease, now_ms: i64) -> i64:
    """Return how long an entry has been with its holder, or nothing was heard of it."""
    return max(now_ms - lease.beat_ms, 0)
