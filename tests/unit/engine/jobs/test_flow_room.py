"""Room for what follows from the end of a child is reserved before that end is written."""

import pytest

from jobyard.engine.jobs.finish import fail
from jobyard.engine.jobs.move import erase, set_body
from jobyard.errors import YardFull
from jobyard.journal.format.record import GONE_SIZE
from jobyard.model.job import BLOCKED, DEAD, GONE, LEASED, MSGPACK, Job
from jobyard.model.policy import CHILD_FAILS_PARENT, REMOVE_DEAD
from tests.support.engine.flows import FlowSite
from tests.support.site.recount import recount
from tests.support.site.storage import MemoryStorage

BODIES = 150
# Of the records that remove a job which had so many bodies.
REMOVAL_SIZE = GONE_SIZE * (BODIES + 1)


def give_many_bodies(site: FlowSite, job: Job, left: int) -> None:
    """Change the body of a job many times, and leave `left` bytes in the hot segment."""
    for _ in range(BODIES):
        set_body(site.yard, job, b"\x80", MSGPACK, site.now_ms)
        site.commit()
    hot = site.journal.hot
    while hot.size - hot.end > left:
        site.journal.append_clean()
        site.commit()
    assert site.journal.hot is hot


def family_of_many_bodies(left: int) -> tuple[FlowSite, Job, Job]:
    """Put a child, and a parent that had many bodies and is removed when the child fails."""
    site = FlowSite(MemoryStorage(), 2 * REMOVAL_SIZE)
    plan = site.plan("child", CHILD_FAILS_PARENT)
    child, parent = site.family(plan, parent=site.plan("parent", 0, REMOVE_DEAD))
    give_many_bodies(site, parent, left)
    return site, child, parent


def test_a_parent_with_many_old_bodies_is_gone_in_the_batch_in_which_its_child_failed() -> None:
    for left in range(500, REMOVAL_SIZE, 300):
        site, child, parent = family_of_many_bodies(left)
        site.failed(child)
        assert (child.state, parent.state) == (DEAD, GONE)
        assert child.batch == parent.batch
        site.again()


def test_a_child_with_many_old_bodies_is_gone_in_the_batch_in_which_its_parents_failed() -> None:
    for left in range(REMOVAL_SIZE, REMOVAL_SIZE + 2000, 150):
        site = FlowSite(MemoryStorage(), 4 * REMOVAL_SIZE)
        jobs = site.chain(5, CHILD_FAILS_PARENT)
        give_many_bodies(site, jobs[0], left)
        erase(site.yard, jobs[0], site.now_ms)
        assert [int(job.state) for job in jobs] == [GONE, DEAD, DEAD, DEAD, DEAD]
        assert len({int(job.batch) for job in jobs}) == 1
        site.again()


def test_a_child_ends_later_when_a_full_disk_cannot_take_the_end_of_its_parent() -> None:
    for left in range(900, REMOVAL_SIZE, 300):
        site, child, parent = family_of_many_bodies(left)
        site.begin(child)
        storage = site.storage
        assert isinstance(storage, MemoryStorage)
        storage.capacity = 0
        site.journal.spares.clear()
        for _ in range(3):
            with pytest.raises(YardFull):
                fail(site.yard, child, "boom", site.now_ms)
        assert (child.state, parent.state) == (LEASED, BLOCKED)
        assert site.yard.counters.totals()["dead"] == 0
        recount(site.yard)
        storage.capacity = None
        fail(site.yard, child, "boom", site.now_ms)
        assert (child.state, parent.state) == (DEAD, GONE)
        assert site.yard.counters.totals()["dead"] == 2
        site.again()
