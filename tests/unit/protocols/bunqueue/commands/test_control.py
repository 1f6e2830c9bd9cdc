"""Commands that change jobs and queues from outside, without a socket."""

import pytest

from jobyard.engine.jobs.put import put
from jobyard.engine.jobs.queues import open_queue, pause
from jobyard.model.family import BEANSTALK
from jobyard.model.job import RAW
from jobyard.protocols.bunqueue.commands.control import arm_rate_ends
from tests.support.clients.bunqueue import EMPTY, Answer, BunqueueClient
from tests.support.doors.bunqueue import BareBunqueue
from tests.support.site.storage import MemoryStorage


def left(client: BunqueueClient, queue: str = "q") -> list[object]:
    """The data of all ready jobs in the order they leave; takes them."""
    return [job["data"] for job in client.ok("PULLB", queue=queue, count=100)["jobs"]]


def limits(client: BunqueueClient) -> Answer:
    found: Answer = client.ok("GetQueueLimits", queue="q")["data"]["limits"]
    return found


def kinds(client: BunqueueClient) -> list[tuple[str, object]]:
    """Return the events: the kind, and the state before."""
    return [(event["eventType"], event.get("prev")) for event in client.events]


# -- one job -----------------------------------------------------------------------------------


def test_cancel_removes_what_has_not_begun() -> None:
    site = BareBunqueue()
    client = site.connect()
    child = client.push()
    ids = [client.push(), client.push(delay=1000), client.push(dependsOn=[child])]
    for job_id in ids:
        assert client.ok("Cancel", id=job_id) == EMPTY
        assert client.state(job_id) == "unknown"
    client.pull()
    for job_id in (child, ids[0], client.finish("other")):
        error = client.refused("Cancel", id=job_id)
        assert error == "Job not found or cannot be cancelled"
    site.check()


def test_update_gives_other_data() -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    job_id = client.push(data={"v": 1})
    client.ok("Update", id=job_id, data={"v": [2, 3]})
    assert client.pull()["data"] == {"v": [2, 3]}
    client.ok("Update", id=job_id, data="third")
    assert client.ok("GetJob", id=job_id)["job"]["data"] == "third"
    site.check()
    again = site.reboot().connect()
    assert again.pull()["data"] == "third"
    again.ok("ACK", id=job_id)
    error = "Job not found or cannot be updated"
    assert again.refused("Update", id=job_id, data=4) == error
    assert again.refused("Update", id="nobody", data=4) == error


def test_update_keeps_the_form_of_another_familys_job() -> None:
    site = BareBunqueue()
    queue = open_queue(site.yard, "q")
    job = put(site.yard, queue, BEANSTALK, RAW, 0, 0, 60_000, b"old", site.now_ms)
    client = site.connect()
    [shown] = client.ok("GetJobs", queue="q")["jobs"]
    client.ok("Update", id=shown["id"], data={"v": 1})
    assert job.body == b'{"v":1}'
    assert client.pull()["data"] == {"v": 1}


def test_a_changed_priority_counts() -> None:
    client = BareBunqueue().connect()
    for name in ("a", "b", "c"):
        client.push(data=name)
    late = client.push(data="late", delay=1000)
    first = client.ok("GetJobs", queue="q")["jobs"][1]["id"]
    client.ok("ChangePriority", id=first, priority=5)
    client.ok("ChangePriority", id=late, priority=9)
    assert client.state(late) == "delayed"
    client.ok("Promote", id=late)
    assert left(client) == ["late", "b", "a", "c"]
    error = "Job not found or not in queue"
    assert client.refused("ChangePriority", id=late, priority=1) == error
    assert client.refused("ChangePriority", id="nobody", priority=1) == error


def test_inside_a_group_a_lower_priority_goes_first() -> None:
    client = BareBunqueue().connect()
    client.push(data="a", groupId="g", priority=3)
    later = client.push(data="b", groupId="g", priority=5)
    client.ok("ChangePriority", id=later, priority=1)
    assert client.ok("GetJob", id=later)["job"]["priority"] == 1
    error = client.refused("ChangePriority", id=later, priority=-1)
    assert error == "priority must be at least 0"
    assert left(client) == ["b", "a"]


