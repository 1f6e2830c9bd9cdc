"""PUSH, PUSHB, PULL, PULLB, ACK, ACKB and FAIL: their options take effect."""

import re
import time

import pytest

from tests.support.servers.bunqueue import UNDEFINED, Answer, Client, ours
from tests.support.servers.patience import PATIENCE_S

UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
DEFAULTS: Answer = {
    "name": "default",
    "startedAt": None,
    "completedAt": None,
    "attempts": 0,
    "backoff": 1000,
    "backoffConfig": None,
    "dependsOn": [],
    "childrenIds": [],
    "childrenCompleted": 0,
    "tags": [],
    "progress": 0,
    "progressMessage": None,
    "stacktrace": None,
    "repeat": None,
    "durable": False,
    "stallCount": 0,
    "priority": 0,
    "lifo": False,
    "maxAttempts": 3,
    "removeOnComplete": False,
    "removeOnFail": False,
    "ttl": None,
    "timeout": None,
    "uniqueKey": None,
    "customId": None,
    "parentId": None,
    "groupId": None,
    "stallTimeout": None,
    "stackTraceLimit": 10,
    "keepLogs": None,
    "sizeLimit": None,
    "failParentOnFailure": False,
    "removeDependencyOnFailure": False,
    "continueParentOnFailure": False,
    "ignoreDependencyOnFailure": False,
    "deduplicationTtl": None,
    "deduplicationExtend": False,
    "deduplicationReplace": False,
    "debounceId": None,
    "debounceTtl": None,
}
VARYING = {"id", "queue", "data", "createdAt", "runAt", "lastHeartbeat", "timeline"}


def pulled(client: Client, queue: str, count: int) -> list[object]:
    """The data of the next jobs, in the order they leave."""
    return [job["data"] for job in client.ok("PULLB", queue=queue, count=count)["jobs"]]


def test_an_id_is_a_uuid_of_version_7(client: Client, queue: str) -> None:
    ids = [client.push(queue, n) for n in range(10)]
    assert all(UUID7.fullmatch(job_id) for job_id in ids)
    assert ids == sorted(ids)


def test_a_job_has_every_field_with_its_default(client: Client, queue: str) -> None:
    before_ms = time.time() * 1000 - 1000
    job_id = client.push(queue, {"to": "a@b.c"})
    job = client.job(job_id)
    assert (job["id"], job["queue"], job["data"]) == (job_id, queue, {"to": "a@b.c"})
    assert job["state"] == "waiting"
    assert {key: job[key] for key in DEFAULTS} == DEFAULTS
    assert before_ms <= job["createdAt"] <= time.time() * 1000 + 1000
    assert job["runAt"] == job["createdAt"]
    assert job["timeline"][0]["state"] == "waiting"
    assert set(job) - {"returnvalue", "failedReason"} == {*DEFAULTS, *VARYING, "state"}


def test_a_pulled_job_has_started(client: Client, queue: str) -> None:
    job_id = client.push(queue, [1, None, "x"])
    job = client.pull(queue)
    assert set(job) == {*DEFAULTS, *VARYING}
    assert (job["id"], job["data"], job["attempts"]) == (job_id, [1, None, "x"], 0)
    assert job["startedAt"] >= job["createdAt"]
    assert [entry["state"] for entry in job["timeline"]] == ["waiting", "active"]
    assert client.state(job_id) == "active"


def test_every_option_is_kept(client: Client, queue: str) -> None:
    options: Answer = {
        "priority": -7,
        "maxAttempts": 5,
        "ttl": 60_000,
        "timeout": 50_000,
        "uniqueKey": f"{queue}-key",
        "tags": ["a", "b"],
        "lifo": True,
        "removeOnComplete": True,
        "removeOnFail": True,
        "durable": True,
        "stallTimeout": 40_000,
        "stackTraceLimit": 3,
        "keepLogs": 4,
        "sizeLimit": 5000,
        "name": "resize",
    }
    job_id = client.push(queue, 1, **options, jobId=f"{queue}-id", backoff=77, delay=1)
    job = client.pull(queue)
    assert {key: job[key] for key in options} == options
    assert job_id == job["id"] == job["customId"] == f"{queue}-id"
    assert job["backoff"] == 77
    assert job["runAt"] - job["createdAt"] == 1


@pytest.mark.parametrize("kind", ["fixed", "exponential"])
def test_a_backoff_may_have_a_type(client: Client, queue: str, kind: str) -> None:
    client.push(queue, 1, backoff={"type": kind, "delay": 250})
    job = client.pull(queue)
    assert job["backoff"] == 250
    assert job["backoffConfig"] == {"type": kind, "delay": 250}


