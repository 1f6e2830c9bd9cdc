"""Where the body of a job is: in memory while the budget lasts, otherwise only on disk.

A body put beyond the budget stays in memory until its batch is written and is then freed; it is
read back, and its checksum verified, when a client takes or peeks at the job. The newest bodies go
first, because they are taken last. Without a journal there is no disk to fall back on, and a put
beyond the budget is refused. Results of jobs are handled the same way; they are read back from the
records of the jobs' ends. What a parent stores of its children stays in memory and counts towards
the budget.
"""

from typing import Final, final
from zlib import crc32

from mypy_extensions import i64

from jobyard.journal.format.segment import segment_name
from jobyard.journal.journal import Journal
from jobyard.model.details import JobDetails, Outcome
from jobyard.model.job import DONE, GONE, Job
from jobyard.model.limits import RESULT_DEFAULT

# Values of this size are stored with a parent even when there is no room left for longer ones.
SMALL_VALUE_SIZE: Final = 64
# What is kept of the error of a run if there is no memory for all of it.
ERROR_SIZE_SHORT: Final = 200


@final
class Bodies:
    """The budget for bodies in memory, and access to those on disk."""

    def __init__(self, journal: Journal, budget: i64) -> None:
        self._journal = journal
        self._budget: i64 = budget
        self.in_memory: i64 = 0
        # How much of it is text that is never on disk.
        self.pinned: i64 = 0
        self._cooling: list[Job] = []
        self._resting: list[Job] = []
        self._cooling_results: list[Job] = []
        self.result_size_max: i64 = RESULT_DEFAULT

    def admits(self, size: i64) -> bool:
        """Return whether a body of `size` may be put."""
        return self._journal.is_on or self.in_memory + size <= self._budget

    def admits_pinned(self, size: i64) -> bool:
        """Return whether `size` bytes more text that must stay in memory may be added.

        Such text displaces bodies and other text to the disk, but may not exceed the budget itself.
        """
        return self.pinned + size <= self._budget

    def promise(self, size: i64, pinned: i64) -> None:
        """Keep memory for what follows in the same turn, or with negative sizes no longer."""
        self.in_memory += size
        self.pinned += pinned

    def admits_value(self, size: i64) -> bool:
        """Return whether a job may store `size` bytes of a child's result, or of an error."""
        return size <= SMALL_VALUE_SIZE or self.admits_pinned(size)

    def kept_error(self, error: str) -> str:
        """Return what a job may keep of an error, which stays in memory."""
        return error if self.admits_value(len(error)) else error[:ERROR_SIZE_SHORT]

    def count_values(self, details: JobDetails) -> None:
        """Count what a job stores of its members, and the last error of a worker."""
        size: i64 = len(details.last_error)
        if details.members is not None:
            size += details.member_index().values_size
        more = size - details.values_counted
        details.values_counted = size
        self.pinned += more
        self.in_memory += more

    def drop_values(self, details: JobDetails) -> None:
        """Stop counting what `count_values` counts."""
        self.pinned -= details.values_counted
        self.in_memory -= details.values_counted
        details.values_counted = 0

    def keep(self, job: Job) -> None:
        """Count the body of a new job."""
        self.in_memory += i64(job.size)
        if self.in_memory > self._budget:
            self._cooling.append(job)

    def has_budget(self, size: i64) -> bool:
        """Return whether recovery should keep a body that it has just read in memory."""
        return self.in_memory + size <= self._budget

    def fits(self, size: i64) -> bool:
        """Return whether `size` bytes may be in memory."""
        return size <= self._budget

    def drop(self, job: Job) -> None:
        """Free the body of a removed job."""
        if job.body is not None:
            self.in_memory -= i64(job.size)
            job.body = None
        elif self._journal.damages.jobs:
            self._journal.damages.forget_body(job.id)

    def rest(self, job: Job) -> None:
        """Free the body of a job that is done as soon as it can be read back."""
        if self._journal.is_on and job.body is not None:
            self._resting.append(job)

    def wake(self, job: Job) -> None:
        """Keep the body of a job that is no longer done, if it is still in memory."""
        if job in self._resting:
            self._resting.remove(job)

    def renew(self, job: Job, body: bytes) -> None:
        """Set a new body for a job whose old one was freed before."""
        self.in_memory += len(body)
        job.body = body
        if self.in_memory > self._budget and self._journal.is_on:
            self._cooling.append(job)

    # -- results ------------------------------------------------------------------------------

    def hold_result(self, job: Job) -> None:
        """Count the result of a job; the newest END record holds it."""
        outcome = job.outcome()
        size = outcome.result_size
        if size > 0:
            journal = self._journal
            outcome.result_place = (journal.hot.number << 32) | (journal.record_end - size)
            self._count_result(job, outcome)

    def _count_result(self, job: Job, outcome: Outcome) -> None:
        size = outcome.result_size
        self.in_memory += size
        outcome.result_counted = size
        if self.in_memory > self._budget and self._journal.is_on:
            self._cooling_results.append(job)

    def recall_result(self, job: Job) -> None:
        """Keep a result that recovery has just read if there is room, otherwise only its place."""
        outcome = job.outcome()
        size = outcome.result_size
        if self.has_budget(size):
            self.in_memory += size
            outcome.result_counted = size
        else:
            outcome.result_crc = crc32(outcome.result)
            outcome.result = b""

    def drop_result(self, outcome: Outcome) -> None:
        """Stop counting the result of a job that is removed or runs again."""
        self.in_memory -= outcome.result_counted
        outcome.result_counted = 0

    def fetch_result(self, job: Job) -> bytes | None:
        """Return the result of a job that is done; None if it is damaged on disk."""
        outcome = job.outcome()
        if outcome.result_size == len(outcome.result):
            return outcome.result
        return self._journal.read_result(job, outcome)

    def _cool_results(self) -> None:
        written = self._journal.written
        if self._journal.warmed:
            warmed = self._journal.warmed
            self._journal.warmed = []
            for job in warmed:
                if job.state == DONE and job.outcome().result_counted == 0:
                    self._count_result(job, job.outcome())
        if not self._cooling_results:
            return
        still: list[Job] = []
        for job in self._cooling_results:
            if job.batch > written:
                still.append(job)
            elif job.state == DONE and self.in_memory > self._budget:
                outcome = job.outcome()
                if outcome.result:
                    outcome.result_crc = crc32(outcome.result)
                    outcome.result = b""
                    self.drop_result(outcome)
        self._cooling_results = still

    def cool(self) -> None:
        """Free bodies beyond the budget, and those of jobs that are done, once they are written."""
        self._cool_results()
        written = self._journal.written
        if self._resting:
            waiting: list[Job] = []
            for job in self._resting:
                if job.batch > written:
                    waiting.append(job)
                elif job.state == DONE:
                    self._free_body(job)
            self._resting = waiting
        if not self._cooling:
            return
        still: list[Job] = []
        for job in self._cooling:
            if job.batch > written:
                still.append(job)
            elif job.state != GONE and self.in_memory > self._budget:
                self._free_body(job)
        self._cooling = still

    def _free_body(self, job: Job) -> None:
        body = job.body
        if body is not None:
            job.crc = crc32(body)
            self.drop(job)

    def fetch(self, job: Job) -> bytes | None:
        """Return the body of a job, or None if it is damaged on disk.

        The damage is registered with the journal and logged; the caller reports it to its client.
        """
        body = job.body
        if body is not None:
            return body
        size = i64(job.size)
        body = self._read(job)
        if len(body) == size and crc32(body) == job.crc:
            return body
        self._journal.damages.note_body(job.id, place_text(job))
        return None

    def _read(self, job: Job) -> bytes:
        return self._journal.read(job.place >> 32, job.place & 0xFFFFFFFF, i64(job.size))

    def salvage(self, job: Job) -> bytes | None:
        """Return the bytes of a damaged body as the disk has them, padded to its size.

        Copied together with the original checksum, they are still recognized as damaged. None if
        the disk cannot read them now: a later read may succeed.
        """
        if not self._journal.is_readable(job.place >> 32, job.place & 0xFFFFFFFF, i64(job.size)):
            return None
        return self._read(job).ljust(int(job.size), b"\0")


def place_text(job: Job) -> str:
    """Return the file and offset of a job's body, for messages to operators."""
    return f"{segment_name(job.place >> 32)} at offset {job.place & 0xFFFFFFFF}"
