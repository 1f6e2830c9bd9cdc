"""Queries about jobs and queues."""

import pytest

from tests.support.servers.bunqueue import ORIGINAL, Answer, Client, ours

READY = ("waiting", "prioritized")


def counts(client: Client, queue: str) -> Answer:
    answer = client.ok("GetJobCounts", queue=queue)
    assert set(answer) == {"counts"}
    found: Answer = answer["counts"]
    return found


def one_of_each(client: Client, queue: str) -> dict[str, str]:
    """One job in each state; the names are the states."""
    jobs = {
        "completed": client.finish(queue, "done", result=7),
        "failed": client.bury(queue, "dead"),
        "active": client.push(queue, "active"),
    }
    client.pull(queue)
    jobs["waiting"] = client.push(queue, "waiting")
    jobs["delayed"] = client.push(queue, "delayed", delay=600_000)
    jobs["waiting-children"] = client.push(queue, "parked", dependsOn=[jobs["waiting"]])
    return jobs


def test_a_job_shows_its_state(client: Client, queue: str) -> None:
    jobs = one_of_each(client, queue)
    for state, job_id in jobs.items():
        assert client.state(job_id) == state
        job = client.job(job_id)
        assert (job["id"], job["state"]) == (job_id, state)


def test_a_job_with_a_priority_is_ready(client: Client, queue: str) -> None:
    assert client.state(client.push(queue, 1, priority=5)) in READY
    found = counts(client, queue)
    # The protocol counts it as waiting; the original moves it to a bucket of its own.
    assert found["prioritized"] == 1
    assert found["waiting"] == (0 if ORIGINAL else 1)


def test_counts_name_every_state(client: Client, queue: str) -> None:
    names = {"waiting", "prioritized", "delayed", "active", "completed", "failed"}
    assert counts(client, queue) == dict.fromkeys(names | {"waiting-children", "paused"}, 0)
    one_of_each(client, queue)
    client.push(queue, 2, delay=600_000)
    assert counts(client, queue) == {
        "waiting": 1,
        "prioritized": 0,
        "delayed": 2,
        "active": 1,
        "completed": 1,
        "failed": 1,
        "waiting-children": 1,
        "paused": 0,
    }


@ours("it counts them as paused alone")
def test_a_paused_queue_counts_its_ready_jobs_as_waiting_and_paused(
    client: Client, queue: str
) -> None:
    client.push(queue, 1)
    client.push(queue, 1, priority=4)
    client.ok("Pause", queue=queue)
    found = counts(client, queue)
    assert (found["waiting"], found["prioritized"], found["paused"]) == (2, 1, 2)
    client.ok("Resume", queue=queue)
    assert counts(client, queue)["paused"] == 0


@ours("it counts pending jobs only")
def test_count_is_of_all_states(client: Client, queue: str) -> None:
    assert client.ok("Count", queue=queue) == {"count": 0}
    one_of_each(client, queue)
    assert client.ok("Count", queue=queue) == {"count": 6}


def test_count_holds_ready_and_delayed_jobs(client: Client, queue: str) -> None:
    client.push(queue, 1)
    client.push(queue, 1, priority=3)
    client.push(queue, 1, delay=600_000)
    assert client.ok("Count", queue=queue) == {"count": 3}


def test_counts_per_priority(client: Client, queue: str) -> None:
    for priority in (0, 0, 5, -2, 5, 5):
        client.push(queue, 1, priority=priority)
    answer = client.ok("GetCountsPerPriority", queue=queue)
    assert answer["queue"] == queue
    found = {int(priority): count for priority, count in answer["counts"].items()}
    assert found == {0: 2, 5: 3, -2: 1}


@pytest.mark.parametrize("state", ["completed", "failed", "active", "delayed", "waiting"])
def test_jobs_are_listed_by_state(client: Client, queue: str, state: str) -> None:
    jobs = one_of_each(client, queue)
    found = client.ok("GetJobs", queue=queue, state=state)["jobs"]
    assert [(job["id"], job["state"]) for job in found] == [(jobs[state], state)]


def test_jobs_are_listed_oldest_first_in_pages(client: Client, queue: str) -> None:
    ids = client.ok("PUSHB", queue=queue, jobs=[{"data": n} for n in range(120)])["ids"]

    def page(**fields: object) -> list[str]:
        return [job["id"] for job in client.ok("GetJobs", queue=queue, **fields)["jobs"]]

    assert page() == ids[:100]
    assert page(limit=10) == ids[:10]
    assert page(limit=10, offset=115) == ids[115:]
    assert page(offset=100, state="waiting") == ids[100:]
    assert page(limit=3, asc=False) == ids[:-4:-1]
    assert page(limit=200) == ids


def test_jobs_of_several_states_are_listed_together(client: Client, queue: str) -> None:
    jobs = one_of_each(client, queue)
    found = client.ok("GetJobs", queue=queue, state=["delayed", "active"])["jobs"]
    assert {job["id"]: job["state"] for job in found} == {
        jobs["delayed"]: "delayed",
        jobs["active"]: "active",
    }
    everything = client.ok("GetJobs", queue=queue)["jobs"]
    assert {job["id"]: job["state"] for job in everything} == {v: k for k, v in jobs.items()}