@pytest.mark.parametrize(
    ("priority", "error"),
    [
        ("x", "priority must be a number"),
        (None, "priority must be a number"),
        (1.5, "priority must be an integer"),
        (1_000_001, "priority must be at most 1000000"),
    ],
)
def test_a_bad_priority_changes_nothing(priority: object, error: str) -> None:
    client = BareBunqueue().connect()
    job_id = client.push()
    assert client.refused("ChangePriority", id=job_id, priority=priority) == error
    assert client.refused("ChangePriority", id=job_id) == "priority must be a number"
    assert client.ok("GetJob", id=job_id)["job"]["priority"] == 0


def test_a_changed_delay_counts_from_now() -> None:
    site = BareBunqueue()
    client = site.connect()
    delayed = client.push(delay=60_000)
    waiting = client.push()
    site.tick(500)
    client.ok("ChangeDelay", id=delayed, delay=100)
    client.ok("ChangeDelay", id=waiting, delay=200)
    site.tick(99)
    assert [client.state(delayed), client.state(waiting)] == ["delayed", "delayed"]
    site.tick(1)
    assert [client.state(delayed), client.state(waiting)] == ["waiting", "delayed"]
    client.ok("ChangeDelay", id=waiting, delay=0)
    assert client.state(waiting) == "waiting"
    error = "Job not found or cannot change delay"
    assert client.refused("ChangeDelay", id="nobody", delay=1) == error
    assert client.refused("ChangeDelay", id=waiting) == "delay must be a number"
    assert client.refused("ChangeDelay", id=waiting, delay=-1) == "delay must be at least 0"
    site.check()


def test_an_active_job_is_delayed_without_an_attempt() -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    client.ok("SubscribeEvents", queue="q")
    job_id = client.push()
    client.pull()
    client.events.clear()
    client.ok("MoveToDelayed", id=job_id, delay=300)
    assert [(one["eventType"], one["delay"]) for one in client.events] == [("delayed", 300)]
    assert client.state(job_id) == "delayed"
    client = site.reboot(299).connect()
    assert client.state(job_id) == "delayed"


@pytest.mark.parametrize("cmd", ["MoveToDelayed", "ChangeDelay", "MoveToWait", "Discard"])
def test_a_locked_job_needs_its_token(cmd: str) -> None:
    client = BareBunqueue().connect()
    client.push()
    job_id, token = client.lock()
    assert client.refused(cmd, id=job_id, delay=5) == f"Lock token required for job {job_id}"
    error = client.refused(cmd, id=job_id, delay=5, token="wrong")
    assert error == f"Invalid or expired lock token for job {job_id}"
    assert client.state(job_id) == "active"
    client.ok(cmd, id=job_id, delay=5, token=token)
    assert client.state(job_id) != "active"


def test_delayed_jobs_are_promoted() -> None:
    site = BareBunqueue()
    client = site.connect()
    ids = [client.push(data=n, delay=1000 - n) for n in range(4)]
    client.ok("Promote", id=ids[0])
    assert client.refused("Promote", id=ids[0]) == "Job not found or not delayed"
    assert client.refused("Promote", id="nobody") == "Job not found or not delayed"
    assert client.ok("PromoteJobs", queue="q", count=1) == {"count": 1}
    assert left(client) == [0, 3]
    assert client.ok("PromoteJobs", queue="q") == {"count": 2}
    assert client.ok("PromoteJobs", queue="q") == {"count": 0}
    assert client.ok("PromoteJobs", queue="none") == {"count": 0}
    assert client.refused("PromoteJobs", queue="q", count=-1) == "count must be at least 0"
    site.check()


