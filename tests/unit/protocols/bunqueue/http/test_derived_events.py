"""Dashboard events besides job transitions: flows, schedules, limits, queues and workers."""

import pytest

from jobyard.engine.logs.logs import open_log
from jobyard.engine.topics.topic_setup import open_topic_queue
from jobyard.model.topic.config import LOG, read_config
from jobyard.protocols.bunqueue.http.hub import BEAT_MS, HEALTH_BEATS
from jobyard.protocols.bunqueue.http.watchdog import OVERLOAD_MS, QUEUE_IDLE_MS
from jobyard.protocols.bunqueue.workers import LOST_MS
from tests.support.clients.bunqueue import BunqueueClient
from tests.support.clients.flows import end_child, family
from tests.support.clients.http import EventSource
from tests.support.doors.http import BareHttp

LOOK_MS = BEAT_MS * HEALTH_BEATS


@pytest.fixture
def site() -> BareHttp:
    return BareHttp()


@pytest.fixture
def tcp(site: BareHttp) -> BunqueueClient:
    return site.connect()


# -- jobs --------------------------------------------------------------------------------------


def test_a_second_put_with_the_same_key_is_reported(site: BareHttp, tcp: BunqueueClient) -> None:
    source = EventSource(site)
    job_id = tcp.push("q", uniqueKey="k")
    tcp.push("q", uniqueKey="k")
    assert source.told("job:deduplicated") == [
        {"queue": "q", "jobId": job_id, "strategy": "default"}
    ]


def test_a_job_whose_time_to_live_is_over_is_reported(site: BareHttp, tcp: BunqueueClient) -> None:
    source = EventSource(site)
    job_id = tcp.push("q", ttl=100)
    cancelled = tcp.push("q", ttl=100)
    tcp.ok("Cancel", id=cancelled)
    site.tick(100)
    assert source.told("job:expired") == [{"queue": "q", "jobId": job_id, "ttl": 100, "age": 100}]


def test_a_run_that_took_too_long_is_reported(site: BareHttp, tcp: BunqueueClient) -> None:
    source = EventSource(site)
    job_id = tcp.push("q", timeout=300, maxAttempts=1)
    tcp.pull("q")
    site.tick(300)
    assert source.told("dlq:added", "job:timeout") == [
        {"queue": "q", "jobId": job_id, "reason": "timeout", "error": "Job timeout exceeded"},
        {"queue": "q", "jobId": job_id, "timeout": 300},
    ]


def test_a_lock_that_ran_out_is_reported(site: BareHttp, tcp: BunqueueClient) -> None:
    source = EventSource(site)
    job_id = tcp.push("q")
    tcp.ok("PULL", queue="q", owner="w", lockTtl=1000)
    site.tick(1000)
    assert source.told("job:lock-expired") == [{"queue": "q", "jobId": job_id}]


def test_a_stall_without_a_lock_is_no_lock_that_ran_out(
    site: BareHttp, tcp: BunqueueClient
) -> None:
    tcp.ok("SetStallConfig", queue="q", config={"stallInterval": 1000, "gracePeriod": 0})
    source = EventSource(site)
    tcp.push("q")
    tcp.pull("q")
    site.tick(10_000)
    names = [block.get("event") for block in source.blocks()]
    assert "job:stalled" in names
    assert "job:lock-expired" not in names


# -- flows -------------------------------------------------------------------------------------


def test_a_flow_whose_children_are_done_is_reported(site: BareHttp, tcp: BunqueueClient) -> None:
    source = EventSource(site)
    tcp.ok("PUSHF", jobs=family("one", "two"))
    assert source.told("flow:pushed") == [{"jobs": 3, "queues": 2}]
    end_child(tcp)
    assert source.told("job:dependencies-resolved", "flow:completed") == []
    end_child(tcp)
    assert source.told("job:dependencies-resolved", "flow:completed") == [
        {"queue": "q", "jobId": "p"},
        {"parentJobId": "p", "queue": "q", "childrenCount": 2},
    ]


def test_a_flow_one_of_whose_children_failed_is_reported(
    site: BareHttp, tcp: BunqueueClient
) -> None:
    source = EventSource(site)
    tcp.ok("PUSHF", jobs=family("one", failParentOnFailure=True))
    end_child(tcp, error="boom")
    assert source.told("flow:failed", "flow:completed") == [
        {"parentJobId": "p", "failedChildId": "one", "queue": "c", "error": "boom"},
    ]


def test_a_flow_that_goes_on_without_a_child_did_not_complete(
    site: BareHttp, tcp: BunqueueClient
) -> None:
    source = EventSource(site)
    tcp.ok("PUSHF", jobs=family("one", ignoreDependencyOnFailure=True))
    end_child(tcp, error="boom")
    names = [block.get("event") for block in source.blocks()]
    assert "job:dependencies-resolved" in names
    assert "flow:completed" not in names


# -- batches and limits ------------------------------------------------------------------------


