"""Commands for keys of any kind: SCAN, TYPE, EXISTS, DEL, EXPIRE and their kin."""

from typing import Final

from mypy_extensions import i64

from jobyard.model.limits import NEVER_MS
from jobyard.model.side import KIND_NAMES, NO_KIND
from jobyard.sessions.glidemq.call import Call
from jobyard.sessions.glidemq.words import SYNTAX, Wrong, unknown_subcommand, wrong_count
from jobyard.wire.glob import is_match
from jobyard.wire.resp_write import (
    write_array,
    write_bulk,
    write_integer,
    write_nil,
    write_simple,
    write_text,
)

# Keys that are kept stand behind those that show queues; this bit tells their cursors apart.
SIDE_AREA: Final = 1 << 62
SCAN_COUNT: Final = 10
SCAN_MAX: Final = 10_000
# In every key by which a worker is registered.
_WORKER_PART: Final = b"}:w:"


def type_of(call: Call) -> None:
    """Tell the kind of a key."""
    kind = call.door.keyed(call.arg(1), call.now_ms).kind()
    write_simple(call.out, KIND_NAMES[kind].encode())


def exists(call: Call) -> None:
    """Count the keys that are there."""
    count: i64 = 0
    for name in call.args(1):
        key = call.door.known(name, call.now_ms)
        if key is not None and key.kind() != NO_KIND:
            count += 1
    write_integer(call.out, count)


def delete(call: Call) -> None:
    """Let keys go; count those that were there."""
    # All of them are looked at before the first goes. Newer clients delete, with all the keys of
    # a queue, some that no key is called here: those are not there.
    keys = [call.door.known(name, call.now_ms) for name in call.args(1)]
    count: i64 = 0
    events = call.door.events
    # Who deletes keys is told by its answer; no stream of events comes back by it.
    events.is_quiet = True
    try:
        for key in keys:
            if key is not None and key.kind() != NO_KIND and key.delete():
                count += 1
    finally:
        events.is_quiet = False
    for name in call.args(1):
        if _WORKER_PART in name:
            call.door.sign_off(name, call.now_ms)
    write_integer(call.out, count)


def size(call: Call) -> None:
    """Count all keys."""
    write_integer(call.out, call.door.keys_count())


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
    after, names = _page(call, cursor, pattern, min(count, SCAN_MAX))
    if kind:
        names = [name for name in names if _kind_name(call, name) == kind]
    write_array(call.out, 2)
    write_text(call.out, str(after))
    write_array(call.out, len(names))
    for name in names:
        write_bulk(call.out, name)


def _kind_name(call: Call, name: bytes) -> bytes:
    return KIND_NAMES[call.door.keyed(name, call.now_ms).kind()].encode()


def _page(call: Call, cursor: i64, pattern: bytes, count: i64) -> tuple[i64, list[bytes]]:
    names: list[bytes] = []
    if cursor < SIDE_AREA:
        after, names = call.door.projections.scan(cursor, pattern, count, call.now_ms)
        if after != 0 or not call.yard.side.keys:
            return after, names
        cursor = SIDE_AREA
        count = max(count - len(names), 1)
    page = call.yard.side.page(cursor & (SIDE_AREA - 1), count)
    names += [
        key.name for key in page if key.expires_ms > call.now_ms and is_match(pattern, key.name)
    ]
    return (SIDE_AREA | page[-1].key if len(page) == count else 0), names


def keys(call: Call) -> None:
    """Tell all keys that match; SCAN does it without holding up others."""
    found: list[bytes] = []
    cursor: i64 = 0
    while True:
        cursor, names = _page(call, cursor, call.arg(1), SCAN_MAX)
        found += names
        if cursor == 0:
            break
    write_array(call.out, len(found))
    for name in found:
        write_bulk(call.out, name)


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
