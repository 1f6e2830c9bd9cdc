"""Unique keys that refuse a duplicate job."""

import pytest

from jobyard.engine.jobs.unique_keys import claim, is_needed, owner_of, room_to_claim
from jobyard.model.details import KEY_EXTENDS, KEY_PLAIN, KEY_REPLACES, JobDetails
from jobyard.model.job import GONE, LEASED, READY
from jobyard.model.members import Member
from tests.support.site.recount import recount
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard


def keyed(mode: int = KEY_PLAIN, ttl_ms: int = 0, until_ms: int = 0) -> JobDetails:
    details = JobDetails()
    details.unique_key = "k"
    details.key_mode = mode
    details.key_ttl_ms = ttl_ms
    details.key_until_ms = until_ms
    return details


def test_a_key_belongs_to_nobody_else_until_its_time_is_over() -> None:
    site = OpenYard()
    assert owner_of(site.queue(), keyed(), site.now_ms) is None
    owner = site.enter(details=keyed(until_ms=site.now_ms + 10))
    assert owner_of(site.queue(), JobDetails(), site.now_ms) is None
    assert owner_of(site.queue("other"), keyed(), site.now_ms) is None
    assert owner_of(site.queue(), keyed(), site.now_ms + 9) is owner
    assert owner_of(site.queue(), keyed(), site.now_ms + 10) is None
    assert claim(site.yard, site.queue(), keyed(), site.now_ms + 10) is None
    assert owner.state == READY


@pytest.mark.parametrize("is_run", [False, True])
def test_a_key_that_is_taken_keeps_out(*, is_run: bool) -> None:
    site = OpenYard()
    owner = site.enter(details=keyed())
    if is_run:
        site.run(owner)
    assert claim(site.yard, site.queue(), keyed(), site.now_ms) is owner


def test_the_time_of_a_key_is_extended_unless_its_job_runs() -> None:
    site = OpenYard(MemoryStorage())
    owner = site.enter(details=keyed(until_ms=site.now_ms + 10))
    details = keyed(KEY_EXTENDS, ttl_ms=100)
    assert claim(site.yard, site.queue(), details, site.now_ms + 5) is owner
    assert owner.ensure_details().key_until_ms == site.now_ms + 105
    site.run(owner)
    assert claim(site.yard, site.queue(), details, site.now_ms + 50) is owner
    assert owner.ensure_details().key_until_ms == site.now_ms + 105


def test_a_job_that_waits_is_replaced() -> None:
    site = OpenYard(MemoryStorage())
    owner = site.enter(details=keyed())
    assert claim(site.yard, site.queue(), keyed(KEY_REPLACES), site.now_ms) is None
    assert owner.state == GONE
    recount(site.yard)


def test_a_job_for_which_others_wait_is_not_replaced() -> None:
    site = OpenYard()
    owner = site.enter(details=keyed())
    details = keyed(KEY_REPLACES)
    assert not is_needed(site.yard, owner, details)
    details.members = [Member(owner.id, "default:owner")]
    assert is_needed(site.yard, owner, details)
    assert claim(site.yard, site.queue(), details, site.now_ms) is owner
    details.members = None
    waiting = JobDetails()
    waiting.members = [Member(owner.id, "default:owner")]
    site.enter(details=waiting)
    assert is_needed(site.yard, owner, details)
    assert claim(site.yard, site.queue(), details, site.now_ms) is owner
    assert owner.state == READY


def test_a_job_that_runs_runs_on_without_its_key_also_after_a_restart() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    owner = site.run(site.enter(details=keyed()))
    assert claim(site.yard, site.queue(), keyed(KEY_REPLACES), site.now_ms) is None
    assert owner.state == LEASED
    site.commit()
    again = OpenYard(storage.killed())
    assert owner_of(again.queue(), keyed(), again.now_ms) is None


def test_room_is_made_for_the_records_of_who_has_the_key() -> None:
    site = OpenYard()
    without = room_to_claim(site.queue(), None, site.now_ms)
    assert room_to_claim(site.queue(), keyed(), site.now_ms) == without
    site.enter(details=keyed())
    assert room_to_claim(site.queue(), keyed(), site.now_ms) > without
