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
from jobyard.protocols.topics.export.jobs import JobsSource, read_states
from jobyard.protocols.topics.export.request import (
    FILTERS,
    JOBS,
    METADATA_PREFIX,
    NO_OTHERS,
    ExportRange,
    check_incarnation,
    check_parameters,
    picked_fields,
    read_columns,
    read_filter,
    read_packer,
    read_range,
)
from jobyard.protocols.topics.export.sources import (
    NOT_KNOWN,
    HistorySource,
    LogSource,
    RowPage,
    RowSource,
)
from jobyard.protocols.topics.find import log_of, no_topic, queue_of
from jobyard.protocols.topics.limits import hold_stream
from jobyard.protocols.topics.names import EVENTS_TOPIC
from jobyard.protocols.topics.records.events import is_events
from jobyard.wire.arrow.stream import (
    ARROW_STREAM,
    END,
    batch_message,
    buffers_of,
    packed_message,
    schema_message,
)
from jobyard.wire.http.request import parse_query
from jobyard.wire.json.write import write_text

if TYPE_CHECKING:
    from jobyard.protocols.topics.door import TopicsDoor
    from jobyard.protocols.topics.export.packing import PackedPage, PagePacker

# The interval between pages, for all exports together.
PAGE_MS: Final = 1


def export(door: TopicsDoor, call: HttpCall) -> None:
    """GET /v0/topics/{topic}/export."""
    name = call.params[0]
    source = _source(door, call, name, parse_query(call.request.query))
    _check_accept(call)
    # Before the range: what makes no sense is refused as such, wherever the topic ends.
    columns = read_columns(call, source.fields())
    is_nullable = query_flag(call, "nullable", otherwise=False)
    wanted = read_range(call, source, name)
    wanted.columns = columns
    wanted.is_nullable = is_nullable
    packer = read_packer(call, door.packers)
    wanted.rows = source.count(wanted.from_seq, wanted.to_seq)
    call.await_batch(source.batch())
    if call.is_head():
        call.answer_stream_head(ARROW_STREAM, wanted.headers())
        return
    hold_stream(door, call)
    _Export(door, call, source, wanted, packer)


def seq(door: TopicsDoor, call: HttpCall) -> None:
    """GET /v0/topics/{topic}/seq."""
    name = call.params[0]
    source = _source(door, call, name, None)
    asked = parse_query(call.request.query)
    ts = query_whole(asked, "ts", -1)
    if ts < 0:
        raise invalid("ts is required, in milliseconds")
    check_incarnation(asked, source, name)
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


def _source(door: TopicsDoor, call: HttpCall, name: str, asked: dict[str, str] | None) -> RowSource:
    """Return the source of the rows of a call; with the query of an export, of those it wants."""
    if name == EVENTS_TOPIC:
        if not is_events(door.yard, name):
            raise no_topic(name)
        if asked is None:
            return HistorySource(door.yard)
        check_parameters(asked, name, FILTERS)
        return HistorySource(door.yard, read_filter(asked))
    if asked is not None and "jobs" in asked:
        check_parameters(asked, name, JOBS)
        return JobsSource(door, queue_of(door.yard, name), read_states(asked["jobs"]))
    if asked is not None:
        check_parameters(asked, name, NO_OTHERS)
    log = log_of(door.yard, name)
    logs.trim(door.yard, log, call.now_ms)
    log.last_read_ms = call.now_ms
    return LogSource(door.yard, log)


def _check_accept(call: HttpCall) -> None:
    accept = call.header("accept").lower()
    if not accept or ARROW_STREAM in accept or "*/*" in accept or "application/*" in accept:
        return
    raise HttpRefused(406, "not_acceptable", f"this path answers with {ARROW_STREAM}")


@final
class _Export(Alarm, PendingCall):
    """One stream of rows. Its alarm rings when the next page may be made."""

    def __init__(
        self,
        door: TopicsDoor,
        call: HttpCall,
        source: RowSource,
        wanted: ExportRange,
        packer: PagePacker | None,
    ) -> None:
        super().__init__(0, NEVER_MS, 0)
        self._door = door
        self._call = call
        self._source = source
        self._range = wanted
        self._reached: i64 = wanted.from_seq
        self._rows: i64 = 0
        self._batch: i64 = source.batch()
        self._packer = packer
        # The page that is being compressed, and its notes.
        self._packed: PackedPage | None = None
        self._page: RowPage | None = None
        self._notes: dict[str, str] = {}
        # Read before anything is sent: damage here is a refusal, not a broken stream.
        page = self._next_page()
        call.begin_stream(self, ARROW_STREAM, wanted.headers())
        is_nullable = wanted.is_nullable
        fields = picked_fields(source.fields(), wanted.columns, is_nullable=is_nullable)
        call.send(schema_message(fields, wanted.notes()))
        self._send_page(page, call.now_ms)
        self.drained(call.now_ms)

    def ring(self, now_ms: i64) -> None:
        """Send the next page, unless another page was made in this turn."""
        if self._packed is not None:
            self._send_packed(self._packed, now_ms)
            return
        is_busy = self._packer is not None and self._packer.is_busy()
        if self._door.exported_ms >= now_ms or is_busy:
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
        is_idle = self.pos < 0 and self._packed is None
        if not self._call.is_answered and is_idle and self._call.has_room():
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
        self._packed = None
        self._page = None
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
            if self._packer is not None:
                self._page = page
                self._notes = notes
                self._packed = self._packer.pack(buffers_of(page.columns))
                self._door.yard.arm(self, now_ms + PAGE_MS)
                return
            self._await_rows()
            self._call.send(batch_message(page.columns, notes))
        self._note_sent(page, count, now_ms)

    def _send_packed(self, packed: PackedPage, now_ms: i64) -> None:
        """Send the page that was being compressed; look again soon if it still is."""
        buffers = packed.buffers()
        if buffers is None:
            self._door.yard.arm(self, now_ms + PAGE_MS)
            return
        page = self._page
        assert page is not None
        self._packed = None
        self._page = None
        self._await_rows()
        self._call.send(packed_message(page.columns, buffers, self._notes))
        self._note_sent(page, page.columns[0].count, now_ms)

    def _await_rows(self) -> None:
        if not self._range.may_have_gaps and self._source.is_settled():
            # Nothing is missing, and all rows existed when the export began.
            self._call.await_batch(self._batch)

    def _note_sent(self, page: RowPage, count: i64, now_ms: i64) -> None:
        """Note that a page was sent, and end the stream after the last one."""
        wanted = self._range
        self._rows += count
        self._reached = page.reached_seq
        if self._reached >= wanted.to_seq:
            self._end(self._source.page(wanted.to_seq, wanted.to_seq, wanted.columns))
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
