"""A full disk refuses new jobs; changes of existing ones are kept, or the loss is reported."""

import json

import pytest

from jobyard.engine.jobs.finish import NOT_KEPT
from tests.support.doors.doors import BareDoors
from tests.support.site.storage import MemoryStorage


@pytest.fixture
def site() -> BareDoors:
    return BareDoors(MemoryStorage())


def fill(site: BareDoors) -> None:
    """Put jobs until none is taken any more."""
    site.commit()
    assert isinstance(site.storage, MemoryStorage)
    site.storage.capacity = site.storage.used() + 4 * site.journal.segment_size
    client = site.bunqueue()
    while client.ask("PUSH", queue="fill", data="x" * 20_000)["ok"]:
        site.commit()
    site.storage.capacity = 0
    assert site.journal.is_full


def test_after_one_file_that_could_not_be_made_results_are_kept(site: BareDoors) -> None:
    client = site.bunqueue()
    ids = [client.push(data=number) for number in range(100)]
    for _ in ids:
        client.pull()
    site.commit()
    # As after a single ENOSPC or EMFILE for a spare file.
    site.journal.note_full()
    for number, job_id in enumerate(ids):
        client.ok("ACK", id=job_id, result={"n": number})
    for place in (site, site.after_a_crash()):
        reader = place.bunqueue()
        assert [reader.state(one) for one in ids] == ["completed"] * 100
        assert [reader.ok("GetResult", id=one)["result"]["n"] for one in ids] == [*range(100)]
    assert (site.journal.results_lost, site.journal.done_lost) == (0, 0)


def test_a_finished_job_stays_done_with_or_without_its_result(site: BareDoors) -> None:
    client = site.bunqueue()
    ids = [client.push(data=number) for number in range(60)]
    for _ in ids:
        client.pull()
    fill(site)
    size = site.journal.segment_size // 40
    for job_id in ids:
        client.ok("ACK", id=job_id, result="r" * size)
        site.commit()
    assert [client.state(one) for one in ids] == ["completed"] * 60
    lost = 0
    for job_id in ids:
        answer = client.ok("GetResult", id=job_id)
        shown = client.ok("GetJob", id=job_id)["job"]
        assert client.ok("WaitJob", id=job_id).get("resultLost") == answer.get("resultLost")
        if answer["result"] is None:
            lost += 1
            assert answer["resultLost"] == shown["failedReason"] == NOT_KEPT
        else:
            assert (answer["result"], shown["failedReason"]) == ("r" * size, None)
            assert "resultLost" not in answer
    assert 10 < lost < 60
    assert (site.journal.results_lost, site.journal.done_lost) == (lost, 0)
    text = client.ok("Prometheus")["data"]["metrics"].splitlines()
    assert f"jobyard_results_lost_total {lost}" in text
    assert isinstance(site.storage, MemoryStorage)
    site.storage.capacity = None
    again = site.after_a_crash().bunqueue()
    assert [again.state(one) for one in ids] == ["completed"] * 60
    told = [again.ok("GetResult", id=one).get("resultLost") for one in ids]
    assert told.count(NOT_KEPT) == lost


def test_glide_mq_is_told_that_a_result_was_not_kept(site: BareDoors) -> None:
    library = site.library()
    library.add(data="1")
    library.add(data="2")
    first, second = library.read(count=2)
    fill(site)
    assert library.complete(*first, json.dumps("small")) == 1
    assert library.complete(*second, json.dumps("x" * site.journal.segment_size)) == 1
    shown = [library.job(one) for one, _ in (first, second)]
    assert [one["state"] for one in shown] == ["completed", "completed"]
    assert (shown[0]["returnvalue"], shown[0].get("failedReason")) == ('"small"', None)
    assert (shown[1].get("returnvalue"), shown[1]["failedReason"]) == (None, NOT_KEPT)


def test_jobs_that_are_there_are_moved(site: BareDoors) -> None:
    client = site.bunqueue()
    delayed = [client.push(delay=60_000) for _ in range(4)]
    dead = [client.bury() for _ in range(2)]
    held = client.push("held")
    client.pull("held")
    fill(site)
    assert client.refused("PUSH", queue="q", data="x" * 20_000) == "Storage full"
    client.ok("Promote", id=delayed[0])
    assert client.ok("PromoteJobs", queue="q", count=2)["count"] == 2
    client.ok("ChangeDelay", id=delayed[3], delay=0)
    client.ok("ChangePriority", id=delayed[0], priority=5)
    assert client.ok("RetryDlq", queue="q", jobId=dead[0])["count"] == 1
    assert client.ok("RetryDlq", queue="q")["count"] == 1
    client.ok("Progress", id=held, progress=50)
    client.ok("MoveToWait", id=held)
    waiting = [*delayed, *dead, held]
    assert [client.state(one) for one in waiting] == ["waiting"] * 7


def test_durable_claims_survive_or_are_refused(site: BareDoors) -> None:
    api = site.api
    api.put("t", type="queue", durable=True, leases_durable=True)
    api.write("t", *range(20))
    fill(site)
    for _ in range(10):
        api.ok("t/claim", {"node": "w", "max": 1})
    assert site.yard.leased_count == 10
    site.journal.spares.clear()
    answer = api.post("t/claim", {"node": "w", "max": 10})
    assert answer.refusal == (507, "storage_full")
    assert isinstance(site.storage, MemoryStorage)
    site.storage.capacity = None
    again = site.after_a_crash()
    assert len(again.yard.nodes["w"].leases.items) == 10
