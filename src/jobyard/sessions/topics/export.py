"""All rows of a range, column by column, for tools that read millions: an Arrow stream.

A range is `(from_seq, to_seq]`, and what is sent is what it held when it was asked for. How many
rows that were stands in the head, how many were sent at the end; a stream that must leave out what
caps or time took meanwhile is broken off, unless its reader has said that gaps do not matter.

Made page by page: none before the one before has left, and one in a millisecond for all readers
together, so that a reader who wants everything takes no more than a share of each turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, trait

from jobyard.engine import logs
from jobyard.engine.alarm import Alarm
from jobyard.engine.log_columns import columns_between, count_between
from jobyard.model.limits import NEVER_MS
from jobyard.sessions.http.call import Call, HttpRefused, Pending
from jobyard.sessions.topics.answers import begin, finish, put_bool, put_int
from jobyard.sessions.topics.body import invalid, query_flag, query_whole
from jobyard.sessions.topics.find import incarnation_of, log_of
from jobyard.wire.arrow import (
    ARROW_STREAM,
    END,
    INT64,
    TIMESTAMP,
    UTF8,
    Field,
    batch_message,
    schema_message,
)
from jobyard.wire.http1 import parse_query
from jobyard.wire.json_write import write_text

if TYPE_CHECKING:
    from jobyard.model.columns import Column
    from jobyard.model.log import LogTopic
    from jobyard.sessions.topics.door import TopicsDoor

PAGE_ROWS: Final = 4096
PAGE_BYTES: Final = 1 << 20
# The pace of all exports together.
PAGE_MS: Final = 1
NOTE: Final = "topics."

LOG_FIELDS: Final = [
    Field("seq", INT64),
    Field("ts", TIMESTAMP),
    Field("tag", UTF8, is_nullable=True),
    Field("node", UTF8, is_nullable=True),
    Field("meta", UTF8, is_nullable=True),
    Field("data", UTF8),
]


@final
class Page:
    """Some rows, and how far all before them have been looked at."""

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

    def is_whole(self, after_seq: i64) -> bool:
        """Tell whether nothing behind a seq was lost that nobody asked to go."""
        raise NotImplementedError

    def is_gone(self) -> bool:
        """Tell whether there are no rows any more, and never will be."""
        raise NotImplementedError

    def page(self, after_seq: i64, to_seq: i64) -> Page:
        """Return the next rows behind a seq; none only if there is none up to `to_seq`."""
        raise NotImplementedError


@final
class _LogSource(Source):
    """The records of a log."""

    def __init__(self, door: TopicsDoor, log: LogTopic) -> None:
        self._journal = door.yard.journal
        self._log = log

    def fields(self) -> list[Field]:
        """Return what columns there are."""
        return LOG_FIELDS

    def is_whole(self, after_seq: i64) -> bool:
        """Tell whether neither caps nor time have taken anything behind a seq."""
        return after_seq + 1 >= self._log.evict_floor()

    def is_gone(self) -> bool:
        """Tell whether the log was removed."""
        return self._log.is_dropped

    def page(self, after_seq: i64, to_seq: i64) -> Page:
        """Return the next records."""
        found = columns_between(self._journal, self._log, after_seq, to_seq, PAGE_ROWS, PAGE_BYTES)
        page = Page(found.columns(), found.reached_seq)
        page.first_seq = found.first_seq
        page.last_seq = found.last_seq
        return page


@final
class Range:
    """What is asked for, and what there is of it."""

    def __init__(self, name: str, incarnation: str, from_seq: i64, to_seq: i64) -> None:
        self.name = name
        self.incarnation = incarnation
        self.from_seq: i64 = from_seq
        self.to_seq: i64 = to_seq
        self.rows: i64 = 0
        self.may_have_gaps: bool = False
        # What was lost before it was asked for: the first seq that was not.
        self.floor: i64 = 0

    def notes(self) -> dict[str, str]:
        """Return what a reader of the schema is told."""
        notes = {
            f"{NOTE}topic": self.name,
            f"{NOTE}incarnation": self.incarnation,
            f"{NOTE}from_seq": str(int(self.from_seq)),
            f"{NOTE}to_seq": str(int(self.to_seq)),
            f"{NOTE}expected_rows": str(int(self.rows)),
        }
        if self.floor > 0:
            notes[f"{NOTE}gap_to"] = str(int(self.floor) - 1)
        return notes

    def headers(self) -> bytes:
        """Return the same as lines of a head."""
        lines = [
            f"Topics-Incarnation: {self.incarnation}\r\n",
            f"Topics-From-Seq: {int(self.from_seq)}\r\n",
            f"Topics-To-Seq: {int(self.to_seq)}\r\n",
            f"Topics-Expected-Rows: {int(self.rows)}\r\n",
        ]
        if self.floor > 0:
            lines.append(f"Topics-Gap-To: {int(self.floor) - 1}\r\n")
        lines.append("Trailer: Topics-Rows, Topics-Lost-Rows\r\nCache-Control: no-store\r\n")
        return "".join(lines).encode()


def export(door: TopicsDoor, call: Call) -> None:
    """GET /v0/topics/{topic}/export."""
    log = log_of(door.yard, call.params[0])
    _check_accept(call)
    asked = parse_query(call.request.query)
    logs.trim(door.yard, log, call.now_ms)
    _check_incarnation(asked, log)
    wanted = _read_range(call, asked, log)
    wanted.rows = count_between(log, wanted.from_seq, wanted.to_seq)
    log.last_read_ms = call.now_ms
    call.await_batch(log.batch)
    if call.request.method == "HEAD":
        call.answer_stream_head(ARROW_STREAM, wanted.headers())
        return
    _Export(door, call, _LogSource(door, log), wanted)


def seq(door: TopicsDoor, call: Call) -> None:
    """GET /v0/topics/{topic}/seq."""
    log = log_of(door.yard, call.params[0])
    asked = parse_query(call.request.query)
    ts = query_whole(asked, "ts", -1)
    if ts < 0:
        raise invalid("ts must be given, in milliseconds")
    _check_incarnation(asked, log)
    found = logs.seq_at(door.yard, log, ts)
    out = begin(log.name)
    put_int(out, b',"seq":', found)
    put_int(out, b',"from_seq":', found - 1)
    put_bool(out, b',"found":', value=found < log.next_seq)
    put_int(out, b',"head_seq":', log.next_seq - 1)
    put_int(out, b',"earliest_seq":', log.earliest_seq)
    out.write(b',"incarnation":')
    write_text(out, incarnation_of(log))
    call.await_batch(log.batch)
    finish(call, out)


def _check_accept(call: Call) -> None:
    accept = call.header("accept").lower()
    if not accept or ARROW_STREAM in accept or "*/*" in accept or "application/*" in accept:
        return
    raise HttpRefused(406, "not_acceptable", f"the answer is {ARROW_STREAM}")


def _check_incarnation(asked: dict[str, str], log: LogTopic) -> None:
    wanted = asked.get("incarnation", "")
    if wanted and wanted != incarnation_of(log):
        message = f"{log.name} was made anew since then"
        raise HttpRefused(409, "wrong_incarnation", message, _bounds(log))


def _bounds(log: LogTopic) -> dict[str, object]:
    """Return what a reader is told who asks for what is not there."""
    return {
        "incarnation": incarnation_of(log),
        "head_seq": int(log.next_seq) - 1,
        "earliest_seq": int(log.earliest_seq),
    }


def _read_range(call: Call, asked: dict[str, str], log: LogTopic) -> Range:
    """Return the range a call asks for, if the log holds it."""
    head = log.next_seq - 1
    floor = log.evict_floor()
    from_seq = query_whole(asked, "from_seq", floor - 1)
    to_seq = query_whole(asked, "to_seq", max(head, from_seq))
    if to_seq < from_seq:
        raise invalid("to_seq must not be below from_seq")
    if to_seq > head:
        message = f"the newest record is {int(head)}"
        raise HttpRefused(416, "out_of_range", message, _bounds(log))
    wanted = Range(log.name, incarnation_of(log), from_seq, to_seq)
    wanted.may_have_gaps = query_flag(call, "allow_gap", otherwise=False)
    if from_seq + 1 < floor:
        wanted.floor = floor
        if not wanted.may_have_gaps:
            detail = _bounds(log)
            detail["gap_from"] = int(from_seq) + 1
            detail["gap_to"] = int(min(floor - 1, to_seq))
            detail["reason"] = logs.gap_reason(log.cap_floor, log.ttl_floor, from_seq)
            message = "some of the range is gone; allow_gap=true gives the rest"
            raise HttpRefused(410, "gone", message, detail)
    return wanted


@final
class _Export(Alarm, Pending):
    """One stream of rows. Rings when its next page may be made."""

    def __init__(self, door: TopicsDoor, call: Call, source: Source, wanted: Range) -> None:
        super().__init__(0, NEVER_MS, 0)
        self._door = door
        self._call = call
        self._source = source
        self._range = wanted
        self._reached: i64 = wanted.from_seq
        self._rows: i64 = 0
        call.begin_stream(self, ARROW_STREAM, wanted.headers())
        call.send(schema_message(source.fields(), wanted.notes()))
        self._send_page(call.now_ms)
        self.drained(call.now_ms)

    def ring(self, now_ms: i64) -> None:
        """Send the next page, if none was made in this turn."""
        if self._door.exported_ms < now_ms:
            self._send_page(now_ms)
        else:
            self._get_in_line(now_ms + PAGE_MS)

    def drained(self, now_ms: i64) -> None:
        """Have the next page made when it is this reader's turn."""
        if not self._call.is_answered and self.pos < 0 and self._call.has_room():
            self._get_in_line(now_ms)

    def _get_in_line(self, now_ms: i64) -> None:
        door = self._door
        at_ms = max(now_ms, door.export_free_ms)
        door.export_free_ms = at_ms + PAGE_MS
        door.yard.arm(self, at_ms)

    def hurry(self, now_ms: i64) -> None:
        """Go on: nothing is waited for but the reader."""

    def gone(self, now_ms: i64) -> None:  # noqa: ARG002  the trait's
        """Send no more."""
        self._door.yard.disarm(self)

    def _send_page(self, now_ms: i64) -> None:
        wanted = self._range
        source = self._source
        self._door.exported_ms = now_ms
        if source.is_gone() or not (wanted.may_have_gaps or source.is_whole(self._reached)):
            # The reader who asks again is told why.
            self._call.break_stream()
            return
        page = source.page(self._reached, wanted.to_seq)
        count = page.columns[0].count
        if count > 0:
            notes = {
                f"{NOTE}first_seq": str(int(page.first_seq)),
                f"{NOTE}last_seq": str(int(page.last_seq)),
                f"{NOTE}rows": str(int(count)),
            }
            self._call.send(batch_message(page.columns, notes))
        self._rows += count
        self._reached = page.reached_seq
        if self._reached >= wanted.to_seq:
            self._end(source.page(wanted.to_seq, wanted.to_seq))

    def _end(self, nothing: Page) -> None:
        """Tell how many rows there were, to readers of the last batch and of trailers."""
        lost = self._range.rows - self._rows
        if lost > 0:
            self._call.await_batch(self._door.yard.journal.newest())
        notes = {
            f"{NOTE}total_rows": str(int(self._rows)),
            f"{NOTE}lost_rows": str(int(lost)),
        }
        self._call.send(batch_message(nothing.columns, notes) + END)
        trailers = f"Topics-Rows: {int(self._rows)}\r\nTopics-Lost-Rows: {int(lost)}\r\n"
        self._call.end_stream(trailers.encode())
