"""Holders that leave, and kicks: many jobs move over turns."""

from jobyard.engine.jobs.clearing import REMOVAL_UNITS, KickTask
from jobyard.engine.jobs.finish import bury
from jobyard.engine.jobs.holders import FEW_LEASES, drop_holder
from jobyard.engine.state.tasks import UNITS_PER_TURN
from tests.support.site.recount import recount
from tests.support.site.yard import OpenYard


def finish(site: OpenYard) -> int:
    """Run long work to its end, one turn at a time; return the number of turns."""
    tasks = site.yard.tasks
    turns = 0
    is_left = True
    while is_left:
        before = int(tasks.units_done)
        is_left = bool(tasks.proceed(site.now_ms))
        assert tasks.units_done - before <= UNITS_PER_TURN + 2 * REMOVAL_UNITS
        turns += 1
    return turns


def test_a_holder_of_many_jobs_gives_them_back_over_turns() -> None:
    site = OpenYard()
    count = int(FEW_LEASES) + 700
    for _ in range(count):
        site.put()
        site.take(site.lease_set)
    drop_holder(site.yard, site.lease_set, None, site.now_ms)
    assert site.yard.ready_count == FEW_LEASES
    assert finish(site) >= 2
    assert site.yard.ready_count == count
    recount(site.yard)


def test_a_lease_that_is_not_given_back_in_time_runs_out() -> None:
    site = OpenYard()
    for _ in range(int(FEW_LEASES) + 2):
        site.put(ttr_ms=1000)
        site.take(site.lease_set)
    drop_holder(site.yard, site.lease_set, None, site.now_ms)
    site.jump(1000)
    assert site.yard.counters.timed_out_total() == 2
    finish(site)
    recount(site.yard)


def test_many_jobs_are_kicked_over_turns_and_those_buried_meanwhile_are_not() -> None:
    site = OpenYard()
    late = site.run(site.put())
    for _ in range(1500):
        bury(site.yard, site.run(site.put()), 0, site.now_ms)
    site.put(delay_ms=60_000)
    kicking = KickTask(site.yard, site.queue(), 10_000)
    assert not site.yard.tasks.begin(kicking, None, site.now_ms)
    bury(site.yard, late, 0, site.now_ms)
    assert finish(site) >= 2
    assert kicking.count == 1500
    assert site.yard.dead_count == 1
    assert site.yard.delayed_count == 1
    recount(site.yard)


def test_kicks_of_delayed_jobs_take_as_many_as_there_are() -> None:
    site = OpenYard()
    for _ in range(1500):
        site.put(delay_ms=60_000)
    kicking = KickTask(site.yard, site.queue(), 1200)
    assert not site.yard.tasks.begin(kicking, None, site.now_ms)
    finish(site)
    assert kicking.count == 1200
    assert site.yard.delayed_count == 300
    recount(site.yard)
