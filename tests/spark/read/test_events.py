"""The history of jobs as a table and as a stream."""

import json
from datetime import UTC, datetime, timedelta

from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, In, LessThan
from pyspark.sql.streaming.datasource import ReadAllAvailable

from jobyard.client import YardClient
from jobyard.client.calls import topic_path
from tests.support.clients.spark import read_batch, rows_of, schema, source_of
from tests.support.servers.http import HttpYard, Topics

EVENTS = {"topic": "_events"}
NARROW = "seq ts event queue job_id state"


def run_jobs(topics: Topics, queue: str, count: int) -> None:
    """Put jobs, and finish them."""
    topics.ask("PUT", f"/v0/topics/{queue}", {"type": "queue"})
    records = [{"data": at} for at in range(count)]
    assert topics.ask("POST", f"/v0/topics/{queue}", {"records": records})[0] == 200
    claimed = topics.ask("POST", f"/v0/topics/{queue}/claim", {"node": "w1", "max": count})[1]
    seqs = [each["$seq"] for each in claimed["claimed"]]
    assert len(seqs) == count
    assert topics.ask("POST", f"/v0/topics/{queue}/ack", {"node": "w1", "seqs": seqs})[0] == 200


def test_what_became_of_jobs_is_a_table(yard: HttpYard, topics: Topics) -> None:
    run_jobs(topics, "e-a", 3)
    rows = [row for row in read_batch(yard.url, NARROW, **EVENTS) if row["queue"] == "e-a"]
    assert [row["event"] for row in rows] == ["enqueued"] * 3 + ["claimed"] * 3 + ["completed"] * 3
    assert [row["seq"] for row in rows] == sorted(row["seq"] for row in rows)


def test_all_columns_can_be_read(yard: HttpYard, topics: Topics) -> None:
    run_jobs(topics, "e-b", 1)
    ended = [
        row
        for row in read_batch(yard.url, "", **EVENTS)
        if row["queue"] == "e-b" and row["event"] == "completed"
    ]
    (row,) = ended
    assert row["worker"] == "w1"
    assert row["queue_seq"] == 1


def test_a_dead_letter_says_why_and_where_it_is(yard: HttpYard, topics: Topics) -> None:
    config = {"type": "queue", "dead_letter": "e-l.dead"}
    topics.ask("PUT", "/v0/topics/e-l", config)
    topics.ask("POST", "/v0/topics/e-l", {"records": [{"data": 1}]})
    topics.ask("POST", "/v0/topics/e-l/claim", {"node": "w1"})
    given_up = {"node": "w1", "seqs": [1], "error": "no address"}
    assert topics.ask("POST", "/v0/topics/e-l/dead-letter", given_up)[0] == 200
    names = "event queue error reason letter_topic letter_seq"
    rows = [row for row in read_batch(yard.url, names, **EVENTS) if row["queue"] == "e-l"]
    letter = {"reason": "given_up", "letter_topic": "e-l.dead", "letter_seq": 1}
    assert rows[-1] == {
        "event": "dead_lettered", "queue": "e-l", "error": "no address", **letter
    }  # fmt: skip
    assert {row["letter_topic"] for row in rows[:-1]} == {None}


def test_filters_change_nothing_but_the_work(yard: HttpYard, topics: Topics) -> None:
    for queue in ("f-a", "f-b", "f-c"):
        run_jobs(topics, queue, 50)
    everything = read_batch(yard.url, NARROW, **EVENTS)
    chosen = read_batch(
        yard.url, NARROW, **EVENTS,
        filters=[In(("queue",), ("f-a", "f-c")), EqualTo(("event",), "claimed")],
    )  # fmt: skip
    assert chosen == [
        row for row in everything
        if row["queue"] in ("f-a", "f-c") and row["event"] == "claimed"
    ]  # fmt: skip
    times = [row["ts"] for row in everything]
    middle = min(times) + (max(times) - min(times)) / 2
    for each in (GreaterThanOrEqual(("ts",), middle), LessThan(("ts",), middle)):
        found = read_batch(yard.url, NARROW, filters=[each], **EVENTS)
        is_wanted = isinstance(each, LessThan)
        wanted = [row for row in everything if (row["ts"] < middle) == is_wanted]
        seqs = {row["seq"] for row in found}
        assert {row["seq"] for row in wanted} <= seqs
    future = datetime.now(UTC) + timedelta(days=1)
    assert read_batch(yard.url, NARROW, filters=[EqualTo(("ts",), future)], **EVENTS) == []


def test_a_stream_ends_with_the_last_row_and_not_with_other_numbers(
    yard: HttpYard, topics: Topics
) -> None:
    run_jobs(topics, "e-c", 10)
    source = source_of(yard.url, startingOffsets="earliest", pollIntervalMs="20", **EVENTS)
    reader = source.streamReader(schema=schema(source, NARROW))
    start = json.loads(json.dumps(reader.initialOffset()))
    end = reader.latestOffset(start, ReadAllAvailable())
    rows = rows_of(reader, list(reader.partitions(start, end)))
    assert end["t"]["_events"]["0"] == rows[-1]["seq"] + 1
    # Records of a log are numbers of the journal too, and not of the history.
    topics.ask("POST", "/v0/topics/e-log", {"records": [{"data": 1}] * 10})
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    run_jobs(topics, "e-c", 1)
    later = reader.latestOffset(end, ReadAllAvailable())
    assert len(rows_of(reader, list(reader.partitions(end, later)))) == 3
    reader.stop()
    with YardClient(yard.url) as client:
        state = client.get(topic_path("_events"))
        assert later["t"]["_events"]["id"] == state.text("incarnation")
