"""Locks and tokens, disconnects, stalls, timeouts and times to live.

Short real durations are used where the protocol has no other way; every wait is a long poll.
"""

import time

import pytest

from tests.support.servers.bunqueue import Answer, Client, ours

SWEEP = "it looks for expired locks every five seconds only"


def pass_time(client: Client, queue: str, ms: int) -> None:
    """Let real time pass by polling an empty queue."""
    assert client.ok("PULL", queue=f"{queue}-none", timeout=ms)["job"] is None


@pytest.mark.parametrize("cmd", ["ACK", "FAIL"])
def test_a_locked_job_ends_only_with_its_token(client: Client, queue: str, cmd: str) -> None:
    client.push(queue, 1)
    job_id, token = client.lock(queue)
    assert client.refused(cmd, id=job_id) == f"Lock token required for job {job_id}"
    error = client.refused(cmd, id=job_id, token="wrong")
    assert error == f"Invalid or expired lock token for job {job_id}"
    assert client.state(job_id) == "active"
    assert client.ok(cmd, id=job_id, token=token) == {}
    assert client.state(job_id) in ("completed", "delayed")


def test_a_token_serves_on_any_connection(client: Client, other: Client, queue: str) -> None:
    client.push(queue, 1)
    job_id, token = client.lock(queue)
    other.ok("ACK", id=job_id, token=token)
    assert client.state(job_id) == "completed"


def test_a_batch_needs_every_token(client: Client, queue: str) -> None:
    client.ok("PUSHB", queue=queue, jobs=[{"data": n} for n in range(2)])
    answer = client.ok("PULLB", queue=queue, count=2, owner="me")
    ids = [job["id"] for job in answer["jobs"]]
    told = client.ask("ACKB", ids=ids, tokens=[answer["tokens"][0], "wrong"])
    assert told != {"ok": True}
    assert client.state(ids[1]) == "active"
    client.ok("ACK", id=ids[1], token=answer["tokens"][1])


@pytest.mark.parametrize(
    ("cmd", "fields"),
    [
        ("MoveToDelayed", {"delay": 600_000}),
        ("MoveToWait", {}),
        ("Discard", {}),
        ("ChangeDelay", {"delay": 600_000}),
    ],
)
def test_a_locked_job_moves_only_with_its_token(
    client: Client, queue: str, cmd: str, fields: Answer
) -> None:
    client.push(queue, 1)
    job_id, token = client.lock(queue)
    assert client.ask(cmd, id=job_id, **fields)["ok"] is False
    assert client.ask(cmd, id=job_id, token="wrong", **fields)["ok"] is False
    assert client.state(job_id) == "active"
    assert client.ok(cmd, id=job_id, token=token, **fields) == {}
    assert client.state(job_id) != "active"


def test_progress_and_data_need_no_token(client: Client, queue: str) -> None:
    client.push(queue, 1)
    job_id, _ = client.lock(queue)
    client.ok("Progress", id=job_id, progress=10)
    client.ok("Update", id=job_id, data=2)
    client.ok("AddLog", id=job_id, message="m")


def test_a_lock_can_be_extended(client: Client, queue: str) -> None:
    client.push(queue, 1)
    job_id, token = client.lock(queue)
    assert client.ok("ExtendLock", id=job_id, token=token, duration=60_000) == {}
    client.refused("ExtendLock", id=job_id, token="wrong", duration=60_000)
    client.refused("ExtendLock", id="nobody", token=token, duration=60_000)
    client.push(queue, 2)
    second, second_token = client.lock(queue)
    answer = client.ok(
        "ExtendLocks",
        ids=[job_id, second, "nobody"],
        tokens=[token, second_token, "x"],
        durations=[60_000, 60_000, 60_000],
    )
    assert answer == {"count": 2}


@ours(SWEEP)
def test_an_expired_lock_gives_the_job_back(client: Client, queue: str) -> None:
    client.push(queue, 1)
    job_id, token = client.lock(queue, lockTtl=100)
    again, new_token = client.lock(queue)
    assert (again, new_token != token) == (job_id, True)
    job = client.job(job_id)
    assert (job["attempts"], job["stallCount"]) == (1, 1)
    error = client.refused("ACK", id=job_id, token=token)
    assert error == f"Invalid or expired lock token for job {job_id}"
    client.ok("ACK", id=job_id, token=new_token)


@ours(SWEEP)
def test_a_late_acknowledgement_counts_until_the_job_is_taken_again(
    client: Client, queue: str
) -> None:
    client.push(queue, 1)
    job_id, token = client.lock(queue, lockTtl=100)
    pass_time(client, queue, 250)
    assert client.state(job_id) == "waiting"
    client.ok("ACK", id=job_id, token=token, result=5)
    assert client.state(job_id) == "completed"
    assert client.is_empty(queue)


