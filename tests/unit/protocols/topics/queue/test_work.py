"""Jobs pushed to workers: filled at once, never more than requested, given back at the end."""

from typing import Any

import pytest

from tests.support.clients.topics import Event, TopicsClient, said
from tests.support.doors.topics import BareTopics

HEARTBEAT = Event(":", "", "hb")
RETRY = Event("retry:", "", "2000")
OVER = Event("", "", "")


@pytest.fixture
def queue(api: TopicsClient) -> str:
    """A queue."""
    api.put("q", type="queue")
    return "q"


def stream(site: BareTopics, query: str = "node=w") -> TopicsClient:
    """Open a stream and pass over its first words."""
    worker = site.connect()
    worker.listen(f"/v0/topics/q/work?{query}", {"Accept": "text/event-stream"})
    return worker


def idle(site: BareTopics, query: str = "node=w") -> TopicsClient:
    """Open a stream that has nothing to push."""
    worker = stream(site, query)
    assert worker.events() == [RETRY]
    return worker


def seqs(jobs: list[Any]) -> list[int]:
    return [job["$seq"] for job in jobs]


def end(seqs: list[int], node: str = "w", **fields: object) -> dict[str, object]:
    return {"node": node, "seqs": seqs, **fields}


def test_a_stream(site: BareTopics, api: TopicsClient, queue: str) -> None:
    api.ok(queue, {"records": [{"data": {"a": [1]}, "tag": "t", "meta": {"m": 1}}]})
    site.tick(100)
    worker = site.connect()
    head = worker.listen("/v0/topics/q/work?node=w&lease_ms=5000")
    assert head["content-type"] == "text/event-stream"
    assert head["cache-control"] == "no-store"
    assert head["x-accel-buffering"] == "no"
    said_first, job = worker.events()
    assert said_first == RETRY
    assert (job.name, job.id) == ("job", "1")
    found = job.json
    assert list(found)[:2] == ["topic", "$seq"]
    assert found.pop("lease_id").startswith("lease_")
    assert found == {
        "topic": "q",
        "$seq": 1,
        "deadline": site.now_ms + 5000,
        "$ts": site.now_ms - 100,
        "$tag": "t",
        "deliveries": 1,
        "data": {"a": [1]},
        "meta": {"m": 1},
    }


def test_data_with_line_ends_stays_one_event(
    site: BareTopics, api: TopicsClient, queue: str
) -> None:
    worker = idle(site)
    api.ok(queue, b'{"records":[{"data":\r\n{\n"a"\n:1 }}]}')
    (job,) = worker.jobs()
    assert job["data"] == {"a": 1}


@pytest.mark.parametrize(
    "accept", ["", "*/*", "text/*", "text/event-stream", "application/json, text/event-stream;q=1"]
)
def test_who_can_read_events_is_let_in(site: BareTopics, queue: str, accept: str) -> None:
    assert queue == "q"
    worker = site.connect()
    worker.listen("/v0/topics/q/work?node=w", {"Accept": accept})
    assert worker.events() == [RETRY]


@pytest.mark.parametrize("accept", ["application/json", "text/html", "image/*, text/plain"])
def test_who_cannot_read_events_is_not(api: TopicsClient, queue: str, accept: str) -> None:
    answer = api.ask("GET", f"/v0/topics/{queue}/work?node=w", None, {"Accept": accept})
    assert answer.refusal == (406, "not_acceptable")


@pytest.mark.parametrize(
    "query",
    [
        "",
        "?node=",
        "?max=1",
        f"?node={'x' * 129}",
        "?node=w&max=x",
        "?node=w&max=-1",
        "?node=w&max=1.5",
        "?node=w&lease_ms=x",
    ],
)
def test_an_invalid_stream_is_refused(api: TopicsClient, queue: str, query: str) -> None:
    api.write(queue, 1)
    answer = api.ask("GET", f"/v0/topics/{queue}/work{query}")
    assert answer.refusal == (400, "invalid_request")
    assert api.state(queue)["queue"]["ready"] == 1


def test_the_head_of_a_stream_takes_no_jobs(
    site: BareTopics, api: TopicsClient, queue: str
) -> None:
    api.write(queue, 1)
    before = site.timers()
    asker = site.connect()
    asker.send("HEAD", "/v0/topics/q/work?node=w")
    assert asker.unread.startswith(b"HTTP/1.1 200 ")
    assert asker.unread.endswith(b"\r\n\r\n")
    assert api.state(queue)["queue"]["ready"] == 1
    assert site.timers() == before
    assert api.ask("HEAD", "/v0/topics/none/work?node=w").status == 404
    assert api.ask("HEAD", f"/v0/topics/{queue}/work").status == 400


