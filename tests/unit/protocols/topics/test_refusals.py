"""What the port refuses, in the words of the topics API, and that a refusal changes nothing."""

import json

import pytest

from jobyard.protocols.http.door import BODY_MAX
from jobyard.protocols.topics.body import FAULT_SIZE_MAX, SMALL_BODY_MAX
from jobyard.protocols.topics.records.writes import RECORDS_MAX
from tests.support.clients.http import JSON_BODY
from tests.support.clients.topics import TopicsClient, said
from tests.support.doors.topics import BareTopics
from tests.support.site.storage import MemoryStorage

BODY = {"records": [{"data": 1}]}
RAW = json.dumps(BODY).encode()
POSTS = ["", "/diff", "/delete", "/claim", "/ack", "/nack", "/extend", "/redrive", "/purge"]


# -- content types ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        "application/json;charset=utf-8",
        " application/json ",
        "application/x-www-form-urlencoded",
        "application/x-www-form-urlencoded; charset=UTF-8",
    ],
)
def test_bodies_that_are_read(api: TopicsClient, kind: str) -> None:
    assert said(api.post("t", RAW, {"Content-Type": kind}), 201)["seqs"] == [1]


@pytest.mark.parametrize(
    "kind",
    [
        "",
        "text/plain",
        "application/jsonp",
        "application/json+x",
        "application/problem+json",
        "text/json",
        "json",
        "application/json, text/plain",
        "multipart/form-data; boundary=x",
        ";application/json",
    ],
)
def test_bodies_that_are_not_read(api: TopicsClient, kind: str) -> None:
    refusal = (415, "unsupported_media_type")
    assert api.post("t", RAW, {"Content-Type": kind}).refusal == refusal
    assert api.ask("GET", "/v0/topics/t").status == 404
    api.put("t")
    for path in POSTS[:3]:
        assert api.post(f"t{path}", RAW, {"Content-Type": kind}).refusal == refusal
    api.put("q", type="queue")
    for path in POSTS:
        assert api.post(f"q{path}", RAW, {"Content-Type": kind}).refusal == refusal, path
    answer = api.ask("PUT", "/v0/topics/t", RAW, {"Content-Type": kind})
    assert answer.refusal == refusal
    assert api.state("t")["head_seq"] == api.state("q")["head_seq"] == 0


@pytest.mark.parametrize("headers", [{}, JSON_BODY, {"Content-Type": "text/plain"}])
def test_where_a_body_may_be_missing_nobody_asks_what_it_is(
    api: TopicsClient, headers: dict[str, str]
) -> None:
    for method, path in (
        ("PUT", "/v0/topics/t"),
        ("POST", "/v0/topics/t/diff"),
    ):
        assert api.ask(method, path, None, headers).status in {200, 201}


@pytest.mark.parametrize("path", ["", "/delete", "/claim", "/ack", "/nack", "/extend"])
def test_where_a_body_must_be_it_is_missed(api: TopicsClient, path: str) -> None:
    api.put("q", type="queue")
    assert api.post(f"q{path}", b"", JSON_BODY).refusal == (400, "invalid_request")
    assert api.ask("POST", f"/v0/topics/q{path}").refusal == (415, "unsupported_media_type")


def test_the_order_of_judgements(api: TopicsClient) -> None:
    """A missing topic is reported before errors in the request."""
    text = {"Content-Type": "text/plain"}
    assert api.post("none/claim", b"x", text).refusal == (404, "topic_not_found")
    assert api.ask("PATCH", "/v0/topics/none", b"x", text).refusal == (405, "method_not_allowed")
    assert api.ask("POST", "/v0/none", b"x", text).refusal == (404, "not_found")


# -- paths and methods -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    ["/v0", "/v0/", "/v0/topic", "/v0/topics/", "/v0/topics/t/", "/v0/topics/t/peek", "/v0//t"],
)
def test_paths_that_lead_nowhere(api: TopicsClient, path: str) -> None:
    api.put("t")
    answer = api.ask("GET", path)
    assert answer.status in {400, 404}
    assert answer.code in {"not_found", "invalid_request"}


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/v0/topics", "GET, HEAD, OPTIONS"),
        ("PATCH", "/v0/topics/t", "DELETE, GET, HEAD, OPTIONS, POST, PUT"),
        ("GET", "/v0/topics/t/diff", "OPTIONS, POST"),
        ("PUT", "/v0/topics/t/claim", "OPTIONS, POST"),
        ("POST", "/v0/topics/t/work", "GET, HEAD, OPTIONS"),
        ("POST", "/v0/health", "GET, HEAD, OPTIONS"),
    ],
)
def test_methods_that_a_path_does_not_know(
    api: TopicsClient, method: str, path: str, allowed: str
) -> None:
    answer = api.ask(method, path, b"{}" if method != "GET" else None)
    assert answer.refusal == (405, "method_not_allowed")
    assert answer.headers["allow"] == allowed
    options = api.ask("OPTIONS", path)
    assert (options.status, options.headers["allow"]) == (204, allowed)


