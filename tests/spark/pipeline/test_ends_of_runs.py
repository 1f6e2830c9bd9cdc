"""What real doors write when a run ends: the rows that the pipeline takes for an end."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.clients.spark import read_batch

pytest.importorskip("redis", reason="clients of all doors need it")
pytest.importorskip("msgspec", reason="clients of all doors need it")

from tests.support.servers.doors import FourDoors


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FourDoors]:
    found = FourDoors("--data", str(tmp_path_factory.mktemp("yard")))
    yield found
    found.close()


def last_row(doors: FourDoors, queue: str) -> dict[str, Any]:
    host, port = doors.addresses["http"]
    rows = read_batch(f"http://{host}:{port}", "", topic="_events")
    return [row for row in rows if row["queue"] == queue][-1]


def is_end(row: dict[str, Any]) -> bool:
    """Return whether a row is the end of a run, by the rule of the pipeline."""
    return (
        row["event"] not in ("claimed", "enqueued")
        and row["deliveries"] > 0
        and row["claimed_at"] is not None
        and row["finished_at"] is not None
    )


def test_a_bury_at_beanstalk_ends_a_run(doors: FourDoors) -> None:
    queue = doors.queue()
    doors.b.put(queue, 1)
    taken = doors.b.must_take(queue)
    assert doors.b.ask(f"bury {taken.id} 0") == b"BURIED"
    row = last_row(doors, queue)
    assert (row["event"], row["state"], is_end(row)) == ("buried", "dead", True)
    assert doors.b.ask("kick 1") == b"KICKED 1"
    row = last_row(doors, queue)
    assert (row["event"], row["state"], is_end(row)) == ("kicked", "ready", False)


@pytest.mark.parametrize("letter", ["N", "G"])
def test_a_last_failure_ends_a_run_of_a_job_that_is_dead_in_its_queue(
    doors: FourDoors, letter: str
) -> None:
    door, queue = doors.door(letter), doors.queue()
    door.put(queue, 1, attempts=1)
    door.fail(door.must_take(queue), error="ValueError: no")
    row = last_row(doors, queue)
    assert (row["event"], row["state"], is_end(row)) == ("failed", "dead", True)
    assert (row["error"], row["reason"]) == ("ValueError: no", None)


def test_a_dead_letter_that_is_given_up_ends_a_run(doors: FourDoors) -> None:
    queue = doors.queue()
    doors.t.make(queue, dead_letter=f"{queue}.dead")
    doors.t.put(queue, 1)
    doors.t.give_up(queue, doors.t.must_take(queue).id)
    row = last_row(doors, queue)
    assert (row["event"], row["reason"], is_end(row)) == ("dead_lettered", "given_up", True)


def test_one_of_too_many_deliveries_ends_none(doors: FourDoors) -> None:
    queue = doors.queue()
    doors.t.make(queue, dead_letter=f"{queue}.dead", max_deliveries=1)
    doors.t.put(queue, 1)
    doors.t.fail(doors.t.must_take(queue))
    assert doors.t.is_empty(queue)
    row = last_row(doors, queue)
    assert (row["event"], row["reason"]) == ("dead_lettered", "max_deliveries")
    assert (row["deliveries"], is_end(row)) == (1, False)


def test_a_job_that_is_removed_in_the_middle_of_a_run_says_no_end(doors: FourDoors) -> None:
    queue = doors.queue()
    doors.t.make(queue)
    doors.t.put(queue, 1)
    doors.t.must_take(queue)
    doors.t.ask(queue, "", {}, "DELETE")
    row = last_row(doors, queue)
    assert (row["event"], row["state"], is_end(row)) == ("removed", "gone", False)
