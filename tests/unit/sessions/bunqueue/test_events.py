"""Subscriptions, without a socket."""

from tests.support.bare_bunqueue import EMPTY, BareBunqueue


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
