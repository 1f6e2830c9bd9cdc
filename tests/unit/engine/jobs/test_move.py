import pytest

from jobyard.engine.jobs.finish import KEEP_AS_ASKED, bury, complete, fail
from jobyard.engine.jobs.move import (
    erase,
    kick,
    kick_job,
    make_dead,
    promote,
    remove,
    revive,
    set_body,
    set_due,
    set_rank,
)
from jobyard.engine.recovery.compaction import Compactor
from jobyard.errors import NotFound, YardFull
from jobyard.model.details import FailureReason, JobDetails
from jobyard.model.job import DEAD, DELAYED, DONE, GONE, LEASED, MSGPACK, RAW, READY, Job
from jobyard.model.policy import REMOVE_DEAD, Policy
from tests.support.site.recount import recount
from tests.support.site.site import NOW_MS
from tests.support.site.snapshot import snapshot
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard


def with_buried(count: int) -> OpenYard:
    site = OpenYard(MemoryStorage())
    lease_set = site.connect().lease_set
    for rank in range(count):
        site.put(rank=rank)
    for _ in range(count):
        lease = site.take(lease_set)
        bury(site.yard, lease.job, 9 - int(lease.job.rank), site.now_ms)
    return site


def test_a_kick_wakes_the_dead_in_the_order_of_their_burial_whatever_their_rank() -> None:
    site = with_buried(4)
    site.put(delay_ms=1000)
    assert kick(site.yard, site.queue(), 3, site.now_ms) == 3
    jobs = site.yard.jobs.all()
    assert [job.state for job in jobs] == [READY, READY, READY, DEAD, DELAYED]
    assert [job.counters().kicks for job in jobs] == [1, 1, 1, 0, 0]
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


def test_kicked_jobs_go_to_waiting_clients() -> None:
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
    assert delayed.counters().kicks == 1
    assert site.take(site.connect().lease_set).job is delayed
    for job_id in (1, ready.id, taken.id, delayed.id, 0, 99):
        with pytest.raises(NotFound):
            kick_job(site.yard, job_id, site.now_ms)
    recount(site.yard)


def test_kicking_one_job_wakes_a_waiting_client() -> None:
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
        site.take(site.connect().lease_set)
        bury(site.yard, job, 0, site.now_ms)
    remove(site.yard, job, site.now_ms)
    assert job.state == GONE
    assert site.yard.jobs.count == 0
    recount(site.yard)


def test_a_job_somebody_holds_cannot_be_removed() -> None:
    site = OpenYard()
    job = site.put()
    site.take(site.connect().lease_set)
    with pytest.raises(NotFound):
        remove(site.yard, job, site.now_ms)
    recount(site.yard)


def test_a_queue_goes_with_its_last_job_when_it_is_removed() -> None:
    site = OpenYard(MemoryStorage())
    job = site.put(queue="q", delay_ms=1000)
    remove(site.yard, job, site.now_ms)
    assert "q" not in site.yard.queues
    assert site.jump(5000) > site.now_ms, "the timer of a queue that is gone never fires"
    recount(site.yard)


# -- the other family --------------------------------------------------------------------------


def dead_one(site: OpenYard, details: JobDetails | None = None) -> Job:
    job = site.run(site.enter(details=details))
    fail(site.yard, job, "no", site.now_ms, is_final=True)
    return job


def done_one(site: OpenYard, body: bytes = b"body") -> Job:
    job = site.run(site.enter(body))
    complete(site.yard, job, b"r", MSGPACK, KEEP_AS_ASKED, site.now_ms)
    return job


def pulled(site: OpenYard) -> list[int]:
    found = []
    while (lease := site.pull()) is not None:
        found.append(int(lease.job.id))
    return found


def test_a_promoted_job_goes_to_the_end_of_the_line() -> None:
    site = OpenYard(MemoryStorage())
    late, ready = site.enter(delay_ms=1000), site.enter()
    promote(site.yard, late, site.now_ms)
    assert late.state == READY
    recount(site.yard)
    assert pulled(site) == [ready.id, late.id]


