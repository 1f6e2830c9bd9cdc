from random import Random

import pytest

from jobyard.engine.jobs.finish import bury, finish, release
from jobyard.engine.jobs.move import remove
from jobyard.engine.jobs.take import take
from jobyard.errors import StorageFailed, StorageFull, YardFull
from jobyard.journal.batches import FULL_RETRY_MS, ID_BLOCK
from jobyard.journal.format.segment import (
    SEAL_SIZE,
    BatchHead,
    segment_number,
    spare_name,
    spare_number,
)
from jobyard.journal.journal import Journal
from jobyard.model.limits import INLINE_BODY_MAX
from jobyard.protocols.beanstalk.door import TERMS
from tests.support.site.recount import recount
from tests.support.site.site import NOW_MS, SEGMENT_SIZE
from tests.support.site.snapshot import snapshot
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard

# -- placement ---------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, INLINE_BODY_MAX, INLINE_BODY_MAX + 1, 30_000])
def test_the_place_of_a_job_is_where_its_body_begins(size: int) -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    jobs = []
    for number in range(8):
        jobs.append(site.put(bytes([number]) * size))
        jobs.append(site.put(b"between"))
        if number % 3 == 0:
            site.commit()
    site.commit()
    for job in jobs:
        segment = site.journal.segments[job.place >> 32]
        where = job.place & 0xFFFFFFFF
        assert storage.read(segment.name, where, int(job.size)) == job.body
    assert len({job.place for job in jobs}) == len(jobs)


def test_a_segment_is_closed_before_a_record_would_not_fit() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage, segment_size=8192)
    for number in range(200):
        site.put(b"%d" % number * 100)
        if number % 7 == 0:
            site.commit()
    site.commit()
    assert len(site.journal.segments) > 5
    for segment in site.journal.segments.values():
        assert segment.end <= segment.size == storage.size(segment.name)
        assert segment.is_sealed == (segment is not site.journal.hot)
    assert snapshot(OpenYard(storage.cut_off()).yard) == snapshot(site.yard)
    recount(site.yard)


def test_a_job_larger_than_a_segment_gets_one_of_its_own_size() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage, segment_size=8192)
    job = site.put(b"L" * 100_000)
    site.put(b"after")
    site.commit()
    assert site.journal.segments[job.place >> 32].size > 100_000
    assert snapshot(OpenYard(storage.cut_off()).yard) == snapshot(site.yard)


