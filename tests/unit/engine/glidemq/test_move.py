import pytest

from jobyard.engine.glidemq.add import entry_of, find, id_of, state_of
from jobyard.engine.glidemq.finish import Keep, defer
from jobyard.engine.glidemq.move import (
    copy_part,
    next_due,
    promote_due,
    promote_job,
    remove,
    revoke,
    set_delay,
    set_fields,
    set_labels,
    set_priority,
    unstage,
)
from jobyard.engine.jobs.take import take
from jobyard.errors import NotFound
from jobyard.model.job import DEAD, GONE, Job
from jobyard.model.throttle.ready_lists import ReadyList
from jobyard.protocols.beanstalk.door import TERMS
from tests.support.engine.glides import GlideYard
from tests.support.engine.many_glides import clean, drain, retry_jobs
from tests.support.site.recount import recount
from tests.support.site.site import NOW_MS


def again(place: GlideYard, job: Job) -> Job:
    place.restart()
    found = place.site.yard.jobs.get(job.id)
    assert found is not None
    return found


def test_the_next_job_that_is_due() -> None:
    place = GlideYard()
    queue = place.site.queue()
    assert next_due(queue) == -1
    place.add(delay_ms=70)
    assert next_due(queue) == NOW_MS + 70
    place.add(priority=1)
    assert next_due(queue) == 0


def test_who_reads_the_stream_alone_gets_what_nobody_promotes() -> None:
    place = GlideYard()
    place.add(priority=2)
    place.add(delay_ms=50)
    place.tick(50)
    place.add(priority=1)
    place.tick(4960)
    yard, queue = place.site.yard, place.site.queue()
    assert unstage(yard, queue, place.now_ms - 5000, place.now_ms, 99) == 1
    place.tick(40)
    assert unstage(yard, queue, place.now_ms - 5000, place.now_ms, 1) == 1
    recount(yard)
    place.restart()
    # By rank: the stream is one line for all doors.
    assert place.taken() == ["2", "1"]
    assert place.states()["3"] == "prioritized"


def test_a_delayed_job_is_promoted_before_its_time() -> None:
    place = GlideYard()
    yard = place.site.yard
    late = place.add(delay_ms=1000)
    for other in (place.add(), place.add(priority=1)):
        with pytest.raises(NotFound):
            promote_job(yard, other, place.now_ms)
    promote_job(yard, late, place.now_ms)
    recount(yard)
    late = again(place, late)
    assert state_of(late) == "waiting"
    assert place.taken() == ["2", "1"]


def test_another_priority_stages_a_job_and_none_puts_it_into_the_stream() -> None:
    place = GlideYard()
    job = place.add()
    set_priority(place.site.yard, job, 5, place.now_ms)
    job = again(place, job)
    assert (state_of(job), job.rank, job.ready_list) == ("prioritized", 5, ReadyList.STAGED)
    set_priority(place.site.yard, job, 7, place.now_ms)
    job = again(place, job)
    assert (state_of(job), job.rank, job.ready_list) == ("prioritized", 7, ReadyList.STAGED)
    set_priority(place.site.yard, job, 0, place.now_ms)
    job = again(place, job)
    assert (state_of(job), job.rank, job.ready_list) == ("waiting", 0, ReadyList.STREAM)
    late = place.add(delay_ms=50)
    set_priority(place.site.yard, late, 2, place.now_ms)
    late = again(place, late)
    assert (state_of(late), late.rank) == ("delayed", 2)
    place.tick(50)
    place.promote()
    assert place.pop(ReadyList.PROMOTED) == ["2"]


def test_what_was_promoted_stacked_or_taken_keeps_its_priority_and_delay() -> None:
    place = GlideYard()
    yard = place.site.yard
    jobs = [place.add(priority=1), place.add(is_lifo=True), place.add()]
    place.promote()
    place.take()
    for job in jobs:
        with pytest.raises(NotFound):
            set_priority(yard, job, 4, place.now_ms)
        with pytest.raises(NotFound):
            set_delay(yard, job, 4, place.now_ms)


