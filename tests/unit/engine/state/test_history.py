from jobyard.engine.jobs.finish import finish
from jobyard.engine.jobs.move import remove
from jobyard.engine.logs.logs import append, open_log
from jobyard.engine.recovery.compaction import Compactor
from jobyard.engine.recovery.open_yard import open_yard
from jobyard.engine.state.history import (
    has_history,
    read_history,
    rows_after,
    seq_at,
    yard_id,
)
from jobyard.engine.state.yard import Yard
from jobyard.engine.topics.topic_queue import drop_topic_queue, open_topic_queue
from jobyard.journal.bodies import Bodies
from jobyard.journal.journal import Journal
from jobyard.model.topic.config import TopicConfig
from jobyard.model.topic.cursor import TopicCursor
from jobyard.model.topic.log import LogRecord
from tests.support.engine.topics import config
from tests.support.site.site import ALL_HISTORY, NOW_MS
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard


def rows_of(site: OpenYard) -> list[tuple[int, str, str, int]]:
    rows = read_history(site.yard, 0, 100_000, 1 << 30).rows
    return [(int(row.seq), row.event, row.queue, int(row.job_id)) for row in rows]


def fill(site: OpenYard, queue: str, count: int = 60) -> None:
    """Put jobs and remove them again: the queue is gone after that."""
    jobs = [site.put(b"x" * 1500, queue) for _ in range(count)]
    site.commit()
    for job in jobs:
        remove(site.yard, job, site.now_ms)
    site.commit()
    leave(site, queue)


def leave(site: OpenYard, queue: str) -> None:
    client = site.connect()
    client.say(b"use %s\r\n" % queue.encode())
    client.say(b"use default\r\n")
    client.leave()
    assert queue not in site.yard.queues


def test_without_a_window_there_is_no_history() -> None:
    assert not has_history(OpenYard(MemoryStorage()).yard)
    assert not has_history(OpenYard().yard)
    site = OpenYard(MemoryStorage(), window=ALL_HISTORY)
    assert has_history(site.yard)


def test_rows_outlast_a_restart_with_their_numbers_and_names() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage, window=ALL_HISTORY)
    fill(site, "first")
    site.put(b"stays", "second")
    site.commit()
    for _ in range(3):
        before = rows_of(site)
        assert len(before) > 120
        storage = storage.killed()
        site = OpenYard(storage, site.now_ms, window=ALL_HISTORY)
        assert rows_of(site) == before
        site.put(b"more", "second")
        site.commit()
        assert rows_of(site)[:-1] == before


def test_a_segment_in_the_window_is_not_compacted() -> None:
    site = OpenYard(MemoryStorage(), window=ALL_HISTORY)
    fill(site, "first")
    before = rows_of(site)
    assert site.compact() == 0
    assert rows_of(site) == before
    site.jump(ALL_HISTORY[0] + 1)
    site.compact()
    assert len(site.journal.segments) < 4
    page = read_history(site.yard, 0, 1000)
    assert page.floor > before[0][0]
    assert page.floor <= page.head_seq


def test_a_window_of_bytes_keeps_the_newest() -> None:
    site = OpenYard(MemoryStorage(), window=(ALL_HISTORY[0], 100_000))
    for turn in range(6):
        fill(site, f"q{turn}")
        site.compact()
    hot = sum(int(s.end) for s in site.journal.segments.values() if s.is_history)
    assert hot <= 100_000 + site.journal.segment_size
    rows = rows_of(site)
    assert rows[-1][2] == "q5"
    assert rows[0][0] >= site.journal.history.floor


def test_names_of_queues_that_are_gone_outlast_compaction_and_restarts() -> None:
    storage = MemoryStorage()
    window = (ALL_HISTORY[0], 150_000)
    site = OpenYard(storage, window=window)
    kept = site.put(b"kept", "long")
    site.commit()
    # The record with the name leaves the window long before the last record about the queue.
    fill(site, "filler", 200)
    site.compact()
    finish(site.yard, site.take(site.connect().lease_set, "long").job, site.now_ms)
    site.commit()
    leave(site, "long")
    fill(site, "filler", 20)
    site.compact()
    assert (int(kept.id), "long") in {(row[3], row[2]) for row in rows_of(site)}
    for _ in range(3):
        before = rows_of(site)
        storage = storage.killed()
        site = OpenYard(storage, site.now_ms, window=window)
        assert rows_of(site) == before
        [past] = [name for name in site.journal.history.past.values() if name.name == "long"]
        victim = int(past.segment)
        site.compactor = Compactor(site.yard, [victim])
        site.compact()
        assert victim not in site.journal.segments
        assert past.segment in site.journal.segments
        assert (int(kept.id), "long") in {(row[3], row[2]) for row in rows_of(site)}
    assert len(site.journal.history.past) <= 3
    fill(site, "filler", 300)
    site.compact()
    site.compact()
    assert "long" not in site.journal.history.names.values()


