"""Subscriptions, without a socket."""

from tests.support.clients.bunqueue import EMPTY
from tests.support.doors.bunqueue import BareBunqueue


def test_nobody_listens_until_somebody_asks() -> None:
    site = BareBunqueue()
    client = site.connect()
    assert not site.yard.bus.is_on
    assert client.ok("SubscribeEvents", queue="q") == EMPTY
    assert client.ok("SubscribeEvents", queue="p") == EMPTY
    client.push("q")
    job_id = client.push("p")
    assert [(one["eventType"], one["jobId"]) for one in client.events] == [("pushed", job_id)]
    assert client.ok("UnsubscribeEvents") == EMPTY
    assert client.ok("UnsubscribeEvents") == EMPTY
    assert not site.yard.bus.is_on


def test_a_subscription_goes_with_its_connection() -> None:
    site = BareBunqueue()
    client = site.connect()
    client.ok("SubscribeEvents", queue="q")
    client.close()
    assert not site.yard.bus.is_on


def test_a_bad_subscription_leaves_the_old_one() -> None:
    client = BareBunqueue().connect()
    client.ok("SubscribeEvents", queue="q")
    assert client.refused("SubscribeEvents") == "Queue name is required"
    assert client.refused("SubscribeEvents", queue="a b")
    client.push()
    assert len(client.events) == 1


def test_there_is_nothing_to_trim() -> None:
    client = BareBunqueue().connect()
    assert client.ok("TrimEvents", queue="q", maxLength=5) == {"data": {"removed": 0}}
    assert client.refused("TrimEvents", queue="q", maxLength=-1) == "maxLength must be at least 0"
    assert client.refused("TrimEvents", maxLength=1) == "Queue name is required"


def test_a_job_that_has_to_wait_for_others_is_told_so_when_it_is_put() -> None:
    client = BareBunqueue().connect()
    child = client.push("q")
    client.ok("SubscribeEvents", queue="p")
    one = client.push("p", dependsOn=[child])
    (two,) = client.ok("PUSHB", queue="p", jobs=[{"data": 1, "dependsOn": [child]}])["ids"]
    assert [(event["eventType"], event["jobId"]) for event in client.events] == [
        *(("pushed", one), ("waiting-children", one)),
        *(("pushed", two), ("waiting-children", two)),
    ]


def test_progress_is_reported_with_its_message() -> None:
    client = BareBunqueue().connect()
    job_id = client.push("q")
    client.pull("q")
    client.ok("SubscribeEvents", queue="q")
    client.ok("Progress", id=job_id, progress=5, message="half")
    client.ok("Progress", id=job_id, progress=6)
    assert [event["progress"] for event in client.events] == [5, 6]
    assert client.events[0]["data"] == {"progress": 5, "message": "half"}
