"""A yard with one queue that is a topic, and short methods for its verbs."""

from typing import Self

from jobyard.engine.topics import topic_queue
from jobyard.engine.topics.push_stream import OpenStreamWorker, PushStream
from jobyard.engine.topics.removal import NO_SEQ, Removal
from jobyard.engine.topics.topic_queue import Ended, NewRecord, Produced
from jobyard.model.job import Job
from jobyard.model.lease import Lease
from jobyard.model.queue import Queue
from jobyard.model.topic.config import TopicConfig, read_config
from tests.support.site.site import BUDGET, NOW_MS
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard


def config(**given: object) -> TopicConfig:
    """Return the configuration of a queue."""
    return read_config({"type": "queue", **given})


def record(
    data: bytes = b"{}", tag: str = "", *, delay_ms: int = 0, priority: int = 0
) -> NewRecord:
    """Return a job to write."""
    one = NewRecord(data, tag=tag)
    one.delay_ms = delay_ms
    one.priority = priority
    return one


class Inbox(OpenStreamWorker):
    """A worker that keeps the jobs it receives."""

    def __init__(self) -> None:
        self.leases: list[Lease] = []
        self.is_over = False

    def job_given(self, lease: Lease) -> None:
        self.leases.append(lease)

    def queue_gone(self) -> None:
        self.is_over = True

    def seqs(self) -> list[int]:
        """Return the seqs received since the last call."""
        found = [int(lease.job.key) for lease in self.leases]
        self.leases.clear()
        return found


class Topic(OpenYard):
    """A yard in which the queue `t` is configured."""

    def __init__(
        self,
        storage: MemoryStorage | None = None,
        now_ms: int = NOW_MS,
        *,
        given: TopicConfig | None = None,
        segment_size: int = 1 << 16,
        ids_ahead: bool = False,
        budget: int = BUDGET,
        window: tuple[int, int] = (0, 0),
    ) -> None:
        super().__init__(
            storage,
            now_ms,
            segment_size=segment_size,
            budget=budget,
            ids_ahead=ids_ahead,
            window=window,
        )
        if "t" not in self.yard.queues:
            topic_queue.open_topic_queue(self.yard, "t", given or config(), now_ms)

    @property
    def t(self) -> Queue:
        """Return the queue."""
        return self.yard.queues["t"]

    def write(self, *bodies: bytes, key: str = "") -> Produced:
        """Write jobs."""
        return self.produce(*(record(body) for body in bodies), key=key)

    def produce(self, *records: NewRecord, key: str = "") -> Produced:
        """Write jobs."""
        return topic_queue.produce(self.yard, self.t, list(records), key, self.now_ms)

    def claim(self, node: str = "w", most: int = 1, lease_ms: int = 30_000) -> list[Lease]:
        """Claim jobs."""
        lease_set = topic_queue.node_leases(self.yard, node)
        return topic_queue.claim(self.yard, self.t, node, most, lease_ms, lease_set, self.now_ms)

    def claimed(self, node: str = "w", most: int = 1, lease_ms: int = 30_000) -> list[int]:
        """Claim jobs and return their seqs."""
        return [int(lease.job.key) for lease in self.claim(node, most, lease_ms)]

    def ack(self, *seqs: int, node: str = "w", ids: list[str] | None = None) -> Ended:
        """Finish jobs."""
        return topic_queue.ack(self.yard, self.t, node, list(seqs), ids, self.now_ms)

    def nack(
        self, *seqs: int, node: str = "w", ids: list[str] | None = None, delay_ms: int = 0
    ) -> Ended:
        """Give jobs back."""
        return topic_queue.nack(self.yard, self.t, node, list(seqs), ids, delay_ms, self.now_ms)

    def extend(
        self, *seqs: int, node: str = "w", ids: list[str] | None = None, lease_ms: int = 30_000
    ) -> Ended:
        """Renew leases."""
        return topic_queue.extend(self.yard, self.t, node, list(seqs), ids, lease_ms, self.now_ms)

    def remove(self, before_seq: int = NO_SEQ, tag: str | None = None) -> int:
        """Delete jobs; a tag that ends in a star is a prefix."""
        removal = self.removal(before_seq, tag)
        assert removal.step(1 << 40, self.now_ms) < 1 << 40
        return int(removal.count)

    def removal(self, before_seq: int = NO_SEQ, tag: str | None = None) -> Removal:
        """Return the task that deletes jobs."""
        return Removal(
            self.yard,
            self.t,
            before_seq,
            (tag or "").removesuffix("*"),
            is_prefix=(tag or "").endswith("*"),
            has_match=tag is not None,
        )

    def stream(self, node: str = "w", most: int = 1) -> tuple[PushStream, Inbox]:
        """Open a stream."""
        inbox = Inbox()
        stream = PushStream(self.yard, self.t, node, most, 0, inbox)
        stream.open(self.now_ms)
        return stream, inbox

    def peek(self, from_seq: int = 0, limit: int = 1000) -> list[Job]:
        """Return the jobs past a seq."""
        return topic_queue.peek(self.yard, self.t, from_seq, limit)

    def seqs(self) -> list[int]:
        """Return the seqs of all jobs."""
        return [int(job.key) for job in self.peek()]

    def counts(self) -> tuple[int, int, int, int]:
        """Return how many jobs are ready, in flight, delayed, and in total."""
        found = topic_queue.counts(self.t)
        return found.ready, found.in_flight, found.delayed, found.count

    def next_boot(self, storage: MemoryStorage, now_ms: int) -> Self:
        return type(self)(storage, now_ms, segment_size=int(self.journal.segment_size))
