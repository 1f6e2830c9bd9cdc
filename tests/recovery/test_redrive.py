"""A redrive that is interrupted at every call to the storage, and repeated under its key."""

from collections.abc import Callable

import pytest

from jobyard.engine.logs.logs import open_log
from jobyard.engine.state.record_keys import keys_of
from jobyard.engine.topics.redrive import Redrive, RedriveRequest
from jobyard.engine.topics.topic_queue import (
    NewRecord,
    claim,
    give_up,
    node_leases,
    open_topic_queue,
    produce,
)
from jobyard.model.job import DEAD, READY
from jobyard.model.topic.config import QUEUE, TopicConfig
from tests.support.site.recount import recount
from tests.support.site.storage import MemoryStorage, stop_everywhere
from tests.support.site.yard import OpenYard

SEGMENT = 16 * 1024
JOBS = 24
TEXT = b'"' + b"x" * 600 + b'"'
ENDS: list[Callable[[MemoryStorage], MemoryStorage]] = [MemoryStorage.killed, MemoryStorage.cut_off]


def queue_config(letters: str | None) -> TopicConfig:
    config = TopicConfig()
    config.type = QUEUE
    config.dead_letter = letters
    return config


def open_on(storage: MemoryStorage) -> OpenYard:
    site = OpenYard(storage, segment_size=SEGMENT)
    # A few in each turn.
    tasks = site.yard.tasks
    tasks.leave_less(tasks.units_per_turn)
    tasks.units_per_turn, tasks.first_units = 100, 1
    return site


def prepared(letters: str | None) -> MemoryStorage:
    """Return a journal with a queue all of whose jobs are letters, or dead."""
    storage = MemoryStorage()
    site = open_on(storage)
    yard, now_ms = site.yard, site.now_ms
    if letters is not None:
        open_log(yard, letters, TopicConfig(), now_ms)
    queue = open_topic_queue(yard, "q", queue_config(letters), now_ms)
    produce(yard, queue, [NewRecord(TEXT) for _ in range(JOBS)], "", now_ms)
    claim(yard, queue, "w", JOBS, 60_000, node_leases(yard, "w"), now_ms)
    give_up(yard, queue, "w", list(range(1, JOBS + 1)), None, now_ms)
    site.commit()
    return storage


def redrive(site: OpenYard, *, are_jobs: bool) -> Redrive:
    """Redrive all of them under a key, committing after each turn."""
    request = RedriveRequest(list(range(1, JOBS + 1)), are_jobs=are_jobs)
    request.key = "k"
    done = Redrive(site.yard, site.yard.queues["q"], request)
    if not site.yard.tasks.begin(done, None, site.now_ms):
        while site.yard.tasks.count():
            site.commit()
            site.yard.tasks.proceed(site.now_ms)
    site.commit()
    return done


def states(site: OpenYard) -> tuple[int, int, int]:
    """Return how many jobs are ready, how many are dead, and how many letters there are."""
    queue = site.yard.queues["q"]
    log = site.yard.logs.get("letters")
    count = 0 if log is None else int(log.count)
    return len(queue.ready.items), int(queue.dead.live_count), count


def fail_again(site: OpenYard) -> None:
    """Give up what was redriven."""
    yard, now_ms = site.yard, site.now_ms
    queue = yard.queues["q"]
    leases = claim(yard, queue, "w", JOBS, 60_000, node_leases(yard, "w"), now_ms)
    seqs = [int(lease.job.key) for lease in leases]
    give_up(yard, queue, "w", seqs, None, now_ms)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("letters", ["letters", None])
def test_a_redrive_that_is_interrupted_anywhere(
    letters: str | None, end: Callable[[MemoryStorage], MemoryStorage]
) -> None:
    image = prepared(letters)
    are_jobs = letters is None

    def run(storage: MemoryStorage) -> None:
        site = open_on(storage)
        redrive(site, are_jobs=are_jobs)
        site.compact(20)

    found = set()
    for stopped in stop_everywhere(image.killed, run):
        site = open_on(end(stopped))
        recount(site.yard)
        ready, dead, left = states(site)
        # Nothing is lost, and nothing is in both places.
        assert ready + dead + left == JOBS
        table = keys_of(site.yard, "q")
        assert (0 if table is None else int(table.count)) == ready
        found.add(ready)
        # What was moved fails again before the call is repeated: it must not be moved again.
        fail_again(site)
        done = redrive(site, are_jobs=are_jobs)
        assert (len(done.known), len(done.moved), done.skipped) == (ready, JOBS - ready, [])
        assert states(site)[0] == JOBS - ready
        again = redrive(site, are_jobs=are_jobs)
        assert (len(again.known), again.moved) == (JOBS, [])
        assert sorted(again.known_seqs) == sorted(done.known_seqs + done.moved_seqs)
        recount(site.yard)
    assert {0, JOBS} < found
    assert len(found) >= 5


def test_what_was_redriven_is_ready_or_dead_as_the_states_say() -> None:
    site = open_on(prepared(None))
    redrive(site, are_jobs=True)
    found = {int(job.state) for seq in range(1, JOBS + 1) if (job := site.yard.jobs.get(seq))}
    assert found == {READY}
    fail_again(site)
    found = {int(job.state) for seq in range(1, JOBS + 1) if (job := site.yard.jobs.get(seq))}
    assert found == {DEAD}
