from jobyard.engine.glidemq.add import entry_of, id_of, state_of
from jobyard.engine.glidemq.finish import defer
from jobyard.engine.glidemq.flows import Child, add_flow
from jobyard.engine.glidemq.move import close_ordering, hold_back, next_due, remove, revoke
from jobyard.engine.glidemq.take import ACTIVE, IS_BUSY, activate
from jobyard.engine.jobs.finish import finish
from jobyard.engine.jobs.take import take, take_job
from jobyard.model.job import Job
from jobyard.model.throttle.ordering_group import OrderingGroup, ordering_of
from jobyard.model.throttle.ready_lists import ReadyList
from jobyard.protocols.beanstalk.door import TERMS
from tests.support.engine.glides import GlideYard
from tests.support.engine.many_glides import retry_jobs
from tests.support.site.recount import recount
from tests.support.site.site import NOW_MS


def job_of(place: GlideYard, name: int) -> Job:
    job = place.site.yard.jobs.get(name)
    assert job is not None
    return job


def group_of(job: Job) -> OrderingGroup:
    ordering = ordering_of(job.details)
    assert ordering is not None
    return ordering


def test_jobs_of_one_key_run_one_by_one_in_order() -> None:
    place = GlideYard()
    for _ in range(3):
        place.add(ordering="a")
    place.add(ordering="b")
    place.add()
    assert place.taken() == ["1", "4", "5"]
    assert place.states()["2"] == "group-waiting"
    place.complete(job_of(place, 1))
    place.restart()
    # What ran comes back, and keeps its turn.
    assert place.taken() == ["2", "4", "5"]
    assert place.states()["3"] == "group-waiting"


def test_a_restart_keeps_the_turn_of_what_had_started() -> None:
    place = GlideYard()
    for _ in range(3):
        place.add(ordering="a")
    assert place.taken() == ["1"]
    place.restart()
    assert place.taken() == ["1"]
    place.complete(job_of(place, 1))
    assert place.taken() == ["2"]
    place.restart()
    assert place.taken() == ["2"]
    place.complete(job_of(place, 2))
    place.restart()
    assert place.taken() == ["3"]


def test_a_job_keeps_its_turn_through_retries_and_delays() -> None:
    place = GlideYard()
    for _ in range(2):
        place.add(ordering="a", max_attempts=3)
    place.take()
    job = job_of(place, 1)
    assert place.fail(job, most=3, backoff_ms=100) == "retrying"
    assert place.taken() == []
    place.restart()
    assert place.taken() == []
    place.tick(100)
    place.promote()
    assert place.taken() == ["1"]
    job = job_of(place, 1)
    assert place.fail(job, most=2) == "failed"
    assert place.taken() == ["2"]


def test_one_by_one_a_delayed_job_holds_up_those_behind_it() -> None:
    place = GlideYard()
    first = place.add(ordering="a", delay_ms=100)
    place.add(ordering="a")
    assert place.taken() == []
    place.restart()
    assert place.taken() == []
    place.tick(100)
    place.promote()
    assert place.taken() == ["1"]
    first = job_of(place, 1)
    place.complete(first)
    assert place.taken() == ["2"]


def test_a_removed_job_leaves_no_gap() -> None:
    place = GlideYard()
    jobs = [place.add(ordering="a", delay_ms=delay_ms) for delay_ms in (100, 0, 0)]
    remove(place.site.yard, jobs[0], place.now_ms)
    recount(place.site.yard)
    assert place.taken() == ["2"]
    remove(place.site.yard, jobs[1], place.now_ms)
    assert place.taken() == ["3"]
    remove(place.site.yard, jobs[2], place.now_ms)
    recount(place.site.yard)


def test_many_of_a_key_run_at_once_and_a_delay_holds_up_nobody() -> None:
    place = GlideYard()
    place.add(ordering="a", concurrency=2, delay_ms=100)
    for _ in range(4):
        place.add(ordering="a", concurrency=2)
    assert place.taken() == ["2", "3"]
    assert place.taken() == []
    place.complete(job_of(place, 2))
    assert place.taken() == ["4"]
    # The newest job sets how many.
    place.add(ordering="a", concurrency=4)
    assert place.taken() == ["5", "6"]
    place.restart()
    assert place.taken() == ["3", "4", "5", "6"]


def test_so_many_start_in_so_much_time() -> None:
    place = GlideYard()
    for _ in range(5):
        place.add(ordering="a", concurrency=9, rate_max=2, rate_ms=1000)
    assert place.taken() == ["1", "2"]
    assert place.states()["3"] == "group-waiting"
    assert next_due(place.site.queue()) == NOW_MS + 1000
    place.tick(999)
    assert place.taken() == []
    place.tick(1)
    assert place.taken() == ["3", "4"]
    place.restart()
    # Those that had started continue; for others the window starts again.
    assert place.taken() == ["1", "2", "3", "4"]
    place.tick(999)
    assert place.taken() == []
    place.tick(1)
    assert place.taken() == ["5"]


