"""The routes of bunqueue's HTTP API and the command each one runs: one row per route.

The parameters of a path and the fields of a JSON body become the fields of the command, under the
same names; the path takes precedence. A row names a function only where HTTP and the command use
different names or shapes. The statuses of refusals are those of the original.
"""

import math
from collections.abc import Callable
from typing import Final, final

from jobyard.protocols.bunqueue.http.runner import Show
from jobyard.wire.msgpack.read import MapFields, read_fields
from jobyard.wire.msgpack.write import Raw

# How a route treats a request body.
NO_BODY: Final = 0
# A missing body counts as an empty object.
MAY_BODY: Final = 1
NEEDS_BODY: Final = 2
# A body that cannot be parsed is ignored.
ANY_BODY: Final = 3

# Adapts an HTTP request: takes the fields of the command, which it changes, and the query.
Read = Callable[[dict[str, object], dict[str, str]], None]

# Commands that change something although their method is GET.
TAKING: Final = ("PULL",)

DASHBOARD_PAGE: Final = 100
DASHBOARD_PAGE_MAX: Final = 500


@final
class Row:
    """One route and its command."""

    def __init__(  # noqa: PLR0913  a row of a table
        self,
        method: str,
        pattern: str,
        command: str,
        summary: str,
        body: int = NO_BODY,
        *,
        refused: int = 400,
        query: tuple[str, ...] = (),
        read: Read | None = None,
        show: Show | None = None,
    ) -> None:
        self.method = method
        self.pattern = pattern
        self.command = command
        self.summary = summary
        self.body = body
        # The status of a refusal.
        self.refused = refused
        self.query = query
        self.read: Read | None = read
        self.show: Show | None = show
        self.names: list[str] = [part[1:-1] for part in pattern.split("/") if part.startswith("{")]


def number_in(word: str) -> object:
    """Parse a number of a query; anything else becomes NaN, which the command refuses."""
    try:
        return int(word)
    except ValueError:
        return math.nan


def whole(query: dict[str, str], name: str) -> int | None:
    """Return an integer parameter of a query; None if it is missing or invalid."""
    word = query.get(name, "")
    digits = word[1:] if word[:1] in ("-", "+") else word
    return int(word) if digits.isascii() and digits.isdigit() and len(digits) < 16 else None


# -- requests ----------------------------------------------------------------------------------


def _push(fields: dict[str, object], _query: dict[str, str]) -> None:
    attempts = fields.pop("attempts", None)
    if fields.get("maxAttempts") is None and attempts is not None:
        fields["maxAttempts"] = attempts


def _pull(fields: dict[str, object], query: dict[str, str]) -> None:
    for name in ("timeout", "count", "lockTtl"):
        if name in query:
            fields[name] = number_in(query[name])
    if "owner" in query:
        fields["owner"] = query["owner"]
    # HTTP clients have no connection that could hold the lease.
    fields["detach"] = True


def _list(fields: dict[str, object], query: dict[str, str]) -> None:
    words: list[object] = []
    for name in ("state", "status", "states"):
        words += [word.strip() for word in query.get(name, "").split(",") if word.strip()]
    if words:
        fields["state"] = words
    for name in ("limit", "offset"):
        if query.get(name):
            fields[name] = number_in(query[name])
    if query.get("asc") == "false":
        fields["asc"] = False


def _concurrency(fields: dict[str, object], _query: dict[str, str]) -> None:
    concurrency = fields.pop("concurrency", None)
    if concurrency is not None:
        fields["limit"] = concurrency


def _config(fields: dict[str, object], _query: dict[str, str]) -> None:
    if fields.get("config") is None:
        queue = fields.pop("queue")
        config = dict(fields)
        fields.clear()
        fields["queue"] = queue
        fields["config"] = config


def _logs(fields: dict[str, object], query: dict[str, str]) -> None:
    for name in ("start", "end"):
        if name in query:
            fields[name] = number_in(query[name])


def _dashboard_page(fields: dict[str, object], query: dict[str, str]) -> None:
    fields["limit"] = min(max(whole(query, "limit") or DASHBOARD_PAGE, 1), DASHBOARD_PAGE_MAX)
    fields["offset"] = max(whole(query, "offset") or 0, 0)


def _dashboard_queue(fields: dict[str, object], query: dict[str, str]) -> None:
    fields["includeJobs"] = query.get("includeJobs") == "true"


# -- answers -----------------------------------------------------------------------------------


def data_of(answer: MapFields) -> dict[str, object]:
    """Return the `data` field of an answer, which must be a map."""
    data = answer.value(b"data")
    assert isinstance(data, dict)
    return data


def _lifted(answer: MapFields) -> object:
    return {"ok": True, **data_of(answer)}


def _overview(answer: MapFields) -> object:
    data = data_of(answer)
    crons = data["crons"]
    assert isinstance(crons, list)
    data["crons"] = {"total": len(crons), "list": crons, "truncated": False}
    workers = data["workers"]
    assert isinstance(workers, dict)
    workers["truncated"] = False
    return {"ok": True, **data}


