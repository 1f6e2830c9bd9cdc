"""Required fields, and fields of the documented type, without a socket."""

import pytest

from tests.support.doors.bunqueue import BareBunqueue


def test_clean_removes_nothing_where_no_age_is_said() -> None:
    client = BareBunqueue().connect()
    job_id = client.push()
    for grace in ({}, {"grace": None}):
        assert client.refused("Clean", queue="q", **grace) == "grace is required"
    assert client.state(job_id) == "waiting"


def test_only_a_job_that_runs_is_moved_to_delayed_and_for_how_long_must_be_said() -> None:
    client = BareBunqueue().connect()
    job_id = client.push()
    for token in (None, "lost"):
        error = client.refused("MoveToDelayed", id=job_id, delay=5, token=token)
        assert error == "Job is not active (current state: waiting)"
    assert client.refused("MoveToDelayed", id="nobody", delay=5) == "Job not found"
    client.ok("ChangeDelay", id=job_id, delay=60_000)
    error = client.refused("MoveToDelayed", id=job_id, delay=5)
    assert error == "Job is not active (current state: delayed)"
    client.ok("ChangeDelay", id=job_id, delay=0)
    client.pull()
    assert client.refused("MoveToDelayed", id=job_id) == "delay is required"
    assert client.state(job_id) == "active"
    client.ok("ChangeDelay", id=job_id, delay=5)
    assert client.state(job_id) == "delayed"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"lifo": "yes"}, "lifo must be a boolean"),
        ({"lifo": 1}, "lifo must be a boolean"),
        ({"durable": "no"}, "durable must be a boolean"),
        ({"tags": "a"}, "tags must be an array of strings"),
        ({"tags": ["a", 1]}, "tags must be an array of strings"),
    ],
)
def test_what_is_of_another_kind_is_refused(fields: dict[str, object], error: str) -> None:
    client = BareBunqueue().connect()
    assert client.refused("PUSH", queue="q", data=1, **fields) == error
    assert error in client.refused("PUSHB", queue="q", jobs=[{"data": 1, **fields}])
    assert client.ok("Count", queue="q") == {"count": 0}
    client.ok("PUSH", queue="q", data=1, lifo=None, tags=None)
    client.ok("PUSH", queue="q", data=1, lifo=False, tags=[])
    client.ok("PUSH", queue="q", data=1, durable=True, tags=["a"])
