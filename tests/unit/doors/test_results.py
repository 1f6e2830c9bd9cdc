"""Results of jobs are stored like bodies: bounded, counted, and on disk beyond the budget."""

import json

import pytest

from jobyard.engine.jobs.finish import NOT_KEPT
from jobyard.journal.damage import CORRUPT_RESULT
from jobyard.model.job import DONE
from tests.support.doors.doors import BareDoors
from tests.support.site.recount import recount
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard

SIZES = (0, 5, 3000, 9000, 200_000)


def open_doors(storage: MemoryStorage | None, budget: int = 0) -> BareDoors:
    site = BareDoors(storage)
    site.yard.bodies._budget = budget
    return site


@pytest.fixture
def site() -> BareDoors:
    """A port that keeps no body and no result in memory."""
    return open_doors(MemoryStorage())


def finish(site: BareDoors, size: int) -> str:
    client = site.bunqueue()
    job_id = client.push(data=size)
    client.pull()
    client.ok("ACK", id=job_id, result="r" * size)
    return job_id


def commit(site: BareDoors) -> None:
    site.commit()
    site.check()


def in_memory(site: BareDoors) -> int:
    return sum(len(job.outcome().result) for job in site.yard.jobs.all() if job.state == DONE)


def check(site: BareDoors, ids: list[str]) -> None:
    client = site.bunqueue()
    for job_id, size in zip(ids, SIZES, strict=True):
        assert client.ok("GetResult", id=job_id)["result"] == "r" * size
        assert client.ok("GetJob", id=job_id)["job"]["returnvalue"] == "r" * size
        assert client.ok("WaitJob", id=job_id)["result"] == "r" * size


def test_results_beyond_the_budget_are_read_back_from_disk(site: BareDoors) -> None:
    ids = [finish(site, size) for size in SIZES]
    commit(site)
    assert (in_memory(site), site.yard.bodies.in_memory) == (0, 0)
    check(site, ids)
    # A start loads none of them, and finds all.
    assert isinstance(site.storage, MemoryStorage)
    again = open_doors(site.storage.cut_off())
    again.after_a_crash()
    commit(again)
    check(again, ids)


def test_recovery_holds_only_the_budget_in_memory(site: BareDoors) -> None:
    for size in SIZES:
        finish(site, size)
    commit(site)
    assert isinstance(site.storage, MemoryStorage)
    storage = site.storage.cut_off()
    again = BareDoors(storage)
    again.check()
    assert again.yard.bodies.in_memory > in_memory(again) > sum(SIZES)
    small = OpenYard(storage.cut_off(), budget=5000)
    kept = [len(job.outcome().result) for job in small.yard.jobs.all()]
    assert 3000 < sum(kept) <= small.bodies.in_memory <= 5000
    recount(small.yard)


def test_results_within_the_budget_stay_in_memory_and_are_counted() -> None:
    site = open_doors(MemoryStorage(), 10_000)
    finish(site, 3000)
    finish(site, 200_000)
    commit(site)
    assert 3000 < in_memory(site) == site.yard.bodies.in_memory < 10_000


def test_compaction_takes_results_along(site: BareDoors) -> None:
    ids = [finish(site, size) for size in SIZES]
    commit(site)
    places = [int(job.outcome().result_place) for job in site.yard.jobs.all()]
    client = site.bunqueue()
    compactor = site.compactor
    for _ in range(3):
        details = [client.push("x", data="x" * 30_000) for _ in range(80)]
        for job_id in details:
            client.ok("Cancel", id=job_id)
        commit(site)
        site.compact()
        commit(site)
        check(site, ids)
    assert compactor.dropped_count > 2
    assert [int(job.outcome().result_place) for job in site.yard.jobs.all()] != places
    assert site.yard.bodies.in_memory == 0
    check(site.after_a_crash(), ids)