def test_a_head_is_that_of_the_answer(api: TopicsClient) -> None:
    api.put("t")
    whole = api.ask("GET", "/v0/topics/t")
    head = api.ask("HEAD", "/v0/topics/t")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == whole.headers["content-length"]


# -- too much --------------------------------------------------------------------------------------


def test_a_body_that_is_too_large_is_refused_before_it_comes(site: BareTopics) -> None:
    head = b"POST /v0/topics/t HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    fits = site.connect()
    fits.feed(head + b"Content-Length: %d\r\n\r\n" % BODY_MAX)
    assert fits.hear() is None
    fits.close()
    caller = site.connect()
    caller.feed(head + b"Content-Length: %d\r\n\r\n" % (BODY_MAX + 1))
    answer = caller.hear()
    assert answer is not None
    assert answer.refusal == (413, "payload_too_large")
    assert answer.headers["connection"] == "close"
    assert not site.yard.logs


def test_a_malformed_request_gets_the_error_format_of_its_path(site: BareTopics) -> None:
    caller = site.connect()
    caller.feed(b"POST /v0/topics/t HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n")
    answer = caller.hear()
    assert answer is not None
    assert answer.refusal == (400, "invalid_request")


@pytest.mark.parametrize("kind", ["log", "queue"])
def test_a_full_disk_is_reported_and_nothing_is_written(kind: str) -> None:
    storage = MemoryStorage()
    site = BareTopics(storage)
    api = site.api
    api.put("t", type=kind, durable=True)
    api.write("t", "x" * 100)
    site.commit()
    storage.capacity = sum(len(file.seen) for file in storage.files.values())
    body = {"records": [{"data": "x" * 100_000}] * 4}
    written = 1
    for _ in range(20):
        answer = api.post("t", body)
        if answer.status != 200:
            break
        written += 4
        site.commit()
    assert answer.refusal == (507, "storage_full")
    assert api.state("t")["head_seq"] == written
    assert api.post("new", body).refusal == (507, "storage_full")
    assert api.ask("GET", "/v0/topics/new").refusal == (404, "topic_not_found")
    assert api.ask("GET", "/v0/health").status == 200
    assert len(api.diff("t", max_batch_bytes=8 << 20)["records"]) == written
    site.check()


def test_a_server_in_drain_mode_takes_nothing_new(site: BareTopics, api: TopicsClient) -> None:
    api.put("q", type="queue")
    api.write("q", 1)
    site.door.is_draining = True
    for path in ("q", "new"):
        answer = site.api.post(path, BODY)
        assert answer.refusal == (503, "shutting_down")
        assert answer.headers["retry-after"] == "1"
    for path in ("/v0/ready", "/readyz"):
        assert site.api.ask("GET", path).refusal == (503, "shutting_down")
    assert site.api.ask("GET", "/v0/health").status == 200
    assert site.api.claim("q")["count"] == 1
    assert site.api.ok("q/ack", {"node": "w", "seqs": [1]})["acked"] == 1
    assert site.api.ask("GET", "/v0/topics/new").status == 404


# -- health ----------------------------------------------------------------------------------------


def test_the_server_is_up(site: BareTopics) -> None:
    site.tick(1234)
    answer = site.api.ask("GET", "/v0/health")
    assert answer.status == 200
    assert set(answer.json) == {"status", "version", "uptime_ms"}
    assert (answer.json["status"], answer.json["uptime_ms"]) == ("ok", 1234)


def test_the_server_is_ready(api: TopicsClient) -> None:
    api.put("a")
    api.put("b", type="queue")
    for path in ("/v0/ready", "/readyz"):
        answer = api.ask("GET", path)
        assert answer.status == 200
        assert answer.json == {"status": "ready", "wal_replay_complete": True, "topics": 2}


def test_counters_as_json(site: BareTopics, api: TopicsClient) -> None:
    api.write("a", 1, 22)
    api.put("b", type="queue")
    api.write("b", 1, 2, 3)
    api.claim("b")
    site.tick(10)
    found = api.ask("GET", "/v0/metrics", None, {"Accept": "application/json"}).json
    wanted = {
        "topics_topics": 2,
        "topics_queue_topics": 1,
        "topics_records_live": 5,
        "topics_queue_leases_in_flight": 1,
        "topics_ready": 1,
        "topics_uptime_ms": 10,
    }
    assert wanted.items() <= found.items()


