"""Jobs that cross over: written at one door of the yard, worked on at another."""

import json

import pytest

from tests.support.clients.topics import TopicsClient
from tests.support.doors.topics import BareTopics
from tests.support.site.storage import MemoryStorage


@pytest.fixture
def queue(api: TopicsClient) -> str:
    """A queue."""
    api.put("q", type="queue")
    return "q"


# -- written here ----------------------------------------------------------------------------------


def test_a_job_written_here_is_reserved_by_beanstalk(
    site: BareTopics, api: TopicsClient, queue: str
) -> None:
    api.ok(queue, b'{"records":[{"data": {"a" : [ 1 ]},"tag":"t"}]}')
    worker = site.beanstalk()
    worker.say(b"watch q\r\n")
    said = worker.say(b"reserve-with-timeout 0\r\n")
    first, _, body = said.partition(b"\r\n")
    assert first.startswith(b"RESERVED ")
    assert body == b'{"a" : [ 1 ]}\r\n'
    assert api.state(queue)["queue"]["in_flight"] == 1
    assert api.claim(queue)["claimed"] == []
    body_of_ack = {"node": "w", "seqs": [1]}
    assert api.ok("q/ack", body_of_ack)["skipped"] == [1]
    job_id = first.split()[1]
    assert worker.say(b"delete " + job_id + b"\r\n") == b"DELETED\r\n"
    assert api.state(queue)["count"] == 0
    worker.leave()


def test_a_beanstalk_client_that_leaves_gives_the_job_back(
    site: BareTopics, api: TopicsClient, queue: str
) -> None:
    api.write(queue, 1)
    worker = site.beanstalk()
    worker.say(b"watch q\r\n")
    assert worker.say(b"reserve-with-timeout 0\r\n").startswith(b"RESERVED")
    worker.leave()
    (job,) = api.claim(queue)["claimed"]
    assert job["deliveries"] == 2


def test_a_lease_of_a_beanstalk_client_lasts_as_the_topic_says(
    site: BareTopics, api: TopicsClient
) -> None:
    api.put("q", type="queue", lease_ms=2000)
    api.write("q", 1)
    worker = site.beanstalk()
    worker.say(b"watch q\r\n")
    assert worker.say(b"reserve-with-timeout 0\r\n").startswith(b"RESERVED")
    site.tick(1999)
    assert api.claim("q")["claimed"] == []
    site.tick(2)
    assert api.claim("q")["count"] == 1
    worker.leave()


@pytest.mark.parametrize(
    "data", [None, True, 0, -5, 1.5, "ä", [], {}, {"a": [1, {"b": None}]}, "x" * 300]
)
def test_a_job_written_here_is_pulled_by_bunqueue(
    site: BareTopics, api: TopicsClient, queue: str, data: object
) -> None:
    api.write(queue, data)
    worker = site.bunqueue()
    job = worker.pull("q")
    assert job["data"] == data
    assert api.claim(queue)["claimed"] == []
    worker.ok("ACK", id=job["id"])
    assert api.state(queue)["count"] == 0
    assert api.diff(queue)["records"] == []
    worker.close()


def test_a_job_that_bunqueue_fails_comes_back(
    site: BareTopics, api: TopicsClient, queue: str
) -> None:
    api.write(queue, 1)
    worker = site.bunqueue()
    worker.ok("FAIL", id=worker.pull("q")["id"], error="no")
    site.tick(60_000)
    (job,) = api.claim(queue)["claimed"]
    assert (job["$seq"], job["deliveries"]) == (1, 2)
    worker.close()


