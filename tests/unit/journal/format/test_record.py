import struct
from zlib import crc32

from hypothesis import given, settings
from hypothesis import strategies as st

from jobyard.engine.jobs.finish import KEEP_AS_ASKED, bury, complete, finish, release
from jobyard.engine.jobs.move import kick_job, promote, remove, set_due, set_rank
from jobyard.engine.jobs.take import take_job
from jobyard.engine.recovery.compaction import Compactor
from jobyard.journal.format import record
from jobyard.journal.format.segment import BATCH_HEADER_SIZE, BatchHead
from jobyard.model.details import JobDetails
from jobyard.model.details_codec import FieldWriter, Tag
from jobyard.model.entry import EntryKind
from jobyard.model.family import BEANSTALK, BUNQUEUE
from jobyard.model.job import BLOCKED, DEAD, DELAYED, DONE, GONE, MSGPACK, RAW, READY
from jobyard.model.limits import INLINE_BODY_MAX, U32_MAX
from jobyard.model.policy import Policy
from jobyard.protocols.beanstalk.door import TERMS
from tests.support.site.recount import recount
from tests.support.site.site import ALL_HISTORY, NOW_MS
from tests.support.site.snapshot import snapshot
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard

RANKS = st.one_of(st.sampled_from([0, 1023, 1024, U32_MAX]), st.integers(0, U32_MAX))
DELAYS = st.one_of(st.just(0), st.integers(1, U32_MAX).map(lambda seconds: seconds * 1000))
SIZES = st.one_of(
    st.sampled_from([0, 1, INLINE_BODY_MAX - 1, INLINE_BODY_MAX, INLINE_BODY_MAX + 1]),
    st.integers(0, 20_000),
)
NAMES = st.one_of(
    st.text("abc-", min_size=1, max_size=3), st.just("n" * 200), st.just("\N{SNOWMAN}" * 256)
)


def reopened(site: OpenYard, storage: MemoryStorage, ms: int = 0) -> OpenYard:
    site.commit()
    return OpenYard(storage.cut_off(), site.now_ms + ms)


def records(storage: MemoryStorage, site: OpenYard) -> list[bytes]:
    """Return every record of the newest batch, as the disk has it."""
    site.journal.seal_batch()
    pending = site.journal.pending[-1]
    site.commit()
    data = storage.read(pending.segment.name, pending.offset, int(pending.size))
    at, end = BATCH_HEADER_SIZE, BATCH_HEADER_SIZE + BatchHead(data, 0).part1_size
    found = []
    while at < end:
        length = struct.unpack_from("<i", data, at + 4)[0]
        found.append(data[at : at + length])
        at += length
    return found


