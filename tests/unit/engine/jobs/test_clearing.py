"""Many jobs removed in slices, while other clients are served."""

from jobyard.engine.jobs.clearing import EndedJobsTask, RemovalTask, ReviveEnded
from jobyard.engine.jobs.finish import bury
from jobyard.engine.jobs.listing import SORTED_AT_ONCE, JobSelection, jobs_by_seq_of
from jobyard.engine.jobs.obliterate import condemn
from jobyard.engine.jobs.queues import hold_user
from jobyard.model.index.job_table import IDS_PER_PAGE
from jobyard.model.job import DELAYED, GONE, LEASED, READY
from tests.support.site.recount import recount
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard

WAITING = JobSelection(frozenset((READY,)))


def begun(site: OpenYard) -> RemovalTask:
    """A clearing of the default queue, a slice of it done."""
    site.yard.tasks.units_per_turn = 300
    clearing = RemovalTask(site.yard, site.queue(), WAITING)
    site.yard.tasks.proceed(site.now_ms)
    assert not site.yard.tasks.begin(clearing, None, site.now_ms)
    return clearing


def finish(site: OpenYard) -> None:
    """Run everything in progress to its end."""
    while site.yard.tasks.proceed(site.now_ms):
        pass


def test_a_slice_touches_no_more_than_its_share() -> None:
    for count in (SORTED_AT_ONCE // 4, SORTED_AT_ONCE + 500):
        site = OpenYard()
        for _ in range(count):
            site.put()
        begun(site)
        before = count
        while site.yard.tasks.proceed(site.now_ms):
            assert before - site.yard.ready_count <= 300 // 4
            before = int(site.yard.ready_count)
        assert site.yard.ready_count == 0


def test_what_comes_or_is_taken_meanwhile_stays() -> None:
    for count in (SORTED_AT_ONCE // 4, SORTED_AT_ONCE + 500):
        site = OpenYard(MemoryStorage())
        old = [site.put() for _ in range(count)]
        other = site.put(queue="other")
        later = site.put(delay_ms=1000)
        clearing = begun(site)
        taken = site.take(site.lease_set)
        new = [site.put(rank=at % 3) for at in range(100)]
        finish(site)
        assert taken.job.state == LEASED
        assert [job.state for job in (*new, other)] == [READY] * 101
        assert later.state == DELAYED
        assert {int(job.state) for job in old if job is not taken.job} == {GONE}
        assert clearing.count == count - 1
        recount(site.yard)


def test_a_clearing_cut_short_by_a_crash_has_removed_what_its_slices_did() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    for _ in range(SORTED_AT_ONCE + 500):
        site.put()
    begun(site)
    site.yard.tasks.proceed(site.now_ms)
    left = int(site.yard.ready_count)
    assert 0 < left < SORTED_AT_ONCE + 500
    site.commit()
    again = OpenYard(storage.cut_off(), site.now_ms)
    assert again.yard.ready_count == left


def test_jobs_that_stayed_behind_others_are_found_too() -> None:
    site = OpenYard()
    for at in range(3 * IDS_PER_PAGE):
        site.put(queue="default" if at % 100 == 0 else "other")
    for job in site.yard.jobs.all():
        if job.queue.name == "other" and job.id < 2 * IDS_PER_PAGE:
            site.yard.drop(job, site.now_ms)
    for _ in range(SORTED_AT_ONCE + IDS_PER_PAGE):
        site.put()
    assert site.yard.jobs.numbers()[0] == 0
    begun(site)
    finish(site)
    assert site.queue().jobs_count() == 0
    recount(site.yard)


def test_clearing_leaves_a_queue_alone_that_was_emptied_and_created_again() -> None:
    site = OpenYard()
    for _ in range(1000):
        site.put()
    begun(site)
    for job in site.yard.jobs.all():
        site.yard.drop(job, site.now_ms)
    queue = site.queue()
    site.connect().say(b"delete 1\r\n")
    del site.yard.queues["default"]
    site.put()
    assert site.yard.queues["default"] is not queue
    finish(site)
    assert site.yard.ready_count == 1


def test_a_queue_that_others_emptied_at_once_is_left_alone() -> None:
    for count in (SORTED_AT_ONCE // 4, SORTED_AT_ONCE + 500):
        site = OpenYard(MemoryStorage())
        for _ in range(count):
            site.put()
        hold_user(site.queue())
        begun(site)
        condemn(site.yard, site.queue())
        new = site.put()
        finish(site)
        assert new.state == READY
        assert site.yard.ready_count == 1
        recount(site.yard)


def test_jobs_at_rest_of_a_queue_that_others_emptied_at_once_are_left_alone() -> None:
    site = OpenYard(MemoryStorage())
    for _ in range(400):
        bury(site.yard, site.run(site.put()), 0, site.now_ms)
    hold_user(site.queue())
    site.yard.tasks.units_per_turn = 300
    site.yard.tasks.proceed(site.now_ms)
    work = EndedJobsTask(site.queue().dead, lambda _: True, 0, 1000, ReviveEnded(site.yard))
    assert not site.yard.tasks.begin(work, None, site.now_ms)
    done = int(work.count)
    condemn(site.yard, site.queue())
    finish(site)
    assert work.count == done
    assert site.yard.jobs.count == 0
    recount(site.yard)


def test_the_list_of_the_jobs_of_a_queue_is_freed_over_turns() -> None:
    site = OpenYard()
    for _ in range(SORTED_AT_ONCE):
        site.put()
    jobs_by_seq = jobs_by_seq_of(site.queue())
    hold_user(site.queue())
    condemn(site.yard, site.queue())
    assert len(jobs_by_seq.after(0, SORTED_AT_ONCE)) == SORTED_AT_ONCE
    finish(site)
    assert not jobs_by_seq.unload()
    recount(site.yard)
