import pytest

from jobyard.engine.jobs.move import remove
from jobyard.errors import JournalDamaged
from jobyard.journal.format.segment import (
    BATCH_HEADER_SIZE,
    SEAL_SIZE,
    SEGMENT_HEADER_SIZE,
    HeadFields,
    Segment,
    encode_batch,
    segment_name,
    segment_number,
)
from jobyard.journal.journal import Journal
from jobyard.journal.recovery.scan import Merge, Recovery, scan_tail
from jobyard.journal.space.survivors import Survivors
from jobyard.model.limits import INLINE_BODY_MAX
from tests.support.site.snapshot import snapshot
from tests.support.site.storage import MemoryStorage, stop_everywhere
from tests.support.site.yard import OpenYard, batches, boot

LONG = b"L" * (INLINE_BODY_MAX + 500)


def survey(storage: MemoryStorage) -> Recovery:
    recovery = Recovery(storage)
    recovery.survey()
    return recovery


def zero_from(storage: MemoryStorage, name: str, offset: int) -> None:
    storage.write(name, offset, bytes(storage.size(name) - offset))


# -- the first scan ----------------------------------------------------------------------------


def test_an_empty_directory_is_an_empty_journal() -> None:
    recovery = survey(MemoryStorage())
    assert (recovery.segments, recovery.durable, recovery.next_number) == ([], 0, 1)
    assert Merge(MemoryStorage(), recovery).next() is None


def test_other_files_are_left_alone() -> None:
    storage = MemoryStorage()
    storage.create("lock", 0)
    storage.create("notes.txt", 5)
    boot(storage, b"a")
    OpenYard(storage)
    assert {"lock", "notes.txt"} <= set(storage.names())


def test_a_torn_tail_is_cut_and_its_bytes_are_reported() -> None:
    storage = MemoryStorage()
    site = boot(storage, b"a", b"b" * 500)
    hot = site.journal.hot
    number, offset, size = batches(storage, hot)[-1]
    zero_from(storage, hot.name, offset + size - 8)
    recovery = survey(storage)
    assert recovery.cut == number
    assert recovery.cut_bytes == size
    assert recovery.durable == number - 2
    again = OpenYard(storage)
    assert again.recovered is not None
    assert again.recovered.cut_bytes == size
    assert again.yard.jobs.count == 1


def test_a_tail_that_never_began_cuts_nothing() -> None:
    storage = MemoryStorage()
    site = boot(storage, b"a")
    assert survey(storage).cut_bytes == 0
    fresh = OpenYard(storage)
    assert fresh.recovered is not None
    assert fresh.recovered.cut_bytes == 0
    assert fresh.journal.open_number == site.journal.open_number + 1


def test_bytes_left_by_an_older_use_of_a_file_are_no_torn_tail() -> None:
    storage = MemoryStorage()
    site = boot(storage, b"a")
    hot = site.journal.hot
    older = Segment(77, 0, hot.size)
    batch = encode_batch(older, 1, HeadFields(1, 0, 1), b"x" * 50, [])
    storage.write(hot.name, hot.end, batch)
    assert survey(storage).cut_bytes == 0
    assert OpenYard(storage).yard.jobs.count == 1


def test_a_lost_batch_before_a_durable_one_is_damage_and_no_torn_tail() -> None:
    storage = MemoryStorage()
    site = boot(storage, b"a", b"b", b"c")
    name = site.journal.hot.name
    _, offset, _ = batches(storage, site.journal.hot)[2]
    storage.flip(name, offset + BATCH_HEADER_SIZE + 30, 4)
    with pytest.raises(JournalDamaged) as damage:
        survey(storage)
    assert (damage.value.name, damage.value.offset) == (name, offset)


def test_a_lost_batch_is_damage_also_if_the_next_one_was_written_with_it() -> None:
    """Two batches under one sync, then a third that states both to be durable."""
    storage = MemoryStorage()
    site = boot(storage, b"a")
    for body in (b"b", b"c"):
        site.put(body)
        site.journal.seal_batch()
    site.commit()
    site.put(b"d")
    site.commit()
    name = site.journal.hot.name
    _, offset, _ = batches(storage, site.journal.hot)[2]
    storage.flip(name, offset + BATCH_HEADER_SIZE + 30, 4)
    with pytest.raises(JournalDamaged) as damage:
        survey(storage)
    assert (damage.value.name, damage.value.offset) == (name, offset)


