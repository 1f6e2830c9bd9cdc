"""A queue, its waiters, and the leases on jobs that left it.

A queue exists while it holds a job in any state, while a client uses or watches it, or while it is
pinned; the engine drops it when the last of these goes. Waiters are served first come first served
per queue; one waiter may wait at many queues and is unlinked from all of them when served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i32, i64

from jobyard.model.index.append_list import AppendList
from jobyard.model.index.heap import Heap
from jobyard.model.index.item import Item
from jobyard.model.index.item_set import ItemSet
from jobyard.model.limits import NEVER_MS
from jobyard.model.topic.config import BARRED
from jobyard.model.waiter import Waiter, WaiterLink

if TYPE_CHECKING:
    from jobyard.model.glidemq.subscriptions import Subscriptions
    from jobyard.model.index.jobs_by_seq import JobsBySeq
    from jobyard.model.index.minute_counter import MinuteCounters
    from jobyard.model.index.sharded_dict import ShardedDict
    from jobyard.model.job import Job
    from jobyard.model.throttle.settings import Rules
    from jobyard.model.topic.config import TopicConfig
    from jobyard.model.topic.state import TopicState


@final
class Queue(Item):
    """One queue, whatever its protocols call it. `sort_key` is its next timer."""

    def __init__(self, name: str) -> None:  # noqa: PLR0915  all fields of a queue
        super().__init__(0, NEVER_MS, 0)
        self.name: str = name
        # Number in the journal; 0 until a record first names the queue.
        self.number: i64 = 0
        # Segment that holds the record of its name.
        self.segment: i32 = 0
        # Jobs with smaller ids are gone for every reader, and are freed over turns.
        self.gone_before: i64 = 0
        # Of a queue that holds jobs to free: the jobs below this id.
        self.frees_before: i64 = 0
        self.next_seq: i64 = 1
        # Up to where seqs are reserved ahead; how much of that is certainly on disk, and the batch
        # that writes the rest.
        self.seq_limit: i64 = 1
        self.durable_limit: i64 = 1
        self.limit_batch: i64 = 0
        self.endings: i64 = 0
        self.ready = Heap()
        self.delayed = Heap()
        self.dead = AppendList()
        # Dead jobs that are trimmed or expire automatically (`DEAD_PERISH`).
        self.perishable_count: i64 = 0
        self.done = AppendList()
        self.leased = ItemSet()
        # The stamp of the job that was taken last.
        self.taken_stamp: i64 = 0
        self.blocked = ItemSet()
        # Limits on taking its jobs other than a timed pause; None for nearly all queues.
        self.rules: Rules | None = None
        # Readers of all its jobs that take none; None for nearly all queues.
        self.subscriptions: Subscriptions | None = None
        # Jobs by seq, made by the first ordered read and kept from then on.
        self.jobs_by_seq: JobsBySeq | None = None
        # The jobs whose key keeps duplicates out; None until the first such job.
        self.keys: ShardedDict[str, Job] | None = None
        # Seqs that no job gets because glide-mq clients chose them as ids; None without such ids.
        self.chosen: ShardedDict[int, Job] | None = None
        # The alarm for its ended jobs; None until the first of them that is not kept forever.
        self.sweep: Item | None = None
        # Its configuration as a topic; None if it has none.
        self.config: TopicConfig | None = None
        # Whether replies about its jobs always wait for the disk, on any server.
        self.is_synced: bool = False
        # Its counters as a topic; None until it is used as one.
        self.topic_state: TopicState | None = None
        # Shared with any later queue of this name.
        self.minute_counters: MinuteCounters | None = None
        self.urgent_count: i64 = 0
        # Ready jobs with a priority.
        self.ahead_count: i64 = 0
        # Ready jobs that wait in their group or ordering group, or are in another ready list.
        self.held_count: i64 = 0
        self.users_count: i64 = 0
        self.watchers_count: i64 = 0
        self.is_pinned: bool = False
        # Whether clients keep its seqs as ids: they continue after the last job is gone.
        self.is_counted: bool = False
        self.first_link: WaiterLink | None = None
        self.last_link: WaiterLink | None = None
        self.waiting_count: i64 = 0
        # Whether its waiters are being served over several turns, because there are many.
        self.is_serving: bool = False
        self.pause_until_ms: i64 = 0
        self.pause_ms: i64 = 0
        # Since the queue was made; dropped with it, as in beanstalkd.
        self.total_count: i64 = 0
        self.finished_count: i64 = 0
        self.pauses_count: i64 = 0

    def restart_seq(self) -> i64:
        """Return the next seq for a restart to continue from, so that none is given twice."""
        return max(self.next_seq, self.seq_limit)

    def jobs_count(self) -> i64:
        """Return the number of jobs in any state."""
        standing: i64 = len(self.ready.items) + len(self.delayed.items)
        apart: i64 = len(self.leased.items) + len(self.blocked.items) + self.held_count
        return standing + apart + self.dead.live_count + self.done.live_count

    def has_spare(self) -> bool:
        """Return whether there are more ready jobs than waiting clients."""
        return len(self.ready.items) + self.held_count > self.waiting_count

    def link(self, waiter: Waiter) -> None:
        """Add a waiter at the end of the queue of waiters."""
        link = WaiterLink(waiter, self)
        last = self.last_link
        if last is None:
            self.first_link = link
        else:
            last.after = link
            link.before = last
        self.last_link = link
        self.waiting_count += 1
        waiter.links.append(link)

    def unlink(self, link: WaiterLink) -> None:
        """Remove a waiter from the queue of waiters, wherever it is."""
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


def is_topic(queue: Queue) -> bool:
    """Return whether a queue is visible as a topic: created as one, or ever used for a job.

    A queue that clients of another door only watch is not a topic.
    """
    config = queue.config
    return (config is not None and config is not BARRED) or queue.next_seq > 1
