"""The rows that a reader of history has seen, compared with what history shows later.

A row that was seen keeps its number for good, across every crash: it is there, unchanged, until the
floor passes it, and no row ever appears before a position that the reader has passed. The row that
ends a run shows the same worker, holder, door and family as the row of its claim. Each run that was
claimed is ended by exactly one row, or goes on: only durable leases stay open over a start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jobyard.engine.state.history import has_history, read_history, yard_id
from jobyard.journal.history.count import rows_up_to
from jobyard.model.topic.history_row import CLAIMED
from sim.state import Violation

if TYPE_CHECKING:
    from jobyard.engine.state.yard import Yard
    from jobyard.model.topic.history_row import HistoryRow

Row = tuple[object, ...]

PAGE_ROWS: Final = 100


class Diary:
    """One reader, which exists as long as the disk."""

    def __init__(self, *, may_skip: bool) -> None:
        self._may_skip = may_skip
        self._seen: dict[int, Row] = {}
        self._cursor = 0
        # If the clock was set back, a start may find more than was shown before; nothing is
        # guaranteed about that.
        self._floor = 0
        # The id of the yard; a repair may lose it.
        self._yard_id = ""
        # The newest claim of each job.
        self._claims: dict[int, HistoryRow] = {}
        # The run of each job that was ended last.
        self._ended: dict[int, Row] = {}

    def look(self, yard: Yard) -> int:
        """Read new rows; return how many there were."""
        if not has_history(yard):
            return 0
        before = len(self._seen)
        self._check_id(yard)
        while True:
            page = read_history(yard, self._cursor, PAGE_ROWS)
            self._floor = max(self._floor, int(page.floor))
            if page.floor > self._cursor + 1:
                # What ended these runs was missed.
                self._claims.clear()
            for row in page.rows:
                if row.seq > yard.journal.history.last_row:
                    raise Violation("history", f"row {row.seq} is beyond the last one")
                if row.seq <= self._cursor or not row.event or not row.queue:
                    raise Violation("history", f"row {row.seq} {_row(row)} after {self._cursor}")
                self._seen[int(row.seq)] = _row(row)
                self._compare(row)
            self._cursor = int(page.to_seq)
            if self._cursor >= page.head_seq:
                return len(self._seen) - before

    def _check_id(self, yard: Yard) -> None:
        if yard.journal.durable == 0:
            return
        found = yard_id(yard)
        if self._yard_id not in {"", found} and self._seen:
            raise Violation("history", f"the yard is {found}, and was {self._yard_id}")
        self._yard_id = found

    def _compare(self, row: HistoryRow) -> None:
        """Compare the row that ends a run with that of its claim, if that was written."""
        job_id = int(row.job_id)
        if row.event == CLAIMED:
            self._begin(job_id, row)
            return
        if row.lease == 0:
            if row.state == "gone":
                self._claims.pop(job_id, None)
            return
        claim = self._claims.pop(job_id, None)
        run = (int(row.lease), int(row.deliveries))
        if claim is None and self._ended.get(job_id) == run:
            raise Violation("history", f"row {row.seq} {_row(row)} ends a run a second time")
        self._ended[job_id] = run
        if claim is None or (claim.lease, claim.deliveries) != (row.lease, row.deliveries):
            return
        # A full disk goes without names.
        is_named = not self._may_skip or (claim.worker != "" and row.worker != "")
        if _run(claim) != _run(row) or (is_named and (claim.worker or "?") != row.worker):
            raise Violation("history", f"row {row.seq} {_row(row)} ends the run {_row(claim)}")

    def _begin(self, job_id: int, row: HistoryRow) -> None:
        """Note a claim; the run before it must have ended, unless a full disk took no record."""
        before = self._claims.get(job_id)
        if before is not None and before.seq >= self._floor and not self._may_skip:
            raise Violation("history", f"row {row.seq} {_row(row)} while {_row(before)} runs")
        self._claims[job_id] = row
        self._ended.pop(job_id, None)

    def start(self, yard: Yard) -> None:
        """Read what a start found; only durable leases may go on."""
        self.check(yard)
        self.look(yard)
        if self._may_skip or not has_history(yard):
            return
        for job_id, claim in self._claims.items():
            job = yard.jobs.get(job_id)
            if claim.seq >= self._floor and job is not None and job.lease is None:
                raise Violation("history", f"the run {_row(claim)} has no end after a start")

    def check(self, yard: Yard) -> None:
        """Read everything again up to the reader's position."""
        if not has_history(yard):
            return
        found: dict[int, Row] = {}
        cursor = 0
        floor = self._floor
        page_floor = -1
        while cursor < self._cursor:
            page = read_history(yard, cursor, PAGE_ROWS, to_seq=self._cursor)
            page_floor = int(page.floor)
            floor = max(floor, int(page.floor))
            found.update((int(row.seq), _row(row)) for row in page.rows)
            if page.head_seq < self._cursor and page.to_seq >= page.head_seq:
                raise Violation("history", f"{page.head_seq} is the head, {self._cursor} was seen")
            cursor = int(page.to_seq)
        if floor == page_floor:
            self._check_count(yard, sum(seq >= floor for seq in found), floor)
        wanted = {seq: row for seq, row in self._seen.items() if seq >= floor}
        found = {seq: row for seq, row in found.items() if seq >= floor}
        self._floor = floor
        if found != wanted:
            lost = sorted(set(wanted.items()) - set(found.items()))[:2]
            new = sorted(set(found.items()) - set(wanted.items()))[:2]
            story = f"rows from {floor} to {self._cursor}: lost {lost}, new {new}"
            raise Violation("history", story)
        self._seen = wanted

    def _check_count(self, yard: Yard, count: int, floor: int) -> None:
        """Compare how many rows were read with how many are counted without reading them."""
        journal = yard.journal
        counted = rows_up_to(journal, self._cursor) - rows_up_to(journal, floor - 1)
        if counted != count:
            raise Violation("history", f"{count} rows from {floor} on, counted {counted}")


def _row(row: HistoryRow) -> Row:
    named = (row.event, row.queue, int(row.job_id), row.state, int(row.ts_ms))
    return (*named, *_run(row), row.worker, int(row.lease), int(row.deliveries))


def _run(row: HistoryRow) -> Row:
    # Not the holder: a durable lease that is resumed after a restart has a new one.
    return (row.door, row.family, int(row.queue_seq))
