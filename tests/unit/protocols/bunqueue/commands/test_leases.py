"""Progress, heartbeats, longer locks, and what still works on a full disk, without a socket."""

import pytest

from jobyard.engine.jobs.put import put
from jobyard.engine.jobs.queues import open_queue
from jobyard.engine.jobs.take import take
from jobyard.model.family import BEANSTALK
from jobyard.model.job import RAW
from jobyard.model.lease import Proof, Terms
from tests.support.clients.bunqueue import EMPTY
from tests.support.doors.bunqueue import BareBunqueue
from tests.support.site.storage import MemoryStorage

NOT_ALIVE = "Job not found or not active (or invalid token)"
NOT_LOCKED = "Lock not found or invalid token"


# -- progress ----------------------------------------------------------------------------------


def test_progress_survives_a_restart() -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    job_id = client.push()
    client.pull()
    assert client.ok("Progress", id=job_id, progress=40, message="loading\0more") == EMPTY
    site.check()
    again = site.reboot()
    client = again.connect()
    job = client.pull()
    assert (job["progress"], job["progressMessage"]) == (40, "loading\0more")
    again.check()


def test_a_message_stays_until_there_is_another() -> None:
    client = BareBunqueue().connect()
    job_id = client.push()
    client.pull()
    client.ok("Progress", id=job_id, progress=1, message="one")
    client.ok("Progress", id=job_id, progress=2)
    assert client.ok("GetProgress", id=job_id) == {"progress": 2, "message": "one"}
    client.ok("Progress", id=job_id, progress=3, message="three")
    assert client.ok("GetProgress", id=job_id) == {"progress": 3, "message": "three"}
    client.ok("Progress", id=job_id, progress=4, message=None)
    assert client.ok("GetProgress", id=job_id) == {"progress": 4, "message": None}


@pytest.mark.parametrize(("given", "shown"), [(0, 0), (100, 100), (33.5, 33.5), (7.0, 7)])
def test_progress_is_a_number_from_0_to_100(given: float, shown: float) -> None:
    client = BareBunqueue().connect()
    job_id = client.push()
    client.pull()
    client.ok("Progress", id=job_id, progress=given)
    assert client.ok("GetProgress", id=job_id)["progress"] == shown


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("5", "progress must be a number"),
        (None, "progress must be a number"),
        (True, "progress must be a number"),
        ({"step": 1}, "progress must be a number"),
        (float("nan"), "progress must be a finite number"),
        (float("inf"), "progress must be a finite number"),
        (-1, "progress must be between 0 and 100"),
        (101, "progress must be between 0 and 100"),
        (100.5, "progress must be between 0 and 100"),
    ],
)
def test_bad_progress_is_refused(value: object, error: str) -> None:
    client = BareBunqueue().connect()
    job_id = client.push()
    client.pull()
    assert client.refused("Progress", id=job_id, progress=value) == error
    assert client.refused("Progress", id=job_id) == "progress must be a number"
    assert client.refused("Progress", id=job_id, progress=1, message=5) == (
        "message must be a string"
    )
    assert client.ok("GetProgress", id=job_id) == {"progress": 0, "message": None}


def test_only_an_active_job_has_progress() -> None:
    client = BareBunqueue().connect()
    states = {client.finish(): "completed", client.bury(): "failed", client.push(): "waiting"}
    states[client.push(delay=1000)] = "delayed"
    for job_id, state in states.items():
        error = client.refused("Progress", id=job_id, progress=5)
        assert error == f"Job is not active (current state: {state})"
    assert client.refused("Progress", id="nobody", progress=5) == "Job not found"


def test_progress_is_reported() -> None:
    client = BareBunqueue().connect()
    job_id = client.push()
    client.pull()
    client.ok("SubscribeEvents", queue="q")
    client.ok("Progress", id=job_id, progress=12)
    [event] = client.events
    assert (event["eventType"], event["jobId"], event["progress"]) == ("progress", job_id, 12)


def test_progress_is_a_sign_of_life_but_renews_no_lock() -> None:
    site = BareBunqueue()
    client = site.connect()
    plain = client.push()
    client.pull()
    client.push()
    locked, _ = client.lock(lockTtl=30_000)
    site.tick(20_000)
    for job_id in (plain, locked):
        client.ok("Progress", id=job_id, progress=1)
        beat_ms = client.ok("GetJob", id=job_id)["job"]["lastHeartbeat"]
        assert beat_ms == site.door.wall_ms(site.now_ms)
    site.tick(20_000)
    assert [client.state(plain), client.state(locked)] == ["active", "waiting"]


# -- heartbeats --------------------------------------------------------------------------------