@ours(SWEEP)
def test_heartbeats_keep_a_lock_alive(client: Client, queue: str) -> None:
    client.push(queue, 1)
    job_id, token = client.lock(queue, lockTtl=250)
    for _ in range(4):
        pass_time(client, queue, 120)
        client.ok("JobHeartbeat", id=job_id, token=token)
    assert client.state(job_id) == "active"
    client.ok("JobHeartbeatB", ids=[job_id], tokens=[token])
    client.ok("ExtendLock", id=job_id, token=token, duration=60_000)
    pass_time(client, queue, 350)
    client.ok("ACK", id=job_id, token=token)


@ours(SWEEP)
def test_a_lock_that_expires_too_often_ends_in_the_dlq(client: Client, queue: str) -> None:
    client.ok("SetStallConfig", queue=queue, config={"maxStalls": 2})
    job_id = client.push(queue, 1, maxAttempts=100)
    client.lock(queue, lockTtl=60)
    client.lock(queue, lockTtl=60)
    assert client.ok("PULL", queue=queue, timeout=500)["job"] is None
    assert client.state(job_id) == "failed"
    [entry] = client.ok("Dlq", queue=queue)["entries"]
    assert entry["reason"] in ("stalled", "max_attempts_exceeded")


@ours(SWEEP)
def test_an_expired_lock_is_an_attempt(client: Client, queue: str) -> None:
    job_id = client.push(queue, 1, maxAttempts=1)
    client.lock(queue, lockTtl=60)
    assert client.ok("PULL", queue=queue, timeout=300)["job"] is None
    assert client.state(job_id) == "failed"


@pytest.mark.parametrize("owner", [None, "me"])
def test_a_disconnect_gives_the_jobs_back_at_once(
    client: Client, address: tuple[str, int], queue: str, owner: str | None
) -> None:
    ids = client.ok("PUSHB", queue=queue, jobs=[{"data": n} for n in range(3)])["ids"]
    pull = client.send("PULL", queue=queue + "-watch", timeout=10)
    client.receive(pull)
    with Client(address) as gone:
        options = {"owner": owner} if owner else {}
        gone.ok("PULLB", queue=queue, count=3, **options)
    taken = [client.pull(queue) for _ in range(3)]
    assert {job["id"] for job in taken} == set(ids)
    assert [job["attempts"] for job in taken] == [0, 0, 0]


def test_a_finished_job_is_not_given_back(
    client: Client, address: tuple[str, int], queue: str
) -> None:
    job_id = client.push(queue, 1)
    with Client(address) as gone:
        gone.pull(queue)
        gone.ok("ACK", id=job_id)
    pass_time(client, queue, 50)
    assert client.state(job_id) == "completed"


def test_a_job_whose_lock_was_renewed_outlives_the_connection(
    client: Client, address: tuple[str, int], queue: str
) -> None:
    client.push(queue, 1)
    with Client(address) as gone:
        job_id, token = gone.lock(queue)
        client.ok("JobHeartbeat", id=job_id, token=token)
    pass_time(client, queue, 100)
    assert client.state(job_id) == "active"
    client.ok("ACK", id=job_id, token=token)


def test_a_detached_pull_outlives_the_connection(
    client: Client, address: tuple[str, int], queue: str
) -> None:
    with Client(address) as gone:
        job_id = client.push(queue, 1)
        gone.pull(queue, detach=True)
    pass_time(client, queue, 100)
    assert client.state(job_id) == "active"
    client.ok("ACK", id=job_id)


def test_a_detached_pull_may_wait(client: Client, address: tuple[str, int], queue: str) -> None:
    assert client.ok("PULL", queue=queue, timeout=50, detach=True) == {"job": None}
    with Client(address) as gone:
        pull = gone.send("PULL", queue=queue, timeout=20_000, detach=True)
        assert gone.is_silent()
        job_id = client.push(queue, 1)
        assert gone.receive(pull)["job"]["id"] == job_id
    pass_time(client, queue, 50)
    assert client.state(job_id) == "active"
    with Client(address) as gone:
        gone.send("PULL", queue=queue, timeout=20_000, detach=True)
        assert gone.is_silent()
    second = client.push(queue, 2)
    assert client.pull(queue)["id"] == second


def test_what_is_answered_to_a_token_of_a_lost_connection_is_what_happens(
    client: Client, address: tuple[str, int], queue: str
) -> None:
    client.push(queue, 1)
    with Client(address) as gone:
        job_id, token = gone.lock(queue)
    deadline = time.monotonic() + 5
    while client.state(job_id) == "active":
        assert time.monotonic() < deadline, "the job was not given back"
    answer = client.ask("ACK", id=job_id, token=token)
    assert client.state(job_id) == ("completed" if answer["ok"] else "waiting")


@ours("it looks for stalled jobs every five seconds, twice")
def test_a_job_that_stalls_is_retried(client: Client, other: Client, queue: str) -> None:
    config = {"stallInterval": 100, "gracePeriod": 0}
    client.ok("SetStallConfig", queue=queue, config=config)
    other.ok("SubscribeEvents", queue=queue)
    job_id = client.push(queue, 1, backoff=1)
    client.pull(queue, detach=True)
    again = client.pull(queue, timeout=20_000)
    assert (again["id"], again["stallCount"], again["attempts"]) == (job_id, 1, 1)
    assert other.next_event("stalled")["jobId"] == job_id


