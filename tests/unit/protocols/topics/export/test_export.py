"""A range of a topic as columns: exact, counted, in step with its reader."""

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from jobyard.protocols.http.limits import STREAM_MAX
from jobyard.protocols.topics.export.sources import PAGE_BYTES, PAGE_ROWS
from tests.support.clients.exports import begin, exported, hear, notes_of, unchunked
from tests.support.clients.topics import TopicsClient
from tests.support.doors.streams import StreamsSite
from tests.support.doors.topics import BareTopics
from tests.support.site.site import NOW_MS
from tests.support.site.storage import MemoryStorage


def fill(api: TopicsClient, name: str, count: int, first: int = 0) -> None:
    for start in range(first, first + count, 10_000):
        stop = min(start + 10_000, first + count)
        api.write(name, *range(start, stop))


def incarnation(api: TopicsClient, name: str) -> str:
    return str(api.state(name)["incarnation"])


# -- what is sent ---------------------------------------------------------------------------------


def test_every_record_is_a_row_with_the_text_its_writer_gave(
    site: BareTopics, api: TopicsClient
) -> None:
    api.put("log")
    body = (
        b'{"records":[{"data":{"a" : [1.50, "\\u00e9\xc3\xa9"]},"tag":"t\\"\xc3\xbc",'
        b'"meta":{"k":1}},{"data":null},{"data":"x","meta":{}}],"node":"n1"}'
    )
    assert api.post("log", body).status == 200
    made = exported(site, "log/export")
    at = datetime.fromtimestamp(NOW_MS / 1000, UTC)
    assert made.schema.remove_metadata() == pa.schema(
        [
            pa.field("seq", pa.int64(), nullable=False),
            pa.field("ts", pa.timestamp("us", tz="UTC"), nullable=False),
            pa.field("tag", pa.utf8()),
            pa.field("node", pa.utf8()),
            pa.field("meta", pa.utf8()),
            pa.field("data", pa.utf8(), nullable=False),
        ]
    )
    first, second, third = made.rows
    text = '{"a" : [1.50, "\\u00e9é"]}'
    assert first == {
        "seq": 1,
        "ts": at,
        "tag": 't"ü',
        "node": "n1",
        "meta": '{"k":1}',
        "data": text,
    }
    assert (second["tag"], second["meta"], second["data"]) == (None, None, "null")
    assert (third["meta"], third["data"]) == ("{}", '"x"')


def test_the_rows_of_many_pages_are_those_of_diff(site: BareTopics, api: TopicsClient) -> None:
    api.put("log")
    fill(api, "log", 2 * PAGE_ROWS + 100)
    made = exported(site, f"log/export?from_seq=50&to_seq={2 * PAGE_ROWS + 70}")
    assert made.seqs == list(range(51, 2 * PAGE_ROWS + 71))
    assert [len(rows) for rows, _ in made.batches] == [PAGE_ROWS, PAGE_ROWS, 20]
    page = api.diff("log", from_seq=50, limit=1000)["records"]
    for row, record in zip(made.rows, page, strict=False):
        assert json.loads(row["data"]) == record["data"]
        assert row["seq"] == record["$seq"]


