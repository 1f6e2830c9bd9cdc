"""Commands for lists and for sets: RPUSH, LRANGE, SADD and the like."""

from mypy_extensions import i64

from jobyard.model.glidemq.stored_values import ValueKind
from jobyard.protocols.glidemq.answers import ARRAY, MEMBERS, TextArray
from jobyard.protocols.glidemq.call import Call
from jobyard.protocols.glidemq.errors import Wrong, wrong_count
from jobyard.protocols.glidemq.keyspace.gather import CHANGE_UNITS
from jobyard.protocols.glidemq.keyspace.stored import StoredKey
from jobyard.protocols.glidemq.long_commands import begin, pour
from jobyard.protocols.glidemq.many_arguments import (
    FEW_ARGUMENTS,
    answer_count,
    check_whole,
    for_each,
)
from jobyard.wire.resp.write import (
    write_array,
    write_bulk,
    write_integer,
    write_nil,
    write_nil_array,
    write_ok,
)


def _write_all(call: Call, values: list[bytes]) -> None:
    write_array(call.out, len(values))
    for value in values:
        write_bulk(call.out, value)


def rpush(call: Call) -> None:
    """Append items at the right end."""
    check_whole(call)
    write_integer(call.out, call.key(1, ValueKind.LIST).push(call.args(2), is_left=False))


def lpush(call: Call) -> None:
    """Insert items at the left end."""
    check_whole(call)
    write_integer(call.out, call.key(1, ValueKind.LIST).push(call.args(2), is_left=True))


def rpop(call: Call) -> None:
    """Remove items from the right end."""
    _pop(call, is_left=False)


def lpop(call: Call) -> None:
    """Remove items from the left end."""
    _pop(call, is_left=True)


def read_count(call: Call) -> i64:
    """Return the count argument of a pop; 1 without one."""
    count = call.command.integer(2) if call.count() == 3 else 1
    if count is None or count < 0:
        raise Wrong("ERR value is out of range, must be positive")
    return count


def _pop(call: Call, *, is_left: bool) -> None:
    if call.count() > 3:
        raise wrong_count(call.command.text(0))
    has_count = call.count() == 3
    count = read_count(call)
    key = call.found(1, ValueKind.LIST)
    if key is None:
        if has_count:
            write_nil_array(call.out, call.proto)
        else:
            write_nil(call.out, call.proto)
        return
    count = min(count, key.items_count())
    if count > FEW_ARGUMENTS:
        _pop_many(call, count, is_left=is_left)
        return
    values = key.pop(count, is_left=is_left)
    if has_count:
        _write_all(call, values)
    elif values:
        write_bulk(call.out, values[0])
    else:
        write_nil(call.out, call.proto)


def _pop_many(call: Call, count: i64, *, is_left: bool) -> None:
    values: list[bytes] = []

    def take(start: int, end: int) -> int:
        key = call.found(1, ValueKind.LIST)
        if key is not None:
            values.extend(key.pop(end - start, is_left=is_left))
        return 0

    for_each(call, count, take, lambda _: TextArray(values, ARRAY, call.proto))


def span(start: i64, stop: i64, count: i64) -> tuple[i64, i64]:
    """Return begin and end of the range `start` to `stop`; negative indexes count from the end."""
    if start < 0:
        start = max(start + count, 0)
    if stop < 0:
        stop += count
    # Compare before adding: one more than the greatest i64 overflows to the least.
    end = count if stop >= count else stop + 1
    return (start, end) if start < end else (0, 0)


def lrange(call: Call) -> None:
    """Answer with the items of a range."""
    start, stop = call.integer(2), call.integer(3)
    key = call.found(1, ValueKind.LIST)
    if key is None:
        write_array(call.out, 0)
        return
    start, end = span(start, stop, key.items_count())
    work = key.find_items()
    if work is None or start == end:
        pour(call, TextArray(key.items(start, end) if start < end else [], ARRAY, call.proto))
    else:
        begin(call, work, lambda: TextArray(work.ids[start:end], ARRAY, call.proto))


def lindex(call: Call) -> None:
    """Answer with one item by its index."""
    place = call.integer(2)
    key = call.found(1, ValueKind.LIST)
    start, end = (0, 0) if key is None else span(place, place, key.items_count())
    if key is None or end - start != 1:
        write_nil(call.out, call.proto)
        return
    work = key.find_items()
    if work is None:
        write_bulk(call.out, key.items(start, end)[0])
    else:
        begin(call, work, lambda: _write_one(call, work.ids[start:end]))


def _write_one(call: Call, found: list[bytes]) -> None:
    """Write an item, or nil if it is gone."""
    if found:
        write_bulk(call.out, found[0])
    else:
        write_nil(call.out, call.proto)


def llen(call: Call) -> None:
    """Answer with the number of items."""
    key = call.found(1, ValueKind.LIST)
    write_integer(call.out, 0 if key is None else key.items_count())


def ltrim(call: Call) -> None:
    """Keep only a range of items."""
    start, stop = call.integer(2), call.integer(3)
    key = call.found(1, ValueKind.LIST)
    if key is not None:
        count = key.items_count()
        start, end = span(start, stop, count)
        if isinstance(key, StoredKey):
            _trim_sides(call, start, count - end)
            return
        key.trim(start, end)
    write_ok(call.out)


def _trim_sides(call: Call, left: i64, right: i64) -> None:
    """Remove `left` and `right` items at the two ends; on the right first."""

    def drop(start: int, end: int) -> int:
        key = call.found(1, ValueKind.LIST)
        on_right = max(min(end, int(right)) - start, 0)
        if key is not None and on_right > 0:
            key.pop(on_right, is_left=False)
            key = call.found(1, ValueKind.LIST)
        if key is not None:
            key.pop(end - start - on_right, is_left=True)
        return 0

    for_each(call, left + right, drop, lambda _: write_ok(call.out))


# -- sets ------------------------------------------------------------------------------------------


def sadd(call: Call) -> None:
    """Add members; answer how many are new."""
    check_whole(call)
    write_integer(call.out, call.key(1, ValueKind.SET).add_members(call.args(2)))


def srem(call: Call) -> None:
    """Remove members; answer how many existed."""

    def drop(start: int, end: int) -> int:
        key = call.found(1, ValueKind.SET)
        return 0 if key is None else key.drop_members(call.args_between(2 + start, 2 + end))

    for_each(call, call.count() - 2, drop, lambda count: answer_count(call, count), CHANGE_UNITS)


def smembers(call: Call) -> None:
    """Answer with all members."""
    key = call.found(1, ValueKind.SET)
    pour(call, TextArray([] if key is None else key.members(), MEMBERS, call.proto))


def scard(call: Call) -> None:
    """Answer with the number of members."""
    key = call.found(1, ValueKind.SET)
    write_integer(call.out, 0 if key is None else key.members_count())


def sismember(call: Call) -> None:
    """Answer whether this is a member."""
    key = call.found(1, ValueKind.SET)
    write_integer(call.out, 1 if key is not None and key.has_member(call.arg(2)) else 0)
