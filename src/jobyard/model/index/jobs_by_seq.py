"""The jobs of one queue by seq, for listing and paging.

Made when the queue is first listed, or when it has become long, and kept from then on; short queues
that are never listed pay nothing. The jobs are in chunks, so that a change of one job touches only
its chunk: a job that is gone stays as a dead entry until its chunk has many of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from jobyard.model.index.sorted_view import Stretch
from jobyard.model.job import DONE, GONE, Job

if TYPE_CHECKING:
    from jobyard.model.index.sorted_view import SortedView, SortedViews


def weight_of(job: Job) -> i64:
    """Return the size of a job as its writer sees it: data and meta."""
    details = job.details
    if details is None or details.record_meta is None:
        return i64(job.size)
    return i64(job.size) + len(details.record_meta.meta)


def _stamp_of(job: Job) -> i64:
    """Return the stamp of a job without the sign that marks LIFO jobs."""
    return job.stamp if job.stamp >= 0 else -job.stamp


# Jobs in a chunk, and how many of them may be gone before the chunk is swept.
CHUNK: Final = 512
GONE_MAX: Final = 128


@final
class SeqChunk:
    """Some jobs by rising seq, some of them gone."""

    def __init__(self, first_seq: i64) -> None:
        # No job of an earlier chunk has this seq or a greater one.
        self.first_seq: i64 = first_seq
        self.jobs: list[Job] = []
        self.gone_count: i64 = 0

    def place(self, seq: i64) -> i64:
        """Return the index of the first job whose seq is at least `seq`."""
        jobs = self.jobs
        low: i64 = 0
        high: i64 = len(jobs)
        while low < high:
            middle: i64 = (low + high) >> 1
            if jobs[middle].key < seq:
                low = middle + 1
            else:
                high = middle
        return low


@final
class JobsBySeq:
    """Jobs by rising seq, some of them gone."""

    def __init__(self, jobs: list[Job]) -> None:
        self._chunks: list[SeqChunk] = [SeqChunk(0)]
        self._living_count: i64 = 0
        # Since the sorted views last dropped jobs that are gone.
        self._gone_count: i64 = 0
        # Before this are only jobs that are gone, or were done when they were passed.
        self._head_chunk: i64 = 0
        self._head: i64 = 0
        # Its jobs in other orders, once one was requested.
        self.listings: SortedViews | None = None
        # Whether stamps rise with seqs: they do until a job moves.
        self.is_straight: bool = True
        self._last_stamp: i64 = -1
        # Whether a job may wait for a signal; False once none was found.
        self.may_wait_for_signals: bool = True
        # The weight of all jobs that are not done.
        self.bytes: i64 = 0
        for job in jobs:
            stamp = _stamp_of(job)
            if stamp <= self._last_stamp:
                self.is_straight = False
            self._last_stamp = stamp
            self._append(job)
            if job.state not in (DONE, GONE):
                self.bytes += weight_of(job)

    def _append(self, job: Job) -> None:
        chunk = self._chunks[len(self._chunks) - 1]
        if len(chunk.jobs) >= CHUNK:
            chunk = SeqChunk(job.key)
            self._chunks.append(chunk)
        chunk.jobs.append(job)
        self._living_count += 1

    def add(self, job: Job) -> None:
        """Add the newest job."""
        self._append(job)
        self.bytes += weight_of(job)

    def note_gone(self, job: Job) -> None:
        """Count one entry as dead."""
        self.bytes -= weight_of(job)
        self._living_count -= 1
        self._gone_count += 1
        at = self._chunk_of(job.key)
        chunk = self._chunks[at]
        chunk.gone_count += 1
        if chunk.gone_count == len(chunk.jobs) or chunk.gone_count > GONE_MAX:
            self._sweep(at, chunk)
        if self._gone_count > self._living_count // 4 + 64:
            self._gone_count = 0
            if self.listings is not None:
                self.listings.drop_gone()

    def _sweep(self, at: i64, chunk: SeqChunk) -> None:
        """Remove the jobs of a chunk that are gone."""
        if chunk.gone_count == len(chunk.jobs):
            chunk.jobs.clear()
        else:
            chunk.jobs = [job for job in chunk.jobs if job.state != GONE]
        chunk.gone_count = 0
        if self._head_chunk == at:
            self._head = 0
        if not chunk.jobs and len(self._chunks) > 1:
            del self._chunks[at]
            if self._head_chunk > at:
                self._head_chunk -= 1
            elif self._head_chunk == len(self._chunks):
                # All chunks before it were passed.
                self._head_chunk -= 1
                self._head = len(self._chunks[at - 1].jobs)

    def unload(self) -> i64:
        """Drop some jobs of an index that is no longer needed; return how many, 0 for none left.

        Freeing all of them at once takes 10 ms for a million.
        """
        listings = self.listings
        count: i64 = 0 if listings is None else listings.unload()
        if count == 0 and self._chunks:
            count = 1 + len(self._chunks.pop().jobs)
        return count

    def note_moved(self, job: Job) -> None:
        """Note that a job has moved among the others, or is about to."""
        self.is_straight = False
        if self.listings is not None:
            self.listings.note(job)

    def _chunk_of(self, seq: i64) -> i64:
        """Return the chunk that holds a seq, or would hold it."""
        chunks = self._chunks
        low: i64 = 0
        high: i64 = len(chunks)
        if high == 1 or seq < chunks[1].first_seq:
            return 0
        # The last one that begins no later.
        while high - low > 1:
            middle: i64 = (low + high) >> 1
            if chunks[middle].first_seq <= seq:
                low = middle
            else:
                high = middle
        return low

    def find(self, seq: i64) -> Job | None:
        """Return the job with this seq."""
        chunk = self._chunks[self._chunk_of(seq)]
        at = chunk.place(seq)
        if at == len(chunk.jobs):
            return None
        job = chunk.jobs[at]
        return job if job.key == seq and job.state != GONE else None

    def after(self, seq: i64, limit: i64) -> list[Job]:
        """Return up to `limit` jobs with a greater seq, in order, without done ones."""
        return self._from(seq + 1, limit, with_done=False)

    def walk(self, seq: i64, limit: i64) -> list[Job]:
        """Return up to `limit` jobs with a greater seq, in order, including done ones."""
        return self._from(seq + 1, limit, with_done=True)

    def _from(self, seq: i64, limit: i64, *, with_done: bool) -> list[Job]:
        found: list[Job] = []
        at = self._chunk_of(seq)
        place = self._chunks[at].place(seq)
        while at < len(self._chunks) and len(found) < limit:
            jobs = self._chunks[at].jobs
            count: i64 = len(jobs)
            while place < count and len(found) < limit:
                state = jobs[place].state
                if state != GONE and (with_done or state != DONE):
                    found.append(jobs[place])
                place += 1
            at += 1
            place = 0
        return found

    def back(self, seq: i64, limit: i64) -> list[Job]:
        """Return up to `limit` jobs with a smaller seq, the newest first, including done ones."""
        found: list[Job] = []
        at = self._chunk_of(seq)
        place = self._chunks[at].place(seq) - 1
        while len(found) < limit:
            jobs = self._chunks[at].jobs
            while place >= 0 and len(found) < limit:
                if jobs[place].state != GONE:
                    found.append(jobs[place])
                place -= 1
            at -= 1
            if at < 0:
                break
            place = len(self._chunks[at].jobs) - 1
        return found

    def oldest(self) -> Job | None:
        """Return the oldest job that is not done."""
        while True:
            jobs = self._chunks[self._head_chunk].jobs
            head = self._head
            count: i64 = len(jobs)
            while head < count and jobs[head].state in (DONE, GONE):
                head += 1
            self._head = head
            if head < count:
                return jobs[head]
            if self._head_chunk == len(self._chunks) - 1:
                return None
            self._head_chunk += 1
            self._head = 0

    def length(self) -> i64:
        """Return the number of entries from the oldest job that is not done to the newest."""
        self.oldest()
        length: i64 = -self._head
        for at in range(self._head_chunk, len(self._chunks)):
            length += len(self._chunks[at].jobs)
        return length

    def between(
        self, low: i64, high: i64, count: i64, listing: SortedView, *, is_reversed: bool
    ) -> list[Job]:
        """Return up to `count` jobs of a sorted view with stamps from `low` to `high`.

        Returns all of them if `count` is negative. Stamps must rise with seqs.
        """
        found: list[Job] = []
        self.oldest()
        first_chunk, first = self._stamped(low)
        if (first_chunk, first) < (self._head_chunk, self._head):
            first_chunk = self._head_chunk
            first = self._head
        end_chunk, end = self._stamped(high + 1)
        chunks = self._chunks
        at = end_chunk if is_reversed else first_chunk
        step: i64 = -1 if is_reversed else 1
        while first_chunk <= at <= end_chunk and (count < 0 or len(found) < count):
            jobs = chunks[at].jobs
            start = first if at == first_chunk else 0
            stop: i64 = end if at == end_chunk else len(jobs)
            place = stop - 1 if is_reversed else start
            while start <= place < stop and (count < 0 or len(found) < count):
                if listing.has(jobs[place]):
                    found.append(jobs[place])
                place += step
            at += step
        return found

    def stretch(
        self, place: i64, bound: i64, most: i64, listing: SortedView, *, is_reversed: bool
    ) -> Stretch:
        """Return jobs of a sorted view with stamps from `place` up to `bound`, both included.

        At most `most` entries are read; the next begin beyond `stretch.place`. Stamps must rise
        with seqs.
        """
        found = Stretch(place, 0)
        self.oldest()
        at, seat = self._stamped(place + 1 if is_reversed else place)
        if is_reversed:
            seat -= 1
        elif (at, seat) < (self._head_chunk, self._head):
            at, seat = self._head_chunk, self._head
        step: i64 = -1 if is_reversed else 1
        chunks = self._chunks
        while found.looked < most:
            if not 0 <= seat < len(chunks[at].jobs):
                at += step
                if not self._head_chunk <= at < len(chunks):
                    found.is_last = True
                    break
                seat = len(chunks[at].jobs) - 1 if is_reversed else 0
                continue
            job = chunks[at].jobs[seat]
            stamp = _stamp_of(job)
            if (stamp < bound) if is_reversed else (stamp > bound):
                found.is_last = True
                break
            found.looked += 1
            found.place = stamp
            if listing.has(job):
                found.jobs.append(job)
                found.places.append(int(stamp))
            seat += step
        return found

    def _stamped(self, stamp: i64) -> tuple[i64, i64]:
        """Return the chunk and index of the first job whose stamp is at least `stamp`."""
        chunks = self._chunks
        low: i64 = 0
        high: i64 = len(chunks)
        # The last chunk whose first job has a smaller stamp.
        while high - low > 1:
            middle: i64 = (low + high) >> 1
            if _stamp_of(chunks[middle].jobs[0]) < stamp:
                low = middle
            else:
                high = middle
        jobs = chunks[low].jobs
        at: i64 = 0
        end: i64 = len(jobs)
        while at < end:
            half: i64 = (at + end) >> 1
            if _stamp_of(jobs[half]) < stamp:
                at = half + 1
            else:
                end = half
        return low, at

    def page(
        self, states: frozenset[int], offset: int, limit: int, *, oldest_first: bool
    ) -> list[Job]:
        """Return jobs in any of `states`, skipping `offset` of them."""
        found: list[Job] = []
        chunks = self._chunks
        at: i64 = 0 if oldest_first else len(chunks) - 1
        step: i64 = 1 if oldest_first else -1
        while 0 <= at < len(chunks) and len(found) < limit:
            jobs = chunks[at].jobs
            count: i64 = len(jobs)
            place: i64 = 0 if oldest_first else count - 1
            while 0 <= place < count and len(found) < limit:
                if int(jobs[place].state) in states:
                    if offset > 0:
                        offset -= 1
                    else:
                        found.append(jobs[place])
                place += step
            at += step
        return found
