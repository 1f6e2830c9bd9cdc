"""The name, id and limit of deliveries that a record gives its job, as all doors know them."""

from typing import Any

import pytest

from jobyard.protocols.topics.export.jobs import JOB_FIELDS
from tests.support.clients.exports import exported
from tests.support.clients.topics import TopicsClient
from tests.support.doors.topics import BareTopics
from tests.support.site.recount import recount
from tests.support.site.storage import MemoryStorage

LABELS = {"name": "send", "job_id": "m-1", "max_attempts": 2}
SHOWN = ("client_id", "name", "max_attempts")


def shown(site: BareTopics, name: str = "q") -> list[list[Any]]:
    """Return what an export shows of the jobs of a queue."""
    columns = ",".join(field.name for field in JOB_FIELDS)
    rows = exported(site, f"{name}/export?jobs=ready,delayed,dead,leased&columns={columns}").rows
    return [[row[column] for column in SHOWN] for row in rows]


def take(api: TopicsClient, name: str = "q") -> list[int]:
    return [one["$seq"] for one in api.claim(name, max=9)["claimed"]]


def test_a_job_keeps_them_over_a_restart() -> None:
    site = BareTopics(MemoryStorage())
    site.api.put("q", type="queue")
    plain = {"data": 1, "name": None, "job_id": None, "max_attempts": None}
    answer = site.api.ok("q", {"strict": True, "records": [{"data": 1, **LABELS}, plain]})
    assert (answer["written"], answer["duplicates"]) == (2, [])
    for each in (False, True):
        site = site.after_a_crash() if each else site
        assert shown(site) == [["m-1", "send", 2], [None, None, None]]
        job = site.bunqueue().ok("GetJob", id="m-1")["job"]
        assert (job["id"], job["name"], job["maxAttempts"]) == ("m-1", "send", 2)
        assert site.api.ok("q", {"records": [{"data": 2, "job_id": "m-1"}]})["duplicates"]
        recount(site.yard)


@pytest.mark.parametrize("count", [1, 3000])
def test_a_record_whose_id_a_job_has_is_a_duplicate(count: int) -> None:
    site = BareTopics(MemoryStorage())
    api = site.api
    api.put("q", type="queue")
    api.put("p", type="queue")
    api.write("p", 0)
    api.ok("p", {"records": [{"data": 1, "job_id": "b"}]})
    site.bunqueue().ok("PUSH", queue="other", data=1, jobId="c")
    records: list[dict[str, object]] = [{"data": "x" * 40} for _ in range(count)]
    records += [{"data": 1, "job_id": one} for one in ("a", "b", "a", "c", "d")]
    answer = api.ok("q", {"records": records})
    assert answer["written"] == count + 2
    assert answer["duplicates"] == [[count + 1, 2], [count + 2, count + 1], [count + 3, 1]]
    # It is free again when the job is gone.
    take(api, "p")
    api.ok("p/ack", {"node": "w", "seqs": [1, 2]})
    assert api.ok("q", {"records": [{"data": 1, "job_id": "b"}]})["written"] == 1
    # bunqueue finds it, too.
    assert site.bunqueue().ok("PUSH", queue="other", data=2, jobId="b")["id"] == "b"
    assert site.yard.queues["other"].jobs_count() == 1
    recount(site.yard)


def test_a_record_with_a_key_and_an_id(api: TopicsClient) -> None:
    api.put("q", type="queue")
    api.ok("q", {"records": [{"data": 1, "key": "k", "job_id": "a"}]})
    records = [
        {"data": 1, "key": "k", "job_id": "b"},
        {"data": 1, "key": "l", "job_id": "a"},
        {"data": 1, "key": "m", "job_id": "b"},
        {"data": 1, "key": "m", "job_id": "c"},
        {"data": 1, "key": "n", "job_id": "b"},
        {"data": 1, "key": "l"},
    ]
    answer = api.ok("q", {"records": records})
    assert answer["duplicates"] == [[0, 1], [1, 1], [3, 2], [4, 2]]
    assert answer["written"] == 2


def test_an_id_alone_gives_a_queue_no_configuration() -> None:
    site = BareTopics(MemoryStorage())
    site.beanstalk().say(b"use q\r\nput 0 0 9 1\r\nx\r\n")
    site.api.ok("q", {"records": [{"data": 1, "job_id": "a"}]})
    assert site.yard.queues["q"].config is None


def test_the_limit_of_a_job_goes_before_that_of_its_queue() -> None:
    site = BareTopics(MemoryStorage())
    api = site.api
    api.put("q", type="queue", max_deliveries=3, dead_letter="q.dlq")
    limits = (1, None, 5)
    api.ok("q", {"records": [{"data": 1, "max_attempts": most} for most in limits]})
    gone = []
    for _ in range(6):
        seqs = take(api)
        gone.append(seqs)
        api.ok("q/nack", {"node": "w", "seqs": seqs})
        site = site.after_a_crash()
        api = site.api
    assert gone == [[1, 2, 3], [2, 3], [2, 3], [3], [3], []]
    letters = api.diff("q.dlq")["records"]
    assert [one["meta"].get("$dead_letter_max_attempts") for one in letters] == ["1", None, "5"]


