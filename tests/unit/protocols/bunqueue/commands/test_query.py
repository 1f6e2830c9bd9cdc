"""Queries about jobs, without a socket."""

import pytest

from jobyard.engine.jobs.listing import SORTED_AT_ONCE, JobSelection, jobs_by_seq_of, page
from jobyard.model.job import DEAD, READY
from jobyard.protocols.bunqueue.long_answers import PAGE_BYTES_MAX
from tests.support.clients.bunqueue import Answer, BunqueueClient
from tests.support.doors.bunqueue import BareBunqueue
from tests.support.site.storage import MemoryStorage

STATES = ("waiting", "delayed", "active", "completed", "failed", "waiting-children")


def one_of_each(client: BunqueueClient) -> dict[str, str]:
    """One job in each state, by the name of the state."""
    jobs = {"completed": client.finish(result=7), "failed": client.bury()}
    jobs["active"] = client.push()
    client.pull()
    jobs["waiting"] = client.push()
    jobs["delayed"] = client.push(delay=60_000)
    jobs["waiting-children"] = client.push(dependsOn=[jobs["waiting"]])
    return jobs


def listed(client: BunqueueClient, **fields: object) -> list[str]:
    return [job["id"] for job in client.ok("GetJobs", queue="q", **fields)["jobs"]]


def fill(client: BunqueueClient, count: int) -> list[str]:
    """Add many jobs at once."""
    ids: list[str] = client.ok("PUSHB", queue="q", jobs=[{"data": n} for n in range(count)])["ids"]
    return ids


def counts(client: BunqueueClient) -> Answer:
    found: Answer = client.ok("GetJobCounts", queue="q")["counts"]
    return found


# -- one job -----------------------------------------------------------------------------------


def test_every_state_has_its_word() -> None:
    client = BareBunqueue().connect()
    jobs = one_of_each(client)
    for state, job_id in jobs.items():
        assert client.ok("GetState", id=job_id) == {"id": job_id, "state": state}
        assert client.ok("GetJob", id=job_id)["job"]["state"] == state


def test_a_job_that_is_not_there_is_not_shown() -> None:
    client = BareBunqueue().connect()
    assert client.refused("GetJob", id="nobody") == "Job not found"
    assert client.refused("GetJob") == "Job not found"
    assert client.refused("GetJobByCustomId", customId="nobody") == "Job not found"
    assert client.refused("GetJobByCustomId", customId=5) == "Job not found"
    assert client.refused("GetProgress", id="nobody") == "Job not found"
    assert client.ok("GetState", id="nobody") == {"id": "nobody", "state": "unknown"}
    assert client.ok("GetResult", id="nobody") == {"id": "nobody"}
    assert client.refused("GetState", id=5) == "id must be a string"
    assert client.refused("GetResult") == "id must be a string"


def test_a_result_is_shown_once_the_job_is_done() -> None:
    client = BareBunqueue().connect()
    job_id = client.push()
    assert client.ok("GetResult", id=job_id) == {"id": job_id}
    client.pull()
    client.ok("ACK", id=job_id, result={"a": [1, None]})
    assert client.ok("GetResult", id=job_id) == {"id": job_id, "result": {"a": [1, None]}}
    plain = client.finish()
    assert client.ok("GetResult", id=plain) == {"id": plain, "result": None}


def test_only_a_custom_id_finds_by_custom_id() -> None:
    client = BareBunqueue().connect()
    own = client.push()
    assert client.push(data=5, jobId="mine") == "mine"
    job = client.ok("GetJobByCustomId", customId="mine")["job"]
    assert (job["id"], job["data"]) == ("mine", 5)
    assert client.refused("GetJobByCustomId", customId=own) == "Job not found"


def test_progress_is_shown_for_active_jobs_only() -> None:
    client = BareBunqueue().connect()
    job_id = client.push()
    error = client.refused("GetProgress", id=job_id)
    assert error == "Job is not active (current state: waiting)"
    client.pull()
    assert client.ok("GetProgress", id=job_id) == {"progress": 0, "message": None}


# -- counts ------------------------------------------------------------------------------------


def test_counts_are_by_state() -> None:
    client = BareBunqueue().connect()
    names = {*STATES, "prioritized", "paused"}
    assert counts(client) == dict.fromkeys(names, 0)
    one_of_each(client)
    assert counts(client) == {**dict.fromkeys(STATES, 1), "prioritized": 0, "paused": 0}
    assert client.ok("Count", queue="q") == {"count": 6}
    assert client.ok("Count", queue="none") == {"count": 0}


