import pytest

from jobyard.engine.jobs.finish import (
    KEEP_AS_ASKED,
    KEEP_NOT,
    bury,
    complete,
    fail,
    finish,
    give_back,
    held,
    release,
    touch,
)
from jobyard.engine.jobs.holders import drop_holder
from jobyard.engine.jobs.queues import set_settings
from jobyard.errors import NotFound, NotHeld
from jobyard.model.details import FailureReason, JobCounters
from jobyard.model.job import DEAD, DELAYED, DONE, GONE, MSGPACK, READY, Job
from jobyard.model.policy import REMOVE_DEAD, REMOVE_DONE, Policy, backoff_ms
from jobyard.model.throttle.settings import Settings
from tests.support.site.recount import recount
from tests.support.site.site import NOW_MS
from tests.support.site.snapshot import buried
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard


def counts(counters: JobCounters) -> tuple[int, int, int, int]:
    return counters.timeouts, counters.releases, counters.buries, counters.kicks


@pytest.mark.parametrize("storage", [None, MemoryStorage()])
def test_a_finished_job_is_gone(storage: MemoryStorage | None) -> None:
    site = OpenYard(storage)
    site.put()
    lease = site.take(site.connect().lease_set)
    finish(site.yard, lease.job, site.now_ms)
    assert lease.job.state == GONE
    assert site.yard.jobs.get(lease.job.id) is None
    assert site.queue().finished_count == 1
    assert site.bodies.in_memory == 0
    recount(site.yard)


def test_a_released_job_goes_back_to_its_place_in_line() -> None:
    site = OpenYard()
    lease_set = site.connect().lease_set
    for _ in range(3):
        site.put(rank=5)
    job = site.take(lease_set).job
    release(site.yard, job, 5, 0, site.now_ms)
    assert (job.state, counts(job.counters())) == (READY, (0, 1, 0, 0))
    assert [site.take(lease_set).job.id for _ in range(3)] == [1, 2, 3]


def test_a_release_sets_rank_and_delay() -> None:
    site = OpenYard()
    lease_set = site.connect().lease_set
    job = site.put(rank=5)
    site.take(lease_set)
    release(site.yard, job, 2000, 3000, site.now_ms)
    assert (job.state, job.rank, job.delay_ms) == (DELAYED, 2000, 3000)
    assert job.due_ms == NOW_MS + 3000
    site.jump(3000)
    assert job.state == READY
    assert site.yard.urgent_count == 0
    recount(site.yard)


def test_a_release_without_a_delay_clears_the_old_one() -> None:
    site = OpenYard()
    job = site.put(delay_ms=1000)
    site.jump(1000)
    site.take(site.connect().lease_set)
    release(site.yard, job, 0, 0, site.now_ms)
    assert job.delay_ms == 0


def test_buried_jobs_rest_in_the_order_of_their_burial() -> None:
    site = OpenYard()
    lease_set = site.connect().lease_set
    jobs = [site.put() for _ in range(4)]
    for _ in jobs:
        site.take(lease_set)
    for job in (jobs[2], jobs[0], jobs[3], jobs[1]):
        bury(site.yard, job, 77, site.now_ms)
        assert (job.state, job.rank, counts(job.counters())) == (DEAD, 77, (0, 0, 1, 0))
    assert buried(site.queue()) == [3, 1, 4, 2]
    recount(site.yard)


def test_a_lease_is_ended_only_by_its_holder() -> None:
    site = OpenYard()
    mine, other = site.connect().lease_set, site.connect().lease_set
    job = site.put()
    with pytest.raises(NotHeld):
        held(site.yard, job.id, mine)
    site.take(mine)
    assert held(site.yard, job.id, mine) is job
    with pytest.raises(NotHeld):
        held(site.yard, job.id, other)
    with pytest.raises(NotFound):
        held(site.yard, 99, mine)


def test_touch_restarts_the_time_of_a_lease() -> None:
    site = OpenYard()
    lease_set = site.connect().lease_set
    long, short = site.put(ttr_ms=5000), site.put(ttr_ms=3000)
    lease = site.take(lease_set)
    site.take(lease_set)
    site.jump(2500)
    touch(site.yard, lease, lease.ttl_ms, site.now_ms)
    assert lease.sort_key == NOW_MS + 7500
    site.jump(500)
    assert (long.lease is not None, short.state) == (True, READY)
    site.jump(4499)
    assert long.lease is lease
    site.jump(1)
    assert long.state == READY
    assert counts(long.counters()) == (1, 0, 0, 0)
    recount(site.yard)


def test_a_touch_that_shortens_no_deadline_still_fires() -> None:
    site = OpenYard()
    lease_set = site.connect().lease_set
    site.put(ttr_ms=1000)
    lease = site.take(lease_set)
    for _ in range(10):
        site.jump(900)
        touch(site.yard, lease, lease.ttl_ms, site.now_ms)
    assert site.yard.counters.timed_out_total() == 0
    site.jump(1000)
    assert site.yard.counters.timed_out_total() == 1