def test_a_job_that_fails_at_another_door_has_the_same_limit() -> None:
    site = BareTopics(MemoryStorage())
    site.api.put("q", type="queue", dead_letter="q.dlq")
    site.api.ok("q", {"records": [{"data": 1, "max_attempts": 1, "job_id": "a"}]})
    bunqueue = site.bunqueue()
    assert bunqueue.ok("PULL", queue="q")["job"]["id"] == "a"
    bunqueue.ok("FAIL", id="a", error="boom")
    (letter,) = site.api.diff("q.dlq")["records"]
    assert letter["meta"]["$dead_letter_client_id"] == "a"
    assert letter["meta"]["$dead_letter_error"] == "boom"


def test_a_redriven_job_has_them_again(api: TopicsClient, site: BareTopics) -> None:
    api.put("q", type="queue", dead_letter="q.dlq")
    other = {**LABELS, "job_id": "m-2"}
    api.ok("q", {"records": [{"data": 1, "meta": {"m": 1}, **LABELS}, {"data": 2, **other}]})
    api.ok("q/dead-letter", {"node": "w", "seqs": take(api)})
    api.ok("q", {"records": [{"data": 3, "job_id": "m-2"}]})
    assert api.ok("q/redrive", {"seqs": [1, 2]})["redriven"] == 2
    assert shown(site) == [["m-2", None, None], ["m-1", "send", 2], [None, "send", 2]]
    recount(site.yard)


def test_staged_records_have_them_too() -> None:
    site = BareTopics(MemoryStorage())
    api = site.api
    api.put("q", type="queue")
    api.ok("q", {"records": [{"data": 0, "job_id": "taken"}]})
    records = [
        {"data": 1, **LABELS},
        {"data": 2, "job_id": "taken"},
        {"data": 3, "job_id": "m-1", "key": "k"},
        {"data": 4, "name": "x", "key": "l"},
    ]
    place = {"topic": "q", "part": 0, "attempt": 0, "chunk": 0}
    staged = api.ask("POST", "/v0/txns/x/stage", {**place, "records": records, "strict": True})
    assert staged.status == 200
    site = site.after_a_crash()
    part = {"topic": "q", "part": 0, "attempt": 0, "chunks": 1, "rows": 4}
    commit = {"parts": [part], "strict": True}
    answer = site.api.ask("POST", "/v0/txns/x/commit", commit).json
    assert (answer["topics"]["q"]["written"], answer["topics"]["q"]["duplicates"]) == (2, 2)
    for each in (False, True):
        site = site.after_a_crash() if each else site
        assert shown(site) == [["taken", None, None], ["m-1", "send", 2], [None, "x", None]]
        assert site.bunqueue().ok("GetJob", id="m-1")["job"]["name"] == "send"
        recount(site.yard)


def test_an_id_that_is_taken_between_stage_and_commit(api: TopicsClient) -> None:
    api.put("q", type="queue")
    place = {"topic": "q", "part": 0, "attempt": 0, "chunk": 0}
    records = [{"data": 1, "job_id": "a"}]
    assert api.ask("POST", "/v0/txns/x/stage", {**place, "records": records}).status == 200
    api.ok("q", {"records": records})
    part = {"topic": "q", "part": 0, "attempt": 0, "chunks": 1, "rows": 1}
    answer = api.ask("POST", "/v0/txns/x/commit", {"parts": [part]}).json
    assert (answer["topics"]["q"]["written"], answer["topics"]["q"]["duplicates"]) == (0, 1)


def test_a_commit_with_the_same_id_for_two_queues_is_refused(api: TopicsClient) -> None:
    parts = []
    for name in ("p", "q"):
        api.put(name, type="queue")
        place = {"topic": name, "part": 0, "attempt": 0}
        records = [{"data": 1, "job_id": "a"}]
        stage = {**place, "chunk": 0, "records": records}
        assert api.ask("POST", "/v0/txns/x/stage", stage).status == 200
        parts.append({**place, "chunks": 1, "rows": 1})
    assert api.ask("POST", "/v0/txns/x/commit", {"parts": parts}).refusal == (409, "same_job_id")
    assert api.state("p")["count"] == 0


@pytest.mark.parametrize("field", LABELS)
@pytest.mark.parametrize("count", [1, 3000])
def test_a_log_has_no_jobs(api: TopicsClient, field: str, count: int) -> None:
    api.put("log")
    api.put("q", type="queue")
    api.ok("q", {"records": [{"data": 1, "job_id": "m-1"}]})
    records: list[dict[str, object]] = [{"data": "x" * 40} for _ in range(count)]
    records[-1][field] = LABELS[field]
    assert api.post("log", {"records": records}).refusal == (409, "not_a_queue")
    assert api.post("new", {"records": records}).refusal == (409, "not_a_queue")
    if count == 1:
        stage = {"topic": "log", "part": 0, "attempt": 0, "chunk": 0, "records": records}
        answer = api.ask("POST", "/v0/txns/x/stage", stage)
        assert answer.refusal == (409, "not_a_queue")
    assert api.state("log")["head_seq"] == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", 1),
        ("name", "x" * 257),
        ("job_id", ""),
        ("job_id", ["a"]),
        ("job_id", "x" * 257),
        ("max_attempts", 0),
        ("max_attempts", 1001),
        ("max_attempts", "1"),
        ("max_attempts", 1.5),
    ],
)
def test_labels_that_are_none(api: TopicsClient, field: str, value: object) -> None:
    api.put("q", type="queue")
    answer = api.post("q", {"records": [{"data": 1, field: value}]})
    assert answer.refusal == (400, "invalid_request")