def test_prioritized_jobs_are_counted_once_more() -> None:
    client = BareBunqueue().connect()
    for priority in (0, 3, -1, 7, 7, 0, 1):
        client.push(priority=priority)
    client.push(priority=4, groupId="g")
    client.push(priority=0, groupId="g")
    client.push(priority=9, delay=1000)
    found = counts(client)
    assert (found["waiting"], found["prioritized"]) == (9, 5)
    per_priority = client.ok("GetCountsPerPriority", queue="q")
    assert per_priority["queue"] == "q"
    wanted = {"-1": 1, "0": 3, "1": 1, "3": 1, "4": 1, "7": 2, "9": 1}
    assert per_priority["counts"] == wanted
    assert client.ok("GetCountsPerPriority", queue="none")["counts"] == {}


def test_ready_jobs_of_a_paused_queue_are_waiting_and_paused() -> None:
    client = BareBunqueue().connect()
    client.push()
    client.push(priority=1)
    client.ok("Pause", queue="q")
    found = counts(client)
    assert (found["waiting"], found["paused"], found["prioritized"]) == (2, 2, 1)
    client.ok("Resume", queue="q")
    found = counts(client)
    assert (found["waiting"], found["paused"], found["prioritized"]) == (2, 0, 1)


# -- lists -------------------------------------------------------------------------------------


def test_lists_are_by_state() -> None:
    client = BareBunqueue().connect()
    jobs = one_of_each(client)
    for state, job_id in jobs.items():
        assert listed(client, state=state) == [job_id]
    two = listed(client, state=["delayed", "completed"])
    assert two == [jobs["completed"], jobs["delayed"]]
    in_order = ["completed", "failed", "active", "waiting", "delayed", "waiting-children"]
    assert listed(client) == [jobs[state] for state in in_order]
    assert listed(client, state=None) == listed(client)
    assert listed(client, state="wait") == [jobs["waiting"]]
    assert listed(client, state=[]) == listed(client, state="nonsense") == []


def test_prioritized_and_paused_are_states_to_list_by() -> None:
    client = BareBunqueue().connect()
    plain = client.push()
    urgent = client.push(priority=2)
    grouped = client.push(priority=2, groupId="g")
    late = client.push(delay=1000)
    assert listed(client, state="prioritized") == [urgent, grouped]
    assert listed(client, state=["prioritized", "delayed"]) == [urgent, grouped, late]
    assert listed(client, state=["prioritized", "waiting"]) == [plain, urgent, grouped]
    assert listed(client, state="paused") == []
    client.ok("Pause", queue="q")
    for state in ("paused", "waiting", "wait", ["paused", "waiting"]):
        assert listed(client, state=state) == [plain, urgent, grouped]
    assert listed(client, state="prioritized") == [urgent, grouped]


def test_a_list_has_an_order_a_start_and_an_end() -> None:
    client = BareBunqueue().connect()
    ids = fill(client, 120)
    assert listed(client) == ids[:100]
    assert listed(client, offset=110, limit=20) == ids[110:]
    assert listed(client, limit=3, asc=False) == ids[:-4:-1]
    assert listed(client, offset=2, limit=3, asc=False) == ids[-3:-6:-1]
    assert listed(client, limit=0) == listed(client, offset=120) == []
    assert listed(client, limit=2.0) == ids[:2]


def test_a_bad_page_is_refused() -> None:
    client = BareBunqueue().connect()
    assert client.refused("GetJobs") == "Queue name is required"
    assert client.refused("GetJobs", queue="q", limit=-1) == "limit must be at least 0"
    assert client.refused("GetJobs", queue="q", offset="x") == "offset must be a number"
    error = "state must be a string or an array of strings"
    assert client.refused("GetJobs", queue="q", state=5) == error
    assert client.refused("GetJobs", queue="q", state=[5]) == error


def test_a_long_list_comes_from_jobs_by_seq() -> None:
    site = BareBunqueue()
    client = site.connect()
    ids = fill(client, SORTED_AT_ONCE)
    assert listed(client, limit=2) == ids[:2]
    assert site.yard.queues["q"].jobs_by_seq is None
    ids.append(client.push())
    assert listed(client, limit=2) == ids[:2]
    queue = site.yard.queues["q"]
    jobs_by_seq = queue.jobs_by_seq
    assert jobs_by_seq is not None
    ids.append(client.push(priority=5))
    assert client.pull()["id"] == ids.pop()
    client.ok("Cancel", id=ids.pop(1))
    assert listed(client, state="waiting", limit=3) == [*ids[:3]]
    assert listed(client, state="waiting", offset=len(ids) - 2) == ids[-2:]
    assert listed(client, state="waiting", offset=len(ids)) == []
    assert listed(client, state="waiting", limit=2, asc=False) == ids[:-3:-1]
    assert jobs_by_seq_of(queue) is jobs_by_seq


