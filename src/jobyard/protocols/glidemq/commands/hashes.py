"""Commands for hashes: HSET, HGETALL, HINCRBY and the like."""

from decimal import Context, Decimal
from math import isfinite
from typing import Final

from jobyard.model.glidemq.stored_values import ValueKind
from jobyard.protocols.glidemq.answers import ARRAY, MAP, TextArray
from jobyard.protocols.glidemq.call import Call
from jobyard.protocols.glidemq.errors import NOT_FLOAT, OVERFLOW, Wrong, wrong_count
from jobyard.protocols.glidemq.long_commands import pour
from jobyard.protocols.glidemq.many_arguments import ValueArray, answer_count, check_whole, for_each
from jobyard.wire.resp.read import INTEGER_MAX, INTEGER_MIN, parse_integer
from jobyard.wire.resp.write import (
    write_bulk,
    write_integer,
    write_nil,
    write_ok,
)

FLOAT_SIZE_MAX: Final = 64
# Enough for the greatest double and 17 decimal places.
_EXACT: Final = Context(prec=330)


def _pairs(call: Call) -> dict[bytes, bytes]:
    check_whole(call)
    if call.count() % 2 != 0:
        raise wrong_count(call.command.text(0))
    parts = call.args(2)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def hset(call: Call) -> None:
    """Set fields; answer how many are new."""
    write_integer(call.out, call.key(1, ValueKind.HASH).set_fields(_pairs(call)))


def hmset(call: Call) -> None:
    """Set fields."""
    call.key(1, ValueKind.HASH).set_fields(_pairs(call))
    write_ok(call.out)


def hsetnx(call: Call) -> None:
    """Set a field if it does not exist."""
    key = call.key(1, ValueKind.HASH)
    found = call.found(1, ValueKind.HASH)
    is_free = found is None or found.field(call.arg(2)) is None
    if is_free:
        key.set_fields({call.arg(2): call.arg(3)})
    write_integer(call.out, 1 if is_free else 0)


def hget(call: Call) -> None:
    """Answer with a field."""
    key = call.found(1, ValueKind.HASH)
    _say(call, None if key is None else key.field(call.arg(2)))


def _say(call: Call, value: bytes | None) -> None:
    if value is None:
        write_nil(call.out, call.proto)
    else:
        write_bulk(call.out, value)


def hmget(call: Call) -> None:
    """Answer with several fields."""
    values: list[bytes | None] = []

    def look(start: int, end: int) -> int:
        key = call.found(1, ValueKind.HASH)
        names = call.args_between(2 + start, 2 + end)
        values.extend(None if key is None else key.field(name) for name in names)
        return 0

    for_each(
        call, call.count() - 2, look, lambda _: ValueArray(values, call.proto), is_reading=True
    )


def _fields(call: Call) -> dict[bytes, bytes]:
    key = call.found(1, ValueKind.HASH)
    return {} if key is None else key.fields()


def hgetall(call: Call) -> None:
    """Answer with all fields and their values."""
    flat: list[bytes] = []
    for name, value in _fields(call).items():
        flat.append(name)
        flat.append(value)
    pour(call, TextArray(flat, MAP, call.proto))


def hkeys(call: Call) -> None:
    """Answer with the names of all fields."""
    pour(call, TextArray(list(_fields(call)), ARRAY, call.proto))


def hvals(call: Call) -> None:
    """Answer with the values of all fields."""
    pour(call, TextArray(list(_fields(call).values()), ARRAY, call.proto))


def hlen(call: Call) -> None:
    """Answer with the number of fields."""
    key = call.found(1, ValueKind.HASH)
    write_integer(call.out, 0 if key is None else key.fields_count())


def hexists(call: Call) -> None:
    """Answer whether a field exists."""
    key = call.found(1, ValueKind.HASH)
    is_there = key is not None and key.field(call.arg(2)) is not None
    write_integer(call.out, 1 if is_there else 0)


def hstrlen(call: Call) -> None:
    """Answer with the length of a value."""
    key = call.found(1, ValueKind.HASH)
    value = None if key is None else key.field(call.arg(2))
    write_integer(call.out, 0 if value is None else len(value))


def hdel(call: Call) -> None:
    """Remove fields; answer how many existed."""

    def drop(start: int, end: int) -> int:
        key = call.found(1, ValueKind.HASH)
        return 0 if key is None else key.drop_fields(call.args_between(2 + start, 2 + end))

    for_each(call, call.count() - 2, drop, lambda count: answer_count(call, count))


def hincrby(call: Call) -> None:
    """Add to an integer field."""
    more = int(call.integer(3))
    key = call.key(1, ValueKind.HASH)
    found = call.found(1, ValueKind.HASH)
    text = None if found is None else found.field(call.arg(2))
    value = 0 if text is None else parse_integer(text)
    if value is None:
        raise Wrong("ERR hash value is not an integer")
    total = value + more
    if not INTEGER_MIN <= total <= INTEGER_MAX:
        raise Wrong(OVERFLOW)
    key.set_fields({call.arg(2): str(total).encode()})
    write_integer(call.out, total)


def parse_float(text: bytes) -> float:
    """Parse a float; refuse anything else."""
    try:
        # Python accepts underscores and spaces, which RESP servers refuse.
        if len(text) > FLOAT_SIZE_MAX or b"_" in text or text.strip() != text:
            raise Wrong(NOT_FLOAT)
        number = float(text)
    except ValueError:
        raise Wrong(NOT_FLOAT) from None
    if number != number:  # noqa: PLR0124 - NaN is unequal to itself
        raise Wrong(NOT_FLOAT)
    return number


def _add(one: bytes, other: bytes) -> bytes:
    """Add in decimal, to 17 places: people read these sums of costs."""
    total = _EXACT.add(Decimal(one.decode()), Decimal(other.decode()))
    text = f"{total:.17f}".rstrip("0").rstrip(".")
    return (text if text != "-0" else "0").encode()


def hincrbyfloat(call: Call) -> None:
    """Add to a float field."""
    more = parse_float(call.arg(3))
    key = call.key(1, ValueKind.HASH)
    found = call.found(1, ValueKind.HASH)
    text = None if found is None else found.field(call.arg(2))
    try:
        value = 0.0 if text is None else parse_float(text)
    except Wrong:
        raise Wrong("ERR hash value is not a float") from None
    if not isfinite(value + more):
        raise Wrong("ERR increment would produce NaN or Infinity")
    shown = _add(text or b"0", call.arg(3))
    key.set_fields({call.arg(2): shown})
    write_bulk(call.out, shown)
