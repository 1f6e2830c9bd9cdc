"""ACKB of many jobs: finished in slices, after its lists were checked."""

import pytest

from jobyard.protocols.bunqueue.commands.acks import ACKS_AT_ONCE
from tests.support.clients.bunqueue import BunqueueClient
from tests.support.doors.bunqueue import BareBunqueue
from tests.support.site.storage import MemoryStorage

LONG = ACKS_AT_ONCE + 300


def leased(count: int = LONG, **fields: object) -> tuple[BareBunqueue, BunqueueClient, list[str]]:
    """A client that runs this many jobs, in a yard whose long work runs on the test's request."""
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    client.ok("PUSHB", queue="q", jobs=[{"data": at} for at in range(count)])
    ids: list[str] = []
    while len(ids) < count:
        ids += [job["id"] for job in client.ok("PULLB", queue="q", count=1000, **fields)["jobs"]]
    site.yard.tasks.units_per_turn = 100
    site.is_slow = True
    site.slice()
    return site, client, ids


def finish(site: BareBunqueue) -> int:
    """Run long work to its end; return the number of turns."""
    turns = 1
    while True:
        before = site.yard.tasks.units_done
        is_left = site.slice()
        assert site.yard.tasks.units_done - before <= 110
        if not is_left:
            return turns
        turns += 1


def test_few_are_finished_in_their_turn() -> None:
    site, client, ids = leased(ACKS_AT_ONCE)
    assert client.ok("ACKB", ids=ids) == {}
    site.check()


def test_many_are_finished_over_turns_while_others_are_served() -> None:
    site, client, ids = leased()
    other = site.connect()
    results = [{"at": at} for at in range(LONG)]
    number = client.send("ACKB", ids=ids, results=results)
    behind = client.send("Count", queue="q")
    assert other.ok("Ping") is not None
    assert finish(site) > 20
    assert client.hear(number) == {"ok": True}
    assert client.hear(behind) is not None
    for at in (0, 700, LONG - 1):
        assert other.ok("GetResult", id=ids[at])["result"] == {"at": at}
    site.check()


def test_the_answer_names_places_and_ids() -> None:
    site, client, ids = leased()
    ids[5], ids[1200] = "nobody", ids[3]
    number = client.send("ACKB", ids=ids)
    finish(site)
    data = {"ignoredIndices": [5, 1200], "ignoredIds": ["nobody", ids[3]]}
    assert client.hear(number) == {"ok": True, "data": data}


@pytest.mark.parametrize(
    ("spoiled", "error"),
    [
        ({"ids": [*["x"] * LONG, 7]}, "ids must be an array of strings"),
        ({"ids": ["x"] * LONG, "tokens": ["t"]}, "ACKB tokens length must match ids length"),
        ({"ids": ["x"] * LONG, "results": [1]}, "ACKB results length must match ids length"),
        ({"ids": [""] * 100_001}, "ids must have at most 100000 entries"),
        ({"ids": "x"}, "ids must be an array of strings"),
    ],
)
def test_bad_lists_are_refused_before_anything_is_finished(
    spoiled: dict[str, object], error: str
) -> None:
    site, client, ids = leased(3)
    given = spoiled["ids"]
    if isinstance(given, list):
        given[:3] = ids
    number = client.send("ACKB", **spoiled)
    finish(site)
    assert client.hear(number) == {"ok": False, "error": error}
    assert len(site.yard.queues["q"].leased.items) == 3


def test_what_a_holder_that_left_had_not_finished_goes_back() -> None:
    site, client, ids = leased()
    client.send("ACKB", ids=ids)
    for _ in range(12):
        assert site.slice()
    client.close()
    finish(site)
    queue = site.yard.queues["q"]
    assert len(queue.leased.items) == 0
    assert 0 < queue.done.live_count < LONG
    assert queue.done.live_count + len(queue.ready.items) == LONG
    site.check()


def test_too_many_ids_for_locks_are_refused() -> None:
    client = BareBunqueue().connect()
    for cmd in ("JobHeartbeatB", "ExtendLocks"):
        error = client.refused(cmd, ids=["x"] * 10_001, durations=[1] * 10_001)
        assert error == "ids must have at most 10000 entries"
