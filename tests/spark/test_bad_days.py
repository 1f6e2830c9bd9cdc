"""What can be wrong with a server, a token, or a record: each is named, or survived."""

import base64
import functools
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from jobyard.client import JobyardError
from jobyard.client.errors import Code
from jobyard.spark.read.ranges import SeqPartition
from jobyard.spark.source import JobyardSource
from tests.support.clients.spark import Query, read_batch, rows_of, schema, source_of
from tests.support.servers.http import HttpYard, Topics
from tests.support.servers.scripted import Heard, Reply, ScriptedHttp, refused, said
from tests.support.values.exports import answer
from tests.support.values.pickled import packed

# Each is a key of the server below, with what it may do.
ALL, READ, BOUND = "key-of-all-6d1f", "key-to-read-77aa", "key-bound-0c9e"
KEYS = f"{ALL},{READ}:read,{BOUND}:read+write:mine-"
SECRETS = (ALL, READ, BOUND, "key-that-is-wrong-51ab")
Call = Callable[..., object]


def batch(url: str, **options: str) -> object:
    return read_batch(url, "seq", **options)


def plan(url: str, **options: str) -> object:
    query = Query.__new__(Query)
    source = source_of(url, **options)
    query.reader = source.streamReader(schema=schema(source, "seq"))
    try:
        return query.reader.initialOffset()
    finally:
        query.reader.stop()


def jobs(url: str, topic: str, **options: str) -> object:
    return read_batch(url, "state", jobs=topic, **options)


each_way = pytest.mark.parametrize("call", [batch, plan, jobs])


def fails(call: Callable[[], object]) -> JobyardError:
    with pytest.raises(JobyardError) as caught:
        call()
    error = caught.value
    assert len(str(error).splitlines()) <= 3
    for secret in SECRETS:
        assert secret not in str(error) + repr(error)
        assert secret.encode() not in packed(error)
    return error


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpYard]:
    """A server that asks for keys, with a few topics."""
    found = HttpYard("--data", str(tmp_path_factory.mktemp("keyed")), "--topics-key", KEYS)
    caller = Topics(found.address, ALL)
    for topic in ("mine-a", "other"):
        records = {"records": [{"data": at} for at in range(5)]}
        assert caller.ask("POST", f"/v0/topics/{topic}", records)[0] < 300
    caller.close()
    yield found
    found.close()


@each_way
def test_no_server_at_all(unused_url: str, call: Call) -> None:
    error = fails(lambda: call(unused_url, topic="a", maxRetries="0"))
    assert (error.code, error.option, error.topic) == (Code.UNREACHABLE, "url", "a")
    assert unused_url in str(error)


@each_way
def test_a_server_that_never_answers(call: Call) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        error = fails(lambda: call(url, topic="a", maxRetries="0", timeoutMs="50"))
    assert (error.code, error.option) == (Code.UNREACHABLE, "url")


class WebSite(BaseHTTPRequestHandler):
    """Answers every path with the same page."""

    def do_GET(self) -> None:
        page = b"<html><body>It works!</body></html>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_: object) -> None:
        pass


@each_way
def test_another_program_at_the_url(yard: HttpYard, call: Call) -> None:
    site = ThreadingHTTPServer(("127.0.0.1", 0), WebSite)
    thread = threading.Thread(target=site.serve_forever, daemon=True)
    thread.start()
    try:
        beanstalk = yard.addresses["beanstalk"]
        for port in (site.server_address[1], beanstalk[1]):
            url = f"http://127.0.0.1:{port}"
            error = fails(functools.partial(call, url, topic="a", maxRetries="0"))
            assert error.code == Code.NOT_JOBYARD
            assert "6790" in str(error)
    finally:
        site.shutdown()
        site.server_close()
        thread.join()


@each_way
@pytest.mark.parametrize(
    ("options", "topic", "code"),
    [
        ({}, "other", "unauthorized"),
        ({"token": "key-that-is-wrong-51ab"}, "other", "unauthorized"),
        ({"token": BOUND}, "other", "forbidden"),
        ({"token": BOUND}, "_events", "forbidden"),
    ],
)
def test_a_token_that_may_not(
    keyed: HttpYard, call: Call, options: dict[str, str], topic: str, code: str
) -> None:
    error = fails(lambda: call(keyed.url, topic=topic, **options))
    assert (error.code, error.option) == (code, "token")
    assert error.topic == topic
    assert "tokenEnv" in error.remedy


