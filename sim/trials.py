"""Trials on a copy of the disk: what a full disk keeps, and how each door reports damage.

The runs themselves keep a model of every answer, which would become as large as the yard if the
disk could fill or rot at any moment. So these two are tried after starts, on a copy that is
discarded afterwards: jobs are put, the disk is filled or a bit of it flipped, and the guarantees
are checked.
"""

from random import Random
from typing import Final

from jobyard.engine.jobs.durable_leases import durable_lease_of
from jobyard.engine.jobs.finish import KEEP_AS_ASKED, complete
from jobyard.engine.jobs.move import remove
from jobyard.engine.jobs.put import NewJob, enter, make_job, make_room, put, room_for
from jobyard.engine.jobs.queues import open_queue
from jobyard.engine.jobs.take import take
from jobyard.engine.recovery.compaction import Compactor
from jobyard.engine.recovery.open_yard import open_yard
from jobyard.engine.state.yard import Yard
from jobyard.engine.topics.topic_queue import NewRecord, claim, node_leases, produce
from jobyard.engine.topics.topic_setup import open_topic_queue
from jobyard.errors import BodyDamaged, StorageFull, YardFull
from jobyard.journal.bodies import Bodies
from jobyard.journal.journal import Journal
from jobyard.model.details import FailureReason
from jobyard.model.family import BEANSTALK, BUNQUEUE
from jobyard.model.job import DONE, MSGPACK, RAW, Job
from jobyard.model.lease import Lease, Proof, Terms
from jobyard.model.queue import Queue
from jobyard.model.topic.config import QUEUE, TopicConfig
from jobyard.protocols.beanstalk.door import TERMS, BeanstalkDoor
from jobyard.protocols.beanstalk.session import BeanstalkSession
from jobyard.protocols.bunqueue.door import BunqueueDoor
from jobyard.protocols.bunqueue.job_fields import job_value
from jobyard.protocols.glidemq.keyspace.views.job import data_of
from jobyard.protocols.session import Peer
from jobyard.wire.msgpack.forms import decode
from jobyard.wire.msgpack.write import encode
from sim.boot import FixedFacts
from sim.bunqueue.boot import Stillness
from sim.state import Violation
from sim.storage import UNLIMITED, VirtualDisk
from sim.workload import Swarm

NAME: Final = "trial"
JOBS: Final = 6
PUTS_MAX: Final = 400
# Segments that may be added while others are compacted.
SEGMENTS_MAX: Final = 14
# Larger segments would take too long to fill.
CHURNED_MAX: Final = 8192
_BUN_TERMS: Final = Terms(BUNQUEUE, Proof.TOKEN, 60_000, "trial")