# -- claimed here ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "data"),
    [
        (b'{"a" : 1}', b'{"a" : 1}'),
        (b"plain text", b'"plain text"'),
        ("\u00e4".encode(), '"\u00e4"'.encode()),
        (b"", b'""'),
        (b"\xff\x00", b'{"$base64":"/wA="}'),
        (b"NaN", b'"NaN"'),
        (b"12", b"12"),
    ],
)
def test_a_job_of_beanstalk_is_claimed_here(
    site: BareTopics, api: TopicsClient, body: bytes, data: bytes
) -> None:
    producer = site.beanstalk()
    producer.say(b"use q\r\n")
    producer.say(b"put 7 0 60 %d\r\n%s\r\n" % (len(body), body))
    page = api.post("q/diff", {}).body
    assert b'"data":' + data + b"}" in page
    answer = api.post("q/claim", {"node": "w"})
    assert b'"data":' + data + b"}" in answer.body
    (job,) = answer.json["claimed"]
    assert (job["$seq"], job["deliveries"]) == (1, 1)
    assert producer.say(b"peek-ready\r\n") == b"NOT_FOUND\r\n"
    assert api.ok("q/ack", {"node": "w", "seqs": [1]})["acked"] == 1
    assert "q" in site.yard.queues
    producer.leave()
    assert api.ask("GET", "/v0/topics/q").status == 404


def test_a_job_of_bunqueue_is_claimed_here(site: BareTopics, api: TopicsClient) -> None:
    producer = site.bunqueue()
    data = {"to": "a@b", "n": [1, 2.5, None], "raw": b"\xff"}
    job_id = producer.push("q", data)
    assert api.state("q")["type"] == "queue"
    (job,) = api.claim("q")["claimed"]
    assert job["data"] == {"to": "a@b", "n": [1, 2.5, None], "raw": {"$base64": "/w=="}}
    assert producer.state(job_id) == "active"
    assert api.ok("q/ack", {"node": "w", "seqs": [job["$seq"]]})["acked"] == 1
    assert producer.state(job_id) == "completed"
    state = api.state("q")
    assert (state["count"], state["queue"]["in_flight"]) == (0, 0)
    producer.close()


def test_a_nack_is_a_failed_attempt_of_a_job_of_bunqueue(
    site: BareTopics, api: TopicsClient
) -> None:
    producer = site.bunqueue()
    job_id = producer.push("q", 1, maxAttempts=2)
    api.claim("q")
    body: dict[str, object] = {"node": "w", "seqs": [1], "delay_ms": 0}
    assert api.ok("q/nack", body)["nacked"] == 1
    assert api.claim("q")["count"] == 1
    assert api.ok("q/nack", body)["nacked"] == 1
    assert producer.state(job_id) == "failed"
    assert api.claim("q")["claimed"] == []
    producer.close()


def test_a_job_that_is_given_up_is_dead_and_can_be_driven_back(
    site: BareTopics, api: TopicsClient, queue: str
) -> None:
    api.write(queue, 1)
    producer = site.bunqueue()
    job_id = producer.push("q", 2, maxAttempts=3)
    api.claim(queue, max=2)
    answer = api.ok("q/dead-letter", {"node": "w", "seqs": [1, 2, 3]})
    assert (answer["dead_lettered"], answer["skipped"], answer["in_flight"]) == (2, [3], 0)
    [first, second] = producer.ok("Dlq", queue="q")["entries"]
    assert (first["job"]["data"], second["job"]["id"], second["reason"]) == (1, job_id, "buried")
    assert api.ok("q/redrive", {})["redriven"] == 2
    assert [one["deliveries"] for one in api.claim(queue, max=2)["claimed"]] == [2, 2]
    assert producer.ok("GetJob", id=job_id)["job"]["attempts"] == 0
    site.check()


def test_a_job_that_is_given_up_becomes_a_dead_letter(site: BareTopics, api: TopicsClient) -> None:
    api.put("q", type="queue", max_deliveries=5, dead_letter="q.dlq")
    api.write("q", 1)
    api.claim("q")
    other = {"node": "v", "seqs": [1]}
    assert api.ok("q/dead-letter", other)["skipped"] == [1]
    body = {"node": "w", "seqs": [1]}
    assert api.ok("q/dead-letter", body)["dead_lettered"] == 1
    assert api.state("q")["queue"]["dead_lettered"] == 1
    assert [one["data"] for one in api.diff("q.dlq")["records"]] == [1]
    assert api.ok("q/dead-letter", body)["skipped"] == [1]
    site.check()


