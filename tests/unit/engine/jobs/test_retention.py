"""Ended jobs that expire: by age, by number, and those that are retried."""

from jobyard.engine.jobs.finish import KEEP_AS_ASKED, complete, fail
from jobyard.engine.jobs.finish import bury as bury_plainly
from jobyard.engine.jobs.move import kick_job, remove
from jobyard.engine.jobs.queues import copy_settings, set_settings
from jobyard.engine.jobs.retention import (
    DONE_AGE_MS,
    GAP_MS,
    LOOK_MAX,
    RING_MAX,
    RetentionAlarm,
    watch,
)
from jobyard.engine.jobs.tick import tick
from jobyard.model.job import DEAD, DONE, GONE, READY, Job
from jobyard.model.limits import FULL_WAIT_MS
from jobyard.model.policy import PLAIN, REMOVE_DEAD, REMOVE_DONE, Policy
from jobyard.model.throttle.settings import DAY_MS
from tests.support.site.recount import recount
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard


def stand(storage: MemoryStorage | None = None, **changes: int) -> OpenYard:
    """Return a yard with retention, with changed settings for its one queue."""
    site = OpenYard(storage)
    watch(site.yard, site.now_ms)
    queue = site.queue("q")
    settings = copy_settings(queue)
    for name, value in changes.items():
        assert hasattr(settings, name)
        setattr(settings, name, value)
    set_settings(site.yard, queue, settings, site.now_ms)
    return site


def bury(site: OpenYard) -> Job:
    """Put a bunqueue job and let it die."""
    job = site.run(site.enter(queue="q"))
    fail(site.yard, job, "no", site.now_ms, is_final=True)
    assert job.state == DEAD
    return job


def finish(site: OpenYard, policy: Policy | None = None) -> Job:
    """Put a bunqueue job and complete it."""
    job = site.run(site.enter(queue="q", policy=PLAIN if policy is None else policy))
    complete(site.yard, job, b"\xc0", 1, KEEP_AS_ASKED, site.now_ms)
    return job


def timers(site: OpenYard) -> int:
    """Return how many alarms of ended jobs there are."""
    return sum(isinstance(item, RetentionAlarm) for item in site.yard.timers.items)


def test_a_dead_job_goes_at_its_age() -> None:
    site = stand(dead_age_ms=500)
    job = bury(site)
    site.jump(499)
    assert job.state == DEAD
    site.jump(1)
    assert job.state == GONE
    recount(site.yard)


def test_a_dead_job_goes_after_a_week_where_nothing_is_set() -> None:
    site = stand()
    job = bury(site)
    site.jump(7 * DAY_MS - 1)
    assert job.state == DEAD
    site.jump(1)
    assert job.state == GONE
    assert timers(site) == 0
    assert "q" not in site.yard.queues


def test_a_dead_job_may_stay_for_ever() -> None:
    site = stand(dead_age_ms=-1)
    job = bury(site)
    assert timers(site) == 0
    site.jump(1000 * DAY_MS)
    assert job.state == DEAD


def test_a_done_job_goes_after_a_week() -> None:
    site = stand()
    first = finish(site)
    site.jump(1000)
    second = finish(site)
    site.jump(DONE_AGE_MS - 1000)
    assert (first.state, second.state) == (GONE, DONE)
    site.jump(1000)
    assert second.state == GONE
    recount(site.yard)


def test_jobs_of_beanstalk_stay() -> None:
    site = stand(dead_age_ms=500, dead_max=1)
    client = site.connect()
    number = site.put(queue="q").id
    client.say(b"watch q\r\n")
    client.say(b"reserve\r\n")
    assert client.say(b"bury %d 0\r\n" % number) == b"BURIED\r\n"
    other = bury(site)
    assert other.state == DEAD
    site.jump(1000)
    assert other.state == GONE
    job = site.yard.jobs.get(number)
    assert job is not None
    assert job.state == DEAD


def test_more_than_the_greatest_number_are_not_kept() -> None:
    site = stand()
    jobs = [bury(site) for _ in range(5)]
    settings = copy_settings(site.queue("q"))
    settings.dead_max = 2
    set_settings(site.yard, site.queue("q"), settings, site.now_ms)
    jobs.append(bury(site))
    site.jump(GAP_MS)
    assert [job.state for job in jobs] == [GONE] * 4 + [DEAD] * 2
    recount(site.yard)


def test_jobs_of_beanstalk_take_nobody_s_place() -> None:
    site = stand(dead_max=2)
    client = site.connect()
    client.say(b"watch q\r\n")
    for turn in range(4):
        if turn != 2:
            number = site.put(queue="q").id
            client.say(b"reserve-job %d\r\n" % number)
            assert client.say(b"bury %d 0\r\n" % number) == b"BURIED\r\n"
        assert bury(site).state == DEAD
        assert site.queue("q").perishable_count == min(turn + 1, 2)
        recount(site.yard)
    assert site.yard.dead_count == 5
    site.jump(GAP_MS)
    assert site.yard.dead_count == 5


