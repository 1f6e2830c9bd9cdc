"""What survives the process: everything that was answered, after SIGKILL and after SIGTERM.

One server is filled with everything, ended and started again; each test then checks one
thing that must have survived.
"""

import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.support.servers.bunqueue import ORIGINAL, Answer, Client, Yard, durable, pack

pytestmark = pytest.mark.skipif(bool(ORIGINAL), reason="ends and starts its own server")

EXOTIC = b"\x92\xca\x3f\x80\x00\x00\xd3\x00\x00\x00\x00\x00\x00\x00\x01"


@dataclass
class World:
    """A restarted server, a connection to it, and what was there before."""

    yard: Yard
    client: Client
    jobs: dict[str, Answer] = field(default_factory=dict)
    notes: Answer = field(default_factory=dict)

    def job_id(self, name: str) -> str:
        found: str = self.jobs[name]["id"]
        return found


def fill_jobs(client: Client, world: World) -> None:
    options = {"tags": ["t"], "priority": 3, "name": "n", "ttl": 9_000_000, "timeout": 70_000}
    ids = {
        "second": client.push("order", 2),
        "first": client.push("order", 1, **options),
        "third": client.push("order", 3),
        "delayed": client.push("delayed", 4, delay=600_000),
        "due": client.push("due", 5, delay=1500),
        "custom": client.push("custom", 6, jobId="my-id"),
        "unique": client.push("unique", 7, uniqueKey="k"),
        "windowed": client.push("windowed", 8, uniqueKey="w", dedup={"ttl": 600_000}),
        "dead": client.bury("dead", 9, maxAttempts=5),
        "done": client.finish("done", 10, result={"r": [1, None]}),
        "retrying": client.push("retrying", 11, backoff=500_000),
        "grouped": client.push("grouped", 12, groupId="g"),
        "held": client.push("held", 13, groupId="g"),
        "updated": client.push("updated", 14),
        "logged": client.push("logged", 15),
    }
    client.pull("retrying")
    client.ok("FAIL", id=ids["retrying"], error="boom", stack=["at a", "at b"])
    client.ok("Update", id=ids["updated"], data={"new": True})
    client.ok("ChangePriority", id=ids["updated"], priority=9)
    client.ok("AddLog", id=ids["logged"], message="one")
    client.ok("AddLog", id=ids["logged"], message="two", level="warn")
    client.push("active", 16)
    world.notes["active"], world.notes["token"] = client.lock("active")
    world.notes["removed"] = client.finish("removed", 17, removeOnComplete=True)
    world.notes["cancelled"] = client.push("cancelled", 18)
    client.ok("Cancel", id=world.notes["cancelled"])
    world.jobs = {name: client.job(job_id) for name, job_id in ids.items()}


def fill_raw(client: Client, world: World) -> None:
    fields = pack("cmd") + pack("PUSH") + pack("queue") + pack("raw") + pack("data") + EXOTIC
    client.send_payload(b"\x83" + fields)
    world.notes["raw"] = client.receive()["id"]


def fill_settings(client: Client, world: World) -> None:
    client.ok("Pause", queue="paused")
    client.push("paused", 1)
    client.ok("RateLimit", queue="rated", limit=5, duration=60_000)
    client.ok("SetConcurrency", queue="limited", limit=1)
    client.ok("SetStallConfig", queue="tuned", config={"maxStalls": 9})
    client.ok("SetDlqConfig", queue="tuned", config={"maxEntries": 8, "maxAge": None})
    client.ok("PauseGroup", queue="held", groupId="g")
    client.ok("SetGroupConcurrency", queue="held", groupId="g", concurrency=4)
    client.ok("SetGroupRateLimit", queue="held", groupId="g", max=3, duration=1000)
    hook = {"url": "https://hooks.example.com/x", "events": ["job.failed"], "queue": "nowhere"}
    world.notes["webhook"] = client.ok("AddWebhook", **hook, secret="s")["data"]["webhookId"]
    client.ok("SetWebhookEnabled", id=world.notes["webhook"], enabled=False)
    client.ok("Cron", name="slow", queue="cron", data={"c": 1}, schedule="0 0 1 1 *",
              timezone="Asia/Tokyo", priority=2, jobName="j")  # fmt: skip
    client.ok("Cron", name="fast", queue="tick", data={"c": 2}, repeatEvery=1500, maxLimit=50)
    client.ok("Cron", name="once", queue="once", data=1, repeatEvery=600_000, immediately=True)
    client.ok("ACK", id=client.pull("once")["id"])
    client.ok("Cron", name="gone", queue="cron", data=1, repeatEvery=600_000)
    client.ok("CronDelete", name="gone")
    world.notes["cron"] = client.ok("CronGet", name="slow")["cron"]


