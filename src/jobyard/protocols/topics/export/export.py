"""Exports a range of rows as an Arrow stream of columns, for tools that read millions of rows.

A range is `(from_seq, to_seq]`; the stream sends the rows it held at the time of the request. The
head gives the expected number of rows, the end of the stream the number sent. If caps or the TTL
remove rows meanwhile, the stream is broken off, unless the reader allows gaps.

Pages are made one by one: each after the previous one has left, and one per millisecond for all
readers together, so that an export of everything takes only a share of each turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from jobyard.engine.logs import logs
from jobyard.engine.state.timers import Alarm
from jobyard.errors import TextDamaged
from jobyard.model.limits import NEVER_MS
from jobyard.protocols.http.call import HttpCall, HttpRefused, PendingCall
from jobyard.protocols.topics.answers import begin, finish, put_bool, put_int
from jobyard.protocols.topics.body import invalid, query_flag, query_whole
from jobyard.protocols.topics.export.sources import (
    NOT_KNOWN,
    HistorySource,
    LogSource,
    RowPage,
    RowSource,
)
from jobyard.protocols.topics.find import log_of, no_topic
from jobyard.protocols.topics.limits import hold_stream
from jobyard.protocols.topics.names import EVENTS_TOPIC
from jobyard.protocols.topics.records.events import is_events
from jobyard.wire.arrow.stream import ARROW_STREAM, END, batch_message, schema_message
from jobyard.wire.http.request import parse_query
from jobyard.wire.json.write import write_text

if TYPE_CHECKING:
    from jobyard.protocols.topics.door import TopicsDoor

# The interval between pages, for all exports together.
PAGE_MS: Final = 1
METADATA_PREFIX: Final = "topics."


@final
class ExportRange:
    """The requested range, and what exists of it."""

    def __init__(self, name: str, incarnation: str, from_seq: i64, to_seq: i64) -> None:
        self.name = name
        self.incarnation = incarnation
        self.from_seq: i64 = from_seq
        self.to_seq: i64 = to_seq
        self.rows: i64 = NOT_KNOWN
        self.may_have_gaps: bool = False
        # The last seq of rows that were removed before the request.
        self.gap_to: i64 = 0
        # Indexes of the requested columns.
        self.columns: list[int] = []

    def notes(self) -> dict[str, str]:
        """Return the metadata of the Arrow schema."""
        notes = {
            f"{METADATA_PREFIX}topic": self.name,
            f"{METADATA_PREFIX}incarnation": self.incarnation,
            f"{METADATA_PREFIX}from_seq": str(int(self.from_seq)),
            f"{METADATA_PREFIX}to_seq": str(int(self.to_seq)),
        }
        if self.rows != NOT_KNOWN:
            notes[f"{METADATA_PREFIX}expected_rows"] = str(int(self.rows))
        if self.gap_to > 0:
            notes[f"{METADATA_PREFIX}gap_to"] = str(int(self.gap_to))
        return notes

    def headers(self) -> bytes:
        """Return the same as HTTP header lines."""
        lines = [
            f"Topics-Incarnation: {self.incarnation}\r\n",
            f"Topics-From-Seq: {int(self.from_seq)}\r\n",
            f"Topics-To-Seq: {int(self.to_seq)}\r\n",
        ]
        trailers = "Topics-Rows"
        if self.rows != NOT_KNOWN:
            lines.append(f"Topics-Expected-Rows: {int(self.rows)}\r\n")
            trailers += ", Topics-Lost-Rows"
        if self.gap_to > 0:
            lines.append(f"Topics-Gap-To: {int(self.gap_to)}\r\n")
        lines.append(f"Trailer: {trailers}\r\nCache-Control: no-store\r\n")
        return "".join(lines).encode()


def export(door: TopicsDoor, call: HttpCall) -> None:
    """GET /v0/topics/{topic}/export."""
    name = call.params[0]
    source = _source(door, call, name)
    _check_accept(call)
    wanted = _read_range(call, source, name)
    wanted.columns = _read_columns(call, source)
    wanted.rows = source.count(wanted.from_seq, wanted.to_seq)
    call.await_batch(source.batch())
    if call.is_head():
        call.answer_stream_head(ARROW_STREAM, wanted.headers())
        return
    hold_stream(door, call)
    _Export(door, call, source, wanted)


def seq(door: TopicsDoor, call: HttpCall) -> None:
    """GET /v0/topics/{topic}/seq."""
    name = call.params[0]
    source = _source(door, call, name)
    asked = parse_query(call.request.query)
    ts = query_whole(asked, "ts", -1)
    if ts < 0:
        raise invalid("ts is required, in milliseconds")
    _check_incarnation(asked, source, name)
    found = source.seq_at(ts)
    out = begin(name)
    put_int(out, b',"seq":', found)
    put_int(out, b',"from_seq":', found - 1)
    put_bool(out, b',"found":', value=found <= source.head_seq())
    put_int(out, b',"head_seq":', source.head_seq())
    put_int(out, b',"earliest_seq":', source.earliest_seq())
    out.write(b',"incarnation":')
    write_text(out, source.incarnation())
    call.await_batch(source.batch())
    finish(call, out)


def _source(door: TopicsDoor, call: HttpCall, name: str) -> RowSource:
    """Return the source of the rows of a call."""
    if name == EVENTS_TOPIC:
        if not is_events(door.yard, name):
            raise no_topic(name)
        return HistorySource(door.yard)
    log = log_of(door.yard, name)
    logs.trim(door.yard, log, call.now_ms)
    log.last_read_ms = call.now_ms
    return LogSource(door.yard, log)


def _check_accept(call: HttpCall) -> None:
    accept = call.header("accept").lower()
    if not accept or ARROW_STREAM in accept or "*/*" in accept or "application/*" in accept:
        return
    raise HttpRefused(406, "not_acceptable", f"this path answers with {ARROW_STREAM}")


def _check_incarnation(asked: dict[str, str], source: RowSource, name: str) -> None:
    wanted = asked.get("incarnation", "")
    if wanted and wanted != source.incarnation():
        message = f"{name} was deleted and created again since then"
        raise HttpRefused(409, "wrong_incarnation", message, _bounds(source))


def _bounds(source: RowSource) -> dict[str, object]:
    """Return the error detail that describes what the source has."""
    return {
        "incarnation": source.incarnation(),
        "head_seq": int(source.head_seq()),
        "earliest_seq": int(source.earliest_seq()),
    }


def _read_range(call: HttpCall, source: RowSource, name: str) -> ExportRange:
    """Return the range of a call; refuse it if the source does not have it."""
    asked = parse_query(call.request.query)
    _check_incarnation(asked, source, name)
    head = source.head_seq()
    floor = source.floor()
    from_seq = query_whole(asked, "from_seq", max(floor - 1, 0))
    to_seq = query_whole(asked, "to_seq", max(head, from_seq))
    if to_seq < from_seq:
        raise invalid("to_seq must not be less than from_seq")
    if to_seq > max(head, 0):
        message = f"to_seq is beyond the newest seq, {int(head)}"
        raise HttpRefused(416, "out_of_range", message, _bounds(source))
    wanted = ExportRange(name, source.incarnation(), from_seq, to_seq)
    wanted.may_have_gaps = query_flag(call, "allow_gap", otherwise=False)
    if from_seq + 1 < floor and from_seq < to_seq:
        wanted.gap_to = min(floor - 1, to_seq)
        if not wanted.may_have_gaps:
            detail = _bounds(source)
            detail["gap_from"] = int(from_seq) + 1
            detail["gap_to"] = int(wanted.gap_to)
            detail["reason"] = source.gap_reason(from_seq)
            message = "part of the range was removed; allow_gap=true exports the rest"
            raise HttpRefused(410, "gone", message, detail)
    return wanted


def _read_columns(call: HttpCall, source: RowSource) -> list[int]:
    """Return the indexes of the columns that a call names, in its order; default: all columns."""
    names = [field.name for field in source.fields()]
    word = parse_query(call.request.query).get("columns", "")
    wanted = word.split(",") if word else names
    if len(set(wanted)) < len(wanted) or not set(wanted) <= set(names):
        raise invalid(f"columns must be names from {','.join(names)}, each at most once")
    return [names.index(name) for name in wanted]


@final
class _Export(Alarm, PendingCall):
    """One stream of rows. Its alarm rings when the next page may be made."""

    def __init__(
        self, door: TopicsDoor, call: HttpCall, source: RowSource, wanted: ExportRange
    ) -> None:
        super().__init__(0, NEVER_MS, 0)
        self._door = door
        self._call = call
        self._source = source
        self._range = wanted
        self._reached: i64 = wanted.from_seq
        self._rows: i64 = 0
        self._batch: i64 = source.batch()
        # Read before anything is sent: damage here is a refusal, not a broken stream.
        page = self._next_page()
        call.begin_stream(self, ARROW_STREAM, wanted.headers())
        fields = source.fields()
        picked = [fields[place] for place in wanted.columns]
        call.send(schema_message(picked, wanted.notes()))
        self._send_page(page, call.now_ms)
        self.drained(call.now_ms)

    def ring(self, now_ms: i64) -> None:
        """Send the next page, unless another page was made in this turn."""
        if self._door.exported_ms >= now_ms:
            self._get_in_line(now_ms + PAGE_MS)
            return
        try:
            page = self._next_page()
        except TextDamaged:
            self._call.break_stream()
            return
        self._send_page(page, now_ms)

    def drained(self, now_ms: i64) -> None:
        """Schedule the next page for this reader's turn."""
        if not self._call.is_answered and self.pos < 0 and self._call.has_room():
            self._get_in_line(now_ms)

    def _get_in_line(self, now_ms: i64) -> None:
        door = self._door
        at_ms = max(now_ms, door.export_free_ms)
        door.export_free_ms = at_ms + PAGE_MS
        door.yard.arm(self, at_ms)

    def stop_waiting(self, now_ms: i64) -> None:
        """Continue: the stream waits only for its reader. Break it off if the server stops."""
        if self._call.session.door.is_draining:
            self.gone(now_ms)
            self._call.break_stream()

    def gone(self, now_ms: i64) -> None:  # noqa: ARG002  the trait's
        """Cancel the next page."""
        self._door.yard.disarm(self)

    def _next_page(self) -> RowPage:
        """Return the next rows; skip damaged ones if gaps are allowed."""
        wanted = self._range
        try:
            return self._source.page(self._reached, wanted.to_seq, wanted.columns)
        except TextDamaged as damage:
            if not wanted.may_have_gaps:
                raise
            last_seq = min(i64(damage.last_seq), wanted.to_seq)
        nothing = self._source.page(last_seq, last_seq, wanted.columns)
        nothing.reached_seq = last_seq
        return nothing

    def _send_page(self, page: RowPage, now_ms: i64) -> None:
        wanted = self._range
        source = self._source
        self._door.exported_ms = now_ms
        # Checked after reading, which may find that rows can no longer be read.
        is_whole = wanted.may_have_gaps or self._reached + 1 >= min(
            source.floor(), wanted.to_seq + 1
        )
        if source.is_gone() or not is_whole:
            # A new request gets the reason.
            self._call.break_stream()
            return
        count = page.columns[0].count
        if count > 0:
            notes = {
                f"{METADATA_PREFIX}first_seq": str(int(page.first_seq)),
                f"{METADATA_PREFIX}last_seq": str(int(page.last_seq)),
                f"{METADATA_PREFIX}rows": str(int(count)),
            }
            if not wanted.may_have_gaps:
                # Nothing is missing, and all rows existed when the export began.
                self._call.await_batch(self._batch)
            self._call.send(batch_message(page.columns, notes))
        self._rows += count
        self._reached = page.reached_seq
        if self._reached >= wanted.to_seq:
            self._end(source.page(wanted.to_seq, wanted.to_seq, wanted.columns))
        elif count == 0:
            # Nothing was sent, so `drained` will not be called.
            self._get_in_line(now_ms + PAGE_MS)

    def _end(self, nothing: RowPage) -> None:
        """Send the number of rows, in the metadata of a last batch and in the trailers."""
        notes = {f"{METADATA_PREFIX}total_rows": str(int(self._rows))}
        trailers = f"Topics-Rows: {int(self._rows)}\r\n"
        if self._range.rows != NOT_KNOWN:
            lost = self._range.rows - self._rows
            notes[f"{METADATA_PREFIX}lost_rows"] = str(int(lost))
            trailers += f"Topics-Lost-Rows: {int(lost)}\r\n"
        self._call.send(batch_message(nothing.columns, notes) + END)
        self._call.end_stream(trailers.encode())