def test_what_is_appended_between_two_commits_is_all_there_or_not_at_all() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    site.put(b"answered")
    site.commit()
    for _ in range(5):
        site.put(b"one batch")
    site.journal.seal_batch()
    batch = site.journal.pending[0]
    site.journal.write_pending()
    for kept in (0, 1, int(batch.size) // 2, int(batch.size) - 1):
        torn = storage.killed()
        lost = int(batch.size) - kept
        torn.write(batch.segment.name, batch.offset + kept, bytes(lost))
        assert OpenYard(torn).yard.jobs.count == 1
    assert OpenYard(storage.killed()).yard.jobs.count == 6


# -- what is safe ------------------------------------------------------------------------------


def test_a_record_is_durable_once_its_batch_was_written_and_synced() -> None:
    site = OpenYard(MemoryStorage())
    journal = site.journal
    job = site.put()
    assert journal.has_open_records()
    assert job.batch == journal.open_number == journal.appended == journal.newest()
    assert journal.durable < job.batch
    assert journal.open_bytes() > 0
    journal.seal_batch()
    assert not journal.has_open_records()
    assert journal.newest() == job.batch
    journal.write_pending()
    assert journal.written == job.batch > journal.durable
    journal.commit()
    assert journal.durable == job.batch
    assert journal.open_bytes() == 0


def test_closing_an_empty_batch_or_writing_nothing_changes_nothing() -> None:
    storage = MemoryStorage()
    journal = OpenYard(storage).journal
    number = journal.open_number
    storage.calls.clear()
    journal.seal_batch()
    journal.write_pending()
    journal.commit()
    assert storage.calls == []
    assert journal.open_number == number


def test_a_batch_vouches_only_for_what_is_on_disk() -> None:
    """Or a start would take for damage what is a torn tail."""
    site = OpenYard(MemoryStorage())
    journal = site.journal
    known = journal.durable
    for _ in range(3):
        site.put()
        journal.seal_batch()
        assert BatchHead(journal.pending[-1].pieces[0], 0).durable == known
        journal.write_pending()
    journal.commit()
    site.put()
    journal.seal_batch()
    assert BatchHead(journal.pending[-1].pieces[0], 0).durable == journal.durable == known + 3


def test_a_failed_sync_is_raised_before_anything_counts_as_durable() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    durable = site.journal.durable
    site.put()
    storage.fail_sync = True
    with pytest.raises(StorageFailed):
        site.journal.commit()
    assert site.journal.durable == durable


def test_nobody_waits_for_a_lease_or_for_an_end_by_time() -> None:
    site = OpenYard(MemoryStorage())
    job = site.put(ttr_ms=1000)
    site.commit()
    appended, batch = site.journal.appended, job.batch
    site.take(site.connect().lease_set)
    site.jump(1000)
    assert site.yard.counters.timed_out_total() == 1
    assert (site.journal.appended, job.batch) == (appended, batch)
    assert site.journal.newest() > appended


# -- the order of writes and syncs -------------------------------------------------------------


def test_a_seal_is_written_after_all_before_it_is_synced_and_synced_before_what_follows() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage, segment_size=8192)
    old = site.journal.hot.name
    storage.calls.clear()
    while site.journal.hot.name == old:
        site.put(b"x" * 1000)
    site.journal.commit()
    new = site.journal.hot.name
    calls = [call for call in storage.calls if not call.endswith(" newest")]
    renamed = next(i for i, call in enumerate(calls) if call.startswith("rename"))
    opened, rest = calls[renamed : renamed + 4], calls[renamed + 4 :]
    assert opened[0].endswith(f" {new}")
    assert opened[1:] == [f"write {new}", f"sync {new}", "sync_directory"]
    assert rest == [
        *(f"write {old}", f"sync {old}", f"write {old}", f"sync {old}"),
        *(f"write {new}", f"sync {new}"),
    ]


def test_a_sealed_segment_says_what_was_durable() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage, segment_size=8192)
    while len(site.journal.segments) == 1:
        site.put(b"x" * 1000)
    assert site.journal.durable < site.journal.open_number - 1
    site.journal.write_pending()
    assert site.journal.durable == site.journal.written == site.journal.open_number - 1


def test_a_stop_in_good_order_seals_every_segment() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    site.put()
    site.journal.append_clean()
    site.journal.close()
    assert all(segment.is_sealed for segment in site.journal.segments.values())
    again = OpenYard(storage.cut_off())
    assert again.recovered is not None
    assert again.recovered.cut_bytes == 0
    assert again.yard.jobs.count == 1


# -- room on a full disk -----------------------------------------------------------------------


def is_full(site: OpenYard) -> bool:
    return site.journal.is_full


def put_until_refused(site: OpenYard, size: int) -> None:
    try:
        while True:
            site.put(b"x" * size)
    except YardFull:
        return


def full_yard(body: bytes = b"x" * 1000, segments: int = 6) -> tuple[OpenYard, MemoryStorage]:
    """Put jobs until the disk has no room for another."""
    storage = MemoryStorage()
    storage.capacity = segments * SEGMENT_SIZE
    site = OpenYard(storage)
    refusals = 0
    while refusals < 2:
        try:
            site.put(body)
            site.commit()
        except YardFull:
            refusals += 1
    assert site.journal.is_full
    return site, storage


def test_a_job_that_fits_is_not_refused_because_one_spare_too_few_could_be_made() -> None:
    storage = MemoryStorage()
    storage.capacity = 6 * SEGMENT_SIZE
    site = OpenYard(storage)
    put_until_refused(site, 1000)
    with pytest.raises(YardFull):
        site.put(b"x" * 1000)


