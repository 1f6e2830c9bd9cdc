"""Which command stands behind which path of bunqueue's HTTP API: one row each.

What a path holds in braces, and the fields of a JSON body, become the fields of the command under
their own names; the path goes first. Only where HTTP says something in other words than the command
does a row name a function that puts it right. The statuses of refusals are those of the original.
"""

import math
from collections.abc import Callable
from typing import Final, final

from jobyard.protocols.bunqueue.http.runner import Show
from jobyard.wire.msgpack.read import Fields, read_fields
from jobyard.wire.msgpack.write import Raw

# What a route does with a body.
NO_BODY: Final = 0
# None is as good as an empty one.
MAY_BODY: Final = 1
BODY: Final = 2
# As good as none if it cannot be read.
ANY_BODY: Final = 3

# Puts right what HTTP says in other words: the fields of the command, and the query.
Read = Callable[[dict[str, object], dict[str, str]], None]

# Commands that change something and may be asked for by GET.
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
    """Return the number a word of a query is; what is none is left for the command to refuse."""
    try:
        return int(word)
    except ValueError:
        return math.nan


def whole(query: dict[str, str], name: str) -> int | None:
    """Return a number of a query; what is none counts as not said."""
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
    # No connection stands for whoever pulls over HTTP.
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


def data_of(answer: Fields) -> dict[str, object]:
    """Return what stands under `data` in an answer, each part as it is."""
    data = answer.value(b"data")
    assert isinstance(data, dict)
    return data


def _lifted(answer: Fields) -> object:
    return {"ok": True, **data_of(answer)}


def _overview(answer: Fields) -> object:
    data = data_of(answer)
    crons = data["crons"]
    assert isinstance(crons, list)
    data["crons"] = {"total": len(crons), "list": crons, "truncated": False}
    workers = data["workers"]
    assert isinstance(workers, dict)
    workers["truncated"] = False
    return {"ok": True, **data}


def _summaries(answer: Fields) -> object:
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


def _stats(answer: Fields) -> object:
    return {"ok": True, "stats": Raw(raw_part(answer, b"data", b"stats"))}


def raw_part(answer: Fields, *path: bytes) -> bytes:
    """Return one part of an answer as it is, found by its keys."""
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
    Row("GET", "/queues/summary", "DashboardQueues", "Count the jobs of all queues.",
        show=_summaries),
    Row("POST", _Q + "/jobs", "PUSH", "Add a job.", BODY, read=_push),
    Row("GET", _Q + "/jobs", "PULL", "Take a job.", refused=200,
        query=("timeout", "owner", "lockTtl"), read=_pull),
    Row("POST", _Q + "/jobs/bulk", "PUSHB", "Add jobs.", BODY),
    Row("POST", _Q + "/jobs/pull-batch", "PULLB", "Take jobs.", MAY_BODY, refused=200,
        read=_pull),
    Row("GET", _Q + "/jobs/list", "GetJobs", "List jobs.", refused=200,
        query=("state", "limit", "offset", "asc"), read=_list),
    Row("GET", _Q + "/counts", "GetJobCounts", "Count jobs by state.", refused=200),
    Row("GET", _Q + "/count", "Count", "Count jobs.", refused=200),
    Row("GET", _Q + "/priority-counts", "GetCountsPerPriority", "Count jobs by priority.",
        refused=200),
    Row("GET", _Q + "/paused", "IsPaused", "Tell whether a queue is paused.", refused=200),
    Row("POST", _Q + "/pause", "Pause", "Give out no more jobs.", refused=200),
    Row("POST", _Q + "/resume", "Resume", "Give out jobs again.", refused=200),
    Row("POST", _Q + "/drain", "Drain", "Remove the jobs that wait.", refused=200),
    Row("POST", _Q + "/obliterate", "Obliterate", "Remove a queue.", refused=200),
    Row("POST", _Q + "/clean", "Clean", "Remove old jobs.", MAY_BODY, refused=200),
    Row("POST", _Q + "/promote-jobs", "PromoteJobs", "Let delayed jobs wait no longer.", MAY_BODY,
        refused=200),
    Row("POST", _Q + "/retry-completed", "RetryCompleted", "Run done jobs again.", MAY_BODY,
        refused=200),
    Row("GET", _Q + "/dlq/stats", "GetDlqStats", "Count dead jobs by reason.", refused=200,
        show=_stats),
    Row("POST", _Q + "/dlq/retry", "RetryDlq", "Bring dead jobs back.", MAY_BODY, refused=200),
    Row("POST", _Q + "/dlq/purge", "PurgeDlq", "Remove all dead jobs.", refused=200),
    Row("PUT", _Q + "/rate-limit", "RateLimit", "Limit how many jobs are taken in a time.",
        MAY_BODY, refused=200),
    Row("DELETE", _Q + "/rate-limit", "RateLimitClear", "Limit it no longer.", refused=200),
    Row("PUT", _Q + "/concurrency", "SetConcurrency", "Limit how many jobs run at once.",
        MAY_BODY, refused=200, read=_concurrency),
    Row("DELETE", _Q + "/concurrency", "ClearConcurrency", "Limit it no longer.", refused=200),
    Row("GET", _Q + "/stall-config", "GetStallConfig", "Tell when a job counts as stalled.",
        refused=200),
    Row("PUT", _Q + "/stall-config", "SetStallConfig", "Say when a job counts as stalled.",
        MAY_BODY, refused=200, read=_config),
    Row("GET", _Q + "/dlq-config", "GetDlqConfig", "Tell what becomes of dead jobs.", refused=200),
    Row("PUT", _Q + "/dlq-config", "SetDlqConfig", "Say what becomes of dead jobs.", MAY_BODY,
        refused=200, read=_config),
)  # fmt: skip

