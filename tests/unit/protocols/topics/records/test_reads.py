"""Topics read from a cursor: pages, filters, gaps, and waiting for more."""

import json
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


def seqs(page: Any) -> list[int]:
    return [one["$seq"] for one in page["records"]]


# -- pages -----------------------------------------------------------------------------------------


def test_a_page(site: BareTopics, topic: str) -> None:
    site.api.write(topic, "a", "b")
    assert site.api.diff(topic) == {
        "topic": "t",
        "records": [
            {"$seq": 1, "$ts": site.now_ms, "data": "a"},
            {"$seq": 2, "$ts": site.now_ms, "data": "b"},
        ],
        "next_from_seq": 2,
        "head_seq": 2,
        "earliest_seq": 1,
        "caught_up": True,
        "tombstone": None,
        "lag": 0,
    }


def test_an_empty_topic_is_read_with_an_empty_body(api: TopicsClient, topic: str) -> None:
    assert said(api.ask("POST", "/v0/topics/t/diff")) == {
        "topic": "t",
        "records": [],
        "next_from_seq": 0,
        "head_seq": 0,
        "earliest_seq": 1,
        "caught_up": True,
        "tombstone": None,
        "lag": 0,
    }
    assert topic == "t"


def test_the_cursor_is_what_was_read_last(api: TopicsClient, topic: str) -> None:
    api.write(topic, *range(10))
    page = api.diff(topic, from_seq=4, limit=3)
    assert seqs(page) == [5, 6, 7]
    assert (page["next_from_seq"], page["lag"], page["caught_up"]) == (7, 3, False)
    page = api.diff(topic, from_seq=7, limit=3)
    assert (seqs(page), page["caught_up"]) == ([8, 9, 10], True)
    page = api.diff(topic, from_seq=10)
    assert (seqs(page), page["next_from_seq"], page["caught_up"]) == ([], 10, True)


@pytest.mark.parametrize(
    ("limit", "count"),
    [(None, 256), (0, 256), (1, 1), (999, 999), (1000, 1000), (1001, 1000), (1 << 64, 1000)],
)
def test_a_page_has_at_most_so_many_records(
    api: TopicsClient, topic: str, limit: int | None, count: int
) -> None:
    api.write(topic, *range(1100))
    page = api.diff(topic, limit=limit)
    assert seqs(page) == list(range(1, count + 1))
    assert page["lag"] == 1100 - count


@pytest.mark.parametrize(("most", "count"), [(1, 1), (100, 2), (0, 30), (None, 30), (1 << 64, 30)])
def test_a_page_has_at_most_so_many_bytes_but_a_record(
    api: TopicsClient, topic: str, most: int | None, count: int
) -> None:
    api.write(topic, *["x"] * 30)
    page = api.diff(topic, max_batch_bytes=most)
    assert seqs(page) == list(range(1, count + 1))
    assert page["next_from_seq"] == count


def test_a_long_page_is_sent_in_pieces(site: BareTopics, api: TopicsClient, topic: str) -> None:
    api.write(topic, *[f"{at}{'x' * 90_000}" for at in range(60)])
    asked = b'{"limit":1000,"max_batch_bytes":8388608}'
    head = f"POST /v0/topics/{topic}/diff HTTP/1.1\r\nHost: h\r\nContent-Length: {len(asked)}\r\n"
    head += "Content-Type: application/json\r\n\r\n"
    api.session.receive(head.encode() + asked, site.now_ms)
    pieces = api.session.take_pieces()
    assert max(map(len, pieces)) < 2 << 20 < sum(map(len, pieces))
    lines, _, body = b"".join(pieces).partition(b"\r\n\r\n")
    assert b"Content-Length: %d" % len(body) in lines.split(b"\r\n")
    assert [one["data"][:2] for one in json.loads(body)["records"]][10:] == [
        f"{at}" for at in range(10, 60)
    ]


