"""One boot of a yard without a socket: its disk, its clock, its turns, and its next boot.

`Site` is a server without sockets: journal, engine, compactor, and the sessions that were woken.
Every bare door stands on one, so that time, turns and restarts are the same at all of them. What
is asked at a door is the business of the site's subclasses and their clients.
"""

from collections import deque
from typing import TYPE_CHECKING, Final, Self

from jobyard.engine.jobs.put import NewJob, enter, intern, make_job, make_room, put, room_for
from jobyard.engine.jobs.queues import open_queue
from jobyard.engine.jobs.take import offer, take, take_job
from jobyard.engine.jobs.tick import tick
from jobyard.engine.recovery.compaction import IDLE, Compactor
from jobyard.engine.recovery.open_yard import Recovered, open_yard
from jobyard.engine.state.yard import Yard
from jobyard.journal.bodies import Bodies
from jobyard.journal.journal import Journal
from jobyard.journal.storage import Storage
from jobyard.model.details import JobDetails
from jobyard.model.family import BEANSTALK, BUNQUEUE
from jobyard.model.job import MSGPACK, RAW, Job
from jobyard.model.lease import Lease, LeaseSet, Proof, Terms
from jobyard.model.policy import PLAIN, Policy
from jobyard.model.queue import Queue
from jobyard.protocols.beanstalk.door import TERMS, BeanstalkDoor
from tests.support.clients.beanstalk import BeanstalkClient
from tests.support.site.facts import BeanstalkMachine
from tests.support.site.recount import recount
from tests.support.site.snapshot import snapshot
from tests.support.site.storage import MemoryStorage

if TYPE_CHECKING:
    from tests.support.site.connection import Resumable

NOW_MS: Final = 1_700_000_000_000
SEGMENT_SIZE: Final = 1 << 16
BUDGET: Final = 1 << 40
JOB_SIZE_MAX: Final = 1 << 20
TOKEN_TERMS: Final = Terms(BUNQUEUE, Proof.TOKEN, 3000, "worker")

# A history window that nothing leaves.
ALL_HISTORY = (86_400_000, 1 << 40)

# Of all sites since the last `forget_sites`.
_yards: Final[list[Yard]] = []
_NOWHERE: Final = Queue("")


def forget_sites() -> None:
    """Cut what would keep the sites of a test in memory.

    The collector does not track compiled jobs and leases (decision 14), so a yard with one job may
    stay as long as the process, with its disk.
    """
    for yard in _yards:
        for job in yard.jobs.all():
            lease = job.lease
            if lease is not None:
                lease.lease_set.leases.items.clear()
                lease.body = b""
            job.lease = None
            job.body = None
            job.details = None
            job.queue = _NOWHERE
    _yards.clear()


