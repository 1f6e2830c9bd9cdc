"""Jobs that repeat themselves, without a socket."""

import pytest

from jobyard.model.limits import NEVER_MS
from jobyard.protocols.bunqueue.commands.repeats import next_run_ms
from tests.support.clients.bunqueue import Answer, BunqueueClient
from tests.support.doors.bunqueue import BareBunqueue
from tests.support.site.site import NOW_MS
from tests.support.site.storage import MemoryStorage

MINUTE = NOW_MS - NOW_MS % 60_000 + 60_000


def run(client: BunqueueClient) -> Answer:
    """Complete the job that is there."""
    job = client.pull()
    client.ok("ACK", id=job["id"])
    return job


@pytest.mark.parametrize(
    ("repeat", "error"),
    [
        (5, "repeat must be an object"),
        ({}, "repeat requires exactly one of every or pattern"),
        ({"every": 5, "pattern": "* * * * *"}, "repeat requires exactly one of every or pattern"),
        ({"every": 0}, "repeat.every must be a positive finite number"),
        ({"every": "x"}, "repeat.every must be a positive finite number"),
        ({"every": float("inf")}, "repeat.every must be a positive finite number"),
        ({"every": 5, "limit": "x"}, "repeat.limit must be a finite number"),
        ({"every": 5, "endDate": float("nan")}, "repeat.endDate must be a finite number"),
        ({"pattern": "bad"}, "Invalid repeat pattern: "),
        ({"pattern": "* * * * *", "tz": "Mars/Olympus"}, "Invalid repeat pattern: "),
    ],
)
def test_a_bad_repetition_is_refused(repeat: object, error: str) -> None:
    client = BareBunqueue().connect()
    assert client.refused("PUSH", queue="q", data=1, repeat=repeat).startswith(error)
    assert client.refused("PUSHB", queue="q", jobs=[{"data": 1, "repeat": repeat}]).startswith(
        f"jobs[0]: {error}"
    )


def test_the_next_job_is_like_the_one_that_is_done() -> None:
    site = BareBunqueue()
    client = site.connect()
    options: Answer = {"priority": 4, "maxAttempts": 9, "tags": ["a"], "name": "n"}
    client.push(data={"n": 1}, repeat={"every": 100, "limit": 2}, uniqueKey="k", **options)
    first = run(client)
    assert client.ok("PULL", queue="q")["job"] is None
    site.tick(100)
    second = run(client)
    assert second["id"] != first["id"]
    for key in (*options, "data", "uniqueKey"):
        assert second[key] == first[key], key
    assert second["repeat"] == {
        "every": 100,
        "limit": 2,
        "count": 1,
        "prevMillis": float(NOW_MS + 100),
    }
    site.tick(100)
    assert run(client)["repeat"]["count"] == 2
    site.tick(1000)
    assert client.ok("PULL", queue="q")["job"] is None
    site.check()


def test_a_job_with_an_id_of_its_own_is_followed_by_one_without() -> None:
    site = BareBunqueue()
    client = site.connect()
    client.push(jobId="mine", repeat={"every": 10, "limit": 1})
    assert run(client)["id"] == "mine"
    site.tick(10)
    assert run(client)["customId"] is None


def test_members_of_a_group_are_followed_within_it() -> None:
    site = BareBunqueue()
    client = site.connect()
    client.push(groupId="g", repeat={"every": 10})
    run(client)
    site.tick(10)
    assert run(client)["groupId"] == "g"
    site.check()


def test_the_next_job_has_the_data_of_the_last_update() -> None:
    site = BareBunqueue()
    client = site.connect()
    job_id = client.push(data=1, repeat={"every": 10})
    client.pull()
    client.ok("Update", id=job_id, data=2)
    client.ok("ACK", id=job_id)
    site.tick(10)
    assert client.pull()["data"] == 2


def test_a_job_that_is_removed_when_done_is_followed_too() -> None:
    site = BareBunqueue()
    client = site.connect()
    client.push(repeat={"every": 10}, removeOnComplete=True)
    for _ in range(3):
        run(client)
        site.tick(10)
    assert client.pull()["repeat"]["count"] == 3
    site.check()


def test_a_failed_job_is_not_followed() -> None:
    site = BareBunqueue()
    client = site.connect()
    client.bury(repeat={"every": 10})
    site.tick(100)
    assert client.ok("PULL", queue="q")["job"] is None


def test_repetition_continues_after_a_restart() -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    client.push(data=1, repeat={"every": 100, "limit": 2})
    run(client)
    for count in (1, 2):
        site = site.reboot(100)
        client = site.connect()
        assert run(client)["repeat"]["count"] == count
    late = site.reboot(1000)
    assert late.connect().ok("PULL", queue="q")["job"] is None


@pytest.mark.parametrize(
    ("repeat", "next_ms"),
    [
        ({"every": 100}, 100),
        ({"every": 100, "offset": 30}, 130),
        ({"every": 100, "prevMillis": NOW_MS - 40}, 60),
        ({"every": 100, "prevMillis": NOW_MS - 100}, 100),
        ({"every": 100, "prevMillis": NOW_MS - 1040}, 60),
        ({"every": 100, "startDate": NOW_MS + 5000}, 5000),
        ({"every": 100, "startDate": NOW_MS + 5000, "prevMillis": NOW_MS - 40}, 5060),
        ({"every": 100, "endDate": NOW_MS + 100}, 100),
        ({"every": 100, "endDate": NOW_MS + 99}, NEVER_MS - NOW_MS),
        ({"pattern": "* * * * *"}, MINUTE - NOW_MS),
        ({"pattern": "* * * * *", "tz": "Asia/Kolkata"}, MINUTE - NOW_MS),
        ({"pattern": "* * * * *", "offset": 10}, MINUTE + 10 - NOW_MS),
        ({"pattern": "* * * * *", "prevMillis": MINUTE}, MINUTE + 60_000 - NOW_MS),
        ({"pattern": "* * * * *", "startDate": MINUTE + 60_000}, MINUTE + 60_000 - NOW_MS),
        ({"pattern": "0 0 30 2 *"}, NEVER_MS - NOW_MS),
    ],
)
def test_the_next_run_follows_from_the_repetition(repeat: Answer, next_ms: int) -> None:
    assert next_run_ms(repeat, NOW_MS) - NOW_MS == next_ms
