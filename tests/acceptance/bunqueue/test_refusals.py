"""Refused commands and their messages; and that no wrong type harms the server."""

import itertools
import math
from collections.abc import Iterator

import pytest

from tests.support.servers.bunqueue import Answer, Client, ours

DAY = 86_400_000
YEAR = 365 * DAY

QUEUE_COMMANDS = ["PUSH", "PUSHB", "PULL", "PULLB", "SubscribeEvents"]
BAD_NAMES = [
    ("", "Queue name is required"),
    (None, "Queue name is required"),
    ("x" * 257, "Queue name too long (max 256 characters)"),
    ("a b", "Queue name contains invalid characters"),
    ("a/b", "Queue name contains invalid characters"),
    ("a+b", "Queue name contains invalid characters"),
    ("\u00e9t\u00e9", "Queue name contains invalid characters"),
    ("a\x00b", "Queue name contains invalid characters"),
    ("a\n", "Queue name contains invalid characters"),
    ("*", "Queue name contains invalid characters"),
]


@pytest.mark.parametrize("cmd", QUEUE_COMMANDS)
@pytest.mark.parametrize(("name", "error"), BAD_NAMES)
def test_a_bad_queue_name_is_refused(client: Client, cmd: str, name: object, error: str) -> None:
    fields: Answer = {"data": 1, "jobs": [{"data": 1}], "count": 1, "queue": name}
    assert client.refused(cmd, **fields) == error


@pytest.mark.parametrize("cmd", QUEUE_COMMANDS)
def test_a_queue_is_required(client: Client, cmd: str) -> None:
    error = client.refused(cmd, data=1, jobs=[{"data": 1}], count=1)
    assert error == "Queue name is required"


@ours("it checks names on a few commands only")
@pytest.mark.parametrize(
    "cmd",
    ["Pause", "Resume", "Drain", "Obliterate", "GetJobs", "GetJobCounts", "Count", "Dlq"],
)
def test_a_bad_queue_name_is_refused_everywhere(client: Client, cmd: str) -> None:
    assert client.refused(cmd, queue="a b") == "Queue name contains invalid characters"
    assert client.refused(cmd) == "Queue name is required"


@pytest.mark.parametrize("name", ["x" * 256, "a", "A-z_0.9:b", "::", "-", ".", "_", "0"])
def test_a_good_queue_name_is_taken(client: Client, name: str) -> None:
    job_id = client.push(name, 1)
    job = client.pull(name)
    assert (job["id"], job["queue"]) == (job_id, name)
    client.ok("ACK", id=job_id)


OPTIONS = [
    ("priority", "1", "priority must be a number"),
    ("priority", True, "priority must be a number"),
    ("priority", math.nan, "priority must be a finite number"),
    ("priority", math.inf, "priority must be a finite number"),
    ("priority", 1.5, "priority must be an integer"),
    ("priority", -1_000_001, "priority must be at least -1000000"),
    ("priority", 1_000_001, "priority must be at most 1000000"),
    ("delay", "5", "delay must be a number"),
    ("delay", math.inf, "delay must be a finite number"),
    ("delay", -1, "delay must be at least 0"),
    ("delay", YEAR + 1, f"delay must be at most {YEAR}"),
    ("timeout", [], "timeout must be a number"),
    ("timeout", -1, "timeout must be at least 0"),
    ("timeout", DAY + 1, f"timeout must be at most {DAY}"),
    ("maxAttempts", {}, "maxAttempts must be a number"),
    ("maxAttempts", 1.5, "maxAttempts must be an integer"),
    ("maxAttempts", 0, "maxAttempts must be at least 1"),
    ("maxAttempts", 1001, "maxAttempts must be at most 1000"),
    ("backoff", "5", "backoff must be a number"),
    ("backoff", -1, "backoff must be at least 0"),
    ("backoff", DAY + 1, f"backoff must be at most {DAY}"),
    ("backoff", {"type": "x", "delay": 1}, "backoff.type must be 'fixed' or 'exponential'"),
    ("backoff", {"delay": 1}, "backoff.type must be 'fixed' or 'exponential'"),
    ("backoff", {"type": "fixed", "delay": "x"}, "backoff.delay must be a number"),
    ("backoff", {"type": "fixed", "delay": -1}, "backoff.delay must be at least 0"),
    ("backoff", {"type": "fixed", "delay": DAY + 1}, f"backoff.delay must be at most {DAY}"),
    ("ttl", "1", "ttl must be a number"),
    ("ttl", -1, "ttl must be at least 0"),
    ("ttl", YEAR + 1, f"ttl must be at most {YEAR}"),
    ("groupId", "", "groupId must be a non-empty string"),
    ("dependsOn", ["nobody"], "Dependency job not found: nobody"),
]


