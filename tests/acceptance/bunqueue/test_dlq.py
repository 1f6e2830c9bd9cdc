"""The dead-letter queue: what enters, what is reported about it, and the ways out."""

import time

import pytest

from tests.support.servers.bunqueue import Answer, Client, ours


def entries(client: Client, queue: str, **fields: object) -> list[Answer]:
    answer = client.ok("Dlq", queue=queue, **fields)
    assert set(answer) == {"jobs", "entries"}
    assert [job["id"] for job in answer["jobs"]] == [e["job"]["id"] for e in answer["entries"]]
    found: list[Answer] = answer["entries"]
    return found


def data_of(found: list[Answer]) -> list[object]:
    return [entry["job"]["data"] for entry in found]


def test_an_entry_tells_the_story_of_its_job(client: Client, queue: str) -> None:
    job_id = client.push(queue, {"x": 1}, maxAttempts=2, backoff=1)
    for error in ("first", "second"):
        client.pull(queue)
        client.ok("FAIL", id=job_id, error=error)
    [entry] = entries(client, queue)
    job = entry["job"]
    assert (job["id"], job["data"], job["attempts"]) == (job_id, {"x": 1}, 2)
    assert (entry["reason"], entry["error"]) == ("max_attempts_exceeded", "second")
    tried = [(each["attempt"], each["reason"], each["error"]) for each in entry["attempts"]]
    assert tried == [(1, "explicit_fail", "first"), (2, "max_attempts_exceeded", "second")]
    for each in entry["attempts"]:
        assert each["failedAt"] - each["startedAt"] == each["duration"] >= 0
    assert abs(entry["enteredAt"] - time.time() * 1000) < 10_000
    assert entry["expiresAt"] == entry["enteredAt"] + 604_800_000
    assert (entry["retryCount"], entry["lastRetryAt"], entry["nextRetryAt"]) == (0, None, None)


def test_entries_are_listed_oldest_first(client: Client, queue: str) -> None:
    for n in range(5):
        client.bury(queue, n)
    assert data_of(entries(client, queue)) == [0, 1, 2, 3, 4]
    assert data_of(entries(client, queue, count=2)) == [0, 1]
    assert data_of(entries(client, queue, filter={"limit": 2, "offset": 1})) == [1, 2]
    assert entries(client, queue + "-none") == []


def test_entries_can_be_filtered(client: Client, queue: str) -> None:
    failed = client.bury(queue, "failed")
    client.ok("Discard", id=client.push(queue, "discarded"))
    reason = entries(client, queue)[0]["reason"]
    assert data_of(entries(client, queue, filter={"reason": reason})) == ["failed"]
    assert data_of(entries(client, queue, filter={"reason": "unknown"})) == ["discarded"]
    assert entries(client, queue, filter={"reason": "timeout"}) == []
    now_ms = time.time() * 1000
    assert len(entries(client, queue, filter={"newerThan": now_ms - 60_000})) == 2
    assert entries(client, queue, filter={"newerThan": now_ms + 60_000}) == []
    assert len(entries(client, queue, filter={"olderThan": now_ms + 60_000})) == 2
    assert entries(client, queue, filter={"olderThan": now_ms - 60_000}) == []
    assert client.state(failed) == "failed"


def test_one_dead_job_can_be_retried(client: Client, queue: str) -> None:
    ids = [client.bury(queue, n) for n in range(3)]
    assert client.ok("RetryDlq", queue=queue, jobId=ids[1]) == {"count": 1}
    job = client.pull(queue)
    assert (job["id"], job["attempts"], job["stallCount"]) == (ids[1], 0, 0)
    assert data_of(entries(client, queue)) == [0, 2]
    assert client.ok("RetryDlq", queue=queue, jobId="nobody") == {"count": 0}
    assert client.ok("RetryDlq", queue=queue, jobId=ids[1]) == {"count": 0}


def test_all_dead_jobs_can_be_retried(client: Client, queue: str) -> None:
    for n in range(4):
        client.bury(queue, n)
    assert client.ok("RetryDlq", queue=queue, count=1) == {"count": 1}
    assert client.ok("RetryDlq", queue=queue) == {"count": 3}
    jobs = client.ok("PULLB", queue=queue, count=10)["jobs"]
    assert sorted(job["data"] for job in jobs) == [0, 1, 2, 3]
    assert entries(client, queue) == []


def test_dead_jobs_can_be_retried_by_filter(client: Client, queue: str) -> None:
    client.bury(queue, "failed")
    client.ok("Discard", id=client.push(queue, "discarded"))
    assert client.ok("RetryDlq", queue=queue, filter={"reason": "unknown"}) == {"count": 1}
    assert client.pull(queue)["data"] == "discarded"
    assert data_of(entries(client, queue)) == ["failed"]


def test_a_retried_job_has_its_attempts_again(client: Client, queue: str) -> None:
    job_id = client.bury(queue, 1, maxAttempts=2, backoff=1)
    client.ok("RetryDlq", queue=queue)
    client.pull(queue)
    client.ok("FAIL", id=job_id, error="again")
    assert client.pull(queue)["attempts"] == 1


def test_purge_forgets_the_dead(client: Client, queue: str) -> None:
    ids = [client.bury(queue, n) for n in range(3)]
    assert client.ok("PurgeDlq", queue=queue) == {"count": 3}
    assert entries(client, queue) == []
    assert [client.state(job_id) for job_id in ids] == ["unknown"] * 3
    assert client.ok("PurgeDlq", queue=queue) == {"count": 0}


