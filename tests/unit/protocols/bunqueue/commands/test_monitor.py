"""What the server reports about itself, without a socket."""

import pytest

from tests.support.clients.bunqueue import EMPTY
from tests.support.doors.bunqueue import BareBunqueue


def test_statistics_count_every_state() -> None:
    site = BareBunqueue()
    client = site.connect()
    client.finish()
    client.bury()
    for priority in (2, 1, 0):
        client.push(priority=priority)
    client.push(delay=5000)
    client.pull()
    site.now_ms += 2000
    stats = client.ok("Stats")["stats"]
    assert stats["pushPerSec"] == 3.0
    assert stats["pullPerSec"] == 1.5
    del stats["pushPerSec"], stats["pullPerSec"]
    assert stats == {
        "queued": 2,
        "waiting": 2,
        "processing": 1,
        "active": 1,
        "delayed": 1,
        "waitingChildren": 0,
        "dlq": 1,
        "completed": 1,
        "failed": 1,
        "uptime": 2000,
    }


def test_only_jobs_that_failed_for_good_count_as_failed() -> None:
    site = BareBunqueue()
    client = site.connect()
    job_id = client.push(maxAttempts=2, backoff=10)
    client.pull()
    client.ok("FAIL", id=job_id)
    assert client.ok("Metrics")["metrics"]["totalFailed"] == 0, "it is tried again"
    site.tick(1000)
    client.pull()
    client.ok("FAIL", id=job_id)
    assert client.ok("Metrics")["metrics"]["totalFailed"] == 1
    client.push("t", timeout=50, maxAttempts=1, removeOnFail=True)
    client.pull("t")
    site.tick(50)
    assert client.ok("Metrics")["metrics"]["totalFailed"] == 2, "nobody has to say so"


def test_metrics_tell_how_long_jobs_wait_and_run() -> None:
    site = BareBunqueue()
    client = site.connect()
    assert client.ok("Metrics")["metrics"]["avgProcessingMs"] == 0
    for wait_ms, run_ms in ((100, 30), (300, 70)):
        job_id = client.push()
        site.now_ms += wait_ms
        client.pull()
        site.now_ms += run_ms
        client.ok("ACK", id=job_id)
    metrics = client.ok("Metrics")["metrics"]
    assert (metrics["avgLatencyMs"], metrics["avgProcessingMs"]) == (200, 50)
    assert (metrics["memoryUsageMb"], metrics["activeConnections"]) == (12.5, 1)


def test_minutes_of_a_queue() -> None:
    site = BareBunqueue()
    client = site.connect()
    empty = client.ok("Metrics", queue="q", type="failed")["data"]
    assert empty == {"meta": {"count": 0, "prevTS": 0, "prevCount": 0}, "data": [], "count": 0}
    client.finish(removeOnComplete=True)
    site.tick(120_000)
    client.finish()
    client.finish()
    data = client.ok("Metrics", queue="q", type="completed")["data"]
    meta = {"count": 3, "prevTS": site.door.wall_ms(site.now_ms), "prevCount": 2}
    assert data == {"meta": meta, "data": [2, 0, 1], "count": 3}
    for fields, shown in (
        ({"start": 1}, [0, 1]),
        ({"start": 0, "end": 0}, [2]),
        ({"start": -1}, [1]),
        ({"end": -2}, [2, 0]),
    ):
        data = client.ok("Metrics", queue="q", type="completed", **fields)["data"]
        assert (data["data"], data["count"]) == (shown, 3)
    error = client.refused("Metrics", queue="q")
    assert error == "Metrics type must be 'completed' or 'failed'"


def test_a_full_disk_is_reported_with_its_time() -> None:
    site = BareBunqueue()
    client = site.connect()
    site.life.error, site.life.error_since_ms = "the disk is full", site.now_ms
    site.yard.journal.is_full = True
    wall_ms = site.door.wall_ms(site.now_ms)
    data = client.ok("StorageStatus")["data"]
    assert data == {"diskFull": True, "error": "the disk is full", "since": wall_ms}
    # Full a moment ago, and not noticed yet.
    site.life.error_since_ms = 0
    assert client.ok("StorageStatus")["data"]["since"] is None


