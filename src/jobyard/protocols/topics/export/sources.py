"""What can be exported, and the columns it has: the records of a log, and the history of the yard.

A source tells what seqs it has, what is gone of them and why, and makes pages. Knows no calls, and
keeps nothing of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, trait

from jobyard.engine.logs import logs
from jobyard.engine.logs.columns import columns_between, count_between
from jobyard.engine.state import history
from jobyard.model.topic.history_columns import HistoryColumns
from jobyard.model.topic.log import MIXED
from jobyard.protocols.topics.find import incarnation_of
from jobyard.protocols.topics.records import events as topic
from jobyard.wire.arrow.stream import INT64, TIMESTAMP, UTF8, Field

if TYPE_CHECKING:
    from jobyard.engine.state.yard import Yard
    from jobyard.model.topic.columns import Column
    from jobyard.model.topic.log import LogTopic

PAGE_ROWS: Final = 4096
PAGE_BYTES: Final = 1 << 20
NOT_KNOWN: Final = -1

LOG_FIELDS: Final = [
    Field("seq", INT64),
    Field("ts", TIMESTAMP),
    Field("tag", UTF8, is_nullable=True),
    Field("node", UTF8, is_nullable=True),
    Field("meta", UTF8, is_nullable=True),
    Field("data", UTF8),
]
# The first of them that needs the text of records.
FIRST_TEXT: Final = 4
HISTORY_FIELDS: Final = [
    Field("seq", INT64),
    Field("ts", TIMESTAMP),
    Field("event", UTF8),
    Field("queue", UTF8),
    Field("job_id", INT64),
    Field("state", UTF8, is_nullable=True),
    Field("family", UTF8, is_nullable=True),
    Field("rank", INT64),
    Field("attempts", INT64),
    Field("deliveries", INT64),
    Field("size", INT64),
    Field("lease", INT64, is_nullable=True),
    Field("holder", INT64, is_nullable=True),
    Field("door", UTF8, is_nullable=True),
    Field("ttl_ms", INT64, is_nullable=True),
    Field("due_at", TIMESTAMP, is_nullable=True),
    Field("enqueued_at", TIMESTAMP, is_nullable=True),
    Field("available_at", TIMESTAMP, is_nullable=True),
    Field("claimed_at", TIMESTAMP, is_nullable=True),
    Field("finished_at", TIMESTAMP, is_nullable=True),
    Field("error", UTF8, is_nullable=True),
]


@final
class Page:
    """Some rows, and how far all before the next ones have been looked at."""

    def __init__(self, columns: list[Column], reached_seq: i64) -> None:
        self.columns = columns
        self.reached_seq: i64 = reached_seq
        self.first_seq: i64 = 0
        self.last_seq: i64 = 0


@trait
class Source:
    """Rows with seqs that rise."""

    def fields(self) -> list[Field]:
        """Return what columns there are."""
        raise NotImplementedError

    def incarnation(self) -> str:
        """Return what tells these rows from others that had the same name and seqs."""
        raise NotImplementedError

    def head_seq(self) -> i64:
        """Return the newest seq there is."""
        raise NotImplementedError

    def earliest_seq(self) -> i64:
        """Return the oldest seq there is."""
        raise NotImplementedError

    def floor(self) -> i64:
        """Return the seq below which something is gone that nobody asked to go."""
        raise NotImplementedError

    def gap_reason(self, after_seq: i64) -> str:
        """Return why something behind a seq is gone."""
        raise NotImplementedError

    def is_gone(self) -> bool:
        """Tell whether there are no rows any more, and never will be."""
        raise NotImplementedError

    def batch(self) -> i64:
        """Return the batch that must be safe before anyone is told of any row."""
        raise NotImplementedError

    def count(self, after_seq: i64, to_seq: i64) -> i64:
        """Return how many rows a range has; NOT_KNOWN where they would have to be read."""
        raise NotImplementedError

    def seq_at(self, ts_ms: i64) -> i64:
        """Return the first seq at a time or later, or the one after the newest."""
        raise NotImplementedError

    def page(self, after_seq: i64, to_seq: i64, columns: list[int]) -> Page:
        """Return some columns of the next rows behind a seq; it may come further without any."""
        raise NotImplementedError


@final
class LogSource(Source):
    """The records of a log."""

    def __init__(self, yard: Yard, log: LogTopic) -> None:
        self._yard = yard
        self._log = log

    def fields(self) -> list[Field]:
        """Return the columns of records."""
        return LOG_FIELDS

    def incarnation(self) -> str:
        """Return what the state of the topic shows."""
        return incarnation_of(self._log)

    def head_seq(self) -> i64:
        """Return the newest seq that was given."""
        return self._log.next_seq - 1

    def earliest_seq(self) -> i64:
        """Return the first record."""
        return self._log.earliest_seq

    def floor(self) -> i64:
        """Return how far caps and time have come."""
        return self._log.evict_floor()

    def gap_reason(self, after_seq: i64) -> str:
        """Return which of them it was."""
        return logs.gap_reason(self._log.cap_floor, self._log.ttl_floor, after_seq)

    def is_gone(self) -> bool:
        """Tell whether the log was removed."""
        return self._log.is_dropped

    def batch(self) -> i64:
        """Return the batch of the newest change."""
        return self._log.batch

    def count(self, after_seq: i64, to_seq: i64) -> i64:
        """Return how many records there are."""
        return count_between(self._log, after_seq, to_seq)

    def seq_at(self, ts_ms: i64) -> i64:
        """Return the first record of a time."""
        return logs.seq_at(self._yard, self._log, ts_ms)

    def page(self, after_seq: i64, to_seq: i64, columns: list[int]) -> Page:
        """Return the next records; none only if there is none up to `to_seq`."""
        has_text = max(columns) >= FIRST_TEXT
        found = columns_between(
            self._yard.journal,
            self._log,
            after_seq,
            to_seq,
            PAGE_ROWS,
            PAGE_BYTES,
            has_text=has_text,
        )
        page = Page(_picked(found.columns(), columns), found.reached_seq)
        page.first_seq = found.first_seq
        page.last_seq = found.last_seq
        return page


@final
class HistorySource(Source):
    """What became of jobs. All of it that can be read is on disk already, and safe."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard

    def fields(self) -> list[Field]:
        """Return the columns of history."""
        return HISTORY_FIELDS

    def incarnation(self) -> str:
        """Return the one there is."""
        return topic.INCARNATION

    def head_seq(self) -> i64:
        """Return the newest number on disk, be it a row or not."""
        return topic.head_seq(self._yard)

    def earliest_seq(self) -> i64:
        """Return the first number that can be read."""
        return topic.earliest_seq(self._yard)

    def floor(self) -> i64:
        """Return how far the window has come."""
        return topic.earliest_seq(self._yard)

    def gap_reason(self, after_seq: i64) -> str:  # noqa: ARG002  the trait's
        """Return that it was too old or too much; which of both, nobody has noted."""
        return MIXED

    def is_gone(self) -> bool:
        """Tell that there always is one."""
        return False

    def batch(self) -> i64:
        """Return none."""
        return 0

    def count(self, after_seq: i64, to_seq: i64) -> i64:
        """Return that nobody has counted: not every number is a row."""
        return 0 if after_seq >= to_seq else NOT_KNOWN

    def seq_at(self, ts_ms: i64) -> i64:
        """Return the first row of a time."""
        return history.seq_at(self._yard, ts_ms)

    def page(self, after_seq: i64, to_seq: i64, columns: list[int]) -> Page:
        """Return the next rows that are found in so much of the journal."""
        found = history.read_history(self._yard, after_seq, PAGE_ROWS, PAGE_BYTES, to_seq)
        made = HistoryColumns()
        for row in found.rows:
            made.add(row)
        page = Page(_picked(made.columns(), columns), min(found.to_seq, to_seq))
        if found.rows:
            page.first_seq = found.rows[0].seq
            page.last_seq = found.rows[-1].seq
        return page


def _picked(columns: list[Column], places: list[int]) -> list[Column]:
    return [columns[place] for place in places]
