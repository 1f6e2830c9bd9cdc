"""Text that is only on disk reads as if it were in memory."""

import pytest

from jobyard.engine.logs.logs import drop_log
from jobyard.engine.logs.text import text_at
from jobyard.errors import TextDamaged, YardFull
from jobyard.model.topic.config import EPHEMERAL, FSYNC
from jobyard.model.topic.log import LogTopic
from jobyard.model.topic.log_chunk import CHUNK_BYTES, LOG_CHUNK_ROWS
from tests.support.engine.logs import (
    contents,
    delete_below,
    delete_tagged,
    items,
    new_log,
    page_of,
    row,
    seqs,
    write,
)
from tests.support.site.recount import recount
from tests.support.site.snapshot import snapshot
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard

ROWS = 5 * LOG_CHUNK_ROWS


def filled(budget: int, step: int = 7, size: int = 40) -> tuple[OpenYard, LogTopic]:
    site = OpenYard(MemoryStorage(), segment_size=1 << 17, budget=budget)
    log = new_log(site, durability=FSYNC)
    for first in range(0, ROWS, step):
        count = min(step, ROWS - first)
        write(
            site,
            log,
            *[
                row("x" * size, tag=f"t{i % 10}", node=f"n{i % 3}", meta={"i": i})
                for i in range(first, first + count)
            ],
        )
        site.commit()
    recount(site.yard)
    return site, log


def storage_of(site: OpenYard) -> MemoryStorage:
    assert isinstance(site.storage, MemoryStorage)
    return site.storage


def cold_count(log: LogTopic) -> int:
    return sum(chunk.is_cold for chunk in log.chunks)


@pytest.mark.parametrize("step", [1, 7, 3000])
def test_pages_are_the_same_whether_text_is_in_memory_or_not(step: int) -> None:
    warm, warm_log = filled(1 << 40, step)
    cold, cold_log = filled(0, step)
    assert cold_count(warm_log) == 0
    assert cold_count(cold_log) >= 2
    for cursor, limit, size in ((0, 10, 1 << 20), (1000, 1000, 1 << 20), (0, 9999, 5000)):
        assert items(page_of(cold, cold_log, cursor, limit, size)) == items(
            page_of(warm, warm_log, cursor, limit, size)
        )
    mine = page_of(cold, cold_log, 500, 700, 1 << 20, "n1", tags=True, meta=False)
    yours = page_of(warm, warm_log, 500, 700, 1 << 20, "n1", tags=True, meta=False)
    assert items(mine) == items(yours)
    assert mine.next_from_seq == yours.next_from_seq


def test_single_texts_can_be_asked_for() -> None:
    warm, warm_log = filled(1 << 40)
    cold, cold_log = filled(0)
    for slot in (0, 5, LOG_CHUNK_ROWS - 1):
        text = text_at(cold.journal, cold_log.chunks[0], slot)
        assert text == text_at(warm.journal, warm_log.chunks[0], slot)


def test_long_texts_leave_memory_too() -> None:
    site, log = filled(0, 64, 2000)
    assert cold_count(log) >= 3
    assert log.memory < 2 * LOG_CHUNK_ROWS * 2100
    assert seqs(page_of(site, log, 0, 3)) == [1, 2, 3]


def test_very_much_text_leaves_memory_over_turns() -> None:
    site = OpenYard(MemoryStorage(), segment_size=1 << 25, budget=1 << 26)
    tasks = site.yard.tasks
    tasks.units_per_turn = 400
    log = new_log(site, durability=FSYNC)
    for at in range(4):
        write(site, log, *[row(f"{at} {i} " + "x" * 5000) for i in range(LOG_CHUNK_ROWS)])
        site.commit()
    while tasks.proceed(site.now_ms):
        pass
    before = contents(site, log)
    # As if bodies had come.
    site.bodies.in_memory += 55 << 20
    write(site, log, row("more"))
    assert cold_count(log) == 0, "at once only some of it is summed"
    delete_below(site, log, 10)
    turns = 1
    while tasks.proceed(site.now_ms):
        turns += 1
    assert cold_count(log) == 3
    assert turns > 10
    assert site.bodies.has_budget(0)
    assert not log.is_cooling
    site.bodies.in_memory -= 55 << 20
    assert contents(site, log)[:-1] == before[9:]
    recount(site.yard)


def test_the_long_texts_of_a_dropped_log_are_freed_over_turns() -> None:
    site = OpenYard(MemoryStorage(), segment_size=1 << 25)
    tasks = site.yard.tasks
    tasks.units_per_turn = 400
    log = new_log(site, durability=FSYNC)
    write(site, log, *[row("x" * 5000)] * (2 * LOG_CHUNK_ROWS))
    tasks.proceed(site.now_ms)
    drop_log(site.yard, log, site.now_ms)
    turns = 1
    while tasks.proceed(site.now_ms):
        turns += 1
    assert turns > 4
    recount(site.yard)


def test_logs_nobody_writes_to_make_room_for_others() -> None:
    site, log = filled(1 << 20)
    assert cold_count(log) == 0
    other = new_log(site, "other", durability=FSYNC)
    for _ in range(20):
        write(site, other, row("x" * 50_000))
        site.commit()
    assert cold_count(log) > 0
    recount(site.yard)


def test_deletes_and_caps_need_no_text() -> None:
    site, log = filled(0)
    assert delete_tagged(site, log, "t3") == ROWS // 10
    assert delete_below(site, log, 100) == 99 - 10
    recount(site.yard)
    assert 104 not in seqs(page_of(site, log))
    assert page_of(site, log).count == ROWS - ROWS // 10 - 89


