"""Schedules: what is accepted, when they fire, and what they leave."""

import datetime as dt
import itertools
import time
from zoneinfo import ZoneInfo

import pytest

from tests.support.servers.bunqueue import Answer, Client, ours
from tests.support.servers.patience import PATIENCE_S

FIELDS = {
    "name",
    "jobName",
    "queue",
    "schedule",
    "repeatEvery",
    "nextRun",
    "executions",
    "maxLimit",
    "timezone",
    "priority",
}


def cron(client: Client, queue: str, **fields: object) -> Answer:
    """Create a schedule named after its queue."""
    answer = client.ok("Cron", **{"name": queue, "queue": queue, "data": {"x": 1}, **fields})
    assert set(answer) == {"cron"}
    found: Answer = answer["cron"]
    return found


def names(client: Client) -> list[str]:
    return [each["name"] for each in client.ok("CronList")["crons"]]


def test_a_schedule_is_answered_found_and_listed(client: Client, queue: str) -> None:
    made = cron(client, queue, schedule="*/5 * * * *", timezone="Europe/Rome", priority=4)
    assert set(made) == FIELDS
    assert made["nextRun"] % 300_000 == 0
    assert 0 < made["nextRun"] - time.time() * 1000 <= 301_000
    assert {key: made[key] for key in FIELDS - {"nextRun"}} == {
        "name": queue,
        "jobName": "default",
        "queue": queue,
        "schedule": "*/5 * * * *",
        "repeatEvery": None,
        "executions": 0,
        "maxLimit": None,
        "timezone": "Europe/Rome",
        "priority": 4,
    }
    assert client.ok("CronGet", name=queue) == {"cron": made}
    assert made in client.ok("CronList")["crons"]
    assert client.ok("CronDelete", name=queue) == {}
    assert queue not in names(client)
    assert client.refused("CronGet", name=queue) == "Cron job not found"


def test_an_interval_is_answered(client: Client, queue: str) -> None:
    made = cron(client, queue, repeatEvery=60_000, maxLimit=3)
    assert (made["schedule"], made["repeatEvery"], made["maxLimit"]) == (None, 60_000, 3)
    assert abs(made["nextRun"] - time.time() * 1000 - 60_000) < PATIENCE_S * 1000
    client.ok("CronDelete", name=queue)


def test_a_schedule_wins_over_an_interval(client: Client, queue: str) -> None:
    made = cron(client, queue, schedule="0 0 1 1 *", repeatEvery=50)
    assert made["schedule"] == "0 0 1 1 *"
    assert made["nextRun"] > time.time() * 1000 + 1000
    client.ok("CronDelete", name=queue)


@pytest.mark.parametrize(
    "schedule",
    [
        "0 0 * * *",
        "0 9 * * 1-5",
        "*/15 8-18 * * MON",
        "0 0 1 JAN *",
        "5,10,15 * * * *",
        "0 0 29 2 *",
        "0 0 * * 7",
        "*/10 * * * * *",
        "@hourly",
        "@daily",
        "@weekly",
        "@monthly",
        "@yearly",
    ],
)
def test_a_good_expression_is_taken(client: Client, queue: str, schedule: str) -> None:
    assert cron(client, queue, schedule=schedule)["nextRun"] > time.time() * 1000
    client.ok("CronDelete", name=queue)


@pytest.mark.parametrize(
    "schedule",
    [
        "bad",
        "* * * *",
        "* * * * * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "*/0 * * * *",
        "@never",
        "0 0 30 2 *",
    ],
)
def test_a_bad_expression_is_refused(client: Client, queue: str, schedule: str) -> None:
    error = client.refused("Cron", name=queue, queue=queue, data=1, schedule=schedule)
    assert error.startswith("Invalid cron expression: ")
    assert queue not in names(client)


def test_an_unknown_time_zone_is_refused(client: Client, queue: str) -> None:
    error = client.refused(
        "Cron", name=queue, queue=queue, data=1, schedule="* * * * *", timezone="Mars/Olympus"
    )
    assert error.startswith("Invalid cron expression: ")


def test_a_schedule_needs_a_time(client: Client, queue: str) -> None:
    error = client.refused("Cron", name=queue, queue=queue, data=1)
    assert error == "Cron job must have either schedule or repeatEvery"


@pytest.mark.parametrize("every", [0, -1, 1.5, 2**54])
def test_an_interval_must_be_whole_and_positive(client: Client, queue: str, every: float) -> None:
    error = client.refused("Cron", name=queue, queue=queue, data=1, repeatEvery=every)
    assert error == "Cron repeatEvery must be a positive safe integer number of milliseconds"


@ours("it takes schedules without a name or with a bad queue")
def test_a_schedule_needs_a_name_and_a_good_queue(client: Client, queue: str) -> None:
    client.refused("Cron", queue=queue, data=1, repeatEvery=60_000)
    client.refused("Cron", name="", queue=queue, data=1, repeatEvery=60_000)
    client.refused("Cron", name=queue, data=1, repeatEvery=60_000)
    client.refused("Cron", name=queue, queue="a b", data=1, repeatEvery=60_000)
    assert queue not in names(client)


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"])
def test_a_schedule_follows_its_time_zone(client: Client, queue: str, zone: str) -> None:
    made = cron(client, queue, schedule="30 9 * * *", timezone=zone)
    local = dt.datetime.fromtimestamp(made["nextRun"] / 1000, ZoneInfo(zone))
    assert (local.hour, local.minute, local.second) == (9, 30, 0)
    assert made["nextRun"] - time.time() * 1000 < 25 * 3_600_000
    client.ok("CronDelete", name=queue)


