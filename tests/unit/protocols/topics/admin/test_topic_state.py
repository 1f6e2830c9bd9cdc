"""The state of a topic, awaited until there is a row that the caller does not know."""

from typing import Any

import pytest

from tests.support.clients.topics import TopicsClient, said
from tests.support.doors.topics import BareTopics

KINDS = ["log", "queue"]


@pytest.fixture(params=KINDS)
def topic(api: TopicsClient, request: pytest.FixtureRequest) -> str:
    """A topic of either type."""
    api.put("t", type=request.param)
    return "t"


def waits(site: BareTopics, after_seq: int, wait_ms: int = 5000) -> TopicsClient:
    """Make a caller wait for news of `t`."""
    caller = site.connect()
    caller.send("GET", f"/v0/topics/t?after_seq={after_seq}&wait_ms={wait_ms}")
    assert not caller.unread
    return caller


def state_of(caller: TopicsClient) -> Any:
    answer = caller.hear()
    assert answer is not None
    return said(answer)


def test_a_row_ends_the_wait(site: BareTopics, topic: str) -> None:
    before = site.timers()
    site.api.write(topic, 1)
    caller = waits(site, 1)
    site.tick(1000)
    assert caller.hear() is None
    site.api.write(topic, 2, 3)
    state = state_of(caller)
    assert (state["head_seq"], state["head_row_seq"], state["count"]) == (3, 3, 3)
    assert site.timers() == before
    site.tick(10_000)
    assert caller.hear() is None


def test_time_ends_the_wait_with_the_same_state(site: BareTopics, topic: str) -> None:
    before = site.timers()
    site.api.write(topic, 1)
    caller = waits(site, 1, 50)
    site.tick(49)
    assert caller.hear() is None
    site.tick(1)
    assert state_of(caller)["head_row_seq"] == 1
    assert site.timers() == before


def test_nobody_waits_for_what_is_there_or_without_a_time(site: BareTopics, topic: str) -> None:
    site.api.write(topic, 1)
    for query in ("after_seq=0&wait_ms=9", "after_seq=9", "wait_ms=9", "after_seq=9&wait_ms=0"):
        assert said(site.api.ask("GET", f"/v0/topics/{topic}?{query}"))["head_row_seq"] == 1


def test_nobody_waits_longer_than_half_a_minute(site: BareTopics, topic: str) -> None:
    assert topic == "t"
    caller = waits(site, 9, 1 << 40)
    site.tick(29_999)
    assert caller.hear() is None
    site.tick(1)
    assert state_of(caller)["head_row_seq"] == 0


@pytest.mark.parametrize("query", ["after_seq=-1", "after_seq=x", "wait_ms=1.5", "wait_ms=-1"])
def test_numbers_that_are_none_are_refused(api: TopicsClient, topic: str, query: str) -> None:
    answer = api.ask("GET", f"/v0/topics/{topic}?{query}")
    assert answer.refusal == (400, "invalid_request")


def test_a_topic_that_is_not_there_is_not_awaited(api: TopicsClient) -> None:
    for name in ("t", "_events"):
        answer = api.ask("GET", f"/v0/topics/{name}?after_seq=0&wait_ms=5000")
        assert answer.refusal == (404, "topic_not_found")


def test_a_topic_that_is_removed_ends_the_wait(site: BareTopics, topic: str) -> None:
    before = site.timers()
    site.api.write(topic, 1)
    caller = waits(site, 1)
    site.api.ask("DELETE", "/v0/topics/t")
    answer = caller.hear()
    assert answer is not None
    assert answer.refusal == (404, "topic_not_found")
    assert site.timers() == before


def test_who_leaves_waits_no_more(site: BareTopics, topic: str) -> None:
    before = site.timers()
    callers = [waits(site, 0) for _ in range(3)]
    assert site.timers() == before + 3
    callers[1].close()
    assert site.timers() == before + 2
    site.api.write(topic, 1)
    assert [one.unread != b"" for one in callers] == [True, False, True]
    assert site.timers() == before


def test_who_sends_no_more_is_answered_at_once(site: BareTopics, topic: str) -> None:
    assert topic == "t"
    caller = waits(site, 0)
    caller.shut_down()
    assert state_of(caller)["head_row_seq"] == 0
    assert not caller.is_open


def test_a_job_that_changes_is_no_news(site: BareTopics) -> None:
    site.api.put("t", type="queue")
    site.api.write("t", 1, 2)
    caller = waits(site, 2)
    site.api.claim("t", max=2)
    site.api.ok("t/ack", {"node": "w", "seqs": [2]})
    assert caller.hear() is None
    beanstalk = site.beanstalk()
    beanstalk.say(b"use t\r\nput 0 0 60 1\r\n7\r\n")
    site.settle()
    assert state_of(caller)["head_row_seq"] == 3


def test_a_queue_that_nobody_configured_stays_while_its_state_is_awaited(site: BareTopics) -> None:
    producer = site.beanstalk()
    producer.say(b"use t\r\nput 0 0 60 1\r\n7\r\nuse other\r\n")
    callers = [waits(site, 1, ms) for ms in (5000, 6000)]
    site.beanstalk().say(b"watch t\r\nreserve\r\ndelete 1\r\nignore t\r\n")
    site.tick(5000)
    assert state_of(callers[0])["count"] == 0
    assert "t" in site.yard.queues
    site.tick(1000)
    assert state_of(callers[1])["count"] == 0
    assert "t" not in site.yard.queues


def test_waiting_calls_of_a_key_are_limited() -> None:
    site = BareTopics(keys="secret")
    site.topics.limits.waiting_per_key = 1
    one, other = site.connect("secret"), site.connect("secret")
    one.put("t")
    one.send("GET", "/v0/topics/t?after_seq=0&wait_ms=5000")
    answer = other.ask("GET", "/v0/topics/t?after_seq=0&wait_ms=5000")
    assert answer.refusal == (429, "throttled")
    site.tick(5000)
    assert state_of(one)["head_row_seq"] == 0
    assert said(other.ask("GET", "/v0/topics/t?after_seq=0&wait_ms=0"))["count"] == 0