def test_a_timestamp_is_taken_as_the_time_of_creation(client: Client, queue: str) -> None:
    client.push(queue, 1, timestamp=1_700_000_000_000)
    assert client.pull(queue)["createdAt"] == 1_700_000_000_000


@pytest.mark.parametrize("data", [0, "", False, [], {}, "text", 1.5, -1, [[]], {"a": {"b": []}}])
def test_data_may_be_any_value(client: Client, queue: str, data: object) -> None:
    client.ok("PUSH", queue=queue, data=data)
    assert client.pull(queue)["data"] == data


def test_data_may_be_null(client: Client, queue: str) -> None:
    client.ok("PUSH", queue=queue, data=None)
    assert client.pull(queue)["data"] is None


@ours("it takes a push without data; the protocol calls them required")
def test_data_are_required(client: Client, queue: str) -> None:
    client.refused("PUSH", queue=queue)
    client.refused("PUSHB", queue=queue, jobs=[{"priority": 1}])
    assert client.is_empty(queue)


def test_a_name_is_a_field_of_its_own(client: Client, queue: str) -> None:
    client.push(queue, {"name": "inner"}, name="outer")
    job = client.pull(queue)
    assert job["name"] == "outer"
    assert job["data"] == {"name": "inner"}


@ours("it takes the name out of the data")
def test_without_a_name_the_one_in_the_data_counts_and_stays(client: Client, queue: str) -> None:
    client.push(queue, {"name": "inner", "x": 1})
    client.ok("PUSHB", queue=queue, jobs=[{"data": {"name": "two"}}])
    job = client.pull(queue)
    assert (job["name"], job["data"]) == ("inner", {"name": "inner", "x": 1})
    job = client.pull(queue)
    assert (job["name"], job["data"]) == ("two", {"name": "two"})


@pytest.mark.parametrize("name", ["", "x" * 257, 5])
def test_a_bad_job_name_is_refused(client: Client, queue: str, name: object) -> None:
    assert "name" in client.refused("PUSH", queue=queue, data=1, name=name)


def test_higher_priority_leaves_first_and_equals_in_order(client: Client, queue: str) -> None:
    for priority in (0, 5, -3, 5, 1_000_000, -1_000_000, 0):
        client.push(queue, priority, priority=priority)
    assert pulled(client, queue, 10) == [1_000_000, 5, 5, 0, 0, -3, -1_000_000]


def test_jobs_of_one_priority_leave_in_order(client: Client, queue: str) -> None:
    client.ok("PUSHB", queue=queue, jobs=[{"data": n} for n in range(100)])
    assert pulled(client, queue, 60) == list(range(60))
    assert pulled(client, queue, 60) == list(range(60, 100))


@ours("it sorts jobs of one millisecond by their ids")
def test_custom_ids_do_not_disturb_the_order(client: Client, queue: str) -> None:
    names = ["zeta", "alpha", "mike"]
    jobs = [{"data": name, "customId": f"{queue}-{name}"} for name in names]
    client.ok("PUSHB", queue=queue, jobs=jobs)
    assert pulled(client, queue, 3) == names


def test_lifo_jobs_leave_before_the_others_newest_first(client: Client, queue: str) -> None:
    for n in range(3):
        client.push(queue, f"fifo{n}")
    for n in range(3):
        client.push(queue, f"lifo{n}", lifo=True)
    assert pulled(client, queue, 6) == ["lifo2", "lifo1", "lifo0", "fifo0", "fifo1", "fifo2"]


def test_a_delayed_job_waits_for_its_time(client: Client, queue: str) -> None:
    started = time.monotonic()
    job_id = client.push(queue, 1, delay=500)
    assert client.state(job_id) == "delayed"
    assert client.is_empty(queue)
    job = client.pull(queue)
    assert job["id"] == job_id
    assert time.monotonic() - started > 0.49
    assert job["startedAt"] >= job["runAt"] == job["createdAt"] + 500


def test_a_batch_is_pushed_in_one_go(client: Client, queue: str) -> None:
    options = {"priority": 1, "tags": ["t"], "maxAttempts": 9, "name": "n", "delay": 0}
    answer = client.ok("PUSHB", queue=queue, jobs=[{"data": 1}, {"data": 2, **options}])
    assert set(answer) == {"ids"}
    assert [client.job(job_id)["data"] for job_id in answer["ids"]] == [1, 2]
    job = client.pull(queue)
    assert (job["data"], job["tags"], job["maxAttempts"], job["name"]) == (2, ["t"], 9, "n")