def test_a_bucket_lets_through_what_it_holds() -> None:
    place = GlideYard()
    for cost in (0, 2500, 1000, 1000):
        place.add(ordering="a", concurrency=9, tb_capacity=3000, tb_refill=1000, cost=cost)
    assert place.taken() == ["1"]
    place.tick(499)
    assert place.taken() == []
    place.tick(1)
    assert place.taken() == ["2"]
    assert group_of(job_of(place, 2)).tokens(place.now_ms) == 0
    place.tick(1500)
    assert place.taken() == ["3"]
    place.restart()
    # Empty again: what flowed in is not remembered.
    place.tick(999)
    assert "4" not in place.taken()
    place.tick(1)
    assert place.taken() == ["4"]


def test_a_bucket_that_nothing_flows_into_is_never_full_again() -> None:
    place = GlideYard()
    for _ in range(3):
        place.add(ordering="a", concurrency=9, tb_capacity=2000)
    assert place.taken() == ["1", "2"]
    place.tick(1_000_000)
    assert (place.taken(), next_due(place.site.queue())) == ([], -1)


def test_parts_of_a_token_are_not_lost() -> None:
    place = GlideYard()
    place.add(ordering="a", concurrency=99, tb_capacity=1000, tb_refill=333)
    assert place.taken() == ["1"]
    ordering = group_of(job_of(place, 1))
    for _ in range(3000):
        place.site.now_ms += 1
        ordering.tokens(place.now_ms)
    assert ordering.tokens(place.now_ms) == 999


def test_other_doors_keep_to_the_order() -> None:
    place = GlideYard()
    site = place.site
    for _ in range(2):
        place.add(ordering="a")
    lease = take(site.yard, [site.queue()], site.lease_set, TERMS, site.now_ms)
    assert lease is not None
    assert take(site.yard, [site.queue()], site.lease_set, TERMS, site.now_ms) is None
    recount(site.yard)
    finish(site.yard, lease.job, site.now_ms)
    lease = take(site.yard, [site.queue()], site.lease_set, TERMS, site.now_ms)
    assert lease is not None
    assert id_of(lease.job) == "2"


def test_a_job_taken_by_its_name_passes_the_others() -> None:
    place = GlideYard()
    jobs = [place.add(ordering="a") for _ in range(3)]
    site = place.site
    take_job(site.yard, jobs[1].id, site.lease_set, TERMS, site.now_ms)
    recount(site.yard)
    # It runs, so the ordering group is in use.
    assert place.taken() == []
    finish(site.yard, jobs[1], site.now_ms)
    assert place.taken() == ["1"]


def back_from_the_dead(count: int, concurrency: int = 1) -> GlideYard:
    """Return a yard with jobs of one key that all ran and failed, and are in the stream again."""
    place = GlideYard()
    for _ in range(count):
        place.add(ordering="a", concurrency=concurrency)
        place.take()
    for job in place.site.yard.jobs.all():
        place.take()
        place.fail(job)
    assert len(retry_jobs(place.site.yard, place.site.queue(), 0, place.now_ms)) == count
    assert place.promote() == count
    return place


def test_a_worker_that_knows_a_job_does_not_begin_it_before_others_that_came_back() -> None:
    place = back_from_the_dead(2)
    yard = place.site.yard
    first, second = job_of(place, 1), job_of(place, 2)
    for entry in (entry_of(second), ""):
        assert activate(yard, second, entry, "w1", place.now_ms) == IS_BUSY
    assert place.taken() == ["1"]
    assert activate(yard, second, entry_of(second), "w1", place.now_ms) == IS_BUSY
    place.complete(first)
    assert activate(yard, second, entry_of(second), "w1", place.now_ms) == ACTIVE
    recount(yard)
    assert place.taken() == []


def test_a_worker_that_knows_a_job_does_not_begin_it_out_of_turn() -> None:
    place = GlideYard()
    first, second = place.add(ordering="a"), place.add(ordering="a")
    yard = place.site.yard
    assert activate(yard, second, entry_of(second), "w1", place.now_ms) == IS_BUSY
    assert activate(yard, first, entry_of(first), "w1", place.now_ms) == ACTIVE
    recount(yard)
    assert activate(yard, second, entry_of(second), "w1", place.now_ms) == IS_BUSY
    assert state_of(second) == "group-waiting"


def test_a_worker_activates_its_job_again_once_the_ordering_group_opens() -> None:
    place = GlideYard()
    job = place.add(ordering="a")
    place.take()
    yard = place.site.yard
    hold_back(yard, job, entry_of(job), place.now_ms + 100, place.now_ms)
    assert activate(yard, job, entry_of(job), "w1", place.now_ms) == IS_BUSY
    place.site.now_ms += 100
    assert activate(yard, job, entry_of(job), "w1", place.now_ms) == ACTIVE
    recount(yard)