def test_a_page_of_large_records_ends_early(api: TopicsClient, topic: str) -> None:
    api.write(topic, *["x" * 400_000] * 5)
    assert len(api.diff(topic)["records"]) == 2
    assert len(api.diff(topic, max_batch_bytes=64 << 20)["records"]) == 5


def test_following_the_cursor_gives_all_records_once(api: TopicsClient, topic: str) -> None:
    for at in range(20):
        api.ok(topic, {"records": [{"data": at, "node": f"n{at % 3}", "tag": f"t{at % 4}"}]})
    api.ok(f"{topic}/delete", {"match": ["tag", "Eq", "t1"]})
    expected = [at + 1 for at in range(20) if at % 4 != 1 and at % 3 != 0]
    for limit in (1, 2, 3, 7, 50):
        found: list[int] = []
        cursor = 0
        while True:
            page = api.diff(topic, from_seq=cursor, limit=limit, node="n0")
            found += seqs(page)
            assert page["lag"] == page["head_seq"] - page["next_from_seq"]
            if page["caught_up"]:
                break
            assert page["next_from_seq"] > cursor
            cursor = page["next_from_seq"]
        assert found == expected


@pytest.mark.parametrize(
    "query",
    [
        {"from_seq": -1},
        {"from_seq": "1"},
        {"from_seq": 1.5},
        {"from_seq": True},
        {"limit": -1},
        {"limit": "all"},
        {"wait_ms": -1},
        {"wait_ms": []},
        {"max_batch_bytes": {}},
        {"node": 5},
        {"node": [5]},
        {"node": {"a": "b"}},
        {"node": "x" * 129},
        {"node": ["x" * 129]},
        {"include_tags": "yes"},
        {"include_meta": 0},
        [],
        5,
    ],
)
def test_an_invalid_read_is_refused(api: TopicsClient, topic: str, query: object) -> None:
    assert api.post(f"{topic}/diff", query).refusal == (400, "invalid_request")


def test_what_is_null_was_not_said(api: TopicsClient, topic: str) -> None:
    api.write(topic, 1)
    names = ("from_seq", "limit", "node", "include_tags", "include_meta", "wait_ms")
    assert seqs(api.diff(topic, **dict.fromkeys(names))) == [1]


# -- own records -----------------------------------------------------------------------------------


@pytest.fixture
def talk(api: TopicsClient, topic: str) -> str:
    """A topic with records of two nodes and without a node."""
    sent = [{"data": 1, "node": "a"}, {"data": 2, "node": "b"}, {"data": 3}, {"data": 4}]
    api.ok(topic, {"records": [*sent, {"data": 5, "node": "a"}]})
    return topic


@pytest.mark.parametrize(
    ("node", "found"),
    [
        ("a", [2, 3, 4]),
        ("b", [1, 3, 4, 5]),
        ("A", [1, 2, 3, 4, 5]),
        ("", [1, 2, 3, 4, 5]),
        (["a"], [2, 3, 4]),
        (["a", "b", "c"], [3, 4]),
        ([], [1, 2, 3, 4, 5]),
        ([""], [1, 2, 3, 4, 5]),
    ],
)
def test_a_reader_is_not_given_its_own(
    api: TopicsClient, talk: str, node: object, found: list[int]
) -> None:
    page = api.diff(talk, node=node)
    assert seqs(page) == found
    assert (page["next_from_seq"], page["caught_up"]) == (5, True)


def test_own_records_move_the_cursor_though_none_is_shown(api: TopicsClient, topic: str) -> None:
    api.write(topic, 1, 2, 3, node="a")
    page = api.diff(topic, node="a", limit=1)
    assert (page["records"], page["next_from_seq"], page["caught_up"]) == ([], 3, True)


