"""Some rows of the history: those that a reader of all rows would have picked."""

from datetime import UTC, datetime
from typing import Any

import pytest

from jobyard.protocols.topics.export.sources import PAGE_ROWS
from tests.support.clients.exports import begin, exported, hear
from tests.support.clients.topics import TopicsClient
from tests.support.doors.topics import BareTopics
from tests.support.site.site import ALL_HISTORY, NOW_MS
from tests.support.site.storage import MemoryStorage

PATH = "_events/export"


@pytest.fixture
def site() -> BareTopics:
    """A yard that remembers what becomes of jobs."""
    return BareTopics(MemoryStorage(), window=ALL_HISTORY)


def run_jobs(site: BareTopics, *tubes: str, count: int = 1, body: bytes = b"abc") -> None:
    """Put, reserve and delete jobs, and leave one delayed, one buried and one moved."""
    client = site.beanstalk()
    for tube in tubes:
        client.say(b"use %s\r\nwatch %s\r\n" % (tube.encode(), tube.encode()))
        for _ in range(count):
            number = client.say(b"put 5 0 60 %d\r\n%s\r\n" % (len(body), body)).split()[1]
            client.say(b"reserve\r\n")
            client.say(b"delete %s\r\n" % number)
        client.say(b"put 5 60 60 3\r\nabc\r\n")
        client.say(b"kick 1\r\n")
        number = client.say(b"reserve\r\n").split()[1]
        client.say(b"bury %s 1\r\n" % number)
        client.say(b"delete %s\r\n" % number)
    site.commit()
    client.leave()


def at(row: dict[str, Any]) -> int:
    """Return the time of a row in milliseconds."""
    ts = row["ts"]
    assert isinstance(ts, datetime)
    return round(ts.astimezone(UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    "query",
    [
        "queue=mails",
        "queue=mails,sms",
        "queue=nobody",
        "event=enqueued",
        "event=completed,buried,kicked,removed",
        "event=nothing",
        "queue=sms&event=claimed",
        f"from_ts={NOW_MS + 1000}",
        f"to_ts={NOW_MS + 1000}",
        f"from_ts={NOW_MS + 1000}&to_ts={NOW_MS + 1000}&queue=sms,push",
        f"from_ts={NOW_MS + 1001}&to_ts={NOW_MS + 1000}",
        f"from_ts={10**30}",
        f"to_ts={10**30}&from_ts=0",
    ],
)
def test_the_rows_are_those_of_all_that_fit(site: BareTopics, query: str) -> None:
    for _ in range(3):
        run_jobs(site, "mails", "sms", "push")
        site.tick(1000)
    asked = dict(part.split("=") for part in query.split("&"))
    every = exported(site, PATH).rows
    expected = [
        row
        for row in every
        if ("queue" not in asked or row["queue"] in asked["queue"].split(","))
        and ("event" not in asked or row["event"] in asked["event"].split(","))
        and at(row) >= int(asked.get("from_ts", 0))
        and at(row) <= int(asked.get("to_ts", 1 << 62))
    ]
    assert len(expected) < len(every) or "from_ts=0" in query
    made = exported(site, f"{PATH}?{query}")
    assert made.rows == expected
    assert made.headers["topics-to-seq"] == exported(site, PATH).headers["topics-to-seq"]
    half = every[len(every) // 2]["seq"]
    tail = exported(site, f"{PATH}?{query}&from_seq={half}")
    assert tail.rows == [row for row in expected if row["seq"] > half]


def test_a_stream_gets_to_its_end_past_many_rows_that_are_left_out(site: BareTopics) -> None:
    run_jobs(site, "sms")
    run_jobs(site, "mails", count=2 * PAGE_ROWS)
    run_jobs(site, "sms")
    reader = site.connect()
    headers = begin(reader, f"{PATH}?queue=sms&columns=queue,seq")
    site.tick(1000)
    made = hear(reader, headers)
    assert {row["queue"] for row in made.rows} == {"sms"}
    assert len(made.batches) == 2
    assert site.timers() == 0


def test_old_segments_are_not_read() -> None:
    site = BareTopics(MemoryStorage(), window=ALL_HISTORY)
    for _ in range(3):
        run_jobs(site, "mails", count=1000, body=b"x" * 1000)
    site.tick(60_000)
    run_jobs(site, "sms")
    segments = site.journal.history.segments
    assert len(segments) > 1
    segments[0].latest_ms = NOW_MS - 1
    made = exported(site, f"{PATH}?from_ts={NOW_MS}")
    assert made.seqs[0] >= segments[0].next_record
    assert made.rows[-1]["queue"] == "sms"


def test_a_clock_that_goes_back_hides_no_rows(site: BareTopics) -> None:
    run_jobs(site, "mails")
    site.journal.wall_offset_ms -= 3_600_000
    run_jobs(site, "sms")
    made = exported(site, f"{PATH}?from_ts={NOW_MS}")
    assert {row["queue"] for row in made.rows} == {"mails"}
    early = exported(site, f"{PATH}?to_ts={NOW_MS - 1}")
    assert {row["queue"] for row in early.rows} == {"sms"}


def test_filters_hold_after_a_restart() -> None:
    site = BareTopics(MemoryStorage(), window=ALL_HISTORY)
    run_jobs(site, "mails", "sms")
    site.tick(5000)
    run_jobs(site, "sms")
    query = f"{PATH}?queue=sms&from_ts={NOW_MS + 5000}"
    before = exported(site, query).rows
    site.commit()
    assert isinstance(site.storage, MemoryStorage)
    after = BareTopics(site.storage.cut_off(), site.now_ms, window=ALL_HISTORY)
    assert exported(after, query).rows == before
    assert len(before) > 0


@pytest.mark.parametrize(
    "query", ["queue=", "queue=a,", "event=,", "from_ts=x", "to_ts=-1", "from_ts=1.5"]
)
def test_filters_that_make_no_sense_are_refused(site: BareTopics, query: str) -> None:
    answer = site.api.ask("GET", f"/v0/topics/{PATH}?{query}")
    assert answer.refusal == (400, "invalid_request")


@pytest.mark.parametrize("parameter", ["queue", "event", "from_ts", "to_ts"])
def test_logs_have_no_filters(api: TopicsClient, parameter: str) -> None:
    api.put("log")
    answer = api.ask("GET", f"/v0/topics/log/export?{parameter}=1")
    assert answer.refusal == (400, "invalid_request")
