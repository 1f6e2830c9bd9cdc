"""Commands for streams: XADD, XRANGE, XREAD and the like, except those for consumer groups."""

from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from jobyard.model.glidemq.stored_values import FIRST_ID, LAST_ID, StreamEntry, StreamId, ValueKind
from jobyard.model.glidemq.stored_values import StreamReader as Reader
from jobyard.model.index.sorted_view import HIGHEST
from jobyard.model.limits import NEVER_MS
from jobyard.protocols.glidemq.answers import EntryArray, FoundEntries
from jobyard.protocols.glidemq.call import Call
from jobyard.protocols.glidemq.client import Blocked
from jobyard.protocols.glidemq.errors import SYNTAX, Wrong, wrong_count
from jobyard.protocols.glidemq.groups.args import READ_MAX
from jobyard.protocols.glidemq.keyspace.gather import CHANGE_UNITS
from jobyard.protocols.glidemq.keyspace.key import RedisKey
from jobyard.protocols.glidemq.long_commands import begin, pour, when_up_to_date
from jobyard.protocols.glidemq.many_arguments import (
    CountWriter,
    answer_count,
    check_streams,
    check_whole,
    for_each,
)
from jobyard.wire.resp.read import parse_integer
from jobyard.wire.resp.write import (
    write_array,
    write_bulk,
    write_integer,
    write_nil,
    write_nil_array,
    write_text,
)

BAD_ID: Final = "ERR Invalid stream ID specified as stream command argument"
TOO_SMALL: Final = (
    "ERR The ID specified in XADD is equal or smaller than the target stream top item"
)
BLOCK_MS_MAX: Final = 1 << 50
_U64: Final = (1 << 64) - 1


def id_text(entry_id: StreamId) -> str:
    """Return an id as clients write it."""
    return f"{entry_id[0]}-{entry_id[1]}"


def parse_id(text: bytes, missing: int) -> StreamId:
    """Parse an id; the part after the dash may be missing."""
    first, dash, second = text.partition(b"-")
    return _part(first), (_part(second) if dash else missing)


def _part(text: bytes) -> int:
    if not text.isdigit() or len(text) > 20 or int(text) > _U64:
        raise Wrong(BAD_ID)
    return int(text)


def _after(entry_id: StreamId) -> StreamId:
    if entry_id[1] < _U64:
        return entry_id[0], entry_id[1] + 1
    if entry_id[0] < _U64:
        return entry_id[0] + 1, 0
    raise Wrong("ERR invalid start ID for the interval")


def _before(entry_id: StreamId) -> StreamId:
    if entry_id[1] > 0:
        return entry_id[0], entry_id[1] - 1
    if entry_id[0] > 0:
        return entry_id[0] - 1, _U64
    raise Wrong("ERR invalid end ID for the interval")


# -- XADD, XTRIM, XDEL -----------------------------------------------------------------------------


@final
class Trim:
    """How much of a stream is kept: a number of entries, or those from an id on."""

    def __init__(self) -> None:
        self.most: i64 = -1
        self.least_id: StreamId | None = None

    def read(self, call: Call, at: i64) -> i64:
        """Parse `MAXLEN|MINID [=|~] threshold [LIMIT n]` at `at`; return the index after it."""
        is_length = call.is_word(at, b"MAXLEN")
        at += 1
        if call.is_word(at, b"=") or call.is_word(at, b"~"):
            at += 1
        if at >= call.count():
            raise Wrong(SYNTAX)
        if is_length:
            self.most = call.integer(at)
            if self.most < 0:
                raise Wrong("ERR The MAXLEN argument must be >= 0.")
        else:
            self.least_id = parse_id(call.arg(at), 0)
        at += 1
        if call.is_word(at, b"LIMIT"):
            call.integer(at + 1 if at + 1 < call.count() else at)
            at += 2
        return at

    def apply(self, call: Call, key: RedisKey, answer: CountWriter) -> None:
        """Remove what is not kept, then answer how much that was."""
        count = key.entries_count()
        if self.most >= 0:
            self._trim_oldest(call, key, max(count - self.most, 0), answer)
            return
        if self.least_id is None or self.least_id <= FIRST_ID:
            answer(0)
            return
        last = _before(self.least_id)
        older = key.find_entries(FIRST_ID, last, is_reversed=False)
        if older is None:
            gone = len(key.entries(FIRST_ID, last, count, is_reversed=False))
            self._trim_oldest(call, key, gone, answer)
            return
        trim = key.trim_found(older, HIGHEST)
        begin(call, trim, lambda: answer(int(trim.count)), count * CHANGE_UNITS)

    def _trim_oldest(self, call: Call, key: RedisKey, gone: i64, answer: CountWriter) -> None:
        trim = key.trim_oldest(gone) if gone > 0 else None
        if trim is None:
            for_each(call, gone, lambda start, end: _drop_oldest(call, end - start), answer)
            return
        begin(call, trim, lambda: answer(int(trim.count)), gone * CHANGE_UNITS)


def _drop_oldest(call: Call, count: int) -> int:
    key = call.found(1, ValueKind.STREAM)
    if key is not None and count > 0:
        key.drop_oldest(count)
    return count