def test_an_empty_batch_is_fine(client: Client, queue: str) -> None:
    assert client.ok("PUSHB", queue=queue, jobs=[]) == {"ids": []}


def test_one_bad_job_refuses_the_whole_batch(client: Client, queue: str) -> None:
    jobs: list[Answer] = [{"data": 1}, {"data": 2}, {"data": 3, "priority": "x"}]
    assert client.refused("PUSHB", queue=queue, jobs=jobs) == "jobs[2]: priority must be a number"
    assert client.ok("Count", queue=queue)["count"] == 0


def test_a_big_batch_is_taken_in_order(client: Client, queue: str) -> None:
    answer = client.ok("PUSHB", queue=queue, jobs=[{"data": n} for n in range(1000)])
    assert len(set(answer["ids"])) == 1000
    assert pulled(client, queue, 1000) == list(range(1000))


def test_an_empty_queue_answers_null(client: Client, queue: str) -> None:
    assert client.ok("PULL", queue=queue) == {"job": None}
    assert client.ok("PULL", queue=queue, owner="me") == {"job": None, "token": None}
    assert client.ok("PULLB", queue=queue, count=5) == {"jobs": []}
    assert client.ok("PULLB", queue=queue, count=5, owner="me") == {"jobs": [], "tokens": []}


def test_a_long_poll_ends_with_null(client: Client, queue: str) -> None:
    started = time.monotonic()
    assert client.ok("PULL", queue=queue, timeout=80) == {"job": None}
    assert client.ok("PULLB", queue=queue, count=2, timeout=80) == {"jobs": []}
    assert 0.15 <= time.monotonic() - started < PATIENCE_S


def test_a_long_poll_wakes_on_a_push(client: Client, other: Client, queue: str) -> None:
    one = client.send("PULL", queue=queue, timeout=20_000)
    assert client.is_silent()
    job_id = other.push(queue, 1)
    assert client.receive(one)["job"]["id"] == job_id
    many = client.send("PULLB", queue=queue, count=10, timeout=20_000)
    assert client.is_silent()
    job_id = other.push(queue, 2)
    assert [job["id"] for job in client.receive(many)["jobs"]] == [job_id]


def test_waiting_clients_are_served_one_job_each(
    client: Client, address: tuple[str, int], queue: str
) -> None:
    waiting = [Client(address) for _ in range(5)]
    requests = [each.send("PULL", queue=queue, timeout=20_000) for each in waiting]
    assert waiting[-1].is_silent()
    ids = client.ok("PUSHB", queue=queue, jobs=[{"data": n} for n in range(5)])["ids"]
    served = [each.receive(r)["job"]["id"] for each, r in zip(waiting, requests, strict=True)]
    assert sorted(served) == sorted(ids)
    for each in waiting:
        each.close()


def test_a_batch_pull_under_a_lock_has_a_token_for_each(client: Client, queue: str) -> None:
    client.ok("PUSHB", queue=queue, jobs=[{"data": n} for n in range(3)])
    answer = client.ok("PULLB", queue=queue, count=10, owner="me", lockTtl=20_000)
    ids = [job["id"] for job in answer["jobs"]]
    assert len(set(answer["tokens"])) == len(ids) == 3
    assert client.ok("ACKB", ids=ids, tokens=answer["tokens"]) == {}


def test_an_acknowledged_job_is_completed_with_its_result(client: Client, queue: str) -> None:
    job_id = client.push(queue, 1)
    client.pull(queue)
    assert client.ok("ACK", id=job_id, result={"sum": 3}) == {}
    job = client.job(job_id)
    assert (job["state"], job["returnvalue"]) == ("completed", {"sum": 3})
    assert job["completedAt"] >= job["startedAt"]
    assert job["timeline"][-1]["state"] == "completed"
    assert client.ok("GetResult", id=job_id) == {"id": job_id, "result": {"sum": 3}}


def test_a_result_is_optional(client: Client, queue: str) -> None:
    job_id = client.finish(queue, 1, result=UNDEFINED)
    assert client.state(job_id) == "completed"
    assert client.ok("GetResult", id=job_id).get("result") is None


def test_any_connection_may_acknowledge(client: Client, other: Client, queue: str) -> None:
    job_id = client.push(queue, 1)
    client.pull(queue)
    other.ok("ACK", id=job_id)
    assert client.state(job_id) == "completed"