def test_many_go_in_slices() -> None:
    site = stand(dead_age_ms=500)
    for _ in range(RING_MAX + 10):
        bury(site)
    site.jump(500)
    assert site.yard.dead_count == 10
    site.jump(GAP_MS)
    assert site.yard.dead_count == 0
    recount(site.yard)


def test_a_dead_job_is_tried_again_after_twice_as_long_each_time() -> None:
    site = stand(dead_auto_retry=True, dead_retry_ms=1000, dead_retries_max=2)
    job = bury(site)
    for wait_ms in (1000, 2000):
        site.jump(wait_ms - 1)
        assert job.state == DEAD
        site.jump(1)
        assert (job.state, job.attempts) == (READY, 0)
        site.run(job)
        fail(site.yard, job, "again", site.now_ms, is_final=True)
    site.jump(100_000)
    assert job.state == DEAD
    assert job.ensure_details().retries == 2
    recount(site.yard)


def test_a_retry_waits_for_room_on_the_disk() -> None:
    storage = MemoryStorage()
    site = stand(storage, dead_auto_retry=True, dead_retry_ms=1000, dead_retries_max=1)
    job = bury(site)
    site.commit()
    storage.capacity = storage.used()
    # No file of the journal has room for the whole of it any more.
    job.ensure_details().protocol_fields = b"x" * site.journal.segment_size
    site.jump(1000)
    assert job.state == DEAD
    storage.capacity = None
    site.jump(FULL_WAIT_MS)
    assert job.state == READY


def test_what_is_due_waits_for_room_on_the_disk() -> None:
    storage = MemoryStorage()
    site = stand(storage, dead_age_ms=500)
    job = bury(site)
    storage.capacity = 0
    site.journal.spares.clear()
    before = -1
    while site.journal.records_count != before:
        before = site.journal.records_count
        site.journal.append_clean()
    assert site.jump(500) == site.now_ms + FULL_WAIT_MS
    assert job.state == DEAD
    storage.capacity = None
    site.jump(FULL_WAIT_MS)
    assert job.state == GONE
    recount(site.yard)


def test_a_job_that_was_kicked_is_forgotten_by_its_alarm() -> None:
    site = stand(dead_age_ms=500)
    job = bury(site)
    kick_job(site.yard, job.id, site.now_ms)
    site.jump(1000)
    assert job.state == READY
    assert timers(site) == 0


def test_an_alarm_goes_with_its_queue() -> None:
    site = stand()
    job = finish(site)
    assert timers(site) == 1
    remove(site.yard, job, site.now_ms)
    assert timers(site) == 0
    assert "q" not in site.yard.queues


def test_a_restart_sets_the_alarms_again() -> None:
    storage = MemoryStorage()
    site = stand(storage, dead_age_ms=5000)
    job_id = bury(site).id
    site.commit()
    again = OpenYard(storage.killed(), site.now_ms + 1000)
    watch(again.yard, again.now_ms)
    again.jump(3900)
    assert again.yard.jobs.get(job_id) is not None
    again.jump(200)
    assert again.yard.jobs.get(job_id) is None
    recount(again.yard)


def test_ends_are_counted_whether_jobs_are_kept_or_not() -> None:
    site = stand()
    removed = Policy(0)
    removed.flags = REMOVE_DONE | REMOVE_DEAD
    finish(site)
    finish(site, removed)
    bury(site)
    job = site.run(site.enter(queue="q", policy=removed))
    fail(site.yard, job, "no", site.now_ms, is_final=True)
    assert job.state == GONE
    minute_counters = site.yard.minute_counters["q"]
    assert (minute_counters.done.total, minute_counters.failed.total) == (2, 2)


def test_jobs_of_beanstalk_are_not_counted() -> None:
    site = stand()
    client = site.connect()
    number = site.put(queue="q").id
    client.say(b"watch q\r\n")
    client.say(b"reserve\r\n")
    assert client.say(b"delete %d\r\n" % number) == b"DELETED\r\n"
    assert site.yard.minute_counters == {}


def test_one_alarm_checks_a_few_jobs_and_the_next_continues_behind_them() -> None:
    site = stand(dead_age_ms=500)
    for _ in range(LOOK_MAX):
        bury_plainly(site.yard, site.run(site.put(queue="q")), 0, site.now_ms)
    job = bury(site)
    while site.yard.timers.items[0].sort_key <= site.now_ms:
        tick(site.yard, site.now_ms)
    site.now_ms += 500
    tick(site.yard, site.now_ms)
    assert job.state == DEAD
    site.jump(2 * GAP_MS)
    assert job.state == GONE
    assert timers(site) == 0
    recount(site.yard)
