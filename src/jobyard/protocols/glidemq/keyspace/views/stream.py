"""The stream of a queue, computed from its ready and its leased jobs.

An entry is a job that is in the stream or was taken from it. Its id is the stamp of the job, so it
changes when the job returns. The entry of a leased job is pending, whatever door the job was taken
at.

Reading the stream costs as much as is returned. `groups.pending_entries` iterates over held
entries.
"""

from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from jobyard.engine.glidemq import add as glide_add
from jobyard.engine.jobs.listing import jobs_by_seq_of
from jobyard.engine.state.tasks import Task
from jobyard.engine.state.yard import STAMP_SHIFT, abs_stamp
from jobyard.model.family import BEANSTALK, BUNQUEUE, GLIDE, TOPICS
from jobyard.model.index.sorted_view import HIGHEST, LOWEST, SortedView
from jobyard.model.job import LEASED, READY, Job
from jobyard.model.lease import Lease, Proof
from jobyard.model.queue import Queue
from jobyard.model.throttle.ready_lists import ReadyList
from jobyard.protocols.glidemq.keyspace.gather import SortedViewGather, SortedViewRefresh
from jobyard.protocols.glidemq.keyspace.key_parts import bytes_of
from jobyard.protocols.glidemq.keyspace.views.sets import (
    list_active,
    listings_of,
    ready_lists_of,
    renewed,
)
from jobyard.wire.resp.write import write_pair

GROUP: Final = b"workers"
ENTRY_MAX: Final = (1 << 63) - 1
_LOW_MAX: Final = (1 << STAMP_SHIFT) - 1
# The greatest number that an id may have before its dash.
_HIGH_MAX: Final = (1 << (63 - STAMP_SHIFT)) - 1
# Up to this number, leased jobs are searched one by one.
_FEW: Final = 4096
# Up to this number, jobs that a sorted view lacks are added during a read.
_BEHIND_MAX: Final = 2048
# How many jobs without an entry may be among those that have one, on top of as many as those.
_BETWEEN_MAX: Final = 1024

_DOORS: Final[dict[int, str]] = {
    BEANSTALK: "beanstalk",
    BUNQUEUE: "bunqueue",
    GLIDE: "glide-mq",
    TOPICS: "topics",
}


def stream_length(queue: Queue) -> i64:
    """Return the number of entries in the stream."""
    ready: i64 = len(queue.ready.items) + queue.held_count
    ready_lists = ready_lists_of(queue)
    if ready_lists is not None:
        listed: i64 = (
            len(ready_lists.promoted.items) + len(ready_lists.lifo.items) + ready_lists.listed_apart
        )
        ready -= ready_lists.staged_count + listed
    return ready + pending_count(queue)


def pending_count(queue: Queue) -> i64:
    """Return how many entries are held."""
    return len(queue.leased.items) - list_active(queue)


def last_taken(queue: Queue) -> i64:
    """Return the id of the entry taken last, 0 if none was since the server started."""
    return abs_stamp(queue.taken_stamp)


def entry_stamp(job: Job) -> i64:
    """Return the id of a job's entry as one number."""
    return abs_stamp(job.stamp)


def entry_text(stamp: i64) -> bytes:
    """Return the id of an entry as text."""
    return f"{int(stamp >> STAMP_SHIFT)}-{int(stamp & _LOW_MAX)}".encode()


def write_entry_id(out: BytesWriter, job: Job) -> None:
    """Write the id of a job's entry."""
    stamp = abs_stamp(job.stamp)
    write_pair(out, stamp >> STAMP_SHIFT, stamp & _LOW_MAX)


def parse_entry(text: bytes, low: i64) -> int | None:
    """Parse an entry id as one number; `low` replaces a missing second part; None if invalid."""
    head, dash, tail = text.partition(b"-")
    if not _is_count(head) or (dash and not _is_count(tail)):
        return None
    high = min(int(head), _HIGH_MAX)
    rest = min(int(tail), _LOW_MAX) if dash else min(int(low), _LOW_MAX)
    return high << STAMP_SHIFT | rest


