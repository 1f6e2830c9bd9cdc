"""A start that is itself interrupted, at every call it makes to the storage, and repeated."""

from collections.abc import Callable

import pytest

from jobyard.errors import JournalDamaged
from tests.support.random.beanstalk import RandomRun
from tests.support.site.recount import recount
from tests.support.site.snapshot import Snapshot, snapshot
from tests.support.site.storage import EACH, MemoryStorage, PowerCut, stop_everywhere
from tests.support.site.yard import OpenYard

SEGMENT = 16 * 1024


def crashed(seed: int) -> tuple[MemoryStorage, int]:
    """Return a journal as a crash in the middle of much work leaves it, and the time of the crash.

    Batches of both temperatures that were written but never synced, a torn one behind them, a
    compaction half done, spare files, and a segment that was opened and not used.
    """
    storage = MemoryStorage()
    site = OpenYard(storage, segment_size=SEGMENT)
    run = RandomRun(site, seed, sizes=(0, 40, 800, 4500))
    for number in range(250):
        run.step()
        if number % 3 == 0:
            site.commit()
            site.compactor.step()
    site.commit()
    for _ in range(3):
        run.step()
        site.put(b"written, not synced")
        site.compactor.step()
        site.journal.seal_batch()
    site.journal.write_pending()
    site.put(b"torn")
    site.journal.seal_batch()
    torn = site.journal.pending[0]
    storage.write(torn.segment.name, torn.offset, torn.pieces[0][:-3])
    storage.create(site.journal.new_spare_name(), SEGMENT)
    storage.create(site.journal.new_spare_name(), SEGMENT // 2)
    return storage.killed(), site.now_ms


def start(storage: MemoryStorage, now_ms: int) -> Snapshot:
    site = OpenYard(storage, now_ms, segment_size=SEGMENT)
    recount(site.yard)
    return snapshot(site.yard)


ENDS: list[Callable[[MemoryStorage], MemoryStorage]] = [MemoryStorage.killed, MemoryStorage.cut_off]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_start_interrupted_at_any_call_and_repeated_finds_the_same(
    seed: int, end: Callable[[MemoryStorage], MemoryStorage]
) -> None:
    image, now_ms = crashed(seed)
    wanted = start(image.killed(), now_ms)
    count = 0
    for storage in stop_everywhere(image.killed, lambda storage: void(start(storage, now_ms))):
        count += EACH
        assert start(end(storage), now_ms) == wanted
    assert count > 30


def void(_: object) -> None:
    """Drop a result."""


def test_ten_starts_each_interrupted_a_little_later_find_the_same() -> None:
    image, now_ms = crashed(3)
    wanted = start(image.killed(), now_ms)
    storage = image
    for calls in range(5, 105, 10):
        storage = storage.cut_off()
        storage.stop_at = calls
        try:
            found = start(storage, now_ms)
        except PowerCut:
            continue
        assert found == wanted
    assert start(storage.cut_off(), now_ms) == wanted


def test_what_a_start_has_decided_stays_decided() -> None:
    """Uncertain batches that one start counted must be there for the next, come what may."""
    image, now_ms = crashed(4)
    first = OpenYard(image, now_ms, segment_size=SEGMENT)
    wanted = snapshot(first.yard)
    for storage in (image.cut_off(), image.killed()):
        assert start(storage, now_ms) == wanted


def test_nothing_is_served_before_everything_is_on_disk() -> None:
    image, now_ms = crashed(5)
    site = OpenYard(image, now_ms, segment_size=SEGMENT)
    assert site.journal.durable == site.journal.written == site.journal.open_number - 1
    last_write = max(i for i, call in enumerate(image.calls) if call.startswith("write"))
    assert any(call.startswith("sync ") for call in image.calls[last_write:])
    assert "sync_directory" in image.calls


def rolled(end: Callable[[MemoryStorage], MemoryStorage]) -> tuple[MemoryStorage, int]:
    """Return a journal whose process ended at a roll: the next segment is begun and empty."""
    storage = MemoryStorage()
    site = OpenYard(storage, segment_size=4096)
    site.put(b"kept")
    site.commit()
    hot = site.journal.hot
    while site.journal.hot is hot:
        last = storage.killed() if end is MemoryStorage.killed else storage.cut_off()
        site.put(b"x" * 300)
        site.journal.seal_batch()
        if site.journal.hot is hot:
            site.commit()
    # The roll has made the new file and its header; its first batch never got there.
    left = end(storage)
    assert len(left.names()) >= len(last.names())
    return left, site.now_ms


@pytest.mark.parametrize("end", ENDS)
def test_two_interrupted_starts_after_a_roll_leave_a_journal_that_can_be_served(
    end: Callable[[MemoryStorage], MemoryStorage],
) -> None:
    image, now_ms = rolled(end)
    begun = [name for name in image.names() if name.endswith(".journal")]
    assert len(begun) == 2
    wanted = start(image.killed(), now_ms)
    for first in stop_everywhere(image.killed, lambda storage: void(start(storage, now_ms))):
        once = end(first)
        for second in stop_everywhere(once.killed, lambda storage: void(start(storage, now_ms))):
            twice = end(second)
            third = end(twice)
            third.stop_at = 60
            try:
                start(third, now_ms)
            except PowerCut:
                third = end(third)
            assert start(end(third), now_ms) == wanted


def test_a_segment_of_which_nothing_is_left_is_not_taken_for_one_that_was_only_begun() -> None:
    image, now_ms = crashed(6)
    site = OpenYard(image, now_ms, segment_size=SEGMENT)
    for _ in range(3):
        site = OpenYard(image, now_ms, segment_size=SEGMENT)
        site.put(b"one more")
        site.commit()
    names = sorted(name for name in image.names() if name.endswith(".journal"))
    for name in names[:-1]:
        damaged = image.killed()
        damaged.write(name, 64, bytes(damaged.size(name) - 64))
        with pytest.raises(JournalDamaged) as refused:
            OpenYard(damaged, now_ms, segment_size=SEGMENT)
        assert refused.value.name == name
