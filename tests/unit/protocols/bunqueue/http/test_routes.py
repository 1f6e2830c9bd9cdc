"""Every route of bunqueue's HTTP API: what it does, what it answers, what it refuses."""

from typing import Any, Final
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobyard.protocols.bunqueue.commands.registry import WORKERS_MAX
from jobyard.protocols.bunqueue.commands.table import COMMANDS
from jobyard.protocols.bunqueue.http.pages import PAGES, RoutedPage
from jobyard.protocols.bunqueue.http.routes import ROWS, Row
from jobyard.protocols.bunqueue.workers import LOST_MS
from tests.support.clients.bunqueue import BunqueueClient
from tests.support.clients.http import BunqueueHttpClient
from tests.support.doors.http import BareHttp

Case = tuple[str, str, object, int, Any]

NO_JOB: Final = "01890000-0000-7000-8000-000000000000"
ABSENT: Final = "Job not found"
NOT_RUNNING: Final = f"Job not found or not in processing state: {NO_JOB}"
BAD_QUEUE: Final = "Queue name contains invalid characters"


@pytest.fixture
def site() -> BareHttp:
    return BareHttp()


@pytest.fixture
def http(site: BareHttp) -> BunqueueHttpClient:
    return site.call()


@pytest.fixture
def tcp(site: BareHttp) -> BunqueueClient:
    return site.connect()