def test_a_token_that_may(keyed: HttpYard) -> None:
    assert len(read_batch(keyed.url, "seq", topic="mine-a", token=BOUND)) == 5
    assert len(read_batch(keyed.url, "seq", topicsPattern="mine-.*", token=BOUND)) == 5
    assert read_batch(keyed.url, "seq", topic="_events", token=READ) == []


def test_a_cursor_that_holds_needs_a_token_that_may_do_everything(
    keyed: HttpYard, request: pytest.FixtureRequest
) -> None:
    given = {"topic": "other", "consumer": "etl", "startingOffsets": "earliest"}
    query = Query(keyed.url, token=READ, **given)
    request.addfinalizer(query.stop)
    query.batch()
    query.reader.commit(query.at)
    # Known when a query begins or goes on, not only when its first batch has ended.
    for start in (None, query.at):
        source = source_of(keyed.url, token=READ, hold="true", **given)
        reader = source.streamReader(schema(source, "topic seq"))
        request.addfinalizer(reader.stop)
        error = fails(
            reader.initialOffset if start is None
            else functools.partial(reader.latestOffset, start, query.limit)
        )  # fmt: skip
        assert (error.code, error.topic, error.option) == ("forbidden", "other", "hold")
    # Nobody's cursor was moved by asking, and a key that may hold is let through.
    caller = Topics(keyed.address, ALL)
    Query(keyed.url, token=ALL, hold="true", **given).stop()
    (cursor,) = caller.ask("GET", "/v0/topics/other/cursors")[1]["cursors"]
    assert (cursor["seq"], cursor["hold"]) == (5, False)
    caller.close()


def test_a_token_is_in_nothing_that_is_kept_or_shown(
    keyed: HttpYard, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        query = Query(
            keyed.url, topicsPattern="mine-.*", token=ALL, startingOffsets="earliest",
            consumer="etl",
        )  # fmt: skip
        start = query.at
        assert len(query.batch()) == 5
        query.reader.commit(query.at)
        partitions = query.reader.partitions(start, query.at)
        source = JobyardSource({"url": keyed.url, "topic": "a", "token": ALL})
        shown = [
            start, query.at, query.reader.reportLatestOffset(), partitions, source.options,
            query.reader.options, query.reader.options.connecting, vars(query.reader),
            [vars(each) for each in partitions],
        ]  # fmt: skip
        query.stop()
    for each in shown:
        assert ALL not in repr(each)
    for each in (source, query.reader, partitions):
        assert ALL.encode() not in packed(each)
    assert ALL not in caplog.text


def test_values_of_any_kind_and_size(yard: HttpYard, topics: Topics) -> None:
    # The most that a server takes is 1 MiB of JSON.
    largest = "x" * ((1 << 20) - 2)
    raw = [b"", b"\xff\xfe", bytes(range(256)), b"\x00" * 700_000]
    records: list[dict[str, object]] = [{"data": largest} for _ in range(5)]
    records += [{"data_b64": base64.b64encode(each).decode()} for each in raw]
    records += [{"data": ""}, {"data": None}, {"data": "ä€😀"}]
    for record in records:
        assert topics.ask("POST", "/v0/topics/sizes", {"records": [record]})[0] < 300
    for partitions in ("1", "5"):
        rows = read_batch(yard.url, "seq value", topic="sizes", minPartitions=partitions)
        values = [row["value"] for row in rows]
        assert values[:5] == [json.dumps(largest).encode()] * 5
        assert values[5:9] == raw
        assert [json.loads(value) for value in values[9:]] == ["", None, "ä€😀"]
        assert [row["seq"] for row in rows] == list(range(1, 13))


BUSY = '{"error":{"code":"%s","message":"later"}}'


@pytest.mark.parametrize(
    ("status", "code"),
    [("429 Too Many Requests", "too_many_connections"), ("503 Unavailable", "shutting_down")],
)
def test_a_busy_server_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, status: str, code: str
) -> None:
    monkeypatch.setattr("jobyard.client.calls._PAUSE_S", 0.01)
    busy = said((BUSY % code).encode(), status, "Retry-After: 0")
    state = {"type": "log", "head_seq": 10, "earliest_seq": 1, "count": 3, "bytes": 3,
             "incarnation": "7"}  # fmt: skip
    replies: list[Reply] = [busy, said(json.dumps(state).encode()), busy, busy, answer([2, 5, 9])]
    with ScriptedHttp(replies) as server:
        rows = read_batch(server.url, "seq", topic="clicks", minPartitions="1")
        assert [row["seq"] for row in rows] == [2, 5, 9]
        assert len(server.heard) == 5
    with ScriptedHttp([busy] * 3) as server:
        error = fails(lambda: read_batch(server.url, "seq", topic="clicks", maxRetries="2"))
        assert (error.code, error.topic, error.status) == (code, "clicks", int(status[:3]))


