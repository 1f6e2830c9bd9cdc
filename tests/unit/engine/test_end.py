import pytest

from jobyard.engine.end import bury, drop_holder, finish, held, release, touch
from jobyard.errors import NotFound, NotHeld
from jobyard.model.job import DEAD, DELAYED, GONE, READY, Tally
from tests.support.memory_storage import MemoryStorage
from tests.support.yards import NOW_MS, OpenYard, buried, recount


def counts(tally: Tally) -> tuple[int, int, int, int]:
    return tally.timeouts, tally.releases, tally.buries, tally.kicks


@pytest.mark.parametrize("storage", [None, MemoryStorage()])
def test_a_finished_job_is_gone(storage: MemoryStorage | None) -> None:
    site = OpenYard(storage)
    site.put()
    lease = site.take(site.connect().book)
    finish(site.yard, lease.job, site.now_ms)
    assert lease.job.state == GONE
    assert site.yard.jobs.get(lease.job.id) is None
    assert site.queue().finished_count == 1
    assert site.bodies.in_memory == 0
    recount(site.yard)


def test_a_released_job_goes_back_to_its_place_in_line() -> None:
    site = OpenYard()
    book = site.connect().book
    for _ in range(3):
        site.put(rank=5)
    job = site.take(book).job
    release(site.yard, job, 5, 0, site.now_ms)
    assert (job.state, counts(job.tally())) == (READY, (0, 1, 0, 0))
    assert [site.take(book).job.id for _ in range(3)] == [1, 2, 3]


def test_a_release_sets_rank_and_delay() -> None:
    site = OpenYard()
    book = site.connect().book
    job = site.put(rank=5)
    site.take(book)
    release(site.yard, job, 2000, 3000, site.now_ms)
    assert (job.state, job.rank, job.delay_ms) == (DELAYED, 2000, 3000)
    assert job.due_ms == NOW_MS + 3000
    site.tick(3000)
    assert job.state == READY
    assert site.yard.urgent_count == 0
    recount(site.yard)


def test_a_release_without_a_delay_clears_the_old_one() -> None:
    site = OpenYard()
    job = site.put(delay_ms=1000)
    site.tick(1000)
    site.take(site.connect().book)
    release(site.yard, job, 0, 0, site.now_ms)
    assert job.delay_ms == 0


def test_buried_jobs_rest_in_the_order_of_their_burial() -> None:
    site = OpenYard()
    book = site.connect().book
    jobs = [site.put() for _ in range(4)]
    for _ in jobs:
        site.take(book)
    for job in (jobs[2], jobs[0], jobs[3], jobs[1]):
        bury(site.yard, job, 77, site.now_ms)
        assert (job.state, job.rank, counts(job.tally())) == (DEAD, 77, (0, 0, 1, 0))
    assert buried(site.queue()) == [3, 1, 4, 2]
    recount(site.yard)


def test_a_lease_is_ended_only_by_its_holder() -> None:
    site = OpenYard()
    mine, other = site.connect().book, site.connect().book
    job = site.put()
    with pytest.raises(NotHeld):
        held(site.yard, job.id, mine)
    site.take(mine)
    assert held(site.yard, job.id, mine) is job
    with pytest.raises(NotHeld):
        held(site.yard, job.id, other)
    with pytest.raises(NotFound):
        held(site.yard, 99, mine)


def test_touch_starts_the_time_anew() -> None:
    site = OpenYard()
    book = site.connect().book
    long, short = site.put(ttr_ms=5000), site.put(ttr_ms=3000)
    lease = site.take(book)
    site.take(book)
    site.tick(2500)
    touch(site.yard, lease, site.now_ms)
    assert lease.sort_key == NOW_MS + 7500
    site.tick(500)
    assert (long.lease is not None, short.state) == (True, READY)
    site.tick(4499)
    assert long.lease is lease
    site.tick(1)
    assert long.state == READY
    assert counts(long.tally()) == (1, 0, 0, 0)
    recount(site.yard)


def test_a_touch_that_shortens_no_deadline_still_fires() -> None:
    site = OpenYard()
    book = site.connect().book
    site.put(ttr_ms=1000)
    lease = site.take(book)
    for _ in range(10):
        site.tick(900)
        touch(site.yard, lease, site.now_ms)
    assert site.yard.timeouts_count == 0
    site.tick(1000)
    assert site.yard.timeouts_count == 1


def test_a_holder_that_leaves_gives_everything_back_and_nothing_is_counted() -> None:
    site = OpenYard(MemoryStorage())
    book = site.connect().book
    jobs = [site.put(rank=rank) for rank in range(3)]
    for _ in jobs:
        site.take(book)
    waiting = site.connect()
    waiting.say(b"reserve\r\n")
    drop_holder(site.yard, book, site.now_ms)
    assert book.pos < 0
    assert waiting.hear().startswith(b"RESERVED ")
    assert [job.extra for job in jobs[1:]] == [None, None]
    assert site.yard.ready_count == 2
    recount(site.yard)


def test_a_queue_nobody_uses_goes_with_its_last_job() -> None:
    site = OpenYard(MemoryStorage())
    book = site.connect().book
    job = site.put(queue="q")
    site.take(book, "q")
    finish(site.yard, job, site.now_ms)
    assert "q" not in site.yard.queues
    recount(site.yard)


def test_a_queue_in_use_survives_its_last_job() -> None:
    site = OpenYard()
    client = site.connect()
    client.say(b"use q\r\nput 0 0 1 1\r\nx\r\nwatch q\r\nreserve\r\ndelete 1\r\n")
    assert "q" in site.yard.queues
    assert site.queue("q").finished_count == 1
