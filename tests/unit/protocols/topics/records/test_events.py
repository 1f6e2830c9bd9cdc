"""The topic `_events`: what it shows, who may read it, and that it cannot be written."""

from typing import Any

import pytest

from jobyard.engine.jobs.move import remove
from jobyard.errors import NameTaken
from tests.support.clients.streams import Line, StreamEvent
from tests.support.doors.streams import StreamsSite
from tests.support.site.site import ALL_HISTORY
from tests.support.site.storage import MemoryStorage

PATH = "/v0/topics/_events"


@pytest.fixture
def site() -> StreamsSite:
    """A yard that keeps history, and in which one job has run."""
    found = StreamsSite(storage=MemoryStorage(), window=ALL_HISTORY)
    found.write("mails", 1)
    found.ask("PUT", "/v0/topics/jobs", {"type": "queue"})
    found.write("jobs", {"n": 1})
    _, claimed = found.ask("POST", "/v0/topics/jobs/claim", {"node": "w", "max": 1})
    found.jump(20)
    seqs = [one["$seq"] for one in claimed["claimed"]]
    found.ask("POST", "/v0/topics/jobs/ack", {"node": "w", "seqs": seqs})
    found.commit()
    return found


def diff(site: StreamsSite, key: str = "", **asked: object) -> Any:
    status, answer = site.ask("POST", f"{PATH}/diff", asked, key)
    assert status == 200, answer
    return answer


def told(records: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(one["data"]["event"], one["data"]["queue"], one["data"]["state"]) for one in records]


def wait(site: StreamsSite, **asked: object) -> Line:
    line = site.connect()
    line.send("POST", f"{PATH}/diff", asked)
    assert line.end_turn() == b""
    return line


# -- reading ---------------------------------------------------------------------------------------


def test_the_life_of_a_job_is_read_like_a_log(site: StreamsSite) -> None:
    page = diff(site)
    assert told(page["records"]) == [
        ("enqueued", "jobs", "ready"),
        ("claimed", "jobs", "leased"),
        ("completed", "jobs", "gone"),
    ]
    assert (page["caught_up"], page["lag"], page["tombstone"]) == (True, 0, None)
    assert page["next_from_seq"] == page["head_seq"] >= page["records"][-1]["$seq"]
    wall = site.now_ms
    first, claimed, last = page["records"]
    assert first == {
        "$seq": first["$seq"],
        "$ts": wall - 20,
        "data": {
            "event": "enqueued",
            "queue": "jobs",
            "id": 1,
            "state": "ready",
            "family": "topics",
            "size": 8,
            "queue_seq": 1,
            "enqueued_at": wall - 20,
            "available_at": wall - 20,
        },
    }
    run = ("family", "door", "lease", "holder", "worker", "deliveries", "queue_seq")
    assert [claimed["data"][name] for name in run] == [last["data"][name] for name in run]
    assert (claimed["data"]["worker"], claimed["data"]["family"]) == ("w", "topics")
    assert (claimed["data"]["door"], claimed["data"]["ttl_ms"]) == ("topics", 30_000)
    assert last["data"]["claimed_at"] == wall - 20
    assert last["data"]["finished_at"] == wall == last["$ts"]
    assert last["data"]["deliveries"] == 1


def test_pages_are_bounded_and_go_on(site: StreamsSite) -> None:
    site.write("jobs", *range(50))
    site.commit()
    wanted = diff(site, limit=1000)["records"]
    assert len(wanted) == 53
    bounds: list[dict[str, Any]] = [{"limit": 7}, {"max_batch_bytes": 500}, {"max_batch_bytes": 1}]
    for asked in bounds:
        found: list[Any] = []
        after = 0
        while True:
            page = diff(site, from_seq=after, **asked)
            found += page["records"]
            after = page["next_from_seq"]
            if page["caught_up"]:
                break
            assert 0 < len(page["records"]) <= 7
            assert page["lag"] == page["head_seq"] - after
        assert found == wanted


def test_the_queue_is_the_tag(site: StreamsSite) -> None:
    assert all("$tag" not in one for one in diff(site)["records"])
    assert {one["$tag"] for one in diff(site, include_tags=True)["records"]} == {"jobs"}


def test_what_is_not_on_disk_is_not_shown(site: StreamsSite) -> None:
    head = diff(site)["head_seq"]
    site.write("jobs", 1)
    page = diff(site, from_seq=head)
    assert (page["records"], page["caught_up"], page["head_seq"]) == ([], True, head)
    site.commit()
    assert told(diff(site, from_seq=head)["records"]) == [("enqueued", "jobs", "ready")]