def _summaries(answer: MapFields) -> object:
    queues = data_of(answer)["queues"]
    assert isinstance(queues, list)
    return [_summary(row) for row in queues]


def _summary(row: dict[str, object]) -> dict[str, object]:
    counts = {
        "waiting": row["waiting"],
        "prioritized": row["prioritized"],
        "active": row["active"],
        "completed": row["completed"],
        "failed": row["dlq"],
        "delayed": row["delayed"],
    }
    return {"name": row["name"], "paused": row["paused"], "counts": counts}


def _stats(answer: MapFields) -> object:
    return {"ok": True, "stats": Raw(raw_part(answer, b"data", b"stats"))}


def raw_part(answer: MapFields, *path: bytes) -> bytes:
    """Return the encoded bytes of one part of an answer, found by its path of keys."""
    fields = answer
    for key in path[:-1]:
        start, end = fields.find(key)
        inner = read_fields(fields.data, start, end)
        assert inner is not None
        fields = inner
    part = fields.raw(path[-1])
    assert part is not None
    return part


# -- the table ---------------------------------------------------------------------------------

_Q: Final = "/queues/{queue}"
_J: Final = "/jobs/{id}"

QUEUE_ROWS: Final = (
    Row("GET", "/queues", "ListQueues", "List the queues.", refused=200),
    Row("GET", "/queues/summary", "DashboardQueues", "Count the jobs of each queue.",
        show=_summaries),
    Row("POST", _Q + "/jobs", "PUSH", "Add a job.", NEEDS_BODY, read=_push),
    Row("GET", _Q + "/jobs", "PULL", "Take a job.", refused=200,
        query=("timeout", "owner", "lockTtl"), read=_pull),
    Row("POST", _Q + "/jobs/bulk", "PUSHB", "Add jobs.", NEEDS_BODY),
    Row("POST", _Q + "/jobs/pull-batch", "PULLB", "Take jobs.", MAY_BODY, refused=200,
        read=_pull),
    Row("GET", _Q + "/jobs/list", "GetJobs", "List jobs.", refused=200,
        query=("state", "limit", "offset", "asc"), read=_list),
    Row("GET", _Q + "/counts", "GetJobCounts", "Count jobs by state.", refused=200),
    Row("GET", _Q + "/count", "Count", "Count jobs.", refused=200),
    Row("GET", _Q + "/priority-counts", "GetCountsPerPriority", "Count jobs by priority.",
        refused=200),
    Row("GET", _Q + "/paused", "IsPaused", "Report whether a queue is paused.", refused=200),
    Row("POST", _Q + "/pause", "Pause", "Pause a queue.", refused=200),
    Row("POST", _Q + "/resume", "Resume", "Resume a queue.", refused=200),
    Row("POST", _Q + "/drain", "Drain", "Remove all waiting jobs.", refused=200),
    Row("POST", _Q + "/obliterate", "Obliterate", "Remove a queue and its jobs.", refused=200),
    Row("POST", _Q + "/clean", "Clean", "Remove old jobs.", MAY_BODY, refused=200),
    Row("POST", _Q + "/promote-jobs", "PromoteJobs", "Make delayed jobs ready now.", MAY_BODY,
        refused=200),
    Row("POST", _Q + "/retry-completed", "RetryCompleted", "Run completed jobs again.", MAY_BODY,
        refused=200),
    Row("GET", _Q + "/dlq/stats", "GetDlqStats", "Count jobs in the DLQ by reason.", refused=200,
        show=_stats),
    Row("POST", _Q + "/dlq/retry", "RetryDlq", "Retry jobs in the DLQ.", MAY_BODY, refused=200),
    Row("POST", _Q + "/dlq/purge", "PurgeDlq", "Remove all jobs in the DLQ.", refused=200),
    Row("PUT", _Q + "/rate-limit", "RateLimit", "Limit how many jobs start per time window.",
        MAY_BODY, refused=200),
    Row("DELETE", _Q + "/rate-limit", "RateLimitClear", "Remove the rate limit.", refused=200),
    Row("PUT", _Q + "/concurrency", "SetConcurrency", "Limit how many jobs run at once.",
        MAY_BODY, refused=200, read=_concurrency),
    Row("DELETE", _Q + "/concurrency", "ClearConcurrency", "Remove the concurrency limit.",
        refused=200),
    Row("GET", _Q + "/stall-config", "GetStallConfig", "Show the stall detection settings.",
        refused=200),
    Row("PUT", _Q + "/stall-config", "SetStallConfig", "Change the stall detection settings.",
        MAY_BODY, refused=200, read=_config),
    Row("GET", _Q + "/dlq-config", "GetDlqConfig", "Show the DLQ settings.", refused=200),
    Row("PUT", _Q + "/dlq-config", "SetDlqConfig", "Change the DLQ settings.", MAY_BODY,
        refused=200, read=_config),
)  # fmt: skip

