"""Batches above a megabyte: closed with their turn, written and synced by the worker."""

from jobyard.model.limits import NEVER_MS
from tests.support.committers import LARGE, LARGE_SEGMENT, Desk
from tests.support.yards import NOW_MS


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
