"""Runs that a kill cut off: one row of history for each, at the next start."""

from jobyard.engine.jobs.finish import finish, release
from jobyard.engine.jobs.move import erase
from jobyard.engine.recovery.open_runs import ROWS_PER_BATCH
from jobyard.engine.state.history import read_history
from jobyard.engine.topics import topic_queue
from jobyard.model.topic.history_row import ABANDONED, CLAIMED, HistoryRow
from tests.support.engine.topics import Topic, config
from tests.support.site.site import ALL_HISTORY, NOW_MS, SEGMENT_SIZE
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard


def rows_of(site: OpenYard, event: str = "") -> list[HistoryRow]:
    rows = read_history(site.yard, 0, 100_000, 1 << 30).rows
    return [row for row in rows if not event or row.event == event]


def events_of(site: OpenYard) -> list[tuple[str, int]]:
    return [(row.event, int(row.job_id)) for row in rows_of(site)]


def opened(storage: MemoryStorage, now_ms: int = NOW_MS) -> OpenYard:
    return OpenYard(storage, now_ms, window=ALL_HISTORY)


def killed(site: OpenYard, ms: int = 0) -> OpenYard:
    return opened(site.memory.killed(), site.now_ms + ms)


def run_of(row: HistoryRow) -> tuple[object, ...]:
    named = (row.job_id, row.queue, row.queue_seq, row.lease, row.deliveries, row.holder)
    return (*named, row.worker, row.door, row.family, row.claimed_ms)


def test_a_run_that_a_kill_cut_off_gets_one_row() -> None:
    site = opened(MemoryStorage())
    job = site.put(b"x", "mails")
    done = site.put(b"y", "mails")
    site.jump(10)
    lease_set = site.connect().lease_set
    site.take(lease_set, "mails")
    finish(site.yard, site.take(lease_set, "mails").job, site.now_ms)
    site.jump(5)
    last = site.put(b"z", "mails")
    site.commit()
    again = killed(site, 60_000)
    (row,) = rows_of(again, ABANDONED)
    assert rows_of(again)[-1].seq == row.seq == again.journal.history.last_row
    assert row.job_id == job.id != done.id
    (claim,) = [one for one in rows_of(again, CLAIMED) if one.job_id == job.id]
    assert run_of(row) == run_of(claim)
    # The last thing that is known of that boot is the last put.
    assert row.ts_ms == row.finished_ms == last.created_ms == NOW_MS + 15
    assert (row.enqueued_ms, row.available_ms) == (NOW_MS, NOW_MS)
    assert (row.state, row.attempts) == ("ready", 0)
    again.check()


def test_two_kills_in_a_row_make_no_second_row() -> None:
    site = opened(MemoryStorage())
    job = site.put(b"x")
    site.take(site.connect().lease_set)
    site.commit()
    site = killed(site)
    before = events_of(site)
    assert before == [("enqueued", job.id), (CLAIMED, job.id), (ABANDONED, job.id)]
    for _ in range(3):
        site = killed(site)
        assert events_of(site) == before
    site.take(site.connect().lease_set)
    site.commit()
    site = killed(site)
    assert events_of(site) == [*before, (CLAIMED, job.id), (ABANDONED, job.id)]
    assert [int(row.deliveries) for row in rows_of(site)] == [0, 1, 1, 2, 2]


def test_a_row_that_did_not_reach_the_disk_is_written_by_the_next_start() -> None:
    site = opened(MemoryStorage())
    site.put(b"x")
    site.take(site.connect().lease_set)
    site.commit()
    first = site.memory.killed()
    storage = site.memory.killed()
    opened(first)
    assert [row.event for row in rows_of(opened(storage))].count(ABANDONED) == 1


def test_a_run_is_abandoned_though_its_job_was_copied_meanwhile() -> None:
    """The claim is replayed before the job then: its first base is gone."""
    site = opened(MemoryStorage())
    job = site.put(b"x")
    filler = [site.put(b"y" * 3000, "filler") for _ in range(60)]
    site.commit()
    for one in filler:
        erase(site.yard, one, site.now_ms)
    site.jump(ALL_HISTORY[0] + 1)
    site.put(b"z" * 3000, "filler")
    site.commit()
    site.take(site.connect().lease_set)
    site.commit()
    first = int(job.place >> 32)
    site.compact()
    assert first not in site.journal.segments
    site = killed(site)
    assert [int(row.job_id) for row in rows_of(site, CLAIMED)] == [job.id]
    assert [int(row.job_id) for row in rows_of(site, ABANDONED)] == [job.id]
    site.check()


