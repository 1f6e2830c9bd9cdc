"""A queue, those who wait at it, and the leases on what left it.

A queue exists while it holds a job in any state, while somebody uses or watches it, or while it is
pinned; the engine drops it when the last of these goes. Waiters are served first come first served
per queue; one waiter may wait at many queues and is unlinked from all of them when served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i32, i64, mypyc_attr, trait

from jobyard.model.index.append_list import Line
from jobyard.model.index.heap import Heap
from jobyard.model.index.item import Item
from jobyard.model.index.item_set import Bag
from jobyard.model.limits import NEVER_MS

if TYPE_CHECKING:
    from jobyard.model.glidemq.subscriptions import Audience
    from jobyard.model.index.jobs_by_seq import Roster
    from jobyard.model.index.minute_counter import Meters
    from jobyard.model.index.sharded_dict import ShardedDict
    from jobyard.model.job import Job
    from jobyard.model.throttle.settings import Rules
    from jobyard.model.topic.config import TopicConfig
    from jobyard.model.topic.state import Stock


@final
@mypyc_attr(acyclic=True)
class Lease(Item):
    """One hand-over of one job. `key` is its number in this boot, `sort_key` its deadline."""

    def __init__(
        self, number: i64, job: Job, book: Book, now_ms: i64, ttl_ms: i64, terms: Terms, body: bytes
    ) -> None:
        super().__init__(number, now_ms + ttl_ms, number)
        self.terms: Terms = terms
        self.job: Job = job
        self.book: Book = book
        # The state the job was taken out of, which is the one a crash would bring back.
        self.taken_from: i64 = i64(job.state)
        # The body as handed over; the job itself may keep it on disk only.
        self.body: bytes = body
        self.started_ms: i64 = now_ms
        self.ttl_ms: i64 = ttl_ms
        # Until when the holder has it for sure; `sort_key` may be sooner, if the run may not last.
        self.until_ms: i64 = now_ms + ttl_ms
        self.beat_ms: i64 = now_ms
        # Whether its holder was heard of since.
        self.is_renewed: bool = False


# By what a client proves that a lease is its own.
CONNECTION: Final = 0  # the connection that took the job
DOOR: Final = 1  # nothing: any client of the same protocol may end the run
TOKEN: Final = 2  # a token that was told with the job
ENTRY: Final = 3  # the id of the stream entry
LISTED: Final = 4  # that it names the job, which came from a list and has no entry
NODE: Final = 5  # the name under which the job was claimed


@final
class Terms:
    """On what terms a door takes jobs: one object for many leases."""

    def __init__(self, door: i64, proof: i64, ttl_ms: i64, label: str) -> None:
        self.door: i64 = door
        self.proof: i64 = proof
        # 0: the job itself says how long.
        self.ttl_ms: i64 = ttl_ms
        self.label: str = label
        # Whether the lease is to outlive the server.
        self.is_kept: bool = False

    def is_entry(self) -> bool:
        """Tell whether the job was taken from a stream or one of the lists beside it."""
        return self.proof in (ENTRY, LISTED)


@final
class Book(Item):
    """The leases of one holder, soonest deadline first.

    As a timer the book may ring early, never late: a lease that ends leaves the timer as it is, and
    an early ring looks for the next deadline. One ring per lease length is cheaper than two heap
    moves per lease.
    """

    def __init__(self, number: i64, holder: Holder) -> None:
        super().__init__(number, NEVER_MS, number)
        self.holder: Holder = holder
        self.leases = Heap()
        # Whether the holder is told when one of them ends, however it does.
        self.is_watched: bool = False

    def soonest_ms(self) -> i64:
        """Return the first deadline, or NEVER_MS."""
        leases = self.leases.items
        return leases[0].sort_key if leases else NEVER_MS


@mypyc_attr(allow_interpreted_subclasses=True)
@trait
class Holder:
    """What the engine knows of a session: it can be given a job, or told that none came."""

    def given(self, waiter: Waiter, lease: Lease) -> None:
        """Take the job this holder waited for."""

    def sighted(self, waiter: Waiter, now_ms: i64) -> None:
        """Take note that there is a job, which was not taken: the waiter is a scout."""

    def waited_enough(self, waiter: Waiter, *, is_deadline_soon: bool) -> None:
        """Stop waiting: the time is over, or a lease of this holder is about to end."""

    def lease_ended(self, lease: Lease, now_ms: i64) -> None:
        """Take note that a lease of a watched book is over; the holder may take the next job."""


@mypyc_attr(allow_interpreted_subclasses=True)
class OpenHolder(Holder):
    """A holder that need not be compiled: an interpreted class cannot have a compiled trait."""


@final
class Nobody(Holder):
    """Stands in a book whose holder is gone; it has no leases, and nobody waits for any."""


NOBODY: Final = Nobody()


@final
class Link:
    """A waiter's place in the line of one queue."""

    def __init__(self, waiter: Waiter, queue: Queue) -> None:
        self.waiter: Waiter = waiter
        self.queue: Queue = queue
        self.before: Link | None = None
        self.after: Link | None = None


