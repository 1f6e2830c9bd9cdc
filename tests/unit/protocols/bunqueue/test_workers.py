"""The table of workers: which connection each belongs to, and what is stored about each."""

from jobyard.model.entry import EntryKind
from jobyard.protocols.bunqueue.workers import (
    LOST_MS,
    PAST_MAX,
    STALE_MS,
    WRITE_MS,
    Worker,
    Workers,
)
from tests.support.site.site import NOW_MS
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard


def enter(workers: Workers, home: list[str], worker_id: str = "w", now_ms: int = NOW_MS) -> Worker:
    return workers.enter(Worker(worker_id, "name", ["q"], now_ms), home)


def reboot(site: OpenYard) -> OpenYard:
    site.commit()
    assert isinstance(site.storage, MemoryStorage)
    return OpenYard(site.storage.killed(), site.now_ms)


def test_a_worker_follows_its_newest_connection() -> None:
    workers = Workers(OpenYard().yard)
    old: list[str] = []
    new: list[str] = []
    first = enter(workers, old)
    workers.beat(first, (1, 5, 2), NOW_MS)
    again = enter(workers, new)
    assert again is first
    assert (old, new) == ([], ["w"])
    assert (again.processed, again.failed) == (5, 2)
    assert workers.dismiss("w")
    assert new == []
    assert not workers.dismiss("w")


def test_registering_twice_on_one_connection_is_once() -> None:
    workers = Workers(OpenYard().yard)
    home: list[str] = []
    enter(workers, home)
    enter(workers, home)
    assert home == ["w"]


def test_counts_are_totalled_over_those_that_left() -> None:
    workers = Workers(OpenYard().yard)
    for n in range(3):
        worker = enter(workers, [], f"w{n}")
        workers.beat(worker, (0, 10, 1), NOW_MS)
        workers.beat(worker, (0, 15, 1), NOW_MS)
        workers.leave(worker.id)
    assert (workers.processed_total, workers.failed_total) == (45, 3)


def test_a_worker_that_begins_anew_counts_from_nothing() -> None:
    workers = Workers(OpenYard().yard)
    worker = enter(workers, [])
    workers.beat(worker, (0, 10, 0), NOW_MS)
    workers.beat(worker, (0, 3, 0), NOW_MS)
    assert (workers.processed_total, worker.processed) == (13, 3)


def test_what_was_done_is_not_counted_twice_after_a_restart() -> None:
    site = OpenYard(MemoryStorage())
    workers = Workers(site.yard)
    workers.beat(enter(workers, []), (0, 10, 4), NOW_MS)
    workers.leave("w")
    workers = Workers(reboot(site).yard)
    assert workers.by_id == {}
    worker = enter(workers, [])
    assert (worker.processed, worker.failed) == (10, 4)
    workers.beat(worker, (0, 12, 4), NOW_MS)
    assert (workers.processed_total, workers.failed_total) == (12, 4)


def test_heartbeats_are_written_once_a_minute() -> None:
    site = OpenYard(MemoryStorage())
    workers = Workers(site.yard)
    worker = enter(workers, [])
    before = site.journal.records_count
    for after_ms in range(0, WRITE_MS, 1000):
        workers.beat(worker, (0, after_ms, 0), NOW_MS + after_ms)
    assert site.journal.records_count == before
    workers.beat(worker, (0, WRITE_MS, 0), NOW_MS + WRITE_MS)
    written = site.journal.records_count
    assert written > before
    workers.beat(worker, (0, WRITE_MS, 0), NOW_MS + 3 * WRITE_MS)
    assert site.journal.records_count == written


def test_a_worker_that_did_nothing_leaves_no_trace() -> None:
    site = OpenYard(MemoryStorage())
    workers = Workers(site.yard)
    enter(workers, [])
    workers.leave("w")
    assert not [entry for entry in site.journal.entries.values() if entry.kind == EntryKind.WORKER]


def test_only_so_many_are_remembered() -> None:
    site = OpenYard(MemoryStorage())
    workers = Workers(site.yard)
    for n in range(PAST_MAX + 5):
        workers.beat(enter(workers, [], f"w{n}"), (0, 1, 0), NOW_MS)
        workers.leave(f"w{n}")
    kept = [
        entry.key
        for entry in site.journal.entries.values()
        if entry.kind == EntryKind.WORKER and not entry.is_gone and entry.key
    ]
    assert len(kept) == PAST_MAX
    assert b"w4" not in kept
    assert enter(workers, [], "w4").processed == 0
    assert enter(workers, [], "w5").processed == 1


def test_silence_makes_stale_and_then_lost() -> None:
    workers = Workers(OpenYard().yard)
    home: list[str] = []
    worker = enter(workers, home)
    assert workers.serves("q", NOW_MS)
    assert not workers.serves("other", NOW_MS)
    assert not worker.is_active(NOW_MS + STALE_MS)
    assert not workers.serves("q", NOW_MS + STALE_MS)
    workers.drop_lost(NOW_MS + LOST_MS - 1)
    assert home == ["w"]
    workers.drop_lost(NOW_MS + LOST_MS)
    assert (home, workers.by_id) == ([], {})


def test_damaged_values_count_as_nothing() -> None:
    site = OpenYard(MemoryStorage())
    for key, value in ((b"a", b"\xc1"), (b"b", b"\x91\x01"), (b"c", b"\x92\xa1x\x01")):
        site.journal.set_entry(EntryKind.WORKER, key, value)
    workers = Workers(site.yard)
    assert [enter(workers, [], name).processed for name in "abc"] == [0, 0, 0]