def test_a_reader_who_waits_is_answered_when_a_row_is_durable(site: StreamsSite) -> None:
    head = diff(site)["head_seq"]
    line = wait(site, from_seq=head, wait_ms=5000)
    # Records of logs are not rows.
    site.write("mails", 2)
    site.commit()
    assert line.end_turn() == b""
    site.write("jobs", 2)
    assert line.end_turn() == b""
    site.commit()
    assert b'"event":"enqueued"' in line.end_turn()
    late = wait(site, from_seq=diff(site)["head_seq"], wait_ms=50)
    site.jump(50)
    assert b'"records":[]' in late.end_turn()


def test_the_state_is_awaited_until_a_row_is_durable(site: StreamsSite) -> None:
    _, state = site.ask("GET", PATH)
    line = site.connect()
    line.send("GET", f"{PATH}?after_seq={state['head_row_seq']}&wait_ms=5000")
    assert line.end_turn() == b""
    # Records of logs move `head_seq` and are not rows.
    site.write("mails", 2)
    site.commit()
    assert line.end_turn() == b""
    site.write("jobs", 2)
    assert line.end_turn() == b""
    site.commit()
    answer = line.end_turn()
    assert b'"head_row_seq":%d,' % site.yard.journal.history.last_row in answer
    late = site.connect()
    late.send("GET", f"{PATH}?after_seq={1 << 40}&wait_ms=50")
    assert late.end_turn() == b""
    site.jump(50)
    assert b'"head_row_seq"' in late.end_turn()


def test_a_late_reader_gets_a_tombstone(site: StreamsSite) -> None:
    journal = site.yard.journal
    queue = site.yard.queues["jobs"]
    site.write("jobs", *["x" * 1000] * 200)
    site.commit()
    for job in list(site.yard.jobs.all()):
        remove(site.yard, job, site.now_ms)
    site.commit()
    assert queue.jobs_count() == 0
    journal.history.keep(ALL_HISTORY[0], 60_000)
    site.compact()
    page = diff(site, from_seq=3)
    stone = page["tombstone"]
    assert stone["gap_from"] == 4
    assert stone["gap_to"] == page["earliest_seq"] - 1 == journal.history.floor - 1
    assert page["records"][0]["$seq"] >= page["earliest_seq"]
    assert told(page["records"][-1:]) == [("removed", "jobs", "gone")]
    ahead = diff(site, from_seq=page["head_seq"] + 10)
    assert ahead["tombstone"]["reason"] == "recreated"


def test_it_is_shown_and_listed_like_any_topic(site: StreamsSite) -> None:
    status, state = site.ask("GET", PATH)
    assert status == 200
    assert (state["topic"], state["type"], state["read_only"]) == ("_events", "log", True)
    assert state["head_seq"] == diff(site)["head_seq"]
    assert state["next_seq"] == state["head_seq"] + 1
    assert state["config"]["ttl_ms"] == ALL_HISTORY[0]
    _, listed = site.ask("GET", "/v0/topics")
    assert [one["topic"] for one in listed["topics"]] == ["_events", "jobs", "mails"]
    _, page = site.ask("GET", "/v0/topics?page_size=1")
    _, page = site.ask("GET", f"/v0/topics?page_size=1&cursor={page['next_cursor']}")
    assert [one["topic"] for one in page["topics"]] == ["jobs"]
    _, listed = site.ask("GET", "/v0/topics?prefix=_")
    assert [one["topic"] for one in listed["topics"]] == ["_events"]


def test_without_history_there_is_no_such_topic() -> None:
    for site in (StreamsSite(), StreamsSite(storage=MemoryStorage())):
        assert site.ask("GET", PATH)[0] == 404
        status, answer = site.ask("POST", f"{PATH}/diff", {})
        assert (status, answer["error"]["code"]) == (404, "topic_not_found")
        status, answer = site.ask("POST", "/v0/watch", {"topics": {"_events": {}}})
        assert (status, answer["error"]["code"]) == (404, "topic_not_found")
        assert site.ask("GET", "/v0/topics")[1]["topics"] == []


def test_no_job_is_put_under_that_name(site: StreamsSite) -> None:
    with pytest.raises(NameTaken):
        site.put(b"x", "_events")
    assert site.ask("GET", PATH)[1]["type"] == "log"
    assert [one["topic"] for one in site.ask("GET", "/v0/topics")[1]["topics"]].count(
        "_events"
    ) == 1


# -- streams ---------------------------------------------------------------------------------------


def begin(site: StreamsSite, line: Line, where: dict[str, object]) -> list[StreamEvent]:
    _, answer = site.ask("POST", "/v0/watch", {"topics": {"_events": where}})
    return line.open_stream(answer["stream_url"])