def test_an_interval_fires_until_its_limit(client: Client, queue: str) -> None:
    cron(client, queue, repeatEvery=60, maxLimit=2, priority=3, jobName="tick")
    jobs = []
    for _ in range(2):
        job = client.pull(queue)
        jobs.append(job)
        client.ok("ACK", id=job["id"])
    assert jobs[0]["id"] != jobs[1]["id"]
    assert {(job["name"], job["priority"]) for job in jobs} == {("tick", 3)}
    assert [job["data"] for job in jobs] == [{"x": 1}, {"x": 1}]
    assert client.ok("PULL", queue=queue, timeout=200)["job"] is None
    assert client.refused("CronGet", name=queue) == "Cron job not found"


def test_a_run_is_not_started_while_the_last_one_lives(client: Client, queue: str) -> None:
    cron(client, queue, repeatEvery=40)
    job = client.pull(queue)
    assert job["uniqueKey"] == f"cron:{queue}"
    assert client.ok("PULL", queue=queue, timeout=200)["job"] is None
    client.ok("ACK", id=job["id"])
    assert client.pull(queue)["id"] != job["id"]
    client.ok("CronDelete", name=queue)


def test_overlap_may_be_allowed(client: Client, queue: str) -> None:
    cron(client, queue, repeatEvery=40, preventOverlap=False, maxLimit=3)
    ids = {client.pull(queue)["id"] for _ in range(3)}
    assert len(ids) == 3


def test_the_first_run_may_be_immediate(client: Client, queue: str) -> None:
    cron(client, queue, repeatEvery=600_000, immediately=True)
    job = client.pull(queue)
    client.ok("ACK", id=job["id"])
    found = client.ok("CronGet", name=queue)["cron"]
    assert found["executions"] == 1
    assert 590_000 < found["nextRun"] - time.time() * 1000 < 601_000
    client.ok("CronDelete", name=queue)


def test_a_second_definition_replaces_the_first_and_keeps_its_count(
    client: Client, queue: str
) -> None:
    cron(client, queue, repeatEvery=600_000, immediately=True)
    client.pull(queue)
    cron(client, queue, schedule="0 0 1 1 *", jobName="second", immediately=True)
    found = client.ok("CronGet", name=queue)["cron"]
    assert (found["schedule"], found["jobName"], found["executions"]) == ("0 0 1 1 *", "second", 1)
    assert names(client).count(queue) == 1
    client.ok("CronDelete", name=queue)


def test_a_deleted_schedule_fires_no_more(client: Client, queue: str) -> None:
    cron(client, queue, repeatEvery=100)
    client.ok("CronDelete", name=queue)
    assert client.ok("PULL", queue=queue, timeout=250)["job"] is None


def test_jobs_get_the_options_of_their_schedule(client: Client, queue: str) -> None:
    options = {"maxAttempts": 7, "backoff": 5, "timeout": 9000, "removeOnComplete": True}
    cron(client, queue, repeatEvery=600_000, immediately=True, jobOptions=options)
    job = client.pull(queue)
    assert {key: job[key] for key in options} == options
    client.ok("CronDelete", name=queue)


def test_a_schedule_may_wait_for_a_worker(client: Client, queue: str) -> None:
    cron(client, queue, repeatEvery=60, skipIfNoWorker=True)
    assert client.ok("PULL", queue=queue, timeout=200)["job"] is None
    client.ok("RegisterWorker", name="w", queues=[queue])
    assert client.pull(queue)["data"] == {"x": 1}
    client.ok("CronDelete", name=queue)


@ours("it fires an expression with seconds about once a minute")
def test_an_expression_with_seconds_fires_every_second(client: Client, queue: str) -> None:
    cron(client, queue, schedule="* * * * * *", preventOverlap=False)
    starts = [client.pull(queue)["createdAt"] for _ in range(3)]
    client.ok("CronDelete", name=queue)
    for earlier, later in itertools.pairwise(starts):
        # Each in a different second, however late it was checked.
        assert later // 1000 > earlier // 1000


def test_interval_runs_keep_their_distance(client: Client, queue: str) -> None:
    cron(client, queue, repeatEvery=100, preventOverlap=False)
    starts = [client.pull(queue)["createdAt"] for _ in range(5)]
    client.ok("CronDelete", name=queue)
    assert 300 <= starts[-1] - starts[0] <= 900


def test_a_run_whose_worker_is_lost_is_left_to_the_next(
    client: Client, address: tuple[str, int], queue: str
) -> None:
    cron(client, queue, repeatEvery=600_000, immediately=True)
    with Client(address) as gone:
        job_id = gone.pull(queue)["id"]
    deadline = time.monotonic() + 5
    while client.state(job_id) != "unknown":
        assert time.monotonic() < deadline, "the run was not taken away"
    assert client.is_empty(queue)
    client.ok("CronDelete", name=queue)
