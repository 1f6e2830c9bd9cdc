"""A commit that is interrupted at every call to the storage happened as a whole or not at all."""

import json
from collections.abc import Callable

import pytest

from jobyard.engine.jobs.dead_letters import LetterMark
from jobyard.engine.logs.cursors import CursorChange, set_cursor
from jobyard.engine.logs.logs import append, open_log
from jobyard.engine.logs.text import text_at
from jobyard.engine.state.record_keys import keys_of
from jobyard.engine.state.yard import Yard
from jobyard.engine.topics.commit_ends import EndKind, RunEnd
from jobyard.engine.topics.staged_rows import ChunkDraft, StagedRow
from jobyard.engine.topics.stages import stage
from jobyard.engine.topics.topic_queue import (
    NewRecord,
    claim,
    node_leases,
    open_topic_queue,
    produce,
)
from jobyard.engine.topics.transactions import Commit, CommitPart, CommitRequest, abort, look
from jobyard.errors import YardFull
from jobyard.model.job import Job
from jobyard.model.topic.config import QUEUE, TopicConfig
from jobyard.model.topic.cursor import TopicCursor
from jobyard.model.topic.key_table import digest_of
from jobyard.model.topic.log import LogRecord, LogTopic
from jobyard.model.topic.txn import ChunkPlace
from tests.support.site.recount import recount
from tests.support.site.storage import MemoryStorage, stop_everywhere
from tests.support.site.yard import OpenYard

SEGMENT = 16 * 1024
# More than a segment holds, in two chunks.
ROWS = 150
JOBS = 40
TEXT = b'"' + b"x" * 200 + b'"'

WHY = "why \N{SNOWMAN}"

# State; records, jobs, jobs that wait again, letters, keys; jobs and letters with errors; cursor.
Seen = tuple[str, int, int, int, int, int, int, int]


def queue_config() -> TopicConfig:
    config = TopicConfig()
    config.type = QUEUE
    config.leases_durable = True
    config.dead_letter = "letters"
    return config


def open_on(storage: MemoryStorage) -> OpenYard:
    return OpenYard(storage, segment_size=SEGMENT)


def rows_of(count: int, *, are_keyed: bool = True) -> ChunkDraft:
    draft = ChunkDraft()
    for number in range(count):
        row = StagedRow(TEXT, b'{"m":1}', "t", "")
        if are_keyed:
            row.key_digest = digest_of(f"k{number}")
        draft.add(row)
    return draft


def prepared() -> MemoryStorage:
    """Return a journal with everything that the commit needs, all of it on disk."""
    storage = MemoryStorage()
    site = open_on(storage)
    yard, now_ms = site.yard, site.now_ms
    open_log(yard, "results", TopicConfig(), now_ms)
    open_log(yard, "letters", TopicConfig(), now_ms)
    source = open_log(yard, "source", TopicConfig(), now_ms)
    append(yard, source, [LogRecord(TEXT) for _ in range(3)], "", now_ms)
    queue = open_topic_queue(yard, "work", queue_config(), now_ms)
    open_topic_queue(yard, "next", queue_config(), now_ms)
    produce(yard, queue, [NewRecord(TEXT) for _ in range(JOBS)], "", now_ms)
    claim(yard, queue, "w", JOBS, 60_000, node_leases(yard, "w"), now_ms)
    site.commit()
    for topic, attempt, count in (("results", 1, 100), ("results", 2, ROWS), ("next", 1, ROWS)):
        stage(yard, "t", ChunkPlace(topic, 0, attempt, 0), rows_of(count), now_ms)
        site.commit()
    set_cursor(yard, cursor(1), now_ms)
    site.commit()
    return storage


def cursor(seq: int) -> CursorChange:
    """Return a change of the cursor that the commit moves."""
    wanted = TopicCursor("source", "reader")
    wanted.seq = seq
    wanted.holds = seq > 1
    return CursorChange(wanted, is_forced=False, keeps_hold=False)


def request() -> CommitRequest:
    wanted = CommitRequest("t")
    wanted.parts = [CommitPart("results", 0, 2, 1, ROWS), CommitPart("next", 0, 1, 1, ROWS)]
    for seq in range(1, JOBS + 1):
        kind = (EndKind.ACK, EndKind.NACK, EndKind.DEAD_LETTER)[seq % 3]
        end = RunEnd(kind, "work", "w", seq, "")
        end.error = WHY if kind != EndKind.ACK else ""
        wanted.ends.append(end)
    wanted.cursors = [cursor(3)]
    wanted.worker, wanted.epoch, wanted.digest = "m", 3, "d"
    return wanted


def run_commit(site: OpenYard) -> Commit:
    done = Commit(site.yard, request())
    if not site.yard.tasks.begin(done, None, site.now_ms):
        while site.yard.tasks.count():
            site.yard.tasks.proceed(site.now_ms)
            site.commit()
    return done


def seen(site: OpenYard) -> Seen:
    yard = site.yard
    state = look(yard, "t", site.now_ms)
    work = yard.queues["work"]
    jobs = int(work.jobs_count()) - len(work.leased.items)
    counts = (int(yard.logs["results"].count), int(yard.queues["next"].jobs_count()))
    tables = [keys_of(yard, name) for name in ("results", "next")]
    keys = sum(int(table.count) for table in tables if table is not None)
    letters = yard.logs["letters"]
    told = sum(WHY in str(read_dead_meta(yard, letters, seq)) for seq in seqs_of(letters))
    told += sum(_error_of(job) == WHY for job in yard.jobs.all())
    found = yard.cursors.get("source", "reader")
    assert found is not None
    assert found.holds == (found.seq > 1)
    return state, *counts, jobs, int(letters.count), keys, told, int(found.seq)


