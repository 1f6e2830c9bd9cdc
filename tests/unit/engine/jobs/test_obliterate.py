"""All jobs of a queue removed, those that others wait for among them."""

import pytest

from jobyard.engine.jobs.obliterate import Obliteration
from jobyard.engine.state.names import AWAITED_LATELY
from jobyard.model.index.sharded_dict import PART_SIZE
from jobyard.model.job import READY
from jobyard.model.policy import CHILD_REMOVED
from tests.support.engine.flows import FlowSite
from tests.support.site.recount import recount
from tests.support.site.storage import MemoryStorage


def begun(site: FlowSite, queue: str) -> Obliteration:
    """An obliteration of a queue, as far as one small slice comes."""
    site.yard.tasks.units_per_turn = 100
    site.yard.tasks.proceed(site.now_ms)
    task = Obliteration(site.yard, site.queue(queue))
    assert not site.yard.tasks.begin(task, None, site.now_ms)
    return task


def add_families(site: FlowSite, count: int, queue: str) -> None:
    """Add jobs to a queue, each with a job of another queue that waits for it."""
    for at in range(count):
        number = f"{int(site.yard.jobs.count)} {at}"
        parent, child = site.plan(f"parent {number}"), site.plan(f"{queue} {number}", CHILD_REMOVED)
        child.parent = 0
        parent.depends = [1]
        site.put_all([parent, child])


@pytest.mark.parametrize("late", [3, AWAITED_LATELY + 3])
def test_jobs_that_others_wait_for_are_found_over_turns(late: int) -> None:
    site = FlowSite(MemoryStorage())
    add_families(site, 500, "o")
    add_families(site, 4 * PART_SIZE, "q")
    assert site.yard.names.dependents.parts_count() > 1
    begun(site, "q")
    assert site.queue("q").jobs_count() > 0
    # Others begin to wait during the search, perhaps in a part that it has passed.
    add_families(site, late, "q")
    while site.yard.tasks.proceed(site.now_ms):
        pass
    assert site.queue("q").jobs_count() == 0
    assert site.queue("o").jobs_count() == 500
    assert site.yard.names.dependents.count == 500
    waiting = [job for job in site.yard.jobs.all() if job.queue.name == "p"]
    assert sum(job.state == READY for job in waiting) == 4 * PART_SIZE + late
    recount(site.yard)
