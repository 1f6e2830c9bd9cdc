"""A lease on a job, the leases of one holder, and the engine's view of holders.

A lease begins when a job is taken and ends with the run. Its terms define how long it lasts and how
a caller proves that it holds the lease.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr, trait

from jobyard.model.family import FAMILY_NAMES
from jobyard.model.index.heap import Heap
from jobyard.model.index.item import Item
from jobyard.model.limits import NEVER_MS, WORKER_NAME_MAX

if TYPE_CHECKING:
    from jobyard.model.job import Job
    from jobyard.model.waiter import Waiter


@final
@mypyc_attr(acyclic=True)
class WorkerName:
    """Who runs jobs, as history shows it, and where the journal wrote that name last."""

    def __init__(self, name: str) -> None:
        self.name: bytes = name.encode(errors="replace")[:WORKER_NAME_MAX]
        # The segment that has it, compared by identity, and the offset in its file.
        self.home: object = None
        self.at: i64 = 0


@final
@mypyc_attr(acyclic=True)
class Lease(Item):
    """One delivery of one job. `key` is its number in this boot, `sort_key` its deadline."""

    def __init__(
        self,
        number: i64,
        job: Job,
        lease_set: LeaseSet,
        now_ms: i64,
        ttl_ms: i64,
        terms: Terms,
        body: bytes,
    ) -> None:
        super().__init__(number, now_ms + ttl_ms, number)
        self.worker: WorkerName = worker_of(lease_set, terms)
        # The numbers of the lease and of its first holder in all rows of history about the run.
        # The lease may go to another holder, and after a restart a durable one has a new number.
        self.row_number: i64 = number
        self.row_holder: i64 = lease_set.key
        self.terms: Terms = terms
        self.job: Job = job
        self.lease_set: LeaseSet = lease_set
        # The state the job was in when it was taken, which a crash would restore.
        self.taken_from: i64 = i64(job.state)
        # The body as delivered; the job itself may keep it on disk only.
        self.body: bytes = body
        self.started_ms: i64 = now_ms
        self.ttl_ms: i64 = ttl_ms
        # Until when the holder has it for sure; `sort_key` is earlier if the run has a timeout.
        self.until_ms: i64 = now_ms + ttl_ms
        self.beat_ms: i64 = now_ms
        # Whether the holder has renewed it.
        self.is_renewed: bool = False


@final
class Proof:
    """How the caller proves that it holds a lease."""

    CONNECTION: Final = 0  # the connection that took the job
    DOOR: Final = 1  # nothing: any client of the same protocol may end the run
    TOKEN: Final = 2  # a token that was sent with the job
    ENTRY: Final = 3  # the id of the stream entry
    LISTED: Final = 4  # the job's id: the job came from a list and has no entry
    NODE: Final = 5  # the name under which the job was claimed


@final
class Terms:
    """The terms on which a door takes jobs: one object for many leases."""

    def __init__(self, door: i64, proof: i64, ttl_ms: i64, label: str) -> None:
        self.door: i64 = door
        self.proof: i64 = proof
        # 0: the job defines it.
        self.ttl_ms: i64 = ttl_ms
        self.label: str = label
        # None: without a label, the connection tells who takes a job.
        self.worker: WorkerName | None = WorkerName(label) if label else None
        # Whether the lease survives a restart of the server.
        self.is_durable: bool = False

    def is_entry(self) -> bool:
        """Return whether the job was taken from a stream or one of the other ready lists."""
        return self.proof in (Proof.ENTRY, Proof.LISTED)

    def is_node(self, node: str) -> bool:
        """Return whether the job was claimed under this name of a node."""
        return self.proof == Proof.NODE and self.label == node


@final
class LeaseSet(Item):
    """The leases of one holder, soonest deadline first.

    As a timer the lease set may fire early, never late: a lease that ends leaves the timer
    unchanged, and an early firing looks for the next deadline. One firing per lease duration is
    cheaper than two heap moves per lease.
    """

    def __init__(self, number: i64, holder: Holder) -> None:
        super().__init__(number, NEVER_MS, number)
        self.holder: Holder = holder
        self.leases = Heap()
        # Made when the first job is taken on terms without a label.
        self.worker: WorkerName | None = None
        # Whether the holder is notified when one of them ends for any reason.
        self.is_watched: bool = False

    def soonest_ms(self) -> i64:
        """Return the first deadline, or NEVER_MS."""
        leases = self.leases.items
        return leases[0].sort_key if leases else NEVER_MS


def worker_of(lease_set: LeaseSet, terms: Terms) -> WorkerName:
    """Return who takes a job: the label of the terms, else the door and the client's address."""
    if terms.worker is not None:
        return terms.worker
    worker = lease_set.worker
    if worker is None:
        address = lease_set.holder.client_address()
        door = FAMILY_NAMES[terms.door]
        worker = WorkerName(f"{door}:{address}" if address else door)
        lease_set.worker = worker
    return worker


@mypyc_attr(allow_interpreted_subclasses=True)
@trait
class Holder:
    """The engine's view of a session: it can be given a job, or notified that none came."""

    def client_address(self) -> str:
        """Return the address of the client, or an empty string if there is none."""
        return ""

    def given(self, waiter: Waiter, lease: Lease) -> None:
        """Receive the job that this holder waited for."""

    def sighted(self, waiter: Waiter, now_ms: i64) -> None:
        """Handle that a job exists but was not taken: the waiter is notify-only."""

    def waited_enough(self, waiter: Waiter, *, is_deadline_soon: bool) -> None:
        """Stop waiting: the time is over, or a lease of this holder is about to end."""

    def lease_ended(self, lease: Lease, now_ms: i64) -> None:
        """Handle the end of a lease of a watched lease set; the holder may take the next job."""


@mypyc_attr(allow_interpreted_subclasses=True)
class OpenHolder(Holder):
    """A holder that need not be compiled: an interpreted class cannot have a compiled trait."""


@final
class NoHolder(Holder):
    """Placeholder in a lease set whose holder is gone; it has no leases and no waiters."""


NOBODY: Final = NoHolder()