TOPICS_COUNT = 10_000


def pages(heard: Heard) -> bytes:
    """Answer for a server with very many topics, a page at a time."""
    query = {name: values[0] for name, values in parse_qs(urlsplit(heard.target).query).items()}
    first, size = int(query.get("cursor", "0")), int(query["page_size"])
    last = min(first + size, TOPICS_COUNT)
    found = [
        {"topic": f"t{at:05}", "type": "log", "head_seq": 1, "earliest_seq": 1, "count": 1,
         "bytes": 10, "incarnation": str(at)}
        for at in range(first, last)
    ]  # fmt: skip
    page: dict[str, object] = {"topics": found}
    if last < TOPICS_COUNT:
        page["next_cursor"] = str(last)
    return said(json.dumps(page).encode())


def test_very_many_topics_cost_few_calls() -> None:
    with ScriptedHttp([pages] * 60) as server:
        source = source_of(server.url, topicsPattern="t.*")
        partitions = list(source.reader(schema=schema(source, "seq")).partitions())
        assert len(server.heard) == TOPICS_COUNT // 1000
        assert len(partitions) <= 8
        ranges = [one for each in partitions if isinstance(each, SeqPartition)
                  for one in each.ranges]  # fmt: skip
        assert len(ranges) == TOPICS_COUNT
        assert all("prefix=t" in each.target for each in server.heard)
        server.heard.clear()
        query = Query(server.url, topicsPattern="t.*", startingOffsets="earliest")
        end = query.plan()
        assert len(end["t"]) == TOPICS_COUNT
        assert len(query.reader.partitions(query.at, end)) <= 8
        # Once for the start, and at most once more for the plan.
        assert len(server.heard) <= 2 * TOPICS_COUNT // 1000
        assert server.connections == 2
        query.stop()


def test_a_server_that_restarts_is_waited_for(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("jobyard.client.calls", "jobyard.spark.read.export"):
        monkeypatch.setattr(f"{module}._PAUSE_S", 0.05)
    flags = ("--data", str(tmp_path / "data"))
    yard = HttpYard(*flags)
    yards = [yard]

    def close() -> None:
        for each in yards:
            each.close()

    request.addfinalizer(close)
    port = yard.address[1]
    caller = Topics(yard.address)
    for _ in range(10):
        records = {"records": [{"data": "x" * 2000}] * 1000}
        assert caller.ask("POST", "/v0/topics/long?return_seqs=false", records)[0] < 300
    caller.close()
    source = source_of(yard.url, topic="long", minPartitions="1", maxRetries="15")
    reader = source.reader(schema=schema(source, "seq value"))
    query = Query(
        yard.url, topic="long", startingOffsets="earliest", maxOffsetsPerTrigger="4000",
        maxRetries="15",
    )  # fmt: skip
    request.addfinalizer(query.stop)
    (partition,) = reader.partitions()
    rows = reader.read(partition)
    seqs = next(rows).column("seq").to_pylist()
    found = query.batch()
    # Without a warning, as a crash is, and again where it was.
    yard.process.close()

    def restart() -> None:
        yards.append(HttpYard(*flags, "--http", f"127.0.0.1:{port}"))

    thread = threading.Thread(target=restart)
    thread.start()
    # Both wait until it is there: the task in the middle of an answer, the driver between two.
    for each in rows:
        seqs += each.column("seq").to_pylist()
    while len(found) < 10_000:
        found += query.batch()
    thread.join()
    assert len(yards) == 2
    assert seqs == list(range(1, 10_001))
    assert found == [("long", seq) for seq in range(1, 10_001)]


def test_a_refusal_in_the_middle_is_not_taken_for_an_end() -> None:
    state = {"type": "log", "head_seq": 10, "earliest_seq": 1, "count": 3, "bytes": 3,
             "incarnation": "7"}  # fmt: skip
    with ScriptedHttp(
        [said(json.dumps(state).encode()), refused("403 Forbidden", "forbidden")]
    ) as server:
        source = source_of(server.url, topic="clicks", minPartitions="1")
        reader = source.reader(schema=schema(source, "seq"))
        partitions = list(reader.partitions())
        assert fails(lambda: rows_of(reader, partitions)).code == "forbidden"
