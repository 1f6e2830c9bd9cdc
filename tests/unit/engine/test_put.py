import pytest

from jobyard.errors import YardFull
from jobyard.model.job import DELAYED, LEASED, READY
from jobyard.model.limits import URGENT_RANK
from tests.support.memory_storage import MemoryStorage
from tests.support.yards import NOW_MS, OpenYard, recount


def test_a_job_without_a_delay_is_ready() -> None:
    site = OpenYard()
    job = site.put(b"abc", "q", 5)
    assert (job.state, job.rank, job.own_ms) == (READY, 5, 60_000)
    assert (job.created_ms, job.due_ms, job.deliveries) == (NOW_MS, NOW_MS, 0)
    recount(site.yard)


def test_a_job_with_a_delay_waits_for_its_time() -> None:
    site = OpenYard()
    job = site.put(delay_ms=1500)
    assert (job.state, job.due_ms) == (DELAYED, NOW_MS + 1500)
    assert site.tick(1499) == NOW_MS + 1500
    assert job.state == DELAYED
    site.tick(1)
    assert job.state == READY
    recount(site.yard)


def test_ids_rise_over_all_queues_and_seqs_within_each() -> None:
    site = OpenYard()
    jobs = [site.put(queue=name) for name in "abab"]
    assert [job.id for job in jobs] == [1, 2, 3, 4]
    assert [job.key for job in jobs] == [1, 1, 2, 2]
    assert len({job.stamp for job in jobs}) == 4


def test_ready_jobs_of_low_rank_count_as_urgent() -> None:
    site = OpenYard()
    site.put(rank=URGENT_RANK - 1)
    site.put(rank=URGENT_RANK)
    site.put(rank=0, delay_ms=1000)
    assert site.yard.urgent_count == 1
    site.tick(1000)
    assert site.yard.urgent_count == 2
    recount(site.yard)


def test_a_job_goes_straight_to_the_first_who_waits() -> None:
    site = OpenYard(MemoryStorage())
    first, second = site.connect(), site.connect()
    assert first.say(b"reserve\r\n") == b""
    assert second.say(b"reserve\r\n") == b""
    job = site.put(b"abc")
    assert job.state == LEASED
    assert first.hear() == b"RESERVED 1 3\r\nabc\r\n"
    assert first.ears.stirs == 1
    assert second.hear() == b""
    recount(site.yard)


def test_a_delayed_job_is_given_to_who_waits_when_its_time_comes() -> None:
    site = OpenYard()
    client = site.connect()
    client.say(b"reserve\r\n")
    site.put(b"abc", delay_ms=1000)
    assert client.hear() == b""
    site.tick(1000)
    assert client.hear() == b"RESERVED 1 3\r\nabc\r\n"


def test_a_refused_job_leaves_nothing_behind() -> None:
    site = OpenYard(budget=10)
    client = site.connect()
    with pytest.raises(YardFull):
        site.put(b"x" * 11)
    assert client.say(b"put 0 0 1 11\r\nxxxxxxxxxxx\r\n") == b"OUT_OF_MEMORY\r\n"
    assert (site.yard.jobs.count, site.yard.puts_count) == (0, 0)
    assert site.put(b"x" * 10).id == 1
    recount(site.yard)


def test_the_totals_count_every_put() -> None:
    site = OpenYard()
    site.put(queue="a")
    site.put(queue="b")
    assert site.yard.puts_count == 2
    assert site.queue("a").total_count == 1