def test_a_done_job_that_runs_again_lets_go_of_its_result(site: BareDoors) -> None:
    job_id = finish(site, 9000)
    commit(site)
    client = site.bunqueue()
    client.push("x", data="x" * site.journal.segment_size)
    assert client.ok("RetryCompleted", queue="q", jobId=job_id)["count"] == 1
    commit(site)
    assert client.state(job_id) == "waiting"
    client.pull()
    client.ok("ACK", id=job_id, result="second")
    commit(site)
    assert client.ok("GetResult", id=job_id)["result"] == "second"
    client.ok("Clean", queue="q", grace=0, state="completed")
    commit(site)
    assert site.yard.bodies.in_memory == 0


def test_glide_mq_reads_results_back(site: BareDoors) -> None:
    library = site.library()
    library.add(data="1")
    [(job_id, entry)] = library.read()
    value = json.dumps("x" * 9000)
    assert library.complete(job_id, entry, value) == 1
    commit(site)
    assert in_memory(site) == 0
    key = library.key(f"job:{job_id}")
    assert library.client.ask("HGET", key, "returnvalue") == value.encode()
    assert library.job(job_id)["returnvalue"] == value
    assert site.bunqueue().ok("GetJobs", queue="q")["jobs"][0]["returnvalue"] == "x" * 9000


def test_a_parent_sees_what_its_child_came_to(site: BareDoors) -> None:
    child = finish(site, 9000)
    commit(site)
    client = site.bunqueue()
    client.push("parents", data=1, dependsOn=[child], childrenIds=[child])
    parent = client.pull("parents")["id"]
    (value,) = client.ok("GetChildrenValues", id=parent)["data"]["values"].values()
    assert value == "r" * 9000


def test_a_result_beyond_the_bound_is_refused_and_the_job_still_runs(site: BareDoors) -> None:
    site.yard.bodies.result_size_max = 1000
    client = site.bunqueue()
    ids = [client.push(data=number) for number in range(3)]
    for _ in ids:
        client.pull()
    assert client.refused("ACK", id=ids[0], result="r" * 1000) == "result is larger than 1000 bytes"
    answer = client.ok("ACKB", ids=ids[:2], results=["r" * 1000, "small"])
    assert answer["data"]["ignoredIds"] == [ids[0]]
    assert [client.state(one) for one in ids] == ["active", "completed", "active"]
    library = site.library("g")
    library.add(data="1")
    [(job_id, entry)] = library.read()
    said = library.complete(job_id, entry, "x" * 1001)
    assert str(said) == "result is larger than 1000 bytes"
    assert library.state(job_id) == "active"


def test_a_damaged_result_is_reported_and_never_shown_as_none(site: BareDoors) -> None:
    job_id = finish(site, 9000)
    library = site.library("g")
    library.add(data="1")
    [(glide_id, entry)] = library.read()
    library.complete(glide_id, entry, json.dumps("x" * 9000))
    commit(site)
    assert isinstance(site.storage, MemoryStorage)
    for job in site.yard.jobs.all():
        place = int(job.outcome().result_place)
        site.storage.flip(site.journal.segments[place >> 32].name, (place & 0xFFFFFFFF) + 50, 1)
    client = site.bunqueue()
    answer = client.ok("GetResult", id=job_id)
    assert (answer["result"], answer["resultLost"]) == (None, CORRUPT_RESULT)
    assert client.ok("GetJob", id=job_id)["job"]["failedReason"] == CORRUPT_RESULT
    key = library.key(f"job:{glide_id}")
    assert library.client.refused("HGET", key, "returnvalue") == f"ERR {CORRUPT_RESULT}"
    assert library.client.ask("HGET", key, "state") == b"completed"
    stories = site.journal.damages.take_stories()
    told = [one.split(" is ")[0] for one in stories]
    assert told == ["the result of job 1", "the result of job 2"]


def test_without_a_journal_a_result_beyond_the_budget_is_said_not_to_be_kept() -> None:
    site = open_doors(None, 1000)
    client = site.bunqueue()
    small, large = finish(site, 500), finish(site, 5000)
    assert client.ok("GetResult", id=small)["result"] == "r" * 500
    answer = client.ok("GetResult", id=large)
    assert (answer["result"], answer["resultLost"]) == (None, NOT_KEPT)
    assert client.state(large) == "completed"
    site.check()
