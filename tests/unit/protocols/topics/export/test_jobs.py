"""The jobs of a queue as a table: those in the wanted states, once each, page by page."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from jobyard.protocols.topics.export.jobs import JOB_FIELDS, JOBS_PER_LOOK, PAGE_JOBS
from tests.support.clients.exports import Export, begin, exported, hear, unchunked
from tests.support.clients.topics import TopicsClient
from tests.support.doors.topics import BareTopics
from tests.support.site.site import NOW_MS
from tests.support.site.storage import MemoryStorage

ALL = "ready,delayed,leased,dead,done,blocked"


def long(site: BareTopics, path: str) -> Export:
    """Request an export of many pages, and run it to its end."""
    reader = site.connect()
    headers = begin(reader, path)
    for _ in range(30):
        site.tick(2)
    return hear(reader, headers)


def jobs(site: BareTopics, states: str = ALL, query: str = "", name: str = "q") -> list[Any]:
    """Return the jobs of a queue, with all columns."""
    columns = ",".join(field.name for field in JOB_FIELDS)
    return exported(site, f"{name}/export?jobs={states}&columns={columns}{query}").rows


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def seqs(rows: list[Any]) -> list[int]:
    return [row["queue_seq"] for row in rows]


def test_a_job_of_this_door_in_every_column(site: BareTopics, api: TopicsClient) -> None:
    api.put("q", type="queue")
    record = {"data": [1], "tag": "t", "meta": {}, "priority": 7, "delay_ms": 500}
    api.ok("q", {"records": [record]})
    (row,) = jobs(site)
    nothing = dict.fromkeys(
        ("client_id", "name", "max_attempts", "worker", "claimed_at", "finished_at", "error")
    )
    job_id = row.pop("job_id")
    assert job_id > 0
    assert row == {
        **nothing,
        "queue_seq": 1,
        "queue": "q",
        "state": "delayed",
        "family": "topics",
        "priority": 7,
        "deliveries": 0,
        "attempts": 0,
        "enqueued_at": at(NOW_MS),
        "available_at": at(NOW_MS + 500),
        "due_at": at(NOW_MS + 500),
        "tag": "t",
        "meta": "{}",
        "data": "[1]",
        "value": b"[1]",
    }
    site.tick(600)
    api.claim("q")
    (row,) = jobs(site, "leased")
    assert (row["state"], row["worker"], row["deliveries"]) == ("leased", "w", 1)
    assert row["claimed_at"] == at(site.now_ms - 1000)
    assert row["due_at"] is None
    assert jobs(site, "ready,delayed,dead,done,blocked") == []


def test_the_schema_says_what_may_be_missing(site: BareTopics, api: TopicsClient) -> None:
    api.put("q", type="queue")
    made = exported(site, "q/export?jobs=ready")
    names = [field.name for field in JOB_FIELDS if field.name != "value"]
    assert made.schema.names == names
    assert made.schema.field("queue_seq").type == pa.int64()
    assert made.schema.field("due_at").type == pa.timestamp("us", tz="UTC")
    assert not made.schema.field("data").nullable
    nullable = exported(site, "q/export?jobs=dead&nullable=true")
    assert all(field.nullable for field in nullable.schema)
    assert made.headers["topics-to-seq"] == "0"


def test_jobs_of_all_doors_and_states(site: BareTopics, api: TopicsClient) -> None:
    api.put("q", type="queue")
    client = site.bunqueue()
    failed = client.ok("PUSH", queue="q", data={"b": 1}, name="mail", maxAttempts=1, jobId="own")
    done = client.ok("PUSH", queue="q", data=2, name="sms", maxAttempts=5)
    client.ok("FAIL", id=client.pull("q")["id"], error="Oops: no luck")
    client.ok("ACK", id=client.pull("q")["id"], result=1)
    assert failed["id"] != done["id"]
    later = client.ok("PUSH", queue="other", data=0)
    client.ok("PUSH", queue="q", data=3, dependsOn=[later["id"]])
    beanstalk = site.beanstalk()
    beanstalk.say(b"use q\r\nput 5 0 60 2\r\n\xff\x00\r\n")
    rows = jobs(site)
    assert [row["state"] for row in rows] == ["dead", "done", "blocked", "ready"]
    assert [row["family"] for row in rows] == ["bunqueue"] * 3 + ["beanstalk"]
    dead, done, _, plain = rows
    assert (dead["client_id"], dead["name"]) == ("own", "mail")
    assert (dead["attempts"], dead["max_attempts"]) == (1, 1)
    assert "no luck" in dead["error"]
    assert dead["finished_at"] == dead["claimed_at"] == at(NOW_MS)
    assert (done["name"], done["max_attempts"], done["error"]) == ("sms", 5, None)
    assert rows[2]["available_at"] is None
    assert (plain["name"], plain["priority"], plain["max_attempts"]) == (None, -5, None)
    assert plain["data"] == '{"$base64":"/wA="}'
    assert seqs(jobs(site, "dead,ready")) == [dead["queue_seq"], plain["queue_seq"]]
    client.close()
    beanstalk.leave()


def test_the_error_of_the_last_worker_is_shown(site: BareTopics, api: TopicsClient) -> None:
    api.put("q", type="queue")
    api.ok("q", {"records": [{"data": n} for n in range(2)]})
    ends = (("nack", 1, "E: first"), ("dead-letter", 2, "E: second"))
    for call, seq, error in ends:
        api.ok("q/claim", {"node": "w", "max": 2})
        api.ok(f"q/{call}", {"node": "w", "seqs": [seq], "error": error})
    found = [(row["queue_seq"], row["state"], row["error"]) for row in jobs(site)]
    assert found == [(1, "leased", "E: first"), (2, "dead", "E: second")]


def test_bytes_are_values(site: BareTopics, api: TopicsClient) -> None:
    api.put("q", type="queue")
    api.ok("q", {"records": [{"data_b64": "/w=="}, {"data_b64": ""}, {"data": "x"}]})
    rows = jobs(site)
    assert [row["value"] for row in rows] == [b"\xff", b"", b'"x"']
    assert [row["data"] for row in rows] == ['{"$base64":"/w=="}', '{"$base64":""}', '"x"']
    made = exported(site, "q/export?jobs=ready&columns=value,queue_seq")
    assert [list(row) for row in made.rows] == [["value", "queue_seq"]] * 3


def test_many_pages_hold_each_job_once(site: BareTopics, api: TopicsClient) -> None:
    api.put("q", type="queue")
    count = JOBS_PER_LOOK + 3 * PAGE_JOBS
    api.write("q", *range(count))
    api.claim("q", max=1)
    made = long(site, "q/export?jobs=ready")
    assert seqs(made.rows) == list(range(2, count + 1))
    assert max(len(rows) for rows, _ in made.batches) == PAGE_JOBS
    assert "topics-expected-rows" not in made.headers
    part = long(site, f"q/export?jobs=ready&from_seq=600&to_seq={count - 5}")
    assert seqs(part.rows) == list(range(601, count - 4))
    assert seqs(exported(site, "q/export?jobs=leased").rows) == [1]
    assert site.timers() == 1


def test_large_jobs_make_small_pages(site: BareTopics, api: TopicsClient) -> None:
    api.put("q", type="queue")
    for _ in range(3):
        api.write("q", "x" * 200_000)
    made = exported(site, "q/export?jobs=ready")
    assert [len(rows) for rows, _ in made.batches] == [2, 1]
    slim = exported(site, "q/export?jobs=ready&columns=queue_seq")
    assert [len(rows) for rows, _ in slim.batches] == [3]


def test_a_job_is_as_it_was_when_its_page_was_made(site: BareTopics, api: TopicsClient) -> None:
    api.put("q", type="queue")
    count = 2 * PAGE_JOBS
    api.write("q", *range(count))
    reader = site.connect()
    headers = begin(reader, "q/export?jobs=ready")
    api.write("q", "late")
    claimed = [job["$seq"] for job in api.claim("q", max=PAGE_JOBS + 10)["claimed"]]
    assert claimed[-1] > PAGE_JOBS
    site.tick(100)
    rows = hear(reader, headers).rows
    assert seqs(rows) == [*range(1, PAGE_JOBS + 1), *range(claimed[-1] + 1, count + 1)]


def test_a_queue_that_goes_breaks_the_stream(site: BareTopics, api: TopicsClient) -> None:
    api.put("q", type="queue")
    api.write("q", *range(2 * PAGE_JOBS))
    reader = site.connect()
    begin(reader, "q/export?jobs=ready")
    assert api.ask("DELETE", "/v0/topics/q").status == 200
    site.tick(100)
    assert unchunked(reader.unread) is None
    assert not reader.is_open


def test_bodies_are_read_back() -> None:
    site = BareTopics(MemoryStorage())
    site.yard.bodies._budget = 0
    api = site.api
    api.put("q", type="queue")
    for first in range(0, 1000, 100):
        api.write("q", *[f"{at} {'x' * 3000}" for at in range(first, first + 100)])
        site.commit()
    made = long(site, "q/export?jobs=ready")
    assert [row["data"][1:5].split()[0] for row in made.rows] == [str(at) for at in range(1000)]


def test_damaged_data_are_never_left_out_silently() -> None:
    site = BareTopics(MemoryStorage())
    site.yard.bodies._budget = 0
    api = site.api
    api.put("q", type="queue")
    api.write("q", *["x" * 3000] * 5)
    site.commit()
    for job in site.yard.jobs.all():
        if job.key == 3:
            assert job.body is None
            job.crc += 1
    reader = site.connect()
    begin(reader, "q/export?jobs=ready")
    site.tick(100)
    assert unchunked(reader.unread) is None
    assert not reader.is_open
    answer = api.ask("GET", "/v0/topics/q/export?jobs=ready&from_seq=2")
    assert answer.refusal == (500, "corrupt")
    assert seqs(long(site, "q/export?jobs=ready&allow_gap=true").rows) == [1, 2, 4, 5]
    assert seqs(long(site, "q/export?jobs=ready&columns=queue_seq").rows) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("states", ["", "ready,", "gone", "Ready", "ready dead"])
def test_states_that_no_job_has_are_refused(api: TopicsClient, states: str) -> None:
    api.put("q", type="queue")
    answer = api.ask("GET", f"/v0/topics/q/export?jobs={states.replace(' ', '%20')}")
    assert answer.refusal == (400, "invalid_request")


def test_only_queues_have_jobs(api: TopicsClient) -> None:
    api.put("log")
    for path, refusal in (
        ("log/export?jobs=ready", (409, "not_a_queue")),
        ("none/export?jobs=ready", (404, "topic_not_found")),
        ("_events/export?jobs=ready", (404, "topic_not_found")),
        ("log/export?jobs=ready&queue=a", (400, "invalid_request")),
    ):
        assert api.ask("GET", f"/v0/topics/{path}").refusal == refusal
    api.put("q", type="queue")
    assert api.ask("GET", "/v0/topics/q/export").refusal == (409, "not_a_log")
    answer = api.ask("GET", "/v0/topics/q/export?jobs=ready&incarnation=nope")
    assert answer.refusal == (409, "wrong_incarnation")
    answer = api.ask("GET", "/v0/topics/q/export?jobs=ready&to_seq=9")
    assert answer.refusal == (416, "out_of_range")


@pytest.mark.parametrize("has_storage", [True, False])
def test_a_queue_that_was_removed_and_made_again_is_another(*, has_storage: bool) -> None:
    site = BareTopics(MemoryStorage() if has_storage else None)
    api = site.api
    api.put("q", type="queue")
    first = api.state("q")["incarnation"]
    api.write("q", 1)
    assert api.state("q")["incarnation"] == first
    assert exported(site, "q/export?jobs=ready").headers["topics-incarnation"] == first
    if has_storage:
        site = site.after_a_crash()
        api = site.api
        assert api.state("q")["incarnation"] == first
    # A client of another door watches it all the time.
    watcher = site.beanstalk()
    watcher.say(b"watch q\r\n")
    assert api.ask("DELETE", "/v0/topics/q").status == 200
    api.put("q", type="queue")
    api.write("q", 2)
    state = api.state("q")
    assert (state["head_seq"], state["incarnation"] != first) == (1, True)
    answer = api.ask("GET", f"/v0/topics/q/export?jobs=ready&incarnation={first}")
    assert answer.refusal == (409, "wrong_incarnation")
    (line,) = [one for one in api.ask("GET", "/v0/topics").json["topics"] if one["topic"] == "q"]
    assert line["incarnation"] == state["incarnation"]
    cursor = {"seq": 1, "incarnation": state["incarnation"]}
    assert api.ask("PUT", "/v0/topics/q/cursors/c", cursor).status == 201
    cursor["incarnation"] = first
    assert api.ask("PUT", "/v0/topics/q/cursors/c", cursor).refusal == (409, "wrong_incarnation")


def test_an_export_of_a_queue_that_another_door_still_uses_ends_with_it() -> None:
    site = BareTopics(MemoryStorage())
    api, reader = site.connect(), site.connect()
    api.put("q", type="queue")
    api.write("q", *range(PAGE_JOBS + 1))
    site.beanstalk().say(b"watch q\r\n")
    begin(reader, "q/export?jobs=ready")
    assert api.ask("DELETE", "/v0/topics/q").status == 200
    api.put("q", type="queue")
    api.write("q", *range(PAGE_JOBS + 1))
    for _ in range(30):
        site.tick(2)
    assert reader.session.is_finished
    assert b"\r\n0\r\n" not in reader.unread
