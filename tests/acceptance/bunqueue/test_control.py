"""Commands that change jobs and queues from outside."""

import time

import pytest

from tests.support.servers.bunqueue import Client, ours
from tests.support.servers.patience import PATIENCE_S


def data_of(client: Client, queue: str) -> list[object]:
    """The data of all ready jobs in the order they would leave; takes them."""
    return [job["data"] for job in client.ok("PULLB", queue=queue, count=100)["jobs"]]


@pytest.mark.parametrize("delay", [0, 600_000])
def test_a_pending_job_can_be_cancelled(client: Client, queue: str, delay: int) -> None:
    job_id = client.push(queue, 1, delay=delay)
    assert client.ok("Cancel", id=job_id) == {}
    assert client.state(job_id) == "unknown"
    assert client.refused("GetJob", id=job_id) == "Job not found"
    assert client.refused("Cancel", id=job_id) == "Job not found or cannot be cancelled"


def test_an_active_or_finished_job_cannot_be_cancelled(client: Client, queue: str) -> None:
    done = client.finish(queue, 1)
    active = client.push(queue, 1)
    client.pull(queue)
    for job_id in (done, active):
        assert client.refused("Cancel", id=job_id) == "Job not found or cannot be cancelled"


def test_the_data_of_a_living_job_can_be_replaced(client: Client, queue: str) -> None:
    job_id = client.push(queue, {"v": 1})
    assert client.ok("Update", id=job_id, data={"v": 2}) == {}
    job = client.pull(queue)
    assert job["data"] == {"v": 2}
    client.ok("Update", id=job_id, data={"v": 3})
    assert client.job(job_id)["data"] == {"v": 3}
    client.ok("ACK", id=job_id)
    error = client.refused("Update", id=job_id, data={"v": 4})
    assert error == "Job not found or cannot be updated"


def test_a_delayed_job_can_be_updated(client: Client, queue: str) -> None:
    job_id = client.push(queue, 1, delay=600_000)
    client.ok("Update", id=job_id, data="new")
    assert client.job(job_id)["data"] == "new"


@ours("it does not look at the size of new data")
def test_new_data_may_not_be_too_large(client: Client, queue: str) -> None:
    job_id = client.push(queue, 1)
    error = client.refused("Update", id=job_id, data="x" * (10 * 2**20 + 10))
    assert error == "Job data too large (max 10MB)"
    assert client.job(job_id)["data"] == 1


def test_a_priority_can_be_changed(client: Client, queue: str) -> None:
    client.push(queue, "first")
    later = client.push(queue, "later")
    assert client.ok("ChangePriority", id=later, priority=10) == {}
    assert client.job(later)["priority"] == 10
    assert data_of(client, queue) == ["later", "first"]
    error = client.refused("ChangePriority", id=later, priority=1)
    assert error == "Job not found or not in queue"


def test_the_priority_of_a_delayed_job_counts_when_it_is_due(client: Client, queue: str) -> None:
    client.push(queue, "ready")
    job_id = client.push(queue, "late", delay=600_000)
    client.ok("ChangePriority", id=job_id, priority=5)
    assert client.state(job_id) == "delayed"
    client.ok("Promote", id=job_id)
    assert data_of(client, queue) == ["late", "ready"]


@ours("it takes any value as a priority")
@pytest.mark.parametrize("priority", ["x", None, 1.5, 1_000_001])
def test_a_changed_priority_is_checked_too(client: Client, queue: str, priority: object) -> None:
    job_id = client.push(queue, 1)
    client.refused("ChangePriority", id=job_id, priority=priority)
    assert client.job(job_id)["priority"] == 0


def test_a_delayed_job_can_be_promoted(client: Client, other: Client, queue: str) -> None:
    job_id = client.push(queue, 1, delay=600_000)
    pull = other.send("PULL", queue=queue, timeout=20_000)
    assert other.is_silent()
    assert client.ok("Promote", id=job_id) == {}
    assert other.receive(pull)["job"]["id"] == job_id
    assert client.refused("Promote", id=job_id) == "Job not found or not delayed"