@pytest.mark.parametrize(("field", "value", "error"), OPTIONS)
def test_a_bad_option_is_named(
    client: Client, queue: str, field: str, value: object, error: str
) -> None:
    assert client.refused("PUSH", queue=queue, data=1, **{field: value}) == error
    jobs = [{"data": 1}, {"data": 1, field: value}]
    assert client.refused("PUSHB", queue=queue, jobs=jobs) == f"jobs[1]: {error}"
    assert client.is_empty(queue)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("priority", -1_000_000),
        ("priority", 1_000_000),
        ("delay", YEAR),
        ("timeout", DAY),
        ("maxAttempts", 1000),
        ("backoff", DAY),
        ("backoff", 0),
        ("ttl", YEAR),
        ("groupId", "g" * 256),
    ],
)
def test_an_option_at_its_limit_is_taken(
    client: Client, queue: str, field: str, value: object
) -> None:
    job = client.job(client.push(queue, 1, **{field: value}))
    if field == "delay":
        assert job["runAt"] - job["createdAt"] == value
    else:
        assert job[field] == value


@pytest.mark.parametrize("value", ["g" * 257, "g\x00", 5, True, []])
def test_a_bad_group_is_refused(client: Client, queue: str, value: object) -> None:
    assert client.refused("PUSH", queue=queue, data=1, groupId=value).startswith("groupId must")


def test_a_group_is_required_where_it_is_the_subject(client: Client, queue: str) -> None:
    error = client.refused("PauseGroup", queue=queue, groupId="")
    assert error == "groupId must be a non-empty string"


def test_a_job_cannot_depend_on_itself(client: Client, queue: str) -> None:
    name = f"{queue}-self"
    jobs = [{"data": 1, "customId": name, "dependsOn": [name]}]
    error = client.refused("PUSHB", queue=queue, jobs=jobs)
    assert error == f"jobs[0]: Job cannot depend on itself: {name}"


PULLS = [
    ("PULL", {"timeout": 60_001}, "timeout must be at most 60000"),
    ("PULL", {"timeout": -1}, "timeout must be at least 0"),
    ("PULL", {"timeout": "x"}, "timeout must be a number"),
    ("PULLB", {"count": 1, "timeout": 60_001}, "timeout must be at most 60000"),
    ("PULLB", {"count": 0}, "count must be at least 1"),
    ("PULLB", {"count": 1001}, "count must be at most 1000"),
    ("PULLB", {"count": "x"}, "count must be a number"),
    ("PULLB", {"count": math.nan}, "count must be a finite number"),
]


@pytest.mark.parametrize(("cmd", "fields", "error"), PULLS)
def test_a_bad_pull_is_refused(
    client: Client, queue: str, cmd: str, fields: Answer, error: str
) -> None:
    assert client.refused(cmd, queue=queue, **fields) == error


MISSING = [
    ("GetJob", {}, "Job not found"),
    ("GetJobByCustomId", {"customId": "nobody"}, "Job not found"),
    ("GetProgress", {}, "Job not found"),
    ("Progress", {"progress": 1}, "Job not found"),
    ("Cancel", {}, "Job not found or cannot be cancelled"),
    ("Update", {"data": 1}, "Job not found or cannot be updated"),
    ("ChangePriority", {"priority": 1}, "Job not found or not in queue"),
    ("Promote", {}, "Job not found or not delayed"),
    ("MoveToDelayed", {"delay": 5}, "Job not found"),
    ("Discard", {}, "Job not found"),
    ("WaitJob", {"timeout": 10}, "Job not found"),
    ("AddLog", {"message": "m"}, "Job not found"),
    ("ACK", {}, "Job not found or not in processing state: nobody"),
    ("FAIL", {}, "Job not found or not in processing state: nobody"),
    ("JobHeartbeat", {}, "Job not found or not active (or invalid token)"),
    ("Heartbeat", {}, "Worker not found"),
    ("UnregisterWorker", {"workerId": "nobody"}, "Worker not found"),
    ("RemoveWebhook", {"webhookId": "nobody"}, "Webhook not found"),
    ("SetWebhookEnabled", {"enabled": True}, "Webhook not found"),
    ("CronGet", {"name": "nobody"}, "Cron job not found"),
    ("CronDelete", {"name": "nobody"}, "Cron job not found"),
    ("Auth", {"token": "nobody"}, "Invalid token"),
]