def test_a_full_disk_refuses_new_jobs_and_changes_nothing() -> None:
    site, storage = full_yard()
    count, next_id = site.yard.jobs.count, site.journal.next_id
    with pytest.raises(YardFull):
        site.put(b"x" * 1000)
    assert (site.yard.jobs.count, site.journal.next_id) == (count, next_id)
    recount(site.yard)
    storage.capacity = None
    assert snapshot(OpenYard(storage.cut_off()).yard) == snapshot(site.yard)


@pytest.mark.parametrize("size", [1, 100, 1000, 4097, 60_000])
@pytest.mark.parametrize("per_commit", [1, 10])
def test_every_job_can_be_deleted_on_a_full_disk_while_compaction_runs(
    size: int, per_commit: int
) -> None:
    site, storage = full_yard(b"x" * size)
    for number, job in enumerate(site.yard.jobs.all()):
        remove(site.yard, job, site.now_ms)
        if number % per_commit == 0:
            site.commit()
            site.compactor.step()
    site.commit()
    assert site.yard.jobs.count == 0
    storage.capacity = None
    assert OpenYard(storage.cut_off()).yard.jobs.count == 0


def test_every_job_can_be_deleted_in_any_order_on_a_full_disk_while_compaction_runs() -> None:
    """Nothing can be compacted before half of the jobs are gone: the promise must last so long."""
    site, storage = full_yard(b"x", segments=16)
    jobs = site.yard.jobs.all()
    Random(1).shuffle(jobs)
    for job in jobs:
        remove(site.yard, job, site.now_ms)
        site.commit()
        site.compactor.step()
    site.commit()
    storage.capacity = None
    assert OpenYard(storage.cut_off()).yard.jobs.count == 0


@pytest.mark.parametrize("size", [1, 1000, 60_000])
def test_every_job_can_be_finished_on_a_full_disk_while_compaction_runs(size: int) -> None:
    site, storage = full_yard(b"x" * size)
    lease_set = site.connect().lease_set
    while take(site.yard, [site.queue()], lease_set, TERMS, site.now_ms) is not None:
        for lease in list(lease_set.leases.items):
            finish(site.yard, lease.job, site.now_ms)  # type: ignore[attr-defined]
        site.commit()
        site.compactor.step()
    assert site.yard.jobs.count == 0
    storage.capacity = None
    assert OpenYard(storage.cut_off()).yard.jobs.count == 0


def test_jobs_can_be_given_back_for_ever_on_a_full_disk_while_compaction_runs() -> None:
    site, storage = full_yard()
    client = site.connect()
    for number in range(3000):
        taken = client.say(b"reserve-with-timeout 0\r\n")
        assert taken.startswith(b"RESERVED ")
        job_id = int(taken.split()[1])
        rank = number % 5
        assert client.say(b"release %d %d 0\r\n" % (job_id, rank)) == b"RELEASED\r\n"
        site.commit()
        site.compactor.step()
    site.commit()
    recount(site.yard)
    storage.capacity = None
    assert snapshot(OpenYard(storage.cut_off()).yard) == snapshot(site.yard)


def test_puts_are_taken_again_once_there_is_room() -> None:
    site, storage = full_yard()
    storage.capacity = None
    with pytest.raises(YardFull):
        site.put(b"x" * 1000)  # the disk was checked a moment ago
    site.now_ms += FULL_RETRY_MS
    site.put(b"x" * 1000)
    assert not site.journal.is_full


def test_room_that_came_back_is_noticed_without_a_put() -> None:
    # With bodies this small the promises to those there are leave something missing.
    site, storage = full_yard(b"x")
    site.journal.retry_full(site.now_ms + FULL_RETRY_MS)
    assert is_full(site)
    storage.capacity = None
    site.journal.retry_full(site.now_ms + FULL_RETRY_MS)
    assert is_full(site), "a disk that was full just now is not asked again at once"
    site.journal.retry_full(site.now_ms + 2 * FULL_RETRY_MS)
    assert not is_full(site)
    spares = len(site.journal.spares)
    site.journal.retry_full(site.now_ms + 9 * FULL_RETRY_MS)
    assert len(site.journal.spares) == spares


