import pytest

from jobyard.protocols.beanstalk.door import BeanstalkFacts
from jobyard.protocols.beanstalk.entrance import BeanstalkEntrance
from tests.support.site.connection import Ears
from tests.support.site.yard import OpenYard


def test_a_door_pins_the_default_tube() -> None:
    site = OpenYard()
    assert site.door.default is site.queue("default")
    assert site.door.default.is_pinned


def test_connections_are_counted_as_they_come_and_go() -> None:
    site = OpenYard()
    entrance = BeanstalkEntrance(site.door)
    first, second = entrance.enter(Ears()), entrance.enter(Ears())
    assert (site.door.connections_count, site.door.connections_total) == (2, 2)
    first.closed(site.now_ms)
    assert (site.door.connections_count, site.door.connections_total) == (1, 2)
    second.closed(site.now_ms)
    assert (site.queue().users_count, site.queue().watchers_count) == (0, 0)


def test_producers_workers_and_waiters_are_counted_once_each() -> None:
    site = OpenYard()
    client = site.connect()
    client.say(b"put 0 0 1 1\r\nx\r\nput 0 0 1 1\r\nx\r\nreserve\r\nreserve\r\nreserve\r\n")
    door = site.door
    assert (door.producers_count, door.workers_count, door.waiting_count) == (1, 1, 0)
    client.hear()
    site.jump(1000)  # the two leases of a second are over, so the next reserve finds them
    client.say(b"reserve\r\nreserve\r\n")
    other = site.connect()
    other.say(b"reserve\r\n")
    assert (door.workers_count, door.waiting_count) == (2, 1)
    other.leave()
    client.leave()
    assert (door.producers_count, door.workers_count, door.waiting_count) == (0, 0, 0)


def test_the_facts_of_a_machine_must_come_from_somewhere() -> None:
    facts = BeanstalkFacts()
    for call in (facts.pid, facts.cpu_times, facts.machine, facts.instance_id):
        with pytest.raises(NotImplementedError):
            call()
