import pytest

from jobyard.engine.glidemq.add import entry_of
from jobyard.engine.glidemq.finish import reclaim
from jobyard.engine.glidemq.move import revoke
from jobyard.engine.glidemq.take import (
    ACTIVE,
    IS_BUSY,
    IS_EXPIRED,
    IS_REVOKED,
    activate,
    beat,
    hand_to,
    take_list,
)
from jobyard.engine.jobs.take import take
from jobyard.errors import NotHeld
from jobyard.model.job import DEAD, READY
from jobyard.model.lease import Proof
from jobyard.model.throttle.ready_lists import ReadyList
from jobyard.protocols.beanstalk.door import TERMS
from tests.support.engine.glides import GlideYard
from tests.support.site.recount import recount


def test_a_worker_begins_with_what_it_took() -> None:
    place = GlideYard()
    yard = place.site.yard
    job = place.add()
    entry = entry_of(job)
    assert activate(yard, job, "1-1", "w1", place.now_ms) == IS_BUSY
    place.take()
    assert activate(yard, job, entry, "w1", place.now_ms) == ACTIVE
    assert activate(yard, job, "1-1", "w1", place.now_ms) == IS_BUSY
    assert not revoke(yard, job, place.now_ms)
    assert activate(yard, job, entry, "w1", place.now_ms) == IS_REVOKED
    place.complete(job)
    assert activate(yard, job, entry, "w1", place.now_ms) == IS_BUSY
    place.restart()


def test_a_worker_takes_again_what_a_restart_took_from_it() -> None:
    place = GlideYard()
    entry = entry_of(place.add(ttl_ms=1000))
    place.take()
    place.restart()
    yard = place.site.yard
    job = yard.jobs.all()[0]
    assert activate(yard, job, entry, "w2", place.now_ms) == ACTIVE
    recount(yard)
    place.restart()
    yard = place.site.yard
    job = yard.jobs.all()[0]
    place.site.now_ms += 1000
    assert activate(yard, job, entry, "w2", place.now_ms) == IS_EXPIRED
    recount(yard)


def test_what_another_door_has_is_busy() -> None:
    place = GlideYard()
    site = place.site
    job = place.add()
    take(site.yard, [site.queue()], site.lease_set, TERMS, site.now_ms)
    assert activate(site.yard, job, entry_of(job), "w1", place.now_ms) == IS_BUSY


def test_silent_workers_lose_their_jobs_once_and_then_for_good() -> None:
    place = GlideYard()
    yard = place.site.yard
    quick = place.add()
    slow = place.add(lock_ms=60_000)
    queue = place.site.queue()
    place.take()
    place.tick(1000)
    beat(quick, place.now_ms)
    place.tick(29_999)
    assert reclaim(yard, queue, 30_000, 1, place.now_ms) == []
    place.tick(1)
    entry = entry_of(quick)
    place.tick(1000)
    assert reclaim(yard, queue, 30_000, 1, place.now_ms) == [quick]
    recount(yard)
    assert (quick.state, quick.stalls(), quick.attempts) == (READY, 1, 0)
    assert entry_of(quick) != entry
    place.restart()
    yard = place.site.yard
    quick, slow = yard.jobs.all()
    assert place.taken() == ["2", "1"]
    place.tick(40_000)
    assert reclaim(yard, place.site.queue(), 30_000, 1, place.now_ms) == [quick]
    recount(yard)
    assert (quick.state, quick.outcome().error) == (
        DEAD,
        "job stalled more than maxStalledCount",
    )
    assert slow.lease is not None


def test_jobs_from_lists_are_reclaimed_apart() -> None:
    place = GlideYard()
    yard = place.site.yard
    job = place.add(is_lifo=True)
    queue = place.site.queue()
    (lease,) = take_list(yard, queue, ReadyList.LIFO, 5, place.now_ms, "w1")
    assert lease.terms.proof == Proof.LISTED
    place.tick(50)
    assert reclaim(yard, queue, 10, 1, place.now_ms) == []
    assert reclaim(yard, queue, 10, 1, place.now_ms, is_list=True) == [job]
    recount(yard)
    assert place.taken() == ["1"]
    place.restart()


def test_a_job_of_another_family_ends_by_its_own_rules() -> None:
    place = GlideYard()
    site = place.site
    job = site.put(b"plain")
    place.take()
    assert place.fail(job) == "retrying"
    place.tick(60_000)
    place.take()
    place.complete(job)
    assert site.yard.jobs.count == 0
    other = site.enter(b"x")
    place.take()
    place.complete(other, b"7")
    assert other.outcome().result == b"7"
    job = site.put(b"plain")
    place.take()
    place.tick(50)
    assert reclaim(site.yard, site.queue(), 10, 1, place.now_ms) == [job]
    assert job.state == READY


def test_a_job_goes_over_to_another_consumer() -> None:
    place = GlideYard()
    job = place.add()
    with pytest.raises(NotHeld):
        hand_to(place.site.yard, job, "w2", place.now_ms)
    (lease,) = place.take()
    hand_to(place.site.yard, job, "w2", place.now_ms + 9)
    assert (lease.terms.label, lease.beat_ms) == ("w2", place.now_ms + 9)
    place.complete(job)