def test_a_holder_that_leaves_gives_everything_back_and_nothing_is_counted() -> None:
    site = OpenYard(MemoryStorage())
    lease_set = site.connect().lease_set
    jobs = [site.put(rank=rank) for rank in range(3)]
    for _ in jobs:
        site.take(lease_set)
    waiting = site.connect()
    waiting.say(b"reserve\r\n")
    drop_holder(site.yard, lease_set, None, site.now_ms)
    assert lease_set.pos < 0
    assert waiting.hear().startswith(b"RESERVED ")
    assert [job.details for job in jobs[1:]] == [None, None]
    assert site.yard.ready_count == 2
    recount(site.yard)


def test_a_queue_nobody_uses_goes_with_its_last_job() -> None:
    site = OpenYard(MemoryStorage())
    lease_set = site.connect().lease_set
    job = site.put(queue="q")
    site.take(lease_set, "q")
    finish(site.yard, job, site.now_ms)
    assert "q" not in site.yard.queues
    recount(site.yard)


def test_a_queue_in_use_survives_its_last_job() -> None:
    site = OpenYard()
    client = site.connect()
    client.say(b"use q\r\nput 0 0 1 1\r\nx\r\nwatch q\r\nreserve\r\ndelete 1\r\n")
    assert "q" in site.yard.queues
    assert site.queue("q").finished_count == 1


# -- the other family --------------------------------------------------------------------------


def policy(**new_jobs: int) -> Policy:
    made = Policy(0)
    for name, number in new_jobs.items():
        setattr(made, name, number)
    return made


def failures(job: Job) -> list[tuple[int, int, str]]:
    details = job.ensure_details()
    return [(int(one.attempt), int(one.reason), one.error) for one in details.failures or ()]


@pytest.mark.parametrize("storage", [None, MemoryStorage()])
def test_a_completed_job_is_kept_with_its_result(storage: MemoryStorage | None) -> None:
    site = OpenYard(storage)
    job = site.run(site.enter(b"abc"))
    site.jump(500)
    complete(site.yard, job, b"result", MSGPACK, KEEP_AS_ASKED, site.now_ms)
    outcome = job.outcome()
    assert (job.state, outcome.result, outcome.codec) == (DONE, b"result", MSGPACK)
    assert (outcome.started_ms, outcome.ended_ms) == (NOW_MS, NOW_MS + 500)
    assert site.bodies.fetch(job) == b"abc"
    recount(site.yard)


def test_the_body_of_a_job_that_is_done_leaves_memory_once_it_is_written() -> None:
    site = OpenYard(MemoryStorage())
    job = site.run(site.enter(b"abc"))
    complete(site.yard, job, b"", MSGPACK, KEEP_AS_ASKED, site.now_ms)
    assert job.body == b"abc"
    site.commit()
    assert [each.body for each in site.yard.jobs.all()] == [None]
    assert site.bodies.in_memory == 0
    assert site.bodies.fetch(job) == b"abc"
    recount(site.yard)


@pytest.mark.parametrize(
    ("flags", "keep", "state"),
    [
        (0, KEEP_AS_ASKED, DONE),
        (REMOVE_DONE, KEEP_AS_ASKED, GONE),
        (0, KEEP_NOT, GONE),
        (REMOVE_DONE, 1, DONE),
    ],
)
def test_a_worker_may_overrule_whether_a_job_is_kept(flags: int, keep: int, state: int) -> None:
    site = OpenYard(MemoryStorage())
    job = site.run(site.enter(policy=policy(flags=flags)))
    complete(site.yard, job, b"r", MSGPACK, keep, site.now_ms)
    assert job.state == state
    recount(site.yard)


def test_a_beanstalk_job_is_never_kept_whatever_door_completes_it() -> None:
    site = OpenYard(MemoryStorage())
    job = site.run(site.put())
    complete(site.yard, job, b"r", MSGPACK, 1, site.now_ms)
    assert job.state == GONE
    recount(site.yard)


def test_a_failed_job_is_tried_again_after_a_wait_until_its_attempts_are_used() -> None:
    site = OpenYard(MemoryStorage())
    job = site.enter(policy=policy(max_attempts=3))
    waits = []
    for attempt in (1, 2):
        site.run(job)
        fail(site.yard, job, "no", site.now_ms)
        assert (job.state, job.attempts) == (DELAYED, attempt)
        waits.append(int(job.due_ms) - site.now_ms)
        site.jump(waits[-1])
        assert job.state == READY
    assert waits == [backoff_ms(job.policy, job.id, attempt) for attempt in (1, 2)]
    site.run(job)
    fail(site.yard, job, "no more", site.now_ms, stack="at line 1")
    outcome = job.outcome()
    assert (job.state, job.attempts, outcome.reason) == (DEAD, 3, FailureReason.ATTEMPTS_USED)
    assert (outcome.error, job.ensure_details().stack) == ("no more", "at line 1")
    assert failures(job) == [
        (1, FailureReason.EXPLICIT, "no"),
        (2, FailureReason.EXPLICIT, "no"),
        (3, FailureReason.EXPLICIT, "no more"),
    ]
    recount(site.yard)


