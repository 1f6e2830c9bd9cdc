"""Nothing keeps a reference to a job that is gone.

The garbage collector does not track jobs, leases and outcomes, so references between
them must be cleared when the job is removed. A job that only this test still refers to has a
count of two: the name, and the argument of the call.
"""

import sys
from collections.abc import Callable

import pytest

from jobyard.engine.jobs.finish import (
    KEEP_AS_ASKED,
    KEEP_NOT,
    complete,
    fail,
    finish,
    give_back,
)
from jobyard.engine.jobs.holders import drop_holder
from jobyard.engine.jobs.move import erase, revive
from jobyard.model.details import JobDetails, Outcome
from jobyard.model.index.item import Item
from jobyard.model.job import DEAD, DONE, GONE, MSGPACK, Job
from jobyard.model.policy import REMOVE_DEAD, Policy
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard

Way = Callable[[OpenYard, Job], None]

NAMED = 2


def finished(site: OpenYard, job: Job) -> None:
    finish(site.yard, site.run(job), site.now_ms)
    if job.state != GONE:
        erase(site.yard, job, site.now_ms)


def completed_and_removed(site: OpenYard, job: Job) -> None:
    complete(site.yard, site.run(job), b"\x01", MSGPACK, KEEP_AS_ASKED, site.now_ms)
    assert job.state == DONE
    erase(site.yard, job, site.now_ms)


def completed_and_not_kept(site: OpenYard, job: Job) -> None:
    complete(site.yard, site.run(job), b"\x01", MSGPACK, KEEP_NOT, site.now_ms)


def failed_and_removed(site: OpenYard, job: Job) -> None:
    fail(site.yard, site.run(job), "no", site.now_ms, is_final=True)
    assert job.state == DEAD
    erase(site.yard, job, site.now_ms)


def failed_for_good(site: OpenYard, job: Job) -> None:
    fail(site.yard, site.run(job), "no", site.now_ms, is_removed=True, is_final=True)


def revived_and_finished(site: OpenYard, job: Job) -> None:
    fail(site.yard, site.run(job), "no", site.now_ms, is_final=True)
    revive(site.yard, job, site.now_ms)
    completed_and_not_kept(site, job)


def erased_while_held(site: OpenYard, job: Job) -> None:
    erase(site.yard, site.run(job), site.now_ms)


def given_back_and_erased(site: OpenYard, job: Job) -> None:
    give_back(site.yard, site.run(job), site.now_ms)
    erase(site.yard, job, site.now_ms)


def lost_with_its_holder(site: OpenYard, job: Job) -> None:
    site.run(job)
    drop_holder(site.yard, site.lease_set, None, site.now_ms)
    erase(site.yard, job, site.now_ms)


def outlived(site: OpenYard, _: Job) -> None:
    site.jump(5001)


def is_end_of(item: Item, job: Job) -> bool:
    return isinstance(item, Outcome) and item.job is job


WAYS: list[Way] = [
    finished,
    completed_and_removed,
    completed_and_not_kept,
    failed_and_removed,
    failed_for_good,
    revived_and_finished,
    erased_while_held,
    given_back_and_erased,
    lost_with_its_holder,
    outlived,
]


@pytest.mark.parametrize("is_durable", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_a_job_that_is_gone_is_held_by_nobody(way: Way, is_durable: bool) -> None:  # noqa: FBT001
    site = OpenYard(MemoryStorage() if is_durable else None)
    policy = Policy(0)
    policy.max_attempts = 3
    policy.ttl_ms = 5000
    details = JobDetails()
    details.custom_id = "mine"
    details.unique_key = "key"
    details.group_id = "g"
    job = site.enter(b"\xa1x", policy=policy, details=details)
    del details
    way(site, job)
    assert job.state == GONE
    if is_durable:
        site.commit()
    # An append list drops removed items when it is tidied, now and then.
    queue = site.queue()
    left = [item for item in (*queue.done.items, *queue.dead.items) if is_end_of(item, job)]
    assert sys.getrefcount(job) - len(left) == NAMED
    assert job.details is not None
    assert (job.lease, job.details.outcome, job.details.expiry) == (None, None, None)


@pytest.mark.parametrize("flags", [0, REMOVE_DEAD])
def test_a_plain_job_that_is_gone_is_held_by_nobody(flags: int) -> None:
    site = OpenYard()
    policy = Policy(0)
    policy.flags = flags
    job = site.enter(policy=policy)
    failed_for_good(site, job)
    assert (job.state, sys.getrefcount(job)) == (GONE, NAMED)