def test_a_rare_state_is_found_without_jobs_by_seq() -> None:
    site = BareBunqueue()
    client = site.connect()
    dead = client.bury()
    fill(client, SORTED_AT_ONCE + 1)
    queue = site.yard.queues["q"]
    found = page(queue, JobSelection(frozenset((DEAD,))), 0, 10, oldest_first=True)
    assert [job.id for job in found] == [site.job(dead).id]
    assert queue.jobs_by_seq is None


def test_many_prioritized_jobs_are_listed_by_seq() -> None:
    client = BareBunqueue().connect()
    jobs = [{"data": n, "priority": n % 5} for n in range(6000)]
    ids: list[str] = client.ok("PUSHB", queue="q", jobs=jobs)["ids"]
    late = client.push(delay=1000)
    urgent = [job_id for n, job_id in enumerate(ids) if n % 5]
    assert counts(client)["prioritized"] == len(urgent) > SORTED_AT_ONCE
    assert listed(client, state="prioritized") == urgent[:100]
    assert listed(client, state="prioritized", offset=4790) == urgent[4790:]
    assert listed(client, state="prioritized", offset=4800) == []
    found = listed(client, state=["prioritized", "delayed"], limit=3, asc=False)
    assert found == [late, *urgent[:-3:-1]]


@pytest.mark.parametrize("count", range(20))
def test_prioritized_jobs_are_counted_wherever_they_stand(count: int) -> None:
    site = BareBunqueue()
    client = site.connect()
    wanted = 0
    for n in range(count):
        priority = n * 7 % 5 - 2
        client.push(priority=priority)
        wanted += priority > 0
    queue = site.yard.queues.get("q")
    assert (0 if queue is None else queue.ahead_count) == wanted
    assert len(listed(client, state="prioritized")) == wanted


def test_jobs_by_seq_are_those_of_one_queue_in_order_of_arrival() -> None:
    site = BareBunqueue()
    client = site.connect()
    client.push("other")
    ids = [client.push(), client.push(priority=5), client.push(lifo=True)]
    client.push("other")
    found = jobs_by_seq_of(site.yard.queues["q"]).page(
        frozenset((READY,)), 0, 10, oldest_first=True
    )
    assert found == [site.job(one) for one in ids]


def test_a_list_ends_before_its_frame_is_too_large() -> None:
    client = BareBunqueue().connect()
    size = 9 << 20
    ids = [client.push(data="x" * size) for _ in range(6)]
    assert listed(client) == ids[: PAGE_BYTES_MAX // size]


def test_lists_and_counts_are_the_same_after_a_restart() -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    one_of_each(client)
    client.push(priority=3)
    before = listed(client)
    again = site.reboot().connect()
    assert listed(again) == before
    # The worker of the active job is gone.
    assert counts(again) == {**counts(client), "active": 0, "waiting": 3}


def test_the_stations_of_a_job_are_reported_in_order() -> None:
    site = BareBunqueue()
    client = site.connect()
    job_id = client.push(backoff=100, maxAttempts=3, customId="mine")
    start_ms = client.ok("GetJob", id=job_id)["job"]["createdAt"]
    for error in ("one", "two"):
        site.tick(10)
        client.pull()
        site.tick(5)
        client.ok("FAIL", id=job_id, error=error)
        site.tick(1000)
    client.pull()
    site.tick(7)
    client.ok("ACK", id=job_id)
    told = client.ok("GetJob", id=job_id)["job"]["timeline"]
    assert [(one["state"], one["timestamp"] - start_ms) for one in told] == [
        *(("waiting", 0), ("active", 10), ("failed", 15), ("waiting", 15)),
        *(("active", 1025), ("failed", 1030), ("waiting", 1030)),
        *(("active", 2030), ("completed", 2037)),
    ]
    assert [(one.get("attempt"), one.get("error")) for one in told[1:4]] == [
        *((None, None), (1, "one"), (2, None)),
    ]


def test_a_dead_job_waits_for_no_other_run() -> None:
    client = BareBunqueue().connect()
    job_id = client.bury()
    told = client.ok("GetJob", id=job_id)["job"]["timeline"]
    assert [one["state"] for one in told] == ["waiting", "active", "failed"]
