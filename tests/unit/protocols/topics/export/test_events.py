"""The history of the yard as columns: every row that can be read, and nothing else."""

from datetime import datetime
from typing import Any

import pytest

from jobyard.engine.state.history import read_history
from jobyard.protocols.topics.export.sources import PAGE_ROWS
from tests.support.clients.exports import begin, exported, unchunked
from tests.support.doors.topics import BareTopics
from tests.support.site.site import ALL_HISTORY, NOW_MS
from tests.support.site.storage import MemoryStorage

PATH = "_events/export"


@pytest.fixture
def site() -> BareTopics:
    """A yard that remembers what becomes of jobs."""
    return BareTopics(MemoryStorage(), window=ALL_HISTORY)


def commit(site: BareTopics) -> None:
    site.commit()


def run_jobs(site: BareTopics, count: int, body: bytes = b"abc") -> None:
    """Put, reserve and delete some jobs: three rows each."""
    client = site.beanstalk()
    put = b"put 5 0 60 %d\r\n%s\r\n" % (len(body), body)
    for _ in range(count):
        number = client.say(put).split()[1]
        client.say(b"reserve\r\n")
        client.say(b"delete %s\r\n" % number)
    commit(site)
    client.leave()


def seqs(site: BareTopics, after: int = 0) -> list[int]:
    """Return the numbers of all rows there are."""
    return [int(row.seq) for row in read_history(site.yard, after, 1 << 30, 1 << 40).rows]


def test_a_row_for_everything_that_happened(site: BareTopics) -> None:
    client = site.beanstalk()
    client.say(b"use mails\r\n")
    client.say(b"put 5 0 60 3\r\nabc\r\n")
    client.say(b"watch mails\r\n")
    client.say(b"reserve\r\n")
    client.say(b"delete 1\r\n")
    commit(site)
    made = exported(site, PATH)
    assert [row["event"] for row in made.rows] == ["enqueued", "claimed", "completed"]
    assert {row["queue"] for row in made.rows} == {"mails"}
    assert {row["job_id"] for row in made.rows} == {1}
    first, claimed, last = made.rows
    assert (first["rank"], first["size"], first["family"]) == (5, 3, "beanstalk")
    assert first["claimed_at"] is None
    assert claimed["door"] == "beanstalk"
    assert last["claimed_at"].timestamp() * 1000 == NOW_MS
    assert made.seqs == seqs(site)
    assert "topics-expected-rows" not in made.headers
    assert made.end == {"total_rows": "3"}