# What no route grants: method, path, body, status and reason.
REFUSALS: Final[tuple[Case, ...]] = (
    ("POST", "/queues/q/jobs", {}, 400, "Job data is required"),
    ("POST", "/queues/q/jobs", {"data": 1, "priority": "x"}, 400, "priority must be a number"),
    ("POST", "/queues/q%20q/jobs", {"data": 1}, 400, BAD_QUEUE),
    ("POST", "/queues//jobs", {"data": 1}, 400, "Queue name is required"),
    ("GET", "/queues//jobs", None, 200, "Queue name is required"),
    ("POST", "/queues/q/jobs", b"{", 400, "Invalid JSON body"),
    ("POST", "/queues/q/jobs", None, 400, "Invalid JSON body"),
    ("POST", "/queues/q/jobs", [], 400, "Invalid JSON body"),
    ("POST", "/queues/q/jobs", b"[" * 5000, 400, "Invalid JSON body"),
    ("POST", "/queues/q/jobs", b'{"data": {"n": 1e999}}', 400, "Invalid JSON body"),
    ("POST", "/queues/q/jobs", b'{"data": %s}' % (b"9" * 400), 400, "Invalid JSON body"),
    ("POST", "/queues/q/jobs", {"data": 1, "priority": 1e19}, 400,
     "priority must be at most 1000000"),
    ("POST", "/queues/q/jobs", {"data": 1, "delay": -(1 << 64)}, 400, "delay must be at least 0"),
    ("POST", "/queues/q/jobs", {"data": 1, "timestamp": 1e300}, 400,
     "timestamp must be at most 8640000000000000"),
    ("POST", "/queues/q/retry-completed", {"count": 1e19}, 200,
     "count must be at most 1000000000"),
    ("GET", "/queues/q/jobs/list?limit=99999999999999999999", None, 200,
     "limit must be at most 9007199254740991"),
    ("POST", "/queues/q/jobs/bulk", {}, 400, "jobs must be an array"),
    ("POST", "/queues/q/jobs/bulk", {"jobs": [{}]}, 400, "jobs[0]: Job data is required"),
    ("GET", "/queues/q%20q/jobs", None, 200, BAD_QUEUE),
    ("GET", "/queues/q/jobs?timeout=soon", None, 200, "timeout must be a finite number"),
    ("POST", "/queues/q/jobs/pull-batch", {"count": 0}, 200, "count must be at least 1"),
    ("POST", "/queues/q/jobs/pull-batch", b"no", 400, "Invalid JSON body"),
    ("GET", "/queues/q/jobs/list?limit=many", None, 200, "limit must be a finite number"),
    ("GET", "/queues/q!/counts", None, 200, BAD_QUEUE),
    ("GET", "/queues/q!/count", None, 200, BAD_QUEUE),
    ("GET", "/queues/q!/priority-counts", None, 200, BAD_QUEUE),
    ("GET", "/queues/q!/paused", None, 200, BAD_QUEUE),
    ("POST", "/queues/q!/pause", None, 200, BAD_QUEUE),
    ("POST", "/queues/q!/resume", None, 200, BAD_QUEUE),
    ("POST", "/queues/q!/drain", None, 200, BAD_QUEUE),
    ("POST", "/queues/q!/obliterate", None, 200, BAD_QUEUE),
    ("POST", "/queues/q/clean", {"grace": -1}, 200, "grace must be at least 0"),
    ("POST", "/queues/q/clean", None, 200, "grace is required"),
    ("POST", "/queues/q/promote-jobs", {"count": "x"}, 200, "count must be a number"),
    ("POST", "/queues/q/retry-completed", {"id": 5}, 200, "id must be a string"),
    ("GET", "/queues/q!/dlq", None, 400, BAD_QUEUE),
    ("GET", "/queues/q!/dlq/stats", None, 200, BAD_QUEUE),
    ("POST", "/queues/q/dlq/retry", {"jobId": 5}, 200, "jobId must be a string"),
    ("POST", "/queues/q!/dlq/purge", None, 200, BAD_QUEUE),
    ("PUT", "/queues/q/rate-limit", {}, 200, "limit must be a finite number"),
    ("DELETE", "/queues/q!/rate-limit", None, 200, BAD_QUEUE),
    ("PUT", "/queues/q/concurrency", {}, 200, "limit must be a finite number"),
    ("DELETE", "/queues/q!/concurrency", None, 200, BAD_QUEUE),
    ("GET", "/queues/q!/stall-config", None, 200, BAD_QUEUE),
    ("GET", "/queues/q!/dlq-config", None, 200, BAD_QUEUE),
    ("POST", "/jobs/ack-batch", {}, 400, "ids must be an array of strings"),
    ("POST", "/jobs/extend-locks", {}, 400, "ids must be an array of strings"),
    ("POST", "/jobs/heartbeat-batch", {}, 400, "ids must be an array of strings"),
    ("GET", "/jobs/custom/none", None, 404, ABSENT),
    ("GET", f"/jobs/{NO_JOB}", None, 404, ABSENT),
    ("DELETE", f"/jobs/{NO_JOB}", None, 200, "Job not found or cannot be cancelled"),
    ("POST", f"/jobs/{NO_JOB}/ack", None, 400, NOT_RUNNING),
    ("POST", f"/jobs/{NO_JOB}/fail", {"error": "no"}, 400, NOT_RUNNING),
    ("POST", f"/jobs/{NO_JOB}/promote", None, 400, "Job not found or not delayed"),
    ("PUT", f"/jobs/{NO_JOB}/data", {"data": 1}, 400, "Job not found or cannot be updated"),
    ("PUT", f"/jobs/{NO_JOB}/data", None, 400, "Invalid JSON body"),
    ("GET", f"/jobs/{NO_JOB}/progress", None, 404, ABSENT),
    ("POST", f"/jobs/{NO_JOB}/progress", {"progress": 1}, 400, ABSENT),
    ("POST", f"/jobs/{NO_JOB}/discard", None, 400, ABSENT),
    ("POST", f"/jobs/{NO_JOB}/logs", {"message": "x"}, 400, ABSENT),
    ("POST", f"/jobs/{NO_JOB}/wait", None, 200, ABSENT),
    ("POST", f"/jobs/{NO_JOB}/heartbeat", None, 400,
     "Job not found or not active (or invalid token)"),
    ("POST", f"/jobs/{NO_JOB}/extend-lock", {"duration": 5}, 400,
     "Lock not found or invalid token"),
    ("POST", f"/jobs/{NO_JOB}/move-to-wait", None, 400,
     "Cannot move job from state 'unknown' to waiting"),
    ("POST", "/crons", {"name": "n", "queue": "q", "data": 1}, 400,
     "Cron job must have either schedule or repeatEvery"),
    ("GET", "/crons/none", None, 404, "Cron job not found"),
    ("DELETE", "/crons/none", None, 404, "Cron job not found"),
    ("POST", "/webhooks", {"events": ["job.pushed"]}, 400, "Webhook URL is required"),
    ("DELETE", "/webhooks/none", None, 404, "Webhook not found"),
    ("PUT", "/webhooks/none/enabled", {"enabled": True}, 400, "Webhook not found"),
    ("POST", "/workers", {"queues": ["q"]}, 400, "name is required"),
    ("DELETE", "/workers/none", None, 404, "Worker not found"),
    ("POST", "/workers/none/heartbeat", b"{", 200, "Worker not found"),
    ("GET", "/dashboard/queues/q!", None, 400, BAD_QUEUE),
    ("GET", "/", None, 404, "Not found"),
    ("GET", "/queues/q", None, 404, "Not found"),
    ("GET", "/queues/q/jobs/", None, 404, "Not found"),
    ("GET", "/jobs", None, 404, "Not found"),
    ("PUT", "/queues/q/jobs", None, 405, "Method not allowed"),
    ("POST", "/health", None, 405, "Method not allowed"),
    ("GET", "/queues/%zz/jobs", None, 400, "malformed path"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "error"), REFUSALS, ids=lambda part: str(part)[:40]
)
def test_what_cannot_be_done_is_refused(
    http: BunqueueHttpClient, method: str, path: str, body: object, status: int, error: str
) -> None:
    reply = http.ask(method, path, body)
    assert (reply.status, reply.error) == (status, error)
    assert reply.headers["access-control-allow-origin"] == "*"