def test_jobs_of_all_doors_are_read_in_order(
    site: BareTopics, api: TopicsClient, queue: str
) -> None:
    api.ok(queue, {"records": [{"data": 1, "tag": "t", "node": "n", "meta": {"m": 1}}]})
    site.bunqueue().push("q", {"two": 2})
    producer = site.beanstalk()
    producer.say(b"use q\r\n")
    producer.say(b"put 0 0 60 5\r\nthree\r\n")
    page = api.diff(queue, include_tags=True)
    assert [one["$seq"] for one in page["records"]] == [1, 2, 3]
    assert [one["data"] for one in page["records"]] == [1, {"two": 2}, "three"]
    assert api.diff(queue, node="n", from_seq=0)["records"][0]["$seq"] == 2
    assert api.ok("q/delete", {"match": "t*"})["deleted"] == 1
    assert [one["data"] for one in api.claim(queue, max=9)["claimed"]] == [{"two": 2}, "three"]
    producer.leave()


def test_a_stream_here_is_given_jobs_of_all_doors(
    site: BareTopics, api: TopicsClient, queue: str
) -> None:
    assert queue == "q"
    worker = site.connect()
    worker.listen("/v0/topics/q/work?node=w&max=5")
    worker.events()
    producer = site.beanstalk()
    producer.say(b"use q\r\n")
    producer.say(b"put 0 0 60 3\r\none\r\n")
    site.settle()
    site.bunqueue().push("q", [2])
    site.settle()
    api.write("q", {"three": 3})
    assert [job["data"] for job in worker.jobs()] == ["one", [2], {"three": 3}]
    producer.leave()


def test_a_full_topic_refuses_other_doors_too(site: BareTopics, api: TopicsClient) -> None:
    api.put("q", type="queue", cap_records=1, discard="reject")
    api.write("q", 1)
    producer = site.beanstalk()
    producer.say(b"use q\r\n")
    assert producer.say(b"put 0 0 60 1\r\na\r\n") == b"OUT_OF_MEMORY\r\n"
    assert site.bunqueue().refused("PUSH", queue="q", data=2)
    assert api.state("q")["count"] == 1
    producer.leave()


def test_names_of_other_doors_that_no_topic_may_have_are_not_shown(
    site: BareTopics, api: TopicsClient
) -> None:
    producer = site.beanstalk()
    producer.say(b"use a/b\r\n")
    producer.say(b"put 0 0 60 1\r\na\r\n")
    assert json.loads(api.ask("GET", "/v0/topics").body)["topics"] == []
    assert api.ask("GET", "/v0/topics/a%2Fb").refusal == (400, "invalid_request")
    assert api.ask("DELETE", "/v0/topics/a%2Fb").refusal == (400, "invalid_request")
    producer.leave()


# -- names of logs ---------------------------------------------------------------------------------


NO_JOBS = "log is a log and takes no jobs"


def test_a_log_takes_no_jobs_from_any_door(site: BareTopics, api: TopicsClient) -> None:
    api.put("log")
    beanstalk = site.beanstalk()
    assert beanstalk.say(b"use log\r\nput 0 0 60 1\r\n1\r\n") == b"USING log\r\nDRAINING\r\n"
    bunqueue = site.bunqueue()
    assert bunqueue.refused("PUSH", queue="log", data={}) == NO_JOBS
    assert bunqueue.refused("PUSHB", queue="log", jobs=[{"data": {}}]) == NO_JOBS
    flow = [{"queue": "other", "id": "a"}, {"queue": "log", "id": "b", "parentIds": ["a"]}]
    assert bunqueue.ask("PUSHF", jobs=flow)["ok"] is False
    assert beanstalk.say(b"watch log\r\nreserve-with-timeout 0\r\n").endswith(b"TIMED_OUT\r\n")
    assert api.state("log")["count"] == 0
    assert [one["topic"] for one in api.ask("GET", "/v0/topics").json["topics"]] == ["log"]
    beanstalk.leave()
    assert "log" not in site.yard.queues
    api.write("log", 1)
    assert [one["data"] for one in api.diff("log")["records"]] == [1]