def test_delayed_jobs_can_be_promoted_together(client: Client, queue: str) -> None:
    for n in range(5):
        client.push(queue, n, delay=600_000 + n)
    assert client.ok("PromoteJobs", queue=queue, count=2) == {"count": 2}
    assert len(data_of(client, queue)) == 2
    assert client.ok("PromoteJobs", queue=queue) == {"count": 3}
    assert len(data_of(client, queue)) == 3
    assert client.ok("PromoteJobs", queue=queue) == {"count": 0}


def test_an_active_job_can_be_moved_to_delayed(client: Client, queue: str) -> None:
    job_id = client.push(queue, 1)
    client.pull(queue)
    assert client.ok("MoveToDelayed", id=job_id, delay=60) == {}
    assert client.state(job_id) == "delayed"
    assert client.is_empty(queue)
    job = client.pull(queue)
    assert (job["id"], job["attempts"]) == (job_id, 0)


def test_a_delay_can_be_changed(client: Client, queue: str) -> None:
    job_id = client.push(queue, 1, delay=600_000)
    assert client.ok("ChangeDelay", id=job_id, delay=40) == {}
    assert client.pull(queue)["id"] == job_id
    second = client.push(queue, 2, delay=50_000)
    client.ok("ChangeDelay", id=second, delay=600_000)
    due_ms = client.job(second)["runAt"]
    assert 590_000 < due_ms - time.time() * 1000 < 610_000
    client.refused("ChangeDelay", id="nobody", delay=5)


def test_a_job_can_be_moved_to_waiting_from_where_it_is(client: Client, queue: str) -> None:
    delayed = client.push(queue, "delayed", delay=600_000)
    assert client.ok("MoveToWait", id=delayed) == {}
    assert client.pull(queue)["id"] == delayed
    assert client.ok("MoveToWait", id=delayed) == {}
    assert client.state(delayed) == "waiting"
    assert client.ok("MoveToWait", id=delayed) == {}
    assert client.pull(queue)["attempts"] == 0
    client.ok("FAIL", id=delayed, error="x", unrecoverable=True)
    assert client.ok("MoveToWait", id=delayed) == {}
    assert client.pull(queue)["id"] == delayed
    client.ok("ACK", id=delayed)
    client.refused("MoveToWait", id=delayed)
    client.refused("MoveToWait", id="nobody")


@pytest.mark.parametrize("is_active", [False, True])
def test_a_discarded_job_is_dead(client: Client, queue: str, *, is_active: bool) -> None:
    job_id = client.push(queue, 1)
    if is_active:
        client.pull(queue)
    assert client.ok("Discard", id=job_id) == {}
    assert client.state(job_id) == "failed"
    [entry] = client.ok("Dlq", queue=queue)["entries"]
    assert (entry["job"]["id"], entry["reason"]) == (job_id, "unknown")
    assert client.is_empty(queue)


def test_a_finished_job_cannot_be_discarded(client: Client, queue: str) -> None:
    assert client.refused("Discard", id=client.finish(queue, 1)) == "Job not found"


def test_waiting_for_a_finished_job_ends_at_once(client: Client, queue: str) -> None:
    job_id = client.finish(queue, 1, result={"x": 1})
    assert client.ok("WaitJob", id=job_id) == {"completed": True, "result": {"x": 1}}


def test_waiting_for_a_job_ends_when_it_completes(
    client: Client, other: Client, queue: str
) -> None:
    job_id = client.push(queue, 1)
    waits = [client.send("WaitJob", id=job_id, timeout=20_000) for _ in range(3)]
    other.pull(queue)
    assert client.is_silent()
    other.ok("ACK", id=job_id, result=[1, 2])
    for wait in waits:
        answer = client.receive(wait)
        assert (answer["completed"], answer["result"]) == (True, [1, 2])