def test_delayed_jobs_stand_in_line_by_when_they_were_due() -> None:
    site = OpenYard()
    later, sooner = site.enter(delay_ms=900), site.enter(delay_ms=300)
    between = site.enter(delay_ms=600)
    site.jump(1000)
    assert pulled(site) == [sooner.id, between.id, later.id]


@pytest.mark.parametrize("state", [DEAD, DONE])
def test_a_job_brought_back_has_all_its_attempts_before_it(state: int) -> None:
    site = OpenYard(MemoryStorage())
    job = dead_one(site) if state == DEAD else done_one(site)
    other = site.enter()
    site.commit()
    site.jump(100)
    job.counters().stalls = 2
    revive(site.yard, job, site.now_ms)
    details = job.ensure_details()
    assert (job.state, job.attempts, job.counters().stalls, details.outcome) == (READY, 0, 0, None)
    assert (details.retries, details.retried_ms) == (1, NOW_MS + 100)
    recount(site.yard)
    assert pulled(site) == [other.id, job.id]
    assert site.bodies.fetch(job) == b"body"


def test_a_beanstalk_job_brought_back_was_kicked() -> None:
    site = with_buried(1)
    job = site.yard.jobs.all()[0]
    revive(site.yard, job, site.now_ms)
    assert (job.state, job.counters().kicks) == (READY, 1)


def test_a_job_brought_back_before_its_body_left_memory_keeps_it_there() -> None:
    site = OpenYard(MemoryStorage())
    job = done_one(site, b"abc")
    revive(site.yard, job, site.now_ms)
    site.commit()
    assert job.body == b"abc"
    recount(site.yard)


def test_a_new_rank_counts_at_once() -> None:
    site = OpenYard(MemoryStorage())
    jobs = [site.enter(rank=rank) for rank in (1, 2, 3)]
    delayed = site.enter(rank=9, delay_ms=500)
    set_rank(site.yard, jobs[2], -5, site.now_ms)
    set_rank(site.yard, delayed, 0, site.now_ms)
    assert delayed.state == DELAYED
    recount(site.yard)
    site.jump(500)
    assert pulled(site) == [3, 4, 1, 2]


def test_a_new_delay_counts_from_now() -> None:
    site = OpenYard(MemoryStorage())
    job = site.enter(delay_ms=1000)
    site.jump(600)
    set_due(site.yard, job, 1000, site.now_ms)
    assert site.jump(999) == site.now_ms + 1
    assert (job.state, job.delay_ms) == (DELAYED, 1000)
    set_due(site.yard, job, 0, site.now_ms)
    assert job.state == READY
    set_due(site.yard, job, 50, site.now_ms)
    assert job.state == DELAYED
    recount(site.yard)


def test_a_job_laid_aside_is_dead_without_an_attempt() -> None:
    site = OpenYard(MemoryStorage())
    job = site.enter()
    make_dead(site.yard, job, "discarded", site.now_ms)
    outcome = job.outcome()
    assert (job.state, job.attempts) == (DEAD, 0)
    assert (outcome.reason, outcome.error) == (FailureReason.UNKNOWN, "discarded")
    policy = Policy(0)
    policy.flags = REMOVE_DEAD
    gone = site.enter(policy=policy)
    make_dead(site.yard, gone, "discarded", site.now_ms)
    assert gone.state == GONE
    recount(site.yard)


@pytest.mark.parametrize("old", [10, 5000])
@pytest.mark.parametrize("new", [0, 10, 5000])
def test_a_job_with_another_body_is_the_same_job(old: int, new: int) -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    details = JobDetails()
    details.custom_id = "mine"
    job = site.enter(b"o" * old, details=details)
    site.run(job)
    fail(site.yard, job, "no", site.now_ms, delay_ms=9000)
    for fill in (b"m", b"n"):
        # Twice in one batch: the first of them never gets a place.
        set_body(site.yard, job, fill * new, RAW, site.now_ms)
    site.commit()
    assert site.bodies.fetch(job) == b"n" * new
    where = job.place & 0xFFFFFFFF
    assert storage.read(site.journal.hot.name, where, new) == b"n" * new
    recount(site.yard)
    again = OpenYard(storage.cut_off())
    assert snapshot(again.yard) == snapshot(site.yard)
    recount(again.yard)


