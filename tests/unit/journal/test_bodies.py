import pytest

from jobyard.engine.jobs.take import take, take_job
from jobyard.errors import NotFound, YardFull
from jobyard.model.job import DEAD, READY
from jobyard.protocols.beanstalk.door import TERMS
from tests.support.site.recount import recount
from tests.support.site.snapshot import buried, snapshot
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard

SIZES = (100, 4096, 4097, 9000)


def spilled(budget: int = 0) -> tuple[OpenYard, MemoryStorage]:
    """Return a yard whose bodies beyond the budget are on disk only."""
    storage = MemoryStorage()
    site = OpenYard(storage, budget=budget)
    for size in SIZES:
        site.put(bytes([size % 251]) * size)
    site.commit()
    return site, storage


def test_bodies_beyond_the_budget_are_read_back_from_disk() -> None:
    site, _ = spilled()
    lease_set = site.connect().lease_set
    assert site.bodies.in_memory == 0
    assert all(job.body is None for job in site.yard.jobs.all())
    for size in SIZES:
        assert site.take(lease_set).body == bytes([size % 251]) * size
    recount(site.yard)


def test_bodies_within_the_budget_stay_in_memory() -> None:
    site, _ = spilled(100 + 4096)
    assert [job.body is not None for job in site.yard.jobs.all()] == [True, True, False, False]
    assert site.bodies.in_memory == 100 + 4096
    recount(site.yard)


def test_a_body_stays_in_memory_until_its_batch_is_written() -> None:
    site = OpenYard(MemoryStorage(), budget=0)
    job = site.put(b"x" * 50)
    site.bodies.cool()
    kept = job.body
    assert kept == b"x" * 50
    site.commit()
    assert job.body is None
    assert site.bodies.fetch(job) == b"x" * 50
    site.bodies.cool()
    assert site.bodies.in_memory == 0


def test_a_body_that_fits_again_when_it_could_be_freed_is_kept() -> None:
    site = OpenYard(MemoryStorage(), budget=60)
    first, second = site.put(b"x" * 50), site.put(b"y" * 50)
    site.yard.apply_gone(first)
    site.commit()
    assert second.body == b"y" * 50


def test_a_job_that_is_gone_before_it_could_cool_is_forgotten() -> None:
    site = OpenYard(MemoryStorage(), budget=0)
    client = site.connect()
    assert client.say(b"put 0 0 60 3\r\nabc\r\nreserve\r\ndelete 1\r\n").endswith(b"DELETED\r\n")
    site.commit()
    assert site.bodies.in_memory == 0
    recount(site.yard)


def test_recovery_holds_only_the_budget_in_memory() -> None:
    site, storage = spilled()
    again = OpenYard(storage.cut_off(), budget=150)
    assert again.bodies.in_memory == 100
    assert snapshot(again.yard) == snapshot(site.yard)
    recount(again.yard)


def test_without_a_journal_a_put_beyond_the_budget_is_refused_and_changes_nothing() -> None:
    site = OpenYard(None, budget=100)
    site.put(b"x" * 60)
    with pytest.raises(YardFull):
        site.put(b"x" * 41)
    site.put(b"x" * 40)
    assert site.yard.jobs.count == 2
    recount(site.yard)


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_damaged_body_is_buried_and_never_delivered(number: int) -> None:
    site, storage = spilled()
    job = site.yard.jobs.get(number)
    assert job is not None
    storage.flip(site.journal.hot.name, (job.place & 0xFFFFFFFF) + 5, 3)
    lease_set = site.connect().lease_set
    taken = [site.take(lease_set).job.id for _ in range(3)]
    assert taken == [other for other in (1, 2, 3, 4) if other != number]
    assert take(site.yard, [site.queue()], lease_set, TERMS, site.now_ms) is None
    assert job.state == DEAD
    assert job.counters().buries == 1
    assert buried(site.queue()) == [number]
    recount(site.yard)


def test_a_damaged_body_cannot_be_taken_by_id_or_peeked_at() -> None:
    site, storage = spilled()
    job = site.yard.jobs.all()[0]
    storage.flip(site.journal.hot.name, job.place & 0xFFFFFFFF, 0)
    client = site.connect()
    assert client.say(b"peek 1\r\n") == b"INTERNAL_ERROR\r\n"
    with pytest.raises(NotFound):
        take_job(site.yard, 1, client.lease_set, TERMS, site.now_ms)
    assert job.state == DEAD
    with pytest.raises(NotFound):
        take_job(site.yard, 1, client.lease_set, TERMS, site.now_ms)
    assert job.counters().buries == 1
    recount(site.yard)


def test_a_file_that_lost_its_end_is_damage_too() -> None:
    site, storage = spilled()
    storage.truncate(site.journal.hot.name, site.yard.jobs.all()[3].place & 0xFFFFFFFF)
    assert site.bodies.fetch(site.yard.jobs.all()[3]) is None


def test_a_damaged_body_stays_buried_over_a_restart() -> None:
    site, storage = spilled()
    site.journal.close()
    storage = storage.cut_off()
    site = OpenYard(storage, budget=0)
    site.journal.close()
    damaged = OpenYard(storage, budget=0)  # two later segments: the body is checked on reading
    job = damaged.yard.jobs.all()[2]
    segment = damaged.journal.segments[job.place >> 32]
    storage.flip(segment.name, job.place & 0xFFFFFFFF, 0)
    lease_set = damaged.connect().lease_set
    assert [damaged.take(lease_set).job.id for _ in range(3)] == [1, 2, 4]
    damaged.commit()
    again = OpenYard(storage.cut_off(), budget=0)
    assert buried(again.queue()) == [3]
    found = again.yard.jobs.get(1)
    assert found is not None
    assert found.state == READY


def test_bodies_saved_by_compaction_can_be_read_before_they_are_written() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage, budget=0)
    client = site.connect()
    for _ in range(60):
        site.put(b"x" * 3000)
    site.commit()
    kept = site.yard.jobs.all()[::15]
    for job in site.yard.jobs.all():
        if job not in kept:
            client.say(b"delete %d\r\n" % job.id)
    site.commit()
    while not site.journal.pending:
        assert site.compactor.step()
    for job in kept:
        assert site.bodies.fetch(job) == b"x" * 3000
