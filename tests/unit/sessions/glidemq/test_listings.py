"""Pages of streams and schedules, held against all jobs of the queue after verbs of any door."""

import pytest

from jobyard.engine.lists import jobs_in
from jobyard.engine.yard import Yard, abs_stamp
from jobyard.model.job import DELAYED, LEASED, READY, Job
from jobyard.model.queue import Queue
from jobyard.model.shelves import STREAM
from jobyard.sessions.glidemq.projection_sets import (
    is_scheduled,
    scheduled_count,
    scheduled_page,
    scheduled_score,
)
from jobyard.sessions.glidemq.projection_stream import (
    ENTRY_MAX,
    find_entry,
    stream_jobs,
    stream_length,
    stream_page,
)
from tests.support.random_glides import RandomGlides
from tests.support.yards import OpenYard

STEPS = 250


def entries(queue: Queue) -> list[Job]:
    """Return the jobs that have an entry, the slow way."""
    found = [job for job in jobs_in(queue, frozenset((READY,))) if job.shelf == STREAM]
    for job in jobs_in(queue, frozenset((LEASED,))):
        assert job.lease is not None
        if not job.lease.terms.is_list:
            found.append(job)
    return sorted(found, key=stamp_of)


def stamp_of(job: Job) -> int:
    return int(abs_stamp(job.stamp))


def check(yard: Yard, queue: Queue) -> None:
    wanted = entries(queue)
    found = stream_jobs(queue)
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


def test_a_clock_that_is_set_moves_what_is_told_by_it() -> None:
    site = OpenYard()
    play = RandomGlides(site, 3)
    for _ in range(STEPS):
        play.step()
    for offset_ms in (0, 5000, -70_000):
        site.yard.journal.wall_offset_ms = offset_ms
        for queue in list(site.yard.queues.values()):
            check(site.yard, queue)