def test_the_head_and_the_schema_tell_what_is_to_come(site: BareTopics, api: TopicsClient) -> None:
    api.put("log")
    fill(api, "log", 10)
    api.ok("log/delete", {"before_seq": 3})
    made = exported(site, "log/export?to_seq=8")
    told = {
        "topic": "log",
        "incarnation": incarnation(api, "log"),
        "from_seq": "0",
        "to_seq": "8",
        "expected_rows": "6",
    }
    assert notes_of(made.schema.metadata) == told
    assert made.headers["topics-incarnation"] == told["incarnation"]
    assert made.headers["topics-from-seq"] == "0"
    assert made.headers["topics-to-seq"] == "8"
    assert made.headers["topics-expected-rows"] == "6"
    assert made.headers["cache-control"] == "no-store"
    assert made.seqs == [3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("columns", ["seq", "ts,seq", "data,seq", "node,tag", "meta", "seq,data"])
def test_a_reader_may_pick_columns(site: BareTopics, api: TopicsClient, columns: str) -> None:
    api.put("log")
    record = {"data": "x" * 300_000, "tag": "t", "node": "n", "meta": {"a": 1}}
    for _ in range(6):
        api.ok("log", {"records": [record]})
    whole = exported(site, "log/export")
    made = exported(site, f"log/export?columns={columns}")
    names = columns.split(",")
    assert made.schema.names == names
    assert made.rows == [{name: row[name] for name in names} for row in whole.rows]
    # Only what is sent counts.
    has_text = "data" in columns or "meta" in columns
    assert len(made.batches) == (len(whole.batches) if has_text else 1)


@pytest.mark.parametrize("columns", ["nothing", "seq,seq", "seq,", ","])
def test_columns_that_are_not_there_are_refused(api: TopicsClient, columns: str) -> None:
    api.put("log")
    answer = api.ask("GET", f"/v0/topics/log/export?columns={columns}")
    assert answer.refusal == (400, "invalid_request")


def test_all_columns_may_be_nullable(site: BareTopics, api: TopicsClient) -> None:
    api.put("log")
    fill(api, "log", 3)
    plain = exported(site, "log/export?nullable=false")
    made = exported(site, "log/export?nullable=true")
    assert all(field.nullable for field in made.schema)
    assert made.schema.names == plain.schema.names
    assert made.schema.types == plain.schema.types
    assert not all(field.nullable for field in plain.schema)
    assert made.rows == plain.rows
    answer = api.ask("GET", "/v0/topics/log/export?nullable=yes")
    assert answer.refusal == (400, "invalid_request")


@pytest.mark.parametrize("name", ["queues", "column", "token", ""])
def test_parameters_that_nobody_knows_are_refused(api: TopicsClient, name: str) -> None:
    api.put("log")
    answer = api.ask("GET", f"/v0/topics/log/export?from_seq=0&{name}=1")
    assert answer.refusal == (400, "invalid_request")
    assert answer.json["error"]["message"].endswith(f"no parameter {name}")


def test_large_records_make_small_batches(site: BareTopics, api: TopicsClient) -> None:
    api.put("log")
    for _ in range(5):
        api.write("log", "x" * (PAGE_BYTES * 2 // 5))
    made = exported(site, "log/export")
    assert [len(rows) for rows, _ in made.batches] == [2, 2, 1]


def test_a_range_without_rows_is_a_stream_without_rows(site: BareTopics, api: TopicsClient) -> None:
    api.put("log")
    assert exported(site, "log/export").rows == []
    fill(api, "log", 3)
    assert exported(site, "log/export?from_seq=2&to_seq=2").rows == []
    assert exported(site, "log/export?from_seq=3").rows == []


def test_what_comes_after_the_call_is_not_in_it(site: BareTopics, api: TopicsClient) -> None:
    api.put("log")
    fill(api, "log", PAGE_ROWS + 10)
    reader = site.connect()
    headers = begin(reader, "log/export")
    fill(api, "log", 5, PAGE_ROWS + 10)
    site.tick(100)
    assert hear(reader, headers).seqs[-1] == PAGE_ROWS + 10


def test_text_that_has_left_memory_is_read_back() -> None:
    site = BareTopics(MemoryStorage())
    site.yard.bodies._budget = 0
    api = site.api
    api.put("log", durability="fsync")
    for first in range(0, 3000, 500):
        fill(api, "log", 500, first)
        site.commit()
    assert any(chunk.is_cold for chunk in site.yard.logs["log"].chunks)
    made = exported(site, "log/export")
    assert [json.loads(row["data"]) for row in made.rows] == list(range(3000))


def test_a_connection_is_usable_after_an_export(site: BareTopics, api: TopicsClient) -> None:
    api.put("log")
    fill(api, "log", PAGE_ROWS + 1)
    assert len(exported(site, "log/export").rows) == PAGE_ROWS + 1
    assert api.state("log")["count"] == PAGE_ROWS + 1
    assert site.timers() == 0


def test_a_client_that_sends_no_more_still_gets_all(site: BareTopics, api: TopicsClient) -> None:
    api.put("log")
    fill(api, "log", 3 * PAGE_ROWS)
    reader = site.connect()
    headers = begin(reader, "log/export")
    reader.shut_down()
    site.tick(100)
    assert len(hear(reader, headers).rows) == 3 * PAGE_ROWS
    assert not reader.is_open


def test_a_server_that_stops_does_not_wait_for_an_export(
    site: BareTopics, api: TopicsClient
) -> None:
    api.put("log")
    fill(api, "log", 3 * PAGE_ROWS)
    reader = site.connect()
    begin(reader, "log/export")
    site.door.is_draining = True
    reader.shut_down()
    assert unchunked(reader.unread) is None
    assert not reader.is_open
    assert site.timers() == 0


def test_http_1_0_has_no_trailers_and_ends_with_the_connection(
    site: BareTopics, api: TopicsClient
) -> None:
    api.put("log")
    fill(api, "log", 3)
    reader = site.connect()
    reader.feed(b"GET /v0/topics/log/export HTTP/1.0\r\n\r\n")
    head, _, body = reader.unread.partition(b"\r\n\r\n")
    assert b"Transfer-Encoding" not in head
    found = pa.ipc.open_stream(body)
    *_, last = found.iter_batches_with_custom_metadata()
    assert notes_of(last.custom_metadata) == {"total_rows": "3", "lost_rows": "0"}
    assert not reader.is_open


# -- in step with the reader ----------------------------------------------------------------------


def test_a_reader_who_does_not_read_costs_one_page() -> None:
    site = StreamsSite()
    for first in range(0, 40_000, 10_000):
        site.write("log", *range(first, first + 10_000))
    line = site.connect()
    line.send("GET", "/v0/topics/log/export")
    sent = len(line.end_turn())
    line.ears.unsent = STREAM_MAX + 1
    for _ in range(5):
        site.jump(10)
        sent += len(line.end_turn())
    held = sent
    for _ in range(5):
        site.jump(10)
        assert line.end_turn() == b""
    line.ears.unsent = 0
    line.ears.wakes = 1
    line.end_turn()
    site.jump(10)
    assert 0 < len(line.end_turn()) <= PAGE_BYTES
    assert held < 3 * PAGE_ROWS * 64
    line.close()
    assert len(site.yard.timers.items) == 0


def test_all_exports_together_make_a_page_in_a_turn_and_take_turns(
    site: BareTopics, api: TopicsClient
) -> None:
    api.put("log")
    fill(api, "log", 4 * PAGE_ROWS)
    readers = [site.connect() for _ in range(3)]
    for reader in readers:
        begin(reader, "log/export")
        # One page comes at once.
        reader.unread = b""
    pages: list[list[int]] = []
    while site.timers() > 0:
        # However late a turn comes.
        site.now_ms += 20
        site.tick(0)
        pages.append([i for i, reader in enumerate(readers) if reader.unread])
        for reader in readers:
            reader.unread = b""
    assert [page for page in pages if page] == [[0], [1], [2]] * 3


def test_an_export_counts_as_a_stream_for_as_long_as_it_lasts(
    site: BareTopics, api: TopicsClient
) -> None:
    site.topics.limits.streams = 1
    api.put("log")
    fill(api, "log", 2 * PAGE_ROWS)
    first = site.connect()
    begin(first, "log/export")
    answer = api.ask("GET", "/v0/topics/log/export")
    assert answer.refusal == (429, "throttled")
    site.tick(100)
    assert len(exported(site, "log/export").rows) == 2 * PAGE_ROWS
    second = site.connect()
    begin(second, "log/export")
    second.close()
    assert len(exported(site, "log/export").rows) == 2 * PAGE_ROWS
    assert site.topics.limits.streams_count == 0


def test_an_export_waits_for_what_is_not_durable() -> None:
    site = BareTopics(MemoryStorage())
    api = site.api
    api.put("log", durability="fsync")
    fill(api, "log", 3)
    reader = site.connect()
    begin(reader, "log/export")
    assert reader.session.awaits == site.yard.logs["log"].batch > 0


# -- what is lost ---------------------------------------------------------------------------------


def test_a_range_that_caps_have_taken_from_is_refused(site: BareTopics, api: TopicsClient) -> None:
    api.put("log", cap_records=5)
    fill(api, "log", 5)
    fill(api, "log", 4, 5)
    answer = api.ask("GET", "/v0/topics/log/export?from_seq=1&to_seq=8")
    assert answer.refusal == (410, "gone")
    assert answer.json["error"]["detail"] == {
        "incarnation": incarnation(api, "log"),
        "head_seq": 9,
        "earliest_seq": 5,
        "gap_from": 2,
        "gap_to": 4,
        "reason": "cap",
    }
    made = exported(site, "log/export?from_seq=1&to_seq=8&allow_gap=true")
    assert made.seqs == [5, 6, 7, 8]
    assert made.headers["topics-gap-to"] == notes_of(made.schema.metadata)["gap_to"] == "4"
    assert (
        exported(site, "log/export?from_seq=2&to_seq=3&allow_gap=true").headers["topics-gap-to"]
        == "3"
    )
    # Nothing is lost of nothing.
    assert exported(site, "log/export?from_seq=2&to_seq=2").rows == []
    # Without a start, everything is exported.
    assert exported(site, "log/export").seqs == [5, 6, 7, 8, 9]
    assert exported(site, "log/export?from_seq=4").seqs == [5, 6, 7, 8, 9]


def test_what_was_deleted_on_demand_is_no_gap(site: BareTopics, api: TopicsClient) -> None:
    api.put("log")
    fill(api, "log", 5)
    api.ok("log/delete", {"before_seq": 3})
    assert exported(site, "log/export?from_seq=0").seqs == [3, 4, 5]


def lose_some(site: BareTopics, query: str) -> tuple[TopicsClient, dict[str, str]]:
    """Begin an export whose rows are removed by the cap before they are sent."""
    api = site.api
    api.put("log", cap_records=2 * PAGE_ROWS)
    fill(api, "log", 2 * PAGE_ROWS)
    reader = site.connect()
    headers = begin(reader, f"log/export{query}")
    fill(api, "log", PAGE_ROWS + 100, 2 * PAGE_ROWS)
    site.tick(100)
    return reader, headers


def test_a_stream_that_would_leave_out_lost_rows_is_broken_off(site: BareTopics) -> None:
    reader, _ = lose_some(site, "")
    assert unchunked(reader.unread) is None
    assert not reader.is_open
    assert site.timers() == 0


def test_a_reader_to_whom_gaps_do_not_matter_is_told_how_many_were_lost(site: BareTopics) -> None:
    reader, headers = lose_some(site, "?allow_gap=true")
    made = hear(reader, headers)
    assert made.end == {"total_rows": str(2 * PAGE_ROWS - 100), "lost_rows": "100"}
    assert made.seqs[PAGE_ROWS] == PAGE_ROWS + 101


def test_rows_that_are_deleted_meanwhile_are_reported_as_lost(
    site: BareTopics, api: TopicsClient
) -> None:
    api.put("log")
    fill(api, "log", PAGE_ROWS)
    api.ok("log", {"records": [{"data": 1, "tag": "t"}] * 7})
    reader = site.connect()
    headers = begin(reader, "log/export")
    api.ok("log/delete", {"match": "t"})
    site.tick(100)
    assert hear(reader, headers).end == {"total_rows": str(PAGE_ROWS), "lost_rows": "7"}


def test_an_export_of_a_topic_that_is_removed_is_broken_off(
    site: BareTopics, api: TopicsClient
) -> None:
    api.put("log")
    fill(api, "log", PAGE_ROWS + 1)
    reader = site.connect()
    begin(reader, "log/export")
    api.ask("DELETE", "/v0/topics/log")
    site.tick(100)
    assert unchunked(reader.unread) is None
    assert not reader.is_open


# -- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "refusal"),
    [
        ("from_seq=-1", (400, "invalid_request")),
        ("from_seq=x", (400, "invalid_request")),
        ("from_seq=2&to_seq=1", (400, "invalid_request")),
        ("allow_gap=1", (400, "invalid_request")),
        ("to_seq=4", (416, "out_of_range")),
        ("from_seq=4", (416, "out_of_range")),
        (f"to_seq={'9' * 40}", (416, "out_of_range")),
        ("incarnation=1", (409, "wrong_incarnation")),
    ],
)
def test_a_range_that_is_not_there_is_refused(
    api: TopicsClient, query: str, refusal: tuple[int, str]
) -> None:
    api.put("log")
    fill(api, "log", 3)
    assert api.ask("GET", f"/v0/topics/log/export?{query}").refusal == refusal


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("from_seq=4", "from_seq"),
        (f"from_seq={1 << 64}", "from_seq"),
        (f"from_seq=4&to_seq={1 << 64}", "from_seq"),
        (f"from_seq=3&to_seq={1 << 64}", "to_seq"),
    ],
)
def test_a_refusal_names_the_end_that_is_not_there(
    api: TopicsClient, query: str, named: str
) -> None:
    api.put("log")
    fill(api, "log", 3)
    answer = api.ask("GET", f"/v0/topics/log/export?{query}")
    assert answer.refusal == (416, "out_of_range")
    assert answer.json["error"]["message"] == f"{named} is beyond the newest seq, 3"