@settings(max_examples=60)
@given(NAMES, RANKS, DELAYS, DELAYS, SIZES)
def test_a_put_comes_back_with_every_field(
    name: str, rank: int, delay_ms: int, ttr_ms: int, size: int
) -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    site.put(b"first", name)
    site.put(bytes(range(256)) * (size // 256) + b"z" * (size % 256), name, rank, delay_ms, ttr_ms)
    again = reopened(site, storage)
    assert snapshot(again.yard) == snapshot(site.yard)
    assert again.yard.jobs.count == 2
    recount(again.yard)


@settings(max_examples=60)
@given(RANKS, DELAYS, SIZES)
def test_a_release_comes_back_with_its_rank_and_its_delay(
    rank: int, delay_ms: int, size: int
) -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    job = site.put(b"z" * size, rank=7)
    site.take(site.connect().lease_set)
    release(site.yard, job, rank, delay_ms, site.now_ms)
    again = reopened(site, storage)
    assert snapshot(again.yard) == snapshot(site.yard)
    recount(again.yard)


def test_bury_kick_lease_and_expiry_come_back() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    lease_set = site.connect().lease_set
    for rank in range(6):
        site.put(b"%d" % rank, rank=rank, ttr_ms=1000)
    for _ in range(5):
        site.take(lease_set)
    jobs = site.yard.jobs.all()
    for job in (jobs[2], jobs[0], jobs[1]):
        bury(site.yard, job, 9, site.now_ms)
    kick_job(site.yard, jobs[0].id, site.now_ms)
    take_job(site.yard, jobs[1].id, lease_set, TERMS, site.now_ms)
    site.jump(1000)
    assert site.yard.counters.timed_out_total() == 3
    again = reopened(site, storage)
    assert snapshot(again.yard) == snapshot(site.yard)
    recount(again.yard)


def test_finished_and_removed_jobs_stay_away() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    kept = [site.put(), site.put(), site.put(delay_ms=5000)]
    finish(site.yard, site.take(site.connect().lease_set).job, site.now_ms)
    remove(site.yard, kept[2], site.now_ms)
    again = reopened(site, storage)
    assert [job.id for job in again.yard.jobs.all()] == [kept[1].id]
    recount(again.yard)


def test_an_inline_put_is_laid_out_as_drawn() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    job = site.put(b"hello", "tube", 11, 4000, 60_000)
    queue, found = records(storage, site)
    kind, a, b, c, length = struct.unpack_from("<BBBBi", found)
    assert (kind, a, b, c, length) == (record.KIND_PUT, BEANSTALK, RAW, 0, len(found))
    assert struct.unpack_from("<qiiqqqqqqii", found, 8) == (
        *(job.id, job.queue.number, 5, 11, NOW_MS, NOW_MS + 4000, job.stamp, 60_000, 1, 0, 0),
    )
    assert found[record.PUT_SIZE :] == b"hello"
    assert struct.unpack("<BBBBiiiq4s", queue) == (
        *(record.KIND_QUEUE, 0, 0, 0, len(queue), job.queue.number, 4, 2, b"tube"),
    )


def test_a_long_body_lies_in_part_2_and_the_record_says_where() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    site.put(b"a" * 5000)
    site.put(b"b" * 5000)
    *_, found = records(storage, site)
    assert len(found) == record.base_length(record.PUT_SIZE, 5000)
    assert struct.unpack_from("<q", found, record.PUT_SIZE) == (5000,)


def test_the_end_of_a_run_is_wide_enough_to_tell_the_whole_attempt() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    lease_set = site.connect().lease_set
    job = site.put(rank=3)
    site.commit()
    site.jump(100)
    site.take(lease_set)
    site.jump(200)
    release(site.yard, job, 5, 7000, site.now_ms)
    lease, found = records(storage, site)
    assert struct.unpack("<BBBBiqqqqqqii", lease) == (
        *(record.KIND_LEASE, BEANSTALK, BEANSTALK, 0, record.LEASE_SIZE),
        *(job.id, 1, NOW_MS + 100, 60_000, lease_set.key | job.queue.number << 32),
        *(job.key, 1, 0),
    )
    assert struct.unpack_from("<BBBBiqiiqqqhBBiqqqqiiqqi", found) == (
        *(record.KIND_END, record.Cause.RELEASED, 1, 0, len(found), job.id, job.queue.number),
        *(job.place >> 32, 5, NOW_MS + 7300, job.stamp, 0, BEANSTALK, BEANSTALK, 1),
        *(NOW_MS, NOW_MS, NOW_MS + 100, NOW_MS + 300, lease_set.key, 0),
        *(1, job.key, 0),
    )


def test_the_worker_of_a_run_is_named_once_in_each_segment() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage, window=ALL_HISTORY)
    lease_set = site.connect().lease_set
    jobs = [site.put(), site.put()]
    site.commit()
    for _ in jobs:
        finish(site.yard, site.take(lease_set).job, site.now_ms)
    named, *runs = records(storage, site)
    kinds = [run[0] for run in runs]
    assert kinds == [record.KIND_LEASE, record.KIND_END] * 2
    assert struct.unpack_from("<BBBBiIi", named) == (
        *(record.KIND_WORKER, 0, 0, 0, len(named), crc32(b"beanstalk"), len(b"beanstalk")),
    )
    assert record.worker_named(named, 0) == b"beanstalk"
    offsets = {record.KIND_LEASE: 60, record.KIND_END: 92}
    assert len({struct.unpack_from("<i", run, offsets[run[0]]) for run in runs}) == 1
    assert record.worker_named(named[:-1], 0) is None
    assert record.worker_named(named[:-1] + b"x", 0) is None


def test_the_end_of_a_job_with_a_custom_id_repeats_it_before_the_changes() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    details = JobDetails()
    details.custom_id = "order-7"
    job = site.enter(details=details)
    site.run(job)
    site.commit()
    complete(site.yard, job, b"done", MSGPACK, KEEP_AS_ASKED, site.now_ms)
    *_, found = records(storage, site)
    assert found[record.changes_at(found, 0) :].startswith(b"\x01\x07\0\0\0order-7")
    assert found.endswith(b"done")


def test_moves_and_removals_are_laid_out_as_drawn() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    job = site.put(rank=3, delay_ms=1000)
    site.commit()
    kick_job(site.yard, job.id, site.now_ms)
    remove(site.yard, job, site.now_ms)
    moved, gone = records(storage, site)
    assert struct.unpack("<BBBBiqqqqqii", moved) == (
        *(record.KIND_MOVE, record.Cause.KICKED, READY, 0, record.MOVE_SIZE),
        *(job.id, 3, NOW_MS, job.stamp, NOW_MS, 0, job.queue.number),
    )
    assert struct.unpack("<BBBBiqiiq", gone) == (
        *(record.KIND_GONE, record.Cause.REMOVED, 0, 0, record.GONE_SIZE),
        *(job.id, job.queue.number, job.place >> 32, NOW_MS),
    )


def test_what_is_rare_about_a_job_follows_its_body_and_its_policy_goes_ahead() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    policy = Policy(0)
    policy.name = "mail"
    details = JobDetails()
    details.custom_id = "mine"
    job = site.enter(b"hello", rank=-2, policy=policy, details=details)
    entry, _, found = records(storage, site)
    assert struct.unpack_from("<BBBBiiiqq", entry) == (
        *(record.KIND_ENTRY, EntryKind.POLICY, 0, 0, len(entry), 8, len(policy.text), 0, 1),
    )
    assert entry[record.ENTRY_SIZE + 8 :] == policy.text
    assert (found[1], found[2]) == (BUNQUEUE, MSGPACK)
    assert struct.unpack_from("<ii", found, 72) == (1, 9)
    assert found[record.PUT_SIZE :] == b"hello" + b"\x01\x04\0\0\0mine"
    assert job.policy.number == 1


def test_news_of_a_job_in_another_segment_bring_its_state_along() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage, segment_size=8192)
    job = site.enter(b"hello", rank=4)
    promoted = site.enter(delay_ms=9000)
    set_rank(site.yard, job, 5, site.now_ms)
    promote(site.yard, promoted, site.now_ms)
    number = site.journal.hot.number
    while site.journal.hot.number == number:
        site.enter(b"x" * 900)
        site.commit()
    fields = FieldWriter()
    fields.text(Tag.PROGRESS, "50\0half")
    site.yard.note(promoted, fields.done())
    state, note = records(storage, site)
    assert struct.unpack_from("<BBBBiq", state) == (
        *(record.KIND_STATE, 0, 0, READY, record.STATE_SIZE, promoted.id),
    )
    assert struct.unpack_from("<qqqii", state, 16) == (0, NOW_MS, 9000, 0, 0)
    assert struct.unpack_from("<q", state, 88) == (promoted.stamp,)
    assert struct.unpack_from("<BBBBiq", note) == (
        *(record.KIND_NOTE, 0, 0, 0, len(note), promoted.id),
    )
    assert note[record.NOTE_SIZE :] == fields.done()