def test_those_that_came_back_make_way_for_one_taken_by_its_name() -> None:
    place = back_from_the_dead(3)
    site = place.site
    second = job_of(place, 2)
    take_job(site.yard, second.id, site.lease_set, TERMS, site.now_ms)
    recount(site.yard)
    assert place.taken() == []
    finish(site.yard, second, site.now_ms)
    assert place.taken() == ["1"]
    place.complete(job_of(place, 1))
    assert place.taken() == ["3"]


def test_of_several_that_came_back_the_last_makes_way() -> None:
    place = back_from_the_dead(4, concurrency=2)
    site = place.site
    last = job_of(place, 4)
    take_job(site.yard, last.id, site.lease_set, TERMS, site.now_ms)
    assert place.taken() == ["1"]
    finish(site.yard, last, site.now_ms)
    assert place.taken() == ["2"]
    place.restart()
    assert place.taken() == ["1", "2"]


def test_a_job_that_is_revoked_or_expires_gives_way() -> None:
    place = GlideYard()
    jobs = [place.add(ordering="a") for _ in range(2)] + [place.add(ordering="a", ttl_ms=50)]
    last = place.add(ordering="a")
    assert revoke(place.site.yard, jobs[0], place.now_ms)
    recount(place.site.yard)
    assert place.taken() == ["2"]
    place.tick(50)
    assert state_of(jobs[2]) == "failed"
    place.complete(jobs[1])
    assert place.taken() == ["4"]
    place.complete(last)
    # Brought back, they have not started; they go in their old order.
    assert len(retry_jobs(place.site.yard, place.site.queue(), 0, place.now_ms)) == 2
    recount(place.site.yard)
    place.restart()
    place.promote()
    assert place.taken() == ["1"]


def test_jobs_with_key_and_priority_are_promoted_also_while_they_wait() -> None:
    place = GlideYard()
    for _ in range(2):
        place.add(ordering="a", priority=3)
    assert (place.promote(), place.promote()) == (2, 0)
    place.restart()
    assert place.pop(ReadyList.PROMOTED) == ["1"]
    place.complete(job_of(place, 1))
    assert place.pop(ReadyList.PROMOTED) == ["2"]


def test_a_worker_closes_an_ordering_group_for_a_while() -> None:
    place = GlideYard()
    for _ in range(3):
        place.add(ordering="a", concurrency=2)
    place.add(ordering="b")
    assert place.taken(1) == ["1"]
    job = job_of(place, 1)
    hold_back(place.site.yard, job, entry_of(job), place.now_ms + 100, place.now_ms)
    recount(place.site.yard)
    assert place.taken() == ["4"]
    assert next_due(place.site.queue()) == place.now_ms + 100
    place.tick(100)
    assert place.taken() == ["1", "2"]


def test_a_closed_ordering_group_holds_back_its_ready_jobs() -> None:
    place = GlideYard()
    job = place.add(ordering="a")
    close_ordering(place.site.yard, group_of(job), place.now_ms + 10)
    recount(place.site.yard)
    assert (place.taken(), state_of(job)) == ([], "group-waiting")
    place.tick(10)
    assert place.taken() == ["1"]
    defer(place.site.yard, job, entry_of(job), 0, place.now_ms)
    recount(place.site.yard)
    assert place.taken() == ["1"]


def test_an_ordering_group_is_removed_with_its_last_job() -> None:
    place = GlideYard()
    job = place.add(ordering="a", rate_max=1, rate_ms=10)
    ready_lists = place.site.queue().rules
    assert ready_lists is not None
    assert ready_lists.ready_lists is not None
    assert set(ready_lists.ready_lists.orderings) == {"a"}
    remove(place.site.yard, job, place.now_ms)
    assert not ready_lists.ready_lists.orderings
    assert place.site.queue().jobs_count() == 0


def test_a_parent_lets_children_of_its_own_ordering_group_start() -> None:
    place = GlideYard()
    queue = place.site.queue()
    children = [Child(queue, place.spec(ordering="a"), "p") for _ in range(2)]
    add_flow(place.site.yard, queue, place.spec(ordering="a"), children, [], place.now_ms)
    place.add(ordering="a")
    assert place.taken() == ["2"]
    place.complete(job_of(place, 2))
    place.restart()
    assert place.taken() == ["3"]
    # The parent is ready now, and came before the last.
    place.complete(job_of(place, 3))
    assert place.taken() == ["1"]
    place.complete(job_of(place, 1))
    assert place.taken() == ["4"]


def test_an_ordering_group_closed_for_less_than_before_opens_in_time() -> None:
    place = GlideYard()
    job = place.add(ordering="a")
    ordering = group_of(job)
    close_ordering(place.site.yard, ordering, place.now_ms + 60_000)
    ordering.closed_until_ms = 0
    close_ordering(place.site.yard, ordering, place.now_ms + 100)
    place.site.jump(100)
    assert place.taken() == ["1"]
