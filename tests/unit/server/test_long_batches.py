"""Batches above a megabyte: closed with their turn, written and synced by the worker."""

import pytest

from jobyard.journal.outgoing import LONG_BATCH
from jobyard.model.limits import INLINE_BODY_MAX, NEVER_MS
from jobyard.server.committer import OS, SYNC
from tests.support.site.committers import LARGE, LARGE_SEGMENT, Desk
from tests.support.site.site import NOW_MS
from tests.support.site.yard import OpenYard

MANY = LONG_BATCH // INLINE_BODY_MAX + 1


def put_many(desk: Desk) -> None:
    """Put so many jobs that their records are a long batch."""
    for at in range(MANY):
        desk.put(b"%d" % (at % 10) * INLINE_BODY_MAX)


def put_few(desk: Desk, count: int) -> None:
    for _ in range(count):
        desk.put()


def slow_tasks(desk: Desk) -> None:
    """Give little room to long work, from the next turn on."""
    desk.site.yard.tasks.units_per_turn = 100
    desk.site.yard.tasks.proceed(NOW_MS)


def sum_all(desk: Desk) -> int:
    """Compute the checksums; return how many turns that took."""
    turns = 0
    while desk.journal.has_unsummed():
        desk.site.yard.tasks.proceed(NOW_MS)
        turns += 1
    return turns


def test_a_long_batch_is_written_and_synced_by_the_worker() -> None:
    desk = Desk(segment_size=LARGE_SEGMENT)
    desk.put(LARGE)
    desk.committer.turn(NOW_MS)
    assert desk.take_calls() == []
    assert desk.stored_body(1) == LARGE, "it can be read before it is written"
    desk.worker.work()
    assert desk.heard.data == b""
    assert desk.take_calls() == ["write", "sync"]
    desk.worker.collect()
    assert desk.heard.data == b"INSERTED 1\r\n"
    assert not desk.journal.pending
    assert desk.stored_body(1) == LARGE
    assert desk.committer.turn(NOW_MS) == NEVER_MS
    assert desk.take_calls() == []


def test_long_batches_during_a_sync_are_not_joined() -> None:
    desk = Desk(segment_size=LARGE_SEGMENT)
    desk.slow_down()
    desk.put()
    desk.committer.turn(NOW_MS)
    for _ in range(3):
        desk.put(LARGE)
        desk.committer.turn(NOW_MS)
    desk.put()
    desk.worker.work_all()
    desk.take_calls()
    assert desk.heard.data.count(b"INSERTED") == 1
    desk.committer.turn(NOW_MS)
    desk.worker.work_all()
    assert desk.take_calls() == ["write", "write", "write", "write", "sync"]
    assert desk.heard.data.count(b"INSERTED") == 5


def test_what_comes_while_a_long_batch_is_written_waits_for_the_next() -> None:
    desk = Desk(segment_size=LARGE_SEGMENT)
    desk.put(LARGE)
    desk.committer.turn(NOW_MS)
    desk.put()
    desk.put(LARGE)
    desk.committer.turn(NOW_MS)
    desk.worker.work_all()
    assert desk.heard.data.count(b"INSERTED") == 1
    assert [one.size > len(LARGE) for one in desk.journal.pending] == [True]
    desk.committer.turn(NOW_MS)
    desk.worker.work_all()
    assert desk.heard.data.count(b"INSERTED") == 3
    assert not desk.journal.pending