def test_any_range_of_many_pages(site: BareTopics) -> None:
    run_jobs(site, PAGE_ROWS * 2 // 3)
    every = seqs(site)
    assert len(every) > PAGE_ROWS + 1000
    made = exported(site, PATH)
    assert made.seqs == every
    assert len(made.batches) > 1
    low, high = every[10], every[-10]
    part = exported(site, f"{PATH}?from_seq={low}&to_seq={high}")
    assert part.seqs == [seq for seq in every if low < seq <= high]
    assert part.headers["topics-from-seq"] == str(low)


def test_some_columns_of_history(site: BareTopics) -> None:
    run_jobs(site, 2)
    made = exported(site, f"{PATH}?columns=event,job_id")
    assert made.rows == [
        {"event": event, "job_id": job}
        for job in (1, 2)
        for event in ("enqueued", "claimed", "completed")
    ]


def test_what_is_not_on_disk_yet_is_not_history(site: BareTopics) -> None:
    run_jobs(site, 2)
    before = exported(site, PATH).seqs
    site.beanstalk().say(b"put 5 0 60 1\r\nx\r\n")
    assert exported(site, PATH).seqs == before
    commit(site)
    assert len(exported(site, PATH).seqs) == len(before) + 1


def test_what_has_left_the_window_is_gone() -> None:
    site = BareTopics(MemoryStorage(), window=(ALL_HISTORY[0], 1 << 20))
    run_jobs(site, 3000, b"x" * 1000)
    site.compact()
    run_jobs(site, 1)
    floor = int(site.journal.history.floor)
    assert floor > 1000
    answer = site.api.ask("GET", f"/v0/topics/{PATH}?from_seq=0")
    assert answer.refusal == (410, "gone")
    detail = answer.json["error"]["detail"]
    assert (detail["gap_to"], detail["reason"]) == (floor - 1, "mixed")
    stone = site.api.diff("_events")["tombstone"]
    assert (stone["gap_to"], stone["reason"]) == (floor - 1, "mixed")
    kept = seqs(site)
    assert kept[0] >= floor
    assert exported(site, f"{PATH}?from_seq=0&allow_gap=true").seqs == kept
    assert exported(site, PATH).seqs == kept


def test_a_stream_that_the_window_leaves_behind_is_broken_off(site: BareTopics) -> None:
    run_jobs(site, PAGE_ROWS)
    reader = site.connect()
    begin(reader, PATH)
    history = site.journal.history
    history.leave(history.segments[-1])
    site.tick(1000)
    assert unchunked(reader.unread) is None
    assert not reader.is_open


def test_a_time_leads_to_its_first_row(site: BareTopics) -> None:
    run_jobs(site, 3)
    site.tick(1000)
    run_jobs(site, 1)
    every = seqs(site)
    for ts, seq, is_there in (
        (0, every[0], True),
        (NOW_MS + 1, every[-3], True),
        (NOW_MS + 1001, every[-1] + 1, False),
    ):
        said = site.api.ask("GET", f"/v0/topics/_events/seq?ts={ts}").json
        assert said["found"] is is_there
        assert said["seq"] == seq or not is_there
        assert said["from_seq"] == said["seq"] - 1
        assert said["head_seq"] >= every[-1]
        assert said["incarnation"] == site.api.state("_events")["incarnation"]


def test_without_a_window_there_is_nothing() -> None:
    for path in (PATH, "_events/seq?ts=0"):
        answer = BareTopics().api.ask("GET", f"/v0/topics/{path}")
        assert answer.refusal == (404, "topic_not_found")


def test_a_range_beyond_the_newest_is_refused(site: BareTopics) -> None:
    run_jobs(site, 1)
    answer = site.api.ask("GET", f"/v0/topics/{PATH}?to_seq=99999")
    assert answer.refusal == (416, "out_of_range")


def test_a_key_must_cover_it() -> None:
    site = BareTopics(MemoryStorage(), keys="m:read:mails,r:read", window=ALL_HISTORY)
    answer = site.connect("m").ask("GET", f"/v0/topics/{PATH}")
    assert answer.refusal == (403, "forbidden")
    assert exported(site, PATH, site.connect("r")).rows == []


def as_shown(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of an export as `diff` shows it: zero and unknown values are left out."""
    found = {name: value for name, value in row.items() if value}
    for name, value in found.items():
        if isinstance(value, datetime):
            found[name] = round(value.timestamp() * 1000)
    found["id"] = found.pop("job_id")
    return found


def test_the_rows_are_those_that_diff_shows(site: BareTopics) -> None:
    client = site.beanstalk()
    client.say(b"put 5 60 60 3\r\nabc\r\n")
    client.say(b"kick-job 1\r\n")
    client.say(b"reserve\r\n")
    client.say(b"bury 1 7\r\n")
    client.say(b"kick 1\r\n")
    client.say(b"reserve\r\n")
    client.say(b"release 1 0 0\r\n")
    client.say(b"delete 1\r\n")
    bunqueue = site.bunqueue()
    bunqueue.ask("PUSH", queue="mails", data={"a": 1}, maxAttempts=1)
    pulled = bunqueue.ask("PULL", queue="mails")
    bunqueue.ask("FAIL", id=pulled["job"]["id"], error="no luck")
    commit(site)
    shown = [
        {"seq": record["$seq"], "ts": record["$ts"], **record["data"]}
        for record in site.api.diff("_events")["records"]
    ]
    assert len({row["event"] for row in shown}) >= 7
    assert any("error" in row for row in shown)
    assert [as_shown(row) for row in exported(site, PATH).rows] == shown
