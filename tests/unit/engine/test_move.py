import pytest

from jobyard.engine.end import bury
from jobyard.engine.move import kick, kick_job, remove
from jobyard.errors import NotFound
from jobyard.model.job import DEAD, DELAYED, GONE, READY
from tests.support.memory_storage import MemoryStorage
from tests.support.yards import OpenYard, recount


def with_buried(count: int) -> OpenYard:
    site = OpenYard(MemoryStorage())
    book = site.connect().book
    for rank in range(count):
        site.put(rank=rank)
    for _ in range(count):
        lease = site.take(book)
        bury(site.yard, lease.job, 9 - int(lease.job.rank), site.now_ms)
    return site


def test_a_kick_wakes_the_dead_in_the_order_of_their_burial_whatever_their_rank() -> None:
    site = with_buried(4)
    site.put(delay_ms=1000)
    assert kick(site.yard, site.queue(), 3, site.now_ms) == 3
    jobs = site.yard.jobs.all()
    assert [job.state for job in jobs] == [READY, READY, READY, DEAD, DELAYED]
    assert [job.tally().kicks for job in jobs] == [1, 1, 1, 0, 0]
    recount(site.yard)


def test_delayed_jobs_are_kicked_only_when_nothing_is_buried() -> None:
    site = with_buried(1)
    late, soon = site.put(delay_ms=9000), site.put(delay_ms=1000)
    assert kick(site.yard, site.queue(), 10, site.now_ms) == 1
    assert kick(site.yard, site.queue(), 1, site.now_ms) == 1
    assert (soon.state, late.state) == (READY, DELAYED)
    assert kick(site.yard, site.queue(), 10, site.now_ms) == 1
    assert kick(site.yard, site.queue(), 10, site.now_ms) == 0
    recount(site.yard)


def test_a_kick_of_nobody_changes_nothing() -> None:
    site = with_buried(2)
    assert kick(site.yard, site.queue(), 0, site.now_ms) == 0
    assert site.yard.dead_count == 2


def test_kicked_jobs_are_given_to_those_who_wait() -> None:
    site = with_buried(2)
    clients = [site.connect() for _ in range(3)]
    for client in clients:
        client.say(b"reserve\r\n")
    assert kick(site.yard, site.queue(), 5, site.now_ms) == 2
    heard = [client.hear().split(b"\r\n")[0] for client in clients]
    # The one buried later has the lesser rank now and is the first to be given.
    assert heard == [b"RESERVED 2 4", b"RESERVED 1 4", b""]
    recount(site.yard)


def test_one_job_is_kicked_from_the_dead_or_the_delayed_only() -> None:
    site = with_buried(1)
    delayed, ready, taken = site.put(delay_ms=1000), site.put(rank=5), site.put(rank=1)
    assert kick_job(site.yard, 1, site.now_ms).state == READY
    assert kick_job(site.yard, delayed.id, site.now_ms) is delayed
    assert delayed.tally().kicks == 1
    assert site.take(site.connect().book).job is delayed
    for job_id in (1, ready.id, taken.id, delayed.id, 0, 99):
        with pytest.raises(NotFound):
            kick_job(site.yard, job_id, site.now_ms)
    recount(site.yard)


def test_kicking_one_job_wakes_who_waits() -> None:
    site = with_buried(1)
    client = site.connect()
    client.say(b"reserve\r\n")
    kick_job(site.yard, 1, site.now_ms)
    assert client.hear().startswith(b"RESERVED 1 ")


@pytest.mark.parametrize("state", [READY, DELAYED, DEAD])
@pytest.mark.parametrize("is_on", [True, False])
def test_a_job_nobody_holds_can_be_removed(state: int, *, is_on: bool) -> None:
    site = OpenYard(MemoryStorage() if is_on else None)
    job = site.put(delay_ms=1000 if state == DELAYED else 0)
    if state == DEAD:
        site.take(site.connect().book)
        bury(site.yard, job, 0, site.now_ms)
    remove(site.yard, job, site.now_ms)
    assert job.state == GONE
    assert site.yard.jobs.count == 0
    recount(site.yard)


def test_a_job_somebody_holds_cannot_be_removed() -> None:
    site = OpenYard()
    job = site.put()
    site.take(site.connect().book)
    with pytest.raises(NotFound):
        remove(site.yard, job, site.now_ms)
    recount(site.yard)


def test_a_queue_goes_with_its_last_job_when_it_is_removed() -> None:
    site = OpenYard(MemoryStorage())
    job = site.put(queue="q", delay_ms=1000)
    remove(site.yard, job, site.now_ms)
    assert "q" not in site.yard.queues
    assert site.tick(5000) > site.now_ms, "the timer of a queue that is gone never fires"
    recount(site.yard)
