"""Commands for keys of any kind: SCAN, TYPE, EXISTS, DEL, EXPIRE and their kin."""

from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from jobyard.engine.logs.text import Freeing
from jobyard.engine.state.tasks import Task
from jobyard.model.glidemq.stored_values import KIND_NAMES, NO_KIND
from jobyard.model.index.sorted_view import LAST
from jobyard.model.limits import NEVER_MS
from jobyard.protocols.glidemq.answers import ARRAY, Texts
from jobyard.protocols.glidemq.call import Call
from jobyard.protocols.glidemq.errors import SYNTAX, Wrong, unknown_subcommand, wrong_count
from jobyard.protocols.glidemq.keyspace.gather import CHANGE_UNITS, FREED_AT_ONCE, Treat
from jobyard.protocols.glidemq.keyspace.key import SIDE_AREA, Scan
from jobyard.protocols.glidemq.long_commands import Pieces, begin
from jobyard.protocols.glidemq.many_arguments import LOOK_UNITS, for_each, tell_count
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
# Keys that are looked at in one unit of work.
_KEYS_PER_UNIT: Final = 4
# What it takes to delete a key that holds little.
KEY_UNITS: Final = 6
_SESSIONS_PER_UNIT: Final = 8
# In every key by which a worker is registered.
_WORKER_PART: Final = b"}:w:"


@final
class Deleting(Task):
    """Lets keys go, one after the other; of those that show jobs, the jobs in slices."""

    def __init__(self, door: "GlidemqDoor", names: list[bytes]) -> None:
        super().__init__()
        self._door = door
        self._names = names
        self._at: i64 = 0
        self._clearing: Treat | None = None
        self.count: i64 = 0

    def units(self, now_ms: i64) -> i64:
        """Return about what it takes."""
        units: i64 = 0
        for name in self._names:
            key = self._door.known(name, now_ms)
            units += 1 + (0 if key is None else key.held_count() * CHANGE_UNITS)
        return units

    def step(self, most: i64, now_ms: i64) -> i64:
        """Let some go."""
        done: i64 = 0
        while self._at < len(self._names) and done < most:
            clearing = self._clearing
            if clearing is None:
                name = self._names[self._at]
                self._begin(name, now_ms)
                done += KEY_UNITS
                if _WORKER_PART in name:
                    self._door.sign_off(name, now_ms)
                    # All are asked whether it waits there.
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
        # Looked up anew: what there was under the name may have gone since the command came.
        key = self._door.known(name, now_ms)
        if key is None or key.kind() == NO_KIND:
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
    """Tell the kind of a key."""
    kind = call.door.keyed(call.arg(1), call.now_ms).kind()
    write_simple(call.out, KIND_NAMES[kind].encode())


def exists(call: Call) -> None:
    """Count the keys that are there."""

    def look(start: int, end: int) -> int:
        count = 0
        for name in call.args_between(1 + start, 1 + end):
            key = call.door.known(name, call.now_ms)
            if key is not None and key.kind() != NO_KIND:
                count += 1
        return count

    for_each(
        call,
        call.count() - 1,
        look,
        lambda count: tell_count(call, count),
        LOOK_UNITS,
        is_reading=True,
    )


def delete(call: Call) -> None:
    """Let keys go; count those that were there."""
    # All of them are looked at before the first goes. Newer clients delete, with all the keys of
    # a queue, some that no key is called here: those are not there.
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
    deleting = Deleting(call.door, names)
    units = deleting.units(call.now_ms) if call.session.units_left >= 0 else 0
    begin(call, deleting, lambda: tell_count(call, int(deleting.count)), units)


# -- going by themselves ---------------------------------------------------------------------------


def _left(call: Call) -> i64:
    """Return how long a key stays: -2 if it is not there, -1 if for good."""
    key = call.door.keyed(call.arg(1), call.now_ms)
    if key.kind() == NO_KIND:
        return -2
    at_ms = key.expires_ms()
    return -1 if at_ms >= NEVER_MS else max(at_ms - call.now_ms, 0)


