import pytest

from jobyard.engine.jobs.finish import KEEP_AS_ASKED, bury, complete, release
from jobyard.engine.jobs.move import remove
from jobyard.engine.recovery.open_yard import replay_all
from jobyard.engine.recovery.replay import Replay
from jobyard.engine.state.yard import Yard
from jobyard.errors import JournalDamaged
from jobyard.journal.bodies import Bodies
from jobyard.journal.format.segment import (
    BATCH_MAGIC,
    HeadFields,
    Segment,
    encode_batch,
    segment_name,
)
from jobyard.journal.journal import Journal
from jobyard.journal.recovery.reader import Reader
from jobyard.model.job import DELAYED, MSGPACK, READY
from tests.support.site.recount import live_bytes, recount
from tests.support.site.site import NOW_MS, SEGMENT_SIZE
from tests.support.site.snapshot import snapshot
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard

HOUR_MS = 3_600_000
YEARS_MS = 10 * 365 * 24 * HOUR_MS


def test_reading_back_changes_nothing_on_disk() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    site.put()
    site.commit()
    storage.calls.clear()
    journal = Journal(storage, SEGMENT_SIZE, ids_ahead=False)
    yard = Yard(journal, Bodies(journal, 1 << 20))
    replay, recovery = replay_all(yard, storage, NOW_MS)
    assert storage.calls == []
    assert (replay.batches_count, replay.records_count) == (2, 3)
    assert len(recovery.segments) == 1
    assert yard.jobs.count == 1


def test_a_start_tells_what_it_found() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    site.put()
    site.commit()
    recovered = OpenYard(storage.cut_off()).recovered
    assert recovered is not None
    assert (recovered.batches_count, recovered.records_count) == (2, 3)
    assert (recovered.segments_count, recovered.cut_bytes, recovered.superseded) == (1, 0, [])


# -- time over a restart -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("later_ms", "left_ms"),
    [
        (0, 60_000),
        (10_000, 50_000),
        (59_999, 1),
        (60_000, 0),
        (HOUR_MS, 0),
        (YEARS_MS, 0),
        (-1, 60_000),
        (-HOUR_MS, 60_000),
        (-YEARS_MS, 60_000),
    ],
)
def test_what_is_left_of_a_delay_follows_the_wall_clock_within_the_delay(
    later_ms: int, left_ms: int
) -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    site.put(delay_ms=60_000)
    released = site.put(rank=1)
    site.take(site.connect().lease_set)
    release(site.yard, released, 1, 60_000, site.now_ms)
    site.commit()
    again = OpenYard(storage.cut_off(), NOW_MS + later_ms)
    for job in again.yard.jobs.all():
        assert job.state == (DELAYED if left_ms else READY)
        if left_ms:
            assert job.due_ms == NOW_MS + later_ms + left_ms
    if left_ms:
        assert again.jump(left_ms - 1) == again.now_ms + 1
        assert again.yard.ready_count == 0
        again.jump(1)
    assert again.yard.ready_count == 2
    recount(again.yard)


def test_a_wall_clock_that_jumped_while_running_is_taken_into_account() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    site.journal.wall_offset_ms = HOUR_MS
    site.put(delay_ms=60_000)
    site.commit()
    wall_ms = NOW_MS + HOUR_MS + 20_000
    again = OpenYard(storage.cut_off(), wall_ms)
    assert again.yard.jobs.all()[0].due_ms == wall_ms + 40_000


def test_a_clock_set_back_over_a_restart_keeps_ids_stamps_and_order() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    older = [site.put() for _ in range(3)]
    site.commit()
    again = OpenYard(storage.cut_off(), NOW_MS - YEARS_MS)
    newer = again.put()
    assert newer.id > older[-1].id
    assert newer.stamp > older[-1].stamp
    lease_set = again.connect().lease_set
    assert [again.take(lease_set).job.id for _ in range(4)] == [1, 2, 3, 4]


def test_a_job_ended_late_keeps_the_place_it_got_when_its_delay_was_over() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    job = site.enter(delay_ms=900)
    site.jump(900)
    # By a client that had it before, and lost it: no lease record states that the delay is over.
    complete(site.yard, job, b"", MSGPACK, KEEP_AS_ASKED, site.now_ms)
    site.commit()
    again = OpenYard(storage.cut_off(), site.now_ms)
    assert snapshot(again.yard) == snapshot(site.yard)


def test_delays_survive_several_restarts_with_a_restless_clock() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    site.put(delay_ms=60_000)
    site.commit()
    for now_ms in (NOW_MS - HOUR_MS, NOW_MS + 30_000, NOW_MS - 5, NOW_MS + 59_999):
        storage = storage.cut_off()
        again = OpenYard(storage, now_ms)
        job = again.yard.jobs.all()[0]
        assert job.state == DELAYED
        assert 0 < job.due_ms - now_ms <= 60_000
    assert OpenYard(storage.cut_off(), NOW_MS + 60_000).yard.ready_count == 1


# -- what must be there ------------------------------------------------------------------------


def test_a_missing_segment_is_named() -> None:
    storage = MemoryStorage()
    for _ in range(3):
        site = OpenYard(storage)
        site.put(b"x")
        site.commit()
        storage = storage.cut_off()
    names = sorted(name for name in storage.names() if name.endswith(".journal"))
    for name in names[:-1]:
        damaged = storage.cut_off()
        damaged.unlink(name)
        with pytest.raises(JournalDamaged) as damage:
            OpenYard(damaged)
        assert damage.value.name == name
        assert "missing" in damage.value.why


