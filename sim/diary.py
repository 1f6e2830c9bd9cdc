"""The rows that a reader of history has seen, compared with what history shows later.

A row that was seen keeps its number for good, across every crash: it is there, unchanged, until the
floor passes it, and no row ever appears before a position that the reader has passed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jobyard.engine.state.history import has_history, read_history
from sim.state import Violation

if TYPE_CHECKING:
    from jobyard.engine.state.yard import Yard
    from jobyard.model.topic.history_row import HistoryRow

Row = tuple[str, str, int, str, int]

PAGE_ROWS: Final = 100


class Diary:
    """One reader, which exists as long as the disk."""

    def __init__(self) -> None:
        self._seen: dict[int, Row] = {}
        self._cursor = 0
        # If the clock was set back, a start may find more than was shown before; nothing is
        # guaranteed about that.
        self._floor = 0

    def look(self, yard: Yard) -> int:
        """Read new rows; return how many there were."""
        if not has_history(yard):
            return 0
        before = len(self._seen)
        while True:
            page = read_history(yard, self._cursor, PAGE_ROWS)
            self._floor = max(self._floor, int(page.floor))
            for row in page.rows:
                if row.seq <= self._cursor or not row.event or not row.queue:
                    raise Violation("history", f"row {row.seq} {_row(row)} after {self._cursor}")
                self._seen[int(row.seq)] = _row(row)
            self._cursor = int(page.to_seq)
            if self._cursor >= page.head_seq:
                return len(self._seen) - before

    def check(self, yard: Yard) -> None:
        """Read everything again up to the reader's position."""
        if not has_history(yard):
            return
        found: dict[int, Row] = {}
        cursor = 0
        floor = self._floor
        while cursor < self._cursor:
            page = read_history(yard, cursor, PAGE_ROWS, to_seq=self._cursor)
            floor = max(floor, int(page.floor))
            found.update((int(row.seq), _row(row)) for row in page.rows)
            if page.head_seq < self._cursor and page.to_seq >= page.head_seq:
                raise Violation("history", f"{page.head_seq} is the head, {self._cursor} was seen")
            cursor = int(page.to_seq)
        wanted = {seq: row for seq, row in self._seen.items() if seq >= floor}
        found = {seq: row for seq, row in found.items() if seq >= floor}
        self._floor = floor
        if found != wanted:
            lost = sorted(set(wanted.items()) - set(found.items()))[:2]
            new = sorted(set(found.items()) - set(wanted.items()))[:2]
            story = f"rows from {floor} to {self._cursor}: lost {lost}, new {new}"
            raise Violation("history", story)
        self._seen = wanted


def _row(row: HistoryRow) -> Row:
    return (row.event, row.queue, int(row.job_id), row.state, int(row.ts_ms))