def test_a_crowd_of_queues_that_are_gone_costs_history_and_not_memory() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage, segment_size=16_384, window=ALL_HISTORY)
    history = site.journal.history
    history.past_max = 50
    for number in range(1000):
        remove(site.yard, site.put(b"x" * 50, f"q{number}"), site.now_ms)
        leave(site, f"q{number}")
        site.commit()
        # Whether or not compaction runs meanwhile.
        if number % 20 == 0 and number < 500:
            site.compact()
        assert len(history.past) <= 55
    site.compact()
    assert len(history.past) <= 50
    assert len(history.names) <= 51
    rows = rows_of(site)
    assert all(row[2] for row in rows), "a row lost its name"
    # A start that finds more than it may keep removes them at once.
    storage = storage.killed()
    again = OpenYard(storage, site.now_ms, window=ALL_HISTORY)
    assert all(row[2] for row in rows_of(again))


def test_the_name_of_a_topic_that_was_removed_outlasts_it_too() -> None:
    storage = MemoryStorage()
    window = (ALL_HISTORY[0], 150_000)
    site = OpenYard(storage, window=window)
    queue = open_topic_queue(site.yard, "long", config(), site.now_ms)
    kept = site.put(b"kept", "long")
    site.commit()
    fill(site, "filler", 200)
    named_in = int(queue.segment)
    drop_topic_queue(site.yard, queue, site.now_ms)
    site.commit()
    fill(site, "filler", 20)
    site.compactor = Compactor(site.yard, [named_in])
    site.compact()
    assert named_in not in site.journal.segments
    for _ in range(2):
        assert (int(kept.id), "long") in {(row[3], row[2]) for row in rows_of(site)}
        storage = storage.killed()
        site = OpenYard(storage, site.now_ms, window=window)


def test_history_gives_way_on_a_full_disk_before_jobs_are_refused() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage, window=ALL_HISTORY)
    storage.capacity = 16 * site.journal.segment_size
    for _ in range(30):
        fill(site, "busy", 20)
        if site.journal.spares_wanted() > 0:
            name = site.journal.new_spare_name()
            if storage.used() + site.journal.segment_size > storage.capacity:
                site.journal.note_full()
            else:
                storage.create(name, int(site.journal.segment_size))
                site.journal.add_spare(name)
        site.compact()
    assert site.journal.history.floor > 0
    assert rows_of(site)


def test_a_window_that_is_switched_on_later_begins_there() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    site.put()
    site.commit()
    again = OpenYard(storage.killed(), site.now_ms, window=ALL_HISTORY)
    assert rows_of(again) == []
    again.put()
    again.commit()
    assert [row[1] for row in rows_of(again)] == ["enqueued"]


def test_the_first_row_of_a_time_is_found() -> None:
    site = OpenYard(MemoryStorage(), window=ALL_HISTORY, segment_size=256 << 10)
    for _ in range(300):
        site.jump(10)
        site.put(b"x" * 2000)
        site.commit()
    rows = read_history(site.yard, 0, 1000, 1 << 30).rows
    assert len(rows) == 300
    assert seq_at(site.yard, 0) == rows[0].seq
    for index in (0, 1, 77, 150, 299):
        assert seq_at(site.yard, NOW_MS + 10 * (index + 1)) == rows[index].seq
        assert seq_at(site.yard, NOW_MS + 10 * index + 5) == rows[index].seq
    head = read_history(site.yard, 0, 1).head_seq
    assert seq_at(site.yard, NOW_MS + 3001) == head + 1