def test_a_job_is_moved_to_waiting_from_where_it_is() -> None:
    site = BareBunqueue()
    client = site.connect()
    watcher = site.connect()
    watcher.ok("SubscribeEvents", queue="q")
    job_id = client.push(delay=1000)
    client.ok("MoveToWait", id=job_id)
    client.ok("MoveToWait", id=job_id)
    assert client.pull()["id"] == job_id
    client.ok("MoveToWait", id=job_id)
    assert client.pull()["attempts"] == 0
    client.ok("FAIL", id=job_id, unrecoverable=True)
    client.ok("MoveToWait", id=job_id)
    job = client.pull()
    assert (job["id"], job["attempts"]) == (job_id, 0)
    client.ok("ACK", id=job_id)
    told = [kind for kind in kinds(watcher) if kind[0] in ("waiting", "retried")]
    assert told == [("waiting", "delayed"), ("waiting", "active"), ("retried", "failed")]
    error = client.refused("MoveToWait", id=job_id)
    assert error == "Cannot move job from state 'completed' to waiting"
    error = client.refused("MoveToWait", id="nobody")
    assert error == "Cannot move job from state 'unknown' to waiting"


def test_a_discarded_job_is_dead() -> None:
    site = BareBunqueue()
    client = site.connect()
    ids = [client.push(), client.push(delay=1000), client.push("other")]
    ids.append(client.push(dependsOn=[ids[0]]))
    client.pull("other")
    for job_id in ids:
        client.ok("Discard", id=job_id)
        assert client.state(job_id) == "failed"
        assert client.refused("Discard", id=job_id) == "Job not found"
    assert client.refused("Discard", id="nobody") == "Job not found"
    site.check()


# -- waiting for a job -------------------------------------------------------------------------


def test_waiting_ends_when_the_job_is_done() -> None:
    site = BareBunqueue()
    client, worker = site.connect(), site.connect()
    job_id = client.push()
    wait = client.send("WaitJob", id=job_id)
    worker.pull()
    assert client.hear(wait) is None
    worker.ok("ACK", id=job_id, result=[1])
    assert client.hear(wait) == {"ok": True, "completed": True, "result": [1]}
    assert client.ok("WaitJob", id=job_id) == {"completed": True, "result": [1]}
    assert client.ok("WaitJob", id=client.finish("other")) == {"completed": True}


def test_waiting_ends_with_its_time() -> None:
    site = BareBunqueue()
    client = site.connect()
    dead = client.bury()
    usual, short = client.send("WaitJob", id=dead), client.send("WaitJob", id=dead, timeout=50)
    site.tick(49)
    assert client.hear(short) is None
    site.tick(1)
    assert client.hear(short) == {"ok": True, "completed": False}
    site.tick(29_949)
    assert client.hear(usual) is None
    site.tick(1)
    assert client.hear(usual) == {"ok": True, "completed": False}
    assert client.refused("WaitJob", id="nobody") == "Job not found"
    assert client.refused("WaitJob", id=dead, timeout=-1) == "timeout must be at least 0"
    error = client.refused("WaitJob", id=dead, timeout=600_001)
    assert error == "timeout must be at most 600000"


# -- pause -------------------------------------------------------------------------------------


def test_a_paused_queue_gives_no_job_even_after_a_restart() -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    client.ok("SubscribeEvents", queue="q")
    client.ok("Pause", queue="q")
    client.ok("Pause", queue="q")
    assert kinds(client) == [("paused", None)]
    job_id = client.push()
    site = site.reboot()
    client = site.connect()
    assert client.ok("IsPaused", queue="q") == {"paused": True}
    assert client.ok("PULL", queue="q") == {"job": None}
    pull = client.send("PULL", queue="q", timeout=1000)
    client.ok("Resume", queue="q")
    answer = client.hear(pull)
    assert answer is not None
    assert answer["job"]["id"] == job_id
    assert site.reboot().connect().ok("IsPaused", queue="q") == {"paused": False}


def test_resume_ends_a_pause_for_a_time_too() -> None:
    site = BareBunqueue()
    client = site.connect()
    client.push()
    pause(site.yard, site.yard.queues["q"], 60_000, site.now_ms)
    assert client.ok("IsPaused", queue="q") == {"paused": True}
    client.ok("Resume", queue="q")
    assert client.ok("IsPaused", queue="q") == {"paused": False}
    assert client.pull()