def test_a_wait_that_was_answered_is_not_answered_again(
    client: Client, other: Client, queue: str
) -> None:
    job_id = client.push(queue, 1)
    wait = client.send("WaitJob", id=job_id, timeout=150)
    other.pull(queue)
    other.ok("ACK", id=job_id)
    assert client.receive(wait)["completed"] is True
    assert other.ok("PULL", queue=queue, timeout=300)["job"] is None
    assert client.is_silent()


def test_a_wait_ends_with_its_connection(
    client: Client, address: tuple[str, int], queue: str
) -> None:
    job_id = client.push(queue, 1)
    with Client(address) as gone:
        gone.send("WaitJob", id=job_id, timeout=150)
        assert gone.is_silent()
    client.pull(queue)
    client.ok("ACK", id=job_id)
    assert client.ok("PULL", queue=queue, timeout=300)["job"] is None


def test_waiting_has_an_end(client: Client, queue: str) -> None:
    job_id = client.push(queue, 1)
    started = time.monotonic()
    assert client.ok("WaitJob", id=job_id, timeout=100) == {"completed": False}
    assert 0.09 <= time.monotonic() - started < PATIENCE_S
    assert client.refused("WaitJob", id=job_id, timeout=-1) == "timeout must be at least 0"
    error = client.refused("WaitJob", id=job_id, timeout=600_001)
    assert error == "timeout must be at most 600000"


def test_a_failed_job_does_not_complete(client: Client, queue: str) -> None:
    job_id = client.bury(queue)
    answer = client.ok("WaitJob", id=job_id, timeout=50)
    assert answer["completed"] is False


def test_a_paused_queue_gives_nothing_and_takes_everything(client: Client, queue: str) -> None:
    assert client.ok("IsPaused", queue=queue) == {"paused": False}
    assert client.ok("Pause", queue=queue) == {}
    assert client.ok("IsPaused", queue=queue) == {"paused": True}
    client.push(queue, 1)
    assert client.is_empty(queue)
    assert client.ok("PULL", queue=queue, timeout=50) == {"job": None}
    assert client.ok("Resume", queue=queue) == {}
    assert client.pull(queue)["data"] == 1


def test_a_long_poll_wakes_when_its_queue_resumes(
    client: Client, other: Client, queue: str
) -> None:
    client.ok("Pause", queue=queue)
    client.push(queue, 1)
    pull = other.send("PULL", queue=queue, timeout=20_000)
    assert other.is_silent()
    client.ok("Resume", queue=queue)
    assert other.receive(pull)["job"]["data"] == 1


def test_an_active_job_of_a_paused_queue_can_end(client: Client, queue: str) -> None:
    job_id = client.push(queue, 1)
    client.pull(queue)
    client.ok("Pause", queue=queue)
    client.ok("ACK", id=job_id)
    assert client.state(job_id) == "completed"


def test_drain_removes_what_waits(client: Client, queue: str) -> None:
    active = client.push(queue, "active")
    client.pull(queue)
    ids = [client.push(queue, n, priority=n) for n in range(3)]
    assert client.ok("Drain", queue=queue) == {"count": 3}
    assert [client.state(job_id) for job_id in ids] == ["unknown"] * 3
    client.ok("ACK", id=active)
    assert client.ok("Drain", queue=queue) == {"count": 0}


@ours("it drains delayed jobs too")
def test_drain_leaves_delayed_jobs(client: Client, queue: str) -> None:
    delayed = client.push(queue, 1, delay=600_000)
    client.push(queue, 2)
    assert client.ok("Drain", queue=queue) == {"count": 1}
    assert client.state(delayed) == "delayed"