def test_own_records_do_not_count_against_the_limit(api: TopicsClient, topic: str) -> None:
    api.write(topic, 1, 2, 3, node="a")
    api.write(topic, 4, 5)
    page = api.diff(topic, node="a", limit=1)
    assert (seqs(page), page["next_from_seq"]) == ([4], 4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_topic_may_show_everybody_everything(api: TopicsClient, kind: str) -> None:
    api.put("t", type=kind, dedupe_node=False)
    api.write("t", 1, node="a")
    assert seqs(api.diff("t", node="a")) == [1]


# -- what was lost ---------------------------------------------------------------------------------


def stone(gap: tuple[int, int], reason: str, earliest: int, head: int) -> dict[str, object]:
    return {
        "gap_from": gap[0],
        "gap_to": gap[1],
        "reason": reason,
        "missed_estimate": gap[1] - gap[0] + 1,
        "earliest_seq": earliest,
        "head_seq": head,
    }


@pytest.mark.parametrize("kind", KINDS)
def test_a_late_reader_learns_which_records_the_cap_removed(api: TopicsClient, kind: str) -> None:
    api.put("t", type=kind, cap_records=2)
    for data in range(5):
        api.write("t", data)
    page = api.diff("t")
    assert page["tombstone"] == stone((1, 3), "cap", 4, 5)
    assert (seqs(page), page["earliest_seq"], page["next_from_seq"]) == ([4, 5], 4, 5)
    assert api.diff("t", from_seq=2)["tombstone"] == stone((3, 3), "cap", 4, 5)
    assert api.diff("t", from_seq=3)["tombstone"] is None
    assert api.diff("t", from_seq=5)["tombstone"] is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_late_reader_learns_which_records_were_too_old(site: BareTopics, kind: str) -> None:
    api = site.api
    api.put("t", type=kind, ttl_ms=1000)
    api.write("t", 1, 2)
    site.tick(900)
    api.write("t", 3)
    site.tick(200)
    page = api.diff("t")
    assert page["tombstone"] == stone((1, 2), "ttl", 3, 3)
    assert seqs(page) == [3]
    site.tick(2000)
    page = api.diff("t", from_seq=1)
    assert page["tombstone"] == stone((2, 3), "ttl", 4, 3)
    assert (page["records"], page["next_from_seq"], page["caught_up"]) == ([], 3, True)


@pytest.mark.parametrize("kind", KINDS)
def test_what_went_for_both_reasons_is_mixed(site: BareTopics, kind: str) -> None:
    api = site.api
    api.put("t", type=kind, ttl_ms=1000, cap_records=3)
    for data in range(4):
        api.write("t", data)
    site.tick(1100)
    api.write("t", 5)
    assert api.diff("t")["tombstone"] == stone((1, 4), "mixed", 5, 5)
    assert api.diff("t", from_seq=1)["tombstone"] == stone((2, 4), "ttl", 5, 5)


def test_who_has_read_further_than_there_is_starts_again(api: TopicsClient, topic: str) -> None:
    api.write(topic, 1, 2, 3, 4)
    api.ask("DELETE", "/v0/topics/t")
    api.put("t", type="log")
    api.write("t", 1, 2)
    page = api.diff("t", from_seq=4)
    assert page["tombstone"]["reason"] == "recreated"
    assert (seqs(page), page["next_from_seq"], page["caught_up"]) == ([1, 2], 2, True)
    assert api.diff("t", from_seq=2)["tombstone"] is None


@pytest.mark.parametrize("from_seq", [3, 1 << 62, (1 << 63) - 1, 1 << 64])
def test_a_cursor_ahead_of_the_topic_starts_again(
    api: TopicsClient, topic: str, from_seq: int
) -> None:
    api.write(topic, 1, 2)
    page = api.diff(topic, from_seq=from_seq)
    assert page["tombstone"]["reason"] == "recreated"
    assert (seqs(page), page["next_from_seq"], page["lag"]) == ([1, 2], 2, 0)


def test_what_was_deleted_leaves_no_stone(api: TopicsClient, topic: str) -> None:
    api.write(topic, 1, 2, 3)
    api.ok(f"{topic}/delete", {"before_seq": 3})
    page = api.diff(topic)
    assert page["tombstone"] is None
    assert (seqs(page), page["earliest_seq"]) == ([3], 3)
    api.ok(f"{topic}/delete", {"before_seq": 4})
    page = api.diff(topic, from_seq=1)
    assert (page["tombstone"], page["records"], page["next_from_seq"]) == (None, [], 3)
    assert page["earliest_seq"] == 4


# -- waiting ---------------------------------------------------------------------------------------


def waits(site: BareTopics, **query: object) -> TopicsClient:
    """Make a reader wait for more."""
    reader = site.connect()
    reader.send("POST", "/v0/topics/t/diff", query)
    assert not reader.unread
    return reader


def page_of(reader: TopicsClient) -> Any:
    answer = reader.hear()
    assert answer is not None
    return said(answer)


def test_who_waits_is_answered_by_a_write(site: BareTopics, topic: str) -> None:
    before = site.timers()
    site.api.write(topic, 1)
    reader = waits(site, from_seq=1, wait_ms=5000)
    site.tick(1000)
    assert reader.hear() is None
    site.api.write(topic, 2)
    page = page_of(reader)
    assert (seqs(page), page["next_from_seq"], page["lag"]) == ([2], 2, 0)
    assert site.timers() == before
    site.tick(10_000)
    assert reader.hear() is None
    assert seqs(reader.diff(topic)) == [1, 2]


def test_who_waits_is_not_answered_by_an_own_write(site: BareTopics, topic: str) -> None:
    reader = waits(site, node=["me", "too"], wait_ms=5000)
    site.api.write(topic, 1, node="me")
    site.api.write(topic, 2, 3, node="too")
    assert reader.hear() is None
    site.tick(4999)
    site.api.write(topic, 4, node="you")
    page = page_of(reader)
    assert (seqs(page), page["next_from_seq"]) == ([4], 4)


def test_who_waits_is_answered_by_time(site: BareTopics, topic: str) -> None:
    before = site.timers()
    reader = waits(site, node="me", wait_ms=5000)
    site.api.write(topic, 1, node="me")
    site.tick(4999)
    assert reader.hear() is None
    site.tick(1)
    page = page_of(reader)
    assert (page["records"], page["next_from_seq"], page["caught_up"]) == ([], 1, True)
    assert site.timers() == before


def test_nobody_waits_longer_than_half_a_minute(site: BareTopics, topic: str) -> None:
    assert topic == "t"
    reader = waits(site, wait_ms=1 << 64)
    site.tick(29_999)
    assert reader.hear() is None
    site.tick(1)
    assert page_of(reader)["records"] == []


def test_who_has_something_to_read_does_not_wait(site: BareTopics, topic: str) -> None:
    site.api.write(topic, 1, 2)
    assert seqs(site.api.diff(topic, from_seq=1, wait_ms=5000)) == [2]
    assert site.api.diff(topic, from_seq=9, wait_ms=5000)["tombstone"] is not None


def test_who_leaves_waits_no_more(site: BareTopics, topic: str) -> None:
    before = site.timers()
    readers = [waits(site, wait_ms=5000) for _ in range(3)]
    assert site.timers() == before + 3
    readers[1].close()
    assert site.timers() == before + 2
    site.api.write(topic, 1)
    assert [one.unread != b"" for one in readers] == [True, False, True]
    assert site.timers() == before


def test_who_sends_no_more_is_answered_at_once(site: BareTopics, topic: str) -> None:
    assert topic == "t"
    reader = waits(site, wait_ms=5000)
    reader.shut_down()
    assert page_of(reader)["records"] == []
    assert not reader.is_open


def test_a_waiting_call_ends_when_the_topic_is_removed(site: BareTopics, topic: str) -> None:
    before = site.timers()
    site.api.write(topic, 1)
    reader = waits(site, from_seq=1, wait_ms=5000)
    site.api.ask("DELETE", "/v0/topics/t")
    answer = reader.hear()
    assert answer is not None
    assert answer.refusal == (404, "topic_not_found")
    assert site.timers() == before


def test_who_waits_is_not_answered_by_a_delete_or_a_configuration(
    site: BareTopics, topic: str
) -> None:
    site.api.write(topic, 1)
    reader = waits(site, from_seq=1, wait_ms=5000)
    site.api.ok(f"{topic}/delete", {"before_seq": 9})
    site.api.put(topic, type=site.api.state(topic)["type"], cap_records=5)
    assert reader.hear() is None
    site.api.write(topic, 2)
    assert seqs(page_of(reader)) == [2]


@pytest.mark.parametrize("is_claimed", [False, True])
def test_who_waits_for_jobs_is_shown_those_of_every_door(
    site: BareTopics, *, is_claimed: bool
) -> None:
    site.api.put("t", type="queue")
    reader = waits(site, wait_ms=5000)
    beanstalk = site.beanstalk()
    worker = site.connect()
    if is_claimed:
        worker.send("POST", "/v0/topics/t/claim", {"node": "w", "wait_ms": 9000})
    beanstalk.say(b"use t\r\nput 0 0 60 1\r\n7\r\n")
    site.settle()
    assert [one["data"] for one in page_of(reader)["records"]] == [7]
    assert bool(worker.unread) == is_claimed


def test_who_waits_for_jobs_sees_a_whole_write(site: BareTopics) -> None:
    site.api.put("t", type="queue")
    reader = waits(site, wait_ms=5000)
    site.api.write("t", 1, 2, 3)
    assert seqs(page_of(reader)) == [1, 2, 3]


def test_a_job_that_changes_is_no_news_to_who_has_seen_it(site: BareTopics) -> None:
    site.api.put("t", type="queue")
    site.api.write("t", 1, 2)
    reader = waits(site, from_seq=2, wait_ms=5000)
    site.api.claim("t", max=2)
    site.api.ok("t/nack", {"node": "w", "seqs": [1]})
    site.api.ok("t/ack", {"node": "w", "seqs": [2]})
    assert reader.hear() is None
    site.tick(5000)
    page = page_of(reader)
    assert (page["records"], page["next_from_seq"], page["head_seq"]) == ([], 2, 2)


def test_a_queue_that_nobody_configured_stays_while_somebody_waits(site: BareTopics) -> None:
    producer = site.beanstalk()
    producer.say(b"use t\r\nput 0 0 60 1\r\n7\r\nuse other\r\n")
    readers = [waits(site, from_seq=1, wait_ms=ms) for ms in (5000, 6000)]
    worker = site.beanstalk()
    worker.say(b"watch t\r\nreserve\r\ndelete 1\r\nignore t\r\n")
    site.tick(5000)
    assert page_of(readers[0])["records"] == []
    producer.say(b"use t\r\nput 0 0 60 1\r\n8\r\nuse other\r\n")
    site.settle()
    assert seqs(page_of(readers[1])) == [2]
    worker.say(b"delete 2\r\n")
    assert site.api.post("t/diff", {}).refusal == (404, "topic_not_found")


def test_nobody_listens_once_nobody_waits(site: BareTopics) -> None:
    site.api.put("t", type="queue")
    readers = [waits(site, wait_ms=5000) for _ in range(3)]
    assert site.yard.bus.is_on
    readers[0].close()
    readers[1].shut_down()
    site.api.write("t", 1)
    assert not site.yard.bus.is_on


def test_calls_behind_one_that_waits_are_answered_after_it(site: BareTopics, topic: str) -> None:
    reader = waits(site, wait_ms=5000)
    reader.send("GET", "/v0/health")
    assert reader.hear() is None
    site.api.write(topic, 1)
    assert seqs(page_of(reader)) == [1]
    answer = reader.hear()
    assert answer is not None
    assert answer.json["status"] == "ok"


# -- deleting --------------------------------------------------------------------------------------


@pytest.fixture
def tagged(api: TopicsClient, topic: str) -> str:
    """A topic with tags."""
    tags = ("a:1", "a:2", "b:1", "", "a", 'q"\\ä', "a*")
    api.ok(topic, {"records": [{"data": at, "tag": tag} for at, tag in enumerate(tags)]})
    return topic


@pytest.mark.parametrize(
    ("query", "left"),
    [
        ({"match": ["tag", "Eq", "a:1"]}, [2, 3, 4, 5, 6, 7]),
        ({"match": "a:1"}, [2, 3, 4, 5, 6, 7]),
        ({"match": ["tag", "Eq", "a*"]}, [1, 2, 3, 4, 5, 6]),
        ({"match": ["tag", "Eq", 'q"\\ä']}, [1, 2, 3, 4, 5, 7]),
        ({"match": ["tag", "Glob", 'q"\\*']}, [1, 2, 3, 4, 5, 7]),
        ({"match": ["tag", "Glob", "a:*"]}, [3, 4, 5, 6, 7]),
        ({"match": ["tag", "Glob", "a*"]}, [3, 4, 6]),
        ({"match": "a*"}, [3, 4, 6]),
        ({"match": ["tag", "Glob", "*"]}, [4]),
        ({"match": ["tag", "Eq", "none"]}, [1, 2, 3, 4, 5, 6, 7]),
        ({"match": ["tag", "Eq", ""]}, [1, 2, 3, 4, 5, 6, 7]),
        ({"match": ["tag", "Glob", "a:*"], "before_seq": 2}, [2, 3, 4, 5, 6, 7]),
        ({"before_seq": 0}, [1, 2, 3, 4, 5, 6, 7]),
        ({"before_seq": 1}, [1, 2, 3, 4, 5, 6, 7]),
        ({"before_seq": 4}, [4, 5, 6, 7]),
        ({"before_seq": 480_000}, []),
        ({"before_seq": (1 << 64) - 1}, []),
    ],
)
def test_records_are_deleted_by_tag_and_seq(
    api: TopicsClient, tagged: str, query: dict[str, object], left: list[int]
) -> None:
    answer = api.ok(f"{tagged}/delete", query)
    assert set(answer) == {"topic", "deleted", "earliest_seq", "head_seq", "count", "bytes"}
    assert answer["deleted"] == 7 - len(left)
    assert answer["earliest_seq"] == (left[0] if left else 8)
    assert (answer["head_seq"], answer["count"], answer["bytes"]) == (7, len(left), len(left))
    assert seqs(api.diff(tagged)) == left
    assert api.ok(f"{tagged}/delete", query)["deleted"] == 0
    assert api.write(tagged, 1)["seqs"] == [8]


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"match": None, "before_seq": None},
        {"match": 5},
        {"match": {}},
        {"match": []},
        {"match": ["tag", "Eq"]},
        {"match": ["tag", "Eq", 5]},
        {"match": ["tag", "Eq", "a", "b"]},
        {"match": ["node", "Eq", "a"]},
        {"match": ["tag", "eq", "a"]},
        {"match": ["tag", "Glob", "a"]},
        {"match": ["tag", "Glob", "*a"]},
        {"match": ["tag", "Glob", "a*b*"]},
        {"match": ["tag", "In", "a"]},
        {"before_seq": -1},
        {"before_seq": "5"},
        {"before_seq": 1.5},
        [],
        b"",
    ],
)
def test_an_invalid_delete_deletes_nothing(api: TopicsClient, tagged: str, query: object) -> None:
    refusal = (400, "invalid_request")
    head = {"Content-Type": "application/json"}
    assert api.post(f"{tagged}/delete", query, head).refusal == refusal
    assert api.state(tagged)["count"] == 7


def test_what_comes_after_a_delete_is_not_deleted(api: TopicsClient, tagged: str) -> None:
    api.ok(f"{tagged}/delete", {"match": ["tag", "Eq", "a:1"], "before_seq": 480_000})
    api.ok(tagged, {"records": [{"data": 9, "tag": "a:1"}]})
    assert seqs(api.diff(tagged))[-1] == 8