def batch_of(storage: MemoryStorage, part1: bytes) -> None:
    """Append a whole batch with these records to the journal."""
    site = OpenYard(storage)
    hot = site.journal.hot
    fields = HeadFields(1, 0, 1)
    data = encode_batch(hot, site.journal.open_number, fields, part1, [])
    storage.write(hot.name, hot.end, data)


@pytest.mark.parametrize(
    ("part1", "why"),
    [
        (b"\x63\0\0\0\x08\0\0\0", "unknown kind 99"),
        (b"\x0b\0\0\0\x07\0\0\0", "invalid length"),
        (b"\x0b\0\0\0\x09\0\0\0", "invalid length"),
        (b"\x0b\0\0\0\xf8\xff\xff\xff", "invalid length"),
    ],
)
def test_records_that_make_no_sense_are_refused(part1: bytes, why: str) -> None:
    storage = MemoryStorage()
    batch_of(storage, part1)
    with pytest.raises(JournalDamaged) as damage:
        OpenYard(storage)
    assert why in damage.value.why
    assert damage.value.name == segment_name(2)
    assert damage.value.offset >= 64


def test_jobs_of_a_queue_that_no_record_names_are_refused() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    site.put(queue="q")
    site.journal.seal_batch()
    record = site.journal.pending[0].pieces[0][96 + 24 + 1 :]  # without the queue's name
    batch_of(other := MemoryStorage(), record)
    with pytest.raises(JournalDamaged) as damage:
        OpenYard(other)
    assert "queue" in damage.value.why


def test_news_of_jobs_that_are_not_there_are_ignored() -> None:
    """Their base went with a segment in which nothing else was live."""
    storage = MemoryStorage()
    site = OpenYard(storage, segment_size=8192)
    lease_set = site.connect().lease_set
    job = site.put()
    while len(site.journal.segments) < 3:
        site.take(lease_set)
        release(site.yard, job, 0, 1000, site.now_ms)
        site.jump(1000)
        site.take(lease_set)
        bury(site.yard, job, 0, site.now_ms)
        site.connect().say(b"kick 1\r\n")
    remove(site.yard, job, site.now_ms)
    site.commit()
    # Replay only what came after the base.
    segments = [site.journal.segments[number] for number in sorted(site.journal.segments)]
    journal = Journal(storage, SEGMENT_SIZE, ids_ahead=False)
    yard = Yard(journal, Bodies(journal, 1 << 20))
    yard.is_replaying = True
    replay = Replay(yard, NOW_MS)
    for segment in segments[1:]:
        fresh = Segment(segment.number, 0, segment.size)
        journal.segments[segment.number] = fresh
        apply_all(replay, storage, fresh)
    assert yard.jobs.count == 0
    assert replay.records_count > 20


def apply_all(replay: Replay, storage: MemoryStorage, segment: Segment) -> None:
    reader = Reader(storage, segment)
    while True:
        segment.end = reader.offset
        head = reader.next()
        if head is None or head.magic != BATCH_MAGIC:
            return
        replay.apply_batch(reader.data, reader.at, head, segment)


# -- bookkeeping -------------------------------------------------------------------------------


def test_live_bytes_are_the_same_after_a_restart() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage, segment_size=8192)
    lease_set = site.connect().lease_set
    for number in range(100):
        site.put(b"x" * 300, queue=("default", "a", "b")[number % 3], rank=number % 7)
        if number % 2:
            lease = site.take(lease_set)
            if number % 3:
                release(site.yard, lease.job, 3, 0, site.now_ms)
            elif number % 5:
                bury(site.yard, lease.job, 3, site.now_ms)
            else:
                site.connect().say(b"delete %d\r\n" % lease.job.id)
    site.commit()
    recount(site.yard)
    again = OpenYard(storage.cut_off(), segment_size=8192)
    before = live_bytes(site.yard)
    after = live_bytes(again.yard)
    assert {number: after[number] for number in before} == before
    recount(again.yard)


def test_a_queue_that_died_and_came_back_is_one_queue_after_a_restart() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    client = site.connect()
    for _ in range(3):
        job = site.put(queue="q")
        client.say(b"delete %d\r\n" % job.id)
    site.put(b"last", queue="q")
    site.commit()
    again = OpenYard(storage.cut_off())
    assert snapshot(again.yard) == snapshot(site.yard)
    assert again.put(queue="q").key == site.put(queue="q").key
    assert again.put(queue="other").queue.number > again.queue("q").number
    recount(again.yard)


def test_ids_never_restart_even_with_nothing_in_the_yard() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    client = site.connect()
    client.say(b"put 0 0 1 1\r\nx\r\ndelete 1\r\n")
    site.commit()
    for boot in range(4):
        storage = storage.cut_off()
        again = OpenYard(storage)
        assert again.yard.jobs.count == 0
        if boot % 2:
            again.journal.append_clean()
            again.journal.close()
    assert OpenYard(storage.cut_off()).put().id == 2


def test_a_stop_in_good_order_leaves_a_mark_that_means_nothing_else() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    site.put()
    site.journal.append_clean()
    site.commit()
    site.put()
    site.commit()
    assert snapshot(OpenYard(storage.cut_off()).yard) == snapshot(site.yard)
