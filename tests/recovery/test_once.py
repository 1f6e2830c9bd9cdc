"""Calls that may be repeated, interrupted at every call to the storage: done once, or not at all.

A claim with an id, the epoch of a worker, a cursor that holds records, and a write with keys. After
each interruption the call is made again, and has the effect that it would have had without one.
"""

from collections.abc import Callable

import pytest

from jobyard.engine.jobs.durable_leases import lease_name
from jobyard.engine.logs.cursors import CursorBehind, CursorChange, set_cursor
from jobyard.engine.logs.logs import append, open_log
from jobyard.engine.state.tasks import Task
from jobyard.engine.topics.claim_sets import (
    SetClaiming,
    SetExtension,
    find_claim_set,
    live_lease,
)
from jobyard.engine.topics.fences import Fenced, check_fence, raise_fence
from jobyard.engine.topics.topic_queue import NewRecord, open_topic_queue, produce
from jobyard.model.topic.config import QUEUE, TopicConfig
from jobyard.model.topic.cursor import TopicCursor
from jobyard.model.topic.log import LogRecord
from tests.support.engine.record_keys import produce_keyed, write_keyed
from tests.support.site.recount import recount
from tests.support.site.storage import MemoryStorage, stop_everywhere
from tests.support.site.yard import OpenYard

SEGMENT = 16 * 1024
JOBS = 40
TEXT = b'"' + b"x" * 200 + b'"'
LEASE_MS = 60_000

End = Callable[[MemoryStorage], MemoryStorage]
ENDS: list[End] = [MemoryStorage.killed, MemoryStorage.cut_off]


def open_on(storage: MemoryStorage) -> OpenYard:
    return OpenYard(storage, segment_size=SEGMENT)


def config_of(kind: str, cap_records: int = 0) -> TopicConfig:
    config = TopicConfig()
    config.type = kind
    config.cap_records = cap_records
    return config


def finish(site: OpenYard, task: Task) -> None:
    """Run a task to its end, with a commit after each turn."""
    if not site.yard.tasks.begin(task, None, site.now_ms):
        while site.yard.tasks.count():
            site.yard.tasks.proceed(site.now_ms)
            site.commit()
    site.commit()


# -- claim sets -----------------------------------------------------------------------------------


def with_jobs() -> MemoryStorage:
    storage = MemoryStorage()
    site = open_on(storage)
    queue = open_topic_queue(site.yard, "work", config_of(QUEUE), site.now_ms)
    produce(site.yard, queue, [NewRecord(TEXT) for _ in range(JOBS)], "", site.now_ms)
    site.commit()
    return storage


