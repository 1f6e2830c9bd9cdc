"""Jobs of every family that are given up at every door, and brought back at every door."""

import pytest

from tests.acceptance.doors.pairs import COUNTING, DEAD, GONE, READY, OneJob, pairs
from tests.support.servers.doors import LETTERS, FourDoors

# The answer to a worker that gave a job up.
GRANTED = {"B": b"BURIED", "N": {"ok": True}, "G": b"revoked"}
# The reason of its death, where its family keeps that.
REASONS = {"B": "buried", "N": "Job discarded", "G": "revoked", "T": "buried"}


@pairs()
def test_given_up_a_job_is_dead_at_every_door(
    doors: FourDoors, queue: str, family: str, door: str
) -> None:
    job = OneJob(doors, queue, family, attempts=5)
    answer = job.give_up(door)
    if door == "T":
        assert isinstance(answer, dict)
        assert (answer["dead_lettered"], answer["skipped"]) == (1, [])
    else:
        assert answer == GRANTED[door]
    assert job.states() == DEAD
    for letter in LETTERS:
        assert doors.door(letter).is_empty(queue)
    [entry] = doors.n.client.ok("Dlq", queue=queue)["entries"]
    assert entry["job"]["id"] == job.ids["N"]
    if family in COUNTING:
        assert entry["error"] == REASONS[door]
        assert job.seen("G")["failedReason"] == REASONS[door]


@pairs(families="NG", at="B")
def test_buried_is_a_reason_of_its_own(
    doors: FourDoors, queue: str, family: str, door: str
) -> None:
    OneJob(doors, queue, family, attempts=5).give_up(door)
    [entry] = doors.n.client.ok("Dlq", queue=queue)["entries"]
    assert entry["reason"] == "buried"


@pytest.mark.parametrize("door", list("BNT"))
def test_given_up_a_job_of_topics_becomes_a_dead_letter(
    doors: FourDoors, queue: str, door: str
) -> None:
    doors.t.make(queue, max_deliveries=9, dead_letter=f"{queue}.dead")
    job = OneJob(doors, queue, "T", data={"poison": 1})
    job.give_up(door)
    assert job.states() == GONE
    [letter] = doors.t.records(f"{queue}.dead")
    assert (letter["data"], letter["meta"]["$dead_letter_from"]) == ({"poison": 1}, queue)
    assert doors.t.ask(queue, "/redrive", {})["redriven"] == 1
    assert doors.t.must_take(queue).data == {"poison": 1}


@pytest.mark.parametrize("family", list("BNG"))
def test_given_up_a_job_of_another_family_is_no_dead_letter(
    doors: FourDoors, queue: str, family: str
) -> None:
    doors.t.make(queue, max_deliveries=9, dead_letter=f"{queue}.dead")
    job = OneJob(doors, queue, family)
    job.give_up("T")
    assert job.states() == DEAD


@pytest.mark.parametrize("family", list(COUNTING))
def test_how_often_a_counting_job_was_delivered_does_not_matter(
    doors: FourDoors, queue: str, family: str
) -> None:
    doors.t.make(queue, max_deliveries=1, dead_letter=f"{queue}.dead")
    OneJob(doors, queue, family, attempts=9)
    for delivered in (1, 2, 3):
        taken = doors.t.must_take(queue)
        assert taken.shown["deliveries"] == delivered
        doors.t.fail(taken, delay_ms=0)


@pairs(at=LETTERS)
def test_a_dead_job_is_brought_back(doors: FourDoors, queue: str, family: str, door: str) -> None:
    job = OneJob(doors, queue, family, attempts=5)
    job.give_up("B")
    answer = doors.door(door).revive(queue, job.ids[door])
    if door == "T":
        assert isinstance(answer, dict)
        assert answer["redriven"] == 1
    else:
        assert answer == {"B": b"KICKED", "N": {"ok": True, "count": 1}, "G": 1}[door]
    # What workers of glide-mq retry they also promote.
    waits = {**READY, "G": "delayed"} if (family, door) == ("G", "G") else READY
    assert job.states() == waits
    seen = job.seen("B")
    assert (seen["buries"], seen["reserves"]) == ("1", "1")
    assert job.seen("N")["attempts"] == 0
    if family not in COUNTING:
        assert seen["kicks"] == "1"
    taken = doors.door(door).must_take(queue)
    assert taken.id == job.ids[door]
    doors.door(door).finish(taken)


@pytest.mark.parametrize("family", list(LETTERS))
def test_move_to_wait_brings_a_dead_job_back(doors: FourDoors, queue: str, family: str) -> None:
    job = OneJob(doors, queue, family)
    job.give_up("B")
    assert doors.n.client.ok("MoveToWait", id=job.ids["N"]) == {}
    assert job.states() == READY


@pairs(at="BNGT")
def test_brought_back_a_job_has_all_its_attempts_before_it(
    doors: FourDoors, queue: str, family: str, door: str
) -> None:
    job = OneJob(doors, queue, family, attempts=1)
    if family in COUNTING:
        doors.b.fail(doors.b.must_take(queue))
        assert job.seen("N")["attempts"] == 1
    else:
        job.give_up("B")
    assert job.states() == DEAD
    doors.door(door).revive(queue, job.ids[door])
    assert job.seen("N")["attempts"] == 0


@pytest.mark.parametrize("family", list(LETTERS))
def test_dead_jobs_of_all_families_are_one_list(doors: FourDoors, queue: str, family: str) -> None:
    job = OneJob(doors, queue, family)
    job.give_up("B")
    assert doors.b.counts(queue)["current-jobs-buried"] == "1"
    assert doors.g.client.zrange(doors.g.key(queue, "failed"), 0, -1) == [job.ids["G"].encode()]
    doors.b.use(queue)
    assert doors.b.ask("peek-buried").startswith(f"FOUND {job.ids['B']} ".encode())
    assert doors.n.client.ok("PurgeDlq", queue=queue) == {"count": 1}
    assert job.states() == GONE
