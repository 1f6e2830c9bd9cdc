"""A yard over a storage in memory, with the clock in the test's hand.

`OpenYard` is what a server is without sockets: journal, engine, door, compactor. `snapshot` says
what a client could know of it, so that two yards can be compared; `recount` holds every counter and
every index against the jobs themselves.
"""

from typing import Final

from jobyard.engine.compaction import IDLE, Compactor
from jobyard.engine.put import put
from jobyard.engine.queues import open_queue
from jobyard.engine.replay import Recovered, open_yard
from jobyard.engine.take import take
from jobyard.engine.tick import tick
from jobyard.engine.yard import Yard
from jobyard.journal.bodies import Bodies
from jobyard.journal.journal import Journal
from jobyard.journal.ledger import queue_bytes
from jobyard.journal.reader import Reader
from jobyard.journal.record import GONE_SIZE, MOVED_SIZE, STATE_SIZE
from jobyard.journal.segment import Segment
from jobyard.journal.storage import Storage
from jobyard.model.heap import Heap
from jobyard.model.job import BEANSTALK, DEAD, DELAYED, LEASED, RAW, READY, Job, Outcome
from jobyard.model.limits import URGENT_RANK
from jobyard.model.queue import Book, Lease, Queue
from jobyard.sessions.beanstalk.door import BeanstalkDoor
from jobyard.sessions.beanstalk.session import BeanstalkSession
from jobyard.sessions.session import Peer
from tests.support.bare import FixedFacts

NOW_MS: Final = 1_700_000_000_000
SEGMENT_SIZE: Final = 1 << 16
BUDGET: Final = 1 << 40
JOB_SIZE_MAX: Final = 1 << 20

# Everything a client could know of one job, and of a yard.
Facts = tuple[object, ...]
Snapshot = dict[object, Facts]


class Ears(Peer):
    """A peer that counts how often it was stirred."""

    def __init__(self) -> None:
        self.stirs = 0

    def stirred(self) -> None:
        self.stirs += 1


class Client:
    """One beanstalk connection without a socket."""

    def __init__(self, site: "OpenYard") -> None:
        self._site = site
        self.ears = Ears()
        self.session = BeanstalkSession(site.door, self.ears)
        self.book: Book = self.session._book

    def say(self, data: bytes) -> bytes:
        """Send bytes; return what is answered at once."""
        self.session.receive(data, self._site.now_ms)
        return self.hear()

    def hear(self) -> bytes:
        """Return what was answered since."""
        return self.session.take_output()

    def leave(self) -> None:
        """Close the connection."""
        self.session.closed(self._site.now_ms)


class OpenYard:
    """Journal, engine and door of one boot."""

    def __init__(
        self,
        storage: Storage | None = None,
        now_ms: int = NOW_MS,
        *,
        segment_size: int = SEGMENT_SIZE,
        budget: int = BUDGET,
        ids_ahead: bool = False,
        job_size_max: int = JOB_SIZE_MAX,
    ) -> None:
        self.now_ms = now_ms
        self.storage = storage
        self.journal = Journal(storage, segment_size, ids_ahead=ids_ahead)
        self.bodies = Bodies(self.journal, budget)
        self.yard = Yard(self.journal, self.bodies)
        self.recovered: Recovered | None = None
        if storage is not None:
            self.recovered = open_yard(self.yard, storage, now_ms)
        superseded = self.recovered.superseded if self.recovered is not None else []
        self.compactor = Compactor(self.yard, superseded)
        self.door = BeanstalkDoor(self.yard, FixedFacts(), job_size_max, now_ms)

    def connect(self) -> Client:
        """Open a connection."""
        return Client(self)

    def queue(self, name: str = "default") -> Queue:
        """Return a queue."""
        return open_queue(self.yard, name)

    def put(
        self,
        body: bytes = b"body",
        queue: str = "default",
        rank: int = 0,
        delay_ms: int = 0,
        ttr_ms: int = 60_000,
    ) -> Job:
        """Put a job."""
        target = self.queue(queue)
        return put(self.yard, target, BEANSTALK, RAW, rank, delay_ms, ttr_ms, body, self.now_ms)

    def take(self, book: Book, *queues: str) -> Lease:
        """Lease the best job of some queues, which must have one."""
        found = [self.queue(name) for name in queues or ("default",)]
        lease = take(self.yard, found, book, self.now_ms)
        assert lease is not None
        return lease

    def tick(self, ms: int = 0) -> int:
        """Move the clock and fire what is due."""
        self.now_ms += ms
        return tick(self.yard, self.now_ms)

    def commit(self) -> None:
        """Write and sync what was appended, as the committer does."""
        self.journal.commit()
        self.bodies.cool()

    def compact(self, most: int = 10_000) -> int:
        """Run the compactor, with a commit after every step, until it finds nothing to do."""
        for steps in range(most):
            was_idle = self.compactor.phase == IDLE
            more = self.compactor.step()
            self.commit()
            if was_idle and not more:
                return steps
        return most


def boot(storage: Storage, *bodies: bytes) -> OpenYard:
    """Open a yard and put some jobs, one batch each."""
    site = OpenYard(storage)
    for body in bodies:
        site.put(body)
        site.commit()
    return site


def batches(storage: Storage, segment: Segment) -> list[tuple[int, int, int]]:
    """Return (number, offset, size) of every batch of a segment."""
    reader = Reader(storage, segment)
    found: list[tuple[int, int, int]] = []
    while True:
        offset = int(reader.offset)
        head = reader.next()
        if head is None:
            return found
        found.append((int(head.number), offset, int(head.total_size())))