@pytest.mark.parametrize("cmd", ["ACK", "FAIL"])
def test_only_an_active_job_can_end(client: Client, queue: str, cmd: str) -> None:
    waiting = client.push(queue, 1)
    done = client.finish(queue + "-2", 1)
    for job_id in ("nobody", waiting, done):
        error = f"Job not found or not in processing state: {job_id}"
        assert client.refused(cmd, id=job_id) == error
    assert client.state(waiting) == "waiting"
    assert client.state(done) == "completed"


def test_a_batch_acknowledges_all_with_their_results(client: Client, queue: str) -> None:
    ids = client.ok("PUSHB", queue=queue, jobs=[{"data": n} for n in range(3)])["ids"]
    client.ok("PULLB", queue=queue, count=3)
    assert client.ok("ACKB", ids=ids, results=[1, UNDEFINED, {"x": 2}]) == {}
    results = [client.ok("GetResult", id=job_id).get("result") for job_id in ids]
    assert results == [1, None, {"x": 2}]
    assert client.ok("ACKB", ids=[]) == {}


def test_a_batch_must_have_a_result_and_token_for_each(client: Client, queue: str) -> None:
    ids = client.ok("PUSHB", queue=queue, jobs=[{"data": n} for n in range(2)])["ids"]
    client.ok("PULLB", queue=queue, count=2)
    error = client.refused("ACKB", ids=ids, results=[1])
    assert error == "ACKB results length must match ids length"
    error = client.refused("ACKB", ids=ids, tokens=["x"])
    assert error == "ACKB tokens length must match ids length"
    assert [client.state(job_id) for job_id in ids] == ["active", "active"]


@ours("one dead id makes it answer an error though it applied the others")
def test_a_batch_reports_what_it_could_not_end_and_ends_the_rest(
    client: Client, queue: str
) -> None:
    ids = client.ok("PUSHB", queue=queue, jobs=[{"data": n} for n in range(2)])["ids"]
    client.ok("PULLB", queue=queue, count=2)
    answer = client.ok("ACKB", ids=[ids[0], "nobody", ids[1]], results=[1, 2, 3])
    assert answer == {"data": {"ignoredIndices": [1], "ignoredIds": ["nobody"]}}
    assert [client.state(job_id) for job_id in ids] == ["completed", "completed"]


def test_remove_on_complete_leaves_nothing(client: Client, queue: str) -> None:
    job_id = client.finish(queue, 1, result=5, removeOnComplete=True)
    assert client.state(job_id) in ("unknown", "completed")
    assert client.refused("GetJob", id=job_id) == "Job not found"
    assert client.ok("GetJobs", queue=queue, state="completed")["jobs"] == []


def test_an_acknowledgement_may_ask_for_removal(client: Client, queue: str) -> None:
    ids = client.ok("PUSHB", queue=queue, jobs=[{"data": n} for n in range(3)])["ids"]
    client.ok("PULLB", queue=queue, count=3)
    client.ok("ACK", id=ids[0], removeOnComplete=True)
    client.ok("ACKB", ids=ids[1:], results=[1, 2], removeOnCompletes=[True, False])
    kept = client.ok("GetJobs", queue=queue, state="completed")["jobs"]
    assert [job["id"] for job in kept] == [ids[2]]


def test_a_failed_job_is_retried_after_its_backoff(client: Client, queue: str) -> None:
    job_id = client.push(queue, 1, maxAttempts=2, backoff=20)
    client.pull(queue)
    assert client.ok("FAIL", id=job_id, error="first") == {}
    job = client.job(job_id)
    assert (job["attempts"], job["failedReason"]) == (1, "first")
    assert job["state"] in ("delayed", "waiting")
    again = client.pull(queue)
    assert (again["id"], again["attempts"]) == (job_id, 1)
    assert client.ok("FAIL", id=job_id, error="second") == {}
    job = client.job(job_id)
    assert (job["state"], job["attempts"], job["failedReason"]) == ("failed", 2, "second")
    failures = [entry for entry in job["timeline"] if entry["state"] == "failed"]
    assert [(entry["error"], entry["attempt"]) for entry in failures] == [
        ("first", 1),
        ("second", 2),
    ]