def test_a_queue_nobody_knows_is_not_made_by_asking() -> None:
    site = BareBunqueue()
    client = site.connect()
    for cmd in ("Resume", "RateLimitClear", "ClearConcurrency", "Obliterate"):
        assert client.ok(cmd, queue="none") == EMPTY
    assert client.ok("IsPaused", queue="none") == {"paused": False}
    assert client.ok("Drain", queue="none") == {"count": 0}
    assert client.ok("Clean", queue="none", grace=0) == {"count": 0, "ids": []}
    assert "none" not in site.yard.queues
    assert client.ok("ListQueues") == {"queues": []}


def test_queues_are_listed_while_there_is_something_to_tell() -> None:
    site = BareBunqueue()
    open_queue(site.yard, "empty").is_pinned = True
    strange = open_queue(site.yard, "a/b+c")
    put(site.yard, strange, BEANSTALK, RAW, 0, 0, 60_000, b"", site.now_ms)
    client = site.connect()
    client.finish("a-b_c.d:e")
    client.push("a-b_c.d:e", priority=4)
    client.ok("Pause", queue="q")
    shown = {one.pop("name"): one for one in client.ok("ListQueues")["queues"]}
    nothing = {"waiting": 0, "delayed": 0, "active": 0, "completed": 0, "failed": 0}
    assert shown == {
        "a-b_c.d:e": {**nothing, "waiting": 1, "completed": 1, "paused": False},
        "q": {**nothing, "paused": True},
    }


# -- many jobs ---------------------------------------------------------------------------------


def test_drain_removes_what_waits_and_nothing_else() -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    stays = [client.finish(), client.push(), client.push(delay=1000)]
    client.pull()
    ids = [client.push(data=n, priority=n, uniqueKey=f"k{n}") for n in range(3)]
    ids.append(client.push(groupId="g"))
    assert client.ok("Drain", queue="q") == {"count": 4}
    assert [client.state(job_id) for job_id in ids] == ["unknown"] * 4
    assert [client.state(job_id) for job_id in stays] == ["completed", "active", "delayed"]
    site.check()
    again = site.reboot()
    assert again.connect().ok("Count", queue="q") == {"count": 3}
    again.check()


def test_drain_spares_a_job_that_was_set_free_by_it() -> None:
    site = BareBunqueue()
    client = site.connect()
    child = client.push(continueParentOnFailure=True)
    parent = client.push(dependsOn=[child])
    site.job(child).ensure_details().parent_id = site.job(parent).id
    assert client.ok("Drain", queue="q") == {"count": 1}
    assert client.state(parent) == "waiting"
    site.check()


def test_the_last_job_takes_its_queue_along() -> None:
    site = BareBunqueue()
    client = site.connect()
    client.push()
    client.ok("Drain", queue="q")
    assert "q" not in site.yard.queues
    client.push()
    assert client.ok("Clean", queue="q", grace=0)["count"] == 1
    assert "q" not in site.yard.queues


def test_obliterate_leaves_nothing() -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    ids = [client.finish(), client.bury(), client.push(jobId="mine"), client.push(data=1)]
    ids.append(client.push(uniqueKey="k", delay=1000))
    ids.append(client.push(dependsOn=[ids[3]], groupId="g"))
    active, token = client.lock()
    client.ok("Pause", queue="q")
    client.ok("SetConcurrency", queue="q", limit=1)
    client.ok("RateLimit", queue="q", limit=1)
    assert client.ok("Obliterate", queue="q") == EMPTY
    assert [client.state(job_id) for job_id in ids] == ["unknown"] * 6
    error = client.refused("ACK", id=active, token=token)
    assert error == f"Job not found or not in processing state: {active}"
    assert "q" not in site.yard.queues
    site.check()
    for each in (site, site.reboot()):
        client = each.connect()
        assert client.ok("ListQueues") == {"queues": []}
        fresh = client.push(uniqueKey="k", jobId="mine")
        assert client.pull()["id"] == fresh
        client.ok("ACK", id=fresh)
        each.check()


