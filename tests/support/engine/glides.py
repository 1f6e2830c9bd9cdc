"""A yard with jobs of glide-mq, as a worker of that door sees it, without a socket."""

from jobyard.engine.glidemq.add import GlideJobSpec, add, entry_of, id_of, state_of
from jobyard.engine.glidemq.finish import Keep, complete, fail
from jobyard.engine.glidemq.move import promote_due
from jobyard.engine.glidemq.take import take_list, take_stream
from jobyard.model.job import Job
from jobyard.model.lease import Lease, Proof
from tests.support.site.recount import recount
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard

KEPT = Keep()


class GlideYard:
    """One queue of a yard, across restarts."""

    def __init__(self, storage: MemoryStorage | None = None) -> None:
        self.site = OpenYard(MemoryStorage() if storage is None else storage)

    @property
    def now_ms(self) -> int:
        return self.site.now_ms

    def spec(self, name: str = "mail", data: bytes = b"1", **fields: object) -> GlideJobSpec:
        spec = GlideJobSpec(name, data)
        for field, value in fields.items():
            assert hasattr(spec, field), field
            setattr(spec, field, value)
        return spec

    def add(self, name: str = "mail", data: bytes = b"1", **fields: object) -> Job:
        return add(self.site.yard, self.site.queue(), self.spec(name, data, **fields), self.now_ms)

    def take(self, count: int = 99, consumer: str = "w1") -> list[Lease]:
        leases = take_stream(self.site.yard, self.site.queue(), consumer, count, self.now_ms)
        recount(self.site.yard)
        return leases

    def taken(self, count: int = 99) -> list[str]:
        return [id_of(lease.job) for lease in self.take(count)]

    def pop(self, ready_list: int, count: int = 99) -> list[str]:
        leases = take_list(self.site.yard, self.site.queue(), ready_list, count, self.now_ms)
        recount(self.site.yard)
        return [id_of(lease.job) for lease in leases]

    def complete(self, job: Job, value: bytes = b"null", keep: Keep = KEPT) -> None:
        entry = (
            "" if job.lease is not None and job.lease.terms.proof == Proof.LISTED else entry_of(job)
        )
        complete(self.site.yard, job, entry, value, keep, self.now_ms)
        recount(self.site.yard)

    def fail(self, job: Job, most: int = 0, backoff_ms: int = 0, keep: Keep = KEPT) -> str:
        entry = (
            "" if job.lease is not None and job.lease.terms.proof == Proof.LISTED else entry_of(job)
        )
        yard = self.site.yard
        said = fail(yard, job, entry, "boom", most, backoff_ms, keep, self.now_ms)
        recount(yard)
        return said

    def promote(self, most: int = 1000) -> int:
        count = promote_due(self.site.yard, self.site.queue(), self.now_ms, most)
        recount(self.site.yard)
        return int(count)

    def tick(self, ms: int = 0) -> None:
        self.site.jump(ms)
        recount(self.site.yard)

    def states(self) -> dict[str, str]:
        return {id_of(job): state_of(job) for job in self.site.yard.jobs.all()}

    def restart(self) -> None:
        """Kill the server and restart it; everything a client can see must be unchanged."""
        self.site = self.site.again()

    def compact(self) -> None:
        """Compact everything."""
        self.site.commit()
        self.site.compact()
        recount(self.site.yard)