def test_a_cron_whose_queue_is_a_log_waits_until_it_is_none(
    site: BareTopics, api: TopicsClient
) -> None:
    api.put("log")
    bunqueue = site.bunqueue()
    bunqueue.ok("Cron", name="c", queue="log", data={}, repeatEvery=1000)
    site.tick(5000)
    assert api.state("log")["type"] == "log"
    assert bunqueue.ok("PULL", queue="log")["job"] is None
    api.ask("DELETE", "/v0/topics/log")
    site.tick(5000)
    assert bunqueue.pull("log")["queue"] == "log"


def test_a_tube_in_use_is_shut_while_there_is_a_log_of_its_name(
    site: BareTopics, api: TopicsClient
) -> None:
    beanstalk = site.beanstalk()
    assert beanstalk.say(b"use t\r\n") == b"USING t\r\n"
    api.put("t")
    assert beanstalk.say(b"put 0 0 60 1\r\n1\r\n") == b"DRAINING\r\n"
    api.ask("DELETE", "/v0/topics/t")
    assert beanstalk.say(b"put 0 0 60 1\r\n1\r\n").startswith(b"INSERTED")
    assert api.ask("PUT", "/v0/topics/t", {}).refusal == (409, "topic_exists_incompatible")
    assert api.write("t", 2)["seqs"] == [2]
    assert api.state("t")["type"] == "queue"


def test_a_log_takes_no_jobs_after_a_restart_either() -> None:
    site = BareTopics(MemoryStorage())
    site.api.put("log")
    site = site.after_a_crash()
    said = site.beanstalk().say(b"use log\r\nput 0 0 60 1\r\n1\r\n")
    assert said == b"USING log\r\nDRAINING\r\n"
    assert site.bunqueue().refused("PUSH", queue="log", data={}) == NO_JOBS
    site.check()


# -- routers from queues ---------------------------------------------------------------------------


def test_jobs_of_every_door_are_copied_from_a_queue_into_a_log() -> None:
    site = BareTopics(MemoryStorage())
    api = site.api
    site.beanstalk().say(b"use q\r\nput 0 0 60 3\r\nold\r\n")
    assert api.ask("PUT", "/v0/routers/r", {"source": "q", "dest": "log"}).status == 201
    site.beanstalk().say(b"use q\r\nput 0 0 60 5\r\nplain\r\nput 0 0 60 7\r\n[1, 2]\n\r\n")
    site.bunqueue().push("q", {"a": [None, 1.5]})
    site.bunqueue().ok("PUSHB", queue="q", jobs=[{"data": 1}, {"data": 2}])
    api.ok("q", {"records": [{"data": "here", "tag": "t", "meta": {"m": 1}}]})
    found = [one["data"] for one in api.diff("log")["records"]]
    assert found == ["plain", [1, 2], {"a": [None, 1.5]}, 1, 2, "here"]
    assert api.diff("log")["records"][-1]["meta"] == {"m": 1}
    state = api.ask("GET", "/v0/routers/r").json
    assert (state["forwarded_total"], state["cursor"], state["lag"]) == (6, 7, 0)
    api.ok("q/delete", {"before_seq": 100})
    site = site.after_a_crash()
    site.beanstalk().say(b"use q\r\nput 0 0 60 1\r\n9\r\n")
    assert [one["data"] for one in site.api.diff("log", from_seq=6)["records"]] == [9]
    assert site.api.ask("DELETE", "/v0/topics/q").json["routers_removed"] == ["r"]
    site.check()


def test_a_copy_lies_in_another_queue_for_whoever_waits_there(
    site: BareTopics, api: TopicsClient, queue: str
) -> None:
    api.put("copies", type="queue")
    assert api.ask("PUT", "/v0/routers/r", {"source": queue, "dest": "copies"}).status == 201
    worker = site.connect()
    worker.send("POST", "/v0/topics/copies/claim", {"node": "w", "wait_ms": 5000})
    site.beanstalk().say(b"use q\r\nput 0 0 60 1\r\n7\r\n")
    site.settle()
    answer = worker.hear()
    assert answer is not None
    assert [job["data"] for job in answer.json["claimed"]] == [7]
    assert api.state(queue)["queue"]["ready"] == 1