def test_what_lies_behind_damage_is_not_read_again_for_every_batch_in_it() -> None:
    """Or a start would take minutes to refuse a segment full of small batches."""
    storage = MemoryStorage()
    site = boot(storage, *(b"x" for _ in range(300)))
    storage.flip(site.journal.hot.name, SEGMENT_HEADER_SIZE + BATCH_HEADER_SIZE, 1)
    before = storage.calls_count
    tail = scan_tail(storage, site.journal.hot)
    assert tail.numbers == []
    assert storage.calls_count - before < 30


def test_a_gap_among_batches_that_were_never_synced_cuts_there() -> None:
    storage = MemoryStorage()
    site = boot(storage, b"a")
    for body in (b"b", b"c", b"d"):
        site.put(body)
        site.journal.seal_batch()
    site.journal.write_pending()
    name = site.journal.hot.name
    number, offset, size = batches(storage, site.journal.hot)[2]
    storage.write(name, offset, bytes(size))
    recovery = survey(storage)
    assert recovery.cut == number
    again = OpenYard(storage.killed())
    assert again.yard.jobs.count == 1
    assert again.put(b"e").id > 4, "ids of what was cut are not given again"


def test_a_long_body_torn_in_the_tail_is_cut_with_its_batch() -> None:
    storage = MemoryStorage()
    site = boot(storage, b"a", LONG)
    hot = site.journal.hot
    number, offset, size = batches(storage, hot)[-1]
    storage.write(hot.name, offset + size - 10, bytes(10))
    tail = scan_tail(storage, hot)
    assert tail.numbers[-1] == number - 1
    assert OpenYard(storage).yard.jobs.count == 1


def test_a_segment_whose_header_never_reached_the_disk_is_removed() -> None:
    storage = MemoryStorage()
    site = boot(storage, b"a")
    storage.create(segment_name(50), 65536)
    again = OpenYard(storage)
    assert segment_name(50) not in storage.names()
    assert snapshot(again.yard) == snapshot(site.yard)
    assert again.journal.hot.number > 50


def test_a_segment_that_got_no_batch_is_removed() -> None:
    storage = MemoryStorage()
    site = boot(storage, b"a")
    site.journal.open_segment(0, 65536)
    unused = segment_name(int(site.journal.next_segment) - 1)
    assert unused in storage.names()
    again = OpenYard(storage.killed())
    assert again.storage is not None
    assert unused not in again.storage.names()


def test_a_damaged_header_of_a_segment_in_use_is_refused() -> None:
    for offset in (0, 8, 12, 20, 40, 60):
        storage = MemoryStorage()
        site = boot(storage, b"a")
        storage.flip(site.journal.hot.name, offset, 0)
        with pytest.raises(JournalDamaged) as damage:
            survey(storage)
        assert (damage.value.name, damage.value.offset) == (site.journal.hot.name, 0)


def test_a_segment_under_the_name_of_another_is_refused() -> None:
    storage = MemoryStorage()
    site = boot(storage, b"a")
    storage.rename(site.journal.hot.name, segment_name(9))
    # Batches of segment 1 say nothing about segment 9: as that one it is empty, so 1 is missing.
    with pytest.raises(JournalDamaged, match="missing"):
        survey(storage)


def test_a_segment_without_its_seal_is_refused_unless_it_is_the_last() -> None:
    storage = MemoryStorage()
    boot(storage, b"a")
    site = boot(storage.killed(), b"b")
    storage = site.storage  # type: ignore[assignment]
    first = min(name for name in storage.names() if segment_number(name) > 0)
    seal_at = storage.size(first) - SEAL_SIZE
    storage.flip(first, seal_at + 40, 0)
    with pytest.raises(JournalDamaged) as damage:
        survey(storage)
    assert (damage.value.name, damage.value.offset) == (first, seal_at)


def test_an_old_segment_is_read_to_its_seal_or_refused() -> None:
    storage = MemoryStorage()
    for body in (b"a", b"b", b"c", b"d"):
        site = boot(storage, body)
        storage = storage.killed()
        site.storage = storage
    first = min(name for name in storage.names() if segment_number(name) > 0)
    for offset in (SEGMENT_HEADER_SIZE + 100, storage.size(first) - 20):
        damaged = storage.killed()
        damaged.flip(first, offset, 0)
        with pytest.raises(JournalDamaged) as damage:
            OpenYard(damaged)
        assert damage.value.name == first