def test_a_waiting_pull_survives_obliterate() -> None:
    site = BareBunqueue()
    client, other = site.connect(), site.connect()
    client.ok("Pause", queue="q")
    client.push()
    pull = other.send("PULL", queue="q", timeout=1000)
    client.ok("Obliterate", queue="q")
    assert other.hear(pull) is None
    fresh = client.push()
    answer = other.hear(pull)
    assert answer is not None
    assert answer["job"]["id"] == fresh


def test_a_group_is_obliterated_with_its_queue() -> None:
    site = BareBunqueue()
    client = site.connect()
    client.push(groupId="g")
    rules = site.yard.queues["q"].rules
    assert rules is not None
    rules.groups["g"].is_paused = True
    rules.groups["g"].set_rate(5, 1000)
    client.ok("Obliterate", queue="q")
    assert "q" not in site.yard.queues
    client.push(groupId="g")
    assert client.pull()


@pytest.mark.parametrize("state", ["completed", "failed", "waiting", "delayed", "waiting-children"])
def test_clean_removes_old_jobs_of_one_state(state: str) -> None:
    site = BareBunqueue()
    client = site.connect()
    jobs = {"completed": client.finish(), "failed": client.bury(), "waiting": client.push()}
    jobs["delayed"] = client.push(delay=600_000)
    jobs["waiting-children"] = client.push(dependsOn=[jobs["delayed"]])
    site.tick(1000)
    assert client.ok("Clean", queue="q", grace=1001, state=state) == {"count": 0, "ids": []}
    answer = client.ok("Clean", queue="q", grace=1000, state=state)
    assert answer == {"count": 1, "ids": [jobs.pop(state)]}
    assert [client.state(job_id) for job_id in jobs.values()] == list(jobs)
    site.check()


def test_clean_counts_the_age_of_an_ended_job_from_its_end() -> None:
    site = BareBunqueue()
    client = site.connect()
    job_id = client.push()
    client.pull()
    site.tick(1000)
    client.ok("ACK", id=job_id)
    site.tick(500)
    assert client.ok("Clean", queue="q", grace=501, state="completed")["count"] == 0
    assert client.ok("Clean", queue="q", grace=500, state="completed")["ids"] == [job_id]


def test_clean_takes_the_oldest_up_to_its_limit() -> None:
    client = BareBunqueue().connect()
    ids = [client.push(priority=n % 3) for n in range(6)]
    assert client.ok("Clean", queue="q", grace=0, limit=2)["ids"] == ids[:2]
    assert client.ok("Clean", queue="q", grace=0, limit=0)["ids"] == []
    assert client.ok("Clean", queue="q", grace=0, state="prioritized")["ids"] == [ids[2], *ids[4:]]
    assert client.ok("Clean", queue="q", grace=0, state="paused")["ids"] == []
    assert client.ok("Clean", queue="q", grace=0)["ids"] == [ids[3]]


def test_clean_without_a_state_spares_only_active_jobs() -> None:
    site = BareBunqueue()
    client = site.connect()
    jobs = [client.finish(), client.bury()]
    active = client.push()
    client.pull()
    jobs += [client.push(), client.push(delay=1000)]
    assert client.ok("Clean", queue="q", grace=0, state="active")["count"] == 0
    assert client.ok("Clean", queue="q", grace=0) == {"count": 4, "ids": jobs}
    assert client.state(active) == "active"
    site.check()


# -- limits ------------------------------------------------------------------------------------


def test_a_rate_limit_is_kept_shown_and_cleared() -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    nothing = {"rateLimit": None, "rateLimitTtl": -2, "concurrencyLimit": None, "maxed": False}
    assert limits(client) == nothing
    client.ok("RateLimit", queue="q", limit=2, duration=1000)
    assert limits(client) == {
        **nothing,
        "rateLimit": {"max": 2, "duration": 1000},
        "rateLimitTtl": 0,
    }
    for n in range(4):
        client.push(data=n)
    assert left(client) == [0, 1]
    assert limits(client)["rateLimitTtl"] == 500
    site.tick(500)
    assert left(client) == [2]
    client = site.reboot().connect()
    assert limits(client)["rateLimit"] == {"max": 2, "duration": 1000}
    client.ok("RateLimitClear", queue="q")
    assert limits(client) == nothing