def snapshot(yard: Yard) -> Snapshot:
    """Return what clients could know, as it will be after a restart: nothing is leased."""
    found: Snapshot = {}
    for job in yard.jobs.all():
        found[int(job.id)] = _facts(yard, job)
    for name, queue in yard.queues.items():
        if queue.dead.live_count > 0:
            found[f"buried {name}"] = tuple(buried(queue))
    return found


def _facts(yard: Yard, job: Job) -> Facts:
    state = READY if job.state == LEASED else int(job.state)
    tally: Facts = (0, 0, 0, 0)
    if job.extra is not None:
        counts = job.extra.tally
        tally = (counts.timeouts, counts.releases, counts.buries, counts.kicks)
    return (
        job.queue.name,
        state,
        int(job.rank),
        int(job.key),
        int(job.stamp),
        int(job.created_ms),
        int(job.due_ms) if state == DELAYED else 0,
        int(job.delay_ms),
        int(job.own_ms),
        yard.bodies.fetch(job),
        int(job.deliveries),
        tally,
    )


def buried(queue: Queue) -> list[int]:
    """Return the ids of a queue's dead jobs, oldest burial first."""
    return [int(outcome.job.id) for outcome in queue.dead.live() if isinstance(outcome, Outcome)]


def recount(yard: Yard) -> None:
    """Hold every index and counter of a yard against its jobs."""
    jobs = yard.jobs.all()
    assert yard.jobs.count == len(jobs)
    by_state = {READY: 0, DELAYED: 0, LEASED: 0, DEAD: 0}
    for job in jobs:
        by_state[int(job.state)] += 1
        assert yard.jobs.get(job.id) is job
        assert yard.queues[job.queue.name] is job.queue
        assert (job.lease is not None) == (job.state == LEASED)
    assert yard.ready_count == by_state[READY]
    assert yard.delayed_count == by_state[DELAYED]
    assert yard.leased_count == by_state[LEASED]
    assert yard.dead_count == by_state[DEAD]
    urgent = [job for job in jobs if job.state == READY and job.rank < URGENT_RANK]
    assert yard.urgent_count == len(urgent)
    _recount_bodies(yard, jobs)
    for name, queue in yard.queues.items():
        assert queue.name == name
        _recount_queue(queue, [job for job in jobs if job.queue is queue])
    _check_heap(yard.timers)
    if yard.journal.is_on:
        recount_live_bytes(yard)


def _recount_bodies(yard: Yard, jobs: list[Job]) -> None:
    in_memory = sum(int(job.size) for job in jobs if job.body is not None)
    assert yard.bodies.in_memory == in_memory


def _recount_queue(queue: Queue, jobs: list[Job]) -> None:
    ready = [job for job in jobs if job.state == READY]
    delayed = [job for job in jobs if job.state == DELAYED]
    leased = [job for job in jobs if job.state == LEASED]
    dead = [job for job in jobs if job.state == DEAD]
    assert _ids(queue.ready) == sorted(int(job.id) for job in ready)
    assert _ids(queue.delayed) == sorted(int(job.id) for job in delayed)
    assert all(job.sort_key == job.rank for job in ready)
    assert all(job.sort_key == job.due_ms for job in delayed)
    assert queue.leased_count == len(leased)
    assert queue.urgent_count == sum(job.rank < URGENT_RANK for job in ready)
    assert sorted(buried(queue)) == sorted(int(job.id) for job in dead)
    assert queue.dead.live_count == len(dead)
    assert queue.jobs_count() == len(jobs)
    _check_heap(queue.ready)
    _check_heap(queue.delayed)
    if delayed:
        assert queue.pos >= 0, "a delay without a timer never ends"
        assert queue.sort_key <= queue.delayed.items[0].sort_key
    for job in leased:
        lease = job.lease
        assert lease is not None
        book = lease.book
        assert lease in book.leases.items
        assert book.pos >= 0, "a lease without a timer never ends"
        assert book.sort_key <= book.soonest_ms()
        _check_heap(book.leases)
    waiting = 0
    link = queue.first_link
    while link is not None:
        waiting += 1
        assert link.queue is queue
        assert link in link.waiter.links
        link = link.after
    assert queue.waiting_count == waiting


def _ids(heap: Heap) -> list[int]:
    return sorted(int(item.id) for item in heap.items if isinstance(item, Job))


def _check_heap(heap: Heap) -> None:
    for slot, item in enumerate(heap.items):
        assert item.pos == slot
        above = heap.items[(slot - 1) // 2] if slot else item
        assert (above.sort_key, above.stamp) <= (item.sort_key, item.stamp)


def live_bytes(yard: Yard) -> dict[int, int]:
    """Return what compaction would have to save of each segment, counted from the jobs."""
    journal = yard.journal
    live = {int(number): 0 for number in journal.segments}
    for job in yard.jobs.all():
        live[int(job.place >> 32)] += MOVED_SIZE + int(job.size)
        if job.trail != 0:
            live[int(job.trail)] += STATE_SIZE
    for queue in yard.queues.values():
        if queue.segment != 0:
            live[int(queue.segment)] += int(queue_bytes(queue))
    for number, segment in journal.segments.items():
        assert set(segment.kills) <= set(journal.segments), "a kill outlived the base it kills"
        assert all(kill % GONE_SIZE == 0 for kill in segment.kills.values())
        live[int(number)] += sum(segment.kills.values())
    return live


def recount_live_bytes(yard: Yard) -> None:
    """Hold the live bytes of every segment against the jobs."""
    journal = yard.journal
    counted = {int(number): int(segment.live) for number, segment in journal.segments.items()}
    assert counted == live_bytes(yard)
    assert journal.ledger.jobs_count == yard.jobs.count
