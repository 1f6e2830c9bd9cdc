"""Runs that the end of the last boot cut off, and the rows of history that close them.

A lease ends with its boot, without a record. A replay notes each run whose claim is a row of
history, until a record ends it. What is left, except durable leases, which go on, gets one END with
the cause ABANDONED before any client is served. That record only tells readers of history: replay
takes it for the end of the run and changes nothing of the job.

If the disk is full, or a crash comes before the rows are on disk, the next start writes them.
"""

from typing import Final, final

from librt.strings import read_i32_le, read_i64_le
from mypy_extensions import i64, mypyc_attr

from jobyard.engine.state.yard import Yard
from jobyard.errors import StorageFull
from jobyard.journal.format.record import END_ROOM, HOLDER_BITS, LEASE_SIZE
from jobyard.journal.history.reader import worker_bytes
from jobyard.journal.journal import Journal
from jobyard.model.job import Job
from jobyard.model.lease import NOBODY, Lease, LeaseSet, Proof, Terms, WorkerName

# Rows in one batch: half a megabyte at most, and memory for no more than that.
ROWS_PER_BATCH: Final = 2048
# The most that a row takes, but for long custom ids.
ROW_ROOM: Final = END_ROOM + 64


@final
@mypyc_attr(acyclic=True)
class OpenRun:
    """A run as the record of its claim tells it, in times of this boot."""

    def __init__(self, data: bytes, pos: i64, record: i64, offset_ms: i64) -> None:
        holder = read_i64_le(data, pos + 40)
        self.record: i64 = record
        self.door: i64 = data[pos + 1]
        self.number: i64 = read_i64_le(data, pos + 16)
        self.started_ms: i64 = read_i64_le(data, pos + 24) + offset_ms
        self.ttl_ms: i64 = read_i64_le(data, pos + 32)
        self.holder: i64 = holder & HOLDER_BITS
        # Where its segment has the name of the worker; 0 if it is unknown.
        self.worker_at: i64 = 0
        if i64(read_i32_le(data, pos + 4)) >= LEASE_SIZE:
            self.worker_at = i64(read_i32_le(data, pos + 60)) & HOLDER_BITS
        self.segment: i64 = 0
        self.epoch: i64 = 0


@final
class OpenRuns:
    """The runs that are open at one point of a replay, by job."""

    def __init__(self, journal: Journal) -> None:
        self.is_on: bool = journal.history.is_on
        self._journal = journal
        self._runs: dict[int, OpenRun] = {}
        self._epoch: i64 = 0
        # The time of the last record of each boot that left runs open.
        self._ends: dict[int, int] = {}
        self._names: dict[tuple[int, int], bytes] = {}

    def enter(self, epoch: i64) -> None:
        """Begin the next batch of a boot."""
        if epoch != self._epoch:
            if self._runs:
                self._ends[int(self._epoch)] = int(self._journal.newest_event_ms)
            self._epoch = epoch

    def begin(self, job_id: i64, run: OpenRun, segment: i64) -> None:
        """Note a run; an earlier one of the job, whose end was not written, is forgotten."""
        run.segment = segment
        run.epoch = self._epoch
        self._runs.pop(int(job_id), None)
        self._runs[int(job_id)] = run

    def end(self, job_id: i64) -> None:
        """Note that the run of a job ended, if it had one."""
        self._runs.pop(int(job_id), None)

    def abandon(self, yard: Yard, floor: i64) -> None:
        """Append and commit a row for each run that was left open, in the order of the claims.

        Runs from before record `floor` are left out: their claims cannot be read, and the
        records of their ends may be lost.
        """
        journal = self._journal
        self.enter(journal.epoch)
        left: list[tuple[Job, OpenRun]] = []
        for job_id, run in self._runs.items():
            job = yard.jobs.get(job_id)
            # None: removed with its queue, by a record that follows. With a lease: resumed.
            if job is not None and job.lease is None and run.record >= floor:
                left.append((job, run))
        self._runs.clear()
        if left and _has_room(journal, len(left) * ROW_ROOM, yard.now_ms):
            try:
                self._append(left)
            except StorageFull:
                # The disk has less room than it reported; the rest waits for the next start.
                journal.is_short = True
            journal.commit()

    def _append(self, left: list[tuple[Job, OpenRun]]) -> None:
        for count, (job, run) in enumerate(left, start=1):
            at_ms = max(i64(self._ends[int(run.epoch)]), run.started_ms)
            self._journal.append_abandoned(job, self._lease_of(job, run), at_ms)
            if count % ROWS_PER_BATCH == 0:
                self._journal.commit()

    def _lease_of(self, job: Job, run: OpenRun) -> Lease:
        lease_set = LeaseSet(run.holder, NOBODY)
        terms = Terms(run.door, Proof.DOOR, run.ttl_ms, "")
        terms.worker = WorkerName("")
        terms.worker.name = self._name_at(run.segment, run.worker_at)
        return Lease(run.number, job, lease_set, run.started_ms, run.ttl_ms, terms, b"")

    def _name_at(self, segment: i64, offset: i64) -> bytes:
        place = (int(segment), int(offset))
        known = self._names.get(place)
        if known is None:
            found = self._journal.segments.get(segment)
            known = b""
            if offset != 0 and found is not None:
                known = worker_bytes(self._journal, found, offset)
            self._names[place] = known
        return known


def _has_room(journal: Journal, size: i64, now_ms: i64) -> bool:
    """Create files for rows; False if that would leave less than is reserved for changes of jobs.

    What the first put finds decides whether the disk counts as full, not this.
    """
    if journal.admit_parts(size, now_ms):
        return True
    journal.is_full = journal.is_short = False
    return False