class Trial:
    """A yard over a private copy of a disk."""

    def __init__(self, disk: VirtualDisk, swarm: Swarm, now_ms: int, rng: Random) -> None:
        self.disk = disk
        self._swarm = swarm
        self._now_ms = now_ms
        self._rng = rng
        self.yard = self._open()

    def _open(self) -> Yard:
        journal = Journal(self.disk, self._swarm.segment_size, ids_ahead=self._swarm.is_os)
        journal.history.keep(0, 0)
        yard = Yard(journal, Bodies(journal, 0))
        open_yard(yard, self.disk, self._now_ms)
        return yard

    def _commit(self) -> None:
        self.yard.journal.commit()
        self.yard.bodies.cool()

    def _put(self, queue: Queue, body: bytes) -> Job:
        new_job = NewJob(BUNQUEUE, MSGPACK, encode(body.decode()))
        new_job.own_ms = self._now_ms
        make_room(self.yard, room_for(queue, new_job), self._now_ms)
        return enter(self.yard, make_job(queue, new_job), self._now_ms)

    def _put_plain(self, queue: Queue, size: int) -> Job:
        body = b"x" * size
        return put(self.yard, queue, BEANSTALK, RAW, 1, 0, 60_000, body, self._now_ms)

    # -- a full disk -----------------------------------------------------------------------------

    def fill(self) -> str:
        """Fill the disk, end and claim jobs; return the result as text."""
        queue = open_queue(self.yard, NAME)
        jobs = [self._put(queue, b"data") for _ in range(JOBS)]
        lease_set = node_leases(self.yard, "worker")
        for _ in jobs:
            take(self.yard, [queue], lease_set, _BUN_TERMS, self._now_ms)
        topic = self._topic()
        self._commit()
        self.disk.budget = self.disk.usage() + int(self._rng.random() * 9000)
        for _ in range(PUTS_MAX):
            try:
                self._put_plain(open_queue(self.yard, "fill"), 3000)
            except YardFull:
                break
            self._commit()
        results = [self._complete(job) for job in jobs]
        leases = self._claim(topic)
        self._commit()
        self.disk.budget = UNLIMITED
        self._compare(jobs, results, leases)
        return "results lost on a full disk" if None in results else "results kept on a full disk"

    def _topic(self) -> Queue:
        config = TopicConfig()
        config.type = QUEUE
        config.leases_durable = True
        topic = open_topic_queue(self.yard, "trial-claims", config, self._now_ms)
        produce(self.yard, topic, [NewRecord(b"1") for _ in range(JOBS)], "", self._now_ms)
        return topic

    def _complete(self, job: Job) -> bytes | None:
        """End a job; return its result, None if it is reported lost, or the job itself."""
        journal = self.yard.journal
        sizes = (10, 500, int(journal.segment_size) // 3)
        result = encode("r" * self._rng.choice(sizes))
        lost = int(journal.results_lost + journal.done_lost)
        complete(self.yard, job, result, MSGPACK, KEEP_AS_ASKED, self._now_ms)
        self._commit()
        is_whole = job.state == DONE and self.yard.bodies.fetch_result(job) == result
        if is_whole:
            return result
        is_told = int(journal.results_lost + journal.done_lost) == lost + 1
        if job.state == DONE and job.outcome().reason != FailureReason.RESULT_LOST:
            is_told = False
        if not is_told:
            raise Violation("full disk", f"job {job.id} is done and not kept, without a report")
        return None

    def _claim(self, topic: Queue) -> list[Lease]:
        lease_set = node_leases(self.yard, "node")
        try:
            leases = claim(self.yard, topic, "node", JOBS, 60_000, lease_set, self._now_ms)
        except YardFull:
            return []
        for lease in leases:
            if durable_lease_of(lease.job) is None:
                raise Violation("full disk", "a durable lease was given without a record")
        return leases

    def _compare(self, jobs: list[Job], results: list[bytes | None], leases: list[Lease]) -> None:
        again = self._open()
        for job, result in zip(jobs, results, strict=True):
            found = again.jobs.get(job.id)
            if result is not None and (
                found is None or found.state != DONE or again.bodies.fetch_result(found) != result
            ):
                raise Violation("full disk", f"job {job.id} came back without its result")
        for lease in leases:
            found = again.jobs.get(lease.job.id)
            if found is None or found.lease is None:
                raise Violation("full disk", "a durable lease did not survive")

    # -- damage ----------------------------------------------------------------------------------

    def damage(self) -> str:
        """Flip bits of bodies, request them at every door, and compact next to them."""
        queue = open_queue(self.yard, NAME)
        plain = self._put_plain(queue, 5000)
        other = self._put(queue, b"y" * 5000)
        # Covered by the checksum of its batch, which cannot be read then.
        short = self._put_plain(queue, 500)
        self._commit()
        for job in (plain, other, short):
            name = self.yard.journal.segments[job.place >> 32].name
            self.disk.files[name].view[(job.place & 0xFFFFFFFF) + 20] ^= 4
        self._ask(plain, other)
        if int(self.yard.journal.segment_size) > CHURNED_MAX:
            return "damage told"
        self._churn(queue)
        return "compacted beside damage"

    def _ask(self, plain: Job, other: Job) -> None:
        door = BeanstalkDoor(self.yard, FixedFacts(), 1 << 20, self._now_ms)
        session = BeanstalkSession(door, Peer())
        session.receive(b"peek %d\r\n" % plain.id, self._now_ms)
        if session.take_output() != b"INTERNAL_ERROR\r\n":
            raise Violation("silent damage", "a beanstalk client gets no error")
        bunqueue = BunqueueDoor(self.yard, Stillness(), self._now_ms)
        shown = job_value(bunqueue, other).data
        fields = decode(shown, 0, len(shown))
        assert isinstance(fields, dict)
        if fields.get("data") is not None or fields.get("corrupt") is not True:
            raise Violation("silent damage", "a bunqueue client gets no error")
        try:
            data_of(self.yard, other)
        except BodyDamaged:
            pass
        else:
            raise Violation("silent damage", "a glide-mq client gets no error")
        if self.yard.journal.damages.count() != 2:
            raise Violation("silent damage", "nothing is logged")
        lease_set = node_leases(self.yard, "worker")
        for job in (plain, other):
            lease = take(self.yard, [job.queue], lease_set, TERMS, self._now_ms)
            if lease is not None and lease.job in (plain, other):
                raise Violation("silent damage", f"job {job.id} was delivered")

    def _churn(self, queue: Queue) -> None:
        """Put and remove jobs for many segments: the disk usage must not grow."""
        compactor = Compactor(self.yard, [])
        size = int(self.yard.journal.segment_size)
        before = self.disk.usage()
        for _ in range(3 * SEGMENTS_MAX * size // 1000):
            remove(self.yard, self._put_plain(queue, 1000), self._now_ms)
            self._commit()
            for _ in range(3):
                compactor.step()
        if self.disk.usage() > before + SEGMENTS_MAX * size:
            raise Violation("compaction", "the disk usage grows next to a damaged segment")


def try_all(disk: VirtualDisk, swarm: Swarm, now_ms: int, rng: Random) -> str:
    """Try one of the two on a copy of a disk; return the result as text."""
    is_full = rng.random() < 0.5
    try:
        trial = Trial(disk.clone(), swarm, now_ms, rng)
        return trial.fill() if is_full else trial.damage()
    except StorageFull:
        return "no room for a trial"