def test_another_delay() -> None:
    place = GlideYard()
    job = place.add()
    set_delay(place.site.yard, job, 100, place.now_ms)
    job = again(place, job)
    assert (state_of(job), place.taken()) == ("delayed", [])
    set_delay(place.site.yard, job, 0, place.now_ms)
    job = again(place, job)
    assert state_of(job) == "waiting"
    ranked = place.add(priority=3, delay_ms=10)
    set_delay(place.site.yard, ranked, 0, place.now_ms)
    ranked = again(place, ranked)
    assert state_of(ranked) == "prioritized"
    stacked = place.add(is_lifo=True, delay_ms=10)
    set_delay(place.site.yard, stacked, 0, place.now_ms)
    again(place, stacked)
    assert place.pop(ReadyList.LIFO) == ["3"]


def test_a_job_is_given_back_now_or_later_without_an_attempt() -> None:
    place = GlideYard()
    jobs = [place.add() for _ in range(2)]
    place.take(1)
    entry = entry_of(jobs[0])
    defer(place.site.yard, jobs[0], entry, 0, place.now_ms)
    recount(place.site.yard)
    assert entry_of(jobs[0]) != entry
    assert place.taken() == ["2", "1"]
    defer(place.site.yard, jobs[0], entry_of(jobs[0]), 30, place.now_ms)
    recount(place.site.yard)
    assert (state_of(jobs[0]), jobs[0].attempts) == ("delayed", 0)
    place.restart()


def test_removal() -> None:
    place = GlideYard()
    site = place.site
    jobs = [place.add(custom_id="a"), place.add(), place.add(priority=1), place.add(is_lifo=True)]
    take(site.yard, [site.queue()], site.lease_set, TERMS, site.now_ms)
    assert jobs[3].lease is not None
    with pytest.raises(NotFound):
        remove(site.yard, jobs[3], site.now_ms)
    place.take(1)
    for job in jobs[:3]:
        remove(site.yard, job, site.now_ms)
        recount(site.yard)
        assert job.state == GONE
    assert find(site.yard, site.queue(), "a") is None
    place.restart()
    assert place.states() == {"4": "waiting"}


def test_what_waits_is_revoked_and_what_runs_is_marked() -> None:
    place = GlideYard()
    waiting, running = place.add(delay_ms=9), place.add()
    place.take()
    assert revoke(place.site.yard, waiting, place.now_ms)
    assert not revoke(place.site.yard, running, place.now_ms)
    recount(place.site.yard)
    place.restart()
    jobs = place.site.yard.jobs.all()
    assert [copy_part(job).flags for job in jobs] == [1, 1]
    assert (jobs[0].state, jobs[0].outcome().error) == (DEAD, "revoked")


def test_fields_of_ones_own_are_remembered_one_by_one() -> None:
    place = GlideYard()
    job = place.add()
    set_fields(place.site.yard, job, {b"a": b"1", b"b": b"\xff\x00"})
    job = again(place, job)
    set_fields(place.site.yard, job, {b"a": None, b"c": b""})
    for step in (again, again):
        job = step(place, job)
        assert job.details is not None
        assert job.details.glide is not None
        assert job.details.glide.overlay == {b"b": b"\xff\x00", b"c": b""}
        place.compact()
    set_fields(place.site.yard, job, {b"b": None, b"c": None})
    job = again(place, job)
    assert job.details is not None
    assert job.details.glide is not None
    assert job.details.glide.overlay is None


def test_labels_are_replaced_together() -> None:
    place = GlideYard()
    job = place.add(ordering="a", scheduler="nightly", parent_id="9", parent_queue="up")
    part = copy_part(job)
    part.parent_ids = '["1","2"]'
    part.parent_queues = '["q","r"]'
    set_labels(place.site.yard, job, part)
    recount(place.site.yard)
    part = copy_part(again(place, job))
    assert (part.parent_ids, part.parent_queues) == ('["1","2"]', '["q","r"]')
    assert (part.parent_id, part.parent_queue) == ("9", "up")
    assert (part.scheduler, part.ordering_key, part.order) == ("nightly", "a", 1)


