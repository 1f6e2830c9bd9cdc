"""Jobs of one queue in the order of a number each of them has, for reading page by page.

Made by the first reading and brought up to date by the next: jobs that came are found at the end of
the roster, and those that moved were noted. So a page costs what it holds and what has happened
since the last one, and whoever puts, takes and finishes jobs does nothing for it.

Invariant: `_places` rises. A job whose number is another by now, or that has left, is passed over
where it stands; it stands a second time where it has come back to.
"""

from array import array
from bisect import bisect_left, bisect_right
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from jobyard.model.job import GONE, Job

# Jobs that have left or moved without notice to this, beside a quarter of those that are there.
_SLACK: Final = 64
# Jobs that moved and are still to be looked at, beside as many as stand here; beyond, all are.
_NEWS_MAX: Final = 1024


@mypyc_attr(allow_interpreted_subclasses=True)
class Listing:
    """Some jobs of a queue by rising number; a subclass says which, and by what number."""

    def __init__(self) -> None:
        self._jobs: list[Job] = []
        self._places: array[int] = array("q")
        # Before this stand only such as are not there any more.
        self._head: i64 = 0
        # The seq up to which all jobs have been looked at.
        self._seq: i64 = 0
        self._news: list[Job] = []
        # Whether anybody has read it since jobs that are gone were let go.
        self._is_read: bool = False

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
        if len(self._news) > len(self._jobs) + _NEWS_MAX:
            self.forget()

    def forget(self) -> None:
        """Begin anew with the next reading."""
        self._jobs = []
        self._places = array("q")
        self._head = 0
        self._seq = 0
        self._news = []

    def let_go(self) -> None:
        """Hold no job that is gone; one that nobody reads any more begins anew."""
        if not self._is_read:
            self.forget()
            return
        self._is_read = False
        self._news = [job for job in self._news if job.state != GONE]
        kept = [at for at in range(len(self._jobs)) if self._jobs[at].state != GONE]
        self._places = array("q", [self._places[at] for at in kept])
        self._jobs = [self._jobs[at] for at in kept]
        self._head = 0

    def seen_seq(self) -> i64:
        """Return the seq up to which all jobs have been looked at."""
        return self._seq

    def renew(self, newest: list[Job], count: i64) -> None:
        """Take in what came since: the jobs beyond `seen_seq`; `count` jobs belong here now."""
        self._is_read = True
        came: list[Job] = []
        if self._news:
            came = self._moved()
            self._news = []
        if newest:
            self._seq = newest[len(newest) - 1].key
            for job in newest:
                if self.has(job):
                    came.append(job)
        if came:
            self._add(came)
        if len(self._jobs) - self._head > count + count // 4 + _SLACK:
            self._sweep()

    def _moved(self) -> list[Job]:
        """Return the jobs of note that belong here and do not stand where they belong."""
        found: list[Job] = []
        for job in dict.fromkeys(self._news):
            if not self.has(job):
                continue
            place = int(self.place_of(job))
            at: i64 = bisect_left(self._places, place)
            end: i64 = bisect_right(self._places, place)
            while at < end and self._jobs[at] is not job:
                at += 1
            if at == end:
                found.append(job)
            else:
                self._head = min(self._head, at)
        found.sort(key=_seq_of)
        return found

    def _add(self, came: list[Job]) -> None:
        places = [int(self.place_of(job)) for job in came]
        if not _is_rising(places):
            came.sort(key=self._key)
            places.sort()
        count: i64 = len(self._places)
        if count > 0 and places[0] < self._places[count - 1]:
            # Those they go between are put in order with them.
            cut: i64 = bisect_right(self._places, places[0])
            came = self._jobs[cut:] + came
            old = self._places[cut:]
            del self._jobs[cut:]
            del self._places[cut:]
            self._merge(came, [*old, *places])
            self._head = min(self._head, cut)
            return
        self._jobs += came
        self._places.extend(places)

    def _merge(self, jobs: list[Job], places: list[int]) -> None:
        """Add jobs at the end, each with the number it stood by."""
        order = sorted(range(len(places)), key=places.__getitem__)
        for at in order:
            self._jobs.append(jobs[at])
            self._places.append(places[at])

    def _key(self, job: Job) -> int:
        return self.place_of(job)

    def _sweep(self) -> None:
        jobs: list[Job] = []
        places: array[int] = array("q")
        count: i64 = len(self._jobs)
        at = self._head
        while at < count:
            if self._is_there(at):
                jobs.append(self._jobs[at])
                places.append(self._places[at])
            at += 1
        self._jobs = jobs
        self._places = places
        self._head = 0

    def _is_there(self, at: i64) -> bool:
        job = self._jobs[at]
        return self.has(job) and self.place_of(job) == self._places[at]

    # -- reading -------------------------------------------------------------------------------

    def between(self, low: i64, high: i64, count: i64, *, is_reversed: bool) -> list[Job]:
        """Return up to `count` jobs with numbers from `low` to `high`; all if it is negative."""
        first = max(i64(bisect_left(self._places, int(low))), self._head)
        last: i64 = i64(bisect_right(self._places, int(high))) - 1
        return self._walk(first, last, 0, count, is_reversed=is_reversed)

    def page(self, start: i64, count: i64, *, is_reversed: bool) -> list[Job]:
        """Return up to `count` jobs without the first `start`."""
        last: i64 = len(self._jobs) - 1
        return self._walk(self._head, last, start, count, is_reversed=is_reversed)

    def _walk(
        self, first: i64, last: i64, skipped: i64, count: i64, *, is_reversed: bool
    ) -> list[Job]:
        found: list[Job] = []
        step: i64 = -1 if is_reversed else 1
        at = last if is_reversed else first
        while first <= at <= last and (count < 0 or len(found) < count):
            if not self._is_there(at):
                if at == self._head:
                    self._head += 1
                elif at == len(self._jobs) - 1:
                    self._jobs.pop()
                    self._places.pop()
            elif skipped > 0:
                skipped -= 1
            else:
                found.append(self._jobs[at])
            at += step
        return found


def _seq_of(job: Job) -> int:
    return job.key


def _is_rising(places: list[int]) -> bool:
    last = places[0]
    for place in places:
        if place < last:
            return False
        last = place
    return True


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
