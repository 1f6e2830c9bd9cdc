"""Claims that are answered later: waiting for a job, and sharing with other claims."""

from typing import Any

import pytest

from tests.support.clients.topics import TopicsClient, said
from tests.support.doors.topics import BareTopics


@pytest.fixture
def queue(api: TopicsClient) -> str:
    """An empty queue."""
    api.put("q", type="queue")
    return "q"


def claims(site: BareTopics, **query: object) -> TopicsClient:
    """Let a node claim from an empty queue."""
    caller = site.connect()
    caller.send("POST", "/v0/topics/q/claim", {"node": "w", "wait_ms": 5000, **query})
    assert not caller.unread
    return caller


def answer_of(caller: TopicsClient) -> Any:
    answer = caller.hear()
    assert answer is not None
    return said(answer)


def seqs(caller: TopicsClient) -> list[int]:
    return [one["$seq"] for one in answer_of(caller)["claimed"]]


# -- waiting ---------------------------------------------------------------------------------------


def test_who_waits_is_given_what_comes(site: BareTopics, api: TopicsClient, queue: str) -> None:
    before = site.timers()
    caller = claims(site, lease_ms=700)
    site.tick(1000)
    assert caller.hear() is None
    api.write(queue, "a", "b")
    answer = answer_of(caller)
    (job,) = answer.pop("claimed")
    assert answer == {"topic": "q", "count": 1, "ready": 1}
    assert (job["$seq"], job["deadline"]) == (1, site.now_ms + 700)
    counts = api.state(queue)["queue"]
    assert (counts["ready"], counts["in_flight"]) == (1, 1)
    body = {"node": "w", "seqs": [1], "lease_ids": [job["lease_id"]]}
    assert api.ok("q/ack", body)["acked"] == 1
    assert site.timers() == before


def test_who_waits_for_many_is_given_those_that_come_together(
    site: BareTopics, api: TopicsClient, queue: str
) -> None:
    caller = claims(site, max=3)
    api.ok(queue, {"records": [{"data": at, "priority": at} for at in range(5)]})
    assert seqs(caller) == [3, 4, 5]


def test_waiting_claims_are_served_in_order(
    site: BareTopics, api: TopicsClient, queue: str
) -> None:
    first = claims(site, node="a")
    second = claims(site, node="b")
    api.write(queue, 1)
    assert seqs(first) == [1]
    assert second.hear() is None
    api.ok("q/nack", {"node": "a", "seqs": [1]})
    assert seqs(second) == [1]


def test_a_returned_job_goes_to_a_waiting_claim(
    site: BareTopics, api: TopicsClient, queue: str
) -> None:
    api.write(queue, 1, 2)
    api.claim(queue, node="a", max=2, lease_ms=1000)
    first = claims(site, node="b")
    second = claims(site, node="c")
    api.ok("q/nack", {"node": "a", "seqs": [1], "delay_ms": 500})
    site.tick(500)
    assert seqs(first) == [1]
    site.tick(500)
    assert seqs(second) == [2]


def test_a_call_that_waits_in_vain_is_answered_in_time(site: BareTopics, queue: str) -> None:
    before = site.timers()
    caller = claims(site)
    site.tick(4999)
    assert caller.hear() is None
    site.tick(1)
    assert answer_of(caller) == {"topic": queue, "claimed": [], "count": 0, "ready": 0}
    assert site.timers() == before


def test_nobody_waits_longer_than_half_a_minute(site: BareTopics, queue: str) -> None:
    assert queue == "q"
    caller = claims(site, wait_ms=1 << 64)
    site.tick(29_999)
    assert caller.hear() is None
    site.tick(1)
    assert seqs(caller) == []


def test_who_leaves_is_given_nothing(site: BareTopics, api: TopicsClient, queue: str) -> None:
    before = site.timers()
    caller = claims(site)
    caller.close()
    assert site.timers() == before
    api.write(queue, 1)
    assert api.state(queue)["queue"]["ready"] == 1


def test_who_sends_no_more_is_answered_at_once(site: BareTopics, queue: str) -> None:
    assert queue == "q"
    caller = claims(site)
    caller.shut_down()
    assert seqs(caller) == []


def test_what_was_given_outlives_the_connection(
    site: BareTopics, api: TopicsClient, queue: str
) -> None:
    caller = claims(site, lease_ms=1000)
    api.write(queue, 1)
    caller.close()
    assert api.state(queue)["queue"]["in_flight"] == 1
    site.tick(1001)
    assert api.state(queue)["queue"]["ready"] == 1


def test_a_waiting_call_ends_when_the_topic_is_removed(
    site: BareTopics, api: TopicsClient, queue: str
) -> None:
    before = site.timers()
    caller = claims(site)
    api.ask("DELETE", f"/v0/topics/{queue}")
    answer = caller.hear()
    assert answer is not None
    assert answer.refusal == (404, "topic_not_found")
    assert site.timers() == before
    assert queue not in site.yard.queues


@pytest.mark.parametrize("wait_ms", [-1, "5", 1.5, []])
def test_an_invalid_wait_is_refused(api: TopicsClient, queue: str, wait_ms: object) -> None:
    answer = api.post(f"{queue}/claim", {"node": "w", "wait_ms": wait_ms})
    assert answer.refusal == (400, "invalid_request")