@pytest.mark.parametrize(
    ("backoff", "least_ms", "most_ms"),
    [
        (10_000, 10_000, 30_000),
        ({"type": "exponential", "delay": 10_000}, 10_000, 30_000),
        ({"type": "fixed", "delay": 10_000}, 8_000, 12_000),
        (86_400_000, 3_600_000, 3_600_000),
    ],
    ids=["number", "exponential", "fixed", "capped"],
)
def test_the_first_backoff_lies_in_its_range(
    client: Client, queue: str, backoff: object, least_ms: int, most_ms: int
) -> None:
    ids = [client.push(queue, 1, backoff=backoff) for _ in range(8)]
    client.ok("PULLB", queue=queue, count=8)
    before_ms = time.time() * 1000
    for job_id in ids:
        client.ok("FAIL", id=job_id)
    waits = [client.job(job_id)["runAt"] - before_ms for job_id in ids]
    assert least_ms - 5 <= min(waits)
    assert max(waits) <= most_ms + 2000
    assert len(set(waits)) > 1 or least_ms == most_ms


def test_one_attempt_means_no_retry(client: Client, queue: str) -> None:
    job_id = client.push(queue, 1, maxAttempts=1)
    client.pull(queue)
    client.ok("FAIL", id=job_id)
    assert client.state(job_id) == "failed"


def test_an_unrecoverable_failure_is_not_retried(client: Client, queue: str) -> None:
    job_id = client.bury(queue)
    assert client.state(job_id) == "failed"
    assert client.is_empty(queue)


def test_remove_on_fail_leaves_nothing(client: Client, queue: str) -> None:
    first = client.bury(queue, removeOnFail=True)
    second = client.push(queue, 1, maxAttempts=1)
    client.pull(queue)
    client.ok("FAIL", id=second, error="x", removeOnFail=True)
    for job_id in (first, second):
        assert client.refused("GetJob", id=job_id) == "Job not found"
    assert client.ok("Dlq", queue=queue)["jobs"] == []


def test_a_stack_is_kept_up_to_its_limit(client: Client, queue: str) -> None:
    job_id = client.push(queue, 1, stackTraceLimit=2)
    client.pull(queue)
    client.ok("FAIL", id=job_id, error="x", stack=["Error: x", "  at a ", "  at b"])
    assert client.job(job_id)["stacktrace"] == ["Error: x", "at a"]


def test_repeat_brings_the_job_back_until_its_limit(client: Client, queue: str) -> None:
    client.push(queue, {"n": 1}, repeat={"every": 30, "limit": 2})
    seen = []
    for _ in range(3):
        job = client.pull(queue)
        seen.append(job["id"])
        assert job["data"] == {"n": 1}
        client.ok("ACK", id=job["id"])
    assert len(set(seen)) == 3
    assert client.ok("PULL", queue=queue, timeout=150)["job"] is None


@pytest.mark.parametrize("repeat", [{"every": 0}, {"every": -5}, {"every": "x"}, {}])
def test_a_bad_repetition_is_refused(client: Client, queue: str, repeat: Answer) -> None:
    assert "repeat" in client.refused("PUSH", queue=queue, data=1, repeat=repeat)
    assert client.is_empty(queue)


def test_a_timeline_keeps_twenty_entries(client: Client, queue: str) -> None:
    job_id = client.push(queue, 1, maxAttempts=1000, backoff=0)
    for _ in range(15):
        client.pull(queue)
        client.ok("FAIL", id=job_id, error="again")
    job = client.job(job_id)
    assert job["attempts"] == 15
    assert len(job["timeline"]) <= 20


def test_every_job_is_done_exactly_once(
    client: Client, address: tuple[str, int], queue: str
) -> None:
    peers = [Client(address) for _ in range(4)]
    for at, each in enumerate(peers):
        jobs = [{"data": n} for n in range(at * 500, at * 500 + 500)]
        for start in range(0, 500, 50):
            each.send("PUSHB", queue=queue, jobs=jobs[start : start + 50])
    pushed = [job_id for each in peers for _ in range(10) for job_id in each.receive()["ids"]]
    done: list[str] = []
    while len(done) < 2000:
        pulls = [
            each.send("PULLB", queue=queue, count=50, owner=str(at), timeout=2000)
            for at, each in enumerate(peers)
        ]
        for each, pull in zip(peers, pulls, strict=True):
            answer = each.receive(pull)
            ids = [job["id"] for job in answer["jobs"]]
            assert each.ok("ACKB", ids=ids, tokens=answer["tokens"]) == {}
            done += ids
            if len(done) == 2000:
                break
    assert sorted(done) == sorted(pushed)
    assert client.ok("GetJobCounts", queue=queue)["counts"]["completed"] == 2000
    for each in peers:
        each.close()