def ttl(call: Call) -> None:
    """Tell how many seconds a key stays."""
    left = _left(call)
    write_integer(call.out, left if left < 0 else (left + 500) // 1000)


def pttl(call: Call) -> None:
    """Tell how many milliseconds a key stays."""
    write_integer(call.out, _left(call))


def expiry_at(call: Call, at: i64, unit_ms: i64, *, is_wall: bool) -> i64:
    """Return the moment an argument names, as a span from now or as wall time."""
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
    if key.kind() == NO_KIND or not _may_expire(call, key.expires_ms(), at_ms):
        write_integer(call.out, 0)
        return
    if at_ms <= call.now_ms:
        key.delete()
    else:
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
    """Let a key go in so many seconds."""
    _expire(call, 1000, is_wall=False)


def pexpire(call: Call) -> None:
    """Let a key go in so many milliseconds."""
    _expire(call, 1, is_wall=False)


def expire_at(call: Call) -> None:
    """Let a key go at a second."""
    _expire(call, 1000, is_wall=True)


def pexpire_at(call: Call) -> None:
    """Let a key go at a millisecond."""
    _expire(call, 1, is_wall=True)


def persist(call: Call) -> None:
    """Let a key stay."""
    key = call.door.keyed(call.arg(1), call.now_ms)
    if key.kind() == NO_KIND or key.expires_ms() >= NEVER_MS:
        write_integer(call.out, 0)
        return
    key.expire(NEVER_MS)
    write_integer(call.out, 1)


# -- going through all -----------------------------------------------------------------------------


def scan(call: Call) -> None:
    """Tell some of the keys, and where to go on."""
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
    scanning = Scanning(call, cursor, pattern, min(count, SCAN_MAX))
    scanning.kind_name = kind
    begin(call, scanning, lambda: Page(scanning.scan))


@final
class Page(Pieces):
    """Keys that a scan found, and where to go on."""

    def __init__(self, scan: Scan) -> None:
        super().__init__(len(scan.names))
        self._scan = scan

    def write_head(self, out: BytesWriter) -> None:
        """Write the cursor, and how many keys there are."""
        write_array(out, 2)
        write_text(out, str(int(self._scan.cursor)))
        write_array(out, self.count)

    def write_part(self, out: BytesWriter, at: i64) -> None:
        """Write one."""
        write_bulk(out, self._scan.names[at])


@final
class Scanning(Task):
    """Goes through keys from a cursor on: those that show queues, then those that are kept."""

    def __init__(self, call: Call, cursor: i64, pattern: bytes, count: i64) -> None:
        super().__init__()
        self.is_reading = True
        self._door = call.door
        self.scan = Scan(cursor, pattern, count)
        # Of which kind; nothing for any.
        self.kind_name: bytes = b""
        self._is_counting: bool = False
        self.count: i64 = 0

    def only_count(self) -> None:
        """Count the keys, and remember none."""
        self._is_counting = True

    def step(self, most: i64, now_ms: i64) -> i64:
        """Go on."""
        scan = self.scan
        done: i64 = 0
        while done < most:
            before = len(scan.names)
            if scan.cursor >= SIDE_AREA:
                done += self._scan_side(most - done, now_ms)
                scan.is_over = scan.cursor == 0
            else:
                done += max(self._door.projections.scan(scan, most - done, now_ms), 1)
                if scan.is_over and self._door.yard.side.keys.count > 0:
                    scan.cursor = SIDE_AREA
                    scan.is_over = False
            self._look_at_kinds(before, now_ms)
            if scan.is_over or scan.is_enough():
                return min(done, most - 1)
        return done

    def abandon(self) -> Task | None:
        """Return the work of freeing the names that were found."""
        names = self.scan.names
        return Freeing(names) if len(names) > FREED_AT_ONCE else None

    def _scan_side(self, most: i64, now_ms: i64) -> i64:
        scan = self.scan
        count = min(most * _KEYS_PER_UNIT, max(scan.count - scan.looked, 1))
        keys = self._door.yard.side.page(scan.cursor & (SIDE_AREA - 1), count)
        for key in keys:
            is_wanted = not scan.pattern or is_match(scan.pattern, key.name)
            if key.expires_ms > now_ms and is_wanted:
                scan.names.append(key.name)
        scan.looked += len(keys)
        scan.cursor = SIDE_AREA | keys[len(keys) - 1].key if len(keys) == count else 0
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
    """Count all keys that SCAN would tell."""
    scanning = Scanning(call, 0, b"*", LAST)
    scanning.only_count()
    begin(call, scanning, lambda: _tell_size(call, scanning))


def _tell_size(call: Call, scanning: Scanning) -> None:
    write_integer(call.out, scanning.count)


def keys(call: Call) -> None:
    """Tell all keys that match."""
    scanning = Scanning(call, 0, call.arg(1), LAST)
    begin(call, scanning, lambda: Texts(scanning.scan.names, ARRAY, call.proto))


def memory(call: Call) -> None:
    """Tell about how much memory a key takes."""
    if call.is_word(1, b"DOCTOR"):
        write_text(call.out, "Nothing to say here.")
        return
    if not call.is_word(1, b"USAGE"):
        raise unknown_subcommand("MEMORY", call.command.text(1))
    if call.count() not in (3, 5):
        raise wrong_count("memory|usage")
    key = call.door.keyed(call.arg(2), call.now_ms)
    if key.kind() == NO_KIND:
        write_nil(call.out, call.proto)
    else:
        write_integer(call.out, key.weight())


def encoding(call: Call) -> None:
    """Tell how a key is kept, as far as a client may care."""
    if not call.is_word(1, b"ENCODING"):
        raise unknown_subcommand("OBJECT", call.command.text(1))
    if call.count() != 3:
        raise wrong_count("object|encoding")
    key = call.door.keyed(call.arg(2), call.now_ms)
    kind = key.kind()
    if kind == NO_KIND:
        write_nil(call.out, call.proto)
        return
    names = ("", "raw", "hashtable", "quicklist", "hashtable", "skiplist", "stream")
    write_text(call.out, names[kind])
