"""LIFO jobs, without a socket."""

import pytest

from tests.support.clients.bunqueue import BunqueueClient
from tests.support.doors.bunqueue import BareBunqueue
from tests.support.site.storage import MemoryStorage


def left(client: BunqueueClient) -> list[object]:
    """Return the data of the jobs of a queue in the order they leave it."""
    count = client.ok("Count", queue="q")["count"]
    return [client.pull()["data"] for _ in range(count)]


def test_a_job_may_be_put_first_or_last_among_those_of_its_priority() -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    ids = {name: client.push(data=name) for name in "abc"}
    last = client.push(data="last", lifo=True)
    client.ok("ChangePriority", id=ids["b"], priority=0, lifo=True)
    client.ok("ChangePriority", id=ids["c"], priority=0, lifo=True)
    client.ok("ChangePriority", id=last, priority=0, lifo=False)
    shown = [client.ok("GetJob", id=one)["job"]["lifo"] for one in (ids["a"], ids["b"], last)]
    assert shown == [False, True, False]
    # Without a word on it everything stays.
    client.ok("ChangePriority", id=ids["b"], priority=0)
    site.check()
    client = site.reboot().connect()
    assert client.ok("GetJob", id=ids["b"])["job"]["lifo"] is True
    assert left(client) == ["c", "b", "a", "last"]


def test_inside_a_group_the_first_come_are_first_whatever_is_asked() -> None:
    client = BareBunqueue().connect()
    client.push(data="a", groupId="g")
    later = client.push(data="b", groupId="g", lifo=True)
    client.ok("ChangePriority", id=later, priority=0, lifo=True)
    assert left(client) == ["a", "b"]


@pytest.mark.parametrize("is_rebooted", [False, True])
def test_a_lifo_job_stands_where_it_would_without_a_delay(*, is_rebooted: bool) -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    client.push(data="fifo")
    client.push(data="old", lifo=True)
    client.push(data="delayed", lifo=True, delay=1000)
    promoted = client.push(data="promoted", lifo=True, delay=90_000)
    client.push(data="new", lifo=True)
    client.ok("Promote", id=promoted)
    if is_rebooted:
        site = site.reboot()
        client = site.connect()
    site.tick(1000)
    site.check()
    assert left(client) == ["new", "promoted", "delayed", "old", "fifo"]


def test_a_lifo_job_that_failed_comes_back_to_its_place() -> None:
    site = BareBunqueue()
    client = site.connect()
    client.push(data="old", lifo=True)
    client.push(data="mid", lifo=True, backoff={"type": "fixed", "delay": 0})
    job_id = client.pull()["id"]
    client.push(data="new", lifo=True)
    client.ok("FAIL", id=job_id, error="no")
    site.tick(0)
    assert left(client) == ["new", "mid", "old"]
