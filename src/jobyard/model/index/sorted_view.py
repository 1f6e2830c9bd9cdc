"""Jobs of one queue, sorted by a number that each of them has, for reading page by page.

Made by the first read and updated by the next: new jobs are at the end of the jobs by seq, and
moved ones were noted. So a page costs what it holds and what has changed since the last one, and
putting, taking and finishing jobs costs almost nothing here. All of it can be done in slices with
changes in between: entries are found by number and seq, never by index.

Invariant: entries rise by number, then seq; they are in chunks, none of which is empty. An entry
whose job has another number by now, or has left, is skipped; a job that came back has a second
entry.
"""

from array import array
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from jobyard.model.job import GONE, Job

# Approximate entries of a chunk: what has to move when one is inserted.
_CHUNK: Final = 512
# Outdated entries that are tolerated, besides a quarter of the valid ones.
_SLACK: Final = 64
# Moved jobs that may wait for an update, besides as many as there are entries; then start over.
_MOVED_MAX: Final = 1024
# Before and after all entries.
LOWEST: Final = -(1 << 62)
HIGHEST: Final = 1 << 62


@final
class Stretch:
    """Some jobs in order, each with its number, and where to continue after them."""

    def __init__(self, place: i64, key: i64) -> None:
        self.jobs: list[Job] = []
        self.places: list[int] = []
        # The last entry that was read.
        self.place: i64 = place
        self.key: i64 = key
        self.looked: i64 = 0
        self.is_last: bool = False


@final
class _Chunk:
    """Some entries: jobs and their numbers."""

    def __init__(self, jobs: list[Job], places: "array[int]") -> None:
        self.jobs: list[Job] = jobs
        self.places: array[int] = places

    def is_before(self, at: i64, place: i64, key: i64) -> bool:
        """Return whether an entry is before a number and seq."""
        own: i64 = self.places[at]
        return own < place or (own == place and self.jobs[at].key < key)

    def find(self, place: i64, key: i64) -> i64:
        """Return the index of the first entry that is not before a number and seq."""
        low: i64 = 0
        high: i64 = len(self.jobs)
        while low < high:
            middle: i64 = (low + high) >> 1
            if self.is_before(middle, place, key):
                low = middle + 1
            else:
                high = middle
        return low