def test_a_kick_that_finds_no_more_room_wakes_those_it_can() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage, segment_size=4096)
    client, worker = site.connect(), site.connect()
    client.say(b"put 0 60 60 1\r\nx\r\n" * 500)
    worker.say(b"reserve\r\n")
    storage.capacity = 0
    site.journal.spares.clear()
    word, _, count = client.say(b"kick 500\r\n").partition(b" ")
    assert word == b"KICKED"
    assert 0 < int(count) < 500
    assert worker.hear().startswith(b"RESERVED 1 1\r\n")
    assert client.say(b"kick 1\r\n") == b"OUT_OF_MEMORY\r\n"
    site.commit()
    recount(site.yard)


def test_a_body_that_does_not_fit_changes_nothing() -> None:
    site = OpenYard(budget=300)
    job = site.enter(b"12345")
    with pytest.raises(YardFull):
        set_body(site.yard, job, b"x" * 301, RAW, site.now_ms)
    assert site.bodies.fetch(job) == b"12345"
    recount(site.yard)


def roll(site: OpenYard) -> None:
    number = site.journal.hot.number
    while site.journal.hot.number == number:
        remove(site.yard, site.enter(b"x" * 900), site.now_ms)
        site.commit()


def test_a_job_whose_body_was_changed_stays_gone_whatever_segment_goes_first() -> None:
    for victim in range(3):
        storage = MemoryStorage()
        site = OpenYard(storage, segment_size=8192)
        job = site.enter(b"first")
        keep = [site.enter(b"k" * 900) for _ in range(2)]
        for body in (b"second", b"third"):
            roll(site)
            set_body(site.yard, job, body, RAW, site.now_ms)
            keep.append(site.enter(b"k" * 900))
        roll(site)
        erase(site.yard, job, site.now_ms)
        site.commit()
        bases = sorted(site.journal.segments)[:3]
        site.compactor = Compactor(site.yard, [bases[victim]])
        for _ in range(6):
            site.compactor.step()
            site.commit()
        assert bases[victim] not in site.journal.segments
        again = OpenYard(storage.cut_off(), segment_size=8192)
        assert [int(one.id) for one in again.yard.jobs.all()] == [int(one.id) for one in keep]
        recount(again.yard)


def test_even_a_job_that_is_held_can_be_erased() -> None:
    site = OpenYard(MemoryStorage())
    job = site.run(site.enter())
    assert job.state == LEASED
    erase(site.yard, job, site.now_ms)
    assert job.state == GONE
    assert not site.lease_set.leases.items
    recount(site.yard)


def ttl_of(ms: int) -> Policy:
    policy = Policy(0)
    policy.ttl_ms = ms
    return policy


@pytest.mark.parametrize("delay_ms", [0, 5000])
def test_a_job_nobody_took_in_time_is_gone(delay_ms: int) -> None:
    site = OpenYard(MemoryStorage())
    job = site.enter(delay_ms=delay_ms, policy=ttl_of(1000))
    assert site.jump(999) == NOW_MS + 1000
    assert job.state != GONE
    site.jump(1)
    assert job.state == GONE
    recount(site.yard)


def test_a_job_that_runs_may_outlive_its_time_but_not_wait_again() -> None:
    site = OpenYard(MemoryStorage())
    finished, failed = (site.enter(policy=ttl_of(1000)) for _ in range(2))
    site.run(finished)
    site.run(failed)
    site.jump(1500)
    assert (finished.state, failed.state) == (LEASED, LEASED)
    complete(site.yard, finished, b"", MSGPACK, KEEP_AS_ASKED, site.now_ms)
    fail(site.yard, failed, "no", site.now_ms)
    recount(site.yard)
    site.jump()
    assert (finished.state, failed.state) == (DONE, GONE)
    site.jump(9000)
    assert finished.state == DONE
    recount(site.yard)


def test_a_time_to_live_continues_over_a_restart() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    site.enter(policy=ttl_of(1000))
    site.commit()
    again = OpenYard(storage.cut_off(), NOW_MS + 600)
    assert again.jump(399) == NOW_MS + 1000
    assert again.yard.jobs.count == 1
    again.jump(1)
    assert again.yard.jobs.count == 0
    recount(again.yard)