# -- filling ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("query", "count"), [("", 1), ("&max=0", 1), ("&max=3", 3), ("&max=9", 5)])
def test_a_stream_holds_at_most_so_many(
    site: BareTopics, api: TopicsClient, queue: str, query: str, count: int
) -> None:
    api.write(queue, *"abcde")
    worker = stream(site, f"node=w{query}")
    first, *jobs = worker.events()
    assert first == RETRY
    assert [job.id for job in jobs] == [str(seq) for seq in range(1, count + 1)]
    assert api.state(queue)["queue"]["in_flight"] == count


def test_a_stream_is_given_what_comes(site: BareTopics, api: TopicsClient, queue: str) -> None:
    worker = idle(site, "node=w&max=3")
    api.write(queue, "a")
    assert seqs(worker.jobs()) == [1]
    api.write(queue, "b", "c", "d")
    assert seqs(worker.jobs()) == [2, 3]


def test_an_ack_makes_room_for_the_next_at_once(
    site: BareTopics, api: TopicsClient, queue: str
) -> None:
    worker = idle(site, "node=w&max=2")
    api.write(queue, *"abcdef")
    assert seqs(worker.jobs()) == [1, 2]
    api.ok("q/ack", end([1]))
    assert seqs(worker.jobs()) == [3]
    answer = api.ok("q/ack", end([2, 3]))
    assert (answer["ready"], answer["in_flight"]) == (1, 2)
    assert seqs(worker.jobs()) == [4, 5]


def test_a_nack_makes_room_at_once(site: BareTopics, api: TopicsClient, queue: str) -> None:
    worker = idle(site)
    api.write(queue, "a", "b")
    assert seqs(worker.jobs()) == [1]
    api.ok("q/nack", end([1], delay_ms=1000))
    assert seqs(worker.jobs()) == [2]
    api.ok("q/nack", end([2]))
    (again,) = worker.jobs()
    assert (again["$seq"], again["deliveries"]) == (2, 2)
    api.ok("q/ack", end([2]))
    site.tick(1000)
    assert seqs(worker.jobs()) == [1]


def test_the_end_of_a_lease_makes_room_at_once(
    site: BareTopics, api: TopicsClient, queue: str
) -> None:
    worker = idle(site, "node=w&lease_ms=1000")
    api.write(queue, "a", "b")
    assert seqs(worker.jobs()) == [1]
    site.tick(1000)
    (again,) = worker.jobs()
    assert (again["$seq"], again["deliveries"]) == (1, 2)


def test_a_delete_makes_room_at_once(site: BareTopics, api: TopicsClient, queue: str) -> None:
    worker = idle(site)
    api.write(queue, "a", "b")
    assert seqs(worker.jobs()) == [1]
    api.ok("q/delete", {"before_seq": 2})
    assert seqs(worker.jobs()) == [2]


def test_an_extended_lease_is_not_pushed_again(
    site: BareTopics, api: TopicsClient, queue: str
) -> None:
    worker = idle(site, "node=w&lease_ms=1000")
    api.write(queue, "a")
    (job,) = worker.jobs()
    site.tick(900)
    body = end([1], lease_ids=[job["lease_id"]], lease_ms=5000)
    assert api.ok("q/extend", body)["extended"] == 1
    site.tick(4900)
    assert worker.jobs() == []
    assert api.ok("q/ack", end([1]))["acked"] == 1


def test_what_a_stream_was_given_back_goes_to_another_at_once(
    site: BareTopics, api: TopicsClient, queue: str
) -> None:
    first = idle(site, "node=a&max=2")
    second = idle(site, "node=b&max=2")
    api.write(queue, "a", "b")
    held = seqs(first.jobs()), seqs(second.jobs())
    assert sorted(held) == [[1], [2]]
    first.close()
    (again,) = second.jobs()
    assert [again["$seq"]] == held[0]
    assert again["deliveries"] == 2


def test_streams_take_turns(site: BareTopics, api: TopicsClient, queue: str) -> None:
    workers = [idle(site, f"node=w{number}&max=4") for number in range(3)]
    api.write(queue, *range(6))
    assert [len(worker.jobs()) for worker in workers] == [2, 2, 2]


# -- the end ---------------------------------------------------------------------------------------