def test_runs_that_ended_are_not_abandoned() -> None:
    site = opened(MemoryStorage())
    lease_set = site.connect().lease_set
    for _ in range(3):
        site.put(b"x")
    finish(site.yard, site.take(lease_set).job, site.now_ms)
    lease = site.take(lease_set)
    release(site.yard, lease.job, 0, 1000, site.now_ms)
    client = site.connect()
    site.take(client.lease_set)
    client.leave()
    site.put(b"x", "other")
    erase(site.yard, site.take(lease_set, "other").job, site.now_ms)
    site.commit()
    assert rows_of(killed(site), ABANDONED) == []


def test_a_lease_that_outlives_the_server_is_not_abandoned() -> None:
    storage = MemoryStorage()
    given = config(leases_durable=True)
    site = Topic(storage, given=given, window=ALL_HISTORY)
    site.write(b"1", b"2")
    assert site.claimed("a", 1) == [1]
    site.commit()
    for _ in range(2):
        storage = storage.killed()
        site = Topic(storage, site.now_ms, given=given, window=ALL_HISTORY)
        assert rows_of(site, ABANDONED) == []
    topic_queue.ack(site.yard, site.t, "a", [1], None, site.now_ms)
    site.commit()
    (done,) = rows_of(site, "completed")
    (claim,) = rows_of(site, CLAIMED)
    assert run_of(done)[:5] == run_of(claim)[:5]


def test_the_worker_of_an_abandoned_run_is_named_in_a_new_segment() -> None:
    storage = MemoryStorage()
    site = Topic(storage, window=ALL_HISTORY)
    site.write(*[b"1"] * 40)
    for number in range(40):
        assert site.claimed(f"worker-{number % 3}", 1)
        site.jump(1)
        site.commit()
    again = opened(storage.killed())
    claims = {row.job_id: run_of(row) for row in rows_of(again, CLAIMED)}
    found = rows_of(again, ABANDONED)
    assert {row.job_id: run_of(row) for row in found} == claims
    assert [row.job_id for row in found] == list(claims)
    assert {row.worker for row in found} == {"worker-0", "worker-1", "worker-2"}
    assert {row.ts_ms for row in found} == {NOW_MS + 39}


def opened_full(storage: MemoryStorage, now_ms: int) -> OpenYard:
    """Start while the disk has room for the first segment of the boot and no more."""
    for name in storage.names():
        if name.endswith(".spare"):
            storage.unlink(name)
    storage.capacity = storage.used() + SEGMENT_SIZE
    site = opened(storage, now_ms)
    storage.capacity = None
    site.journal.is_full = False
    return site


def test_each_boot_ends_at_the_last_thing_known_of_it() -> None:
    site = opened(MemoryStorage())
    for number in range(3):
        site.put(b"x", f"q{number}")
    for number in range(3):
        site.take(site.connect().lease_set, f"q{number}")
        site.commit()
        site = opened_full(site.memory.killed(), site.now_ms + 1000)
        assert rows_of(site, ABANDONED) == []
    site = killed(site)
    assert [(row.queue, row.ts_ms - NOW_MS) for row in rows_of(site, ABANDONED)] == [
        *[("q0", 0), ("q1", 1000), ("q2", 2000)],
    ]


def test_many_rows_are_written_in_batches() -> None:
    site = opened(MemoryStorage())
    lease_set = site.connect().lease_set
    count = 2 * ROWS_PER_BATCH + 1
    for _ in range(count):
        site.put(b"x")
        site.take(lease_set)
    site.commit()
    again = killed(site)
    assert len(rows_of(again, ABANDONED)) == count
    assert again.journal.open_number >= site.journal.open_number + 3
    again.check()


def test_without_history_there_is_nothing_to_write() -> None:
    site = OpenYard(MemoryStorage())
    site.put(b"x")
    site.take(site.connect().lease_set)
    site.commit()
    again = opened(site.memory.killed())
    assert events_of(again) == []