def test_it_can_be_watched(site: StreamsSite) -> None:
    line = site.connect()
    events = begin(site, line, {})
    assert [one.name for one in events] == ["retry", "record", "caught-up"]
    assert len(events[1].data["records"]) == 3
    site.write("jobs", 5)
    assert line.events() == []
    site.commit()
    [record, caught_up] = line.events()
    assert told(record.data["records"]) == [("enqueued", "jobs", "ready")]
    assert caught_up.name == "caught-up"
    site.write("mails", 5)
    site.commit()
    assert [one.name for one in line.events()] in ([], ["caught-up"])
    line.close()
    site.write("jobs", 6)
    site.commit()


def test_a_watch_can_begin_at_the_end(site: StreamsSite) -> None:
    line = site.connect()
    events = begin(site, line, {"tail": True})
    assert [one.name for one in events] == ["retry", "caught-up"]


@pytest.fixture
def long_site(site: StreamsSite) -> StreamsSite:
    """A yard whose journal has many records that are not rows, and a row behind them."""
    site.write("jobs", 1)
    for _ in range(5):
        site.write("mails", "x" * 900_000)
        site.commit()
    site.write("jobs", 2)
    site.commit()
    return site


def test_a_page_looks_only_so_far_for_a_row(long_site: StreamsSite) -> None:
    after = diff(long_site, limit=4)["records"][-1]["$seq"]
    pages = 0
    while True:
        page = diff(long_site, from_seq=after)
        pages += 1
        if page["records"]:
            break
        assert not page["caught_up"]
        assert page["next_from_seq"] > after
        after = page["next_from_seq"]
    assert pages > 2
    assert told(page["records"]) == [("enqueued", "jobs", "ready")]


def test_who_waits_is_led_past_what_is_no_row(long_site: StreamsSite) -> None:
    after = diff(long_site, limit=4)["records"][-1]["$seq"]
    line = wait(long_site, from_seq=after, wait_ms=5000)
    turns = 0
    while not (heard := line.end_turn()):
        long_site.commit()
        turns += 1
    assert 1 < turns < 10
    assert b'"event":"enqueued"' in heard


def test_a_watch_is_led_past_what_is_no_row(long_site: StreamsSite) -> None:
    line = long_site.connect()
    events = begin(long_site, line, {})
    while events[-1].name != "caught-up":
        long_site.commit()
        events += line.events()
    records = [one for event in events if event.name == "record" for one in event.data["records"]]
    assert [one["data"]["event"] for one in records].count("enqueued") == 3


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", PATH, {}),
        ("DELETE", PATH, None),
        ("POST", PATH, {"records": [{"data": 1}]}),
        ("POST", f"{PATH}/delete", {"before_seq": 5}),
        ("PUT", "/v0/routers/r", {"source": "mails", "dest": "_events"}),
        ("PUT", "/v0/routers/r", {"source": "_events", "dest": "mails"}),
    ],
)
def test_it_cannot_be_changed(site: StreamsSite, method: str, path: str, body: object) -> None:
    status, answer = site.ask(method, path, body)
    assert (status, answer["error"]["code"]) == (403, "forbidden")
    assert answer["error"]["detail"] == {"reason": "read_only"}


@pytest.mark.parametrize("verb", ["claim", "ack", "nack", "extend", "redrive", "purge"])
def test_it_is_no_queue(site: StreamsSite, verb: str) -> None:
    status, answer = site.ask("POST", f"{PATH}/{verb}", {"node": "w", "seqs": [1]})
    assert (status, answer["error"]["code"]) == (409, "not_a_queue")
    status, answer = site.ask("GET", f"{PATH}/work?node=w")
    assert (status, answer["error"]["code"]) == (409, "not_a_queue")


@pytest.mark.parametrize("name", ["_event", "_events2", "_"])
def test_no_other_name_begins_like_it(site: StreamsSite, name: str) -> None:
    status, answer = site.ask("POST", f"/v0/topics/{name}/diff", {})
    assert (status, answer["error"]["code"]) == (400, "invalid_request")


def test_a_key_for_some_names_does_not_open_it() -> None:
    keys = "all,part:r:mails,under:r:_,named:r:_events,writer:w"
    site = StreamsSite(keys, MemoryStorage(), ALL_HISTORY)
    for key, status in (("all", 200), ("part", 403), ("under", 403), ("named", 200)):
        assert site.ask("POST", f"{PATH}/diff", {}, key)[0] == status
        assert site.ask("POST", "/v0/watch", {"topics": {"_events": {}}}, key)[0] == status
        listed = site.ask("GET", "/v0/topics", None, key)[1]["topics"]
        assert len(listed) == (status == 200)
    assert site.ask("POST", f"{PATH}/diff", {}, "writer")[0] == 403
