"""Commands for keys of any kind: SCAN, TYPE, EXISTS, DEL, EXPIRE and the like."""

from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from jobyard.engine.logs.text import TextFreeing
from jobyard.engine.state.tasks import Task
from jobyard.model.glidemq.stored_values import KIND_NAMES, ValueKind
from jobyard.model.index.sorted_view import HIGHEST
from jobyard.model.limits import NEVER_MS
from jobyard.protocols.glidemq.answers import ARRAY, TextArray
from jobyard.protocols.glidemq.call import Call
from jobyard.protocols.glidemq.errors import SYNTAX, Wrong, unknown_subcommand, wrong_count
from jobyard.protocols.glidemq.keyspace.gather import CHANGE_UNITS, FREED_AT_ONCE, FoundTask
from jobyard.protocols.glidemq.keyspace.key import STORED_AREA, KeyScan
from jobyard.protocols.glidemq.long_commands import Pieces, begin
from jobyard.protocols.glidemq.many_arguments import LOOK_UNITS, answer_count, for_each
from jobyard.wire.glob import is_match
from jobyard.wire.resp.write import (
    write_array,
    write_bulk,
    write_integer,
    write_nil,
    write_simple,
    write_text,
)

if TYPE_CHECKING:
    from jobyard.protocols.glidemq.door import GlidemqDoor

SCAN_COUNT: Final = 10
SCAN_MAX: Final = 10_000
# Keys that are checked in one unit of work.
_KEYS_PER_UNIT: Final = 4
# Cost of deleting a key that holds little.
KEY_UNITS: Final = 6
_SESSIONS_PER_UNIT: Final = 8
# Part of every key that registers a worker.
_WORKER_PART: Final = b"}:w:"


@final
class KeyDeletion(Task):
    """Deletes keys, one after the other; where a key shows jobs, its jobs in slices."""

    def __init__(self, door: "GlidemqDoor", names: list[bytes]) -> None:
        super().__init__()
        self._door = door
        self._names = names
        self._at: i64 = 0
        self._clearing: FoundTask | None = None
        self.count: i64 = 0

    def units(self, now_ms: i64) -> i64:
        """Return the approximate cost."""
        units: i64 = 0
        for name in self._names:
            key = self._door.known(name, now_ms)
            units += 1 + (0 if key is None else key.held_count() * CHANGE_UNITS)
        return units

    def step(self, most: i64, now_ms: i64) -> i64:
        """Delete some keys."""
        done: i64 = 0
        while self._at < len(self._names) and done < most:
            clearing = self._clearing
            if clearing is None:
                name = self._names[self._at]
                self._begin(name, now_ms)
                done += KEY_UNITS
                if _WORKER_PART in name:
                    self._door.sign_off(name, now_ms)
                    # Each session is asked whether the worker waits there.
                    done += len(self._door.sessions) // _SESSIONS_PER_UNIT
                continue
            left = most - done
            used = clearing.step(left, now_ms)
            done += used
            if used < left:
                self._clearing = None
                self._at += 1
        return min(done, most - 1) if self._at >= len(self._names) else max(done, most)

    def _begin(self, name: bytes, now_ms: i64) -> None:
        # Look the key up again: it may have gone since the command came.
        key = self._door.known(name, now_ms)
        if key is None or key.kind() == ValueKind.NONE:
            self._at += 1
            return
        clearing = key.clear()
        if clearing is None:
            self.count += 1 if key.delete() else 0
            self._at += 1
            return
        self.count += 1
        self._clearing = clearing


def type_of(call: Call) -> None:
    """Answer with the type of a key."""
    kind = call.door.keyed(call.arg(1), call.now_ms).kind()
    write_simple(call.out, KIND_NAMES[kind].encode())


def exists(call: Call) -> None:
    """Answer with the number of keys that exist."""

    def look(start: int, end: int) -> int:
        count = 0
        for name in call.args_between(1 + start, 1 + end):
            key = call.door.known(name, call.now_ms)
            if key is not None and key.kind() != ValueKind.NONE:
                count += 1
        return count

    for_each(
        call,
        call.count() - 1,
        look,
        lambda count: answer_count(call, count),
        LOOK_UNITS,
        is_reading=True,
    )


def delete(call: Call) -> None:
    """Delete keys; answer how many existed."""
    # All keys are looked up before the first is deleted. Newer clients delete, together with all
    # the keys of a queue, some that cannot exist here: those count as missing.
    names: list[bytes] = []

    def look(start: int, end: int) -> int:
        some = call.args_between(1 + start, 1 + end)
        names.extend([name for name in some if call.door.known(name, call.now_ms) is not None])
        return 0

    for_each(
        call,
        call.count() - 1,
        look,
        lambda _: _delete(call, names),
        LOOK_UNITS,
        is_reading=True,
    )


