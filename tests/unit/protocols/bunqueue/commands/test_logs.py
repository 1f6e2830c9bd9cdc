"""Log lines of jobs, without a socket."""

import pytest

from jobyard.protocols.bunqueue.commands.logs import LINE_MAX, TEXT_MAX
from tests.support.clients.bunqueue import EMPTY, BunqueueClient
from tests.support.doors.bunqueue import BareBunqueue
from tests.support.site.storage import MemoryStorage


def messages(client: BunqueueClient, job_id: str, **fields: object) -> list[str]:
    return [one["message"] for one in client.ok("GetLogs", id=job_id, **fields)["data"]["logs"]]


def fill(client: BunqueueClient, count: int, **fields: object) -> str:
    job_id = client.push("q", None, **fields)
    for n in range(count):
        client.ok("AddLog", id=job_id, message=str(n))
    return job_id


def test_lines_survive_a_restart() -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    job_id = fill(client, 3, keepLogs=2)
    site.tick(1000)
    client.ok("AddLog", id=job_id, message="a\0b", level="warn")
    other = fill(client, 3)
    client.ok("ClearLogs", id=other, keepLogs=1)
    before = client.ok("GetLogs", id=job_id)["data"]
    assert [one["message"] for one in before["logs"]] == ["2", "a\0b"]
    site.check()
    client = site.reboot().connect()
    assert client.ok("GetLogs", id=job_id)["data"] == before
    assert messages(client, other) == ["2"]


def test_lines_stay_with_a_job_through_its_life() -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    job_id = fill(client, 1)
    client.pull()
    client.ok("AddLog", id=job_id, message="running")
    client.ok("ACK", id=job_id)
    client.ok("AddLog", id=job_id, message="after")
    assert messages(site.reboot().connect(), job_id) == ["0", "running", "after"]


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({}, "01234"),
        ({"start": 1, "end": 2}, "12"),
        ({"start": 0, "end": -1}, "01234"),
        ({"start": -2}, "34"),
        ({"start": -9, "end": -4}, "01"),
        ({"start": 4, "end": 3}, ""),
        ({"end": -9}, ""),
        ({"start": 9}, ""),
        ({"asc": True}, "01234"),
        ({"asc": False}, "43210"),
        ({"asc": False, "start": 0, "end": 1}, "43"),
    ],
)
def test_lines_are_read_in_ranges(fields: dict[str, object], shown: str) -> None:
    client = BareBunqueue().connect()
    job_id = fill(client, 5)
    assert "".join(messages(client, job_id, **fields)) == shown


def test_a_job_may_keep_none() -> None:
    client = BareBunqueue().connect()
    job_id = fill(client, 3, keepLogs=0)
    assert messages(client, job_id) == []


def test_all_lines_together_have_an_end() -> None:
    site = BareBunqueue()
    client = site.connect()
    job_id = client.push()
    for n in range(10):
        client.ok("AddLog", id=job_id, message=f"{n}" + "x" * (2 * LINE_MAX))
    kept = messages(client, job_id)
    assert [len(one) for one in kept] == [LINE_MAX] * (TEXT_MAX // LINE_MAX)
    assert kept[-1].startswith("9x")


def test_clearing_what_is_not_there_changes_nothing() -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    job_id = fill(client, 2)
    records = site.yard.journal.records_count
    assert client.ok("ClearLogs", id="nobody") == EMPTY
    assert client.ok("ClearLogs", id=job_id, keepLogs=2) == EMPTY
    assert site.yard.journal.records_count == records
    assert messages(client, job_id) == ["0", "1"]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, "message must be a string"),
        ({"message": 5}, "message must be a string"),
        ({"message": "x", "level": 5}, "level must be a string"),
        ({"message": "x", "level": "a\0b"}, "level must be one of info, warn, error"),
    ],
)
def test_a_bad_line_is_refused(fields: dict[str, object], error: str) -> None:
    client = BareBunqueue().connect()
    job_id = client.push()
    assert client.refused("AddLog", id=job_id, **fields) == error
    assert messages(client, job_id) == []


def test_a_full_disk_refuses_a_line() -> None:
    storage = MemoryStorage()
    site = BareBunqueue(storage)
    client = site.connect()
    job_id = client.push()
    site.commit()
    storage.capacity = storage.used()
    site.yard.journal.spares.clear()
    # No file of the journal has room for the whole of it any more.
    site.job(job_id).ensure_details().protocol_fields = (
        b"\x80" + b"x" * site.yard.journal.segment_size
    )
    assert client.refused("AddLog", id=job_id, message="x") == "Storage full"


@pytest.mark.parametrize("level", ["loud", "INFO", "warning"])
def test_a_level_is_one_of_three(level: str) -> None:
    client = BareBunqueue().connect()
    job_id = client.push()
    error = "level must be one of info, warn, error"
    assert client.refused("AddLog", id=job_id, message="a", level=level) == error
    assert messages(client, job_id) == []
