"""A run that fails, for a job of every family at every door: when it comes back, and how often."""

import pytest

from tests.acceptance.doors.pairs import (
    COUNTING,
    DEAD,
    DELAYED,
    PLAIN,
    READY,
    OneJob,
    pairs,
)
from tests.support.servers.doors import FourDoors, now

HOUR_MS = 3_600_000
# The answer to a worker that failed a job that is retried, and one that is not.
BACK = {"B": b"RELEASED", "N": {"ok": True}, "G": b"retrying"}
LAST = {"B": b"BURIED", "N": {"ok": True}, "G": b"failed"}


def assert_failed(door: str, answer: object, *, is_last: bool = False) -> None:
    if door == "T":
        assert isinstance(answer, dict)
        assert (answer["nacked"], answer["skipped"]) == (1, [])
    else:
        assert answer == (LAST if is_last else BACK)[door]


def wait_ms(job: OneJob) -> float:
    """Return for how long a delayed job still waits."""
    return float(job.seen("N")["runAt"]) - now()


# -- families that are tried for ever --------------------------------------------------------------


@pairs(families=PLAIN, at="BT")
def test_given_back_a_plain_job_is_ready_at_once(
    doors: FourDoors, queue: str, family: str, door: str
) -> None:
    job = OneJob(doors, queue, family)
    worker = doors.door(door)
    assert_failed(door, worker.fail(worker.must_take(queue)))
    assert job.states() == READY
    assert job.seen("B")["releases"] == "1"
    assert worker.must_take(queue).id == job.ids[door]


@pairs(families=PLAIN, at="BT")
def test_given_back_with_a_delay_a_plain_job_waits(
    doors: FourDoors, queue: str, family: str, door: str
) -> None:
    job = OneJob(doors, queue, family)
    worker = doors.door(door)
    assert_failed(door, worker.fail(worker.must_take(queue), delay_ms=HOUR_MS))
    assert job.states() == DELAYED
    assert HOUR_MS - 20_000 < wait_ms(job) <= HOUR_MS + 1000
    assert job.seen("B")["releases"] == "1"


@pairs(families=PLAIN, at="NG")
def test_failed_a_plain_job_waits_for_a_second_and_then_twice_as_long(
    doors: FourDoors, queue: str, family: str, door: str
) -> None:
    job = OneJob(doors, queue, family)
    worker = doors.door(door)
    # Half to one and a half times 2, 4, 8, ... seconds, a minute at most; never for the last time.
    for least_ms, most_ms in ((1000, 3000), (2000, 6000), (4000, 12_000), (8000, 24_000)):
        assert_failed(door, worker.fail(worker.must_take(queue), delay_ms=0))
        assert job.states() == DELAYED
        assert least_ms - 900 < wait_ms(job) <= most_ms + 100
        job.wake()
    assert job.states() == READY
    assert job.seen("N")["attempts"] == 4


def test_the_wait_of_a_plain_job_is_a_minute_at_most(doors: FourDoors, queue: str) -> None:
    job = OneJob(doors, queue, "B")
    for _ in range(8):
        doors.n.fail(doors.n.must_take(queue))
        job.wake()
    doors.n.fail(doors.n.must_take(queue))
    assert 55_000 < wait_ms(job) <= 60_100


# -- families that count ---------------------------------------------------------------------------


@pairs(families=COUNTING)
def test_failed_a_counting_job_waits_as_it_was_put_to(
    doors: FourDoors, queue: str, family: str, door: str
) -> None:
    job = OneJob(doors, queue, family, attempts=3, backoff_ms=HOUR_MS)
    worker = doors.door(door)
    taken = worker.must_take(queue)
    # The library computes the backoff and sends it with every failure of its own jobs.
    told = HOUR_MS if (family, door) == ("G", "G") else None
    assert_failed(door, worker.fail(taken, delay_ms=told))
    assert (job.seen("N")["attempts"], job.seen("G")["attemptsMade"]) == (1, "1")
    if door == "B":
        # Every release names a delay, and what is named counts. Workers of glide-mq promote what
        # failed before they take it; until then it is "delayed" to them.
        assert job.states() == (READY if family == "N" else {**READY, "G": "delayed"})
        assert worker.must_take(queue).id == job.ids[door]
        return
    assert job.states() == DELAYED
    # Waits of bunqueue are spread, and no longer than a minute.
    if family == "G":
        assert HOUR_MS - 20_000 < wait_ms(job) <= HOUR_MS + 1000
    else:
        assert 30_000 < wait_ms(job) <= HOUR_MS


@pairs(families=COUNTING, at="BT")
def test_a_delay_that_is_named_counts(doors: FourDoors, queue: str, family: str, door: str) -> None:
    job = OneJob(doors, queue, family, attempts=3, backoff_ms=HOUR_MS)
    worker = doors.door(door)
    assert_failed(door, worker.fail(worker.must_take(queue), delay_ms=0))
    assert worker.fail(worker.must_take(queue), delay_ms=100_000)
    assert job.states() == DELAYED
    assert 80_000 < wait_ms(job) <= 101_000
    assert job.seen("N")["attempts"] == 2


@pairs(families=COUNTING)
def test_the_last_attempt_makes_a_counting_job_dead(
    doors: FourDoors, queue: str, family: str, door: str
) -> None:
    job = OneJob(doors, queue, family, attempts=2, backoff_ms=HOUR_MS)
    worker = doors.door(door)
    assert_failed(door, worker.fail(worker.must_take(queue), delay_ms=HOUR_MS))
    assert job.states() == DELAYED
    job.wake()
    taken = worker.must_take(queue)
    assert_failed(door, worker.fail(taken, error="why"), is_last=True)
    assert job.states() == DEAD
    assert worker.is_empty(queue)
    why = {"B": "released", "N": "why", "G": "why", "T": "nacked"}[door]
    assert job.seen("G")["failedReason"] == why
    [entry] = doors.n.client.ok("Dlq", queue=queue)["entries"]
    assert (entry["job"]["id"], entry["error"]) == (job.ids["N"], why)
    assert entry["reason"] == "max_attempts_exceeded"
    assert [one["attempt"] for one in entry["attempts"]] == [1, 2]


@pytest.mark.parametrize("door", list("BNGT"))
def test_a_job_of_glide_mq_has_one_run_where_nothing_is_said(
    doors: FourDoors, queue: str, door: str
) -> None:
    job = OneJob(doors, queue, "G")
    worker = doors.door(door)
    assert_failed(door, worker.fail(worker.must_take(queue)), is_last=True)
    assert job.states() == DEAD


def test_what_a_worker_of_glide_mq_says_of_attempts_is_not_for_other_families(
    doors: FourDoors, queue: str
) -> None:
    job = OneJob(doors, queue, "N", attempts=3, backoff_ms=1)
    assert doors.g.fail(doors.g.must_take(queue), attempts=1) == b"retrying"
    assert job.seen("N")["attempts"] == 1


def test_a_rank_that_is_named_when_a_job_is_given_back_is_for_beanstalk_jobs_only(
    doors: FourDoors,
) -> None:
    shown = {}
    for family in "BNGT":
        queue = doors.queue()
        job = OneJob(doors, queue, family, attempts=3)
        doors.b.fail(doors.b.must_take(queue))
        shown[family] = job.seen("B")["pri"]
    assert shown == {"B": "9", "N": "0", "G": "0", "T": "0"}