def claim_set(site: OpenYard) -> list[tuple[int, str, int]]:
    """Claim the set; return seq, name and deadline of its leases."""
    yard = site.yard
    queue = yard.queues["work"]
    finish(site, SetClaiming(yard, queue, "c", "w", JOBS // 2, LEASE_MS))
    found = find_claim_set(yard, queue, "c")
    assert found is not None
    leases = [live_lease(yard, found, each, site.now_ms) for each in range(int(found.count))]
    return [
        (int(one.job.key), lease_name(yard, one), int(one.sort_key))
        for one in leases
        if one is not None
    ]


def extend_set(site: OpenYard) -> None:
    found = find_claim_set(site.yard, site.yard.queues["work"], "c")
    assert found is not None
    finish(site, SetExtension(site.yard, found, 2 * LEASE_MS, site.now_ms))


@pytest.mark.parametrize("end", ENDS)
def test_a_claim_with_an_id(end: End) -> None:
    image = with_jobs()

    def run(storage: MemoryStorage) -> None:
        site = open_on(storage)
        claim_set(site)
        extend_set(site)
        site.compact(20)

    counts = set()
    for stopped in stop_everywhere(image.killed, run):
        storage = end(stopped)
        site = open_on(storage)
        recount(site.yard)
        queue = site.yard.queues["work"]
        before = len(queue.leased.items)
        known = find_claim_set(site.yard, queue, "c")
        counts.add((known is not None, before))
        held = claim_set(site)
        assert len(held) == len({seq for seq, _, _ in held}) == JOBS // 2
        if known is not None:
            # Every job of the set, and no other, by the leases it had.
            assert len(queue.leased.items) == before == JOBS // 2
        extend_set(site)
        after = open_on(end(storage))
        again = claim_set(after)
        assert [(seq, name) for seq, name, _ in again] == [(seq, name) for seq, name, _ in held]
        assert {until for _, _, until in again} == {site.now_ms + 2 * LEASE_MS}
        recount(after.yard)
    assert {(False, 0), (True, JOBS // 2)} <= counts


# -- fences ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ENDS)
def test_the_epoch_of_a_worker(end: End) -> None:
    storage = MemoryStorage()
    site = open_on(storage)
    raise_fence(site.yard, "m", 3, site.now_ms)
    site.commit()

    def run(storage: MemoryStorage) -> None:
        site = open_on(storage)
        raise_fence(site.yard, "m", 4, site.now_ms)
        site.commit()
        site.compact(20)

    epochs = set()
    for stopped in stop_everywhere(storage.killed, run):
        after = open_on(end(stopped))
        recount(after.yard)
        fence = after.yard.txns.fences.get("m")
        assert fence is not None
        epochs.add(int(fence.epoch))
        with pytest.raises(Fenced):
            check_fence(after.yard, "m", 2)
        raise_fence(after.yard, "m", 4, after.now_ms)
        with pytest.raises(Fenced):
            check_fence(after.yard, "m", 3)
    assert epochs == {3, 4}


# -- cursors --------------------------------------------------------------------------------------


def move(site: OpenYard, seq: int, *, is_forced: bool = False) -> None:
    cursor = TopicCursor("log", "c")
    cursor.seq = seq
    cursor.holds = True
    change = CursorChange(cursor, is_forced=is_forced, keeps_hold=False)
    set_cursor(site.yard, change, site.now_ms)


@pytest.mark.parametrize("end", ENDS)
def test_a_cursor_that_holds_records(end: End) -> None:
    storage = MemoryStorage()
    site = open_on(storage)
    log = open_log(site.yard, "log", config_of("log", cap_records=5), site.now_ms)
    append(site.yard, log, [LogRecord(TEXT) for _ in range(5)], "", site.now_ms)
    move(site, 2)
    site.commit()

    def run(storage: MemoryStorage) -> None:
        site = open_on(storage)
        log = site.yard.logs["log"]
        for _ in range(20):
            append(site.yard, log, [LogRecord(TEXT)], "", site.now_ms)
            site.commit()
        move(site, 20)
        site.commit()
        append(site.yard, log, [LogRecord(TEXT)], "", site.now_ms)
        site.commit()
        site.compact(20)

    seqs = set()
    for stopped in stop_everywhere(storage.killed, run):
        after = open_on(end(stopped))
        recount(after.yard)
        cursor = after.yard.cursors.get("log", "c")
        assert cursor is not None
        assert cursor.is_holding()
        seq = int(cursor.seq)
        seqs.add(seq)
        log = after.yard.logs["log"]
        assert log.earliest_seq <= seq + 1
        assert log.count == log.next_seq - log.earliest_seq
        with pytest.raises(CursorBehind):
            move(after, seq - 1)
        append(after.yard, log, [LogRecord(TEXT) for _ in range(9)], "", after.now_ms)
        assert log.earliest_seq <= seq + 1
        move(after, seq - 1, is_forced=True)
    assert seqs == {2, 20}


# -- writes with keys -----------------------------------------------------------------------------


@pytest.mark.parametrize("end", ENDS)
def test_a_write_with_keys(end: End) -> None:
    storage = MemoryStorage()
    site = open_on(storage)
    open_log(site.yard, "log", TopicConfig(), site.now_ms)
    open_topic_queue(site.yard, "work", config_of(QUEUE), site.now_ms)
    site.commit()
    records = [(TEXT.decode(), f"k{number}") for number in range(60)]

    def write(site: OpenYard) -> None:
        log = site.yard.logs["log"]
        queue = site.yard.queues["work"]
        for at in range(0, len(records), 20):
            write_keyed(site, log, *records[at : at + 20])
            produce_keyed(site, queue, *records[at : at + 20])
            site.commit()

    def run(storage: MemoryStorage) -> None:
        site = open_on(storage)
        write(site)
        site.compact(20)

    counts = set()
    for stopped in stop_everywhere(storage.killed, run):
        after = open_on(end(stopped))
        recount(after.yard)
        log, queue = after.yard.logs["log"], after.yard.queues["work"]
        count = int(log.count)
        assert count % 20 == 0
        counts.add(count)
        write(after)
        assert (log.count, queue.jobs_count()) == (len(records), len(records))
        recount(after.yard)
    assert counts == {0, 20, 40, 60}
