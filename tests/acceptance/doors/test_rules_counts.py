"""One queue with jobs of all families in all states: all doors agree, also after a kill."""

import contextlib
import signal
from pathlib import Path

from tests.support.servers.doors import LETTERS, FourDoors, number_of


def fill(four: FourDoors, queue: str) -> dict[str, int]:
    """Put jobs of every family into every state it has; return how many are in which."""
    four.t.make(queue)
    for letter in LETTERS:
        door = four.door(letter)
        # Dead by the door itself; topics have no dead letters here.
        door.put(queue, f"dead {letter}", attempts=1)
        taken = four.b.must_take(queue, 0)
        assert four.b.give_up(queue, taken.id) == b"BURIED"
        if letter in "NG":
            door.put(queue, f"done {letter}")
            four.t.finish(four.t.must_take(queue, 0))
    # Each is taken at another door than its own.
    for letter, other in zip(LETTERS, "NGTB", strict=True):
        four.door(letter).put(queue, f"leased {letter}")
        four.door(other).must_take(queue, 0)
    for letter in LETTERS:
        four.door(letter).put(queue, f"ready {letter}")
        four.door(letter).put(queue, f"delayed {letter}", delay_ms=600_000)
    four.g.put(queue, "staged", rank=3)
    four.g.put(queue, "stacked", lifo=1)
    four.g.put(queue, "first", key="group")
    four.g.put(queue, "second", key="group")
    client = four.n.client
    parent = client.push(queue, "parent")
    child = {"__parentId": parent, "__parentQueue": queue}
    client.push(f"{queue}-children", child, parentId=parent)
    return {"ready": 8, "leased": 4, "delayed": 4, "dead": 4, "done": 2, "blocked": 1}


def check(four: FourDoors, queue: str, counts: dict[str, int]) -> None:
    """Compare the counts of every door with what exists."""
    ready, leased, delayed = counts["ready"], counts["leased"], counts["delayed"]
    tube = four.b.counts(queue)
    assert int(tube["current-jobs-ready"]) == ready
    assert int(tube["current-jobs-reserved"]) == leased
    assert int(tube["current-jobs-delayed"]) == delayed + counts["blocked"]
    assert int(tube["current-jobs-buried"]) == counts["dead"]
    told = four.n.counts(queue)
    assert told["waiting"] == ready
    assert told["active"] == leased
    assert told["delayed"] == delayed
    assert told["failed"] == counts["dead"]
    assert told["completed"] == counts["done"]
    assert told["waiting-children"] == counts["blocked"]
    total = sum(counts.values())
    assert four.n.client.ok("Count", queue=queue) == {"count": total}
    client, key = four.g.client, four.g.key
    # One is staged and one in the LIFO list; the rest is in the stream, including running jobs.
    assert client.xlen(key(queue, "stream")) == ready - 2 + leased
    assert client.xpending(key(queue, "stream"), "workers")["pending"] == leased
    assert client.zcard(key(queue, "scheduled")) == delayed + 1
    assert client.llen(key(queue, "lifo")) == 1
    assert client.zcard(key(queue, "completed")) == counts["done"]
    assert client.zcard(key(queue, "failed")) == counts["dead"]
    topic = four.t.counts(queue)
    assert (topic["ready"], topic["in_flight"], topic["delayed"]) == (ready, leased, delayed)
    assert topic["count"] == total - counts["done"]
    assert len(four.t.records(queue)) == total - counts["done"]


def listed(four: FourDoors, queue: str) -> list[tuple[str, str]]:
    """Return data and state of all jobs, as bunqueue shows them."""
    jobs = four.n.client.ok("GetJobs", queue=queue)["jobs"]
    return [(job["data"], four.n.client.state(job["id"])) for job in jobs]


def test_all_doors_count_the_same_before_and_after_a_crash(tmp_path: Path) -> None:
    with contextlib.closing(FourDoors("--data", str(tmp_path))) as four:
        counts = fill(four, "q")
        check(four, "q", counts)
        before = listed(four, "q")
        four.process.signal(signal.SIGKILL)
        four.process.wait()
    counts["ready"] += counts.pop("leased")
    counts["leased"] = 0
    with contextlib.closing(FourDoors("--data", str(tmp_path))) as four:
        check(four, "q", counts)
        after = listed(four, "q")
        assert after == [
            (data, "waiting" if state == "active" else state) for data, state in before
        ]
        # What was taken has been delivered once, whatever the door.
        jobs = four.n.client.ok("GetJobs", queue="q", state="waiting")["jobs"]
        told = {job["data"]: four.b.inspect("q", number_of(job["id"])).fields for job in jobs}
        for letter in LETTERS:
            assert told[f"leased {letter}"]["reserves"] == "1"
            assert told[f"ready {letter}"]["reserves"] == "0"