def test_batches_are_reported_as_such(site: BareHttp, tcp: BunqueueClient) -> None:
    tcp.push("q", uniqueKey="k")
    source = EventSource(site)
    tcp.ok("PUSHB", queue="q", jobs=[{"data": 1}, {"data": 2}, {"data": 3, "uniqueKey": "k"}])
    tcp.ok("PULLB", queue="q", count=10)
    assert source.told("batch:pushed", "batch:pulled") == [
        {"queue": "q", "total": 3, "inserted": 2, "duplicates": 1},
        {"queue": "q", "count": 3},
    ]


def test_one_job_is_no_batch(site: BareHttp, tcp: BunqueueClient) -> None:
    source = EventSource(site)
    tcp.ok("PUSHB", queue="q", jobs=[{"data": 1}])
    tcp.ok("PULLB", queue="q", count=10)
    assert source.told("batch:pushed", "batch:pulled") == []


@pytest.mark.parametrize(
    ("command", "name"),
    [("SetConcurrency", "concurrency:rejected"), ("RateLimit", "ratelimit:rejected")],
)
def test_a_pull_that_a_limit_holds_up_is_reported(
    site: BareHttp, tcp: BunqueueClient, command: str, name: str
) -> None:
    source = EventSource(site)
    tcp.ok(command, queue="q", limit=1)
    tcp.push("q")
    tcp.push("q")
    tcp.pull("q")
    assert source.told(name) == []
    assert tcp.ok("PULL", queue="q")["job"] is None
    assert source.told(name) == [{"queue": "q"}]
    tcp.ok("Drain", queue="q")
    assert tcp.ok("PULL", queue="q")["job"] is None
    assert source.told(name) == [], "an empty queue holds nothing up"


# -- what happens without a command ------------------------------------------------------------


def test_schedules_that_fire_or_skip_are_reported(site: BareHttp, tcp: BunqueueClient) -> None:
    source = EventSource(site)
    tcp.ok("Cron", name="a", queue="q", data=1, repeatEvery=1000)
    tcp.ok("Cron", name="b", queue="q", data=1, repeatEvery=1500, skipIfNoWorker=True)
    site.tick(1000)
    site.tick(500)
    assert source.told("cron:fired") == [{"name": "a", "queue": "q"}]
    site.tick(500)
    tcp.ok("CronDelete", name="a")
    source.blocks()
    site.tick(1000)
    assert source.told("cron:skipped") == [{"name": "b", "queue": "q", "reason": "no-worker"}]


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"type": "log"}, "t is a log and takes no jobs"),
        ({"type": "queue", "cap_records": 1, "discard": "reject"}, "Topic full"),
        ({"type": "queue", "cap_bytes": 9}, "Job too large for its topic"),
    ],
)
def test_a_run_that_its_topic_does_not_take_is_reported_with_the_reason(
    site: BareHttp, tcp: BunqueueClient, given: dict[str, object], error: str
) -> None:
    source = EventSource(site)
    config = read_config(given)
    if config.type == LOG:
        open_log(site.yard, "t", config, site.now_ms)
    else:
        open_topic_queue(site.yard, "t", config, site.now_ms)
        tcp.push("t")
    tcp.ok("Cron", name="a", queue="t", data="x" * 20, repeatEvery=1000)
    site.tick(1000)
    assert source.told("cron:missed") == [{"name": "a", "queue": "t", "error": error}]


def test_a_run_for_which_there_is_no_room_is_reported(site: BareHttp, tcp: BunqueueClient) -> None:
    source = EventSource(site)
    tcp.ok("Cron", name="a", queue="q", data=1, repeatEvery=1000)
    site.yard.bodies.in_memory += 1 << 40
    site.tick(1000)
    assert source.told("cron:missed") == [{"name": "a", "queue": "q", "error": "Storage full"}]


def test_dead_jobs_that_are_retried_or_expire_are_reported(
    site: BareHttp, tcp: BunqueueClient
) -> None:
    config = {"autoRetry": True, "autoRetryInterval": 1000, "maxAutoRetries": 1, "maxAge": 5000}
    tcp.ok("SetDlqConfig", queue="q", config=config)
    source = EventSource(site)
    job_id = tcp.bury("q")
    site.tick(1000)
    assert source.told("dlq:auto-retried") == [{"queue": "q", "count": 1}]
    assert tcp.pull("q")["id"] == job_id
    tcp.ok("FAIL", id=job_id, unrecoverable=True)
    site.tick(5000)
    assert source.told("dlq:expired") == [{"queue": "q", "count": 1}]


# -- queues and workers ------------------------------------------------------------------------