def flow_of(name: str, **options: object) -> list[Answer]:
    children = [f"{name}.c{n}" for n in range(2)]
    jobs: list[Answer] = [
        {
            "id": child,
            "queue": f"{name}-c",
            "input": {
                "data": {"__parentId": f"{name}.p", "__parentQueue": name},
                "parentId": f"{name}.p",
                "maxAttempts": 1,
                **options,
            },
        }
        for child in children
    ]
    parent = {"data": {"__childrenIds": children}, "childrenIds": children, "dependsOn": children}
    return [*jobs, {"id": f"{name}.p", "queue": name, "input": parent}]


def fill_flows(client: Client, world: World) -> None:
    client.ok("PUSHF", jobs=flow_of("flow"))
    job = client.pull("flow-c")
    client.ok("ACK", id=job["id"], result={"v": 1})
    world.notes["flow-done"] = job["id"]
    client.ok("PUSHF", jobs=flow_of("ignore", ignoreDependencyOnFailure=True))
    job = client.pull("ignore-c")
    client.ok("FAIL", id=job["id"], error="boom")
    world.notes["ignored"] = job["id"]
    first = client.push("deps", 1)
    world.notes["first"] = first
    world.notes["dependent"] = client.push("deps", 2, dependsOn=[first])


@pytest.fixture(scope="module", params=[signal.SIGKILL, signal.SIGTERM], ids=["kill", "term"])
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """The server after its end, with all that was put into it before."""
    with durable(tmp_path_factory.mktemp("restart") / "data") as yard:
        before = yard.connect()
        world = World(yard, before)
        for fill in (fill_jobs, fill_raw, fill_settings, fill_flows):
            fill(before, world)
        world.client = yard.restart(request.param)
        yield world


SAME = ["first", "third", "delayed", "custom", "unique", "windowed", "done", "retrying"]


@pytest.mark.parametrize("name", [*SAME, "grouped", "updated", "logged"])
def test_a_job_is_what_it_was(world: World, name: str) -> None:
    before, after = world.jobs[name], world.client.job(world.job_id(name))
    for job in (before, after):
        job.pop("lastHeartbeat", None)  # useless to a process without that worker
    assert after == before


def test_jobs_leave_in_the_order_they_had(world: World) -> None:
    taken = [world.client.pull("order")["data"] for _ in range(3)]
    assert taken == [1, 2, 3]


def test_a_delayed_job_comes_when_it_is_due(world: World) -> None:
    job = world.client.pull("due")
    assert job["id"] == world.job_id("due")
    assert job["startedAt"] >= world.jobs["due"]["runAt"]
    assert world.client.state(world.job_id("delayed")) == "delayed"


def test_a_retry_is_still_ahead(world: World) -> None:
    job = world.client.job(world.job_id("retrying"))
    assert (job["state"], job["attempts"], job["failedReason"]) == ("delayed", 1, "boom")
    assert job["stacktrace"] == ["at a", "at b"]


def test_the_dead_are_still_dead_and_can_be_retried(world: World) -> None:
    [entry] = world.client.ok("Dlq", queue="dead")["entries"]
    assert (entry["job"]["id"], entry["error"]) == (world.job_id("dead"), "no")
    assert len(entry["attempts"]) == 1
    assert world.client.ok("RetryDlq", queue="dead") == {"count": 1}
    assert world.client.pull("dead")["attempts"] == 0


def test_a_result_is_still_there(world: World) -> None:
    answer = world.client.ok("GetResult", id=world.job_id("done"))
    assert answer["result"] == {"r": [1, None]}
    assert world.client.ok("WaitJob", id=world.job_id("done"))["completed"] is True


def test_what_was_removed_stays_removed(world: World) -> None:
    for name in ("removed", "cancelled"):
        assert world.client.refused("GetJob", id=world.notes[name]) == "Job not found"
    assert world.client.is_empty("removed")
    assert world.client.is_empty("cancelled")


def test_an_active_job_is_given_out_again(world: World) -> None:
    error = world.client.refused("ACK", id=world.notes["active"], token=world.notes["token"])
    assert world.notes["active"] in error
    job = world.client.pull("active", timeout=10_000)
    assert (job["id"], job["data"]) == (world.notes["active"], 16)
    world.client.ok("ACK", id=job["id"])


def test_keys_and_ids_are_still_taken(world: World) -> None:
    client = world.client
    assert client.push("unique", 0, uniqueKey="k") == world.job_id("unique")
    windowed = client.push("windowed", 0, uniqueKey="w", dedup={"ttl": 600_000})
    assert windowed == world.job_id("windowed")
    assert client.push("elsewhere", 0, jobId="my-id") == "my-id"
    assert client.ok("GetJobByCustomId", customId="my-id")["job"]["data"] == 6


def test_new_ids_are_new(world: World) -> None:
    fresh = world.client.push("fresh", 1)
    assert fresh not in {job["id"] for job in world.jobs.values()}
    assert fresh > world.job_id("logged")


def test_logs_are_still_there(world: World) -> None:
    logs = world.client.ok("GetLogs", id=world.job_id("logged"))["data"]["logs"]
    found = [(entry["message"], entry["level"]) for entry in logs]
    assert found == [("one", "info"), ("two", "warn")]


