"""Runs that a commit ends, as the engine sees them."""

import pytest

from jobyard.engine.topics.commit_ends import EndKind, HeldRuns, RunEnd, apply_end
from jobyard.engine.topics.topic_queue import NewRecord
from jobyard.model.limits import WORKER_NAME_MAX
from tests.support.engine.topics import Topic
from tests.support.site.site import ALL_HISTORY
from tests.support.site.storage import MemoryStorage


def node(number: int) -> str:
    return f"{number:03}".ljust(WORKER_NAME_MAX, "w")


def labelled(number: int) -> NewRecord:
    record = NewRecord(b"{}", tag="t" * 200)
    record.job_id = f"{number:03}".ljust(256, "j")
    return record


@pytest.mark.parametrize("kind", [EndKind.ACK, EndKind.NACK, EndKind.DEAD_LETTER])
def test_the_room_of_ends_is_enough_for_long_names_in_a_new_segment(kind: int) -> None:
    """A segment repeats the state of a job, and the name of its worker, before the first end."""
    count = 20
    site = Topic(MemoryStorage(), window=ALL_HISTORY)
    site.produce(*(labelled(number) for number in range(count)))
    site.claim("before", count)
    site.nack(*range(1, count + 1), node="before")
    for number in range(count):
        site.claim(node(number))
    older = site.journal.hot.number
    while site.journal.hot.number == older:
        site.put(bytes(1000))
        site.commit()
    ends = [RunEnd(kind, "t", node(number), number + 1, "") for number in range(count)]
    for end in ends:
        end.error = "e" * 100
    runs = HeldRuns(site.yard, ends)
    runs.proceed(count, site.now_ms)
    assert len(runs.leases) == count
    room, before = runs.room(), site.journal.open_bytes()
    for lease, end in zip(runs.leases, runs.ends, strict=True):
        apply_end(site.yard, lease.job, end, site.now_ms)
    assert site.journal.open_bytes() - before <= room
