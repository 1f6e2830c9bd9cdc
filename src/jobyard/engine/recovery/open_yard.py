"""Opens the journal on disk: reads it back into an empty yard, which can then be served.

`replay_all` changes nothing on disk. `open_yard` also cuts the torn tail and begins a new segment;
it may be interrupted at any point, and the next start does the same again.
"""

from typing import final

from mypy_extensions import i64

from jobyard.engine.jobs.obliterate import free_condemned
from jobyard.engine.recovery.replay import Replay
from jobyard.engine.state.yard import Yard
from jobyard.journal.format.segment import HeadFields
from jobyard.journal.recovery.scan import Merge, Recovery
from jobyard.journal.storage import Storage
from jobyard.model.entry import EntryKind


@final
class Recovered:
    """What a start found, for the log."""

    def __init__(self, replay: Replay, recovery: Recovery) -> None:
        self.batches_count: i64 = replay.batches_count
        self.records_count: i64 = replay.records_count
        self.superseded: list[int] = sorted(replay.superseded)
        self.cut_bytes: i64 = recovery.cut_bytes
        self.segments_count: i64 = len(recovery.segments)
        # The newest batch that was there.
        self.last_batch: i64 = recovery.next_number - 1


def replay_all(
    yard: Yard, storage: Storage, now_ms: i64, *, fills_gaps: bool = False
) -> tuple[Replay, Recovery]:
    """Read the whole journal into an empty yard, changing nothing on disk.

    Jobs that refer to a lost record refuse the start, unless `fills_gaps` replaces it.
    """
    recovery = Recovery(storage)
    recovery.survey()
    journal = yard.journal
    for segment in recovery.segments:
        journal.segments[segment.number] = segment
    replay = Replay(yard, now_ms)
    replay.gaps.prepare(storage, is_filled=fills_gaps)
    yard.is_replaying = True
    merge = Merge(storage, recovery)
    ends = {segment.number: segment.end for segment in recovery.segments}
    while True:
        found = merge.next()
        if found is None:
            break
        reader, head = found
        segment = reader.segment
        segment.end = merge.batch_offset
        replay.apply_batch(reader.data, reader.at, head, segment)
    for segment in recovery.segments:
        segment.end = max(segment.end, ends[segment.number])
    replay.finish(recovery)
    return replay, recovery


def open_yard(
    yard: Yard, storage: Storage, now_ms: i64, *, fills_gaps: bool = False, yard_id: str = ""
) -> Recovered:
    """Recover a yard from its journal and begin a new segment; after that it can be served.

    `yard_id`, which the caller has drawn, becomes the id of a data directory that has none yet.
    """
    journal = yard.journal
    replay, recovery = replay_all(yard, storage, now_ms, fills_gaps=fills_gaps)
    recovery.resume(journal)
    journal.record_base = replay.next_record
    fields = HeadFields(recovery.epoch, 0, journal.next_id)
    fields.first_record = replay.next_record
    fields.durable = recovery.next_number - 1
    recovery.mend(fields)
    for segment in recovery.segments:
        segment.is_sealed = True
    journal.start()
    recovery.clear()
    if yard_id and journal.entries.get((EntryKind.YARD_ID, b"")) is None:
        journal.set_entry(EntryKind.YARD_ID, b"", yard_id.encode())
    replay.gaps.append(journal)
    free_condemned(yard, replay.condemned, now_ms)
    for log in replay.gapped_logs():
        # After a clean stop nothing else would show that its seqs continue after a gap.
        journal.append_head(log)
    replay.abandon_runs()
    return Recovered(replay, recovery)