@pytest.mark.parametrize(("cmd", "fields", "error"), MISSING, ids=[row[0] for row in MISSING])
def test_what_is_not_there_is_refused(client: Client, cmd: str, fields: Answer, error: str) -> None:
    assert client.refused(cmd, id="nobody", **fields) == error


def test_the_state_of_an_unknown_job_is_unknown(client: Client) -> None:
    assert client.ok("GetState", id="nobody") == {"id": "nobody", "state": "unknown"}


def test_a_job_that_is_not_active_is_told_its_state(client: Client, queue: str) -> None:
    waiting = client.push(queue + "-w", 1)
    delayed = client.push(queue + "-d", 1, delay=60_000)
    done = client.finish(queue, 1)
    failed = client.bury(queue)
    states = {waiting: "waiting", delayed: "delayed", done: "completed", failed: "failed"}
    for job_id, state in states.items():
        error = f"Job is not active (current state: {state})"
        assert client.refused("Progress", id=job_id, progress=5) == error
        assert client.refused("GetProgress", id=job_id) == error
        assert client.refused("MoveToDelayed", id=job_id, delay=5) == error


@pytest.mark.parametrize("cmd", ["RateLimit", "SetConcurrency"])
@pytest.mark.parametrize("limit", ["x", math.nan, math.inf, None, {}])
def test_a_limit_must_be_a_number(client: Client, queue: str, cmd: str, limit: object) -> None:
    assert client.refused(cmd, queue=queue, limit=limit) == "limit must be a finite number"