def test_data_are_the_same_bytes(world: World) -> None:
    world.client.send_payload(pack({"cmd": "PULL", "queue": "raw"}))
    assert pack("data") + EXOTIC in world.client.receive_payload()


def test_pauses_and_limits_still_hold(world: World) -> None:
    client = world.client
    assert client.ok("IsPaused", queue="paused") == {"paused": True}
    assert client.is_empty("paused")
    limits = client.ok("GetQueueLimits", queue="rated")["data"]["limits"]
    assert limits["rateLimit"] == {"max": 5, "duration": 60_000}
    client.ok("PUSHB", queue="limited", jobs=[{"data": 1}, {"data": 2}])
    client.pull("limited")
    assert client.is_empty("limited")
    assert client.ok("GetStallConfig", queue="tuned")["config"]["maxStalls"] == 9
    config = client.ok("GetDlqConfig", queue="tuned")["config"]
    assert (config["maxEntries"], config["maxAge"]) == (8, None)


def test_groups_keep_their_settings(world: World) -> None:
    client = world.client
    fields = {"queue": "held", "groupId": "g"}
    assert client.ok("IsGroupPaused", **fields)["data"] == {"paused": True}
    assert client.is_empty("held")
    assert client.ok("GetGroupConcurrency", **fields)["data"] == {"concurrency": 4}
    limit = client.ok("GetGroupRateLimit", **fields)["data"]["limit"]
    assert limit == {"max": 3, "duration": 1000}
    client.ok("ResumeGroup", **fields)
    assert client.pull("held")["id"] == world.job_id("held")


def test_webhooks_are_still_there(world: World) -> None:
    rows = {each["id"]: each for each in world.client.ok("ListWebhooks")["data"]["webhooks"]}
    row = rows[world.notes["webhook"]]
    assert (row["url"], row["queue"]) == ("https://hooks.example.com/x", "nowhere")
    assert (row["events"], row["enabled"]) == (["job.failed"], False)


def test_schedules_are_still_there(world: World) -> None:
    client = world.client
    assert client.ok("CronGet", name="slow")["cron"] == world.notes["cron"]
    assert client.refused("CronGet", name="gone") == "Cron job not found"
    assert client.ok("CronGet", name="once")["cron"]["executions"] == 1
    assert client.is_empty("once")


def test_a_schedule_goes_on_firing(world: World) -> None:
    job = world.client.pull("tick", timeout=10_000)
    assert job["data"] == {"c": 2}
    world.client.ok("CronDelete", name="fast")


def test_a_flow_goes_on(world: World) -> None:
    client = world.client
    assert client.state("flow.p") == "waiting-children"
    job = client.pull("flow-c")
    client.ok("ACK", id=job["id"], result={"v": 2})
    assert client.pull("flow")["id"] == "flow.p"
    values = client.ok("GetChildrenValues", id="flow.p")["data"]["values"]
    assert values == {
        f"flow-c:{world.notes['flow-done']}": {"v": 1},
        f"flow-c:{job['id']}": {"v": 2},
    }


def test_a_failure_policy_goes_on(world: World) -> None:
    client = world.client
    failures = {f"ignore-c:{world.notes['ignored']}": "boom"}
    assert client.ok("GetIgnoredChildrenFailures", id="ignore.p") == {"values": failures}
    job = client.pull("ignore-c")
    client.ok("FAIL", id=job["id"], error="again")
    assert client.pull("ignore")["id"] == "ignore.p"


def test_a_dependency_goes_on(world: World) -> None:
    client = world.client
    assert client.pull("deps")["id"] == world.notes["first"]
    assert client.is_empty("deps")
    client.ok("ACK", id=world.notes["first"])
    assert client.pull("deps")["id"] == world.notes["dependent"]


def test_nothing_that_was_answered_is_lost(world: World) -> None:
    client = world.client
    answered = [client.push("burst", n) for n in range(50)]
    requests = [client.send("PUSH", queue="burst", data=n) for n in range(50, 200)]
    answered += [client.receive(request)["id"] for request in requests]
    answered += client.ok("PUSHB", queue="burst", jobs=[{"data": n} for n in range(150)])["ids"]
    done = [job["id"] for job in client.ok("PULLB", queue="burst", count=20)["jobs"]]
    client.ok("ACKB", ids=done)
    client = world.client = world.yard.restart(signal.SIGKILL)
    left = []
    while jobs := client.ok("PULLB", queue="burst", count=1000)["jobs"]:
        left += [job["id"] for job in jobs]
    assert left == [job_id for job_id in answered if job_id not in done]
    assert {client.state(job_id) for job_id in done} == {"completed"}


def test_the_clock_goes_on(world: World) -> None:
    job = world.client.job(world.job_id("delayed"))
    assert abs(job["runAt"] - world.jobs["delayed"]["runAt"]) <= 1
    assert 0 < job["runAt"] - time.time() * 1000 <= 600_000
