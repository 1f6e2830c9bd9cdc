"""Schedules as clients set and see them, without a socket."""

import pytest

from tests.support.clients.bunqueue import Answer, BunqueueClient
from tests.support.doors.bunqueue import BareBunqueue
from tests.support.site.site import NOW_MS
from tests.support.site.storage import MemoryStorage

EVERY_MINUTE = "* * * * *"


def cron(client: BunqueueClient, name: str = "c", **fields: object) -> Answer:
    """Set a schedule."""
    made: Answer = client.ok("Cron", **{"name": name, "queue": "q", "data": {"x": 1}, **fields})[
        "cron"
    ]
    return made


def found(client: BunqueueClient, name: str = "c") -> Answer:
    one: Answer = client.ok("CronGet", name=name)["cron"]
    return one


def test_a_schedule_is_shown_as_it_was_set() -> None:
    site = BareBunqueue()
    client = site.connect()
    made = cron(
        client, schedule="30 9 * * 1-5", timezone="Europe/Rome", priority=4, maxLimit=7, jobName="j"
    )
    assert made.pop("nextRun") > NOW_MS
    assert made == {
        "name": "c",
        "jobName": "j",
        "queue": "q",
        "schedule": "30 9 * * 1-5",
        "repeatEvery": None,
        "executions": 0,
        "maxLimit": 7,
        "timezone": "Europe/Rome",
        "priority": 4,
    }
    again = found(client)
    assert isinstance(again.pop("nextRun"), float), "clients make no number of 64-bit integers"
    assert again == made


def test_an_interval_is_shown_as_it_was_set() -> None:
    made = cron(BareBunqueue().connect(), repeatEvery=60_000)
    assert (made["repeatEvery"], made["schedule"]) == (60_000, None)
    assert (made["nextRun"], made["maxLimit"]) == (NOW_MS + 60_000, None)


def test_schedules_are_listed_and_deleted() -> None:
    client = BareBunqueue().connect()
    assert client.ok("CronList") == {"crons": []}
    one, two = (cron(client, name, repeatEvery=1000) for name in ("one", "two"))
    assert client.ok("CronList") == {"crons": [one, two]}
    assert client.ok("CronDelete", name="one") == {}
    assert client.ok("CronList") == {"crons": [two]}
    for cmd in ("CronGet", "CronDelete"):
        for fields in ({"name": "one"}, {"name": 5}, {}):
            assert client.refused(cmd, **fields) == "Cron job not found"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"name": ""}, "Cron name is required"),
        ({"name": None}, "Cron name is required"),
        ({"name": 5}, "name must be a string"),
        ({"name": "x" * 1025}, "Cron name too long (max 1024 characters)"),
        ({"queue": "a b"}, "Queue name contains invalid characters"),
        ({"repeatEvery": None}, "Cron job must have either schedule or repeatEvery"),
        (
            {"repeatEvery": None, "schedule": ""},
            "Cron job must have either schedule or repeatEvery",
        ),
        ({"schedule": 5}, "schedule must be a string"),
        ({"timezone": 5}, "timezone must be a string"),
        ({"priority": "x"}, "priority must be a number"),
        ({"maxLimit": 1.5}, "maxLimit must be an integer"),
        ({"jobName": 5}, "name must be a string"),
        ({"uniqueKey": 5}, "uniqueKey must be a string"),
        ({"jobOptions": 5}, "jobOptions must be an object"),
        ({"jobOptions": {"maxAttempts": 0}}, "maxAttempts must be at least 1"),
        ({"dedup": {"ttl": "x"}}, "dedup.ttl must be a number"),
    ],
)
def test_a_bad_schedule_is_refused(fields: Answer, error: str) -> None:
    client = BareBunqueue().connect()
    asked = {"name": "c", "queue": "q", "data": 1, "repeatEvery": 1000, **fields}
    assert client.refused("Cron", **asked) == error
    assert client.ok("CronList") == {"crons": []}


@pytest.mark.parametrize("every", [0, -1, 1.5, 2**53, "x", float("nan"), float("inf")])
def test_an_interval_is_a_positive_safe_integer(every: object) -> None:
    error = BareBunqueue().connect().refused("Cron", name="c", queue="q", repeatEvery=every)
    assert error == "Cron repeatEvery must be a positive safe integer number of milliseconds"


@pytest.mark.parametrize(
    ("schedule", "zone"), [("bad", ""), ("0 0 30 2 *", ""), (EVERY_MINUTE, "Mars/Olympus")]
)
def test_an_expression_that_cannot_be_followed_is_refused(schedule: str, zone: str) -> None:
    client = BareBunqueue().connect()
    error = client.refused("Cron", name="c", queue="q", data=1, schedule=schedule, timezone=zone)
    assert error.startswith("Invalid cron expression: ")
    assert client.ok("CronList") == {"crons": []}


