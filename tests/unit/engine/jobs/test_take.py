import pytest

from jobyard.engine.jobs.finish import bury
from jobyard.engine.jobs.queues import pause
from jobyard.engine.jobs.take import best_job, cancel_wait, head_of, take, take_job, wait
from jobyard.errors import NotFound
from jobyard.model.job import LEASED
from jobyard.model.limits import NEVER_MS
from jobyard.protocols.beanstalk.door import TERMS
from tests.support.site.recount import recount
from tests.support.site.site import NOW_MS
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard


def test_the_least_rank_goes_first_and_the_oldest_within_it() -> None:
    site = OpenYard()
    lease_set = site.connect().lease_set
    for queue, rank in (("a", 7), ("b", 5), ("a", 5), ("b", 9)):
        site.put(queue=queue, rank=rank)
    assert [site.take(lease_set, "a", "b").job.id for _ in range(4)] == [2, 3, 1, 4]


def test_only_the_given_queues_are_searched() -> None:
    site = OpenYard()
    lease_set = site.connect().lease_set
    site.put(queue="a", rank=9)
    site.put(queue="b", rank=1)
    assert site.take(lease_set, "a").job.id == 1
    assert take(site.yard, [site.queue("a")], lease_set, TERMS, site.now_ms) is None


def test_a_lease_runs_for_the_time_to_run_from_the_moment_it_is_given() -> None:
    site = OpenYard()
    lease_set = site.connect().lease_set
    site.put(b"abc", ttr_ms=5000)
    site.jump(100)
    lease = site.take(lease_set)
    assert (lease.started_ms, lease.sort_key, lease.ttl_ms) == (NOW_MS + 100, NOW_MS + 5100, 5000)
    assert (lease.body, lease.job.deliveries, lease.job.state) == (b"abc", 1, LEASED)
    assert lease_set.soonest_ms() == NOW_MS + 5100
    recount(site.yard)


def test_lease_numbers_never_repeat() -> None:
    site = OpenYard()
    lease_set = site.connect().lease_set
    site.put()
    site.put()
    assert [site.take(lease_set).key for _ in range(2)] == [1, 2]


def test_a_paused_queue_gives_nothing_until_its_pause_ends() -> None:
    site = OpenYard()
    lease_set = site.connect().lease_set
    queue = site.queue()
    job = site.put()
    pause(site.yard, queue, 1000, site.now_ms)
    assert head_of(queue, NOW_MS + 999) is None
    assert head_of(queue, NOW_MS + 1000) is job
    assert best_job([queue], NOW_MS + 999) is None
    assert take(site.yard, [queue], lease_set, TERMS, NOW_MS + 999) is None
    assert take(site.yard, [queue], lease_set, TERMS, NOW_MS + 1000) is not None


def test_a_given_job_can_be_taken_from_any_state_but_a_lease() -> None:
    site = OpenYard()
    mine, other = site.connect().lease_set, site.connect().lease_set
    ready, delayed, dead, held = site.put(), site.put(delay_ms=9000), site.put(), site.put()
    take_job(site.yard, dead.id, mine, TERMS, site.now_ms)
    bury(site.yard, dead, 0, site.now_ms)
    take_job(site.yard, held.id, other, TERMS, site.now_ms)
    pause(site.yard, site.queue(), 5000, site.now_ms)
    for job in (ready, delayed, dead):
        lease = take_job(site.yard, job.id, mine, TERMS, site.now_ms)
        assert lease.job is job
        assert job.state == LEASED
        recount(site.yard)
    for job_id in (held.id, ready.id, 0, 99):
        with pytest.raises(NotFound):
            take_job(site.yard, job_id, mine, TERMS, site.now_ms)


def test_who_waits_longest_at_a_queue_is_served_first_over_several_queues() -> None:
    site = OpenYard()
    clients = [site.connect() for _ in range(4)]
    for client, watched in zip(clients, (b"ab", b"b", b"a", b"ab"), strict=True):
        for tube in watched:
            client.say(b"watch %c\r\n" % tube)
        client.say(b"ignore default\r\n")
    for client in clients:
        assert client.say(b"reserve\r\n") == b""
    served = []
    for queue in ("b", "a", "b", "b"):
        site.put(queue=queue)
        served.append([client.hear() != b"" for client in clients].index(True))
        recount(site.yard)
    # The first waits at both queues, the third only at `a`; no client is served twice.
    assert served == [0, 2, 1, 3]
    site.put(queue="a")
    assert all(client.hear() == b"" for client in clients)


def test_who_stops_waiting_is_passed_over_in_every_line() -> None:
    site = OpenYard()
    gone, next_one = site.connect(), site.connect()
    queues = [site.queue("a"), site.queue("b")]
    waiter = wait(site.yard, queues, gone.lease_set, TERMS, NEVER_MS, NEVER_MS)
    next_one.say(b"watch a\r\nreserve\r\n")
    next_one.hear()
    cancel_wait(site.yard, waiter)
    assert queues[1].waiting_count == 0
    site.put(b"x", "a")
    assert next_one.hear() == b"RESERVED 1 1\r\nx\r\n"
    recount(site.yard)


def test_a_client_that_vanished_while_waiting_swallows_no_job() -> None:
    site = OpenYard()
    gone, stays = site.connect(), site.connect()
    gone.say(b"reserve\r\n")
    stays.say(b"reserve\r\n")
    gone.leave()
    site.put(b"x")
    assert gone.hear() == b""
    assert stays.hear() == b"RESERVED 1 1\r\nx\r\n"


def test_a_waiting_client_gets_the_job_behind_a_damaged_one() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage, budget=0)
    damaged = site.put(b"first", delay_ms=1000)
    site.put(b"second", delay_ms=1000)
    site.commit()
    storage.flip(site.journal.hot.name, damaged.place & 0xFFFFFFFF, 0)
    client = site.connect()
    client.say(b"reserve\r\n")
    site.jump(1000)
    assert client.hear() == b"RESERVED 2 6\r\nsecond\r\n"
    recount(site.yard)


def test_a_reserve_keeps_waiting_when_the_only_job_is_damaged() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage, budget=0)
    damaged = site.put(b"first", delay_ms=1000)
    site.commit()
    storage.flip(site.journal.hot.name, damaged.place & 0xFFFFFFFF, 0)
    client = site.connect()
    client.say(b"reserve\r\n")
    site.jump(1000)
    assert client.hear() == b""
    site.put(b"good")
    assert client.hear() == b"RESERVED 2 4\r\ngood\r\n"