def test_a_job_too_large_for_the_room_is_refused_while_small_ones_pass() -> None:
    storage = MemoryStorage()
    storage.capacity = 8 * SEGMENT_SIZE
    site = OpenYard(storage)
    with pytest.raises(YardFull):
        site.put(b"x" * (9 * SEGMENT_SIZE))
    assert site.journal.is_full
    site.now_ms += FULL_RETRY_MS
    site.put(b"small")
    site.commit()
    recount(site.yard)


def test_a_full_disk_goes_without_lease_records_and_keeps_ends_narrow() -> None:
    site, _ = full_yard()
    lease_set = site.connect().lease_set
    before = site.journal.records_count
    lease = site.take(lease_set)
    assert site.journal.records_count == before
    size = site.journal.open_bytes()
    finish(site.yard, lease.job, site.now_ms)
    assert site.journal.open_bytes() - size == 32


def test_a_full_disk_goes_without_the_end_of_a_run_that_nobody_waits_for() -> None:
    site, storage = full_yard()
    client = site.connect()
    site.take(client.lease_set)
    before = site.journal.records_count
    client.leave()
    assert site.journal.records_count == before
    site.commit()
    recount(site.yard)
    storage.capacity = None
    again = OpenYard(storage.cut_off(), site.now_ms)
    assert again.yard.ready_count == site.yard.ready_count


def test_a_buried_job_released_on_a_full_disk_is_buried_no_more() -> None:
    """Its release was answered: a crash must not take that back."""
    site, storage = full_yard()
    client = site.connect()
    assert client.say(b"reserve-job 1\r\nbury 1 0\r\n").endswith(b"BURIED\r\n")
    site.commit()
    assert client.say(b"reserve-job 1\r\nrelease 1 0 0\r\n").endswith(b"RELEASED\r\n")
    site.commit()
    storage.capacity = None
    assert OpenYard(storage.cut_off(), site.now_ms).yard.dead_count == 0


def test_a_note_that_no_spare_could_be_made_is_enough_to_be_careful() -> None:
    site = OpenYard(MemoryStorage())
    site.put()
    site.journal.note_full()
    assert site.journal.is_full
    before = site.journal.records_count
    site.take(site.connect().lease_set)
    assert site.journal.records_count == before
    site.put()
    assert site.yard.jobs.count == 2


def test_a_restart_on_a_full_disk_needs_no_new_file() -> None:
    storage = MemoryStorage()
    segment_size = 5 << 20  # more than the first segment of a boot
    storage.capacity = 3 * segment_size
    site = OpenYard(storage, segment_size=segment_size)
    put_until_refused(site, 100_000)
    site.commit()
    assert site.journal.spares
    storage = storage.cut_off()
    storage.capacity = storage.used()
    again = OpenYard(storage, segment_size=segment_size)
    assert snapshot(again.yard) == snapshot(site.yard)
    for job in again.yard.jobs.all():
        remove(again.yard, job, again.now_ms)
    again.commit()


def test_any_number_of_restarts_on_a_full_disk_work() -> None:
    """What a crash loop finds: nothing was compacted meanwhile, and no one gave any room back."""
    site, storage = full_yard()
    for _ in range(8):
        capacity = storage.capacity
        storage = storage.killed()
        storage.capacity = capacity
        site = OpenYard(storage)
        remove(site.yard, site.yard.jobs.all()[0], site.now_ms)
        site.commit()


# -- files -------------------------------------------------------------------------------------


def test_spares_are_used_before_new_files_are_made() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    site.put()
    for _ in range(site.journal.spares_wanted()):
        name = site.journal.new_spare_name()
        storage.create(name, SEGMENT_SIZE)
        site.journal.add_spare(name)
    storage.calls.clear()
    while len(site.journal.segments) == 1:
        site.put(b"x" * 1000)
    assert f"rename {name} {site.journal.hot.name}" in storage.calls
    assert not any(call.startswith("create") for call in storage.calls)