def xadd(call: Call) -> None:
    """Add an entry."""
    check_whole(call)
    at: i64 = 2
    makes = True
    trim: Trim | None = None
    while at < call.count():
        if call.is_word(at, b"NOMKSTREAM"):
            makes = False
            at += 1
        elif call.is_word(at, b"MAXLEN") or call.is_word(at, b"MINID"):
            trim = Trim()
            at = trim.read(call, at)
        else:
            break
    fields = call.args(at + 1) if at < call.count() else []
    if not fields or len(fields) % 2 != 0:
        raise wrong_count("xadd")
    key = call.key(1, ValueKind.STREAM)
    if not makes and key.kind() == ValueKind.NONE:
        write_nil(call.out, call.proto)
        return
    entry_id = key.adopt_entry(call.arg(at), fields)
    if entry_id is None:
        entry_id = _next_id(call, call.arg(at), key.last_id())
        key.add_entry(entry_id, fields)
    shown = id_text(entry_id)
    if trim is None:
        write_text(call.out, shown)
    else:
        trim.apply(call, key, lambda _: write_text(call.out, shown))


def _next_id(call: Call, text: bytes, last: StreamId) -> StreamId:
    if text == b"*":
        return max((int(call.door.wall_ms(call.now_ms)), 0), _after(last))
    if text.endswith(b"-*"):
        ms = _part(text[:-2])
        entry_id = (ms, last[1] + 1 if ms == last[0] else 0)
    else:
        entry_id = parse_id(text, 0)
    if entry_id == FIRST_ID:
        raise Wrong("ERR The ID specified in XADD must be greater than 0-0")
    if entry_id <= last or entry_id[1] > _U64:
        raise Wrong(TOO_SMALL)
    return entry_id


def xtrim(call: Call) -> None:
    """Remove the oldest entries; answer how many."""
    if not call.is_word(2, b"MAXLEN") and not call.is_word(2, b"MINID"):
        raise Wrong(SYNTAX)
    trim = Trim()
    if trim.read(call, 2) != call.count():
        raise Wrong(SYNTAX)
    key = call.found(1, ValueKind.STREAM)
    if key is None:
        write_integer(call.out, 0)
    else:
        trim.apply(call, key, lambda gone: answer_count(call, gone))


def xdel(call: Call) -> None:
    """Remove entries; answer how many existed."""
    ids: list[StreamId] = []

    def read(start: int, end: int) -> int:
        ids.extend(parse_id(text, 0) for text in call.args_between(2 + start, 2 + end))
        return 0

    for_each(call, call.count() - 2, read, lambda _: _delete(call, ids), is_reading=True)


def _delete(call: Call, ids: list[StreamId]) -> None:
    def drop(start: int, end: int) -> int:
        key = call.found(1, ValueKind.STREAM)
        return 0 if key is None else key.drop_entries(ids[start:end])

    key = call.found(1, ValueKind.STREAM)
    when_up_to_date(
        call,
        [] if key is None else [key],
        lambda: for_each(
            call, len(ids), drop, lambda count: answer_count(call, count), CHANGE_UNITS
        ),
    )


# -- reading ---------------------------------------------------------------------------------------


def xlen(call: Call) -> None:
    """Answer with the number of entries."""
    key = call.found(1, ValueKind.STREAM)
    write_integer(call.out, 0 if key is None else key.entries_count())


def xrange(call: Call) -> None:
    """Answer with entries, the oldest first."""
    _range(call, 2, 3, is_reversed=False)


def xrevrange(call: Call) -> None:
    """Answer with entries, the newest first."""
    _range(call, 3, 2, is_reversed=True)


def _range(call: Call, first_at: i64, last_at: i64, *, is_reversed: bool) -> None:
    first = _bound(call.arg(first_at), is_first=True)
    last = _bound(call.arg(last_at), is_first=False)
    count: i64 = NEVER_MS
    if call.count() > 4:
        if call.count() != 6 or not call.is_word(4, b"COUNT"):
            raise Wrong(SYNTAX)
        count = min(max(call.integer(5), 0), NEVER_MS)
    key = call.found(1, ValueKind.STREAM)
    if count == 0 and key is not None:
        # As in Valkey.
        write_nil_array(call.out, call.proto)
        return
    if key is None or first > last:
        write_array(call.out, 0)
        return
    found = key.find_entries(first, last, is_reversed=is_reversed)
    if found is None:
        pour(call, EntryArray(key.entries(first, last, count, is_reversed=is_reversed)))
        return
    found.limit(0, count)
    begin(call, found, lambda: FoundEntries(found))


def _bound(text: bytes, *, is_first: bool) -> StreamId:
    if text == b"-":
        return FIRST_ID
    if text == b"+":
        return LAST_ID
    missing = 0 if is_first else _U64
    if text.startswith(b"("):
        entry_id = parse_id(text[1:], missing)
        return _after(entry_id) if is_first else _before(entry_id)
    return parse_id(text, missing)


def write_entries(out: BytesWriter, entries: list[StreamEntry]) -> None:
    """Append entries, each an id and its fields."""
    write_array(out, len(entries))
    for entry in entries:
        write_entry(out, entry)