@final
class Waiter(Item):
    """A holder that waits for a job from any of some queues. `sort_key` is its next alarm."""

    def __init__(self, number: i64, book: Book, terms: Terms, until_ms: i64, soon_ms: i64) -> None:
        super().__init__(number, min(until_ms, soon_ms), number)
        self.book: Book = book
        self.terms: Terms = terms
        self.until_ms: i64 = until_ms
        self.soon_ms: i64 = soon_ms
        self.links: list[Link] = []
        # It is told of a job, which goes to whoever comes next.
        self.is_scout: bool = False
        # Jobs on other shelves than the stream are not for it.
        self.is_stream_only: bool = False
        # The book the job goes into: that of who waits, unless leases are to outlive it.
        self.target: Book = book


@final
class Queue(Item):
    """One queue, whatever its doors call it. `sort_key` is its next timer."""

    def __init__(self, name: str) -> None:  # noqa: PLR0915  all that a queue is
        super().__init__(0, NEVER_MS, 0)
        self.name: str = name
        # Number in the journal; 0 until a record first names the queue.
        self.number: i64 = 0
        # Segment that holds the record of its name.
        self.segment: i32 = 0
        # Its jobs with lesser ids are gone for all who look, and are freed bit by bit.
        self.gone_before: i64 = 0
        # Of a queue that holds what is to be freed: the jobs up to this id.
        self.frees_before: i64 = 0
        self.next_seq: i64 = 1
        # Up to where seqs are reserved ahead; how much of that is on the disk for certain, and the
        # batch that brings the rest there.
        self.seq_limit: i64 = 1
        self.limit_before: i64 = 1
        self.limit_batch: i64 = 0
        self.endings: i64 = 0
        self.ready = Heap()
        self.delayed = Heap()
        self.dead = Line()
        # Those among them that may go by themselves: not of beanstalk.
        self.perishable_count: i64 = 0
        self.done = Line()
        self.leased = Bag()
        # The place in line of the job that was taken last.
        self.taken_stamp: i64 = 0
        self.blocked = Bag()
        # What holds its jobs back beyond a timed pause; None for nearly all queues.
        self.rules: Rules | None = None
        # Who reads all its jobs without taking any; None for nearly all queues.
        self.audience: Audience | None = None
        # Jobs by seq, made by the first listing and kept from then on; None before.
        self.roster: Roster | None = None
        # The jobs that keep others with the same key out; None until the first such job.
        self.keys: ShardedDict[str, Job] | None = None
        # Seqs that no job gets: they are ids that clients of glide-mq chose. None where there are
        # none of these.
        self.chosen: ShardedDict[int, Job] | None = None
        # The alarm of its jobs at rest; None until the first of them that does not stay for ever.
        self.sweep: Item | None = None
        # Its configuration as a topic; None where nobody configured it.
        self.config: TopicConfig | None = None
        # Whether what is done to its jobs is answered only once it is on the disk, by any server.
        self.is_synced: bool = False
        # What is counted of it as a topic; None until somebody uses it as one.
        self.stock: Stock | None = None
        # Shared with whatever queue has this name later.
        self.meters: Meters | None = None
        self.urgent_count: i64 = 0
        # Ready jobs with a priority.
        self.ahead_count: i64 = 0
        # Ready jobs that stand in the line of their group or lane, or on another shelf.
        self.held_count: i64 = 0
        self.users_count: i64 = 0
        self.watchers_count: i64 = 0
        self.is_pinned: bool = False
        # Whether its seqs are ids that clients keep: they go on, though the last job is gone.
        self.is_counted: bool = False
        self.first_link: Link | None = None
        self.last_link: Link | None = None
        self.waiting_count: i64 = 0
        # Those in its line are being served over turns, since there are many.
        self.is_serving: bool = False
        self.pause_until_ms: i64 = 0
        self.pause_ms: i64 = 0
        # Since the queue was made; they die with it, as beanstalkd's do.
        self.total_count: i64 = 0
        self.finished_count: i64 = 0
        self.pauses_count: i64 = 0

    def told_seq(self) -> i64:
        """Return what a restart must take for the next seq, so that none is given twice."""
        return max(self.next_seq, self.seq_limit)

    def jobs_count(self) -> i64:
        """Return the number of jobs in any state."""
        standing: i64 = len(self.ready.items) + len(self.delayed.items)
        apart: i64 = len(self.leased.items) + len(self.blocked.items) + self.held_count
        return standing + apart + self.dead.live_count + self.done.live_count

    def has_spare(self) -> bool:
        """Tell whether more jobs are ready than clients stand in line."""
        return len(self.ready.items) + self.held_count > self.waiting_count

    def link(self, waiter: Waiter) -> None:
        """Put a waiter at the end of the line."""
        link = Link(waiter, self)
        last = self.last_link
        if last is None:
            self.first_link = link
        else:
            last.after = link
            link.before = last
        self.last_link = link
        self.waiting_count += 1
        waiter.links.append(link)

    def unlink(self, link: Link) -> None:
        """Take a waiter out of the line, wherever it stands."""
        before = link.before
        after = link.after
        if before is None:
            self.first_link = after
        else:
            before.after = after
        if after is None:
            self.last_link = before
        else:
            after.before = before
        link.before = None
        link.after = None
        self.waiting_count -= 1
