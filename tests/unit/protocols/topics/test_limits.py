"""How much callers may use, and that a call beyond the limit is refused and changes nothing."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.clients.topics import TopicsClient
from tests.support.doors.topics import BareTopics
from tests.support.site.storage import MemoryStorage

RECORD = {"records": [{"data": 1}]}


def limit_of(site: BareTopics, method: str, path: str, body: object = None, key: str = "") -> Any:
    """Ask for too much; return which limit was met, and how much it is."""
    answer = site.connect(key).ask(method, path, body)
    assert answer.refusal == (429, "throttled")
    assert answer.headers["retry-after"] == "1"
    detail = answer.json["error"]["detail"]
    assert set(detail) == {"limit", "max"}
    return detail["limit"], detail["max"]


# -- topics ----------------------------------------------------------------------------------------


def test_there_are_only_so_many_topics(site: BareTopics, api: TopicsClient) -> None:
    site.topics.limits.topics = 2
    api.put("a")
    api.put("b", type="queue")
    full = ("max_topics", 2)
    assert limit_of(site, "PUT", "/v0/topics/c", {}) == full
    assert limit_of(site, "PUT", "/v0/topics/c", {"type": "queue"}) == full
    assert limit_of(site, "POST", "/v0/topics/c", RECORD) == full
    assert limit_of(site, "POST", "/v0/topics/c", {**RECORD, "config": {"type": "queue"}}) == full
    assert limit_of(site, "PUT", "/v0/routers/r", {"source": "a", "dest": "c"}) == full
    assert api.ask("GET", "/v0/topics/c").status == 404
    assert api.ask("GET", "/v0/routers/r").status == 404
    api.put("a", ttl_ms=1000)
    api.write("b", 1)
    assert api.ask("DELETE", "/v0/topics/a").status == 200
    api.write("c", 1)


def test_tubes_that_are_only_looked_at_are_no_topics(site: BareTopics, api: TopicsClient) -> None:
    site.topics.limits.topics = 2
    site.beanstalk().say(b"watch x\r\nwatch y\r\nwatch z\r\n")
    api.put("a")
    api.put("b")
    assert limit_of(site, "PUT", "/v0/topics/c", {}) == ("max_topics", 2)


def test_no_limit_is_none(site: BareTopics, api: TopicsClient) -> None:
    limits = site.topics.limits
    limits.topics = limits.routers = limits.watches = limits.streams = limits.total_bytes = 0
    limits.streams_per_key = limits.waiting_per_key = 0
    for name in "abc":
        api.write(name, 1)
    assert api.ask("PUT", "/v0/routers/r", {"source": "a", "dest": "d"}).status == 201
    answer = api.ask("POST", "/v0/watch", {"topics": {"a": {}}})
    site.connect().listen(answer.json["stream_url"])


# -- bytes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["log", "queue"])
def test_there_are_only_so_many_bytes(site: BareTopics, api: TopicsClient, kind: str) -> None:
    site.topics.limits.total_bytes = 5000
    api.put("t", type=kind)
    api.put("u", type=kind)
    api.write("t", "x" * 3000)
    big = {"records": [{"data": "y" * 1000}, {"data": "y" * 1000, "meta": {"a": 1}}]}
    assert limit_of(site, "POST", "/v0/topics/u", big) == ("max_total_bytes", 5000)
    assert limit_of(site, "POST", "/v0/topics/new", big) == ("max_total_bytes", 5000)
    assert api.ask("GET", "/v0/topics/new").status == 404
    assert api.state("u")["count"] == 0
    api.write("u", "z" * 500)
    api.ok("t/delete", {"before_seq": 9})
    site.tick(1000)
    assert [api.post("u", big).status for _ in range(2)] == [200, 200]
    assert limit_of(site, "POST", "/v0/topics/t", big | {"node": "a"})[0] == "max_total_bytes"


def stage_body(chunk: int, size: int) -> dict[str, object]:
    place = {"topic": "t", "part": 0, "attempt": 0, "chunk": chunk}
    return {**place, "records": [{"data": "x" * (size - 2)}]}


def test_staged_bytes_count_too(site: BareTopics, api: TopicsClient) -> None:
    path = "/v0/txns/x/stage"
    full = ("max_total_bytes", 5000)
    site.topics.limits.total_bytes = 5000
    api.put("t")
    api.put("u")
    assert api.ask("POST", path, stage_body(0, 3000)).status == 200
    site.tick(1000)
    assert "topics_txns_staged_bytes 3000\n" in api.ask("GET", "/v0/metrics").body.decode()
    big = {"records": [{"data": "y" * 3000}]}
    assert limit_of(site, "POST", "/v0/topics/u", big) == full
    assert limit_of(site, "POST", path, stage_body(1, 3000)) == full
    assert limit_of(site, "POST", "/v0/txns/y/stage", stage_body(0, 3000)) == full
    assert api.ask("GET", "/v0/txns/y").json["state"] == "unknown"
    # What was staged already needs no room again.
    assert api.ask("POST", path, stage_body(0, 3000)).json["duplicate"]
    part = {"topic": "t", "part": 0, "attempt": 0, "chunks": 1, "rows": 1}
    assert api.ask("POST", "/v0/txns/x/commit", {"parts": [part]}).status == 200
    site.tick(1000)
    assert "topics_txns_staged_bytes 0\n" in api.ask("GET", "/v0/metrics").body.decode()
    assert limit_of(site, "POST", "/v0/topics/u", big) == full
    assert api.ask("POST", path, stage_body(0, 3000)).refusal == (409, "committed")
    api.ok("t/delete", {"before_seq": 9})
    site.tick(1000)
    assert api.ask("POST", "/v0/txns/y/stage", stage_body(0, 4000)).status == 200
    site.tick(1000)
    assert limit_of(site, "POST", "/v0/topics/u", big) == full
    assert api.ask("DELETE", "/v0/txns/y").status == 200
    site.tick(1000)
    assert api.post("u", big).status == 200


def test_staged_bytes_count_after_a_restart_too() -> None:
    site = BareTopics(MemoryStorage())
    site.api.put("t")
    assert site.api.ask("POST", "/v0/txns/x/stage", stage_body(0, 3000)).status == 200
    after = site.again()
    after.topics.limits.total_bytes = 5000
    body = stage_body(1, 3000)
    assert limit_of(after, "POST", "/v0/txns/x/stage", body) == ("max_total_bytes", 5000)


# -- streams ---------------------------------------------------------------------------------------


def watch_path(api: TopicsClient) -> str:
    return str(api.ask("POST", "/v0/watch", {"topics": {"q": {}}}).json["stream_url"])


def test_there_are_only_so_many_streams(site: BareTopics, api: TopicsClient) -> None:
    api.put("q", type="queue")
    site.topics.limits.streams = 2
    first, second = site.connect(), site.connect()
    first.listen("/v0/topics/q/work?node=a")
    second.listen(watch_path(api))
    full = ("max_sse_connections", 2)
    path = watch_path(api)
    assert limit_of(site, "GET", "/v0/topics/q/work?node=b") == full
    assert limit_of(site, "GET", path) == full
    api.write("q", 1)
    assert len(first.events()) == 2
    first.close()
    third = site.connect()
    third.listen(path)
    assert limit_of(site, "GET", "/v0/topics/q/work?node=b") == full
    second.shut_down()
    site.connect().listen("/v0/topics/q/work?node=b")


def test_a_stream_that_takes_the_place_of_another_needs_no_other(
    site: BareTopics, api: TopicsClient
) -> None:
    api.put("q", type="queue")
    site.topics.limits.streams = 1
    path = watch_path(api)
    first, second = site.connect(), site.connect()
    first.listen(path)
    second.listen(path)
    assert first.events()[-2].json["code"] == "stream_replaced"
    assert limit_of(site, "GET", "/v0/topics/q/work?node=b")[1] == 1
    first.close()
    assert limit_of(site, "GET", "/v0/topics/q/work?node=b")[1] == 1
    second.close()
    assert site.topics.limits.streams_count == 0


def test_a_topic_that_goes_frees_its_streams(site: BareTopics, api: TopicsClient) -> None:
    api.put("q", type="queue")
    worker = site.connect()
    worker.listen("/v0/topics/q/work?node=a")
    assert site.topics.limits.streams_count == 1
    api.ask("DELETE", "/v0/topics/q")
    assert site.topics.limits.streams_count == 0
    worker.close()
    assert site.topics.limits.streams_count == 0


# -- per key ---------------------------------------------------------------------------------------


@pytest.fixture
def locked() -> BareTopics:
    """A port with two keys, where each may have two of everything."""
    site = BareTopics(keys="one,two")
    site.topics.limits.streams_per_key = 2
    site.topics.limits.waiting_per_key = 2
    site.connect("one").put("q", type="queue")
    site.connect("one").put("log")
    return site


def test_a_key_has_only_so_many_streams(locked: BareTopics) -> None:
    workers = [locked.connect("one") for _ in range(2)]
    for worker in workers:
        worker.listen("/v0/topics/q/work?node=a")
    path = "/v0/topics/q/work?node=a"
    assert limit_of(locked, "GET", path, key="one") == ("max_sse_connections_per_key", 2)
    locked.connect("two").listen(path)
    workers[0].close()
    locked.connect("one").listen(path)
    locked.check()


def _stay(site: BareTopics, callers: list[TopicsClient]) -> None:
    assert site.now_ms > 0
    callers[0].close()


def _answer(site: BareTopics, callers: list[TopicsClient]) -> None:
    site.connect("two").write("log", 1)
    assert [caller.hear() is not None for caller in callers] == [True, False]


def _shut_down(site: BareTopics, callers: list[TopicsClient]) -> None:
    assert site.now_ms > 0
    callers[1].shut_down()


@pytest.mark.parametrize("end", [_stay, _answer, _shut_down])
def test_a_key_has_only_so_many_calls_that_wait(
    locked: BareTopics, end: Callable[[BareTopics, list[TopicsClient]], None]
) -> None:
    callers = [locked.connect("one") for _ in range(2)]
    callers[0].send("POST", "/v0/topics/log/diff", {"wait_ms": 5000})
    callers[1].send("POST", "/v0/topics/q/claim", {"node": "a", "wait_ms": 5000})
    full = ("max_inflight_per_key", 2)
    claim = {"node": "a", "wait_ms": 1}
    assert limit_of(locked, "POST", "/v0/topics/q/claim", claim, "one") == full
    assert limit_of(locked, "POST", "/v0/topics/log/diff", {"wait_ms": 1}, "one") == full
    assert limit_of(locked, "POST", "/v0/topics/q/diff", {"wait_ms": 1}, "one") == full
    assert locked.connect("one").claim("q")["count"] == 0
    other = locked.connect("two")
    other.send("POST", "/v0/topics/q/claim", claim)
    assert other.hear() is None
    end(locked, callers)
    again = locked.connect("one")
    again.send("POST", "/v0/topics/q/claim", claim)
    assert again.hear() is None
    locked.check()


def test_who_waits_for_a_share_counts_too(locked: BareTopics) -> None:
    locked.topics.limits.waiting_per_key = 1
    locked.connect("one").put("q", type="queue", claim_jitter_ms=50)
    first = locked.connect("one")
    first.send("POST", "/v0/topics/q/claim", {"node": "a"})
    body = {"node": "b"}
    assert limit_of(locked, "POST", "/v0/topics/q/claim", body, "one")[1] == 1
    locked.tick(50)
    assert first.hear() is not None
    second = locked.connect("one")
    second.send("POST", "/v0/topics/q/claim", body)
    assert second.hear() is None


# -- bodies ----------------------------------------------------------------------------------------


def test_a_body_has_only_so_many_bytes(site: BareTopics) -> None:
    site.door.body_max = 100
    small = b'{"records": [{"data": 1}]}'
    assert site.connect().post("t", small + b" " * (100 - len(small))).status == 201
    answer = site.connect().post("t", small + b" " * (101 - len(small)))
    assert answer.refusal == (413, "payload_too_large")
    assert site.api.state("t")["count"] == 1


# -- what a caller takes ---------------------------------------------------------------------------


@pytest.mark.parametrize("accept", ["text/html", "text/event-stream", "application/json;q=0"])
def test_who_takes_no_json_is_told_that_there_is_nothing_else(
    api: TopicsClient, accept: str
) -> None:
    headers = {"Accept": accept}
    refusal = (406, "not_acceptable")
    api.put("t")
    for path in ("", "/diff"):
        assert api.post(f"t{path}", RECORD, headers).refusal == refusal
    for path in ("topics", "topics/t", "routers"):
        assert api.ask("GET", f"/v0/{path}", None, headers).refusal == refusal
    assert api.state("t")["count"] == 0
    assert api.ask("GET", "/v0/health", None, headers).status == 200


@pytest.mark.parametrize("accept", ["*/*", "application/json", "text/html,*/*;q=0.8"])
def test_who_takes_json_is_served(api: TopicsClient, accept: str) -> None:
    assert api.post("t", RECORD, {"Accept": accept}).status == 201


def test_counters_are_shown_as_text_or_as_json(api: TopicsClient) -> None:
    for accept, kind in (
        ("text/plain", "text/plain; version=0.0.4"),
        ("text/*", "text/plain; version=0.0.4"),
        ("application/json", "application/json"),
    ):
        answer = api.ask("GET", "/v0/metrics", None, {"Accept": accept})
        assert answer.headers["content-type"] == kind
    answer = api.ask("GET", "/v0/metrics", None, {"Accept": "image/png"})
    assert answer.refusal == (406, "not_acceptable")


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream;q=0"])
def test_a_stream_is_nothing_else(api: TopicsClient, accept: str) -> None:
    api.put("q", type="queue")
    for path in ("/v0/topics/q/work?node=w", watch_path(api)):
        answer = api.ask("GET", path, None, {"Accept": accept})
        assert answer.refusal == (406, "not_acceptable")