def test_counters_as_text(api: TopicsClient) -> None:
    api.write("a", 1, 22)
    api.put("b", type="queue")
    api.write("b", 1, 2, 3)
    api.claim("b")
    answer = api.ask("GET", "/v0/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.body.decode().split("\n")
    assert "topics_topics 2" in lines
    assert 'topics_topic_head_seq{topic="a"} 2' in lines
    assert 'topics_topic_queue_ready{topic="b"} 2' in lines
    assert 'topics_topic_queue_in_flight{topic="b"} 1' in lines
    assert all(line.startswith(("# TYPE ", "topics_")) for line in lines if line)


def test_counters_of_so_many_topics_and_no_more(site: BareTopics, api: TopicsClient) -> None:
    for number in range(1002):
        api.put(f"t{number}")
    api.put("q", type="queue")
    text = api.ask("GET", "/v0/metrics").body.decode()
    assert text.count("topics_topic_head_seq{") == 1000
    assert "topics_topic_queue_ready{" not in text
    assert len(site.yard.logs) == 1002


def test_a_body_without_records_is_small(api: TopicsClient) -> None:
    api.put("q", type="queue")
    padding = "x" * (SMALL_BODY_MAX - 30)
    assert api.post("q/diff", {"padding": padding}).status == 200
    for path in ("/diff", "/delete", "/claim", "/ack", "/nack", "/extend", "/redrive", "/purge"):
        answer = api.post(f"q{path}", {"padding": padding + padding})
        assert answer.refusal == (413, "payload_too_large")
    assert api.post("q", {"records": [{"data": padding}]}).status == 200


def test_a_write_of_far_too_many_records_is_not_counted_to_its_end(api: TopicsClient) -> None:
    many = b'{"records":[' + b'{"data":1},' * RECORDS_MAX + b'{"data":1}]}'
    assert api.post("t", many, JSON_BODY).refusal == (400, "batch_too_large")


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br, gzip"])
def test_a_compressed_body_is_none(api: TopicsClient, encoding: str) -> None:
    headers = {**JSON_BODY, "Content-Encoding": encoding}
    assert api.post("t", RAW, headers).refusal == (415, "unsupported_media_type")
    assert api.post("t", RAW, {**JSON_BODY, "Content-Encoding": "identity"}).status == 201


@pytest.mark.parametrize(
    "start",
    [
        b"GET /v0/topics/%zz HTTP/1.1",
        b"GET /v0/topics/t#there HTTP/1.1",
        b"TRACE /v0/topics/t HTTP/1.1",
        b"GET /v0/topics/t HTTP/3.0",
        b"GET /v0/topics/" + b"t" * 10_000,
    ],
)
def test_what_cannot_be_read_is_refused_in_the_words_of_the_api(
    site: BareTopics, start: bytes
) -> None:
    caller = site.connect()
    caller.feed(start + b"\r\nHost: x\r\n\r\n")
    head, _, body = caller.unread.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 ")
    assert set(json.loads(body)) == {"error"}
    assert b"Access-Control" not in head


def test_counters_of_one_name_stand_together_under_its_type(api: TopicsClient) -> None:
    api.write("a", 1, 22)
    api.write("b", 1)
    api.put("q", type="queue", durable=True)
    api.write("q", 333)
    lines = api.ask("GET", "/v0/metrics").body.decode().splitlines()
    typed = [line.split()[2] for line in lines if line.startswith("# TYPE ")]
    sampled = [line.partition("{")[0].split()[0] for line in lines if line[0] != "#"]
    assert list(dict.fromkeys(sampled)) == typed
    assert sampled == sorted(sampled, key=typed.index)
    assert 'topics_topics_by_class{class="disk"} 2' in lines
    assert 'topics_topics_by_class{class="fsync"} 1' in lines
    assert 'topics_topic_earliest_seq{topic="q"} 1' in lines
    assert 'topics_topic_records{topic="q"} 1' in lines
    assert "topics_bytes_live 7" in lines


@pytest.mark.parametrize("origin", ["https://elsewhere.example", "http://yard:81", "null"])
def test_a_page_of_another_site_cannot_write_behind_the_back_of_who_looks_at_it(
    api: TopicsClient, origin: str
) -> None:
    api.put("q", type="queue")
    form = {"Origin": origin, "Content-Type": "application/x-www-form-urlencoded"}
    assert api.post("q", RAW, form).refusal == (403, "foreign_origin")
    empty = api.ask("POST", "/v0/topics/q/purge", None, {"Origin": origin})
    assert empty.refusal == (403, "foreign_origin")
    assert api.post("q", RAW, {"Origin": origin, **JSON_BODY}).refusal == (403, "foreign_origin")
    assert api.state("q")["head_seq"] == 0
    asked = api.ask("OPTIONS", "/v0/topics/q", None, {"Origin": origin})
    assert not any(name.startswith("access-control") for name in asked.headers)
    assert api.post("q", RAW, {**form, "Origin": "http://yard"}).status == 200


# -- duplicate fields ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("t", b'{"records":[{"data":1}],"records":[{"data":2}]}'),
        ("t", b'{"records":[{"data":1,"data":2}]}'),
        ("t", b'{"records":[{"data":1},{"data":2,"tag":"a","tag":"b"}]}'),
        ("t", b'{"records":[{"data":1,"d\\u0061ta":2}]}'),
        ("new", b'{"records":[{"data":1}],"config":{"ttl_ms":1,"ttl_ms":0}}'),
        ("t/diff", b'{"from_seq":0,"from_seq":1}'),
        ("t/delete", b'{"before_seq":1,"before_seq":9}'),
        ("q/claim", b'{"node":"a","node":"b"}'),
        ("q/ack", b'{"node":"a","seqs":[1],"seqs":[2]}'),
    ],
)
def test_a_field_that_stands_twice(api: TopicsClient, path: str, body: bytes) -> None:
    api.put("t")
    api.put("q", type="queue")
    assert api.post(path, body).refusal == (400, "invalid_request")
    assert api.state("t")["head_seq"] == 0
    assert api.ask("GET", "/v0/topics/new").status == 404


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/v0/topics/t", b'{"ttl_ms":1,"ttl_ms":2}'),
        ("PUT", "/v0/routers/r", b'{"source":"t","dest":"a","dest":"b"}'),
        ("POST", "/v0/watch", b'{"topics":{"t":{}},"topics":{"t":{}}}'),
        ("POST", "/v0/watch", b'{"topics":{"t":{},"t":{}}}'),
        ("POST", "/v0/watch", b'{"topics":{"t":{"tail":true,"tail":false}}}'),
    ],
)
def test_a_field_that_stands_twice_elsewhere(
    api: TopicsClient, method: str, path: str, body: bytes
) -> None:
    api.put("t")
    assert api.ask(method, path, body).refusal == (400, "invalid_request")
    assert api.state("t")["config"]["ttl_ms"] == 0