def _delete(call: Call, names: list[bytes]) -> None:
    deleting = KeyDeletion(call.door, names)
    units = deleting.units(call.now_ms) if call.session.units_left >= 0 else 0
    begin(call, deleting, lambda: answer_count(call, int(deleting.count)), units)


# -- expiry ----------------------------------------------------------------------------------------


def _left(call: Call) -> i64:
    """Return the remaining time of a key in ms: -2 if it does not exist, -1 if it never expires."""
    key = call.door.keyed(call.arg(1), call.now_ms)
    if key.kind() == ValueKind.NONE:
        return -2
    at_ms = key.expires_ms()
    return -1 if at_ms >= NEVER_MS else max(at_ms - call.now_ms, 0)


def ttl(call: Call) -> None:
    """Answer with the seconds until a key expires."""
    left = _left(call)
    write_integer(call.out, left if left < 0 else (left + 500) // 1000)


def pttl(call: Call) -> None:
    """Answer with the milliseconds until a key expires."""
    write_integer(call.out, _left(call))


def expiry_at(call: Call, at: i64, unit_ms: i64, *, is_wall: bool) -> i64:
    """Return the time that an argument names, relative to now or as wall time."""
    number = call.integer(at)
    if number > NEVER_MS // 2000 or number < -(NEVER_MS // 2000):
        name = call.command.text(0).lower()
        raise Wrong(f"ERR invalid expire time in '{name}' command")
    if is_wall:
        return number * unit_ms - call.yard.journal.wall_offset_ms
    return call.now_ms + number * unit_ms


def _expire(call: Call, unit_ms: i64, *, is_wall: bool) -> None:
    at_ms = expiry_at(call, 2, unit_ms, is_wall=is_wall)
    if call.count() > 4:
        raise wrong_count(call.command.text(0))
    if call.count() == 4 and call.command.word(3) not in (b"NX", b"XX", b"GT", b"LT"):
        raise Wrong(f"ERR Unsupported option {call.command.text(3)[:128]}")
    key = call.door.keyed(call.arg(1), call.now_ms)
    if key.kind() == ValueKind.NONE or not _may_expire(call, key.expires_ms(), at_ms):
        write_integer(call.out, 0)
        return
    key.expire(at_ms)
    write_integer(call.out, 1)


def _may_expire(call: Call, old_ms: i64, new_ms: i64) -> bool:
    if call.count() == 3:
        return True
    if call.is_word(3, b"NX"):
        return old_ms >= NEVER_MS
    if call.is_word(3, b"XX"):
        return old_ms < NEVER_MS
    if call.is_word(3, b"GT"):
        return old_ms < new_ms
    return new_ms < old_ms


def expire(call: Call) -> None:
    """Set the expiry of a key in seconds from now."""
    _expire(call, 1000, is_wall=False)


def pexpire(call: Call) -> None:
    """Set the expiry of a key in milliseconds from now."""
    _expire(call, 1, is_wall=False)


def expire_at(call: Call) -> None:
    """Set the expiry of a key as wall time in seconds."""
    _expire(call, 1000, is_wall=True)


def pexpire_at(call: Call) -> None:
    """Set the expiry of a key as wall time in milliseconds."""
    _expire(call, 1, is_wall=True)


def persist(call: Call) -> None:
    """Remove the expiry of a key."""
    key = call.door.keyed(call.arg(1), call.now_ms)
    if key.kind() == ValueKind.NONE or key.expires_ms() >= NEVER_MS:
        write_integer(call.out, 0)
        return
    key.expire(NEVER_MS)
    write_integer(call.out, 1)


# -- iteration -------------------------------------------------------------------------------------


def scan(call: Call) -> None:
    """Answer with a page of keys and the next cursor."""
    cursor = call.command.integer(1)
    if cursor is None or cursor < 0:
        raise Wrong("ERR invalid cursor")
    pattern = b"*"
    kind = b""
    count: i64 = SCAN_COUNT
    at: i64 = 2
    while at < call.count():
        if at + 1 == call.count():
            raise Wrong(SYNTAX)
        if call.is_word(at, b"MATCH"):
            pattern = call.arg(at + 1)
        elif call.is_word(at, b"COUNT"):
            count = call.integer(at + 1)
        elif call.is_word(at, b"TYPE"):
            kind = call.arg(at + 1).lower()
        else:
            raise Wrong(SYNTAX)
        at += 2
    if count < 1:
        raise Wrong(SYNTAX)
    scanning = ScanTask(call, cursor, pattern, min(count, SCAN_MAX))
    scanning.kind_name = kind
    begin(call, scanning, lambda: ScanPage(scanning.scan))


@final
class ScanPage(Pieces):
    """Keys that a scan found, and the next cursor."""

    def __init__(self, scan: KeyScan) -> None:
        super().__init__(len(scan.names))
        self._scan = scan

    def write_head(self, out: BytesWriter) -> None:
        """Write the cursor and the number of keys."""
        write_array(out, 2)
        write_text(out, str(int(self._scan.cursor)))
        write_array(out, self.count)

    def write_part(self, out: BytesWriter, at: i64) -> None:
        """Write one key."""
        write_bulk(out, self._scan.names[at])


@final
class ScanTask(Task):
    """Iterates over keys from a cursor on: views of queues first, then stored keys."""

    def __init__(self, call: Call, cursor: i64, pattern: bytes, count: i64) -> None:
        super().__init__()
        self.is_reading = True
        self._door = call.door
        self.scan = KeyScan(cursor, pattern, count)
        # Which type; empty for any.
        self.kind_name: bytes = b""
        self._is_counting: bool = False
        self.count: i64 = 0

    def only_count(self) -> None:
        """Only count the keys."""
        self._is_counting = True

    def step(self, most: i64, now_ms: i64) -> i64:
        """Scan some keys."""
        scan = self.scan
        done: i64 = 0
        while done < most:
            before = len(scan.names)
            if scan.cursor >= STORED_AREA:
                done += self._scan_stored(most - done, now_ms)
                scan.is_over = scan.cursor == 0
            else:
                done += max(self._door.projections.scan(scan, most - done, now_ms), 1)
                if scan.is_over and self._door.yard.stored_values.keys.count > 0:
                    scan.cursor = STORED_AREA
                    scan.is_over = False
            self._look_at_kinds(before, now_ms)
            if scan.is_over or scan.is_enough():
                return min(done, most - 1)
        return done

    def abandon(self) -> Task | None:
        """Return a task that frees the names found, if there are many."""
        names = self.scan.names
        return TextFreeing(names) if len(names) > FREED_AT_ONCE else None

    def _scan_stored(self, most: i64, now_ms: i64) -> i64:
        scan = self.scan
        count = min(most * _KEYS_PER_UNIT, max(scan.count - scan.looked, 1))
        keys = self._door.yard.stored_values.page(scan.cursor & (STORED_AREA - 1), count)
        for key in keys:
            is_wanted = not scan.pattern or is_match(scan.pattern, key.name)
            if key.expires_ms > now_ms and is_wanted:
                scan.names.append(key.name)
        scan.looked += len(keys)
        scan.cursor = STORED_AREA | keys[len(keys) - 1].key if len(keys) == count else 0
        return count // _KEYS_PER_UNIT + 1

    def _look_at_kinds(self, start: i64, now_ms: i64) -> None:
        names = self.scan.names
        if self.kind_name:
            some = [name for name in names[start:] if self._is_of_kind(name, now_ms)]
            del names[start:]
            names += some
        if self._is_counting:
            self.count += len(names)
            names.clear()

    def _is_of_kind(self, name: bytes, now_ms: i64) -> bool:
        kind = self._door.keyed(name, now_ms).kind()
        return KIND_NAMES[kind].encode() == self.kind_name


def size(call: Call) -> None:
    """Answer with the number of keys that SCAN would find."""
    scanning = ScanTask(call, 0, b"*", HIGHEST)
    scanning.only_count()
    begin(call, scanning, lambda: _answer_size(call, scanning))


def _answer_size(call: Call, scanning: ScanTask) -> None:
    write_integer(call.out, scanning.count)


def keys(call: Call) -> None:
    """Answer with all keys that match."""
    scanning = ScanTask(call, 0, call.arg(1), HIGHEST)
    begin(call, scanning, lambda: TextArray(scanning.scan.names, ARRAY, call.proto))


def memory(call: Call) -> None:
    """Answer with the approximate memory of a key."""
    if call.is_word(1, b"DOCTOR"):
        write_text(call.out, "No memory diagnostics are available.")
        return
    if not call.is_word(1, b"USAGE"):
        raise unknown_subcommand("MEMORY", call.command.text(1))
    if call.count() not in (3, 5):
        raise wrong_count("memory|usage")
    key = call.door.keyed(call.arg(2), call.now_ms)
    if key.kind() == ValueKind.NONE:
        write_nil(call.out, call.proto)
    else:
        write_integer(call.out, key.weight())


def encoding(call: Call) -> None:
    """Answer with the encoding of a key, as far as clients care."""
    if not call.is_word(1, b"ENCODING"):
        raise unknown_subcommand("OBJECT", call.command.text(1))
    if call.count() != 3:
        raise wrong_count("object|encoding")
    key = call.door.keyed(call.arg(2), call.now_ms)
    kind = key.kind()
    if kind == ValueKind.NONE:
        write_nil(call.out, call.proto)
        return
    names = ("", "raw", "hashtable", "quicklist", "hashtable", "skiplist", "stream")
    write_text(call.out, names[kind])