# What an empty yard answers.
EMPTY: Final[tuple[Case, ...]] = (
    ("GET", "/queues", None, 200, {"queues": []}),
    ("GET", "/queues/q/jobs", None, 200, {"job": None}),
    ("POST", "/queues/q/jobs/pull-batch", {"count": 5}, 200, {"jobs": []}),
    ("GET", "/queues/q/jobs/list", None, 200, {"jobs": []}),
    ("GET", "/queues/q/count", None, 200, {"count": 0}),
    ("GET", "/queues/q/priority-counts", None, 200, {"queue": "q", "counts": {}}),
    ("GET", "/queues/q/paused", None, 200, {"paused": False}),
    ("POST", "/queues/q/resume", None, 200, {}),
    ("POST", "/queues/q/drain", None, 200, {"count": 0}),
    ("POST", "/queues/q/obliterate", None, 200, {}),
    ("POST", "/queues/q/clean", {"grace": 0}, 200, {"count": 0, "ids": []}),
    ("POST", "/queues/q/promote-jobs", None, 200, {"count": 0}),
    ("POST", "/queues/q/retry-completed", None, 200, {"count": 0}),
    ("GET", "/queues/q/dlq", None, 200, {"entries": [], "total": 0}),
    ("POST", "/queues/q/dlq/retry", None, 200, {"count": 0}),
    ("POST", "/queues/q/dlq/purge", None, 200, {"count": 0}),
    ("DELETE", "/queues/q/rate-limit", None, 200, {}),
    ("DELETE", "/queues/q/concurrency", None, 200, {}),
    ("GET", "/queues/q/workers", None, 200, {"workers": []}),
    ("POST", "/jobs/ack-batch", {"ids": []}, 200, {}),
    ("POST", "/jobs/extend-locks", {"ids": [], "durations": []}, 200, {"count": 0}),
    ("POST", "/jobs/heartbeat-batch", {"ids": []}, 200, {"data": {"ok": True, "count": 0}}),
    ("GET", f"/jobs/{NO_JOB}/state", None, 200, {"id": NO_JOB, "state": "unknown"}),
    ("GET", f"/jobs/{NO_JOB}/result", None, 200, {"id": NO_JOB}),
    ("GET", f"/jobs/{NO_JOB}/logs", None, 200, {"data": {"logs": [], "count": 0}}),
    ("DELETE", f"/jobs/{NO_JOB}/logs", None, 200, {}),
    ("GET", "/crons", None, 200, {"crons": []}),
    ("GET", "/webhooks", None, 200,
     {"data": {"webhooks": [], "stats": {"total": 0, "enabled": 0}}}),
    ("GET", "/storage", None, 200,
     {"data": {"diskFull": False, "error": None, "since": None}}),
    ("GET", "/ready", None, 200, {"ready": True}),
)  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "said"), EMPTY, ids=lambda part: str(part)[:40]
)
def test_an_empty_yard_answers_too(
    http: BunqueueHttpClient, method: str, path: str, body: object, status: int, said: object
) -> None:
    assert status == 200
    assert http.ok(method, path, body) == said


# -- jobs --------------------------------------------------------------------------------------


def push(http: BunqueueHttpClient, **fields: object) -> str:
    job_id: str = http.ok("POST", "/queues/q/jobs", {"data": {"n": 1}, **fields})["id"]
    return job_id