class Site:
    """Journal, engine and clock of one boot, and its beanstalk door."""

    def __init__(
        self,
        storage: Storage | None = None,
        now_ms: int = NOW_MS,
        *,
        segment_size: int = SEGMENT_SIZE,
        budget: int = BUDGET,
        ids_ahead: bool = False,
        job_size_max: int = JOB_SIZE_MAX,
        window: tuple[int, int] = (0, 0),
    ) -> None:
        self.now_ms = now_ms
        self.storage = storage
        self.journal = Journal(storage, segment_size, ids_ahead=ids_ahead)
        # Of history: age in ms, and bytes.
        self.journal.history.keep(*window)
        self.bodies = Bodies(self.journal, budget)
        self.yard = Yard(self.journal, self.bodies)
        _yards.append(self.yard)
        self.recovered: Recovered | None = None
        if storage is not None:
            self.recovered = open_yard(self.yard, storage, now_ms)
        superseded = self.recovered.superseded if self.recovered is not None else []
        self.compactor = Compactor(self.yard, superseded)
        self.beanstalk_door = BeanstalkDoor(self.yard, BeanstalkMachine(), job_size_max, now_ms)
        self.woken: deque[Resumable] = deque()
        # Long work continues only by `slice`.
        self.is_slow = False
        self._worker: BeanstalkClient | None = None

    def beanstalk(self) -> BeanstalkClient:
        """Open a connection to the beanstalk door."""
        return BeanstalkClient(self, self.beanstalk_door)

    # -- time and turns ------------------------------------------------------------------------

    def settle(self) -> None:
        """Resume woken sessions until none is left, and run long work to its end."""
        is_left = True
        while is_left:
            is_left = not self.is_slow and bool(self.yard.tasks.proceed(self.now_ms))
            while self.woken:
                self.woken.popleft().resume()

    def slice(self) -> bool:
        """End a turn, with one slice of long work; return whether work is left."""
        self.yard.tasks.proceed(self.now_ms)
        self.settle()
        return self.yard.tasks.count() > 0

    def jump(self, ms: int = 0) -> int:
        """Move the clock at once, and fire the timers that are due by then."""
        self.now_ms += ms
        return tick(self.yard, self.now_ms)

    def tick(self, ms: int = 0) -> None:
        """Move the clock up to `ms` later, from timer to timer: each fires at its exact time."""
        until_ms = self.now_ms + ms
        while True:
            due_ms = int(tick(self.yard, self.now_ms))
            self.settle()
            if self.now_ms >= until_ms and due_ms > until_ms:
                return
            # A timer already due is work the tick left for its next turn.
            self.now_ms = max(self.now_ms, min(due_ms, until_ms))

    # -- the disk ------------------------------------------------------------------------------

    def commit(self) -> None:
        """Write and sync what was appended, as the committer does."""
        self.journal.commit()
        self.bodies.cool()

    def compact(self, most: int = 10_000) -> int:
        """Run the compactor, with a commit after every step, until nothing is left to do."""
        for steps in range(most):
            was_idle = self.compactor.phase == IDLE
            more = self.compactor.step()
            self.commit()
            if was_idle and not more:
                return steps
        return most

    @property
    def memory(self) -> MemoryStorage:
        """Return the disk, which must be one in memory."""
        assert isinstance(self.storage, MemoryStorage)
        return self.storage

    # -- checks and the next boot --------------------------------------------------------------

    def check(self) -> None:
        """Check every index and counter against the jobs."""
        recount(self.yard)

    def next_boot(self, storage: MemoryStorage, now_ms: int) -> Self:
        """Return a boot of the same kind on what is left of a disk."""
        return type(self)(storage, now_ms)

    def reboot(self, ms: int = 0) -> Self:
        """Return the next boot `ms` later, on the disk after everything was written."""
        self.commit()
        return self.next_boot(self.memory.killed(), self.now_ms + ms)

    def after_a_crash(self, ms: int = 0) -> Self:
        """Cut the power, and start again `ms` later on what the disk holds; check both boots."""
        self.check()
        self.commit()
        after = self.next_boot(self.memory.cut_off(), self.now_ms + ms)
        after.check()
        return after

    def again(self) -> Self:
        """Return the next boot after a kill, in which clients must see what they saw before."""
        after = self.reboot()
        assert snapshot(after.yard) == snapshot(self.yard)
        self.check()
        after.check()
        return after

    # -- the verbs of the engine ---------------------------------------------------------------

    @property
    def lease_set(self) -> LeaseSet:
        """Return the lease set of the bunqueue holder, whose connection opens on first use."""
        if self._worker is None:
            self._worker = self.beanstalk()
        return self._worker.lease_set

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

    def enter(
        self,
        body: bytes = b"body",
        queue: str = "default",
        *,
        rank: int = 0,
        delay_ms: int = 0,
        policy: Policy = PLAIN,
        details: JobDetails | None = None,
    ) -> Job:
        """Put a job of the bunqueue family, and serve waiting clients."""
        target = self.queue(queue)
        new_job = NewJob(BUNQUEUE, MSGPACK, body)
        new_job.rank, new_job.delay_ms, new_job.own_ms = rank, delay_ms, self.now_ms
        new_job.policy = policy if policy is PLAIN else intern(self.yard, policy)
        new_job.details = details
        make_room(self.yard, room_for(target, new_job), self.now_ms)
        job = enter(self.yard, make_job(target, new_job), self.now_ms)
        offer(self.yard, target, self.now_ms)
        return job

    def pull(self, *queues: str) -> Lease | None:
        """Lease the best job of some queues at the bunqueue door, if one is available."""
        found = [self.queue(name) for name in queues or ("default",)]
        return take(self.yard, found, self.lease_set, TOKEN_TERMS, self.now_ms)

    def run(self, job: Job) -> Job:
        """Lease one given job at the bunqueue door."""
        take_job(self.yard, job.id, self.lease_set, TOKEN_TERMS, self.now_ms)
        return job

    def take(self, lease_set: LeaseSet, *queues: str) -> Lease:
        """Lease the best job of some queues, which must exist."""
        found = [self.queue(name) for name in queues or ("default",)]
        lease = take(self.yard, found, lease_set, TERMS, self.now_ms)
        assert lease is not None
        return lease
