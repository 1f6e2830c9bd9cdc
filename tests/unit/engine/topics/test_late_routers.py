"""Routers with more to copy than a turn has room for: they are late, and lose nothing."""

import pytest

from jobyard.engine.topics.routers import COPY_UNITS, set_router
from jobyard.model.topic.router import HOPS_MAX, Router
from tests.support.engine.logs import delete_below, new_log
from tests.support.engine.topics import Topic, record
from tests.support.site.recount import recount
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard
from tests.unit.engine.topics.test_job_routers import copies
from tests.unit.engine.topics.test_job_routers import lead as lead_jobs
from tests.unit.engine.topics.test_routers import catch_up, data, lead, put

UNITS = 40 * COPY_UNITS


def slow_site(routers: int, storage: MemoryStorage | None = None) -> OpenYard:
    """A yard with routers from one log to many, where a turn has little room."""
    site = OpenYard(storage)
    slow_down(site)
    for at in range(routers):
        lead(site, "a", f"b{at}")
    return site


def slow_down(site: OpenYard) -> None:
    site.yard.tasks.units_per_turn = UNITS
    site.yard.tasks.first_units = 8
    site.yard.tasks.proceed(site.now_ms)


def copied(site: OpenYard) -> int:
    return sum(len(data(site, name)) for name in site.yard.logs if name != "a")


def test_a_turn_makes_no_more_copies_than_it_has_room_for() -> None:
    site = slow_site(30)
    put(site, "a", *range(20))
    assert copied(site) == 0
    before = 0
    while site.yard.tasks.proceed(site.now_ms):
        now = copied(site)
        assert now - before <= UNITS // COPY_UNITS + 4
        before = now
    assert copied(site) == 30 * 20
    for at in range(30):
        assert data(site, f"b{at}") == list(range(20))
        assert not site.yard.routers.by_name[f"a>b{at}"].is_behind
    put(site, "a", "next")
    assert data(site, "b7")[-1] == "next", "routers in step copy at once again"


def test_what_is_written_meanwhile_follows_in_order() -> None:
    site = slow_site(5)
    for at in range(0, 60, 6):
        put(site, "a", *range(at, at + 6))
        site.yard.tasks.proceed(site.now_ms)
    catch_up(site)
    for at in range(5):
        assert data(site, f"b{at}") == list(range(60))


@pytest.mark.parametrize("turns", range(0, 24, 3))
def test_late_routers_continue_where_they_were_after_a_restart(turns: int) -> None:
    storage = MemoryStorage()
    site = slow_site(6, storage)
    put(site, "a", *range(40))
    site.journal.commit()
    for _ in range(turns):
        site.journal.commit()
        site.yard.tasks.proceed(site.now_ms)
    again = OpenYard(storage.killed(), site.now_ms)
    slow_down(again)
    again.jump(1000)
    catch_up(again)
    for at in range(6):
        assert data(again, f"b{at}") == data(again, "a")
    recount(again.yard)


def test_what_was_read_for_one_router_and_is_deleted_is_not_passed_on_to_the_next() -> None:
    site = slow_site(12)
    put(site, "a", *range(40))
    site.yard.tasks.proceed(site.now_ms)
    assert 0 < copied(site) < 12 * 10
    delete_below(site, site.yard.logs["a"], 6)
    before = {name for name in site.yard.logs if name != "a" and data(site, name)}
    assert 0 < len(before) < 12
    catch_up(site)
    for at in range(12):
        assert data(site, f"b{at}") == list(range(0 if f"b{at}" in before else 5, 40))


def test_many_jobs_of_one_write_are_followed_by_late_routers() -> None:
    site = Topic(MemoryStorage())
    slow_down(site)
    for at in range(9):
        lead_jobs(site, dest=f"b{at}")
    site.produce(*[record(b"%d" % at) for at in range(30)])
    site.yard.journal.commit()
    catch_up(site)
    for at in range(9):
        assert copies(site, f"b{at}") == list(range(30))
    recount(site.yard)


def test_what_the_destination_of_a_late_router_did_not_take_is_kept_for_it() -> None:
    site = Topic(MemoryStorage())
    slow_down(site)
    full = new_log(site, "b0", cap_records=5, discard="reject")
    for at in range(9):
        lead_jobs(site, dest=f"b{at}")
    site.produce(*[record(b"%d" % at) for at in range(12)])
    assert site.yard.routers.by_name["t>b0"].is_late
    catch_up(site)
    assert copies(site, "b0") == list(range(5))
    assert copies(site, "b1") == list(range(12))
    site.produce(record(b"12"))
    site.ack(*site.claimed(most=13))
    assert site.seqs() == []
    delete_below(site, full, 6)
    site.jump(1000)
    catch_up(site)
    assert copies(site, "b0") == list(range(5, 10))
    delete_below(site, full, 11)
    site.jump(1000)
    catch_up(site)
    assert copies(site, "b0") == [10, 11, 12]
    assert not site.yard.routers.by_name["t>b0"].is_late


def test_records_go_round_a_circle_only_so_often_though_late() -> None:
    site = OpenYard()
    slow_down(site)
    lead(site, "a", "b")
    lead(site, "b", "a", allow_cycle=True)
    put(site, "a", *range(60))
    catch_up(site)
    assert len(data(site, "a")) + len(data(site, "b")) == 60 * (1 + HOPS_MAX)
    assert site.yard.routers.hops == 0


def test_a_router_that_goes_meanwhile_copies_no_more() -> None:
    site = slow_site(2)
    put(site, "a", *range(40))
    router = site.yard.routers.by_name["a>b0"]
    site.yard.routers.remove(router)
    catch_up(site)
    assert (data(site, "b0"), data(site, "b1")) == ([], list(range(40)))


def test_what_a_log_lets_go_of_is_not_waited_for() -> None:
    site = slow_site(2)
    put(site, "a", *range(40))
    delete_below(site, site.yard.logs["a"], 31)
    catch_up(site)
    assert data(site, "b0") == list(range(30, 40))


def test_jobs_that_are_done_before_they_are_copied_are_copied() -> None:
    site = Topic()
    slow_down(site)
    for at in range(20):
        lead_jobs(site, "t", f"log{at}")
    site.produce(*[record(b"%d" % at) for at in range(10)])
    for job in site.yard.jobs.all():
        if job.queue.name == "t":
            site.yard.drop(job, site.now_ms)
    site.produce(record(b"10"))
    catch_up(site)
    for at in range(20):
        assert copies(site, f"log{at}") == list(range(11))
    recount(site.yard)


def test_a_late_router_that_is_set_again_continues() -> None:
    site = slow_site(3)
    put(site, "a", *range(40))
    site.yard.tasks.proceed(site.now_ms)
    router = Router("a>b1", "a", "b1")
    router.preserve_tag = False
    set_router(site.yard, router, site.now_ms)
    site.jump(1000)
    catch_up(site)
    assert data(site, "b1") == list(range(40))