def take(http: BunqueueHttpClient, query: str = "") -> Any:
    job = http.ok("GET", "/queues/q/jobs" + query)
    assert job["job"] is not None
    return job


def test_a_job_is_pushed_pulled_and_acked(http: BunqueueHttpClient, tcp: BunqueueClient) -> None:
    job_id = push(http, name="mail", attempts=2, priority=3)
    job = take(http)["job"]
    assert (job["id"], job["name"], job["data"]) == (job_id, "mail", {"n": 1})
    assert (job["maxAttempts"], job["priority"]) == (2, 3)
    assert http.ok("POST", f"/jobs/{job_id}/ack", {"result": {"sum": 2}}) == {}
    assert http.ok("GET", f"/jobs/{job_id}/result")["result"] == {"sum": 2}
    assert http.ok("GET", f"/jobs/{job_id}/state")["state"] == "completed"
    assert tcp.state(job_id) == "completed"


def test_a_push_may_name_attempts_either_way(http: BunqueueHttpClient) -> None:
    job_id = push(http, attempts=2, maxAttempts=7)
    assert http.ok("GET", f"/jobs/{job_id}")["job"]["maxAttempts"] == 7


def test_every_option_of_a_push_is_one_of_a_request(http: BunqueueHttpClient) -> None:
    job_id = push(http, jobId="mine", tags=["a"], delay=5000, removeOnFail=True, groupId="g")
    assert job_id == "mine"
    job = http.ok("GET", "/jobs/custom/mine")["job"]
    assert (job["tags"], job["removeOnFail"], job["groupId"]) == (["a"], True, "g")
    assert job["state"] == "delayed"


def test_a_request_cannot_name_another_command_or_queue(http: BunqueueHttpClient) -> None:
    body = {"data": 1, "cmd": "Obliterate", "reqId": "7", "queue": "other"}
    said = http.ok("POST", "/queues/q/jobs", body)
    assert set(said) == {"id"}
    assert http.ok("GET", "/queues/q/count") == {"count": 1}
    assert http.ok("GET", "/queues/other/count") == {"count": 0}


def test_jobs_are_pushed_pulled_and_acked_in_batches(http: BunqueueHttpClient) -> None:
    jobs = [{"data": 1}, {"data": 2, "name": "b"}]
    ids = http.ok("POST", "/queues/q/jobs/bulk", {"jobs": jobs})["ids"]
    taken = http.ok("POST", "/queues/q/jobs/pull-batch", {"count": 9, "owner": "me"})
    assert [job["id"] for job in taken["jobs"]] == ids
    acks = {"ids": ids, "tokens": taken["tokens"], "results": [10, 20]}
    assert http.ok("POST", "/jobs/ack-batch", acks) == {}
    assert http.ok("GET", f"/jobs/{ids[1]}/result")["result"] == 20


def test_the_ids_of_very_many_jobs_are_answered_in_pieces(http: BunqueueHttpClient) -> None:
    jobs = [{"data": at, "customId": f"{at:05}" + "x" * 95} for at in range(6000)]
    ids = http.ok("POST", "/queues/q/jobs/bulk", {"jobs": jobs})["ids"]
    assert ids == [job["customId"] for job in jobs]


def test_a_pulled_job_belongs_to_no_connection(site: BareHttp, http: BunqueueHttpClient) -> None:
    job_id = push(http)
    assert take(http)["job"]["id"] == job_id
    http.close()
    other = site.call()
    assert other.ok("GET", f"/jobs/{job_id}/state")["state"] == "active"
    assert other.ok("POST", f"/jobs/{job_id}/ack") == {}
    site.check()


def test_a_pull_with_an_owner_gives_a_token(http: BunqueueHttpClient) -> None:
    job_id = push(http)
    taken = take(http, "?owner=me&lockTtl=5000")
    refused = http.ask("POST", f"/jobs/{job_id}/ack")
    assert (refused.status, refused.error) == (400, f"Lock token required for job {job_id}")
    token = taken["token"]
    assert http.ok("POST", f"/jobs/{job_id}/heartbeat", {"token": token})["data"] == {"ok": True}
    more = {"token": token, "duration": 60000}
    assert http.ok("POST", f"/jobs/{job_id}/extend-lock", more) == {}
    locks = {"ids": [job_id], "tokens": [token], "durations": [60000]}
    assert http.ok("POST", "/jobs/extend-locks", locks) == {"count": 1}
    beats = {"ids": [job_id], "tokens": [token]}
    assert http.ok("POST", "/jobs/heartbeat-batch", beats)["data"]["count"] == 1
    assert http.ok("POST", f"/jobs/{job_id}/ack", {"token": token}) == {}