def test_a_rate_limit_of_nothing_or_less_lets_nothing_pass() -> None:
    client = BareBunqueue().connect()
    client.push()
    for limit in (0, -1, -1e300, 0.5):
        client.ok("RateLimit", queue="q", limit=limit)
        assert client.ok("PULL", queue="q")["job"] is None
        assert limits(client)["rateLimit"] == {"max": 0, "duration": 1000}
    client.ok("RateLimit", queue="q", limit=1e300)
    assert client.pull()


@pytest.mark.parametrize("cmd", ["RateLimit", "SetConcurrency"])
@pytest.mark.parametrize("limit", ["5", None, float("nan"), float("inf"), True, [], {}])
def test_a_limit_must_be_a_number(cmd: str, limit: object) -> None:
    client = BareBunqueue().connect()
    assert client.refused(cmd, queue="q", limit=limit) == "limit must be a finite number"
    assert client.refused(cmd, queue="q") == "limit must be a finite number"


def test_a_rate_limit_for_a_time_ends_by_itself() -> None:
    site = BareBunqueue()
    client = site.connect()
    client.ok("RateLimit", queue="q", limit=1, duration=60_000, ttl=300)
    client.push(data=1)
    client.push(data=2)
    client.pull()
    pull = client.send("PULL", queue="q", timeout=1000)
    assert limits(client)["rateLimitTtl"] == 300
    site.tick(299)
    assert client.hear(pull) is None
    assert limits(client)["rateLimitTtl"] == 1
    site.tick(1)
    answer = client.hear(pull)
    assert answer is not None
    assert answer["job"]["data"] == 2
    assert limits(client)["rateLimit"] is None


def test_a_limit_that_was_set_anew_outlives_the_end_of_the_first() -> None:
    site = BareBunqueue()
    client = site.connect()
    client.ok("RateLimit", queue="q", limit=1, ttl=300)
    site.tick(200)
    client.ok("RateLimit", queue="q", limit=1, ttl=300)
    site.tick(299)
    assert limits(client)["rateLimit"] is not None
    site.tick(1)
    assert limits(client)["rateLimit"] is None
    client.ok("RateLimit", queue="q", limit=1, ttl=300)
    client.ok("RateLimitClear", queue="q")
    site.tick(300)
    client.ok("RateLimit", queue="q", limit=1, ttl=300)
    client.ok("RateLimit", queue="q", limit=1)
    site.tick(300)
    assert limits(client)["rateLimit"] is not None


@pytest.mark.parametrize("pause_ms", [100, 1000])
def test_a_limit_for_a_time_ends_after_a_restart_too(pause_ms: int) -> None:
    site = BareBunqueue(MemoryStorage())
    site.connect().ok("RateLimit", queue="q", limit=0, ttl=300)
    site = site.reboot(pause_ms)
    client = site.connect()
    client.push()
    arm_rate_ends(site.yard, site.now_ms)
    if pause_ms < 300:
        site.tick(300 - pause_ms - 1)
        assert client.ok("PULL", queue="q")["job"] is None
    site.tick(1)
    assert client.pull()


def test_concurrency_is_limited_for_all() -> None:
    site = BareBunqueue(MemoryStorage())
    client, other = site.connect(), site.connect()
    ids = [client.push(data=n) for n in range(3)]
    client.pull()
    client.ok("SetConcurrency", queue="q", limit=2)
    assert limits(client)["maxed"] is False
    other.pull()
    found = limits(client)
    assert (found["concurrencyLimit"], found["maxed"]) == (2, True)
    pull = other.send("PULL", queue="q", timeout=1000)
    assert other.hear(pull) is None
    client.ok("MoveToDelayed", id=ids[0], delay=60_000)
    answer = other.hear(pull)
    assert answer is not None
    assert answer["job"]["id"] == ids[2]
    assert limits(site.reboot().connect())["concurrencyLimit"] == 2
    client.ok("ClearConcurrency", queue="q")
    assert limits(client)["concurrencyLimit"] is None
    client.ok("SetConcurrency", queue="q", limit=-5)
    client.push()
    assert client.ok("PULL", queue="q")["job"] is None
