"""A yard of parents and children, put through the engine.

Every job has the name it was planned with and is in the queue of its first letter. `again`
kills the yard and compares what the next boot finds.
"""

from typing import Final, Self

from jobyard.engine.jobs.finish import KEEP_AS_ASKED, complete, fail
from jobyard.engine.jobs.flow_put import Planned, prepared, put_flow
from jobyard.engine.jobs.put import NewJob, intern
from jobyard.engine.jobs.take import take
from jobyard.model.details import JobDetails
from jobyard.model.family import BUNQUEUE
from jobyard.model.job import MSGPACK, Job
from jobyard.model.lease import Proof, Terms
from jobyard.model.policy import CHILD_BLOCKS, Policy
from tests.support.site.site import NOW_MS
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard

TERMS: Final = Terms(BUNQUEUE, Proof.TOKEN, 30_000, "me")


class FlowSite(OpenYard):
    """A yard with flows in it; every job has the name it was planned with."""

    def __init__(
        self,
        storage: MemoryStorage | None = None,
        segment_size: int = 1 << 16,
        now_ms: int = NOW_MS,
    ) -> None:
        super().__init__(storage, now_ms, segment_size=segment_size)
        self.lessee = self.connect().lease_set

    def plan(
        self, name: str, failure: int = CHILD_BLOCKS, flags: int = 0, delay_ms: int = 0
    ) -> Planned:
        """Plan a job in the queue named by the first letter of its name."""
        policy = Policy(0)
        policy.max_attempts = 1
        policy.child_failure = failure
        policy.flags = flags
        new_job = NewJob(BUNQUEUE, MSGPACK, b"\x80")
        new_job.policy = intern(self.yard, policy)
        new_job.delay_ms = delay_ms
        new_job.details = JobDetails()
        new_job.details.custom_id = name
        return Planned(name[0], name, new_job)

    def put_all(self, plan: list[Planned]) -> list[Job]:
        queues = [self.queue(one.queue) for one in plan]
        return put_flow(self.yard, prepared(self.yard, plan), queues, self.now_ms)

    def family(self, *children: Planned, parent: Planned | None = None) -> list[Job]:
        """Put a parent after its children."""
        plan = [*children, parent or self.plan("parent")]
        for each, child in enumerate(children):
            child.parent = len(children)
            plan[-1].depends.append(each)
        return self.put_all(plan)

    def chain(self, count: int, failure: int = CHILD_BLOCKS) -> list[Job]:
        """Put jobs each of which is the parent of the previous one."""
        plan = [self.plan(f"q{n}", failure) for n in range(count)]
        for n in range(count - 1):
            plan[n].parent = n + 1
            plan[n + 1].depends.append(n)
        return self.put_all(plan)

    def begin(self, job: Job) -> None:
        """Take a job, which must be the next of its queue."""
        lease = take(self.yard, [job.queue], self.lessee, TERMS, self.now_ms)
        assert lease is not None
        assert lease.job is job

    def done(self, job: Job, result: bytes = b"\x01", keep: int = KEEP_AS_ASKED) -> None:
        self.begin(job)
        complete(self.yard, job, result, MSGPACK, keep, self.now_ms)

    def failed(self, job: Job, error: str = "boom") -> None:
        self.begin(job)
        fail(self.yard, job, error, self.now_ms)

    def next_boot(self, storage: MemoryStorage, now_ms: int) -> Self:
        return type(self)(storage, int(self.journal.segment_size), now_ms)

    def find(self, name: str) -> Job:
        job = self.yard.names.custom.get(name)
        assert job is not None
        return job


def states(parent: Job) -> list[int]:
    return [int(member.state) for member in parent.ensure_details().members or ()]


def values(parent: Job) -> list[bytes]:
    return [member.value for member in parent.ensure_details().members or ()]