def test_a_failed_job_is_retried_and_ends_among_the_dead(http: BunqueueHttpClient) -> None:
    job_id = push(http, maxAttempts=1)
    take(http)
    assert http.ok("POST", f"/jobs/{job_id}/fail", {"error": "boom"}) == {}
    dead = http.ok("GET", "/queues/q/dlq?limit=5&offset=0")
    assert dead["total"] == 1
    assert dead["entries"][0]["job"]["id"] == job_id
    assert dead["entries"][0]["error"] == "boom"
    assert http.ok("GET", "/queues/q/dlq?offset=1&limit=x") == {"entries": [], "total": 1}
    assert http.ok("GET", "/queues/q/dlq/stats")["stats"]["total"] == 1
    assert http.ok("POST", "/queues/q/dlq/retry", {"jobId": job_id}) == {"count": 1}
    assert http.ok("GET", f"/jobs/{job_id}/state")["state"] == "waiting"
    take(http)
    assert http.ok("POST", f"/jobs/{job_id}/fail", {"unrecoverable": True}) == {}
    assert http.ok("POST", "/queues/q/dlq/purge") == {"count": 1}


def test_a_waiting_job_is_changed_and_removed(http: BunqueueHttpClient) -> None:
    job_id = push(http)
    assert http.ok("PUT", f"/jobs/{job_id}/data", {"data": {"n": 2}}) == {}
    assert http.ok("PUT", f"/jobs/{job_id}/priority", {"priority": 9}) == {}
    assert http.ok("PUT", f"/jobs/{job_id}/delay", {"delay": 60000}) == {}
    job = http.ok("GET", f"/jobs/{job_id}")["job"]
    assert (job["data"], job["priority"], job["state"]) == ({"n": 2}, 9, "delayed")
    assert http.ok("POST", f"/jobs/{job_id}/promote") == {}
    assert http.ok("GET", f"/jobs/{job_id}/state")["state"] == "waiting"
    assert http.ok("DELETE", f"/jobs/{job_id}") == {}
    assert http.ask("GET", f"/jobs/{job_id}").status == 404


def test_a_running_job_tells_how_far_it_is(http: BunqueueHttpClient) -> None:
    job_id = push(http)
    take(http)
    assert http.ok("POST", f"/jobs/{job_id}/progress", {"progress": 40, "message": "m"}) == {}
    assert http.ok("GET", f"/jobs/{job_id}/progress") == {"progress": 40, "message": "m"}
    assert http.ok("POST", f"/jobs/{job_id}/logs", {"message": "one"})["data"] == {"added": True}
    http.ok("POST", f"/jobs/{job_id}/logs", {"message": "two", "level": "warn"})
    logs = http.ok("GET", f"/jobs/{job_id}/logs?start=1&end=1")["data"]
    assert [(line["message"], line["level"]) for line in logs["logs"]] == [("two", "warn")]
    assert logs["count"] == 2
    assert http.ok("DELETE", f"/jobs/{job_id}/logs") == {}
    assert http.ok("POST", f"/jobs/{job_id}/move-to-delayed", {"delay": 9000}) == {}
    assert http.ok("GET", f"/jobs/{job_id}/state")["state"] == "delayed"
    assert http.ok("POST", f"/jobs/{job_id}/move-to-wait") == {}
    assert http.ok("GET", f"/jobs/{job_id}/state")["state"] == "waiting"
    assert http.ok("POST", f"/jobs/{job_id}/discard") == {}
    assert http.ok("GET", f"/jobs/{job_id}/state")["state"] == "failed"


def test_the_children_of_a_job_are_shown(http: BunqueueHttpClient) -> None:
    job_id = push(http)
    assert http.ok("GET", f"/jobs/{job_id}/children") == {"data": {"values": {}}}


# -- queues ------------------------------------------------------------------------------------