@ours("it looks for stalled jobs every five seconds, twice")
def test_a_job_that_stalls_too_often_is_dead(client: Client, queue: str) -> None:
    config = {"stallInterval": 80, "gracePeriod": 0, "maxStalls": 1}
    client.ok("SetStallConfig", queue=queue, config=config)
    job_id = client.push(queue, 1, backoff=1, maxAttempts=10)
    client.pull(queue, detach=True)
    assert client.ok("PULL", queue=queue, timeout=1000)["job"] is None
    assert client.state(job_id) == "failed"
    [entry] = client.ok("Dlq", queue=queue)["entries"]
    assert entry["reason"] == "stalled"


@ours("it looks for stalled jobs every five seconds, twice")
def test_a_job_may_have_a_stall_time_of_its_own(client: Client, queue: str) -> None:
    client.ok("SetStallConfig", queue=queue, config={"gracePeriod": 0})
    job_id = client.push(queue, 1, backoff=1, stallTimeout=100)
    client.pull(queue, detach=True)
    assert client.pull(queue, timeout=20_000)["id"] == job_id


@ours("it looks for stalled jobs every five seconds, twice")
def test_heartbeats_keep_a_job_from_stalling(client: Client, queue: str) -> None:
    config = {"stallInterval": 250, "gracePeriod": 0}
    client.ok("SetStallConfig", queue=queue, config=config)
    job_id = client.push(queue, 1)
    client.pull(queue)
    for _ in range(5):
        pass_time(client, queue, 120)
        client.ok("JobHeartbeat", id=job_id)
    assert client.state(job_id) == "active"
    assert client.job(job_id)["stallCount"] == 0


@ours("it looks for stalled jobs every five seconds, twice")
def test_stall_detection_can_be_switched_off(client: Client, queue: str) -> None:
    config = {"stallInterval": 50, "gracePeriod": 0, "enabled": False}
    client.ok("SetStallConfig", queue=queue, config=config)
    job_id = client.push(queue, 1)
    client.pull(queue)
    pass_time(client, queue, 300)
    assert client.state(job_id) == "active"


def test_a_job_that_takes_too_long_fails(client: Client, queue: str) -> None:
    job_id = client.push(queue, 1, timeout=120, maxAttempts=1)
    client.pull(queue)
    assert client.ok("PULL", queue=queue, timeout=700)["job"] is None
    assert client.state(job_id) == "failed"
    [entry] = client.ok("Dlq", queue=queue)["entries"]
    assert (entry["reason"], entry["error"]) == ("timeout", "Job timeout exceeded")
    late = client.ok("ACK", id=job_id)
    assert late == {"data": {"applied": False, "reason": "already-finalized"}}
    late = client.ok("FAIL", id=job_id, error="x")
    assert late == {"data": {"applied": False, "reason": "already-finalized"}}


def test_a_job_that_takes_too_long_is_retried(client: Client, queue: str) -> None:
    job_id = client.push(queue, 1, timeout=120, maxAttempts=2, backoff=1)
    client.pull(queue)
    again = client.pull(queue, timeout=20_000)
    assert (again["id"], again["attempts"]) == (job_id, 1)
    assert client.job(job_id)["failedReason"] == "Job timeout exceeded"


def test_a_late_batch_reports_what_was_final(client: Client, queue: str) -> None:
    dead = client.push(queue, 1, timeout=100, maxAttempts=1)
    client.pull(queue)
    assert client.ok("PULL", queue=queue, timeout=700)["job"] is None
    alive = client.push(queue, 2)
    client.pull(queue)
    answer = client.ok("ACKB", ids=[dead, alive], results=[1, 2])
    assert answer == {"data": {"ignoredIndices": [0], "ignoredIds": [dead]}}
    assert client.state(alive) == "completed"


def test_a_job_past_its_time_to_live_is_not_given_out(client: Client, queue: str) -> None:
    job_id = client.push(queue, 1, ttl=60)
    pass_time(client, queue, 150)
    assert client.is_empty(queue)
    assert client.state(job_id) == "unknown"
    assert client.ok("Dlq", queue=queue)["jobs"] == []


@ours("it notices only at the head of a pull")
def test_a_time_to_live_ends_by_itself(client: Client, queue: str) -> None:
    job_id = client.push(queue, 1, ttl=60)
    late = client.push(queue, 2, ttl=60, delay=600_000)
    pass_time(client, queue, 300)
    assert [client.state(job_id), client.state(late)] == ["unknown", "unknown"]
    assert client.ok("Count", queue=queue)["count"] == 0


def test_a_job_taken_in_time_may_outlive_its_time_to_live(client: Client, queue: str) -> None:
    job_id = client.push(queue, 1, ttl=80)
    client.pull(queue)
    pass_time(client, queue, 200)
    assert client.state(job_id) == "active"
    client.ok("ACK", id=job_id)
    assert client.state(job_id) == "completed"
