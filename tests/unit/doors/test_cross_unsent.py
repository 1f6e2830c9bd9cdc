"""A job whose delivery never reached its client is available to others at once, at every door."""

import json

import pytest

from jobyard.model.job import LEASED, READY, Job
from tests.support.clients.resp import pack
from tests.support.doors.crossing import DOORS, QUEUE, Crossing


def put(doors: Crossing, door: str = "topics") -> Job:
    doors.make()
    doors.put_at(door, 7)
    job = doors.yard.jobs.get(1)
    assert job is not None
    return job


def claim_request() -> bytes:
    body = json.dumps({"node": "w9", "max": 3}).encode()
    head = f"POST /v0/topics/{QUEUE}/claim HTTP/1.1\r\nHost: yard\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


@pytest.mark.parametrize("family", DOORS)
@pytest.mark.parametrize("is_told", [False, True])
def test_what_a_node_was_not_told_of_is_not_its_own(family: str, *, is_told: bool) -> None:
    doors = Crossing()
    job = put(doors, family)
    session = doors.connect().session
    session.receive(claim_request(), doors.now_ms)
    assert job.state == LEASED
    if is_told:
        assert b"claimed" in session.take_output()
    session.closed(doors.now_ms)
    assert job.state == (LEASED if is_told else READY)
    doors.check()


@pytest.mark.parametrize("is_told", [False, True])
def test_a_later_answer_takes_no_job_from_a_node(*, is_told: bool) -> None:
    doors = Crossing()
    job = put(doors)
    session = doors.connect().session
    session.receive(claim_request(), doors.now_ms)
    session.take_output()
    session.receive(b"GET /v0/health HTTP/1.1\r\nHost: yard\r\n\r\n", doors.now_ms)
    if is_told:
        session.take_output()
    session.closed(doors.now_ms)
    assert job.state == LEASED


COMMANDS = {
    "XREADGROUP": ("XREADGROUP", "GROUP", "workers", "w9", "STREAMS", "stream", ">"),
    "popLists": ("FCALL", "glidemq_popLists", 2, "priority", "lifo", 3),
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("is_told", [False, True])
def test_what_a_worker_was_not_told_of_is_not_its_own(name: str, *, is_told: bool) -> None:
    doors = Crossing()
    if name == "popLists":
        doors.make()
        doors.glide.add(data="7", lifo=1)
        job = doors.yard.jobs.get(1)
        assert job is not None
    else:
        job = put(doors)
    session = doors.library(QUEUE).client.session
    keys = {"stream", "priority", "lifo"}
    words = [doors.glide.key(str(word)) if word in keys else word for word in COMMANDS[name]]
    session.receive(pack(*words), doors.now_ms)
    assert job.state == LEASED
    if is_told:
        assert session.take_output()
    session.closed(doors.now_ms)
    assert job.state == (LEASED if is_told else READY)
    assert doors.take_at("beanstalk") == (None if is_told else 7)
    doors.check()


def test_the_next_job_is_given_back_if_the_end_of_the_last_was_not_answered() -> None:
    doors = Crossing()
    doors.make()
    for number in range(3):
        doors.put_at("glide-mq", number)
    worker = doors.library(QUEUE)
    ((job_id, entry),) = worker.read()
    for _ in range(2):
        # The second request is prepared, because this connection repeats it.
        answer = worker.next(job_id, entry)
        job_id, entry = answer[2].decode(), answer[3].decode()
    assert doors.yard.queues[QUEUE].done.live_count == 2
    doors.put_at("glide-mq", 3)
    parts = ["stream", "completed", "events", f"job:{job_id}", "metrics:completed"]
    words = (
        "FCALL", "glidemq_completeAndFetchNext", 5, *worker.keys(*parts), job_id, entry, '"ok"',
        worker.ts(), "workers", "w1", 0, 0, 0, "", "", "__", "", "__", 0, "", 0, 0, 0,
    )  # fmt: skip
    worker.client.session.receive(pack(*words), doors.now_ms)
    worker.client.session.closed(doors.now_ms)
    # What was done is done; what came with the answer did not arrive.
    assert doors.yard.queues[QUEUE].done.live_count == 3
    assert doors.take_at("bunqueue") == 3
    doors.check()


def test_a_worker_that_waited_and_was_not_told_has_nothing() -> None:
    doors = Crossing()
    doors.make()
    session = doors.library(QUEUE).client.session
    words = ("XREADGROUP", "GROUP", "workers", "w9", "BLOCK", 0, "STREAMS")
    session.receive(pack(*words, doors.glide.key("stream"), ">"), doors.now_ms)
    # Passed to the session directly, so that no session is resumed yet.
    doors.bean.client.say(b"put 0 0 60 1\r\n7\r\n")
    session.resume(doors.now_ms)
    job = doors.yard.jobs.get(1)
    assert job is not None
    assert job.state == LEASED
    session.closed(doors.now_ms)
    assert doors.take_at("beanstalk") == 7