def test_a_topic_that_was_created_again_has_another_incarnation(
    site: BareTopics, api: TopicsClient
) -> None:
    api.put("log")
    fill(api, "log", 3)
    old = incarnation(api, "log")
    assert exported(site, f"log/export?incarnation={old}").seqs == [1, 2, 3]
    api.ask("DELETE", "/v0/topics/log")
    api.put("log")
    fill(api, "log", 5)
    for path in ("export?", "seq?ts=0&"):
        answer = api.ask("GET", f"/v0/topics/log/{path}incarnation={old}")
        assert answer.refusal == (409, "wrong_incarnation")
        assert answer.json["error"]["detail"] == {
            "incarnation": incarnation(api, "log"),
            "head_seq": 5,
            "earliest_seq": 1,
        }


@pytest.mark.parametrize("path", ["export", "seq?ts=1"])
def test_only_logs_can_be_exported(api: TopicsClient, path: str) -> None:
    api.put("queue", type="queue")
    assert api.ask("GET", f"/v0/topics/queue/{path}").refusal == (409, "not_a_log")
    assert api.ask("GET", f"/v0/topics/none/{path}").refusal == (404, "topic_not_found")


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("application/vnd.apache.arrow.stream", 200),
        ("text/html, */*;q=0.1", 200),
        ("application/*", 200),
        ("", 200),
        ("application/json", 406),
        ("text/*", 406),
    ],
)
def test_a_reader_says_what_it_can_read(
    site: BareTopics, api: TopicsClient, accept: str, status: int
) -> None:
    api.put("log")
    reader = site.connect()
    reader.send("GET", "/v0/topics/log/export", Accept=accept)
    assert reader.unread.startswith(b"HTTP/1.1 %d " % status)


