import pytest

from jobyard.engine.jobs.finish import bury, release
from jobyard.engine.jobs.move import kick_job, remove
from jobyard.engine.jobs.take import take_job
from jobyard.engine.recovery.compaction import (
    COPYING,
    DROPPING,
    IDLE,
    SCANNING,
    SMALL_SEGMENTS_MAX,
    Compactor,
)
from jobyard.journal.format.segment import BATCH_HEADER_SIZE, COLD, SEGMENT_HEADER_SIZE
from jobyard.model.job import Job
from jobyard.protocols.beanstalk.door import TERMS
from tests.support.random.beanstalk import RandomRun
from tests.support.site.recount import recount
from tests.support.site.site import SEGMENT_SIZE
from tests.support.site.snapshot import buried, snapshot
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard


def filled(count: int = 100, size: int = 1500) -> tuple[OpenYard, MemoryStorage, list[Job]]:
    """Return a yard with jobs over several segments."""
    storage = MemoryStorage()
    site = OpenYard(storage)
    jobs = [site.put(b"%04d" % number * (size // 4)) for number in range(count)]
    site.commit()
    return site, storage, jobs


def remove_all(site: OpenYard, jobs: list[Job]) -> None:
    for job in jobs:
        remove(site.yard, job, site.now_ms)
    site.commit()


def check_restart(site: OpenYard, storage: MemoryStorage) -> OpenYard:
    recount(site.yard)
    again = OpenYard(storage.cut_off(), site.now_ms)
    assert snapshot(again.yard) == snapshot(site.yard)
    recount(again.yard)
    return again


# -- choosing ----------------------------------------------------------------------------------


def test_well_filled_segments_are_left_alone() -> None:
    site, _, _ = filled()
    assert not site.compactor.step()
    assert site.compactor.phase == IDLE


def test_the_emptiest_segment_goes_first() -> None:
    site, _, jobs = filled()
    first = jobs[0].place >> 32
    second = jobs[60].place >> 32
    assert first != second
    remove_all(site, [job for job in jobs if job.place >> 32 == first][3:])
    remove_all(site, [job for job in jobs if job.place >> 32 == second][1:])
    site.compactor.step()
    assert site.compactor._victim().number == second


def test_a_segment_with_nothing_alive_goes_without_being_read() -> None:
    site, storage, jobs = filled()
    victim = jobs[0].place >> 32
    for job in [job for job in jobs if job.place >> 32 == victim]:
        remove(site.yard, job, site.now_ms)
    site.put(b"x", "default")
    site.commit()
    reads = storage.calls_count
    # The name of the queue is there too, so it is not quite empty.
    assert site.journal.segments[victim].live > 0
    site.journal.segments[victim].live = 0
    site.compactor.step()
    assert storage.calls_count == reads
    assert site.compactor.phase != SCANNING


@pytest.mark.parametrize("size", [200, 9000])
def test_many_small_segments_are_brought_together(size: int) -> None:
    """The small ones are mostly empty, or well filled: either way they are too many."""
    storage = MemoryStorage()
    for number in range(SMALL_SEGMENTS_MAX + 4):
        site = OpenYard(storage, segment_size=1 << 20)
        site.put(b"%02d" % number * (size // 2))
        site.commit()
        storage = storage.killed()
    site = OpenYard(storage, segment_size=1 << 20)
    before = len(site.journal.segments)
    site.compact()
    assert len(site.journal.segments) < before
    assert sum(not segment.is_sealed for segment in site.journal.segments.values()) == 2
    assert site.yard.jobs.count == SMALL_SEGMENTS_MAX + 4
    check_restart(site, storage)


def test_a_segment_is_not_read_before_its_end_is_written() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    site.put(b"alive")
    while len(site.journal.segments) < 2:
        remove(site.yard, site.put(b"short-lived" * 20), site.now_ms)
    assert site.journal.pending, "the seal is still on its way to the kernel"
    for _ in range(3):
        site.compactor.step()
    assert site.journal.damages.count() == 0
    site.commit()
    site.compact()
    check_restart(site, storage)


# -- what lives on -----------------------------------------------------------------------------


def test_the_disk_shrinks_with_the_jobs() -> None:
    site, storage, jobs = filled(400)
    full = storage.used()
    remove_all(site, jobs[5:])
    site.compact()
    for _ in range(len(site.journal.spares)):
        storage.unlink(site.journal.spares.pop())
    assert storage.used() <= 4 * SEGMENT_SIZE < full / 2
    assert len(site.journal.segments) <= 4
    check_restart(site, storage)


def test_one_old_job_never_pins_the_journal() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    client = site.connect()
    old = site.put(b"the old one", rank=9)
    most = 0
    for _ in range(3000):
        client.say(b"put 1 0 60 200\r\n" + b"x" * 200 + b"\r\nreserve\r\n")
        client.say(b"delete %d\r\n" % (int(site.journal.next_id) - 1))
        site.commit()
        site.compactor.step()
        most = max(most, storage.used())
    assert site.journal.hot.number > 20
    assert most <= 8 * SEGMENT_SIZE
    assert [job.id for job in site.yard.jobs.all()] == [old.id]
    assert check_restart(site, storage).yard.jobs.all()[0].body == b"the old one"


def test_reserve_and_release_for_ever_do_not_grow_the_disk() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    client = site.connect()
    for rank in range(20):
        site.put(b"x" * 100, rank=rank)
    most = 0
    for number in range(3000):
        taken = client.say(b"reserve\r\n").split()[1]
        client.say(b"release %s %d 0\r\n" % (taken, number % 50))
        site.commit()
        site.compactor.step()
        most = max(most, storage.used())
    assert site.journal.hot.number > 10
    assert most <= 8 * SEGMENT_SIZE
    check_restart(site, storage)


@pytest.mark.parametrize("seed", range(8))
def test_the_yard_is_the_same_before_and_after_every_step(seed: int) -> None:
    storage = MemoryStorage()
    site = OpenYard(storage, segment_size=16_384, budget=5000)
    run = RandomRun(site, seed, sizes=(0, 50, 500, 4500))
    for number in range(600):
        run.step()
        if number % 2:
            site.commit()
        if number % 3 == 0:
            site.commit()
            site.jump()
            before = snapshot(site.yard)
            site.compactor.step()
            site.commit()
            assert snapshot(site.yard) == before
            recount(site.yard)
        if number % 30 == 0:
            site.commit()
            site.jump()
            again = OpenYard(storage.cut_off(), site.now_ms, segment_size=16_384)
            assert snapshot(again.yard) == snapshot(site.yard)
            recount(again.yard)
    assert site.compactor.dropped_count > 3
    assert site.journal.damages.count() == 0


def test_the_news_of_a_job_outlive_the_segment_they_were_written_in() -> None:
    site, storage, jobs = filled(56)
    lease_set = site.connect().lease_set
    job = jobs[0]
    base = job.place >> 32
    take_job(site.yard, job.id, lease_set, TERMS, site.now_ms)
    release(site.yard, job, 1234, 60_000, site.now_ms)
    news = int(job.trail)
    assert news != base
    details = [site.put(b"x" * 1500) for _ in range(60)]
    remove_all(site, details)
    site.compact()
    assert news not in site.journal.segments
    assert base in site.journal.segments
    assert job.place >> 32 == base
    check_restart(site, storage)


def test_the_order_of_burials_survives_compaction_and_a_restart() -> None:
    """The first that were buried are gone, so what is left counts from another beginning."""
    site, storage, jobs = filled(60)
    lease_set = site.connect().lease_set
    for job in jobs[:3]:
        take_job(site.yard, job.id, lease_set, TERMS, site.now_ms)
        bury(site.yard, job, 0, site.now_ms)
        kick_job(site.yard, job.id, site.now_ms)
    for job in jobs[3:5]:
        take_job(site.yard, job.id, lease_set, TERMS, site.now_ms)
        bury(site.yard, job, 0, site.now_ms)
    later = [site.put(b"x" * 1500) for _ in range(90)]
    for job in later[-3:]:
        take_job(site.yard, job.id, lease_set, TERMS, site.now_ms)
        bury(site.yard, job, 0, site.now_ms)
    wanted = [int(job.id) for job in (*jobs[3:5], *later[-3:])]
    assert buried(site.queue()) == wanted
    remove_all(site, [*jobs[:3], *jobs[5:], *later[:40]])
    site.compact()
    assert site.compactor.dropped_count > 0
    again = check_restart(site, storage)
    assert buried(again.queue()) == wanted


def test_a_killed_job_stays_dead_for_as_long_as_its_base_is_on_disk() -> None:
    site, storage, jobs = filled(60)
    base = jobs[0].place >> 32
    killed = jobs[:4]
    while jobs[0].place >> 32 == site.journal.hot.number:
        site.put(b"x" * 1500)
    for job in killed:
        remove(site.yard, job, site.now_ms)
    site.commit()
    # Remove every segment but the base's several times over.
    for _ in range(6):
        details = [site.put(b"x" * 1500) for _ in range(60)]
        remove_all(site, details)
        site.compact()
        assert base in site.journal.segments
        again = check_restart(site, storage)
        assert all(again.yard.jobs.get(job.id) is None for job in killed)
    assert site.compactor.dropped_count > 5
    # And once the base is gone, the kill record is no longer needed.
    remove_all(site, [job for job in site.yard.jobs.all() if job.place >> 32 == base])
    site.compact()
    assert base not in site.journal.segments
    assert all(base not in segment.kills for segment in site.journal.segments.values())
    check_restart(site, storage)


def test_a_job_that_dies_while_it_is_copied_stays_dead() -> None:
    site, storage, jobs = filled(60)
    victim = jobs[0].place >> 32
    here = [job for job in jobs if job.place >> 32 == victim]
    remove_all(site, here[3:])
    while here[0].place >> 32 == victim:
        site.compactor.step()
    remove(site.yard, here[0], site.now_ms)
    for _ in range(6):
        site.commit()
        site.compactor.step()
        again = OpenYard(storage.cut_off())
        assert again.yard.jobs.get(here[0].id) is None
        again.compact()
        assert OpenYard(again.storage.cut_off()).yard.jobs.get(here[0].id) is None  # type: ignore[union-attr]
    site.compact()
    check_restart(site, storage)


def test_a_queue_keeps_its_name_when_the_record_of_it_goes() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    named = site.put(b"x" * 1500, "named")
    lost = site.put(b"x" * 1500, "short-lived")
    details = [site.put(b"x" * 1500) for _ in range(60)]
    kept = site.put(b"last", "named")
    remove_all(site, [named, lost, *details])
    site.compact()
    assert site.compactor.dropped_count > 0
    again = check_restart(site, storage)
    found = again.yard.jobs.get(kept.id)
    assert found is not None
    assert found.queue.name == "named"
    assert "short-lived" not in again.yard.queues


# -- files -------------------------------------------------------------------------------------


def test_a_victim_is_removed_only_after_the_copies_are_durable() -> None:
    site, storage, jobs = filled(60)
    remove_all(site, jobs[3:])
    victim = site.journal.segments[jobs[0].place >> 32].name
    storage.calls.clear()
    site.compact()
    cold = site.journal.cold
    assert cold is not None
    calls = storage.calls
    gone = next(
        at for at, call in enumerate(calls) if call.startswith(("unlink", "rename " + victim))
    )
    synced = calls.index(f"sync {cold.name}", calls.index(f"write {cold.name}") + 2)
    assert synced < gone
    assert calls[gone + 1] == "sync_directory"


def test_nothing_is_dropped_before_a_sync() -> None:
    site, storage, jobs = filled(60)
    remove_all(site, jobs[3:])
    compactor = site.compactor
    while compactor.phase != COPYING:
        compactor.step()
    victim = compactor._victim()
    for phase in (COPYING, DROPPING):
        assert compactor.phase == phase
        for _ in range(3):  # the copies and the record of the removal are not safe yet
            compactor.step()
            site.journal.seal_batch()
            site.journal.write_pending()
            assert compactor.phase == phase
            assert victim.name in storage.names()
        site.commit()
        compactor.step()
    assert victim.name not in storage.names()


def test_a_victim_becomes_a_spare_where_one_is_wanted() -> None:
    site, storage, jobs = filled(60)
    remove_all(site, jobs[3:])
    for name in site.journal.spares:
        storage.unlink(name)
    site.journal.spares.clear()
    site.compact()
    assert site.journal.spares
    assert set(site.journal.spares) <= set(storage.names())
    while len(site.journal.segments) < 6:
        site.put(b"x" * 1500)
    site.commit()
    check_restart(site, storage)


@pytest.mark.parametrize("records", [3000, 3])
@pytest.mark.parametrize("room", ["in the hot segment", "nowhere"])
def test_a_full_disk_only_delays_compaction(room: str, records: int) -> None:
    site, storage, jobs = filled(100)
    site.compactor.slice_records = records
    # Something is live in every segment, so a segment must be copied before it is removed.
    remove_all(site, [job for job in jobs if job.id % 10])
    hot = site.journal.hot
    left = 40_000 if room == "in the hot segment" else 1000
    while hot.size - hot.end > left:
        site.put(b"x" * 500)
        site.commit()
    for name in site.journal.spares:
        storage.unlink(name)
    site.journal.spares.clear()
    storage.capacity = storage.used()
    site.journal.note_full()
    for _ in range(5):
        site.compactor.step()
        site.commit()
        recount(site.yard)
    if room == "nowhere":
        assert site.compactor.phase == SCANNING
        assert site.compactor.dropped_count == 0
    check_restart(site, storage)
    storage.capacity = None
    site.compact()
    assert site.compactor.dropped_count > 0
    check_restart(site, storage)


def test_long_bodies_move_too() -> None:
    site, storage, jobs = filled(30, size=9000)
    remove_all(site, [job for job in jobs if job.id % 5])
    site.compact()
    temperatures = {
        int(site.journal.segments[job.place >> 32].temperature) for job in site.yard.jobs.all()
    }
    assert COLD in temperatures
    check_restart(site, storage)


def test_a_job_larger_than_a_segment_moves_to_one_of_its_size() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    lease_set = site.connect().lease_set
    job = site.put(b"L" * 200_000)
    site.commit()
    while job.place >> 32 == site.journal.hot.number:
        site.put(b"x" * 1500)
    site.commit()
    site.compactor = Compactor(site.yard, [int(job.place >> 32)])
    take_job(site.yard, job.id, lease_set, TERMS, site.now_ms)
    site.compact()
    cold = site.journal.segments[job.place >> 32]
    assert cold.temperature == COLD
    assert cold.size > 200_000
    check_restart(site, storage)


def test_a_long_copy_is_cut_into_slices() -> None:
    site, storage, jobs = filled(3, size=1500)
    big = [site.put(b"b" * 60_000) for _ in range(12)]
    site.commit()
    while big[-1].place >> 32 == site.journal.hot.number:
        site.put(b"x" * 1500)
    site.commit()
    remove_all(site, jobs)
    most = 0
    for number in sorted({int(job.place >> 32) for job in big}):
        site.compactor = Compactor(site.yard, [number])
        while number in site.journal.segments:
            site.compactor.step()
            most = max(most, sum(int(one.size) for one in site.journal.pending))
            site.commit()
    assert most < 600_000
    check_restart(site, storage)


# -- after a crash -----------------------------------------------------------------------------


def test_a_victim_whose_jobs_were_copied_goes_first_after_a_crash() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    jobs = []
    for number in range(120):  # one batch each: more than a slice copies
        jobs.append(site.put(b"%04d" % number * 50))
        site.commit()
    victim = jobs[0].place >> 32
    other = [site.put(b"x" * 1500) for _ in range(90)]
    site.commit()
    remove_all(site, jobs[5:110])
    site.compactor.step()
    site.compactor.step()
    site.commit()
    assert site.compactor.phase == SCANNING
    assert jobs[0].place >> 32 != victim
    assert jobs[-1].place >> 32 == victim
    again = OpenYard(storage.cut_off())
    assert again.recovered is not None
    assert again.recovered.superseded == [victim]
    # A far emptier segment than the superseded one must wait for it.
    remove_all(again, [job for job in again.yard.jobs.all() if job.id >= other[0].id])
    emptiest = min(again.journal.segments.values(), key=lambda segment: segment.live)
    assert emptiest.live < again.journal.segments[victim].live
    again.compactor.step()
    assert again.compactor._victim().number == victim
    again.compact()
    assert victim not in again.journal.segments
    assert isinstance(again.storage, MemoryStorage)
    check_restart(again, again.storage)


def test_a_superseded_segment_that_is_gone_is_no_reason_to_stop() -> None:
    site, _, jobs = filled(60)
    remove_all(site, jobs[3:])
    site.compactor = Compactor(site.yard, [998, 999])
    site.compact()
    assert site.compactor.dropped_count > 0


# -- damage ------------------------------------------------------------------------------------


def test_a_damaged_victim_is_named_and_left_and_all_others_go() -> None:
    site, storage, jobs = filled(150)
    victim = site.journal.segments[jobs[0].place >> 32]
    here = [job for job in jobs if job.place >> 32 == victim.number]
    remove_all(site, here[3:])
    storage.flip(victim.name, SEGMENT_HEADER_SIZE + BATCH_HEADER_SIZE + 40, 0)
    site.compact()
    (story,) = site.journal.damages.segments.values()
    assert story.startswith(f"{victim.name} at offset ")
    assert len(site.journal.damages.take_stories()) == 1
    assert not site.compactor.step()  # it is not tried again
    dropped = site.compactor.dropped_count
    remove_all(site, [job for job in jobs if job.place >> 32 != victim.number])
    site.compact()
    assert site.compactor.dropped_count > dropped
    assert victim.number in site.journal.segments
    recount(site.yard)
    # Nothing in it is needed any more, so it need not be read.
    remove_all(site, here[:3])
    site.put(b"x")
    site.journal.segments[victim.number].live = 0  # but for the name of the queue
    site.commit()
    site.compact()
    assert victim.number not in site.journal.segments
    assert site.journal.damages.count() == 0


@pytest.mark.parametrize("size", [3000, 9000])
def test_beside_a_damaged_body_the_disk_stays_bounded(size: int) -> None:
    """Short bodies are under the checksum of their batch, long ones have their own."""
    storage = MemoryStorage()
    site = OpenYard(storage, budget=0)
    client = site.connect()
    whole = site.put(b"w" * size, rank=9)
    damaged = site.put(b"d" * size, rank=9)
    site.commit()
    storage.flip(site.journal.hot.name, (damaged.place & 0xFFFFFFFF) + 9, 3)
    most = 0
    for _ in range(1500):
        client.say(b"put 1 0 60 1000\r\n" + b"x" * 1000 + b"\r\nreserve\r\n")
        client.say(b"delete %d\r\n" % (int(site.journal.next_id) - 1))
        site.commit()
        site.compactor.step()
        most = max(most, storage.used())
    assert site.journal.hot.number > 20
    assert most <= 10 * SEGMENT_SIZE
    assert site.bodies.fetch(whole) == b"w" * size
    assert site.bodies.fetch(damaged) is None
    assert site.journal.damages.count() > 0
    recount(site.yard)


def test_a_damaged_long_body_is_copied_and_stays_damaged_over_a_restart() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage, budget=0)
    damaged = site.put(b"d" * 9000)
    first = site.journal.hot
    site.commit()
    storage.flip(first.name, (damaged.place & 0xFFFFFFFF) + 9, 3)
    remove_all(site, [site.put(b"x" * 1500) for _ in range(200)])
    site.compact()
    assert first.number not in site.journal.segments
    assert len(site.journal.damages.jobs) == 1
    site.journal.close()
    again = OpenYard(storage.cut_off(), site.now_ms, budget=0)
    found = again.yard.jobs.get(damaged.id)
    assert found is not None
    assert again.bodies.fetch(found) is None
    remove(again.yard, found, again.now_ms)
    assert again.journal.damages.count() == 0


def test_a_deleted_job_stays_dead_though_a_damaged_victim_still_holds_its_first_copy() -> None:
    """The victim is copied slice by slice, and only a late slice meets the damage."""
    storage = MemoryStorage()
    site = OpenYard(storage, segment_size=1 << 20, budget=0)
    copied = site.put(b"copied before the damage is met")
    site.commit()
    for _ in range(100):  # more batches than a slice reads
        gone = site.put(b"x" * 100)
        site.commit()
        remove(site.yard, gone, site.now_ms)
    damaged = site.put(b"D" * 500)
    site.commit()
    victim = site.journal.hot
    assert copied.place >> 32 == damaged.place >> 32 == victim.number
    while site.journal.hot is victim:
        remove(site.yard, site.put(b"y" * 20_000), site.now_ms)
    site.commit()
    flip = (victim.name, damaged.place & 0xFFFFFFFF, 0)
    storage.flip(*flip)
    site.compact()
    assert victim.number in site.journal.segments
    assert copied.place >> 32 not in (victim.number, site.journal.hot.number)
    remove(site.yard, copied, site.now_ms)
    site.commit()
    # All removable segments are removed, several times over: none is left that needs the record.
    dropped = site.compactor.dropped_count
    for _ in range(4):
        extras = [site.put(b"z" * 20_000) for _ in range(120)]
        remove_all(site, [job for number, job in enumerate(extras) if number % 4])
        site.compact()
        remove_all(site, extras[::4])
        site.compact()
    assert site.compactor.dropped_count > dropped + 8
    recount(site.yard)
    # What could not be read can be read again, and holds the copy from before.
    storage.flip(*flip)
    again = OpenYard(storage.cut_off(), site.now_ms, segment_size=1 << 20, budget=0)
    assert again.yard.jobs.get(copied.id) is None
    assert again.yard.jobs.get(damaged.id) is not None
    again.compact()
    assert victim.number not in again.journal.segments
    recount(again.yard)