def test_compaction_takes_text_along_and_a_restart_finds_it() -> None:
    site, log = filled(0)
    before = contents(site, log)
    for tag in range(1, 9):
        delete_tagged(site, log, f"t{tag}")
    kept = [item for item in before if item[2] in ("t0", "t9")]
    site.commit()
    while site.compactor.step():
        # In the middle of a step, with copies not written yet.
        assert contents(site, log) == kept
        site.commit()
    site.compact()
    assert site.compactor.dropped_count > 0
    assert contents(site, log) == kept
    recount(site.yard)
    expected = snapshot(site.yard)
    for budget in (0, 1 << 40):
        other = OpenYard(storage_of(site).cut_off(), segment_size=1 << 17, budget=budget)
        recount(other.yard)
        assert snapshot(other.yard) == expected
        assert (cold_count(other.yard.logs["log"]) > 0) == (budget == 0)


def test_a_start_does_not_hold_all_text_at_once() -> None:
    site, _ = filled(0)
    other = OpenYard(storage_of(site).cut_off(), segment_size=1 << 17, budget=0)
    log = other.yard.logs["log"]
    assert cold_count(log) == len(log.chunks) - 1
    write(other, log, row("more"))
    assert page_of(other, log).count == ROWS + 1


def test_damaged_text_is_not_given_out() -> None:
    site, log = filled(0)
    chunk = log.chunks[0]
    name = next(
        segment.name
        for segment in site.journal.segments.values()
        if segment.number == chunk.segments[5]
    )
    storage_of(site).flip(name, chunk.offsets[5] + 60, 1)
    page = page_of(site, log, 0, 10)
    assert (seqs(page), page.next_from_seq) == ([1, 2, 3, 4, 5], 5)
    with pytest.raises(TextDamaged, match="record 6 is damaged on disk"):
        page_of(site, log, 5, 10)
    assert seqs(page_of(site, log, 6, 2)) == [7, 8]
    assert site.journal.damages.reads_count == 2
    assert len(site.journal.damages.take_stories()) == 1


def test_what_is_in_no_journal_stays_in_memory() -> None:
    site = OpenYard(MemoryStorage(), budget=1 << 19)
    log = new_log(site, durability=EPHEMERAL)
    other = new_log(site, "other")
    for _ in range(30):
        write(site, log, *[row("x" * 50) for _ in range(100)])
        write(site, other, *[row("x" * 500) for _ in range(100)])
        site.commit()
    assert cold_count(log) == 0
    assert cold_count(other) > 0
    assert page_of(site, log).count == 3000
    assert page_of(site, other).count == 3000


def test_what_stays_in_memory_is_refused_beyond_the_budget() -> None:
    site = OpenYard(MemoryStorage(), budget=100_000)
    log = new_log(site, durability=EPHEMERAL, cap_records=2)
    other = new_log(site, "other")
    write(site, log, row("x" * 90_000))
    with pytest.raises(YardFull):
        write(site, log, row("y" * 20_000))
    assert (log.count, log.next_seq) == (1, 2)
    write(site, other, row("y" * 20_000))
    site.put(b"z" * 20_000)
    site.commit()
    recount(site.yard)
    delete_below(site, log, 2)
    write(site, log, row("x" * 90_000))
    drop_log(site.yard, log, site.now_ms)
    recount(site.yard)
    log = new_log(site, "again", durability=EPHEMERAL)
    write(site, log, row("x" * 90_000))


@pytest.mark.parametrize("budget", [0, 1 << 40])
def test_many_records_that_go_at_once_are_counted_as_one_by_one(budget: int) -> None:
    """Whole chunks at once, joined, open and on disk, and the rest of one by single records."""
    at_once, log = filled(budget, 64)
    one_by_one, other = filled(budget, 64)
    for site, each in ((at_once, log), (one_by_one, other)):
        delete_tagged(site, each, "t3")
    last_seq = 3 * LOG_CHUNK_ROWS + 100
    delete_below(at_once, log, last_seq)
    for seq in range(1, last_seq):
        delete_below(one_by_one, other, seq + 1)
    for site, each in ((at_once, log), (one_by_one, other)):
        site.commit()
        recount(site.yard)
        assert each.earliest_seq == last_seq
    assert (log.count, log.bytes) == (other.count, other.bytes)
    assert seqs(page_of(at_once, log)) == seqs(page_of(one_by_one, other))
    delete_tagged(at_once, log, "t", prefix=True)
    assert (log.count, log.bytes, len(log.chunks)) == (0, 0, 1)
    recount(at_once.yard)


@pytest.mark.parametrize("together", [1, 8, 40])
def test_few_long_texts_leave_memory_too(together: int) -> None:
    storage = MemoryStorage()
    site = OpenYard(storage, segment_size=1 << 25, budget=1 << 20)
    log = new_log(site, durability=FSYNC)
    for at in range(40 // together):
        write(site, log, *[row(f"{at} {i} " + "x" * 1_000_000) for i in range(together)])
        site.commit()
        while site.yard.tasks.proceed(site.now_ms):
            pass
    # What is written next stays with the newest chunk.
    write(site, log, row("small"))
    while site.yard.tasks.proceed(site.now_ms):
        pass
    assert log.memory < CHUNK_BYTES + 2_000_000
    assert cold_count(log) >= 3
    before = contents(site, log)
    assert len(before) == 41
    site.commit()
    after = OpenYard(storage.killed(), segment_size=1 << 25, budget=1 << 20)
    again = after.yard.logs[log.name]
    assert again.memory < CHUNK_BYTES + 2_000_000
    assert contents(after, again) == before
    write(after, again, row("new"))
    assert len(contents(after, again)) == 42
    recount(after.yard)
