"""Sources of an export and their columns: the records of a log, and the history of the yard.

A source reports its seqs, which of them were removed and why, and makes pages. It does not know
calls, and has no state of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, trait

from jobyard.engine.logs import logs
from jobyard.engine.logs.columns import RecordText, columns_between, count_between
from jobyard.engine.logs.read import gap_reason
from jobyard.engine.state import history
from jobyard.model.topic.history_columns import HistoryColumns
from jobyard.model.topic.log import MIXED, incarnation_of
from jobyard.protocols.topics.records import events as topic
from jobyard.wire.arrow.stream import BINARY, INT64, TIMESTAMP, UTF8, ArrowField

if TYPE_CHECKING:
    from jobyard.engine.state.yard import Yard
    from jobyard.journal.history.filter import HistoryFilter
    from jobyard.model.topic.columns import Column
    from jobyard.model.topic.log import LogTopic

PAGE_ROWS: Final = 4096
PAGE_BYTES: Final = 1 << 20
NOT_KNOWN: Final = -1
# The data once more, as bytes: only for readers that name the column.
VALUE_FIELD: Final = "value"

LOG_FIELDS: Final = [
    ArrowField("seq", INT64),
    ArrowField("ts", TIMESTAMP),
    ArrowField("tag", UTF8, is_nullable=True),
    ArrowField("node", UTF8, is_nullable=True),
    ArrowField("meta", UTF8, is_nullable=True),
    ArrowField("data", UTF8),
    ArrowField(VALUE_FIELD, BINARY),
]
# What the text of records is read for, by column.
LOG_TEXTS: Final = {4: RecordText.META, 5: RecordText.DATA, 6: RecordText.VALUES}
HISTORY_FIELDS: Final = [
    ArrowField("seq", INT64),
    ArrowField("ts", TIMESTAMP),
    ArrowField("event", UTF8),
    ArrowField("queue", UTF8),
    ArrowField("job_id", INT64),
    ArrowField("state", UTF8, is_nullable=True),
    ArrowField("family", UTF8, is_nullable=True),
    ArrowField("rank", INT64),
    ArrowField("attempts", INT64),
    ArrowField("deliveries", INT64),
    ArrowField("size", INT64),
    ArrowField("lease", INT64, is_nullable=True),
    ArrowField("holder", INT64, is_nullable=True),
    ArrowField("door", UTF8, is_nullable=True),
    ArrowField("ttl_ms", INT64, is_nullable=True),
    ArrowField("due_at", TIMESTAMP, is_nullable=True),
    ArrowField("enqueued_at", TIMESTAMP, is_nullable=True),
    ArrowField("available_at", TIMESTAMP, is_nullable=True),
    ArrowField("claimed_at", TIMESTAMP, is_nullable=True),
    ArrowField("finished_at", TIMESTAMP, is_nullable=True),
    ArrowField("error", UTF8, is_nullable=True),
    ArrowField("worker", UTF8, is_nullable=True),
    ArrowField("queue_seq", INT64, is_nullable=True),
    ArrowField("client_id", UTF8, is_nullable=True),
    ArrowField("name", UTF8, is_nullable=True),
    ArrowField("origin_id", INT64, is_nullable=True),
    ArrowField("origin_queue", UTF8, is_nullable=True),
    ArrowField("reason", UTF8, is_nullable=True),
    ArrowField("letter_topic", UTF8, is_nullable=True),
    ArrowField("letter_seq", INT64, is_nullable=True),
]


@final
class RowPage:
    """Some rows, and the seq up to which the source has been read."""

    def __init__(self, columns: list[Column], reached_seq: i64) -> None:
        self.columns = columns
        self.reached_seq: i64 = reached_seq
        self.first_seq: i64 = 0
        self.last_seq: i64 = 0


@trait
class RowSource:
    """Rows with increasing seqs."""

    def fields(self) -> list[ArrowField]:
        """Return the columns."""
        raise NotImplementedError

    def incarnation(self) -> str:
        """Return the id that distinguishes these rows from older ones with the same seqs."""
        raise NotImplementedError

    def head_seq(self) -> i64:
        """Return the newest seq."""
        raise NotImplementedError

    def earliest_seq(self) -> i64:
        """Return the oldest seq."""
        raise NotImplementedError

    def floor(self) -> i64:
        """Return the seq below which rows were removed without a delete request."""
        raise NotImplementedError

    def gap_reason(self, after_seq: i64) -> str:
        """Return why rows after a seq were removed."""
        raise NotImplementedError

    def is_gone(self) -> bool:
        """Return whether the source was removed."""
        raise NotImplementedError

    def batch(self) -> i64:
        """Return the batch that must be safe before any row is sent."""
        raise NotImplementedError

    def is_settled(self) -> bool:
        """Return whether rows are sent as they were at the time of the request."""
        return True

    def count(self, after_seq: i64, to_seq: i64) -> i64:
        """Return the number of rows in a range; NOT_KNOWN if that needs reading them."""
        raise NotImplementedError

    def seq_at(self, ts_ms: i64) -> i64:
        """Return the first seq at or after a time; the next seq if there is none."""
        raise NotImplementedError

    def page(self, after_seq: i64, to_seq: i64, columns: list[int]) -> RowPage:
        """Return columns of the next rows after a seq; it may advance without finding rows."""
        raise NotImplementedError


@final
class LogSource(RowSource):
    """The records of a log."""

    def __init__(self, yard: Yard, log: LogTopic) -> None:
        self._yard = yard
        self._log = log

    def fields(self) -> list[ArrowField]:
        """Return the columns of records."""
        return LOG_FIELDS

    def incarnation(self) -> str:
        """Return the incarnation of the log."""
        return incarnation_of(self._log)

    def head_seq(self) -> i64:
        """Return the newest seq that was assigned."""
        return self._log.next_seq - 1

    def earliest_seq(self) -> i64:
        """Return the seq of the oldest record."""
        return self._log.earliest_seq

    def floor(self) -> i64:
        """Return the seq below which caps and TTL have removed records."""
        return self._log.evict_floor()

    def gap_reason(self, after_seq: i64) -> str:
        """Return whether it was the cap, the TTL or both."""
        return gap_reason(self._log.cap_floor, self._log.ttl_floor, after_seq)

    def is_gone(self) -> bool:
        """Return whether the log was removed."""
        return self._log.is_dropped

    def batch(self) -> i64:
        """Return the batch of the newest change."""
        return self._log.batch

    def count(self, after_seq: i64, to_seq: i64) -> i64:
        """Return the number of records."""
        return count_between(self._log, after_seq, to_seq)

    def seq_at(self, ts_ms: i64) -> i64:
        """Return the seq of the first record at or after a time."""
        return logs.seq_at(self._yard, self._log, ts_ms)

    def page(self, after_seq: i64, to_seq: i64, columns: list[int]) -> RowPage:
        """Return the next records; none only if there are none up to `to_seq`."""
        wanted = 0
        for place in columns:
            wanted |= LOG_TEXTS.get(place, 0)
        found = columns_between(
            self._yard.journal,
            self._log,
            after_seq,
            to_seq,
            PAGE_ROWS,
            PAGE_BYTES,
            wanted,
        )
        page = RowPage(_picked(found.columns(), columns), found.reached_seq)
        page.first_seq = found.first_seq
        page.last_seq = found.last_seq
        return page


@final
class HistorySource(RowSource):
    """The history of jobs, all of it or some rows. Only durable rows can be read."""

    def __init__(self, yard: Yard, choice: HistoryFilter | None = None) -> None:
        self._yard = yard
        self._choice = choice

    def fields(self) -> list[ArrowField]:
        """Return the columns of history."""
        return HISTORY_FIELDS

    def incarnation(self) -> str:
        """Return the id of the data directory, which has one history for all its life."""
        return history.yard_id(self._yard)

    def head_seq(self) -> i64:
        """Return the newest durable number, which may not be a row."""
        return topic.head_seq(self._yard)

    def earliest_seq(self) -> i64:
        """Return the oldest number that can be read."""
        return topic.earliest_seq(self._yard)

    def floor(self) -> i64:
        """Return the start of the window of history."""
        return topic.earliest_seq(self._yard)

    def gap_reason(self, after_seq: i64) -> str:  # noqa: ARG002  the trait's
        """Return MIXED: whether age or size removed a row is not recorded."""
        return MIXED

    def is_gone(self) -> bool:
        """Return that history always exists."""
        return False

    def batch(self) -> i64:
        """Return 0: rows are durable already."""
        return 0

    def count(self, after_seq: i64, to_seq: i64) -> i64:
        """Return NOT_KNOWN unless the range is empty: not every number is a row."""
        return 0 if after_seq >= to_seq else NOT_KNOWN

    def seq_at(self, ts_ms: i64) -> i64:
        """Return the seq of the first row at or after a time."""
        return history.seq_at(self._yard, ts_ms)

    def page(self, after_seq: i64, to_seq: i64, columns: list[int]) -> RowPage:
        """Return the rows found in the next PAGE_BYTES of the journal."""
        found = history.read_history(
            self._yard, after_seq, PAGE_ROWS, PAGE_BYTES, to_seq, self._choice
        )
        made = HistoryColumns()
        for row in found.rows:
            made.add(row)
        page = RowPage(_picked(made.columns(), columns), min(found.to_seq, to_seq))
        if found.rows:
            page.first_seq = found.rows[0].seq
            page.last_seq = found.rows[-1].seq
        return page


def _picked(columns: list[Column], places: list[int]) -> list[Column]:
    return [columns[place] for place in places]