def test_queues_that_come_and_go_are_reported(site: BareHttp, tcp: BunqueueClient) -> None:
    tcp.push("old")
    source = EventSource(site)
    tcp.push("old")
    tcp.push("new")
    tcp.push("new")
    assert source.told("queue:created") == [{"queue": "new"}]
    tcp.ok("Obliterate", queue="new")
    assert source.told("queue:obliterated", "queue:removed") == [{"queue": "new"}] * 2
    tcp.ok("Drain", queue="old")
    assert source.told("queue:removed") == []
    site.tick(LOOK_MS)
    assert source.told("queue:removed") == [{"queue": "old"}]
    tcp.push("new")
    assert source.told("queue:created") == [{"queue": "new"}]


def test_a_queue_that_rests_is_reported(site: BareHttp, tcp: BunqueueClient) -> None:
    source = EventSource(site)
    tcp.push("q", delay=QUEUE_IDLE_MS * 10)
    tcp.push("busy")
    for _ in range(QUEUE_IDLE_MS // LOOK_MS):
        site.tick(LOOK_MS)
    assert source.told("queue:idle") == []
    site.tick(LOOK_MS)
    told = source.told("queue:idle")
    assert {"queue": "q", "idleSeconds": QUEUE_IDLE_MS // 1000} in told
    assert "busy" not in {one["queue"] for one in told}


def test_workers_are_told_of_by_what_they_say(site: BareHttp, tcp: BunqueueClient) -> None:
    source = EventSource(site)
    tcp.ok("RegisterWorker", name="w", queues=["q"], workerId="w1", concurrency=2)
    tcp.ok("Heartbeat", id="w1", activeJobs=1, processed=4, failed=4)
    assert source.told("worker:idle", "worker:error") == []
    tcp.ok("Heartbeat", id="w1", activeJobs=0, processed=4, failed=6)
    assert source.told("worker:idle", "worker:error") == [
        {"workerId": "w1", "processedJobs": 4},
        {"workerId": "w1", "name": "w", "failedJobs": 6, "processedJobs": 4, "failureRate": 0.6},
    ]
    tcp.ok("Heartbeat", id="w1", activeJobs=0)
    assert source.told("worker:idle", "worker:error") == []


def test_a_worker_that_runs_all_it_can_for_long_is_told(
    site: BareHttp, tcp: BunqueueClient
) -> None:
    source = EventSource(site)
    tcp.ok("RegisterWorker", name="w", queues=["q"], workerId="w1", concurrency=2)
    for _ in range(OVERLOAD_MS // LOOK_MS + 1):
        tcp.ok("Heartbeat", id="w1", activeJobs=2)
        assert source.told("worker:overloaded") == []
        site.tick(LOOK_MS)
    assert source.told("worker:overloaded") == [
        {
            "workerId": "w1",
            "name": "w",
            "activeJobs": 2,
            "concurrency": 2,
            "overloadedSeconds": OVERLOAD_MS // 1000,
        }
    ]


def test_a_worker_without_heartbeats_is_reported(site: BareHttp, tcp: BunqueueClient) -> None:
    source = EventSource(site)
    tcp.ok("RegisterWorker", name="w", queues=["q"], workerId="w1")
    site.tick(LOST_MS)
    assert source.told("worker:removed-stale") == [{"workerId": "w1", "name": "w"}]


# -- connections -------------------------------------------------------------------------------


def test_a_connection_with_a_wrong_token_is_reported(site: BareHttp, tcp: BunqueueClient) -> None:
    source = EventSource(site)
    assert tcp.refused("Auth", token="wrong") == "Invalid token"
    assert source.told("auth:failed") == [{"transport": "tcp"}]


def test_a_connection_that_asks_too_often_is_reported(site: BareHttp, tcp: BunqueueClient) -> None:
    source = EventSource(site)
    site.door.requests_max = 1
    tcp.ok("Ping")
    assert source.told("ratelimit:hit") == []
    assert tcp.refused("Ping") == "Rate limit exceeded"
    assert source.told("ratelimit:hit") == [{"transport": "tcp"}]


def test_outcomes_of_webhooks_are_reported(site: BareHttp, tcp: BunqueueClient) -> None:
    url = "https://example.com/"
    hook = tcp.ok("AddWebhook", url=url, events=["job.pushed"])["data"]["webhookId"]
    source = EventSource(site)
    site.life.outcomes = [(hook, True, 1), (hook, False, 2), ("gone", True, 3)]
    tcp.ok("ListWebhooks")
    assert source.told("webhook:fired") == [{"webhookId": hook, "url": url}]
    site.life.outcomes = [(hook, False, 4)]
    tcp.ok("ListWebhooks")
    assert source.told("webhook:failed") == [{"webhookId": hook, "url": url}]


# -- what is stored ----------------------------------------------------------------------------


def test_results_are_not_kept_for_clients_that_reconnect(
    site: BareHttp, tcp: BunqueueClient
) -> None:
    EventSource(site)
    tcp.finish("q", result="x" * 100_000)
    kept = site.area.hub.after(0)
    assert [one.name for one in kept][-1] == "job:completed"
    assert all(one.raw() == b"" for one in kept)
    assert sum(len(one.block()) for one in kept) < 1000