def test_who_leaves_gives_back_what_came_by_the_stream_and_nothing_else(
    site: BareTopics, api: TopicsClient, queue: str
) -> None:
    before = site.timers()
    api.write(queue, *"abcd")
    claimed = api.claim(queue, node="w", max=2)
    worker = stream(site, "node=w&max=2")
    assert len(worker.events()) == 3
    worker.close()
    counts = api.state(queue)["queue"]
    assert (counts["ready"], counts["in_flight"]) == (2, 2)
    names = [one["lease_id"] for one in claimed["claimed"]]
    assert api.ok("q/ack", end([1, 2], lease_ids=names))["acked"] == 2
    assert site.timers() == before


def test_a_broken_or_closed_input_ends_the_stream(
    site: BareTopics, api: TopicsClient, queue: str
) -> None:
    api.write(queue, 1)
    worker = stream(site)
    worker.events()
    worker.shut_down()
    assert not worker.is_open
    assert api.state(queue)["queue"]["ready"] == 1


def test_a_server_that_stops_says_so(site: BareTopics, api: TopicsClient, queue: str) -> None:
    api.write(queue, 1)
    worker = stream(site)
    worker.events()
    site.door.is_draining = True
    worker.shut_down()
    error, over = worker.events()
    assert error.name == "error"
    assert error.json["code"] == "server_shutting_down"
    assert (error.json["topic"], over) == ("q", OVER)
    assert not worker.is_open


@pytest.mark.parametrize("most", [1, 5])
def test_a_topic_that_is_removed_ends_its_streams(
    site: BareTopics, api: TopicsClient, queue: str, most: int
) -> None:
    before = site.timers()
    api.write(queue, "a", "b")
    worker = stream(site, f"node=w&max={most}")
    worker.events()
    said(api.ask("DELETE", f"/v0/topics/{queue}"))
    error, over = worker.events()
    assert (error.name, error.json["code"]) == ("error", "topic_not_found")
    assert (error.json["topic"], over) == ("q", OVER)
    assert site.timers() == before
    assert api.ask("GET", f"/v0/topics/{queue}").status == 404


def test_a_connection_is_usable_after_its_stream(
    site: BareTopics, api: TopicsClient, queue: str
) -> None:
    worker = idle(site)
    api.ask("DELETE", f"/v0/topics/{queue}")
    assert worker.events()[-1] == OVER
    assert worker.ask("GET", "/v0/health").status == 200


def test_a_job_that_is_dead_lettered_makes_room_for_the_next(
    site: BareTopics, api: TopicsClient
) -> None:
    api.put("q", type="queue", dead_letter="q.dlq")
    api.write("q", "a", "b")
    worker = stream(site, "node=w&max=1")
    assert [event.id for event in worker.events()] == ["", "1"]
    api.ok("q/dead-letter", end([1]))
    assert seqs(worker.jobs()) == [2]
    assert [one["data"] for one in api.diff("q.dlq")["records"]] == ["a"]


def test_no_more_is_pushed_than_is_read(site: BareTopics, api: TopicsClient, queue: str) -> None:
    api.write(queue, *["x" * 400_000] * 20)
    worker = site.connect()
    request = b"GET /v0/topics/q/work?node=w&max=15 HTTP/1.1\r\nHost: x\r\n\r\n"
    worker.session.receive(request, site.now_ms)
    assert worker.session.is_stalled
    assert api.state(queue)["queue"]["in_flight"] < 5
    worker.collect()
    assert worker.unread.count(b"event: job") == 15
    assert api.state(queue)["queue"]["in_flight"] == 15
    worker.session.is_stalled = True
    worker.close()
    assert api.state(queue)["queue"]["ready"] == 20


# -- silence ---------------------------------------------------------------------------------------


def test_a_silent_stream_says_something_now_and_then(
    site: BareTopics, api: TopicsClient, queue: str
) -> None:
    worker = idle(site)
    site.tick(14_999)
    assert worker.events() == []
    site.tick(1)
    assert worker.events() == [HEARTBEAT]
    site.tick(14_000)
    api.write(queue, 1)
    assert seqs(worker.jobs()) == [1]
    site.tick(14_999)
    assert worker.events() == []
    site.tick(1)
    assert worker.events() == [HEARTBEAT]


def test_a_stream_to_an_old_client(site: BareTopics, api: TopicsClient, queue: str) -> None:
    worker = site.connect()
    worker.feed(b"GET /v0/topics/q/work?node=w HTTP/1.0\r\n\r\n")
    api.write(queue, 1)
    head, _, body = worker.unread.partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert body.startswith(b"retry: 2000\n\nid: 1\nevent: job\ndata: {")
    assert body.endswith(b"}\n\n")