def test_what_stands_twice_in_data_is_not_ours(api: TopicsClient) -> None:
    data = b'{"a":1,"a":[1,{"b":2,"b":3}]}'
    api.ok("t", b'{"records":[{"data":%s,"meta":{"m":1,"m":2}}]}' % data, 201)
    answer = api.post("t/diff", {})
    assert b'"data":%s,"meta":{"m":1,"m":2}' % data in answer.body


@pytest.mark.parametrize(
    ("number", "status"),
    [(b"9" * 20, 200), (b"9" * 21, 400), (b"9" * 1024, 400), (b"1e300", 200), (b"-1", 400)],
)
def test_a_number_of_ours_has_only_so_many_digits(
    api: TopicsClient, number: bytes, status: int
) -> None:
    api.put("t")
    assert api.post("t/diff", b'{"limit":%s}' % number).status == status


def test_a_number_of_others_may_have_more(api: TopicsClient) -> None:
    data = b"9" * 1024
    api.ok("t", b'{"records":[{"data":%s}]}' % data, 201)
    assert b'"data":%s}' % data in api.post("t/diff", {}).body
    refused = api.post("t", b'{"records":[{"data":9%s}]}' % data)
    assert refused.refusal == (400, "invalid_request")


def test_data_may_be_as_deep_as_a_body_altogether(api: TopicsClient) -> None:
    """Object, array of records and record are three of the 128."""
    for depth, status in ((125, 201), (126, 400), (100_000, 400)):
        body = b'{"records":[{"data":%s1%s}]}' % (b"[" * depth, b"]" * depth)
        assert api.post("t", body).status == status


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"[]", "the body must be a JSON object"),
        (b"a=b", "the body must be a JSON object"),
        (b"{a: 1}", "the body is not valid JSON: Expecting property name"),
        (b'{"a": 1, "b" 2}', "the body is not valid JSON: Expecting ':' delimiter at character 14"),
        (b'{"a": "\xff"}', "the body is not valid JSON: invalid UTF-8 at byte 8"),
        (b'{"a": NaN}', "the body contains NaN"),
        (b'{"a": ' + b"[" * 200 + b"]" * 200 + b"}", "the body contains NaN"),
        (b'{"a": ' + b"[" * 30_000 + b"]" * 30_000 + b"}", "the body contains NaN"),
        (b'{"a": ' + b"1" * 5000 + b"}", "the body contains NaN"),
        (b"{" + b" " * FAULT_SIZE_MAX, "the body is not valid JSON"),
    ],
)
def test_who_sends_no_json_is_told_where_it_ends_to_be_any(
    api: TopicsClient, body: bytes, message: str
) -> None:
    answer = api.post("t", body)
    assert answer.refusal == (400, "invalid_request")
    assert answer.json["error"]["message"].startswith(message)