def _is_count(text: bytes) -> bool:
    return text.isdigit() and len(text) <= 20


@final
class StreamListing(SortedView):
    """Jobs that have an entry, by its id."""

    def has(self, job: Job) -> bool:
        """Return whether a job has an entry."""
        if job.state == READY:
            return job.ready_list == ReadyList.STREAM
        lease = job.lease
        return job.state == LEASED and lease is not None and lease.terms.proof != Proof.LISTED

    def place_of(self, job: Job) -> i64:
        """Return the id of its entry."""
        return entry_stamp(job)


_ENTRIES: Final = StreamListing()


def _stream(queue: Queue) -> SortedView:
    return renewed(queue, stream_listing(queue), stream_length(queue))


@final
class StreamGather(SortedViewGather):
    """Jobs by their entries from `low` to `high`."""

    def listing(self) -> SortedView:
        """Return the sorted view of the stream."""
        return stream_listing(self._queue)

    def length(self) -> i64:
        """Return the number of entries."""
        return stream_length(self._queue)

    def look(self, most: i64) -> i64:
        """Check jobs by seq while entries are in that order; else use the sorted view."""
        if not is_straight(self._queue):
            return super().look(most)
        step: i64 = -1 if self._is_reversed else 1
        if self._key == (HIGHEST if self._is_reversed else LOWEST):
            # The search starts at this place; later it continues after one, as no two entries share
            # it.
            step = 0
        stretch = jobs_by_seq_of(self._queue).stretch(
            self._place + step,
            self._bound,
            self.span(most),
            _ENTRIES,
            is_reversed=self._is_reversed,
        )
        stretch.key = LOWEST if self._is_reversed else HIGHEST
        return self._take_all(stretch, 0)


def stream_listing(queue: Queue) -> SortedView:
    """Return the sorted view of the stream, which may not be up to date."""
    listings = listings_of(queue)
    if listings.stream is None:
        listings.stream = StreamListing()
    return listings.stream


def stream_upkeep(queue: Queue) -> Task | None:
    """Return a task that sorts the entries of a queue, if it is long."""
    if is_straight(queue):
        return None
    listing = stream_listing(queue)
    behind = queue.next_seq - listing.seen_seq() + listing.moved_count()
    return None if behind < _BEHIND_MAX else SortedViewRefresh(queue, listing, stream_length(queue))


def stream_page(queue: Queue, low: i64, high: i64, count: i64, *, is_reversed: bool) -> list[Job]:
    """Return up to `count` jobs by their entries from `low` to `high`; all if it is negative."""
    if is_straight(queue):
        jobs_by_seq = jobs_by_seq_of(queue)
        high = min(high, ENTRY_MAX - 1)
        return jobs_by_seq.between(low, high, count, _ENTRIES, is_reversed=is_reversed)
    return _stream(queue).between(low, high, count, is_reversed=is_reversed)


def is_straight(queue: Queue) -> bool:
    """Return whether entries are in the order of their jobs, with few other jobs between.

    This is so with plain jobs; they need no sorted view then.
    """
    jobs_by_seq = jobs_by_seq_of(queue)
    return (
        jobs_by_seq.is_straight and jobs_by_seq.length() <= 2 * stream_length(queue) + _BETWEEN_MAX
    )


def find_entry(queue: Queue, stamp: i64) -> Job | None:
    """Return the job of an entry."""
    jobs = stream_page(queue, stamp, stamp, 1, is_reversed=False)
    return jobs[0] if jobs else None


def find_pending(queue: Queue, stamps: list[i64]) -> list[Job]:
    """Return the jobs of those entries that are held, in the order of `stamps`."""
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
    """Return the holder of an entry: the consumer's name, or the name of another door."""
    label = lease.terms.label
    return bytes_of(label or _DOORS.get(int(lease.terms.door), "other"))


def idle_ms(lease: Lease, now_ms: i64) -> i64:
    """Return the time since an entry was taken, or since its last heartbeat."""
    return max(now_ms - lease.beat_ms, 0)