def test_a_listed_job_has_its_result_and_its_failure(client: Client, queue: str) -> None:
    one_of_each(client, queue)
    [done] = client.ok("GetJobs", queue=queue, state="completed")["jobs"]
    assert (done["data"], done["returnvalue"]) == ("done", 7)
    [dead] = client.ok("GetJobs", queue=queue, state="failed")["jobs"]
    assert (dead["data"], dead["failedReason"]) == ("dead", "no")


@ours("it lists them as paused alone")
def test_a_paused_queue_lists_its_ready_jobs_as_waiting_and_paused(
    client: Client, queue: str
) -> None:
    job_id = client.push(queue, 1)
    client.ok("Pause", queue=queue)
    for state in ("waiting", "paused"):
        [job] = client.ok("GetJobs", queue=queue, state=state)["jobs"]
        assert job["id"] == job_id


def test_an_unknown_queue_is_empty(client: Client, queue: str) -> None:
    assert client.ok("GetJobs", queue=queue) == {"jobs": []}
    assert client.ok("Count", queue=queue) == {"count": 0}
    assert client.ok("GetCountsPerPriority", queue=queue)["counts"] == {}


def test_a_job_is_found_by_its_custom_id(client: Client, queue: str) -> None:
    name = f"{queue}-custom"
    assert client.push(queue, {"x": 1}, jobId=name) == name
    job = client.ok("GetJobByCustomId", customId=name)["job"]
    assert (job["id"], job["customId"], job["data"]) == (name, name, {"x": 1})
    assert client.job(name)["queue"] == queue


@ours("it forgets the custom id when the job completes")
def test_a_completed_job_is_still_found_by_its_custom_id(client: Client, queue: str) -> None:
    name = client.finish(queue, 1, jobId=f"{queue}-custom")
    assert client.ok("GetJobByCustomId", customId=name)["job"]["id"] == name


def test_a_result_comes_back_as_it_was_given(client: Client, queue: str) -> None:
    results: list[object] = [0, "", False, [], {}, {"deep": [1, {"a": None}]}, 1.5, "text"]
    for result in results:
        job_id = client.finish(queue, 1, result=result)
        assert client.ok("GetResult", id=job_id) == {"id": job_id, "result": result}


def test_without_a_result_there_is_none(client: Client, queue: str) -> None:
    waiting = client.push(queue, 1)
    for job_id in (waiting, "nobody"):
        answer = client.ok("GetResult", id=job_id)
        assert answer["id"] == job_id
        assert answer.get("result") is None


def test_progress_is_shown_while_the_job_is_active(client: Client, queue: str) -> None:
    job_id = client.push(queue, 1)
    client.pull(queue)
    assert client.ok("GetProgress", id=job_id) == {"progress": 0, "message": None}
    client.ok("Progress", id=job_id, progress=40, message="loading")
    assert client.ok("GetProgress", id=job_id) == {"progress": 40, "message": "loading"}
    client.ok("Progress", id=job_id, progress=60)
    assert client.ok("GetProgress", id=job_id)["progress"] == 60
    job = client.job(job_id)
    assert (job["progress"], job["progressMessage"]) == (60, "loading")


@ours("it moves them to 0 or 100 without a word")
@pytest.mark.parametrize("given", [101, -1])
def test_progress_is_between_0_and_100(client: Client, queue: str, given: float) -> None:
    job_id = client.push(queue, 1)
    client.pull(queue)
    client.ok("Progress", id=job_id, progress=33.5)
    assert client.refused("Progress", id=job_id, progress=given) == (
        "progress must be between 0 and 100"
    )
    assert client.ok("GetProgress", id=job_id)["progress"] == 33.5


def test_a_job_without_children_has_no_values(client: Client, queue: str) -> None:
    for job_id in (client.push(queue, 1), "nobody"):
        assert client.ok("GetChildrenValues", id=job_id) == {"data": {"values": {}}}
        assert client.ok("GetFailedChildrenValues", id=job_id) == {"values": {}}
        assert client.ok("GetIgnoredChildrenFailures", id=job_id) == {"values": {}}


@ours("it lists names only")
def test_queues_are_listed_with_their_counts(client: Client, queue: str) -> None:
    one_of_each(client, queue)
    found = {each["name"]: each for each in client.ok("ListQueues")["queues"]}
    row = found[queue]
    shown = {key: row[key] for key in ("waiting", "delayed", "active", "paused")}
    assert shown == {"waiting": 1, "delayed": 1, "active": 1, "paused": False}
    client.ok("Pause", queue=queue)
    found = {each["name"]: each for each in client.ok("ListQueues")["queues"]}
    assert found[queue]["paused"] is True
    client.ok("Obliterate", queue=queue)
    assert queue not in [each["name"] for each in client.ok("ListQueues")["queues"]]