def test_a_heartbeat_renews_a_lock_for_its_time() -> None:
    site = BareBunqueue()
    client = site.connect()
    client.push()
    job_id, token = client.lock(lockTtl=1000)
    for _ in range(3):
        site.tick(900)
        assert client.ok("JobHeartbeat", id=job_id, token=token) == {"data": {"ok": True}}
    site.tick(999)
    assert client.state(job_id) == "active"
    site.tick(1)
    assert client.state(job_id) == "waiting"
    assert client.refused("JobHeartbeat", id=job_id, token=token) == NOT_ALIVE
    site.check()


def test_a_heartbeat_may_say_for_how_long_and_shortens_nothing_otherwise() -> None:
    site = BareBunqueue()
    client = site.connect()
    client.push()
    job_id, token = client.lock(lockTtl=1000)
    client.ok("JobHeartbeat", id=job_id, token=token, duration=5000)
    client.ok("JobHeartbeat", id=job_id, token=token)
    site.tick(4999)
    assert client.state(job_id) == "active"
    site.tick(1)
    assert client.state(job_id) == "waiting"


def test_without_its_token_a_lock_is_not_renewed() -> None:
    site = BareBunqueue()
    client = site.connect()
    client.push()
    job_id, _ = client.lock(lockTtl=1000)
    site.tick(600)
    assert client.ok("JobHeartbeat", id=job_id) == {"data": {"ok": True}}
    assert client.refused("JobHeartbeat", id=job_id, token="wrong") == NOT_ALIVE
    site.tick(400)
    assert client.state(job_id) == "waiting"


def test_a_job_without_a_lock_is_kept_by_heartbeats() -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    job_id = client.push()
    client.pull()
    records = site.yard.journal.records_count
    for _ in range(3):
        site.tick(34_000)
        client.ok("JobHeartbeat", id=job_id)
    assert site.yard.journal.records_count == records
    site.tick(34_999)
    assert client.state(job_id) == "active"
    site.tick(1)
    assert client.state(job_id) == "waiting"
    assert client.refused("JobHeartbeat", id=job_id) == NOT_ALIVE
    assert client.refused("JobHeartbeat", id="nobody") == NOT_ALIVE
    assert client.refused("JobHeartbeat") == NOT_ALIVE


def test_a_token_is_wrong_for_a_job_without_a_lock() -> None:
    client = BareBunqueue().connect()
    client.push("other")
    _, token = client.lock("other")
    job_id = client.push()
    client.pull()
    assert client.refused("JobHeartbeat", id=job_id, token=token) == NOT_ALIVE


def test_heartbeats_come_in_batches() -> None:
    site = BareBunqueue()
    client = site.connect()
    client.push()
    client.push()
    first, first_token = client.lock(lockTtl=1000)
    second, _ = client.lock(lockTtl=1000)
    plain = client.push()
    client.pull()
    site.tick(500)
    answer = client.ok(
        "JobHeartbeatB",
        ids=[first, second, plain, "nobody"],
        tokens=[first_token, "wrong", None, None],
    )
    assert answer == {"data": {"ok": True, "count": 2}}
    assert client.ok("JobHeartbeatB", ids=[plain]) == {"data": {"ok": True, "count": 1}}
    site.tick(500)
    assert [client.state(first), client.state(second)] == ["active", "waiting"]
    assert client.refused("JobHeartbeatB", ids="x") == "ids must be an array of strings"


def test_a_renewed_lock_outlives_the_connection() -> None:
    site = BareBunqueue()
    client, other = site.connect(), site.connect()
    other.push()
    other.push()
    renewed, token = client.lock()
    not_renewed, _ = client.lock()
    other.ok("JobHeartbeat", id=renewed, token=token)
    other.ok("JobHeartbeat", id=not_renewed)
    client.close()
    assert [other.state(renewed), other.state(not_renewed)] == ["active", "waiting"]
    other.ok("ACK", id=renewed, token=token)
    site.check()


def test_a_run_has_its_time_however_often_it_is_heard_of() -> None:
    site = BareBunqueue()
    client = site.connect()
    client.push(timeout=1000, maxAttempts=1)
    job_id, token = client.lock()
    site.tick(999)
    client.ok("JobHeartbeat", id=job_id, token=token)
    assert client.state(job_id) == "active"
    site.tick(1)
    assert client.state(job_id) == "failed"