def test_one_dead_job_can_be_removed(client: Client, queue: str) -> None:
    ids = [client.bury(queue, n) for n in range(2)]
    answer = client.ok("RemoveDlqJob", queue=queue, jobId=ids[0])
    assert answer == {"data": {"removed": True}}
    assert client.state(ids[0]) == "unknown"
    answer = client.ok("RemoveDlqJob", queue=queue, jobId=ids[0])
    assert answer == {"data": {"removed": False}}
    assert data_of(entries(client, queue)) == [1]


def test_a_living_job_is_not_removed_as_a_dead_one(client: Client, queue: str) -> None:
    job_id = client.push(queue, 1)
    answer = client.ok("RemoveDlqJob", queue=queue, jobId=job_id)
    assert answer == {"data": {"removed": False}}
    assert client.state(job_id) == "waiting"


def test_the_dead_are_counted(client: Client, queue: str) -> None:
    stats = client.ok("GetDlqStats", queue=queue)["data"]["stats"]
    assert (stats["total"], stats["oldestEntry"], stats["newestEntry"]) == (0, None, None)
    client.bury(queue, 1)
    client.ok("Discard", id=client.push(queue, 2))
    stats = client.ok("GetDlqStats", queue=queue)["data"]["stats"]
    assert stats["total"] == 2
    assert stats["byQueue"] == {queue: 2}
    assert set(stats["byReason"]) == {
        "explicit_fail",
        "max_attempts_exceeded",
        "timeout",
        "stalled",
        "ttl_expired",
        "worker_lost",
        "unknown",
    }
    assert stats["byReason"]["unknown"] == 1
    assert sum(stats["byReason"].values()) == 2
    assert (stats["pendingRetry"], stats["expired"]) == (0, 0)
    assert stats["oldestEntry"] <= stats["newestEntry"]


def test_the_configuration_has_defaults_and_can_be_changed_in_part(
    client: Client, queue: str
) -> None:
    defaults = {
        "autoRetry": False,
        "autoRetryInterval": 3_600_000,
        "maxAutoRetries": 3,
        "maxAge": 604_800_000,
        "maxEntries": 10_000,
    }
    assert client.ok("GetDlqConfig", queue=queue) == {"config": defaults}
    assert client.ok("SetDlqConfig", queue=queue, config={"maxAge": None}) == {}
    assert client.ok("SetDlqConfig", queue=queue, config={"maxEntries": 50}) == {}
    changed = {**defaults, "maxAge": None, "maxEntries": 50}
    assert client.ok("GetDlqConfig", queue=queue) == {"config": changed}
    client.bury(queue, 1)
    assert entries(client, queue)[0]["expiresAt"] is None


def test_the_oldest_give_way_to_the_newest(client: Client, queue: str) -> None:
    client.ok("SetDlqConfig", queue=queue, config={"maxEntries": 2})
    ids = [client.bury(queue, n) for n in range(4)]
    assert data_of(entries(client, queue)) == [2, 3]
    assert client.state(ids[0]) == "unknown"


@ours("it retries only at its sweep once a minute")
def test_dead_jobs_are_retried_by_themselves_when_asked(client: Client, queue: str) -> None:
    config = {"autoRetry": True, "autoRetryInterval": 60, "maxAutoRetries": 1}
    client.ok("SetDlqConfig", queue=queue, config=config)
    job_id = client.bury(queue, 1)
    [entry] = entries(client, queue)
    assert entry["nextRetryAt"] is not None
    assert client.pull(queue)["id"] == job_id
    client.ok("FAIL", id=job_id, error="again", unrecoverable=True)
    assert client.ok("PULL", queue=queue, timeout=300)["job"] is None
    [entry] = entries(client, queue)
    assert entry["retryCount"] == 1


@ours("it drops old entries only at its sweep once a minute")
def test_dead_jobs_leave_at_their_age(client: Client, queue: str) -> None:
    client.ok("SetDlqConfig", queue=queue, config={"maxAge": 80})
    job_id = client.bury(queue, 1)
    assert client.state(job_id) == "failed"
    client.ok("PULL", queue=queue, timeout=400)
    assert client.state(job_id) == "unknown"
    assert entries(client, queue) == []


def test_the_stall_configuration_has_defaults_and_can_be_changed_in_part(
    client: Client, queue: str
) -> None:
    defaults = {"enabled": True, "stallInterval": 30_000, "maxStalls": 3, "gracePeriod": 5000}
    assert client.ok("GetStallConfig", queue=queue) == {"config": defaults}
    assert client.ok("SetStallConfig", queue=queue, config={"maxStalls": 7}) == {}
    config = {"enabled": False, "gracePeriod": 1}
    client.ok("SetStallConfig", queue=queue, config=config)
    changed = {**defaults, **config, "maxStalls": 7}
    assert client.ok("GetStallConfig", queue=queue) == {"config": changed}


@pytest.mark.parametrize("cmd", ["SetDlqConfig", "SetStallConfig"])
@ours("it lets a missing configuration crash its code")
def test_a_configuration_must_be_a_map(client: Client, queue: str, cmd: str) -> None:
    client.refused(cmd, queue=queue)
    client.refused(cmd, queue=queue, config="x")
