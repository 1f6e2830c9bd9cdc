"""Commands for strings: GET, SET, INCR and the like."""

from mypy_extensions import i64

from jobyard.model.glidemq.stored_values import ValueKind
from jobyard.model.limits import NEVER_MS
from jobyard.protocols.glidemq.call import Call
from jobyard.protocols.glidemq.commands.generic import expiry_at
from jobyard.protocols.glidemq.commands.lists import span
from jobyard.protocols.glidemq.errors import NOT_INTEGER, OVERFLOW, SYNTAX, WRONG_TYPE, Wrong
from jobyard.protocols.glidemq.many_arguments import LOOK_UNITS, ValueArray, for_each
from jobyard.wire.resp.read import INTEGER_MAX, INTEGER_MIN, parse_integer
from jobyard.wire.resp.write import write_bulk, write_integer, write_nil, write_ok


def get(call: Call) -> None:
    """Answer with a value."""
    key = call.found(1, ValueKind.STRING)
    _say(call, None if key is None else key.text())


def _say(call: Call, value: bytes | None) -> None:
    if value is None:
        write_nil(call.out, call.proto)
    else:
        write_bulk(call.out, value)


def mget(call: Call) -> None:
    """Answer with several values; nil for a key of another type."""
    values: list[bytes | None] = []

    def look(start: int, end: int) -> int:
        for name in call.args_between(1 + start, 1 + end):
            key = call.door.keyed(name, call.now_ms)
            values.append(key.text() if key.kind() == ValueKind.STRING else None)
        return 0

    for_each(
        call,
        call.count() - 1,
        look,
        lambda _: ValueArray(values, call.proto),
        LOOK_UNITS,
        is_reading=True,
    )


def strlen(call: Call) -> None:
    """Answer with the length of a value."""
    key = call.found(1, ValueKind.STRING)
    text = None if key is None else key.text()
    write_integer(call.out, 0 if text is None else len(text))


def getrange(call: Call) -> None:
    """Answer with a range of a value."""
    start, stop = call.integer(2), call.integer(3)
    key = call.found(1, ValueKind.STRING)
    text = None if key is None else key.text()
    value = b"" if text is None else text
    start, end = span(start, stop, len(value))
    write_bulk(call.out, value[start:end])


def set_value(call: Call) -> None:
    """Set a value, if its conditions hold."""
    unit = b""
    expiry_place: i64 = 0
    only_new, only_old, with_old, keeps = False, False, False, False
    at: i64 = 3
    while at < call.count():
        word = call.command.word(at)
        if word == b"NX" and not only_old:
            only_new = True
        elif word == b"XX" and not only_new:
            only_old = True
        elif word == b"GET":
            with_old = True
        elif word == b"KEEPTTL" and not unit:
            keeps = True
        elif word in (b"EX", b"PX", b"EXAT", b"PXAT") and not unit and not keeps:
            at += 1
            if at == call.count():
                raise Wrong(SYNTAX)
            unit = word
            expiry_place = at
        else:
            raise Wrong(SYNTAX)
        at += 1
    expires_ms = _expiry(call, expiry_place, unit) if unit else NEVER_MS
    _set(call, expires_ms, (only_new, only_old, with_old, keeps))


def _expiry(call: Call, at: i64, word: bytes) -> i64:
    if call.integer(at) <= 0:
        raise Wrong("ERR invalid expire time in 'set' command")
    unit: i64 = 1 if word.startswith(b"P") else 1000
    return expiry_at(call, at, unit, is_wall=word.endswith(b"AT"))


def _set(call: Call, expires_ms: i64, how: tuple[bool, bool, bool, bool]) -> None:
    only_new, only_old, with_old, keeps = how
    key = call.door.keyed(call.arg(1), call.now_ms)
    there = key.kind()
    if with_old and there not in (ValueKind.NONE, ValueKind.STRING):
        raise Wrong(WRONG_TYPE)
    old = key.text() if with_old and there != ValueKind.NONE else None
    if (only_new and there != ValueKind.NONE) or (only_old and there == ValueKind.NONE):
        _say(call, old)
        return
    if keeps and there != ValueKind.NONE:
        expires_ms = key.expires_ms()
    key.set_text(call.arg(2), expires_ms)
    if with_old:
        _say(call, old)
    else:
        write_ok(call.out)


def setnx(call: Call) -> None:
    """Set a value if the key does not exist."""
    key = call.door.keyed(call.arg(1), call.now_ms)
    is_free = key.kind() == ValueKind.NONE
    if is_free:
        key.set_text(call.arg(2), NEVER_MS)
    write_integer(call.out, 1 if is_free else 0)


def setex(call: Call) -> None:
    """Set a value that expires in seconds."""
    _set_for(call, 1000)


def psetex(call: Call) -> None:
    """Set a value that expires in milliseconds."""
    _set_for(call, 1)


def _set_for(call: Call, unit_ms: i64) -> None:
    if call.integer(2) <= 0:
        name = call.command.text(0).lower()
        raise Wrong(f"ERR invalid expire time in '{name}' command")
    expires_ms = expiry_at(call, 2, unit_ms, is_wall=False)
    call.door.keyed(call.arg(1), call.now_ms).set_text(call.arg(3), expires_ms)
    write_ok(call.out)


def getdel(call: Call) -> None:
    """Answer with a value and delete it."""
    key = call.found(1, ValueKind.STRING)
    _say(call, None if key is None else key.text())
    if key is not None:
        key.delete()


def _add(call: Call, more: int) -> None:
    key = call.key(1, ValueKind.STRING)
    is_there = key.kind() != ValueKind.NONE
    text = key.text() if is_there else b"0"
    value = parse_integer(text) if text is not None else None
    if value is None:
        raise Wrong(NOT_INTEGER)
    total = value + more
    if not INTEGER_MIN <= total <= INTEGER_MAX:
        raise Wrong(OVERFLOW)
    key.set_text(str(total).encode(), key.expires_ms() if is_there else NEVER_MS)
    # A key that shows a count may hold another value than was set.
    shown = key.text()
    write_integer(call.out, int(shown) if shown is not None else total)


def incr(call: Call) -> None:
    """Add one."""
    _add(call, 1)


def decr(call: Call) -> None:
    """Subtract one."""
    _add(call, -1)


def incrby(call: Call) -> None:
    """Add a number."""
    _add(call, call.integer(2))


def decrby(call: Call) -> None:
    """Subtract a number."""
    _add(call, -int(call.integer(2)))