def test_a_job_run_at_another_door_is_not_ours_to_keep() -> None:
    site = BareBunqueue()
    client = site.connect()
    queue = open_queue(site.yard, "q")
    put(site.yard, queue, BEANSTALK, RAW, 0, 0, 1000, b"", site.now_ms)
    terms = Terms(BEANSTALK, Proof.CONNECTION, 0, "")
    take(site.yard, [queue], site.door.orphans, terms, site.now_ms)
    [job] = client.ok("GetJobs", queue="q", state="active")["jobs"]
    assert client.refused("JobHeartbeat", id=job["id"]) == NOT_ALIVE
    client.ok("Progress", id=job["id"], progress=50)
    site.tick(1000)
    assert client.state(job["id"]) == "waiting"


# -- longer locks ------------------------------------------------------------------------------


def test_a_lock_lasts_as_long_as_it_was_extended() -> None:
    site = BareBunqueue()
    client = site.connect()
    client.push()
    job_id, token = client.lock(lockTtl=1000)
    assert client.ok("ExtendLock", id=job_id, token=token, duration=5000) == EMPTY
    site.tick(4000)
    assert client.ok("ExtendLock", id=job_id, duration=100) == EMPTY
    site.tick(99)
    assert client.state(job_id) == "active"
    site.tick(1)
    assert client.state(job_id) == "waiting"


def test_what_is_not_locked_cannot_be_extended() -> None:
    client = BareBunqueue().connect()
    client.push("locked")
    job_id, token = client.lock("locked")
    assert client.refused("ExtendLock", id=job_id, token="wrong", duration=5) == NOT_LOCKED
    assert client.refused("ExtendLock", id="nobody", token=token, duration=5) == NOT_LOCKED
    plain = client.push()
    assert client.refused("ExtendLock", id=plain, token=token, duration=5) == NOT_LOCKED
    client.pull()
    assert client.refused("ExtendLock", id=plain, token=token, duration=5) == NOT_LOCKED
    assert client.refused("ExtendLock", id=plain, duration=5) == NOT_LOCKED
    error = client.refused("ExtendLock", id=job_id, token=token)
    assert error == "duration must be a number"
    error = client.refused("ExtendLock", id=job_id, token=token, duration=0)
    assert error == "duration must be at least 1"


def test_locks_are_extended_together() -> None:
    site = BareBunqueue()
    client = site.connect()
    client.push()
    client.push()
    first, first_token = client.lock(lockTtl=100)
    second, second_token = client.lock(lockTtl=100)
    ids = [first, second, "nobody"]
    tokens = [first_token, second_token, "x"]
    answer = client.ok("ExtendLocks", ids=ids, tokens=tokens, durations=[1000, 2000, 3000])
    assert answer == {"count": 2}
    site.tick(1000)
    assert [client.state(first), client.state(second)] == ["waiting", "active"]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"ids": 5}, "ids must be an array of strings"),
        ({"durations": None}, "durations length must match ids length"),
        ({"durations": [5]}, "durations length must match ids length"),
        ({"durations": [5000, "x"]}, "durations must be a number"),
    ],
)
def test_bad_extensions_extend_nothing(fields: dict[str, object], error: str) -> None:
    site = BareBunqueue()
    client = site.connect()
    client.push()
    job_id, token = client.lock(lockTtl=100)
    asked: dict[str, object] = {"ids": [job_id, job_id], "tokens": [token, token]}
    asked["durations"] = [5000, 5000]
    assert client.refused("ExtendLocks", **{**asked, **fields}) == error
    site.tick(100)
    assert client.state(job_id) == "waiting"


# -- a full disk -------------------------------------------------------------------------------


def test_a_full_disk_refuses_settings_and_other_data_and_lets_jobs_end() -> None:
    storage = MemoryStorage()
    site = BareBunqueue(storage)
    client = site.connect()
    job_id = client.push(delay=60_000)
    client.push()
    active = client.pull()["id"]
    storage.capacity = 0
    while client.ask("PUSH", queue="q", data="x" * 1000)["ok"]:
        pass
    asked: list[tuple[str, dict[str, object]]] = [
        ("RateLimit", {"queue": "q", "limit": 5000}),
        ("SetConcurrency", {"queue": "q", "limit": 5000}),
        ("Pause", {"queue": "q"}),
        ("Update", {"id": job_id, "data": "x" * 1000}),
    ]
    for cmd, fields in asked:
        # The last of the room may do for something small, once or twice.
        errors = [client.ask(cmd, **fields).get("error") for _ in range(5)]
        assert errors[-1] == "Storage full", cmd
    client.ok("ACK", id=active)
    waiting = client.ok("GetJobCounts", queue="q")["counts"]["waiting"]
    assert client.ok("Drain", queue="q")["count"] == waiting > 0
    client.ok("Obliterate", queue="q")
    site.check()