def test_jobs_have_the_options_of_their_schedule() -> None:
    site = BareBunqueue()
    client = site.connect()
    options = {
        "maxAttempts": 7,
        "backoff": {"type": "fixed", "delay": 5},
        "timeout": 9000,
        "stallTimeout": 8000,
        "removeOnComplete": True,
        "removeOnFail": True,
    }
    given = {**options, "delay": 500, "lifo": True}
    cron(client, repeatEvery=100, maxLimit=1, priority=3, jobName="tick", jobOptions=given)
    site.tick(600)
    job = client.pull()
    assert job["backoffConfig"] == options.pop("backoff")
    assert {key: job[key] for key in options} == options
    assert (job["name"], job["data"], job["priority"]) == ("tick", {"x": 1}, 3)
    assert job["lifo"] is False, "it is no option of a schedule"
    assert job["createdAt"] == NOW_MS + 100


def test_the_name_of_the_job_may_stand_in_its_data() -> None:
    client = BareBunqueue().connect()
    assert cron(client, data={"name": "inside"}, repeatEvery=100)["jobName"] == "inside"
    assert cron(client, data={}, repeatEvery=100)["jobName"] == "default"


def test_a_schedule_needs_no_data() -> None:
    yard = BareBunqueue()
    client = yard.connect()
    client.ok("Cron", name="bare", queue="q", jobName="tick", repeatEvery=100)
    yard.tick(100)
    job = client.ok("PULL", queue="q")["job"]
    assert (job["name"], job["data"]) == ("tick", None)


def test_one_run_at_a_time_unless_overlap_is_allowed() -> None:
    site = BareBunqueue()
    client = site.connect()
    cron(client, repeatEvery=100)
    cron(client, "free", queue="r", repeatEvery=100, preventOverlap=False)
    cron(client, "own", queue="s", repeatEvery=100, uniqueKey="k", dedup={"ttl": 250})
    site.tick(400)
    assert client.ok("PULLB", queue="q", count=9)["jobs"][0]["uniqueKey"] == "cron:c"
    assert len(client.ok("PULLB", queue="r", count=9)["jobs"]) == 4
    keys = [job["uniqueKey"] for job in client.ok("PULLB", queue="s", count=9)["jobs"]]
    assert keys == ["k", "k"], "the key ends after 250 ms"
    assert found(client)["executions"] == 4
    site.check()


def test_the_first_run_may_be_immediate() -> None:
    site = BareBunqueue()
    client = site.connect()
    waiting = client.send("PULL", queue="q", timeout=1000)
    assert cron(client, schedule=EVERY_MINUTE, immediately=True)["executions"] == 1
    answer = client.hear(waiting)
    assert answer is not None
    client.ok("ACK", id=answer["job"]["id"])
    cron(client, schedule=EVERY_MINUTE, immediately=True)
    assert found(client)["executions"] == 1


def test_a_schedule_may_wait_for_a_registered_worker() -> None:
    site = BareBunqueue()
    client = site.connect()
    cron(client, repeatEvery=100, skipIfNoWorker=True)
    site.tick(250)
    assert found(client)["executions"] == 0
    client.ok("RegisterWorker", name="w", queues=["other"])
    site.tick(100)
    assert found(client)["executions"] == 0
    client.ok("RegisterWorker", name="w", queues=["q"])
    site.tick(100)
    assert found(client)["executions"] == 1


def test_a_run_goes_with_the_connection_of_its_worker() -> None:
    site = BareBunqueue()
    client = site.connect()
    cron(client, repeatEvery=100)
    site.tick(100)
    worker = site.connect()
    job_id = worker.pull()["id"]
    worker.close()
    assert client.state(job_id) == "unknown"
    site.tick(100)
    assert client.pull()["id"] != job_id
    site.check()


def test_schedules_survive_a_restart() -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    cron(client, schedule=EVERY_MINUTE, timezone="Asia/Kolkata", priority=2, maxLimit=9)
    cron(client, "every", repeatEvery=100_000, skipMissedOnRestart=False)
    cron(client, "gone", repeatEvery=100)
    client.ok("CronDelete", name="gone")
    site.tick(61_000)
    before = client.ok("CronList")["crons"]
    assert [one["executions"] for one in before] == [1, 0]
    late = site.reboot(1000)
    client = late.connect()
    assert client.ok("CronList")["crons"] == before
    late = late.reboot(200_000)
    client = late.connect()
    late.tick(0)
    assert [one["executions"] for one in client.ok("CronList")["crons"]] == [1, 1]