@mypyc_attr(allow_interpreted_subclasses=True)
class SortedView:
    """Some jobs of a queue by rising number; a subclass defines which, and the number."""

    def __init__(self) -> None:
        self._chunks: list[_Chunk] = []
        self._size: i64 = 0
        # All jobs up to this seq have been read.
        self._seq: i64 = 0
        self._moved: list[Job] = []
        # Whether it was read since entries of jobs that are gone were last dropped.
        self._is_read: bool = False
        # The progress of a sweep; -1 for none.
        self._swept: i64 = -1

    def has(self, job: Job) -> bool:
        """Return whether a job belongs here."""
        raise NotImplementedError

    def place_of(self, job: Job) -> i64:
        """Return the number of a job that belongs here."""
        raise NotImplementedError

    # -- changes of jobs -----------------------------------------------------------------------

    def note(self, job: Job) -> None:
        """Note that a job has moved, or is about to."""
        if job.key > self._seq:
            return
        self._moved.append(job)
        if len(self._moved) > self._size + _MOVED_MAX:
            self.forget()

    def forget(self) -> None:
        """Drop everything; the next read starts over."""
        self._chunks = []
        self._size = 0
        self._seq = 0
        self._moved = []
        self._swept = -1

    def drop_gone(self) -> None:
        """Drop jobs that are gone at the next read; if there was no read, drop everything."""
        if not self._is_read:
            self.forget()
            return
        self._is_read = False
        self._moved = [job for job in self._moved if job.state != GONE]
        self._swept = 0

    def unload(self) -> i64:
        """Drop some entries for good; return how many, 0 for none left."""
        count: i64 = min(len(self._moved), _CHUNK)
        if count > 0:
            del self._moved[-count:]
        elif self._chunks:
            count = len(self._chunks.pop().jobs)
        return count

    def seen_seq(self) -> i64:
        """Return the seq up to which all jobs have been read."""
        return self._seq

    def size(self) -> i64:
        """Return the number of entries, including those of jobs that have left."""
        return self._size

    def moved_count(self) -> i64:
        """Return the number of moved jobs that wait for an update."""
        return len(self._moved)

    # -- updating ------------------------------------------------------------------------------

    def renew(self, newest: list[Job], count: i64) -> None:
        """Apply all changes; `newest` are the jobs beyond `seen_seq`, `count` jobs belong here."""
        self.look_at_changes(HIGHEST)
        self.take_in(newest)
        self.sweep(count, HIGHEST)

    def take_in(self, newest: list[Job]) -> None:
        """Add new jobs; the first must be the next one beyond `seen_seq`."""
        self._is_read = True
        if not newest:
            return
        self._seq = newest[len(newest) - 1].key
        for job in newest:
            if self.has(job):
                self._insert(job)

    def look_at_changes(self, most: i64) -> i64:
        """Insert up to `most` of the moved jobs where they belong; return how many were handled."""
        self._is_read = True
        done: i64 = 0
        while self._moved and done < most:
            job = self._moved.pop()
            if self.has(job):
                self._insert(job)
            done += 1
        return done

    def sweep(self, count: i64, most: i64) -> i64:
        """Remove entries whose jobs have left, if there are many; return how many were checked.

        `count` jobs belong here.
        """
        if self._swept < 0:
            if self._size <= count + count // 4 + _SLACK:
                return 0
            self._swept = 0
        done: i64 = 0
        while self._swept < len(self._chunks) and done < most:
            chunk = self._chunks[self._swept]
            done += len(chunk.jobs)
            if self._compact(chunk):
                self._swept += 1
            else:
                del self._chunks[self._swept]
        if self._swept >= len(self._chunks):
            self._swept = -1
        return done

    def _compact(self, chunk: _Chunk) -> bool:
        """Remove the entries of a chunk whose jobs have left; return False if none remain."""
        jobs: list[Job] = []
        places: array[int] = array("q")
        at: i64 = 0
        count: i64 = len(chunk.jobs)
        while at < count:
            if self._is_there(chunk, at):
                jobs.append(chunk.jobs[at])
                places.append(chunk.places[at])
            at += 1
        self._size -= count - len(jobs)
        chunk.jobs = jobs
        chunk.places = places
        return len(jobs) > 0

    def _is_there(self, chunk: _Chunk, at: i64) -> bool:
        job = chunk.jobs[at]
        return self.has(job) and self.place_of(job) == chunk.places[at]

    def _insert(self, job: Job) -> None:
        """Insert a job where it belongs, unless it is already there."""
        place = self.place_of(job)
        key = job.key
        chunks = self._chunks
        count: i64 = len(chunks)
        if count == 0:
            chunks.append(_Chunk([job], array("q", [int(place)])))
            self._size += 1
            return
        last = chunks[count - 1]
        size: i64 = len(last.jobs)
        if last.is_before(size - 1, place, key):
            if size < _CHUNK:
                last.jobs.append(job)
                last.places.append(int(place))
            else:
                chunks.append(_Chunk([job], array("q", [int(place)])))
            self._size += 1
            return
        number = self._chunk_of(place, key)
        chunk = chunks[number]
        at = chunk.find(place, key)
        if chunk.jobs[at] is job and chunk.places[at] == place:
            return
        chunk.jobs.insert(at, job)
        chunk.places.insert(at, int(place))
        self._size += 1
        if len(chunk.jobs) > 2 * _CHUNK:
            chunks.insert(number + 1, _Chunk(chunk.jobs[_CHUNK:], chunk.places[_CHUNK:]))
            del chunk.jobs[_CHUNK:]
            del chunk.places[_CHUNK:]
            if number < self._swept:
                self._swept += 1

    def _chunk_of(self, place: i64, key: i64) -> i64:
        """Return the first chunk with an entry that is not before a number and seq."""
        chunks = self._chunks
        low: i64 = 0
        high: i64 = len(chunks)
        while low < high:
            middle: i64 = (low + high) >> 1
            chunk = chunks[middle]
            if chunk.is_before(len(chunk.jobs) - 1, place, key):
                low = middle + 1
            else:
                high = middle
        return low

    # -- reading -------------------------------------------------------------------------------

    def stretch(self, place: i64, key: i64, bound: i64, most: i64, *, is_reversed: bool) -> Stretch:
        """Return the jobs after an entry, in either direction, up to a number, inclusive.

        At most about `most` entries are read; `is_last` means that there are no more.
        """
        found = Stretch(place, key)
        chunks = self._chunks
        number, at = self._behind(place, key, is_reversed=is_reversed)
        step: i64 = -1 if is_reversed else 1
        while found.looked < most:
            if 0 <= number < len(chunks) and not 0 <= at < len(chunks[number].jobs):
                number += step
                if 0 <= number < len(chunks):
                    at = len(chunks[number].jobs) - 1 if is_reversed else 0
            if not 0 <= number < len(chunks) or not self._look_at(
                found, chunks[number], at, bound, is_reversed=is_reversed
            ):
                found.is_last = True
                break
            at += step
        self._drop_left(found)
        return found

    def _behind(self, place: i64, key: i64, *, is_reversed: bool) -> tuple[i64, i64]:
        """Return chunk and index of the next entry after a number and seq."""
        chunks = self._chunks
        number = self._chunk_of(place, key)
        if number == len(chunks):
            if not is_reversed or number == 0:
                return number, 0
            return number - 1, len(chunks[number - 1].jobs) - 1
        at = chunks[number].find(place, key)
        if is_reversed:
            return number, at - 1
        return number, at + 1 if self._is_entry(number, at, place, key) else at

    def _is_entry(self, number: i64, at: i64, place: i64, key: i64) -> bool:
        chunk = self._chunks[number]
        return at < len(chunk.jobs) and chunk.places[at] == place and chunk.jobs[at].key == key

    def _look_at(
        self, found: Stretch, chunk: _Chunk, at: i64, bound: i64, *, is_reversed: bool
    ) -> bool:
        """Add an entry to a stretch if it is valid; return False if it is beyond the bound."""
        place: i64 = chunk.places[at]
        if (place < bound) if is_reversed else (place > bound):
            return False
        job = chunk.jobs[at]
        found.looked += 1
        found.place = place
        found.key = job.key
        if self._is_there(chunk, at):
            found.jobs.append(job)
            found.places.append(int(place))
        return True

    def _drop_left(self, found: Stretch) -> None:
        """Sweep where many entries were skipped, so that the next readers need not skip them."""
        passed: i64 = found.looked - len(found.jobs)
        if passed >= _SLACK // 2 and 2 * passed > found.looked and self._swept < 0:
            number = self._chunk_of(found.place, found.key)
            low = max(number - found.looked // _CHUNK - 1, 0)
            at: i64 = min(number + 1, len(self._chunks) - 1)
            while at >= low:
                if not self._compact(self._chunks[at]):
                    del self._chunks[at]
                at -= 1

    def between(self, low: i64, high: i64, count: i64, *, is_reversed: bool) -> list[Job]:
        """Return up to `count` jobs with numbers from `low` to `high`; all if it is negative."""
        return self._all(low, high, 0, count, is_reversed=is_reversed)

    def page(self, start: i64, count: i64, *, is_reversed: bool) -> list[Job]:
        """Return up to `count` jobs after the first `start`."""
        return self._all(LOWEST, HIGHEST, start, count, is_reversed=is_reversed)

    def _all(self, low: i64, high: i64, start: i64, count: i64, *, is_reversed: bool) -> list[Job]:
        wanted: i64 = HIGHEST if count < 0 else start + count
        found: list[Job] = []
        place: i64 = high if is_reversed else low
        key: i64 = HIGHEST if is_reversed else LOWEST
        bound = low if is_reversed else high
        while len(found) < wanted:
            most = min(max(wanted - len(found), _SLACK), _CHUNK)
            stretch = self.stretch(place, key, bound, most, is_reversed=is_reversed)
            found += stretch.jobs
            if stretch.is_last:
                break
            place, key = stretch.place, stretch.key
        return found[start:] if count < 0 else found[start : start + count]


@final
class SortedViews:
    """The sorted views of one queue that were requested."""

    def __init__(self) -> None:
        self.stream: SortedView | None = None
        self.scheduled: SortedView | None = None

    def note(self, job: Job) -> None:
        """Note that a job has moved, or is about to."""
        if self.stream is not None:
            self.stream.note(job)
        if self.scheduled is not None:
            self.scheduled.note(job)

    def drop_gone(self) -> None:
        """Drop jobs that are gone."""
        if self.stream is not None:
            self.stream.drop_gone()
        if self.scheduled is not None:
            self.scheduled.drop_gone()

    def unload(self) -> i64:
        """Drop some entries for good; return how many, 0 for none left."""
        count: i64 = 0
        if self.stream is not None:
            count = self.stream.unload()
        if count == 0 and self.scheduled is not None:
            count = self.scheduled.unload()
        return count
