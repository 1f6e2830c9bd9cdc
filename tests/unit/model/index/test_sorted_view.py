from random import Random

from jobyard.model.family import BUNQUEUE
from jobyard.model.index.jobs_by_seq import CHUNK, JobsBySeq
from jobyard.model.index.sorted_view import SortedView, SortedViews
from jobyard.model.job import DEAD, GONE, MSGPACK, READY, Job
from jobyard.model.policy import PLAIN
from jobyard.model.queue import Queue

QUEUE = Queue("q")


class ByStamp(SortedView):
    """Ready jobs by stamp; counts how often it reads one."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0

    def has(self, job: Job) -> bool:
        self.looks += 1
        return job.state == READY

    def place_of(self, job: Job) -> int:
        return int(job.stamp)


class Site:
    """Jobs by seq with one sorted view."""

    def __init__(self, count: int = 0) -> None:
        self.jobs_by_seq = JobsBySeq([])
        self.listing = ByStamp()
        self.jobs_by_seq.listings = SortedViews()
        self.jobs_by_seq.listings.stream = self.listing
        self.jobs: list[Job] = []
        self.last = 0
        for _ in range(count):
            self.put()

    def put(self) -> Job:
        seq = len(self.jobs) + 1
        self.last += 10
        job = Job(seq, QUEUE, seq, self.last, 0, 0, 0, 0, PLAIN, b"", 0, BUNQUEUE, MSGPACK)
        job.state = READY
        self.jobs_by_seq.add(job)
        self.jobs.append(job)
        return job

    def move(self, job: Job, stamp: int, state: int = READY) -> None:
        job.stamp = stamp
        job.state = state
        if state == GONE:
            self.jobs_by_seq.note_gone(job)
        elif state == READY:
            self.jobs_by_seq.note_moved(job)

    def there(self) -> list[Job]:
        there = [job for job in self.jobs if job.state == READY]
        return sorted(there, key=lambda job: (job.stamp, job.key))

    def renewed(self) -> ByStamp:
        newest = self.jobs_by_seq.walk(self.listing.seen_seq(), 1 << 40)
        self.listing.renew(newest, len(self.there()))
        return self.listing

    def between(self, low: int, high: int, count: int, *, is_reversed: bool = False) -> list[Job]:
        return self.renewed().between(low, high, count, is_reversed=is_reversed)


def test_pages_go_both_ways_between_bounds_that_belong_to_them() -> None:
    site = Site(5)
    assert [job.key for job in site.between(20, 40, -1)] == [2, 3, 4]
    assert [job.key for job in site.between(20, 40, 2, is_reversed=True)] == [4, 3]
    assert [job.key for job in site.between(0, 99, 1)] == [1]
    assert site.between(41, 49, -1) == []
    page = site.listing.page(1, 2, is_reversed=False)
    assert [job.key for job in page] == [2, 3]


def test_who_moves_stands_where_it_moved_to_and_nowhere_else() -> None:
    site = Site(5)
    site.between(0, 99, -1)
    site.move(site.jobs[0], 55)
    site.move(site.jobs[4], 15)
    assert [job.key for job in site.between(0, 99, -1)] == [5, 2, 3, 4, 1]


def test_who_comes_back_to_the_same_place_stands_there_once() -> None:
    site = Site(3)
    for _ in range(2):
        site.move(site.jobs[0], 10, DEAD)
        assert [job.key for job in site.between(0, 99, -1)] == [2, 3]
        site.move(site.jobs[0], 10)
        assert [job.key for job in site.between(0, 99, -1)] == [1, 2, 3]


def test_any_moves_leave_the_order_right() -> None:
    for seed in range(30):
        draw = Random(seed)
        site = Site()
        for _ in range(300):
            deed = draw.randrange(6)
            alive = [job for job in site.jobs if job.state != GONE]
            if deed < 2 or not alive:
                site.put()
                continue
            job = draw.choice(alive)
            site.last += 10
            new = draw.choice((int(job.stamp), site.last, draw.randrange(site.last)))
            site.move(job, new, draw.choice((READY, READY, DEAD, GONE)))
            if draw.random() < 0.3:
                low, high = sorted((draw.randrange(site.last), draw.randrange(site.last)))
                wanted = [one for one in site.there() if low <= one.stamp <= high]
                is_reversed = draw.random() < 0.5
                found = site.between(low, high, -1, is_reversed=is_reversed)
                assert {one.key for one in found} == {one.key for one in wanted}
                stamps = [int(one.stamp) for one in found]
                assert stamps == sorted(stamps, reverse=is_reversed)


def test_a_page_looks_at_little_however_long_the_line_is() -> None:
    site = Site(20_000)
    site.between(0, 1 << 40, 1)
    site.listing.looks = 0
    for _ in range(10):
        site.put()
        site.move(site.jobs[5], site.last + 5)
        assert site.between(0, 1 << 40, 1, is_reversed=True) == [site.jobs[5]]
        assert len(site.between(100_000, 1 << 40, 10)) == 10
    assert site.listing.looks < 2000


def test_those_that_left_at_either_end_are_passed_over_once() -> None:
    site = Site(20_000)
    site.between(0, 1 << 40, 1)
    for job in site.jobs[:1500] + site.jobs[-1500:]:
        site.move(job, int(job.stamp), DEAD)
    site.between(0, 1 << 40, 1)
    site.between(0, 1 << 40, 1, is_reversed=True)
    site.listing.looks = 0
    assert site.between(0, 1 << 40, 1) == [site.jobs[1500]]
    assert site.between(0, 1 << 40, 1, is_reversed=True) == [site.jobs[-1501]]
    assert site.listing.looks < 200


def test_nothing_is_held_of_jobs_that_are_gone() -> None:
    site = Site(1000)
    site.between(0, 1 << 40, 1)
    for job in site.jobs[:900]:
        site.move(job, int(job.stamp), GONE)
    assert site.listing.size() == 0
    assert [job.key for job in site.between(0, 1 << 40, 2)] == [901, 902]


def test_entries_that_are_read_again_are_not_sorted_again() -> None:
    site = Site(1000)
    site.between(0, 1 << 40, 1)
    for job in site.jobs[:300]:
        site.move(job, int(job.stamp), GONE)
    site.listing.looks = 0
    assert [job.key for job in site.between(0, 1 << 40, 2)] == [301, 302]
    assert site.listing.size() < 900
    assert site.listing.looks < 1100
    site.listing.looks = 0
    assert [job.key for job in site.between(0, 1 << 40, 2)] == [301, 302]
    assert site.listing.looks < 100


def test_moves_nobody_reads_are_not_held_without_end() -> None:
    site = Site(10)
    site.between(0, 1 << 40, 1)
    for at in range(5000):
        site.move(site.jobs[at % 10], 1000 + at)
    assert site.listing.moved_count() <= 1100
    assert len(site.between(0, 1 << 40, -1)) == 10


def test_an_order_is_made_and_read_in_pieces_while_jobs_move() -> None:
    for seed in range(20):
        draw = Random(seed)
        site = Site(600)
        for job in site.jobs:
            job.stamp = draw.randrange(50)
        still = set(draw.sample(site.jobs, 300))
        listing = site.listing
        while site.jobs_by_seq.walk(listing.seen_seq(), 1):
            listing.take_in(site.jobs_by_seq.walk(listing.seen_seq(), 70))
            site.move(draw.choice([job for job in site.jobs if job not in still]), 99)
        is_reversed = draw.random() < 0.5
        place, key = (1 << 40, 1 << 40) if is_reversed else (-1, 0)
        found: list[Job] = []
        while True:
            listing.look_at_changes(3)
            listing.sweep(100, 50)
            bound = -1 if is_reversed else 1 << 40
            stretch = listing.stretch(place, key, bound, 40, is_reversed=is_reversed)
            assert stretch.looked <= 40
            found += stretch.jobs
            if stretch.is_last:
                break
            place, key = int(stretch.place), int(stretch.key)
            site.move(draw.choice([job for job in site.jobs if job not in still]), 99)
        # A job that did not move is found once, in its place.
        told = [job for job in found if job in still]
        assert told == sorted(still, key=lambda job: (job.stamp, job.key), reverse=is_reversed)


def test_unused_jobs_by_seq_are_unloaded_in_pieces() -> None:
    site = Site(3000)
    site.renewed()
    for job in site.jobs[:1500]:
        site.move(job, int(job.stamp))
    forgotten = 0
    while count := int(site.jobs_by_seq.unload()):
        assert count <= 2 * CHUNK
        forgotten += count
    assert forgotten >= 3000 + 3000 + 1500
    assert not site.jobs_by_seq.unload()
