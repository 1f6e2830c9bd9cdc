import pytest

from jobyard.engine.jobs.finish import KEEP_NOT, complete
from jobyard.engine.jobs.queues import copy_settings, set_group, set_settings
from jobyard.engine.state.names import rules_of
from jobyard.model.details import JobDetails
from jobyard.model.job import MSGPACK
from jobyard.model.throttle.settings import NO_LIMIT
from tests.support.site.recount import recount
from tests.support.site.snapshot import snapshot
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard


def limited(site: OpenYard, queue: str, concurrency: int) -> None:
    settings = copy_settings(site.queue(queue))
    settings.concurrency = concurrency
    set_settings(site.yard, site.queue(queue), settings, site.now_ms)


def reopened(site: OpenYard, storage: MemoryStorage) -> OpenYard:
    site.commit()
    again = OpenYard(storage.cut_off(), site.now_ms)
    assert snapshot(again.yard) == snapshot(site.yard)
    recount(again.yard)
    return again


@pytest.mark.parametrize("has_jobs", [True, False])
def test_what_is_set_for_a_queue_outlasts_a_restart_and_its_jobs(*, has_jobs: bool) -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    job = site.enter(queue="q")
    limited(site, "q", 7)
    if not has_jobs:
        complete(site.yard, site.run(job), b"", MSGPACK, KEEP_NOT, site.now_ms)
    again = reopened(site, storage)
    rules = again.yard.queues["q"].rules
    assert rules is not None
    assert rules.settings.concurrency == 7
    assert again.enter(queue="q").key == 2, "a seq is used once"


def test_what_is_set_back_leaves_nothing_behind() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    limited(site, "q", 7)
    limited(site, "q", NO_LIMIT)
    assert "q" not in site.yard.queues
    assert "q" not in reopened(site, storage).yard.queues


def test_what_is_set_for_a_group_outlasts_a_restart_with_its_rate_used_up() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    details = JobDetails()
    details.group_id = "g"
    site.enter(queue="q", details=details)
    group = rules_of(site.queue("q")).group("g")
    group.concurrency = 2
    group.set_rate(10, 1000)
    set_group(site.yard, site.queue("q"), group, site.now_ms)
    again = reopened(site, storage)
    found = rules_of(again.queue("q")).groups["g"]
    assert (found.concurrency, found.jobs_count) == (2, 1)
    assert again.pull("q") is None
    again.jump(100)
    assert again.pull("q") is not None


def test_a_limit_of_the_rate_begins_full_when_it_is_set_and_empty_after_a_restart() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    site.enter()
    settings = copy_settings(site.queue())
    settings.rate_most, settings.rate_ms = 1, 1000
    set_settings(site.yard, site.queue(), settings, site.now_ms)
    again = reopened(site, storage)
    assert site.pull() is not None
    assert again.pull() is None
    again.jump(1000)
    assert again.pull() is not None