def test_the_worker_syncs_all_before_a_seal_and_then_the_seal() -> None:
    desk = Desk(segment_size=LARGE_SEGMENT)
    first = desk.journal.hot
    while desk.journal.hot is first:
        desk.committer.turn(NOW_MS)
        desk.worker.work_all()
        desk.put()
        desk.storage.calls.clear()
        desk.put(LARGE)
    names = [one.segment.name for one in desk.journal.pending]
    assert [one.is_seal for one in desk.journal.pending] == [False, True]
    desk.storage.calls = [call for call in desk.storage.calls if first.name in call]
    desk.committer.turn(NOW_MS)
    assert not desk.storage.calls
    assert not first.is_sealed
    desk.worker.work()
    assert desk.take_calls() == ["write", "sync", "write", "sync", "write", "sync"]
    assert names == [first.name, first.name]
    desk.worker.collect()
    assert desk.journal.segments[first.number].is_sealed
    desk.journal.seal_batch()
    assert desk.journal.durable == desk.journal.newest()
    assert not desk.journal.pending


@pytest.mark.parametrize("durability", [SYNC, OS])
def test_the_records_of_a_long_batch_are_summed_over_turns_before_it_is_written(
    durability: str,
) -> None:
    desk = Desk(durability, segment_size=LARGE_SEGMENT)
    slow_tasks(desk)
    put_many(desk)
    desk.committer.turn(NOW_MS)
    assert not desk.worker.waiting
    assert desk.journal.has_unsummed()
    assert desk.stored_body(3) == b"2" * INLINE_BODY_MAX, "it can be read before it is summed"
    put_few(desk, 2)
    desk.committer.turn(NOW_MS)
    assert len(desk.journal.pending) == 1, "what comes meanwhile waits"
    assert sum_all(desk) > 5
    assert not desk.heard.data
    assert desk.take_calls() == []
    desk.committer.turn(NOW_MS)
    desk.worker.work_all()
    assert desk.heard.data.count(b"INSERTED") == MANY + 2
    assert not desk.journal.pending
    assert desk.stored_body(3) == b"2" * INLINE_BODY_MAX
    desk.committer.stop()
    again = OpenYard(desk.storage.killed(), segment_size=LARGE_SEGMENT)
    assert again.journal.live_bytes.jobs_count == MANY + 2


def test_what_was_closed_before_is_written_while_a_long_batch_is_summed() -> None:
    desk = Desk(segment_size=LARGE_SEGMENT)
    desk.put()
    desk.journal.seal_batch()
    put_many(desk)
    desk.journal.seal_batch()
    desk.committer.turn(NOW_MS)
    assert desk.heard.data.count(b"INSERTED") == 1
    assert desk.journal.has_unsummed()
    put_few(desk, 1)
    desk.committer.turn(NOW_MS)
    assert desk.heard.data.count(b"INSERTED") == 1, "nothing behind it is written first"
    sum_all(desk)
    desk.committer.turn(NOW_MS)
    desk.worker.work_all()
    assert desk.heard.data.count(b"INSERTED") == MANY + 2


def test_a_crash_before_all_is_summed_leaves_nothing_of_the_batch() -> None:
    desk = Desk(segment_size=LARGE_SEGMENT)
    slow_tasks(desk)
    desk.put()
    desk.committer.turn(NOW_MS)
    put_many(desk)
    desk.committer.turn(NOW_MS)
    desk.site.yard.tasks.proceed(NOW_MS)
    desk.site.yard.tasks.proceed(NOW_MS)
    desk.committer.turn(NOW_MS)
    assert desk.journal.has_unsummed()
    again = OpenYard(desk.storage.killed(), segment_size=LARGE_SEGMENT)
    assert again.journal.live_bytes.jobs_count == 1


@pytest.mark.parametrize("durability", [SYNC, OS])
def test_a_stop_sums_and_writes_what_is_left(durability: str) -> None:
    desk = Desk(durability, segment_size=LARGE_SEGMENT)
    put_many(desk)
    desk.committer.turn(NOW_MS)
    put_few(desk, 1)
    desk.committer.stop()
    assert desk.heard.data.count(b"INSERTED") == MANY + 1
    again = OpenYard(desk.storage.killed(), segment_size=LARGE_SEGMENT)
    assert again.journal.live_bytes.jobs_count == MANY + 1
    assert not desk.site.yard.tasks.proceed(NOW_MS), "there is nothing left to sum"