def test_failed_jobs_come_back_staged_and_with_all_their_attempts() -> None:
    place = GlideYard()
    jobs = [place.add() for _ in range(3)]
    place.take()
    for job in jobs:
        place.fail(job)
    queue = place.site.queue()
    assert [id_of(job) for job in retry_jobs(place.site.yard, queue, 2, place.now_ms)] == ["1", "2"]
    recount(place.site.yard)
    assert (state_of(jobs[0]), jobs[0].attempts, state_of(jobs[2])) == ("delayed", 0, "failed")
    place.restart()
    assert (place.promote(), place.taken()) == (2, ["1", "2"])
    assert len(retry_jobs(place.site.yard, place.site.queue(), 0, place.now_ms)) == 1


def test_jobs_at_rest_are_cleaned_by_age_oldest_first() -> None:
    place = GlideYard()
    jobs = [place.add() for _ in range(4)]
    place.take()
    for job in jobs[:3]:
        place.complete(job)
        place.tick(10)
    place.fail(jobs[3])
    queue = place.site.queue()
    yard = place.site.yard
    cleaned = clean(yard, queue, queue.done, place.now_ms - 20, 1, place.now_ms)
    assert [id_of(job) for job in cleaned] == ["1"]
    cleaned = clean(yard, queue, queue.done, place.now_ms - 20, 0, place.now_ms)
    assert [id_of(job) for job in cleaned] == ["2"]
    recount(yard)
    assert place.states() == {"3": "completed", "4": "failed"}


def test_draining_spares_the_schedule_unless_asked() -> None:
    place = GlideYard()
    place.add()
    place.add(is_lifo=True)
    place.add(priority=1)
    place.add(delay_ms=5)
    place.add(ordering="a")
    place.add(ordering="a")
    place.add()
    place.take(1)
    queue = place.site.queue()
    yard = place.site.yard
    drained = drain(yard, queue, place.now_ms, with_delayed=False)
    assert [id_of(job) for job in drained] == ["2", "5", "6", "7"]
    recount(yard)
    drained = drain(yard, queue, place.now_ms, with_delayed=True)
    assert [id_of(job) for job in drained] == ["3", "4"]
    recount(yard)
    assert place.states() == {"1": "active"}


def test_only_so_many_ended_jobs_are_kept() -> None:
    place = GlideYard()
    site = place.site
    foreign = site.enter(b"other")
    jobs = [place.add() for _ in range(6)]
    leases = place.take()
    assert len(leases) == 7
    place.complete(foreign)
    for job in jobs[:4]:
        place.complete(job, keep=Keep(count=3))
    assert place.states() == {
        "1": "completed",
        "3": "completed",
        "4": "completed",
        "5": "completed",
        "6": "active",
        "7": "active",
    }
    place.tick(1000)
    place.complete(jobs[4], keep=Keep(age_ms=500))
    assert sorted(place.states()) == ["1", "6", "7"]
    place.complete(jobs[5], keep=Keep(is_kept=False))
    assert sorted(place.states()) == ["1", "6"]
    place.restart()


def test_failed_jobs_may_go_at_once() -> None:
    place = GlideYard()
    jobs = [place.add() for _ in range(3)]
    place.take()
    assert place.fail(jobs[0], keep=Keep(is_kept=False)) == "failed"
    assert place.fail(jobs[1], keep=Keep(count=0)) == "failed"
    assert place.fail(jobs[2], keep=Keep(count=1)) == "failed"
    assert place.states() == {"3": "failed"}


def test_a_call_does_not_go_over_all_that_came_due_at_once() -> None:
    place = GlideYard()
    for _ in range(30):
        place.add(delay_ms=100)
    yard, queue = place.site.yard, place.site.queue()
    assert promote_due(yard, queue, place.now_ms + 100, 1) == 1
    assert len(queue.delayed.items) == 20
    recount(yard)
    assert promote_due(yard, queue, place.now_ms + 100, 99) == 29