# -- sharing ---------------------------------------------------------------------------------------


def share(site: BareTopics, node: str, most: int) -> TopicsClient:
    """Claim where claims are served together."""
    caller = site.connect()
    caller.send("POST", "/v0/topics/q/claim", {"node": node, "max": most})
    assert not caller.unread
    return caller


def test_claims_that_come_together_share(site: BareTopics, api: TopicsClient) -> None:
    api.put("q", type="queue", claim_jitter_ms=50)
    before = site.timers()
    api.write("q", *range(20))
    callers = [share(site, f"w{number}", 10) for number in range(4)]
    site.tick(49)
    assert all(caller.hear() is None for caller in callers)
    site.tick(1)
    found = [seqs(caller) for caller in callers]
    assert [len(one) for one in found] == [5, 5, 5, 5]
    assert sorted(seq for one in found for seq in one) == list(range(1, 21))
    assert all(one == sorted(one) for one in found)
    assert site.timers() == before + 4


def test_what_one_leaves_others_get(site: BareTopics, api: TopicsClient) -> None:
    api.put("q", type="queue", claim_jitter_ms=50)
    api.write("q", *range(10))
    callers = [share(site, "a", 1), share(site, "b", 9), share(site, "c", 3)]
    site.tick(50)
    assert [len(seqs(caller)) for caller in callers] == [1, 6, 3]


def test_who_leaves_before_the_shares_are_dealt_gets_none(
    site: BareTopics, api: TopicsClient
) -> None:
    api.put("q", type="queue", claim_jitter_ms=50)
    api.write("q", *range(4))
    first, second = share(site, "a", 4), share(site, "b", 4)
    first.close()
    site.tick(50)
    assert seqs(second) == [1, 2, 3, 4]


def test_a_topic_that_is_removed_has_no_shares(site: BareTopics, api: TopicsClient) -> None:
    before = site.timers()
    api.put("q", type="queue", claim_jitter_ms=50)
    api.write("q", 1)
    caller = share(site, "a", 4)
    api.ask("DELETE", "/v0/topics/q")
    answer = caller.hear()
    assert answer is not None
    assert answer.refusal == (404, "topic_not_found")
    assert site.timers() == before


# -- sharing future jobs ---------------------------------------------------------------------------


def test_who_waits_shares_what_comes(site: BareTopics, api: TopicsClient) -> None:
    api.put("q", type="queue", claim_jitter_ms=50)
    before = site.timers()
    callers = [claims(site, node=node, max=10) for node in "abc"]
    site.tick(1000)
    api.write("q", *range(9))
    site.tick(49)
    assert all(caller.hear() is None for caller in callers)
    site.tick(1)
    assert [seqs(caller) for caller in callers] == [[1, 4, 7], [2, 5, 8], [3, 6, 9]]
    api.ok("q/delete", {"before_seq": 10})
    assert site.timers() == before


@pytest.mark.parametrize(("wait_ms", "heard_ms"), [(0, 50), (20, 50), (50, 50), (700, 700)])
def test_who_waits_for_a_share_in_vain_is_told_so_in_time(
    site: BareTopics, api: TopicsClient, wait_ms: int, heard_ms: int
) -> None:
    api.put("q", type="queue", claim_jitter_ms=50)
    before = site.timers()
    caller = claims(site, wait_ms=wait_ms)
    site.tick(heard_ms - 1)
    assert caller.hear() is None
    site.tick(1)
    assert seqs(caller) == []
    assert site.timers() == before


def test_whose_time_ends_within_the_window_gets_a_share_all_the_same(
    site: BareTopics, api: TopicsClient
) -> None:
    api.put("q", type="queue", claim_jitter_ms=50)
    caller = claims(site, wait_ms=1000)
    site.tick(990)
    api.write("q", 1)
    site.tick(49)
    assert caller.hear() is None
    site.tick(1)
    assert seqs(caller) == [1]


def test_who_leaves_or_sends_no_more_waits_for_no_share(
    site: BareTopics, api: TopicsClient
) -> None:
    api.put("q", type="queue", claim_jitter_ms=50)
    before = site.timers()
    first, second = claims(site), claims(site)
    site.tick(60)
    first.close()
    second.shut_down()
    assert seqs(second) == []
    assert site.timers() == before


def test_who_waits_for_a_share_is_told_that_the_topic_was_removed(
    site: BareTopics, api: TopicsClient
) -> None:
    before = site.timers()
    api.put("q", type="queue", claim_jitter_ms=50)
    caller = claims(site)
    site.tick(60)
    api.ask("DELETE", "/v0/topics/q")
    answer = caller.hear()
    assert answer is not None
    assert answer.refusal == (404, "topic_not_found")
    assert site.timers() == before


def test_streams_share_with_claims(site: BareTopics, api: TopicsClient) -> None:
    api.put("q", type="queue", claim_jitter_ms=50)
    worker = site.connect()
    worker.listen("/v0/topics/q/work?node=s&max=3")
    assert [event.name for event in worker.events()] == ["retry:"]
    caller = claims(site, max=10)
    site.tick(1000)
    api.write("q", *range(8))
    assert worker.jobs() == []
    site.tick(50)
    assert [job["$seq"] for job in worker.jobs()] == [1, 3, 5]
    assert seqs(caller) == [2, 4, 6, 7, 8]