def test_a_segment_that_should_be_there_is_named() -> None:
    present = [Segment(1, 0, 0), Segment(4, 0, 0)]
    recovery = Recovery(MemoryStorage())
    recovery.segments = present
    recovery.require({1, 4})
    with pytest.raises(JournalDamaged, match=f"{segment_name(2)} at offset 0: the segment is miss"):
        recovery.require({1, 2, 3, 4})
    recovery.empty = [Segment(2, 0, 100)]
    with pytest.raises(JournalDamaged, match=f"{segment_name(2)} at offset 64: nothing"):
        recovery.require({1, 2, 3, 4})
    recovery.require(set())


# -- the mend ----------------------------------------------------------------------------------


def test_uncertain_batches_are_on_disk_before_the_seal_that_vouches_for_them() -> None:
    storage = MemoryStorage()
    site = boot(storage, b"a")
    for body in (b"b", b"c"):
        site.put(body)
        site.journal.seal_batch()
    site.journal.write_pending()
    name = site.journal.hot.name
    # The sync failed: the page cache shows what the disk never got, and holds it for clean.
    mend = HeadFields(1, 0, 9)
    for one in stop_everywhere(storage.forgotten, lambda each: survey(each).mend(mend)):
        after = one.cut_off()
        tail = scan_tail(after, Segment(site.journal.hot.number, 0, after.size(name)))
        wanted = [1, 2, 3, 4] if tail.is_sealed else [1, 2]
        assert tail.numbers[: len(wanted)] == wanted
    assert tail.is_sealed


def test_a_batch_lost_between_two_of_the_other_temperature_cuts_there() -> None:
    """Three batches under one sync that never came: hot, cold, hot. The cold one is not there."""
    storage = MemoryStorage()
    site = OpenYard(storage)
    saved = Survivors()
    job = site.put(b"moves")
    site.commit()
    before = snapshot(site.yard)
    site.put(b"first")
    saved.add_job(job, b"moves")
    site.journal.write_cold(saved)
    site.put(b"last")
    site.journal.seal_batch()
    batch = next(one for one in site.journal.pending if one.segment is site.journal.cold)
    site.journal.write_pending()
    whole = storage.killed()
    storage.write(batch.segment.name, batch.offset, bytes(int(batch.size)))
    recovery = survey(storage)
    assert recovery.cut == batch.number
    found = snapshot(OpenYard(storage).yard)
    assert [key for key in found if key not in before] == [2]
    assert snapshot(OpenYard(whole).yard) == snapshot(site.yard)


def test_cut_bytes_never_come_back() -> None:
    storage = MemoryStorage()
    site = boot(storage, b"a", b"b")
    hot = site.journal.hot
    _, offset, _ = batches(storage, hot)[-1]
    torn = storage.killed()
    torn.flip(hot.name, offset + BATCH_HEADER_SIZE + 5, 0)
    again = OpenYard(torn)
    assert again.yard.jobs.count == 1
    torn = torn.killed()
    torn.flip(hot.name, min(offset + BATCH_HEADER_SIZE + 5, torn.size(hot.name) - 1), 0)
    with pytest.raises(JournalDamaged):
        OpenYard(torn)  # the seal is there now


def test_a_tail_that_ends_with_the_file_is_cut_like_any_other() -> None:
    storage = MemoryStorage()
    site = boot(storage, b"a", b"b")
    hot = site.journal.hot
    _, offset, _ = batches(storage, hot)[-1]
    for size in (offset, offset + 1, offset + 90, offset + 100, int(hot.end) - 1):
        torn = storage.killed()
        torn.truncate(hot.name, size)
        assert OpenYard(torn).yard.jobs.count == 1


def test_a_journal_continues_where_the_last_boot_stopped() -> None:
    storage = MemoryStorage()
    epochs = set()
    numbers: list[int] = []
    for body in (b"a", b"b", b"c"):
        site = boot(storage, body)
        epochs.add(int(site.journal.epoch))
        numbers.append(int(site.journal.open_number))
        storage = storage.cut_off()
    assert epochs == {1, 2, 3}
    assert numbers == sorted(set(numbers))


