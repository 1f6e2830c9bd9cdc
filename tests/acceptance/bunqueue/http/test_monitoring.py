"""Ping, Hello, statistics, metrics and heartbeats."""

import re
import time

import pytest

from tests.support.servers.bunqueue import Answer, Client, ours
from tests.support.servers.patience import PATIENCE_S


def test_ping_tells_the_time(client: Client) -> None:
    data = client.ok("Ping")["data"]
    assert set(data) == {"pong", "time"}
    assert data["pong"] is True
    assert abs(data["time"] - time.time() * 1000) < PATIENCE_S * 1000


def test_hello_names_the_server(client: Client) -> None:
    answer = client.ok("Hello", protocolVersion=3, capabilities=["pipelining"])
    assert answer["protocolVersion"] == 3
    assert "pipelining" in answer["capabilities"]
    assert answer["server"] == "bunqueue"
    assert re.match(r"\d+\.\d+", answer["version"])


@ours("it always answers its own version")
@pytest.mark.parametrize(("asked", "answered"), [(1, 1), (2, 2), (3, 3), (99, 3)])
def test_hello_answers_the_lower_version(client: Client, asked: int, answered: int) -> None:
    answer = client.ok("Hello", protocolVersion=asked, capabilities=["pipelining"])
    assert answer["protocolVersion"] == answered
    assert "pipelining" in answer["capabilities"]


def test_hello_may_come_late_and_again(client: Client) -> None:
    client.ok("Ping")
    for _ in range(2):
        assert client.ok("Hello", protocolVersion=2)["server"] == "bunqueue"


def stats(client: Client) -> Answer:
    answer = client.ok("Stats")
    assert set(answer) == {"stats"}
    found: Answer = answer["stats"]
    return found


@ours("it has no queued and processing, which the protocol names")
def test_statistics_have_both_families_of_names(client: Client, queue: str) -> None:
    client.push(queue, 1)
    client.push(queue, 2)
    client.pull(queue)
    found = stats(client)
    for name, twin in (("queued", "waiting"), ("processing", "active")):
        assert found[name] == found[twin] >= 1


def test_statistics_follow_the_jobs(client: Client, queue: str) -> None:
    before = stats(client)
    client.finish(queue, 1)
    client.bury(queue)
    client.push(queue, 1)
    client.pull(queue)
    client.push(queue, 2)
    client.push(queue, 3, delay=600_000)
    after = stats(client)
    grown = {name: after[name] - before[name] for name in ("waiting", "active", "delayed", "dlq")}
    assert grown == {"waiting": 1, "active": 1, "delayed": 1, "dlq": 1}
    assert after["completed"] - before["completed"] == 1
    assert after["failed"] - before["failed"] == 1
    assert 0 <= before["uptime"] <= after["uptime"] < 3_600_000
    for name in ("pushPerSec", "pullPerSec"):
        assert after[name] >= 0


def test_metrics_follow_the_jobs(client: Client, queue: str) -> None:
    before = client.ok("Metrics")["metrics"]
    assert set(before) >= {
        "totalPushed",
        "totalPulled",
        "totalCompleted",
        "totalFailed",
        "avgLatencyMs",
        "avgProcessingMs",
        "memoryUsageMb",
        "sqliteSizeMb",
        "activeConnections",
    }
    client.ok("PUSHB", queue=queue, jobs=[{"data": n} for n in range(3)])
    ids = [job["id"] for job in client.ok("PULLB", queue=queue, count=3)["jobs"]]
    client.ok("ACKB", ids=ids[:2])
    client.ok("FAIL", id=ids[2], unrecoverable=True)
    after = client.ok("Metrics")["metrics"]
    totals = ("totalPushed", "totalPulled", "totalCompleted", "totalFailed")
    assert [after[name] - before[name] for name in totals] == [3, 3, 2, 1]
    assert after["memoryUsageMb"] > 1
    assert all(after[name] >= 0 for name in after)


@ours("it always says zero")
def test_metrics_count_connections(client: Client, other: Client) -> None:
    assert other.ok("Ping")
    assert client.ok("Metrics")["metrics"]["activeConnections"] >= 2


