"""Which part of the journal can be read as history, and what is needed to find a row in it.

History is the records of hot segments from a floor on: the newest without a gap, as many as the
window has room for. Their numbers continue over restarts. A segment inside the window is not
compacted; once it has left, it and everything before it is no longer history, even if the file
stays. Names of removed queues are kept while the window holds records about them; if there are too
many of those, the window shrinks.

Writes nothing. `reader` makes the rows.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.journal.format.segment import HOT, Segment
from jobyard.model.topic.cursor import HOLD_BYTES_DEFAULT, NO_HOLD

# The offset of a batch is stored if it is at least this far behind the last stored one.
POINT_BYTES: Final = 64 << 10
# Names of removed queues, each about 300 bytes of memory.
PAST_NAMES_MAX: Final = 100_000
# Names removed at once: more would delay other connections.
FORGOTTEN_AT_ONCE: Final = 10_000


@final
class PastName:
    """The name of a removed queue."""

    def __init__(self, number: i64, name: str, next_seq: i64, until: i64) -> None:
        self.number: i64 = number
        self.name: str = name
        self.next_seq: i64 = next_seq
        # All records about the queue have smaller numbers.
        self.until: i64 = until
        # Where the name is written.
        self.segment: i64 = 0


@final
class History:
    """The segments that can be read, oldest first, and the names in them."""

    def __init__(self) -> None:
        self.is_on: bool = False
        self.age_ms: i64 = 0
        self.bytes_max: i64 = 0
        self.segments: list[Segment] = []
        self.last_hot: i64 = 0
        # No record below this one can be read.
        self.floor: i64 = 0
        # No row at or above this one was lost: below the floor, the last records may be no rows.
        self.rows_floor: i64 = 0
        # All records below `next_durable` are on disk; only those below `next_hot` can be rows.
        self.next_durable: i64 = 0
        self.next_hot: i64 = 0
        # Batches that are not durable yet, and the two numbers above once each of them is.
        self._batches: list[i64] = []
        self._nexts: list[i64] = []
        self._next_hots: list[i64] = []
        self._next_hot_sealed: i64 = 0
        # The last row on disk, and the last one once each of those batches is durable.
        self.last_row: i64 = 0
        self._last_rows: list[i64] = []
        # How many rows there are up to the last one on disk, counted from any one; how many once
        # each of those batches is durable; and how many in all batches.
        self.rows_count: i64 = 0
        self._rows_counts: list[i64] = []
        self._rows_added: i64 = 0
        # By number, of all queues and of removed ones only.
        self.names: dict[int, str] = {}
        self.past: dict[int, PastName] = {}
        # Smaller in tests.
        self.past_max: i64 = PAST_NAMES_MAX
        # Records after this one stay beyond the window, as long as they need at most this much.
        self.hold_seq: i64 = NO_HOLD
        self.hold_bytes: i64 = HOLD_BYTES_DEFAULT

    def keep(self, age_ms: i64, bytes_max: i64, hold_bytes: i64 = HOLD_BYTES_DEFAULT) -> None:
        """Bound history by age and size, whichever is less; call before anything is read.

        A reader may hold `hold_bytes` beyond that.
        """
        self.hold_bytes = hold_bytes
        self.is_on = age_ms > 0 and bytes_max > 0
        self.age_ms = age_ms
        self.bytes_max = bytes_max

    # -- batches ------------------------------------------------------------------------------

    def add_batch(
        self,
        segment: Segment,
        offset: i64,
        first: i64,
        count: i64,
        newest_ms: i64,
        rows: tuple[i64, i64],
    ) -> None:
        """Register a batch of a segment, with the last row in it or before it, and their count."""
        if segment.temperature != HOT:
            return
        if segment.first_record < 0:
            segment.first_record = first
            segment.is_history = True
            self.segments.append(segment)
        segment.next_record = first + count
        last_row, rows_count = rows
        segment.last_row = max(segment.last_row, last_row)
        segment.newest_ms = newest_ms
        segment.latest_ms = max(segment.latest_ms, newest_ms)
        points = segment.points
        if not points or offset - points[-1] >= POINT_BYTES:
            points.append(offset)
            segment.point_records.append(first)
            segment.point_rows.append(self._rows_added)
        self._rows_added = rows_count

    def expect(self, segment: Segment, batch: i64, next_record: i64, rows: tuple[i64, i64]) -> None:
        """Register a batch that is being written to a segment."""
        last_row, rows_count = rows
        self._last_rows.append(last_row)
        self._rows_counts.append(rows_count)
        if segment.temperature == HOT:
            self._next_hot_sealed = next_record
        self._batches.append(batch)
        self._nexts.append(next_record)
        self._next_hots.append(self._next_hot_sealed)

    def advance(self, durable: i64) -> None:
        """Make everything up to batch `durable` readable."""
        batches = self._batches
        if not batches or batches[0] > durable:
            return
        count = 0
        for batch in batches:
            if batch > durable:
                break
            count += 1
        self.next_durable = self._nexts[count - 1]
        self.next_hot = self._next_hots[count - 1]
        self.last_row = self._last_rows[count - 1]
        self.rows_count = self._rows_counts[count - 1]
        del batches[:count]
        del self._last_rows[:count]
        del self._rows_counts[:count]
        del self._nexts[:count]
        del self._next_hots[:count]

    def recover(self, hot: list[Segment], next_record: i64) -> None:
        """Start with the hot segments found on disk, from the last gap between them on."""
        self.next_durable = next_record
        self.next_hot = next_record
        self._next_hot_sealed = next_record
        self.floor = next_record
        self.rows_floor = next_record
        self.last_hot = hot[-1].number if hot else 0
        known: dict[int, Segment] = {segment.number: segment for segment in hot}
        found: list[Segment] = []
        number = self.last_hot
        while number in known and known[number].prior != 0:
            segment = known.pop(number)
            # If all of its batches were cut, it only leads to the one before.
            if segment.first_record >= 0:
                found.append(segment)
                self.floor = segment.first_record
                # What there was before is unknown.
                self.rows_floor = segment.first_record
            number = segment.prior
        found.reverse()
        self.segments = found
        for segment in known.values():
            _leave_out(segment)

    # -- the window ---------------------------------------------------------------------------

    def trim(self, wall_ms: i64) -> None:
        """Drop segments that are too old or too much and not held; the open one stays."""
        segments = self.segments
        size: i64 = 0
        held: i64 = 0
        kept: i64 = len(segments) - 1
        while kept >= 0:
            segment = segments[kept]
            size += segment.end
            is_over = size > self.bytes_max or wall_ms - segment.newest_ms > self.age_ms
            if is_over and segment.is_sealed:
                held += segment.end
                if segment.next_record <= self.hold_seq + 1 or held > self.hold_bytes:
                    break
            kept -= 1
        self._drop(kept + 1)

    def give_way(self) -> bool:
        """Drop the oldest segment because the disk is full; return False if there is none."""
        if not self.segments or not self.segments[0].is_sealed:
            return False
        self._drop(1)
        return True

    def leave(self, segment: Segment) -> None:
        """Drop a segment and all before it; one that is being written continues from here."""
        if not segment.is_history:
            return
        place: i64 = self.segments.index(segment)
        if segment.is_sealed:
            self._drop(place + 1)
            return
        self._drop(place)
        self.floor = segment.next_record
        self.rows_floor = max(self.rows_floor, segment.last_row + 1)
        segment.points.append(segment.end)
        segment.point_records.append(segment.next_record)
        segment.point_rows.append(self._rows_added)

    def _drop(self, count: i64) -> None:
        if count <= 0:
            return
        for segment in self.segments[:count]:
            self.floor = max(self.floor, segment.next_record)
            self.rows_floor = max(self.rows_floor, segment.last_row + 1)
            _leave_out(segment)
        del self.segments[:count]
        if self.segments:
            self.floor = max(self.floor, self.segments[0].first_record)

    # -- names --------------------------------------------------------------------------------

    def name(self, number: i64, name: str) -> None:
        """Register the name of a queue."""
        if self.is_on:
            self.names[number] = name

    def retire(self, name: PastName, segment: Segment) -> None:
        """Keep the name of a removed queue, written in `segment`, while it is needed."""
        name.segment = segment.number
        segment.past_names += 1
        self.past[name.number] = name

    def keep_name_until(self, number: i64, until: i64) -> None:
        """Keep the name of a removed queue for records up to `until`, the newest of all."""
        name = self.past.get(number)
        if name is not None:
            name.until = until

    def move_name(self, name: PastName, before: Segment | None, segment: Segment) -> None:
        """Register that the name of a removed queue was written again."""
        if before is not None:
            before.past_names -= 1
        segment.past_names += 1
        name.segment = segment.number

    def forget_names(self, segments: dict[int, Segment]) -> bool:
        """Forget names that no record above the floor needs; False if there are more to forget.

        If the window needs too many names, the oldest segment leaves it; if that is the one being
        written, the part written so far.
        """
        is_done = self._forget(segments)
        if not is_done or len(self.past) <= self.past_max or not self.segments:
            return is_done
        first = self.segments[0]
        if not first.is_sealed and first.next_record <= self.floor:
            # All that is written has left; the rest is still being written.
            return True
        self.leave(first)
        return False

    def _forget(self, segments: dict[int, Segment]) -> bool:
        over: list[PastName] = []
        for name in self.past.values():
            # They are in the order in which their queues were removed.
            if name.until > self.floor or len(over) == FORGOTTEN_AT_ONCE:
                break
            over.append(name)
        for name in over:
            del self.past[name.number]
            self.names.pop(name.number, None)
            segment = segments.get(name.segment)
            if segment is not None:
                segment.past_names -= 1
        return len(over) < FORGOTTEN_AT_ONCE


def _leave_out(segment: Segment) -> None:
    segment.is_history = False
    segment.points = []
    segment.point_records = []
    segment.point_rows = []