def test_spares_of_another_size_are_removed_at_a_start() -> None:
    storage = MemoryStorage()
    OpenYard(storage)
    storage.create(spare_name(40), SEGMENT_SIZE)
    storage.create(spare_name(41), SEGMENT_SIZE * 2)
    again = OpenYard(storage.killed())
    assert again.storage is not None
    names = again.storage.names()
    assert spare_name(41) not in names
    assert again.journal.next_segment > 41
    numbers = [segment_number(name) or spare_number(name) for name in names]
    assert len(numbers) == len(set(numbers))


def test_file_numbers_are_never_used_twice() -> None:
    storage = MemoryStorage()
    highest = 0
    for _ in range(4):
        site = OpenYard(storage)
        fresh = int(site.journal.hot.number)
        assert fresh > highest
        highest = fresh
        site.put()
        site.commit()
        storage = storage.cut_off()


# -- ids ---------------------------------------------------------------------------------------


def test_ids_answered_before_the_sync_are_not_issued_again_after_a_power_cut() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage, ids_ahead=True)
    assert not site.journal.ids_at_risk()
    for _ in range(50):
        last = site.put()
        site.journal.seal_batch()
        site.journal.write_pending()
    again = OpenYard(storage.cut_off(), ids_ahead=True)
    assert again.yard.jobs.count == 0
    assert again.put().id > last.id


def test_the_disk_is_asked_before_the_ids_it_knows_of_run_out() -> None:
    site = OpenYard(MemoryStorage(), ids_ahead=True)
    journal = site.journal
    known = (1 // ID_BLOCK + 2) * ID_BLOCK
    journal.next_id = known - ID_BLOCK // 2
    assert not journal.ids_at_risk()
    journal.next_id += 1
    assert journal.ids_at_risk()
    site.put()
    journal.seal_batch()
    journal.write_pending()
    assert journal.ids_at_risk()
    journal.mark_durable(journal.written, journal.id_limit_written())
    assert not journal.ids_at_risk()


def test_ids_answered_after_the_sync_are_issued_without_a_gap() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    assert not site.journal.ids_at_risk()
    assert [site.put().id for _ in range(3)] == [1, 2, 3]
    site.commit()
    assert OpenYard(storage.cut_off()).put().id == 4


# -- without a storage -------------------------------------------------------------------------


def test_what_is_on_its_way_to_the_disk_can_be_read() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    jobs = []
    for number in range(6):
        jobs.append(site.put(b"%d" % number * 500))
        if number == 2:
            site.commit()
        if number % 2:
            site.journal.seal_batch()
    assert len(site.journal.pending) > 1
    for job in jobs:
        found = site.journal.read(job.place >> 32, job.place & 0xFFFFFFFF, int(job.size))
        assert found == job.body


def test_a_journal_that_is_off_has_no_storage() -> None:
    journal = Journal(None, SEGMENT_SIZE, ids_ahead=False)
    assert not journal.is_on
    with pytest.raises(AssertionError):
        journal.storage()


def test_a_seal_always_finds_its_room() -> None:
    """Fill segments to the last byte; a seal must still have room."""
    for size in range(1000, 1000 + 2 * SEAL_SIZE, 7):
        storage = MemoryStorage()
        site = OpenYard(storage, segment_size=4096)
        for _ in range(10):
            site.put(b"x" * size)
        site.commit()
        site.journal.close()
        assert OpenYard(storage.cut_off(), segment_size=4096).yard.jobs.count == 10


def test_the_news_of_a_job_are_repeated_where_they_go_on() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage, segment_size=8192)
    lease_set = site.connect().lease_set
    job = site.put(b"old", rank=1)
    trails = set()
    for number in range(30):
        site.take(lease_set)
        release(site.yard, job, number, 0, site.now_ms)
        trails.add(int(job.trail))
        site.put(b"x" * 900, rank=1 << 20)
        recount(site.yard)
    site.take(lease_set)
    bury(site.yard, job, 3, NOW_MS)
    site.commit()
    assert len(trails) > 2
    assert snapshot(OpenYard(storage.cut_off()).yard) == snapshot(site.yard)


def test_no_file_at_all_can_be_made() -> None:
    storage = MemoryStorage()
    storage.capacity = 100
    with pytest.raises(StorageFull):
        OpenYard(storage)