def write_entry(out: BytesWriter, entry: StreamEntry) -> None:
    """Append one entry."""
    write_array(out, 2)
    write_text(out, id_text(entry.id))
    write_array(out, len(entry.fields))
    for part in entry.fields:
        write_bulk(out, part)


def write_stream_head(out: BytesWriter, count: i64, proto: i64) -> None:
    """Begin a reply by stream: a map in RESP3, pairs in RESP2."""
    if proto >= 3:
        out.write(b"%%%d\r\n" % count)
    else:
        write_array(out, count)


def xread(call: Call) -> None:
    """Answer with the entries after the given ids; wait for them if requested."""
    check_streams(call)
    count: i64 = NEVER_MS
    block_ms: i64 = -1
    at: i64 = 1
    while at < call.count() and not call.is_word(at, b"STREAMS"):
        if call.is_word(at, b"COUNT") and at + 1 < call.count():
            count = call.integer(at + 1)
            count = NEVER_MS if count <= 0 else min(count, NEVER_MS)
        elif call.is_word(at, b"BLOCK") and at + 1 < call.count():
            block_ms = _timeout(call, at + 1)
        else:
            raise Wrong(SYNTAX)
        at += 2
    names = call.args(at + 1)
    if not names or len(names) % 2 != 0:
        raise Wrong(
            "ERR Unbalanced 'xread' list of streams: for each stream key an ID or '$' must be "
            "specified."
        )
    half = len(names) // 2
    reading = StreamRead(call, names[:half], min(count, READ_MAX))
    keys = [call.key(at + 1 + place, ValueKind.STREAM) for place in range(half)]
    for place in range(half):
        reading.start(keys[place], names[half + place])
    when_up_to_date(call, keys, lambda: _read(call, reading, block_ms))


def _timeout(call: Call, at: i64) -> i64:
    timeout = parse_integer(call.arg(at))
    if timeout is None or timeout > BLOCK_MS_MAX:
        raise Wrong("ERR timeout is not an integer or out of range")
    if timeout < 0:
        raise Wrong("ERR timeout is negative")
    return timeout


@final
class Waker(Reader):
    """Wakes the connection of a blocked read."""

    def __init__(self, call: Call) -> None:
        self._session = call.session

    def stream_grew(self) -> None:
        """Let the session try again, in this turn."""
        self._session.peer.wake()


@final
class StreamRead(Blocked):
    """An XREAD: its streams, and the id after which each is read."""

    def __init__(self, call: Call, names: list[bytes], count: i64) -> None:
        self._call = call
        self._names = names
        self._count: i64 = count
        self._ids: list[StreamId] = []
        self._watched: list[RedisKey] = []
        self._waker = Waker(call)

    def start(self, key: RedisKey, text: bytes) -> None:
        """Read the next stream from after an id, or from its end."""
        if text == b"$":
            self._ids.append(key.last_id() if key.kind() != ValueKind.NONE else FIRST_ID)
        elif text == b"+":
            last = key.last_id() if key.kind() != ValueKind.NONE else FIRST_ID
            self._ids.append(_before(last) if last > FIRST_ID else FIRST_ID)
        else:
            self._ids.append(parse_id(text, 0))

    def try_again(self, now_ms: i64) -> bool:
        """Answer if any stream has entries after its id."""
        call = self._call
        found: list[list[StreamEntry]] = []
        left: i64 = READ_MAX
        for name, entry_id in zip(self._names, self._ids, strict=True):
            key = call.door.keyed(name, now_ms)
            if key.kind() != ValueKind.STREAM or entry_id == LAST_ID or left <= 0:
                found.append([])
            else:
                first = _after(entry_id)
                most = min(self._count, left)
                found.append(key.entries(first, LAST_ID, most, is_reversed=False))
                left -= len(found[-1])
        count = len([entries for entries in found if entries])
        if count == 0:
            return False
        write_stream_head(call.out, count, call.proto)
        for name, entries in zip(self._names, found, strict=True):
            if entries:
                if call.proto < 3:
                    write_array(call.out, 2)
                write_bulk(call.out, name)
                write_entries(call.out, entries)
        return True

    def wait(self) -> None:
        """Watch the streams for new entries."""
        call = self._call
        try:
            for name in self._names:
                key = call.door.keyed(name, call.now_ms)
                key.watch(self._waker)
                self._watched.append(key)
        except Wrong:
            # One of them cannot be watched: stop watching the others.
            self.leave()
            raise

    def give_up(self) -> None:
        """Answer that nothing came."""
        write_nil_array(self._call.out, self._call.proto)

    def leave(self) -> None:
        """Stop watching the streams."""
        for key in self._watched:
            key.unwatch(self._waker)
        self._watched = []


def _read(call: Call, reading: StreamRead, block_ms: i64) -> None:
    """Answer with the entries there are, or wait for some."""
    if reading.try_again(call.now_ms):
        return
    if block_ms < 0 or not call.may_wait:
        reading.give_up()
        return
    reading.wait()
    call.session.block(reading, NEVER_MS if block_ms == 0 else call.now_ms + block_ms)