def test_a_queue_is_paused_resumed_and_counted(http: BunqueueHttpClient) -> None:
    push(http, priority=2)
    push(http, delay=5000)
    assert http.ok("POST", "/queues/q/pause") == {}
    assert http.ok("GET", "/queues/q/paused") == {"paused": True}
    assert http.ok("GET", "/queues/q/jobs") == {"job": None}
    counts = http.ok("GET", "/queues/q/counts")["counts"]
    assert (counts["paused"], counts["waiting"], counts["delayed"]) == (1, 1, 1)
    assert http.ok("POST", "/queues/q/resume") == {}
    assert http.ok("GET", "/queues/q/count") == {"count": 2}
    assert http.ok("GET", "/queues/q/priority-counts")["counts"] == {"0": 1, "2": 1}
    assert [one["name"] for one in http.ok("GET", "/queues")["queues"]] == ["q"]
    assert http.ok("POST", "/queues/q/promote-jobs", {"count": 5}) == {"count": 1}
    assert http.ok("POST", "/queues/q/drain") == {"count": 2}


@pytest.mark.parametrize("query", ["state=waiting,delayed", "status=delayed&states=waiting", ""])
def test_jobs_are_listed_by_their_states(http: BunqueueHttpClient, query: str) -> None:
    first = push(http)
    second = push(http, delay=5000)
    listed = http.ok("GET", f"/queues/q/jobs/list?{query}")["jobs"]
    assert {job["id"] for job in listed} == {first, second}
    page = http.ok("GET", "/queues/q/jobs/list?state=delayed&limit=1&offset=0")["jobs"]
    assert [job["id"] for job in page] == [second]
    newest = http.ok("GET", "/queues/q/jobs/list?asc=false&limit=1")["jobs"]
    assert [job["id"] for job in newest] == [second]


def test_done_jobs_run_again_or_are_cleaned(http: BunqueueHttpClient) -> None:
    job_id = push(http)
    take(http)
    http.ok("POST", f"/jobs/{job_id}/ack")
    assert http.ok("POST", "/queues/q/retry-completed", {"id": job_id}) == {"count": 1}
    cleaned = http.ok("POST", "/queues/q/clean", {"grace": 0, "state": "waiting", "limit": 5})
    assert cleaned == {"count": 1, "ids": [job_id]}


def test_a_queue_named_like_a_word_of_the_api_is_a_queue(http: BunqueueHttpClient) -> None:
    http.ok("POST", "/queues/summary/jobs", {"data": 1})
    assert http.ok("GET", "/queues/summary/count") == {"count": 1}
    assert http.ok("POST", "/queues/summary/obliterate") == {}


def test_limits_are_set_and_cleared(http: BunqueueHttpClient, tcp: BunqueueClient) -> None:
    assert http.ok("PUT", "/queues/q/rate-limit", {"limit": 5, "duration": 2000}) == {}
    assert http.ok("PUT", "/queues/q/concurrency", {"concurrency": 3}) == {}
    limits = tcp.ok("GetQueueLimits", queue="q")["data"]["limits"]
    assert limits["rateLimit"] == {"max": 5, "duration": 2000}
    assert limits["concurrencyLimit"] == 3
    assert http.ok("PUT", "/queues/q/concurrency", {"limit": 4}) == {}
    assert tcp.ok("GetQueueLimits", queue="q")["data"]["limits"]["concurrencyLimit"] == 4
    http.ok("DELETE", "/queues/q/rate-limit")
    http.ok("DELETE", "/queues/q/concurrency")
    limits = tcp.ok("GetQueueLimits", queue="q")["data"]["limits"]
    assert (limits["rateLimit"], limits["concurrencyLimit"]) == (None, None)


@pytest.mark.parametrize("is_wrapped", [True, False])
@pytest.mark.parametrize(
    ("path", "config"),
    [
        ("/queues/q/stall-config", {"maxStalls": 7}),
        ("/queues/q/dlq-config", {"maxEntries": 11}),
    ],
)
def test_settings_come_wrapped_or_bare(
    http: BunqueueHttpClient, path: str, config: dict[str, int], *, is_wrapped: bool
) -> None:
    http.ok("PUT", path, {"config": config} if is_wrapped else config)
    said = http.ok("GET", path)
    (key,) = config
    assert said["config"][key] == config[key]


# -- schedules, webhooks, workers --------------------------------------------------------------