def test_the_place_in_line_outlives_the_segment_that_told_it() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage, segment_size=8192)
    job = site.enter(b"hello")
    bases = [int(site.journal.hot.number)]
    for change in (set_due, set_rank):
        while site.journal.hot.number == bases[-1]:
            site.enter(b"x" * 900)
            site.commit()
        bases.append(int(site.journal.hot.number))
        change(site.yard, job, 0, site.now_ms)
        site.commit()
    stamp = job.stamp
    while site.journal.hot.number == bases[-1]:
        site.enter(b"x" * 900)
        site.commit()
    fields = FieldWriter()
    fields.text(Tag.PROGRESS, "50\0")
    site.yard.note(job, fields.done())
    site.commit()
    for victim in bases[1:]:
        site.compactor = Compactor(site.yard, [victim])
        while victim in site.journal.segments:
            site.compactor.step()
            site.commit()
    assert bases[0] in site.journal.segments
    again = OpenYard(storage.cut_off(), segment_size=8192)
    found = again.yard.jobs.get(job.id)
    assert found is not None
    assert found.stamp == stamp
    assert snapshot(again.yard) == snapshot(site.yard)
    recount(again.yard)


def test_the_kinds_of_records_never_change_their_numbers() -> None:
    kinds = {name: value for name, value in vars(record).items() if name.startswith("KIND_")}
    assert kinds == {
        "KIND_PUT": 1,
        "KIND_LEASE": 2,
        "KIND_END": 3,
        "KIND_MOVE": 4,
        "KIND_GONE": 5,
        "KIND_QUEUE": 6,
        "KIND_DROPPED": 7,
        "KIND_MOVED": 8,
        "KIND_STATE": 9,
        "KIND_ALIVE": 10,
        "KIND_CLEAN": 11,
        "KIND_NOTE": 12,
        "KIND_ENTRY": 13,
        "KIND_WORKER": 20,
    }
    assert (READY, DELAYED, DEAD, GONE, DONE, BLOCKED) == (0, 1, 3, 4, 5, 6)