FIELDS: dict[str, list[str]] = {
    "PUSH": ["queue", "data", "dependsOn", "tags", "repeat", "dedup", "parentId", "childrenIds"],
    "PUSHB": ["queue", "jobs"],
    "PUSHF": ["jobs"],
    "PULL": ["queue", "owner", "lockTtl", "group", "detach"],
    "PULLB": ["queue", "count", "owner", "lockTtl", "group"],
    "ACK": ["id", "result", "token", "removeOnComplete"],
    "ACKB": ["ids", "results", "tokens", "removeOnCompletes"],
    "FAIL": ["id", "error", "token", "stack", "unrecoverable", "removeOnFail"],
    "GetJob": ["id"],
    "GetState": ["id"],
    "GetResult": ["id"],
    "GetJobs": ["queue", "state", "limit", "offset", "asc"],
    "GetJobCounts": ["queue"],
    "GetCountsPerPriority": ["queue"],
    "GetJobByCustomId": ["customId"],
    "Count": ["queue"],
    "GetProgress": ["id"],
    "GetChildrenValues": ["id"],
    "GetFailedChildrenValues": ["id"],
    "GetIgnoredChildrenFailures": ["id"],
    "Cancel": ["id"],
    "Progress": ["id", "progress", "message"],
    "Update": ["id", "data"],
    "UpdateParent": ["childId", "parentId"],
    "ChangePriority": ["id", "priority", "lifo"],
    "ChangeDelay": ["id", "delay", "token"],
    "Promote": ["id"],
    "PromoteJobs": ["queue", "count"],
    "MoveToDelayed": ["id", "delay", "token"],
    "MoveToWait": ["id", "token"],
    "MoveToWaitingChildren": ["id", "token"],
    "Discard": ["id", "token"],
    "WaitJob": ["id"],
    "ExtendLock": ["id", "token", "duration"],
    "ExtendLocks": ["ids", "tokens", "durations"],
    "RemoveChildDependency": ["id"],
    "RemoveUnprocessedChildren": ["id"],
    "Pause": ["queue"],
    "Resume": ["queue"],
    "IsPaused": ["queue"],
    "Drain": ["queue"],
    "Obliterate": ["queue"],
    "Clean": ["queue", "grace", "state", "limit"],
    "ListQueues": [],
    "Dlq": ["queue", "count", "filter"],
    "RetryDlq": ["queue", "jobId", "count", "filter"],
    "PurgeDlq": ["queue"],
    "RemoveDlqJob": ["queue", "jobId"],
    "GetDlqStats": ["queue"],
    "SetDlqConfig": ["queue", "config"],
    "GetDlqConfig": ["queue"],
    "SetStallConfig": ["queue", "config"],
    "GetStallConfig": ["queue"],
    "RetryCompleted": ["queue", "id", "count", "timestamp"],
    "Cron": ["name", "queue", "schedule", "repeatEvery", "timezone", "priority", "jobOptions"],
    "CronDelete": ["name"],
    "CronGet": ["name"],
    "CronList": [],
    "Ping": [],
    "Hello": ["protocolVersion", "capabilities"],
    "Stats": [],
    "Metrics": ["queue", "type", "start", "end"],
    "Prometheus": [],
    "StorageStatus": [],
    "TrimEvents": ["queue", "maxLength"],
    "Heartbeat": ["id", "activeJobs"],
    "JobHeartbeat": ["id", "token", "duration"],
    "JobHeartbeatB": ["ids", "tokens"],
    "RegisterWorker": ["name", "queues", "concurrency", "workerId"],
    "UnregisterWorker": ["workerId"],
    "ListWorkers": [],
    "AddWebhook": ["url", "events", "queue", "secret"],
    "RemoveWebhook": ["webhookId"],
    "SetWebhookEnabled": ["id", "enabled"],
    "ListWebhooks": [],
    "RateLimit": ["queue", "limit", "duration", "ttl"],
    "RateLimitClear": ["queue"],
    "SetConcurrency": ["queue", "limit"],
    "ClearConcurrency": ["queue"],
    "GetQueueLimits": ["queue", "maxJobs"],
    "GetDeduplicationJobId": ["queue", "deduplicationId"],
    "RemoveDeduplicationKey": ["queue", "deduplicationId"],
    "RemoveJobDeduplicationKey": ["id"],
    "AddLog": ["id", "message", "level"],
    "GetLogs": ["id", "start", "end"],
    "ClearLogs": ["id", "keepLogs"],
    "Auth": ["token"],
    "SubscribeEvents": ["queue"],
    "UnsubscribeEvents": [],
    "GetGroupsJobsCount": ["queue"],
    "GetGroupJobsCount": ["queue", "groupId"],
    "GetGroupActiveCount": ["queue", "groupId"],
    "SetGroupRateLimit": ["queue", "groupId", "max", "duration"],
    "GetGroupRateLimit": ["queue", "groupId"],
    "RemoveGroupRateLimit": ["queue", "groupId"],
    "GetGroupRateLimitTtl": ["queue", "groupId", "maxJobs"],
    "SetGroupConcurrency": ["queue", "groupId", "concurrency"],
    "GetGroupConcurrency": ["queue", "groupId"],
    "RemoveGroupConcurrency": ["queue", "groupId"],
    "PauseGroup": ["queue", "groupId"],
    "ResumeGroup": ["queue", "groupId"],
    "IsGroupPaused": ["queue", "groupId"],
    "RateLimitGroup": ["queue", "groupId", "duration"],
}
ODD_VALUES: list[object] = [
    None, 5, -1, 2**53, -(2**53), 1.5, math.nan, math.inf, True, "", "x", "nobody", b"\xff\x00",
    [], [1], [None], ["x"], [[]], [{}], {}, {"a": 1}, {1: 2}, "\x00", "\ud7ff" * 300,
]  # fmt: skip


def odd_commands(cmd: str, queue: str) -> Iterator[Answer]:
    """The command without fields, and with each field in turn of every wrong kind."""
    good: Answer = {"queue": queue, "id": "nobody", "groupId": "g", "count": 1, "name": queue}
    usual = {key: good[key] for key in FIELDS[cmd] if key in good}
    yield {}
    yield usual
    for field in FIELDS[cmd]:
        yield {key: value for key, value in usual.items() if key != field}
        for value in ODD_VALUES:
            yield {**usual, field: value}


@ours("some wrong types make it wait, throw raw errors or keep a broken queue")
@pytest.mark.parametrize("cmd", FIELDS)
def test_no_wrong_type_is_more_than_an_error(
    client: Client, other: Client, queue: str, cmd: str
) -> None:
    witness = other.push(queue + "-witness", {"a": 1})
    sent = 0
    # The answer to a wrong token comes the later the more were wrong before.
    most = 5 if cmd == "Auth" else None
    for fields in itertools.islice(odd_commands(cmd, queue), most):
        client.send(cmd, **fields)
        sent += 1
        if sent % 40 == 0:
            sent -= collect(client, sent)
    collect(client, sent)
    assert other.ok("Ping")
    assert other.job(witness)["data"] == {"a": 1}


def collect(client: Client, count: int) -> int:
    """Take answers, each of which must be a plain yes or a no with a reason."""
    for _ in range(count):
        answer = client.receive()
        assert answer["ok"] is True or isinstance(answer["error"], str), answer
        assert "Traceback" not in str(answer)
    return count