# -- both temperatures -------------------------------------------------------------------------


def with_cold_batches() -> tuple[OpenYard, MemoryStorage]:
    """Return a yard with many jobs in cold batches whose victims are gone."""
    storage = MemoryStorage()
    site = OpenYard(storage)
    for _ in range(3):
        jobs = [site.put(b"x" * 1500) for _ in range(80)]
        for job in jobs[:-4]:
            remove(site.yard, job, site.now_ms)
        site.commit()
        site.compact()
    site.put(b"fresh")
    site.commit()
    assert site.journal.cold is not None
    assert site.compactor.dropped_count > 2
    return site, storage


def test_hot_and_cold_batches_are_read_in_the_order_of_their_numbers() -> None:
    site, storage = with_cold_batches()
    recovery = survey(storage)
    merge = Merge(storage, recovery)
    numbers = []
    temperatures = set()
    while (found := merge.next()) is not None:
        numbers.append(int(found[1].number))
        temperatures.add(int(found[0].segment.temperature))
    assert numbers == sorted(numbers)
    assert temperatures == {0, 1}
    assert snapshot(OpenYard(storage.cut_off()).yard) == snapshot(site.yard)


def test_the_lost_end_of_the_cold_stream_is_damage_when_the_hot_one_knows_of_it() -> None:
    site, storage = with_cold_batches()
    cold = site.journal.cold
    assert cold is not None
    found = batches(storage, cold)
    assert len(found) >= 2
    for _, offset, _ in found:
        damaged = storage.cut_off()
        damaged.flip(cold.name, offset + BATCH_HEADER_SIZE, 1)
        with pytest.raises(JournalDamaged) as damage:
            OpenYard(damaged)
        assert (damage.value.name, damage.value.offset) == (cold.name, offset)


@pytest.mark.parametrize("is_begun", [False, True])
def test_the_end_of_what_an_earlier_boot_left_is_no_torn_tail(*, is_begun: bool) -> None:
    """Damage may take the seal with the batch before it: every start seals what it finds."""
    site, storage = with_cold_batches()
    cold = site.journal.cold
    assert cold is not None
    _, offset, size = batches(storage, cold)[-1]
    stopped = storage.cut_off()
    again = OpenYard(stopped)
    if is_begun:
        # As a start leaves it that ended before its first batch.
        zero_from(stopped, again.journal.hot.name, SEGMENT_HEADER_SIZE)
    wanted = snapshot(OpenYard(stopped.killed()).yard)
    assert wanted == snapshot(site.yard)
    end = offset + size
    for start in (offset, end - 8, end):
        damaged = stopped.killed()
        damaged.write(cold.name, start, b"?" * (end + SEAL_SIZE - start))
        with pytest.raises(JournalDamaged) as damage:
            OpenYard(damaged)
        where = end if start == end else offset
        assert (damage.value.name, damage.value.offset) == (cold.name, where)


def test_the_only_batch_of_a_cold_segment_cannot_be_lost_unseen() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    jobs = [site.put(b"x" * 1500) for _ in range(120)]
    for job in jobs[45:75]:  # of the second segment few are left, of the others all
        remove(site.yard, job, site.now_ms)
    site.commit()
    site.compact()
    site.put(b"fresh")
    site.commit()
    cold = site.journal.cold
    assert cold is not None
    assert len(batches(storage, cold)) == 1
    damaged = storage.cut_off()
    damaged.flip(cold.name, SEGMENT_HEADER_SIZE + BATCH_HEADER_SIZE, 1)
    with pytest.raises(JournalDamaged) as damage:
        OpenYard(damaged)
    assert damage.value.name == cold.name


def test_a_cold_segment_cannot_be_missing_unseen() -> None:
    site, storage = with_cold_batches()
    cold = site.journal.cold
    assert cold is not None
    storage.unlink(cold.name)
    with pytest.raises(JournalDamaged) as damage:
        OpenYard(storage)
    assert damage.value.name == cold.name


def test_a_journal_object_knows_nothing_before_it_is_opened() -> None:
    journal = Journal(MemoryStorage(), 65536, ids_ahead=False)
    assert (journal.open_number, journal.durable, journal.segments) == (1, 0, {})