def test_a_failure_may_say_how_long_to_wait() -> None:
    site = OpenYard()
    job = site.run(site.enter())
    fail(site.yard, job, "no", site.now_ms, delay_ms=77)
    assert (job.state, job.due_ms) == (DELAYED, NOW_MS + 77)
    site.jump(77)
    site.run(job)
    fail(site.yard, job, "no", site.now_ms, delay_ms=0)
    assert job.state == READY


def test_a_job_that_is_tried_again_at_once_goes_to_the_end_of_the_line() -> None:
    site = OpenYard()
    jobs = [site.enter(policy=policy(backoff_ms=0)) for _ in range(2)]
    fail(site.yard, site.run(jobs[0]), "no", site.now_ms)
    lease = site.pull()
    assert lease is not None
    assert lease.job is jobs[1]


def test_a_final_failure_uses_no_more_attempts() -> None:
    site = OpenYard()
    job = site.run(site.enter(policy=policy(max_attempts=9)))
    fail(site.yard, job, "never", site.now_ms, is_final=True)
    assert (job.state, job.attempts, job.outcome().reason) == (DEAD, 1, FailureReason.EXPLICIT)


def test_a_job_asked_to_go_when_it_fails_is_gone() -> None:
    site = OpenYard(MemoryStorage())
    job = site.run(site.enter(policy=policy(max_attempts=1, flags=REMOVE_DEAD)))
    fail(site.yard, job, "no", site.now_ms)
    assert job.state == GONE
    recount(site.yard)


def test_of_the_dead_no_more_are_kept_than_was_asked_for() -> None:
    site = OpenYard(MemoryStorage())
    settings = Settings()
    settings.dead_max = 2
    set_settings(site.yard, site.queue(), settings, site.now_ms)
    jobs = [site.enter(policy=policy(max_attempts=1)) for _ in range(4)]
    for job in jobs:
        fail(site.yard, site.run(job), "no", site.now_ms)
    assert buried(site.queue()) == [3, 4]
    recount(site.yard)


def test_a_buried_job_of_the_other_family_has_failed() -> None:
    site = OpenYard()
    job = site.run(site.enter(policy=policy(max_attempts=9)))
    bury(site.yard, job, 5, site.now_ms)
    assert (job.state, job.outcome().error) == (DEAD, "buried")


def test_a_holder_not_heard_of_stalls_its_job() -> None:
    site = OpenYard(MemoryStorage())
    job = site.run(site.enter())
    site.jump(2999)
    assert job.lease is not None
    for stalls in (1, 2):
        site.jump(3000)
        assert (job.state, job.attempts, job.counters().stalls) == (READY, stalls, stalls)
        site.run(job)
    site.jump(3000)
    assert (job.state, job.outcome().reason) == (DEAD, FailureReason.STALLED)
    assert failures(job) == [(number, FailureReason.STALLED, "Job stalled") for number in (1, 2, 3)]
    recount(site.yard)


def test_a_stall_on_the_last_attempt_is_the_end_of_the_job() -> None:
    site = OpenYard()
    job = site.run(site.enter(policy=policy(max_attempts=1)))
    site.jump(3000)
    assert (job.state, job.outcome().reason) == (DEAD, FailureReason.ATTEMPTS_USED)


def test_a_run_ends_at_its_timeout_however_often_its_holder_is_heard_of() -> None:
    site = OpenYard(MemoryStorage())
    job = site.run(site.enter(policy=policy(timeout_ms=5000, max_attempts=1)))
    lease = job.lease
    assert lease is not None
    for _ in range(4):
        site.jump(1000)
        touch(site.yard, lease, 3000, site.now_ms)
    site.jump(999)
    assert job.lease is lease
    site.jump(1)
    assert (job.state, job.outcome().reason) == (DEAD, FailureReason.TIMED_OUT)
    assert job.outcome().error == "Job timeout exceeded"
    recount(site.yard)


def test_a_run_given_back_was_none() -> None:
    site = OpenYard(MemoryStorage())
    job = site.run(site.enter())
    give_back(site.yard, job, site.now_ms)
    assert (job.state, job.attempts, failures(job)) == (READY, 0, [])
    recount(site.yard)


def test_leases_that_others_renew_by_token_outlive_their_holder() -> None:
    site = OpenYard()
    mine, renewed = site.run(site.enter()), site.run(site.enter())
    assert renewed.lease is not None
    renewed.lease.is_renewed = True
    orphans = site.connect().lease_set
    drop_holder(site.yard, site.lease_set, orphans, site.now_ms)
    assert (mine.state, renewed.lease.lease_set) == (READY, orphans)
    recount(site.yard)
    site.jump(3000)
    assert (renewed.state, renewed.counters().stalls) == (READY, 1)