def test_memory_can_be_compacted_at_any_time() -> None:
    client = BareBunqueue().connect()
    client.push(data=1)
    assert client.ok("CompactMemory") == EMPTY
    client.push(data=2)
    assert [client.pull()["data"] for _ in range(2)] == [1, 2]


def test_the_overview_has_everything() -> None:
    site = BareBunqueue()
    client = site.connect()
    client.finish()
    client.ok("RegisterWorker", name="w", queues=["q"])
    client.ok("Cron", name="c", queue="q", data=1, repeatEvery=60_000)
    data = client.ok("DashboardOverview")["data"]
    assert set(data) == {
        "stats",
        "throughput",
        "latency",
        "memory",
        "collections",
        "workers",
        "crons",
        "storage",
        "timestamp",
    }
    assert (data["stats"]["completed"], data["stats"]["totalPushed"]) == (1, 1)
    assert (data["workers"]["total"], data["workers"]["list"][0]["name"]) == (1, "w")
    assert [cron["name"] for cron in data["crons"]] == ["c"]
    assert data["storage"] == {"diskFull": False, "error": None, "since": None}


def test_queues_are_listed_by_name() -> None:
    client = BareBunqueue().connect()
    for name in ("b", "a", "c"):
        client.push(name)
    client.push("a", None, priority=5)
    client.ok("Pause", queue="b")
    data = client.ok("DashboardQueues")["data"]
    rows = {row["name"]: row for row in data["queues"]}
    assert [name for name in rows if name in "abc"] == ["a", "b", "c"]
    assert (rows["a"]["waiting"], rows["a"]["prioritized"]) == (2, 1)
    assert (rows["a"]["paused"], rows["b"]["paused"]) == (False, True)
    page = client.ok("DashboardQueues", limit=1, offset=1)["data"]
    assert ([row["name"] for row in page["queues"]], page["total"]) == (["b"], data["total"])


def test_one_queue_is_shown_with_its_jobs() -> None:
    client = BareBunqueue().connect()
    dead_id = client.bury(data={"x": 1})
    ids = [client.push() for _ in range(3)]
    client.pull()
    client.push(delay=1000)
    data = client.ok("DashboardQueue", queue="q", includeJobs=True, jobsLimit=1)["data"]
    assert (data["name"], data["paused"]) == ("q", False)
    assert (data["counts"]["waiting"], data["counts"]["failed"]) == (2, 1)
    [preview] = data["dlqPreview"]
    assert (preview["id"], preview["data"]) == (dead_id, {"x": 1})
    jobs = data["jobs"]
    assert [one["id"] for one in jobs["waiting"]] == [ids[1]]
    assert [one["id"] for one in jobs["active"]] == [ids[0]]
    assert (len(jobs["delayed"]), jobs["paused"]) == (1, [])
    client.ok("Pause", queue="q")
    jobs = client.ok("DashboardQueue", queue="q", includeJobs=True)["data"]["jobs"]
    assert [one["id"] for one in jobs["paused"]] == ids[1:]
    assert jobs["waiting"] == jobs["paused"]


def test_a_queue_that_is_not_there_is_empty() -> None:
    client = BareBunqueue().connect()
    data = client.ok("DashboardQueue", queue="none", includeJobs=True)["data"]
    assert (data["dlqPreview"], data["jobs"]["waiting"], data["paused"]) == ([], [], False)
    assert client.refused("DashboardQueue") == "Queue name is required"


@pytest.mark.parametrize("cmd", ["DashboardQueues", "Metrics"])
def test_a_bad_page_is_refused(cmd: str) -> None:
    client = BareBunqueue().connect()
    fields = {"queue": "q", "type": "failed", "start": "x", "limit": "x"}
    assert "must be a number" in client.refused(cmd, **fields)
