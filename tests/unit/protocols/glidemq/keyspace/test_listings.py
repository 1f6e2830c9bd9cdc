"""Pages of streams and schedules, compared with all jobs of the queue after verbs of any door."""

import pytest

from jobyard.engine.jobs.listing import jobs_in
from jobyard.engine.state.yard import Yard, abs_stamp
from jobyard.model.index.sorted_view import SortedView
from jobyard.model.job import DELAYED, LEASED, READY, Job
from jobyard.model.lease import Proof
from jobyard.model.queue import Queue
from jobyard.model.throttle.ready_lists import ReadyList
from jobyard.protocols.glidemq.keyspace.views.sets import (
    is_scheduled,
    scheduled_count,
    scheduled_page,
    scheduled_score,
)
from jobyard.protocols.glidemq.keyspace.views.stream import (
    ENTRY_MAX,
    find_entry,
    stream_length,
    stream_page,
)
from tests.support.clients.library import Library
from tests.support.doors.glidemq import BareGlidemq
from tests.support.random.glides import RandomGlides
from tests.support.site.yard import OpenYard

STEPS = 250


class Looked(SortedView):
    """Counts the jobs it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def has(self, job: Job) -> bool:
        self.count += 1
        return job.state in (READY, LEASED)


def entries(queue: Queue) -> list[Job]:
    """Return the jobs that have an entry, the slow way."""
    found = [
        job for job in jobs_in(queue, frozenset((READY,))) if job.ready_list == ReadyList.STREAM
    ]
    for job in jobs_in(queue, frozenset((LEASED,))):
        assert job.lease is not None
        if job.lease.terms.proof != Proof.LISTED:
            found.append(job)
    return sorted(found, key=stamp_of)


def stamp_of(job: Job) -> int:
    return int(abs_stamp(job.stamp))


def check(yard: Yard, queue: Queue) -> None:
    wanted = entries(queue)
    found = stream_page(queue, 0, ENTRY_MAX - 1, -1, is_reversed=False)
    assert [stamp_of(job) for job in found] == [stamp_of(job) for job in wanted]
    assert set(found) == set(wanted)
    assert stream_length(queue) == len(found)
    if wanted:
        middle = wanted[len(wanted) // 2]
        assert find_entry(queue, stamp_of(middle)) is not None
        page = stream_page(queue, stamp_of(middle) + 1, ENTRY_MAX, 3, is_reversed=False)
        after = [stamp_of(job) for job in wanted if stamp_of(job) > stamp_of(middle)]
        assert [stamp_of(job) for job in page] == after[:3]
    due = [job for job in jobs_in(queue, frozenset((READY, DELAYED))) if is_scheduled(job)]
    shown = scheduled_page(yard, queue, 0, 1 << 40, is_reversed=False)
    assert set(shown) == set(due)
    assert len(shown) == len(due) == scheduled_count(queue)
    scores = [int(scheduled_score(yard, job)) for job in shown]
    assert scores == sorted(scores)


@pytest.mark.parametrize("seed", range(12))
def test_pages_are_right_whatever_happened(seed: int) -> None:
    site = OpenYard()
    play = RandomGlides(site, seed)
    for step in range(STEPS):
        play.step()
        if step % (1 + seed % 7) == 0:
            for queue in list(site.yard.queues.values()):
                check(site.yard, queue)


def test_listings_follow_a_wall_clock_that_is_set() -> None:
    site = OpenYard()
    play = RandomGlides(site, 3)
    for _ in range(STEPS):
        play.step()
    for offset_ms in (0, 5000, -70_000):
        site.yard.journal.wall_offset_ms = offset_ms
        for queue in list(site.yard.queues.values()):
            check(site.yard, queue)


def ids(library: Library, *arguments: object) -> list[str]:
    command = "XREVRANGE" if arguments[0] == "+" else "XRANGE"
    entries = library.client.ask(command, library.key("stream"), *arguments)
    return [fields[1].decode() for _, fields in entries]


def test_plain_jobs_need_no_other_order_until_one_comes_back() -> None:
    library = Library(BareGlidemq())
    for _ in range(20):
        library.add()
    held = library.read(count=8)
    for job_id, entry in held[:5]:
        library.complete(job_id, entry)
    library.call(
        "removeJob",
        ["job:15", "stream", "scheduled", "completed", "failed", "events", "log:15"], "15",
    )  # fmt: skip
    left = [str(at) for at in range(6, 21) if at != 15]
    assert ids(library, "-", "+") == left
    assert ids(library, "+", "-", "COUNT", 2) == ["20", "19"]
    after = library.client.ask("XRANGE", library.key("stream"), "-", "+", "COUNT", 3)[-1][0]
    assert ids(library, b"(" + after, "+", "COUNT", 2) == ["9", "10"]
    found = library.call("searchByName", ["stream"], "stream", "send-email", 4, library.p)
    assert found == [b"6", b"7", b"8", b"9"]
    jobs_by_seq = library.site.yard.queues["tasks"].jobs_by_seq
    assert jobs_by_seq is not None
    assert jobs_by_seq.listings is None
    parts = ["stream", f"job:{held[6][0]}"]
    library.call("deferActive", parts, *held[6], "workers")
    assert ids(library, "-", "+") == ["6", *left[2:], "7"]
    assert ids(library, "+", "-", "COUNT", 2) == ["7", "20"]


def test_what_is_done_does_not_stand_in_the_way_of_what_is_not() -> None:
    library = Library(BareGlidemq())
    looked = Looked()
    for _ in range(1200):
        library.add()
    for job_id, entry in (library.read(count=1000) + library.read(count=199))[1:]:
        library.complete(job_id, entry)
    # Of one that runs since long ago, and one that waits.
    assert ids(library, "-", "+") == ["1", "1200"]
    jobs_by_seq = library.site.yard.queues["tasks"].jobs_by_seq
    assert jobs_by_seq is not None
    jobs_by_seq.between(0, 1 << 62, 1, looked, is_reversed=False)
    assert looked.count == 1