JOB_ROWS: Final = (
    Row("POST", "/jobs/ack-batch", "ACKB", "Complete jobs.", MAY_BODY),
    Row("POST", "/jobs/extend-locks", "ExtendLocks", "Let locks last longer.", MAY_BODY),
    Row("POST", "/jobs/heartbeat-batch", "JobHeartbeatB", "Tell that jobs still run.", MAY_BODY),
    Row("GET", "/jobs/custom/{customId}", "GetJobByCustomId", "Show a job by your own id.",
        refused=404),
    Row("GET", _J, "GetJob", "Show a job.", refused=404),
    Row("DELETE", _J, "Cancel", "Remove a job that does not run.", refused=200),
    Row("POST", _J + "/ack", "ACK", "Complete a job.", MAY_BODY),
    Row("POST", _J + "/fail", "FAIL", "Fail a job.", MAY_BODY),
    Row("POST", _J + "/promote", "Promote", "Let a delayed job wait no longer."),
    Row("PUT", _J + "/data", "Update", "Change what a job holds.", BODY),
    Row("GET", _J + "/state", "GetState", "Tell the state of a job.", refused=404),
    Row("GET", _J + "/result", "GetResult", "Show what a job came to.", refused=404),
    Row("GET", _J + "/progress", "GetProgress", "Tell how far a job is.", refused=404),
    Row("POST", _J + "/progress", "Progress", "Say how far a job is.", MAY_BODY),
    Row("PUT", _J + "/priority", "ChangePriority", "Change the priority of a job.", MAY_BODY),
    Row("POST", _J + "/discard", "Discard", "Give a job up.", MAY_BODY),
    Row("POST", _J + "/move-to-delayed", "MoveToDelayed", "Let a running job run later.",
        MAY_BODY),
    Row("PUT", _J + "/delay", "ChangeDelay", "Change the delay of a job.", MAY_BODY),
    Row("GET", _J + "/children", "GetChildrenValues", "Show what the children came to.",
        refused=404),
    Row("GET", _J + "/logs", "GetLogs", "Show the log of a job.", refused=200,
        query=("start", "end"), read=_logs),
    Row("POST", _J + "/logs", "AddLog", "Write to the log of a job.", MAY_BODY),
    Row("DELETE", _J + "/logs", "ClearLogs", "Empty the log of a job.", refused=200),
    Row("POST", _J + "/heartbeat", "JobHeartbeat", "Tell that a job still runs.", MAY_BODY),
    Row("POST", _J + "/wait", "WaitJob", "Wait until a job is done.", MAY_BODY, refused=200),
    Row("POST", _J + "/extend-lock", "ExtendLock", "Let a lock last longer.", MAY_BODY),
    Row("POST", _J + "/move-to-wait", "MoveToWait", "Let a job be run at once.", MAY_BODY),
)  # fmt: skip

OTHER_ROWS: Final = (
    Row("GET", "/crons", "CronList", "List the schedules.", refused=200),
    Row("POST", "/crons", "Cron", "Set a schedule.", BODY),
    Row("GET", "/crons/{name}", "CronGet", "Show a schedule.", refused=404),
    Row("DELETE", "/crons/{name}", "CronDelete", "Drop a schedule.", refused=404),
    Row("GET", "/webhooks", "ListWebhooks", "List the webhooks.", refused=200),
    Row("POST", "/webhooks", "AddWebhook", "Add a webhook.", BODY),
    Row("DELETE", "/webhooks/{webhookId}", "RemoveWebhook", "Remove a webhook.", refused=404),
    Row("PUT", "/webhooks/{id}/enabled", "SetWebhookEnabled", "Switch a webhook on or off.",
        MAY_BODY),
    Row("GET", "/workers", "ListWorkers", "List the workers.", refused=200),
    Row("POST", "/workers", "RegisterWorker", "Register a worker.", BODY),
    Row("DELETE", "/workers/{workerId}", "UnregisterWorker", "Let a worker go.", refused=404),
    Row("POST", "/workers/{id}/heartbeat", "Heartbeat", "Tell that a worker lives.", ANY_BODY,
        refused=200),
    Row("GET", "/ping", "Ping", "Tell that the server is there.", refused=200),
    Row("GET", "/storage", "StorageStatus", "Tell how the disk is.", refused=200),
    Row("GET", "/metrics", "Metrics", "Tell the totals since the start."),
    Row("GET", "/dashboard", "DashboardOverview", "Tell everything at a glance.", show=_overview),
    Row("GET", "/dashboard/queues", "DashboardQueues", "Tell of all queues, page by page.",
        query=("limit", "offset"), read=_dashboard_page, show=_lifted),
    Row("GET", "/dashboard/queues/{queue}", "DashboardQueue", "Tell of one queue.",
        query=("includeJobs",), read=_dashboard_queue, show=_lifted),
)  # fmt: skip

ROWS: Final[tuple[Row, ...]] = QUEUE_ROWS + JOB_ROWS + OTHER_ROWS