def test_a_schedule_is_set_shown_and_dropped(http: BunqueueHttpClient) -> None:
    body = {"name": "n/1", "queue": "q", "data": {}, "repeatEvery": 60000}
    assert http.ok("POST", "/crons", body)["cron"]["repeatEvery"] == 60000
    assert [one["name"] for one in http.ok("GET", "/crons")["crons"]] == ["n/1"]
    assert http.ok("GET", "/crons/n%2F1")["cron"]["queue"] == "q"
    assert http.ok("DELETE", "/crons/n%2F1") == {}


def test_a_webhook_is_added_switched_and_removed(http: BunqueueHttpClient) -> None:
    body = {"url": "https://example.com/hook", "events": ["job.pushed"]}
    webhook_id = http.ok("POST", "/webhooks", body)["data"]["webhookId"]
    assert http.ok("PUT", f"/webhooks/{webhook_id}/enabled", {"enabled": False}) == {}
    (row,) = http.ok("GET", "/webhooks")["data"]["webhooks"]
    assert (row["id"], row["enabled"]) == (webhook_id, False)
    assert http.ok("DELETE", f"/webhooks/{webhook_id}")["data"] == {"removed": True}


def test_a_worker_outlasts_the_connection_it_registered_on(
    site: BareHttp, http: BunqueueHttpClient
) -> None:
    body = {"name": "w", "queues": ["q"], "concurrency": 4, "workerId": "w1"}
    assert http.ok("POST", "/workers", body)["data"]["workerId"] == "w1"
    # A caller that disconnects while it waits must not take the workers with it.
    waiting = site.call()
    waiting.send("GET", "/queues/q/jobs?timeout=5000")
    waiting.close()
    http.close()
    other = site.call()
    beat = {"activeJobs": 1, "processed": 5, "failed": 2}
    assert other.ok("POST", "/workers/w1/heartbeat", beat)["data"] == {"ok": True}
    assert other.ok("POST", "/workers/w1/heartbeat", b"{")["data"] == {"ok": True}
    (row,) = other.ok("GET", "/workers")["data"]["workers"]
    assert (row["id"], row["processedJobs"]) == ("w1", 5)
    assert [one["id"] for one in other.ok("GET", "/queues/q/workers")["workers"]] == ["w1"]
    assert other.ok("GET", "/queues/r/workers") == {"workers": []}
    assert other.ok("DELETE", "/workers/w1")["data"] == {"removed": True}


def test_workers_that_are_gone_make_room_for_others(
    site: BareHttp, http: BunqueueHttpClient
) -> None:
    for number in range(WORKERS_MAX):
        http.ok("POST", "/workers", {"name": "w", "queues": ["q"], "workerId": f"w{number}"})
    late = {"name": "w", "queues": ["q"], "workerId": "late"}
    assert http.ask("POST", "/workers", late).status == 400
    site.tick(LOST_MS)
    assert http.ok("POST", "/workers", late)["data"]["workerId"] == "late"


# -- the server --------------------------------------------------------------------------------


def test_the_server_tells_of_itself(http: BunqueueHttpClient) -> None:
    push(http)
    take(http)
    assert http.ok("GET", "/ping")["data"]["pong"] is True
    stats = http.ok("GET", "/stats")
    assert (stats["stats"]["active"], stats["stats"]["totalPushed"]) == (1, 1)
    assert stats["memory"]["rss"] == 12
    assert stats["collections"]["jobs"] == 1
    assert (stats["stats"]["cronJobs"], stats["stats"]["waiting-children"]) == (0, 0)
    assert {"completePerSec", "failPerSec"} <= set(stats["stats"])
    assert (stats["stats"]["prioritized"], stats["stats"]["cronPending"]) == (0, 0)
    assert http.ok("GET", "/metrics")["metrics"]["totalPulled"] == 1
    assert http.ok("POST", "/gc")["after"]["rss"] == 12
    assert http.ok("GET", "/heapstats")["heap"]["objectCount"] == 1
    push(http, priority=2)
    assert http.ok("GET", "/stats")["stats"]["prioritized"] == 1


