"""The logs of a job."""

import time

import pytest

from tests.support.servers.bunqueue import Client, ours


def messages(client: Client, job_id: str, **fields: object) -> list[str]:
    return [entry["message"] for entry in client.ok("GetLogs", id=job_id, **fields)["data"]["logs"]]


def test_a_job_keeps_what_is_logged(client: Client, queue: str) -> None:
    job_id = client.push(queue, 1)
    assert client.ok("AddLog", id=job_id, message="one") == {"data": {"added": True}}
    client.ok("AddLog", id=job_id, message="two", level="warn")
    client.ok("AddLog", id=job_id, message="three", level="error")
    data = client.ok("GetLogs", id=job_id)["data"]
    assert data["count"] == 3
    assert [(entry["message"], entry["level"]) for entry in data["logs"]] == [
        ("one", "info"),
        ("two", "warn"),
        ("three", "error"),
    ]
    for entry in data["logs"]:
        assert abs(entry["timestamp"] - time.time() * 1000) < 10_000


def test_logs_are_read_in_ranges(client: Client, queue: str) -> None:
    job_id = client.push(queue, 1)
    for n in range(5):
        client.ok("AddLog", id=job_id, message=str(n))
    assert messages(client, job_id, start=0, end=0) == ["0"]
    assert messages(client, job_id, start=1, end=3) == ["1", "2", "3"]
    assert messages(client, job_id, start=3) == ["3", "4"]
    assert client.ok("GetLogs", id=job_id, start=1, end=1)["data"]["count"] == 5


def test_logs_can_be_cleared(client: Client, queue: str) -> None:
    job_id = client.push(queue, 1)
    for n in range(5):
        client.ok("AddLog", id=job_id, message=str(n))
    assert client.ok("ClearLogs", id=job_id, keepLogs=2) == {}
    assert messages(client, job_id) == ["3", "4"]
    assert client.ok("ClearLogs", id=job_id) == {}
    assert client.ok("GetLogs", id=job_id) == {"data": {"logs": [], "count": 0}}


def test_a_job_keeps_its_last_hundred(client: Client, queue: str) -> None:
    job_id = client.push(queue, 1)
    for n in range(105):
        client.ok("AddLog", id=job_id, message=str(n))
    assert messages(client, job_id) == [str(n) for n in range(5, 105)]


@ours("it ignores the option")
def test_a_job_may_keep_fewer(client: Client, queue: str) -> None:
    job_id = client.push(queue, 1, keepLogs=2)
    for n in range(5):
        client.ok("AddLog", id=job_id, message=str(n))
    assert messages(client, job_id) == ["3", "4"]


@pytest.mark.parametrize("state", ["active", "completed", "failed", "delayed"])
def test_a_job_can_be_logged_about_in_every_state(client: Client, queue: str, state: str) -> None:
    job_id = client.push(queue, 1, delay=600_000 if state == "delayed" else 0)
    if state != "delayed":
        client.pull(queue)
    if state == "completed":
        client.ok("ACK", id=job_id)
    if state == "failed":
        client.ok("FAIL", id=job_id, unrecoverable=True)
    assert client.state(job_id) == state
    client.ok("AddLog", id=job_id, message="here")
    assert messages(client, job_id) == ["here"]


def test_unknown_jobs_have_no_logs(client: Client) -> None:
    assert client.ok("GetLogs", id="nobody") == {"data": {"logs": [], "count": 0}}
    assert client.refused("AddLog", id="nobody", message="x") == "Job not found"


def test_logs_end_with_their_job(client: Client, queue: str) -> None:
    name = client.push(queue, 1, jobId=f"{queue}-id")
    client.ok("AddLog", id=name, message="old")
    client.ok("Cancel", id=name)
    assert client.push(queue, 2, jobId=name) == name
    assert messages(client, name) == []
