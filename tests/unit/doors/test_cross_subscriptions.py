"""Groups of glide-mq that subscribe to a queue see jobs of all doors, and disturb no worker."""

import pytest

from tests.support.clients.subscriber import Subscriber
from tests.support.doors.crossing import DOORS, QUEUE, WAITS, Crossing


def subscribed(group: str = "mails") -> tuple[Crossing, Subscriber]:
    doors = Crossing()
    doors.make()
    return doors, Subscriber(doors.glide, group).create()


@pytest.mark.parametrize("door", DOORS)
def test_a_group_sees_what_is_put_at_any_door(door: str) -> None:
    doors, mails = subscribed()
    mails.block()
    doors.put_at(door, 7)
    doors.settle()
    assert mails.heard() == ["1"]
    assert doors.glide.job("1")["data"] == "7"
    assert doors.glide.state("1") == "waiting"


@pytest.mark.parametrize("door", DOORS)
def test_a_group_sees_what_is_put_with_a_delay_once_it_is_due(door: str) -> None:
    doors, mails = subscribed()
    doors.put_at(door, 7, delay_ms=2000)
    doors.put_at(door, 8)
    assert mails.ids() == ["2"]
    doors.tick(9000)
    assert mails.ids() == ["1"]
    doors.tick(9000)
    assert mails.ids() == []


@pytest.mark.parametrize("door", DOORS)
def test_what_a_group_has_can_be_taken_at_any_door(door: str) -> None:
    doors, mails = subscribed()
    doors.put_at("glide-mq", 7)
    [(job_id, entry)] = mails.read()
    assert doors.take_at(door) == 7
    assert mails.pending()[0] == 1
    assert mails.complete(job_id, entry) == [b"NEXT_NONE", b"1"]
    assert doors.glide.state("1") == "active"
    doors.check()


@pytest.mark.parametrize("how", WAITS)
def test_a_group_takes_nothing_from_waiting_clients(how: str) -> None:
    doors, mails = subscribed()
    mails.block()
    waiting = doors.wait(how)
    doors.put_at("glide-mq", 7)
    doors.settle()
    assert waiting.heard() == 7
    assert mails.heard() == ["1"]


def test_what_is_finished_elsewhere_is_gone_for_who_has_not_read_it() -> None:
    doors, mails = subscribed()
    doors.put_at("beanstalk", 7)
    number, _ = doors.bean.reserve()
    assert doors.bean.ask(f"delete {number}") == "DELETED"
    assert mails.ids() == []


@pytest.mark.parametrize("door", ["bunqueue", "topics"])
def test_a_queue_that_is_wiped_has_no_groups(door: str) -> None:
    doors, mails = subscribed()
    doors.put_at("glide-mq", 7)
    if door == "bunqueue":
        doors.bun.ok("Obliterate", queue=QUEUE)
    else:
        doors.api.ask("DELETE", f"/v0/topics/{QUEUE}")
    assert mails.client.refused(*mails.command(1)).startswith("NOGROUP")
    doors.check()


def test_a_pause_of_any_door_holds_for_groups() -> None:
    doors, mails = subscribed()
    doors.bean.ask(f"pause-tube {QUEUE} 3")
    doors.put_at("glide-mq", 7)
    mails.block()
    doors.tick(2000)
    assert mails.heard() == []
    doors.tick(3000)
    assert mails.heard() == ["1"]