def test_a_queue_has_metrics_by_the_minute(client: Client, queue: str) -> None:
    for _ in range(3):
        client.finish(queue, 1)
    client.bury(queue)
    for kind, count in (("completed", 3), ("failed", 1)):
        data = client.ok("Metrics", queue=queue, type=kind)["data"]
        assert set(data) == {"meta", "data", "count"}
        assert set(data["meta"]) == {"count", "prevTS", "prevCount"}
        assert data["meta"]["count"] == count
        assert sum(data["data"]) == count
        assert data["count"] == len(data["data"])
    client.refused("Metrics", queue=queue, type="other")
    client.refused("Metrics", queue="a b", type="completed")


NAMES = [
    "bunqueue_jobs_waiting",
    "bunqueue_jobs_delayed",
    "bunqueue_jobs_active",
    "bunqueue_jobs_dlq",
    "bunqueue_jobs_completed",
    "bunqueue_jobs_pushed_total",
    "bunqueue_jobs_pulled_total",
    "bunqueue_jobs_completed_total",
    "bunqueue_jobs_failed_total",
    "bunqueue_uptime_seconds",
    "bunqueue_cron_jobs_registered",
    "bunqueue_workers_registered",
    "bunqueue_workers_active",
    "bunqueue_webhooks_registered",
]


def test_prometheus_gets_its_text(client: Client, queue: str) -> None:
    client.push(queue, 1)
    text = client.ok("Prometheus")["data"]["metrics"]
    values = dict(
        line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#")
    )
    for name in NAMES:
        assert float(values[name]) >= 0
        assert re.search(rf"^# TYPE {name} (gauge|counter)$", text, re.MULTILINE)
    assert float(values["bunqueue_jobs_waiting"]) >= 1
    shown = [name for name in values if name.startswith("bunqueue_queue_jobs_waiting{")]
    # Past a hundred queues the rest are left out.
    assert f'bunqueue_queue_jobs_waiting{{queue="{queue}"}}' in shown or len(shown) == 100


def test_the_storage_is_well(client: Client) -> None:
    assert client.ok("StorageStatus") == {"data": {"diskFull": False, "error": None, "since": None}}


def test_an_active_job_takes_heartbeats(client: Client, queue: str) -> None:
    job_id = client.push(queue, 1)
    error = "Job not found or not active (or invalid token)"
    assert client.refused("JobHeartbeat", id=job_id) == error
    client.pull(queue)
    before = client.job(job_id)["lastHeartbeat"]
    assert client.ok("JobHeartbeat", id=job_id) == {"data": {"ok": True}}
    assert client.job(job_id)["lastHeartbeat"] >= before


def test_a_heartbeat_with_a_wrong_token_is_refused(client: Client, queue: str) -> None:
    client.push(queue, 1)
    job_id, token = client.lock(queue)
    error = "Job not found or not active (or invalid token)"
    assert client.refused("JobHeartbeat", id=job_id, token="wrong") == error
    assert client.ok("JobHeartbeat", id=job_id, token=token) == {"data": {"ok": True}}
    assert client.ok("JobHeartbeat", id=job_id, token=token, duration=5000)


def test_many_jobs_take_heartbeats_at_once(client: Client, queue: str) -> None:
    client.ok("PUSHB", queue=queue, jobs=[{"data": n} for n in range(3)])
    answer = client.ok("PULLB", queue=queue, count=3, owner="me")
    ids = [job["id"] for job in answer["jobs"]]
    beat = client.ok("JobHeartbeatB", ids=ids, tokens=answer["tokens"])
    assert beat == {"data": {"ok": True, "count": 3}}
    tokens = [answer["tokens"][0], "wrong", answer["tokens"][2]]
    beat = client.ok("JobHeartbeatB", ids=ids, tokens=tokens)
    assert beat == {"data": {"ok": True, "count": 2}}
    assert client.ok("JobHeartbeatB", ids=["nobody"]) == {"data": {"ok": True, "count": 0}}
    assert client.ok("JobHeartbeatB", ids=[]) == {"data": {"ok": True, "count": 0}}


def test_events_can_be_trimmed(client: Client, queue: str) -> None:
    for n in range(5):
        client.push(queue, n)
    data = client.ok("TrimEvents", queue=queue, maxLength=1)["data"]
    assert set(data) == {"removed"}
    assert data["removed"] >= 0