def check_counts(site: OpenYard) -> None:
    """Count the rows after every number, and compare with those that can be read."""
    history = site.journal.history
    seqs = [row[0] for row in rows_of(site)]
    for seq in range(int(history.next_durable) + 2):
        cursor = TopicCursor("_events", "c")
        cursor.seq = seq
        wanted = sum(each > seq for each in seqs)
        assert rows_after(site.yard, cursor) == wanted, seq
        # Counted before, it is not read again.
        assert rows_after(site.yard, cursor) == wanted


def test_the_rows_after_a_cursor_are_counted() -> None:
    storage = MemoryStorage()
    window = (ALL_HISTORY[0], 60_000)
    site = OpenYard(storage, window=window)
    early = TopicCursor("_events", "early")
    assert rows_after(site.yard, early) == 0
    log = open_log(site.yard, "log", TopicConfig(), site.now_ms)
    for turn in range(4):
        append(site.yard, log, [LogRecord(b"1")] * 3, "", site.now_ms)
        fill(site, f"q{turn}", 20)
        site.put(b"x" * 3000, "kept")
        site.commit()
        check_counts(site)
        storage = storage.killed()
        site = OpenYard(storage, site.now_ms, window=window)
        log = site.yard.logs["log"]
        check_counts(site)
    fill(site, "much", 60)
    site.compact()
    assert site.journal.history.floor > 1
    check_counts(site)
    assert rows_after(site.yard, early) == len(rows_of(site))
    # The part of the open segment that is written leaves the window.
    site.journal.history.leave(site.journal.hot)
    site.put(b"new", "kept")
    site.commit()
    check_counts(site)
    assert len(rows_of(site)) == 1


def test_the_id_of_a_data_directory_is_that_of_its_first_start() -> None:
    storage = MemoryStorage()
    found = []
    for drawn in ("", "first", "second"):
        journal = Journal(storage, 1 << 16, ids_ahead=False)
        yard = Yard(journal, Bodies(journal, 1 << 20))
        open_yard(yard, storage, NOW_MS, yard_id=drawn)
        found.append(yard_id(yard))
        journal.commit()
    assert found == ["1", "first", "first"]
    site = OpenYard(storage, segment_size=1 << 14, window=(ALL_HISTORY[0], 40_000))
    for _ in range(200):
        site.put(b"x" * 1500)
        remove(site.yard, site.yard.jobs.all()[0], site.now_ms)
    site.commit()
    site.compact()
    assert yard_id(site.yard) == "first"
    again = OpenYard(storage.cut_off(), site.now_ms, window=ALL_HISTORY)
    assert yard_id(again.yard) == "first"


def test_segments_without_rows_lose_nothing_and_keep_their_time() -> None:
    storage = MemoryStorage()
    window = (1000, 1 << 40)
    site = OpenYard(storage, segment_size=1 << 14, window=window)
    history = site.journal.history
    log = open_log(site.yard, "log", TopicConfig(), site.now_ms)
    for _ in range(30):
        append(site.yard, log, [LogRecord(b'"%b"' % (b"x" * 2000), b"")], "", site.now_ms)
        site.commit()
        site.now_ms += 10
    history.trim(site.now_ms)
    kept = len(history.segments)
    assert kept > 2
    assert (history.last_row, history.rows_floor <= 1) == (0, True)
    site.now_ms += 900
    history.trim(site.now_ms)
    assert 1 < len(history.segments) < kept
    assert history.floor > history.rows_floor
    assert history.rows_floor <= 1
    job = site.put()
    append(site.yard, log, [LogRecord(b"1", b"")], "", site.now_ms)
    site.commit()
    (row,) = read_history(site.yard, 0, 100).rows
    assert (history.last_row, row.job_id) == (row.seq, job.id)
    assert history.next_durable - 1 > row.seq
    again = OpenYard(storage.cut_off(), site.now_ms, segment_size=1 << 14, window=window)
    assert again.journal.history.last_row == row.seq
    newest = [int(segment.newest_ms) for segment in again.journal.history.segments]
    assert newest == sorted(newest)
    assert newest[-1] == site.now_ms
    site.now_ms += 2000
    append(site.yard, log, [LogRecord(b"1" * 14_000, b"")], "", site.now_ms)
    append(site.yard, log, [LogRecord(b"1" * 14_000, b"")], "", site.now_ms)
    site.commit()
    history.trim(site.now_ms)
    assert history.rows_floor == row.seq + 1
