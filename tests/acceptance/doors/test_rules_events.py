"""History shows, for a job that crossed doors, the door by which it was put, run and ended."""

from typing import Any

from tests.acceptance.doors.pairs import COUNTING, pairs
from tests.support.servers.doors import FourDoors, number_of

DOORS = {"B": "beanstalk", "N": "bunqueue", "G": "glidemq", "T": "topics"}


def rows_of(four: FourDoors, queue: str) -> list[dict[str, Any]]:
    """Return the history of a queue, from the first row on."""
    found: list[dict[str, Any]] = []
    after = 0
    while True:
        page = four.t.ask("_events", "/diff", {"from_seq": after, "limit": 1000})
        found += [one["data"] for one in page["records"] if one["data"]["queue"] == queue]
        if page["caught_up"]:
            return found
        after = page["next_from_seq"]


@pairs()
def test_the_way_of_a_job_is_told(doors: FourDoors, queue: str, family: str, door: str) -> None:
    doors.t.make(queue)
    doors.door(family).put(queue, 7, attempts=3, backoff_ms=600_000)
    (uuid,) = doors.n.ids(queue)
    taker = doors.door(door)
    taker.fail(taker.must_take(queue, 0), delay_ms=600_000)
    doors.b.ask(f"kick-job {number_of(uuid)}")
    taker.finish(taker.must_take(queue, 0))
    rows = rows_of(doors, queue)
    assert {row["id"] for row in rows} == {int(number_of(uuid))}
    told = [(row["event"], row["state"]) for row in rows]
    # Workers of these two doors report failed runs, as jobs of these two families need it.
    failed = "failed" if door in COUNTING or family in COUNTING else "released"
    assert told == [
        ("enqueued", "ready"),
        ("claimed", "leased"),
        (failed, "delayed"),
        ("kicked", "ready"),
        ("claimed", "leased"),
        ("completed", "done" if family in COUNTING else "gone"),
    ]
    assert rows[0]["family"] == DOORS[family]
    # Two runs, each with the row that claims and the row that ends.
    assert [row["door"] for row in rows if "door" in row] == [DOORS[door]] * 4
    assert [row["deliveries"] for row in rows if "deliveries" in row] == [1, 1, 2, 2]
    leases = [row["lease"] for row in rows if "lease" in row]
    assert leases[0] < leases[-1]