JOB_ROWS: Final = (
    Row("POST", "/jobs/ack-batch", "ACKB", "Acknowledge several jobs.", MAY_BODY),
    Row("POST", "/jobs/extend-locks", "ExtendLocks", "Extend the locks of several jobs.", MAY_BODY),
    Row("POST", "/jobs/heartbeat-batch", "JobHeartbeatB", "Send heartbeats for several jobs.",
        MAY_BODY),
    Row("GET", "/jobs/custom/{customId}", "GetJobByCustomId", "Show a job by its custom id.",
        refused=404),
    Row("GET", _J, "GetJob", "Show a job.", refused=404),
    Row("DELETE", _J, "Cancel", "Cancel a job that is not running.", refused=200),
    Row("POST", _J + "/ack", "ACK", "Acknowledge a job.", MAY_BODY),
    Row("POST", _J + "/fail", "FAIL", "Fail a job.", MAY_BODY),
    Row("POST", _J + "/promote", "Promote", "Make a delayed job ready now."),
    Row("PUT", _J + "/data", "Update", "Change the data of a job.", NEEDS_BODY),
    Row("GET", _J + "/state", "GetState", "Show the state of a job.", refused=404),
    Row("GET", _J + "/result", "GetResult", "Show the result of a job.", refused=404),
    Row("GET", _J + "/progress", "GetProgress", "Show the progress of a job.", refused=404),
    Row("POST", _J + "/progress", "Progress", "Set the progress of a job.", MAY_BODY),
    Row("PUT", _J + "/priority", "ChangePriority", "Change the priority of a job.", MAY_BODY),
    Row("POST", _J + "/discard", "Discard", "Move a job to the DLQ.", MAY_BODY),
    Row("POST", _J + "/move-to-delayed", "MoveToDelayed", "Delay a running job.",
        MAY_BODY),
    Row("PUT", _J + "/delay", "ChangeDelay", "Change the delay of a job.", MAY_BODY),
    Row("GET", _J + "/children", "GetChildrenValues", "Show the results of a job's children.",
        refused=404),
    Row("GET", _J + "/logs", "GetLogs", "Show the log of a job.", refused=200,
        query=("start", "end"), read=_logs),
    Row("POST", _J + "/logs", "AddLog", "Add a line to the log of a job.", MAY_BODY),
    Row("DELETE", _J + "/logs", "ClearLogs", "Clear the log of a job.", refused=200),
    Row("POST", _J + "/heartbeat", "JobHeartbeat", "Send a heartbeat for a job.", MAY_BODY),
    Row("POST", _J + "/wait", "WaitJob", "Wait until a job has completed.", MAY_BODY, refused=200),
    Row("POST", _J + "/extend-lock", "ExtendLock", "Extend the lock of a job.", MAY_BODY),
    Row("POST", _J + "/move-to-wait", "MoveToWait", "Move a job to the waiting state.", MAY_BODY),
)  # fmt: skip

OTHER_ROWS: Final = (
    Row("GET", "/crons", "CronList", "List the schedules.", refused=200),
    Row("POST", "/crons", "Cron", "Create or update a schedule.", NEEDS_BODY),
    Row("GET", "/crons/{name}", "CronGet", "Show a schedule.", refused=404),
    Row("DELETE", "/crons/{name}", "CronDelete", "Delete a schedule.", refused=404),
    Row("GET", "/webhooks", "ListWebhooks", "List the webhooks.", refused=200),
    Row("POST", "/webhooks", "AddWebhook", "Add a webhook.", NEEDS_BODY),
    Row("DELETE", "/webhooks/{webhookId}", "RemoveWebhook", "Remove a webhook.", refused=404),
    Row("PUT", "/webhooks/{id}/enabled", "SetWebhookEnabled", "Enable or disable a webhook.",
        MAY_BODY),
    Row("GET", "/workers", "ListWorkers", "List the workers.", refused=200),
    Row("POST", "/workers", "RegisterWorker", "Register a worker.", NEEDS_BODY),
    Row("DELETE", "/workers/{workerId}", "UnregisterWorker", "Unregister a worker.", refused=404),
    Row("POST", "/workers/{id}/heartbeat", "Heartbeat", "Send a heartbeat for a worker.", ANY_BODY,
        refused=200),
    Row("GET", "/ping", "Ping", "Check that the server responds.", refused=200),
    Row("GET", "/storage", "StorageStatus", "Show the status of the storage.", refused=200),
    Row("GET", "/metrics", "Metrics", "Show the totals since the server started."),
    Row("GET", "/dashboard", "DashboardOverview", "Show a server overview.", show=_overview),
    Row("GET", "/dashboard/queues", "DashboardQueues", "List the queues with their counts.",
        query=("limit", "offset"), read=_dashboard_page, show=_lifted),
    Row("GET", "/dashboard/queues/{queue}", "DashboardQueue", "Show one queue.",
        query=("includeJobs",), read=_dashboard_queue, show=_lifted),
)  # fmt: skip

ROWS: Final[tuple[Row, ...]] = QUEUE_ROWS + JOB_ROWS + OTHER_ROWS
