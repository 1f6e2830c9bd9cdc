"""What every door shows of a job of every family to a client that only reads."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.acceptance.doors.pairs import (
    BLOCKED,
    COUNTING,
    DEAD,
    DELAYED,
    DONE,
    GONE,
    LEASED,
    READY,
    OneJob,
    pairs,
)
from tests.support.servers.doors import LETTERS, FourDoors, now, number_of

HOUR_MS = 3_600_000


# -- states ----------------------------------------------------------------------------------------


def ready(doors: FourDoors, queue: str, family: str) -> OneJob:
    return OneJob(doors, queue, family)


def delayed(doors: FourDoors, queue: str, family: str) -> OneJob:
    return OneJob(doors, queue, family, delay_ms=HOUR_MS)


def leased(doors: FourDoors, queue: str, family: str) -> OneJob:
    job = OneJob(doors, queue, family)
    assert doors.t.must_take(queue).id == "1"
    return job


def dead(doors: FourDoors, queue: str, family: str) -> OneJob:
    job = OneJob(doors, queue, family)
    job.give_up("N")
    return job


def done(doors: FourDoors, queue: str, family: str) -> OneJob:
    job = OneJob(doors, queue, family)
    doors.b.finish(doors.b.must_take(queue))
    return job


def blocked(doors: FourDoors, queue: str, family: str) -> OneJob:
    """A job that waits for another, in another queue."""
    job = OneJob(doors, queue, family)
    child = doors.n.put(doors.queue(), 1)
    assert doors.n.client.ok("UpdateParent", childId=child, parentId=job.ids["N"]) == {}
    return job


STATES: list[tuple[Callable[[FourDoors, str, str], OneJob], dict[str, str], str]] = [
    (ready, READY, LETTERS),
    (delayed, DELAYED, LETTERS),
    (leased, LEASED, LETTERS),
    (dead, DEAD, LETTERS),
    (done, DONE, COUNTING),
    (done, GONE, "BT"),
    (blocked, BLOCKED, COUNTING),
]
RUNS = [
    (make, family, door, words[door])
    for make, words, families in STATES
    for family in families
    for door in LETTERS
]


@pytest.mark.parametrize(
    ("make", "family", "door", "word"),
    RUNS,
    ids=[f"{make.__name__}-{family}-to-{door}" for make, family, door, _ in RUNS],
)
def test_a_state_has_the_word_of_the_door(
    doors: FourDoors,
    queue: str,
    make: Callable[[FourDoors, str, str], OneJob],
    family: str,
    door: str,
    word: str,
) -> None:
    job = make(doors, queue, family)
    assert doors.door(door).inspect(queue, job.ids[door]).state == word


@pytest.mark.parametrize(
    ("make", "ready_count", "in_flight"),
    [(ready, 1, 0), (delayed, 0, 0), (leased, 0, 1), (dead, 0, 0)],
)
@pytest.mark.parametrize("family", list(LETTERS))
def test_topics_tells_states_by_counts(
    doors: FourDoors,
    queue: str,
    family: str,
    make: Callable[[FourDoors, str, str], OneJob],
    ready_count: int,
    in_flight: int,
) -> None:
    make(doors, queue, family)
    counts = doors.t.counts(queue)
    assert (counts["ready"], counts["in_flight"]) == (ready_count, in_flight)


@pytest.mark.parametrize("family", list(COUNTING))
def test_what_waits_for_others_cannot_be_kicked(doors: FourDoors, queue: str, family: str) -> None:
    job = blocked(doors, queue, family)
    assert doors.b.ask(f"kick-job {job.ids['B']}") == b"NOT_FOUND"
    doors.b.use(queue)
    assert doors.b.ask("kick 9") == b"KICKED 0"
    for letter in LETTERS:
        assert doors.door(letter).is_empty(queue)
    assert job.states() == BLOCKED


def test_a_job_that_waits_for_a_signal_looks_delayed(doors: FourDoors, queue: str) -> None:
    job = OneJob(doors, queue, "G")
    taken = doors.g.must_take(queue)
    parts = ["job:1", "stream", "events", "suspended"]
    given = (taken.id, taken.proof, "workers", now(), "why", 0)
    assert doors.g.call("suspend", queue, parts, *given) == b"ok"
    assert job.states() == {**BLOCKED, "G": "suspended"}
    assert doors.b.ask(f"kick-job {job.ids['B']}") == b"NOT_FOUND"


def test_a_ready_job_with_a_priority_is_staged_for_glide_mq_and_ready_for_others(
    doors: FourDoors, queue: str
) -> None:
    job = OneJob(doors, queue, "G", rank=5)
    assert job.states() == {**READY, "G": "prioritized"}
    assert doors.b.must_take(queue).id == job.ids["B"]


@pytest.mark.parametrize("family", list("BNT"))
def test_jobs_of_others_stand_in_the_stream_whatever_their_rank(
    doors: FourDoors, queue: str, family: str
) -> None:
    job = OneJob(doors, queue, family, rank=7)
    assert job.states() == READY
    assert doors.g.client.xlen(doors.g.key(queue, "stream")) == 1
    assert doors.g.client.zcard(doors.g.key(queue, "scheduled")) == 0


# -- ids -------------------------------------------------------------------------------------------


@pairs()
def test_a_job_has_an_id_at_every_door(
    doors: FourDoors, queue: str, family: str, door: str
) -> None:
    first = OneJob(doors, queue, family)
    taken = doors.door(door).must_take(queue)
    assert taken.id == first.ids[door]
    assert number_of(first.ids["N"]) == first.ids["B"]
    # A UUID of version 7, with the time of the put in front.
    assert first.ids["N"][14] == "7"
    assert 0 <= now() - int(first.ids["N"].replace("-", "")[:12], 16) < 60_000
    doors.door(family).put(queue, 2)
    if door in "GT":
        assert doors.door(door).must_take(queue).id == "2"


def test_an_id_chosen_at_bunqueue_is_the_id_there(doors: FourDoors, queue: str) -> None:
    name = f"{queue}-mine"
    assert doors.n.put(queue, 1, jobId=name) == name
    assert doors.g.inspect(queue, "1").state == "waiting"
    assert doors.g.inspect(queue, name).state == ""
    assert doors.t.must_take(queue).id == "1"


def test_an_id_chosen_at_glide_mq_is_the_id_there(doors: FourDoors, queue: str) -> None:
    assert doors.g.put(queue, 1, custom="mine") == "mine"
    # Not by its seq, which is another job's name there; everywhere else by any number it has.
    assert doors.g.inspect(queue, "1").state == ""
    taken = doors.n.must_take(queue)
    assert (len(taken.id), taken.shown["customId"]) == (36, None)
    assert doors.n.inspect(queue, "mine").state == "unknown"
    assert doors.n.finish(taken) == {"ok": True}
    assert doors.g.inspect(queue, "mine").state == "completed"


def test_ids_are_chosen_in_two_name_spaces(doors: FourDoors) -> None:
    one, other = doors.queue(), doors.queue()
    name = f"{one}-id"
    assert doors.n.put(one, 1, jobId=name) == name
    # At bunqueue one id is one job in all queues; the second put finds the first job.
    assert doors.n.put(other, 2, jobId=name) == name
    assert doors.n.ids(other) == []
    for queue in (one, other):
        assert doors.g.put(queue, 3, custom=name) == name
    # Taken for as long as the hash is there, in that queue.
    assert doors.g.put(one, 4, custom=name) == "duplicate"


# -- ranks and policies ----------------------------------------------------------------------------

# Family, rank, and the number shown at B, N and G.
RANKS = [
    ("B", 0, "0", 0, "0"),
    ("B", 1000, "1000", -1000, "1000"),
    ("B", 65_536, "65536", -65_536, "2047"),
    ("B", 4_294_967_295, "4294967295", -4_294_967_295.0, "2047"),
    ("N", 7, "7", -7, "7"),
    ("N", -7, "0", 7, "0"),
    ("N", 5000, "5000", -5000, "2047"),
    ("G", 0, "0", 0, "0"),
    ("G", 2048, "2048", -2048, "2048"),
    ("T", 3, "3", -3, "3"),
    ("T", -3, "0", 3, "0"),
]
SHOWN = [
    (family, rank, door, shown)
    for family, rank, *row in RANKS
    for door, shown in zip("BNG", row, strict=True)
]


@pytest.mark.parametrize(
    ("family", "rank", "door", "shown"), SHOWN, ids=[f"{f}{r}-to-{d}" for f, r, d, _ in SHOWN]
)
def test_a_rank_is_shown_as_the_priority_of_the_door(
    doors: FourDoors, queue: str, family: str, rank: int, door: str, shown: object
) -> None:
    job = OneJob(doors, queue, family, rank=rank)
    name = "pri" if door == "B" else "priority"
    assert job.seen(door)[name] == shown


@pytest.mark.parametrize("door", list(LETTERS))
def test_ranks_of_all_families_are_one_order(doors: FourDoors, queue: str, door: str) -> None:
    doors.b.put(queue, "b default", rank=65_536)
    doors.t.put(queue, "t")
    doors.n.put(queue, "n low", rank=9)
    doors.b.put(queue, "b 5", rank=5)
    doors.n.put(queue, "n high", rank=-9)
    doors.n.put(queue, "n")
    doors.g.put(queue, "g")
    doors.t.put(queue, "t high", rank=-1)
    wanted = ["n high", "t high", "t", "n", "g", "b 5", "n low", "b default"]
    taken = [doors.door(door).must_take(queue).data for _ in wanted]
    assert [
        text.decode().strip('"') if isinstance(text, bytes) else text for text in taken
    ] == wanted


POLICIES: list[tuple[str, dict[str, Any], dict[str, object], dict[str, str]]] = [
    ("B", {}, {"name": "default", "maxAttempts": 1000}, {"name": "default", "maxAttempts": "0"}),
    ("T", {}, {"name": "default", "maxAttempts": 1000}, {"name": "default", "maxAttempts": "0"}),
    (
        "N",
        {"attempts": 4, "name": "mail"},
        {"name": "mail", "maxAttempts": 4},
        {"name": "mail", "maxAttempts": "4"},
    ),
    (
        "G",
        {"attempts": 4},
        {"name": "mail", "maxAttempts": 4},
        {"name": "mail", "maxAttempts": "4"},
    ),
    ("G", {}, {"name": "mail", "maxAttempts": 1}, {"name": "mail", "maxAttempts": "0"}),
]


@pytest.mark.parametrize(("family", "put", "at_n", "at_g"), POLICIES)
def test_names_and_attempts_are_shown_where_a_door_has_them(
    doors: FourDoors,
    queue: str,
    family: str,
    put: dict[str, Any],
    at_n: dict[str, object],
    at_g: dict[str, str],
) -> None:
    job = OneJob(doors, queue, family, **put)
    seen = job.seen("N")
    assert {name: seen[name] for name in at_n} == at_n
    seen = job.seen("G")
    assert {name: seen[name] for name in at_g} == at_g
    if family != "G":
        assert seen["opts"] == "{}"


@pairs()
def test_deliveries_are_leases_of_all_doors(
    doors: FourDoors, queue: str, family: str, door: str
) -> None:
    job = OneJob(doors, queue, family, attempts=9)
    for letter in ("B", "T", door):
        worker = doors.door(letter)
        worker.fail(worker.must_take(queue), delay_ms=1000 if letter == "B" else 0)
        if job.states()["B"] == "delayed":
            job.wake()
    assert job.seen("B")["reserves"] == "3"
    assert doors.t.must_take(queue).shown["deliveries"] == 4
    # Failed runs; a release does not count in a family without attempts.
    failed = 3 if family in COUNTING else int(door in "NG")
    assert job.seen("N")["attempts"] == failed
    assert job.seen("G")["attemptsMade"] == str(failed)


@pytest.mark.parametrize("family", list(LETTERS))
def test_topics_shows_when_a_job_was_put_and_no_seq_is_shown_elsewhere(
    doors: FourDoors, queue: str, family: str
) -> None:
    before = now()
    OneJob(doors, queue, family)
    assert before - 1000 <= doors.t.records(queue)[0]["$ts"] <= now() + 1000
    assert b"$seq" not in doors.b.must_take(queue).data