def test_the_head_alone_can_be_asked_for(site: BareTopics, api: TopicsClient) -> None:
    api.put("log")
    fill(api, "log", 3)
    answer = site.connect().ask("HEAD", "/v0/topics/log/export")
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/vnd.apache.arrow.stream"
    assert answer.headers["topics-expected-rows"] == "3"
    assert site.timers() == 0


def test_a_key_must_allow_reading_and_cover_the_name() -> None:
    site = BareTopics(keys="w:write+admin,r:read,a:read:a")
    site.connect("w").put("log")
    site.connect("w").write("log", 1)
    for path in ("export?to_seq=1", "seq?ts=0"):
        url = f"/v0/topics/log/{path}"
        assert site.connect().ask("GET", url).refusal == (401, "unauthorized")
        assert site.connect("w").ask("GET", url).refusal == (403, "forbidden")
        assert site.connect("a").ask("GET", url).refusal == (403, "forbidden")
        # Only streams of events may carry their key in the query.
        assert site.connect().ask("GET", f"{url}&token=r").status == 401
    assert exported(site, "log/export", site.connect("r")).seqs == [1]


# -- seqs by time ---------------------------------------------------------------------------------


def found(api: TopicsClient, ts: int) -> Any:
    answer = api.ask("GET", f"/v0/topics/log/seq?ts={ts}")
    assert answer.status == 200, answer
    said = answer.json
    assert said.pop("topic") == "log"
    assert said.pop("incarnation") == incarnation(api, "log")
    said.pop("performance")
    assert said.pop("from_seq") == said["seq"] - 1
    return said


def test_a_time_leads_to_the_first_record_of_it(site: BareTopics, api: TopicsClient) -> None:
    api.put("log")
    assert found(api, 0) == {"seq": 1, "found": False, "head_seq": 0, "earliest_seq": 1}
    fill(api, "log", 2000)
    site.tick(50)
    fill(api, "log", 10)
    bounds = {"head_seq": 2010, "earliest_seq": 1}
    assert found(api, 0) == {"seq": 1, "found": True, **bounds}
    assert found(api, NOW_MS) == {"seq": 1, "found": True, **bounds}
    assert found(api, NOW_MS + 1) == {"seq": 2001, "found": True, **bounds}
    assert found(api, NOW_MS + 50) == {"seq": 2001, "found": True, **bounds}
    assert found(api, NOW_MS + 51) == {"seq": 2011, "found": False, **bounds}
    assert found(api, 10**30)["found"] is False


@pytest.mark.parametrize("query", ["", "?ts=", "?ts=-1", "?ts=1.5", "?ts=now"])
def test_a_time_must_be_given(api: TopicsClient, query: str) -> None:
    api.put("log")
    assert api.ask("GET", f"/v0/topics/log/seq{query}").refusal == (400, "invalid_request")