def test_a_dashboard_gets_all_its_numbers(http: BunqueueHttpClient) -> None:
    http.ok("POST", "/crons", {"name": "n", "queue": "q", "data": 1, "repeatEvery": 60000})
    push(http)
    overview = http.ok("GET", "/dashboard")
    assert overview["stats"]["waiting"] == 1
    assert overview["crons"]["total"] == 1
    assert overview["crons"]["list"][0]["name"] == "n"
    assert overview["workers"]["truncated"] is False
    assert set(overview["throughput"]) == {
        *("pushPerSec", "pullPerSec", "completePerSec", "failPerSec"),
    }
    # A dashboard that finds no number here shows nothing at all.
    for word in ("pull", "ack"):
        assert overview["latency"]["averages"][f"{word}Ms"] == 0
        assert overview["latency"]["percentiles"][word] == {"p50": 0, "p95": 0, "p99": 0}
    assert overview["collections"]["queuedTotal"] == 1
    page = http.ok("GET", "/dashboard/queues?limit=900&offset=-4")
    assert (page["limit"], page["offset"], page["total"]) == (500, 0, 1)
    assert [row["name"] for row in page["queues"]] == ["q"], "what nobody uses is not shown"
    assert http.ok("GET", "/dashboard/queues?limit=x")["limit"] == 100
    detail = http.ok("GET", "/dashboard/queues/q?includeJobs=true")
    assert detail["counts"]["waiting"] == 1
    assert (detail["counts"]["totalCompleted"], detail["counts"]["totalFailed"]) == (0, 0)
    assert len(detail["jobs"]["waiting"]) == 1
    assert "jobs" not in http.ok("GET", "/dashboard/queues/q")


def test_the_summary_of_all_queues_is_a_bare_list(http: BunqueueHttpClient) -> None:
    push(http)
    reply = http.ask("GET", "/queues/summary")
    rows = {row["name"]: row for row in reply.json}
    assert rows["q"]["counts"]["waiting"] == 1
    assert rows["q"]["paused"] is False


# -- all of them -------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.method} {row.pattern}")
def test_every_row_leads_to_its_command(http: BunqueueHttpClient, row: Row) -> None:
    known = {*COMMANDS, b"PUSH", b"PULL", b"ACK", b"PUSHB", b"PULLB", b"ACKB"}
    assert row.command.encode() in known
    path = row.pattern.replace("{", "").replace("}", "")
    reply = http.ask(row.method, path, {"timeout": 0})
    is_ok = isinstance(reply.json, list) or reply.json["ok"]
    assert reply.status == (200 if is_ok else row.refused)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.method} {page.pattern}")
def test_every_page_is_served(http: BunqueueHttpClient, page: RoutedPage) -> None:
    path = page.pattern.replace("{", "").replace("}", "")
    assert http.ask(page.method, path).status == 200


def test_a_head_is_what_get_would_say_without_its_body(http: BunqueueHttpClient) -> None:
    whole = http.ask("GET", "/queues/q/count")
    head = http.ask("HEAD", "/queues/q/count")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == whole.headers["content-length"]


# -- anything at all ---------------------------------------------------------------------------

NAMES: Final = (
    *("queue", "data", "jobs", "id", "ids", "token", "tokens", "result", "results", "error"),
    *("count", "timeout", "owner", "priority", "delay", "state", "limit", "grace", "config"),
    *("name", "schedule", "repeatEvery", "url", "events", "enabled", "queues", "workerId"),
    *("message", "level", "progress", "duration", "durations", "concurrency", "filter", "jobId"),
    *("cmd", "reqId", "detach", "attempts", "maxAttempts", "backoff", "dependsOn", "uniqueKey"),
)
SCALARS: Final = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
)
VALUES: Final = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    ),
    max_leaves=6,
)
BODIES: Final = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=6)


@settings(max_examples=200, deadline=None)
@given(
    calls=st.lists(
        st.tuples(st.sampled_from(ROWS), st.sampled_from(["q", "mine", "w1", "ü"]), BODIES),
        max_size=12,
    )
)
def test_whatever_is_said_is_answered(
    calls: list[tuple[Row, str, dict[str, object]]],
) -> None:
    site = BareHttp()
    for row, name, body in calls:
        http = site.call()
        path = "/".join(
            quote(name) if part.startswith("{") else part for part in row.pattern.split("/")
        )
        http.send(row.method, path, body)
        reply = http.hear()
        if reply is None:
            # It waits; then it is answered when it must not any more.
            http.session.end_input(site.now_ms)
            http.collect()
            reply = http.hear()
        assert reply is not None
        assert reply.status in (200, 400, 404)
        assert isinstance(reply.json, dict | list)
        http.close()
    site.check()