def _error_of(job: Job) -> str:
    return "" if job.details is None else job.details.last_error


def seqs_of(log: LogTopic) -> range:
    return range(int(log.earliest_seq), int(log.next_seq))


def read_dead_meta(yard: Yard, log: LogTopic, seq: int) -> object:
    """Return the error in the meta of a letter."""
    chunk = log.chunk_of(seq)
    assert chunk is not None
    slot = seq - int(chunk.base)
    _, meta = chunk.content_of(slot, text_at(yard.journal, chunk, slot))
    return json.loads(meta).get(LetterMark.ERROR)


NACKED = (JOBS + 2) // 3
LETTERS = (JOBS + 1) // 3
NOTHING: Seen = ("open", 0, 0, 0, 0, 0, 0, 1)
ALL: Seen = ("committed", ROWS, ROWS, NACKED, LETTERS, 2 * ROWS, NACKED + LETTERS, 3)

ENDS: list[Callable[[MemoryStorage], MemoryStorage]] = [MemoryStorage.killed, MemoryStorage.cut_off]


@pytest.mark.parametrize("end", ENDS)
def test_a_commit_that_is_interrupted_anywhere(
    end: Callable[[MemoryStorage], MemoryStorage],
) -> None:
    image = prepared()

    def run(storage: MemoryStorage) -> None:
        site = open_on(storage)
        run_commit(site)
        site.commit()
        while site.yard.tasks.count():
            site.yard.tasks.proceed(site.now_ms)
            site.commit()
        site.compact(20)

    found = set()
    for stopped in stop_everywhere(image.killed, run):
        site = open_on(end(stopped))
        recount(site.yard)
        before = seen(site)
        assert before in {NOTHING, ALL}
        found.add(before)
        done = run_commit(site)
        assert done.is_duplicate == (before == ALL)
        assert seen(site) == ALL
        while site.yard.tasks.count():
            site.yard.tasks.proceed(site.now_ms)
        log = site.yard.txns.log
        assert log is not None
        assert log.count == 0
        recount(site.yard)
    assert found == {NOTHING, ALL}


@pytest.mark.parametrize("end", ENDS)
def test_an_abort_that_is_interrupted_anywhere(
    end: Callable[[MemoryStorage], MemoryStorage],
) -> None:
    image = prepared()

    def run(storage: MemoryStorage) -> None:
        site = open_on(storage)
        abort(site.yard, "t", site.now_ms)
        while site.yard.tasks.count():
            site.commit()
            site.yard.tasks.proceed(site.now_ms)
        site.commit()
        stage(site.yard, "t", ChunkPlace("results", 0, 9, 0), rows_of(3), site.now_ms)
        site.commit()
        site.compact(20)

    states = set()
    for stopped in stop_everywhere(image.killed, run):
        site = open_on(end(stopped))
        recount(site.yard)
        txn = site.yard.txns.open.get("t")
        chunks = [] if txn is None else sorted(int(key[2]) for key in txn.chunks)
        assert chunks in ([1, 1, 2], [], [9])
        states.add(tuple(chunks))
        while site.yard.tasks.count():
            site.yard.tasks.proceed(site.now_ms)
        recount(site.yard)
        log = site.yard.txns.log
        assert log is not None
        assert int(log.count) == int(site.yard.txns.staged_rows)
    assert len(states) == 3


def test_a_commit_is_one_batch_however_small_the_segments_are() -> None:
    site = open_on(prepared())
    number = site.journal.open_number
    done = run_commit(site)
    assert done.batch >= number
    sizes = {int(segment.size) for segment in site.journal.segments.values()}
    assert max(sizes) > SEGMENT
    assert all(segment.end <= segment.size for segment in site.journal.segments.values())


def test_text_of_stages_leaves_memory() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage, segment_size=1 << 20, budget=100_000)
    open_log(site.yard, "results", TopicConfig(), site.now_ms)
    for number in range(4):
        place = ChunkPlace("results", 0, 0, number)
        stage(site.yard, "t", place, rows_of(1024, are_keyed=False), site.now_ms)
        site.commit()
    log = site.yard.txns.log
    assert isinstance(log, LogTopic)
    assert sum(chunk.is_cold for chunk in log.chunks) >= 2
    wanted = CommitRequest("t")
    wanted.parts = [CommitPart("results", 0, 0, 4, 4096)]
    done = Commit(site.yard, wanted)
    while not site.yard.tasks.begin(done, None, site.now_ms):
        while site.yard.tasks.count():
            site.yard.tasks.proceed(site.now_ms)
        break
    assert site.yard.logs["results"].count == 4096
    recount(site.yard)


def fits(site: OpenYard) -> bool:
    """Put a job; return whether the disk had room for it."""
    try:
        site.put(b"x" * 3000)
    except YardFull:
        return False
    return True


def test_a_full_disk_refuses_records_and_lets_runs_end() -> None:
    storage = prepared()
    site = open_on(storage)
    site.commit()
    storage.capacity = sum(len(file.seen) for file in storage.files.values())
    while fits(site):
        site.commit()
    with pytest.raises(YardFull):
        run_commit(site)
    assert seen(site) == NOTHING
    wanted = CommitRequest("ends")
    wanted.ends = [end for end in request().ends if end.kind == EndKind.ACK][:4]
    done = Commit(site.yard, wanted)
    assert site.yard.tasks.begin(done, None, site.now_ms)
    site.commit()
    assert look(site.yard, "ends", site.now_ms) == "committed"
    recount(site.yard)
    after = open_on(storage.cut_off())
    assert look(after.yard, "ends", after.now_ms) == "committed"
    assert int(after.yard.queues["work"].jobs_count()) == JOBS - 4
