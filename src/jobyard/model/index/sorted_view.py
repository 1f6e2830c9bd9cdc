"""Jobs of one queue in the order of a number each of them has, for reading page by page.

Made by the first reading and brought up to date by the next: jobs that came are found at the end of
the roster, and those that moved were noted. So a page costs what it holds and what has happened
since the last one, and whoever puts, takes and finishes jobs does nothing for it. All of it can be
done in pieces that others come between: entries are found by number and seq, never by where they
stood.

Invariant: entries rise by number, then seq; they stand in chunks, of which none is empty. A job
whose number is another by now, or that has left, is passed over where it stands; it stands a second
time where it has come back to.
"""

from array import array
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from jobyard.model.job import GONE, Job

# Entries of a chunk, more or less: what has to move when one comes in between.
_CHUNK: Final = 512
# Jobs that have left or moved without notice to this, beside a quarter of those that are there.
_SLACK: Final = 64
# Jobs that moved and are still to be looked at, beside as many as stand here; beyond, all are.
_NEWS_MAX: Final = 1024
# Before and behind all entries.
FIRST: Final = -(1 << 62)
LAST: Final = 1 << 62


@final
class Stretch:
    """Some jobs in their order, each with its number, and where to go on behind them."""

    def __init__(self, place: i64, key: i64) -> None:
        self.jobs: list[Job] = []
        self.places: list[int] = []
        # The last entry that was looked at.
        self.place: i64 = place
        self.key: i64 = key
        self.looked: i64 = 0
        self.is_last: bool = False


@final
class _Chunk:
    """Entries side by side."""

    def __init__(self, jobs: list[Job], places: "array[int]") -> None:
        self.jobs: list[Job] = jobs
        self.places: array[int] = places

    def is_before(self, at: i64, place: i64, key: i64) -> bool:
        """Tell whether an entry stands before a number and seq."""
        own: i64 = self.places[at]
        return own < place or (own == place and self.jobs[at].key < key)

    def find(self, place: i64, key: i64) -> i64:
        """Return where the first entry stands that is not before a number and seq."""
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
class Listing:
    """Some jobs of a queue by rising number; a subclass says which, and by what number."""

    def __init__(self) -> None:
        self._chunks: list[_Chunk] = []
        self._size: i64 = 0
        # The seq up to which all jobs have been looked at.
        self._seq: i64 = 0
        self._news: list[Job] = []
        # Whether anybody has read it since jobs that are gone were let go.
        self._is_read: bool = False
        # How far a sweep has come; -1 while there is none.
        self._swept: i64 = -1

    def has(self, job: Job) -> bool:
        """Tell whether a job belongs here."""
        raise NotImplementedError

    def place_of(self, job: Job) -> i64:
        """Return the number of a job that belongs here."""
        raise NotImplementedError

    # -- what happens to jobs ------------------------------------------------------------------

    def note(self, job: Job) -> None:
        """Take note that a job has moved, or is about to."""
        if job.key > self._seq:
            return
        self._news.append(job)
        if len(self._news) > self._size + _NEWS_MAX:
            self.forget()

    def forget(self) -> None:
        """Begin anew with the next reading."""
        self._chunks = []
        self._size = 0
        self._seq = 0
        self._news = []
        self._swept = -1

    def let_go(self) -> None:
        """Hold no job that is gone any longer than to the next reading; unread, begin anew."""
        if not self._is_read:
            self.forget()
            return
        self._is_read = False
        self._news = [job for job in self._news if job.state != GONE]
        self._swept = 0

    def unload(self) -> i64:
        """Forget some entries for good; return how many, 0 once none is left."""
        count: i64 = min(len(self._news), _CHUNK)
        if count > 0:
            del self._news[-count:]
        elif self._chunks:
            count = len(self._chunks.pop().jobs)
        return count

    def seen_seq(self) -> i64:
        """Return the seq up to which all jobs have been looked at."""
        return self._seq

    def size(self) -> i64:
        """Return how many entries there are, those included that have left without notice."""
        return self._size

    def news_count(self) -> i64:
        """Return how many jobs moved since they were last looked at."""
        return len(self._news)

    # -- coming up to date ---------------------------------------------------------------------

    def renew(self, newest: list[Job], count: i64) -> None:
        """Take in all that came since: the jobs beyond `seen_seq`; `count` jobs belong here now."""
        self.look_at_news(LAST)
        self.take_in(newest)
        self.sweep(count, LAST)

    def take_in(self, newest: list[Job]) -> None:
        """Take in jobs that came, the first of them the next beyond `seen_seq`."""
        self._is_read = True
        if not newest:
            return
        self._seq = newest[len(newest) - 1].key
        for job in newest:
            if self.has(job):
                self._insert(job)

    def look_at_news(self, most: i64) -> i64:
        """Let up to `most` of the jobs that moved stand where they belong; return how many."""
        self._is_read = True
        done: i64 = 0
        while self._news and done < most:
            job = self._news.pop()
            if self.has(job):
                self._insert(job)
            done += 1
        return done

    def sweep(self, count: i64, most: i64) -> i64:
        """Let go of entries whose jobs have left, if they are many; return how many were looked at.

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
        """Let go of the entries of a chunk whose jobs have left; False if none are left."""
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
        """Let a job stand where it belongs, unless it does."""
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
        """Return the jobs behind an entry, in either direction, up to a number that belongs to it.

        No more than about `most` entries are looked at; `is_last` tells that there are no more.
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
        """Return the chunk of the entry behind a number and seq, and where it would stand there."""
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
        """Add an entry to a stretch if its job is there; False if it is beyond the bound."""
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
        """Sweep where much was passed over: those who read next need not pass it too."""
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
        """Return up to `count` jobs without the first `start`."""
        return self._all(FIRST, LAST, start, count, is_reversed=is_reversed)

    def _all(self, low: i64, high: i64, start: i64, count: i64, *, is_reversed: bool) -> list[Job]:
        wanted: i64 = LAST if count < 0 else start + count
        found: list[Job] = []
        place: i64 = high if is_reversed else low
        key: i64 = LAST if is_reversed else FIRST
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
class Listings:
    """The listings of one queue that somebody has asked for."""

    def __init__(self) -> None:
        self.stream: Listing | None = None
        self.scheduled: Listing | None = None

    def note(self, job: Job) -> None:
        """Take note that a job has moved, or is about to."""
        if self.stream is not None:
            self.stream.note(job)
        if self.scheduled is not None:
            self.scheduled.note(job)

    def let_go(self) -> None:
        """Hold no job that is gone."""
        if self.stream is not None:
            self.stream.let_go()
        if self.scheduled is not None:
            self.scheduled.let_go()

    def unload(self) -> i64:
        """Forget some entries for good; return how many, 0 once none is left."""
        count: i64 = 0
        if self.stream is not None:
            count = self.stream.unload()
        if count == 0 and self.scheduled is not None:
            count = self.scheduled.unload()
        return count