def test_obliterate_removes_everything(client: Client, queue: str) -> None:
    jobs = [client.finish(queue, 1), client.bury(queue)]
    active = client.push(queue, 1)
    client.pull(queue)
    jobs += [active, client.push(queue, 1, uniqueKey="k"), client.push(queue, 1, delay=600_000)]
    client.ok("SetConcurrency", queue=queue, limit=1)
    client.ok("Pause", queue=queue)
    assert client.ok("Obliterate", queue=queue) == {}
    assert [client.state(job_id) for job_id in jobs] == ["unknown"] * 5
    assert client.refused("ACK", id=active).endswith(active)
    assert client.ok("IsPaused", queue=queue) == {"paused": False}
    assert client.ok("GetQueueLimits", queue=queue)["data"]["limits"]["concurrencyLimit"] is None
    assert client.ok("Dlq", queue=queue)["jobs"] == []
    fresh = client.push(queue, 1, uniqueKey="k")
    assert fresh not in jobs
    assert client.pull(queue)["id"] == fresh


@pytest.mark.parametrize("state", ["completed", "failed", "waiting", "delayed"])
def test_clean_removes_jobs_of_one_state(client: Client, queue: str, state: str) -> None:
    jobs = {"completed": client.finish(queue, 1), "failed": client.bury(queue)}
    jobs["waiting"] = client.push(queue, 1)
    if state == "delayed":
        client.ok("Cancel", id=jobs.pop("waiting"))
        jobs["delayed"] = client.push(queue, 1, delay=600_000)
    assert client.ok("Clean", queue=queue, grace=600_000, state=state)["count"] == 0
    deadline = time.monotonic() + 5
    while not (answer := client.ok("Clean", queue=queue, grace=0, state=state))["count"]:
        assert time.monotonic() < deadline, "the job never got older than nothing"
    assert answer == {"count": 1, "ids": [jobs[state]]}
    left = {name for name, job_id in jobs.items() if client.state(job_id) != "unknown"}
    assert left == set(jobs) - {state}


def test_clean_has_a_limit_and_spares_active_jobs(client: Client, queue: str) -> None:
    active = client.push(queue, 1)
    client.pull(queue)
    client.ok("PUSHB", queue=queue, jobs=[{"data": n, "timestamp": 1000} for n in range(5)])
    answer = client.ok("Clean", queue=queue, grace=10, state="waiting", limit=2)
    assert answer["count"] == len(answer["ids"]) == 2
    assert client.ok("Clean", queue=queue, grace=10, state="waiting")["count"] == 3
    assert client.ok("Clean", queue=queue, grace=0, state="active")["count"] == 0
    assert client.state(active) == "active"


@ours("without a state it cleans pending jobs only")
def test_clean_without_a_state_takes_all_but_active(client: Client, queue: str) -> None:
    jobs = [client.finish(queue, 1), client.bury(queue)]
    active = client.push(queue, 1)
    client.pull(queue)
    jobs += [client.push(queue, 1), client.push(queue, 1, delay=600_000)]
    deadline = time.monotonic() + 5
    removed = 0
    while removed < 4 and time.monotonic() < deadline:
        removed += client.ok("Clean", queue=queue, grace=0)["count"]
    assert [client.state(job_id) for job_id in jobs] == ["unknown"] * 4
    assert client.state(active) == "active"


def test_completed_jobs_can_be_run_again(client: Client, queue: str) -> None:
    first, second = client.finish(queue, 1, result=1), client.finish(queue, 2)
    assert client.ok("RetryCompleted", queue=queue, id=first) == {"count": 1}
    job = client.pull(queue)
    assert (job["id"], job["attempts"]) == (first, 0)
    assert client.ok("GetResult", id=first).get("result") is None
    client.ok("ACK", id=first)
    assert client.ok("RetryCompleted", queue=queue) == {"count": 2}
    assert set(data_of(client, queue)) == {1, 2}
    assert client.state(second) == "active"
    assert client.ok("RetryCompleted", queue=queue, id="nobody") == {"count": 0}
