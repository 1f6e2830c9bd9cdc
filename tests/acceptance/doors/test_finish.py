"""A job of every family finished at every door, and only by the client that took it."""

import pytest

from tests.acceptance.doors.pairs import COUNTING, DONE, GONE, LEASED, PLAIN, OneJob, pairs
from tests.support.servers.doors import LETTERS, FourDoors, Taken

RESULT = {"sent": [1, None]}
# The answer to a worker that finished a job.
GRANTED = {"B": b"DELETED", "N": {"ok": True}, "G": 1}


def assert_finished(door: str, answer: object) -> None:
    if door == "T":
        assert isinstance(answer, dict)
        assert (answer["acked"], answer["skipped"]) == (1, [])
    else:
        assert answer == GRANTED[door]


@pairs(families=PLAIN)
def test_finished_a_plain_job_is_gone(doors: FourDoors, queue: str, family: str, door: str) -> None:
    job = OneJob(doors, queue, family)
    worker = doors.door(door)
    assert_finished(door, worker.finish(worker.must_take(queue), RESULT))
    assert job.states() == GONE
    assert doors.n.result(job.ids["N"]) is None


@pairs(families=COUNTING)
def test_finished_a_counting_job_is_done_with_its_result(
    doors: FourDoors, queue: str, family: str, door: str
) -> None:
    job = OneJob(doors, queue, family)
    worker = doors.door(door)
    assert_finished(door, worker.finish(worker.must_take(queue), RESULT))
    assert job.states() == DONE
    # Finishing at a door without results stores null.
    value = RESULT if door in COUNTING else None
    text = '{"sent":[1,null]}' if door in COUNTING else "null"
    assert doors.n.result(job.ids["N"]) == value
    assert job.seen("N")["returnvalue"] == value
    assert job.seen("G")["returnvalue"].replace(" ", "") == text
    assert doors.b.ask(f"peek {job.ids['B']}") == b"NOT_FOUND"
    assert doors.b.ask(f"delete {job.ids['B']}") == b"NOT_FOUND"
    assert doors.b.ask(f"kick-job {job.ids['B']}") == b"NOT_FOUND"


@pairs()
def test_all_who_look_are_told_that_a_job_is_finished(
    doors: FourDoors, queue: str, family: str, door: str
) -> None:
    events = doors.g.key(queue, "events")
    # From the first worker on a queue has events at that door.
    doors.g.client.xgroup_create(doors.g.key(queue, "stream"), "workers", mkstream=True)
    listener = doors.bunqueue()
    listener.client.ok("SubscribeEvents", queue=queue)
    job = OneJob(doors, queue, family)
    worker = doors.door(door)
    worker.finish(worker.must_take(queue), RESULT)
    value = RESULT if door in COUNTING else None
    event = listener.client.next_event("completed")
    assert (event["jobId"], event.get("data")) == (job.ids["N"], value)
    told = [fields for _, fields in doors.g.client.xrange(events)]
    [entry] = [fields for fields in told if fields[b"event"] == b"completed"]
    assert entry[b"jobId"].decode() == job.ids["G"]
    text = b'{"sent":[1,null]}' if door in COUNTING else b"null"
    assert entry[b"returnvalue"].replace(b" ", b"") == text


OTHERS = [(taker, other) for taker in LETTERS for other in LETTERS if taker != other]


@pytest.mark.parametrize("family", list(LETTERS))
@pytest.mark.parametrize(
    ("taker", "other"), OTHERS, ids=[f"held-at-{a}-ended-at-{b}" for a, b in OTHERS]
)
def test_a_lease_is_ended_only_at_its_own_door(
    doors: FourDoors, queue: str, family: str, taker: str, other: str
) -> None:
    job = OneJob(doors, queue, family)
    taken = doors.door(taker).must_take(queue)
    stranger = doors.door(other)
    claimed = Taken(queue, job.ids[other], None)
    assert_refused(other, stranger.finish(claimed))
    assert_refused(other, stranger.fail(claimed))
    assert job.states() == LEASED
    doors.door(taker).finish(taken)
    assert job.states() == (DONE if family in COUNTING else GONE)


def assert_refused(door: str, answer: object) -> None:
    if door == "T":
        assert isinstance(answer, dict)
        assert answer["skipped"] == [1]
    elif door == "N":
        assert isinstance(answer, dict)
        assert "Invalid or expired lock token" in answer["error"]
    elif door == "B":
        assert answer == b"NOT_FOUND"
    else:
        # Such a worker never learns it: a late end gets the same answer as one in time.
        assert answer in (b"failed", 1)
