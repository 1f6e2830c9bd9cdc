"""Commands for sorted sets: ZADD, ZRANGE by rank or score, ZPOPMIN."""

from typing import Final

from mypy_extensions import i64

from jobyard.model.glidemq.stored_values import ValueKind
from jobyard.model.index.sorted_view import HIGHEST
from jobyard.protocols.glidemq.answers import MemberArray
from jobyard.protocols.glidemq.call import Call
from jobyard.protocols.glidemq.commands.hashes import parse_float
from jobyard.protocols.glidemq.commands.lists import read_count, span
from jobyard.protocols.glidemq.errors import NOT_FLOAT, SYNTAX, Wrong
from jobyard.protocols.glidemq.keyspace.gather import CHANGE_UNITS, Gather
from jobyard.protocols.glidemq.keyspace.key import Scored, ScoreRange
from jobyard.protocols.glidemq.long_commands import begin, pour
from jobyard.protocols.glidemq.many_arguments import answer_count, check_whole, for_each
from jobyard.wire.resp.write import (
    write_array,
    write_double,
    write_integer,
    write_nil,
)

_NO_BOUND: Final = "ERR min or max is not a float"


def zadd(call: Call) -> None:
    """Set scores, if their conditions hold; answer how many members are new or changed."""
    check_whole(call)
    at: i64 = 2
    options: set[bytes] = set()
    while at < call.count():
        word = call.command.word(at)
        if word not in (b"NX", b"XX", b"GT", b"LT", b"CH"):
            break
        options.add(word)
        at += 1
    rest = call.args(at)
    if not rest or len(rest) % 2 != 0:
        raise Wrong(SYNTAX)
    if b"NX" in options and (b"XX" in options or b"GT" in options or b"LT" in options):
        raise Wrong("ERR GT, LT, and/or NX options at the same time are not compatible")
    key = call.key(1, ValueKind.ZSET)
    is_there = key.kind() != ValueKind.NONE
    scores: dict[bytes, float] = {}
    changed: i64 = 0
    for place in range(0, len(rest), 2):
        member, score = rest[place + 1], parse_float(rest[place])
        old = scores.get(member)
        if old is None and is_there:
            old = key.score(member)
        if _may_set(options, old, score):
            scores[member] = score
            if old != score:
                changed += 1
    added = key.set_scores(scores) if scores else 0
    write_integer(call.out, changed if b"CH" in options else added)


def _may_set(options: set[bytes], old: float | None, score: float) -> bool:
    if old is None:
        return b"XX" not in options
    if b"NX" in options or (b"GT" in options and score <= old):
        return False
    return not (b"LT" in options and score >= old)


def zrem(call: Call) -> None:
    """Remove members; answer how many existed."""

    def drop(start: int, end: int) -> int:
        key = call.found(1, ValueKind.ZSET)
        return 0 if key is None else key.drop_scored(call.args_between(2 + start, 2 + end))

    for_each(call, call.count() - 2, drop, lambda count: answer_count(call, count), CHANGE_UNITS)


def zscore(call: Call) -> None:
    """Answer with the score of a member."""
    key = call.found(1, ValueKind.ZSET)
    score = None if key is None else key.score(call.arg(2))
    if score is None:
        write_nil(call.out, call.proto)
    else:
        write_double(call.out, score, call.proto)


def zcard(call: Call) -> None:
    """Answer with the number of members."""
    key = call.found(1, ValueKind.ZSET)
    write_integer(call.out, 0 if key is None else key.scored_count())


def zcount(call: Call) -> None:
    """Answer with the number of members whose scores are in a range."""
    within = _range(call, 2, 3)
    key = call.found(1, ValueKind.ZSET)
    if key is None or within.is_all():
        write_integer(call.out, 0 if key is None else key.scored_count())
        return
    found = key.find_scored(within, is_reversed=False)
    if found is None:
        write_integer(call.out, len(key.scored_within(within, is_reversed=False)))
        return
    found.only_count()
    begin(call, found, lambda: _answer_count(call, found))


def _answer_count(call: Call, found: Gather) -> None:
    write_integer(call.out, found.count)


def _bound(text: bytes) -> tuple[float, bool]:
    is_open = text.startswith(b"(")
    try:
        return parse_float(text[1:] if is_open else text), is_open
    except Wrong as wrong:
        raise Wrong(_NO_BOUND if str(wrong) == NOT_FLOAT else str(wrong)) from None


def _range(call: Call, low_at: i64, high_at: i64) -> ScoreRange:
    low, low_open = _bound(call.arg(low_at))
    high, high_open = _bound(call.arg(high_at))
    return ScoreRange(low, high, low_open=low_open, high_open=high_open)


def zrange(call: Call) -> None:
    """Answer with members by rank, or by score."""
    by_score, is_reversed, with_scores = False, False, False
    limit: tuple[i64, i64] | None = None
    at: i64 = 4
    while at < call.count():
        word = call.command.word(at)
        if word == b"BYSCORE":
            by_score = True
        elif word == b"REV":
            is_reversed = True
        elif word == b"WITHSCORES":
            with_scores = True
        elif word == b"LIMIT" and at + 2 < call.count():
            limit = (call.integer(at + 1), call.integer(at + 2))
            at += 2
        else:
            raise Wrong(SYNTAX)
        at += 1
    if by_score:
        low, high = (3, 2) if is_reversed else (2, 3)
        within = _range(call, low, high)
        _by_score(call, within, limit, is_reversed=is_reversed, with_scores=with_scores)
    elif limit is not None:
        raise Wrong(
            "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX"
        )
    else:
        _by_rank(call, is_reversed=is_reversed, with_scores=with_scores)


def zrevrange(call: Call) -> None:
    """Answer with members by rank, the greatest score first."""
    with_scores = call.is_word(4, b"WITHSCORES")
    if call.count() > (5 if with_scores else 4):
        raise Wrong(SYNTAX)
    _by_rank(call, is_reversed=True, with_scores=with_scores)


def _by_rank(call: Call, *, is_reversed: bool, with_scores: bool) -> None:
    start, stop = call.integer(2), call.integer(3)
    key = call.found(1, ValueKind.ZSET)
    if key is None:
        write_array(call.out, 0)
        return
    start, end = span(start, stop, key.scored_count())
    found = key.find_scored(None, is_reversed=is_reversed)
    if found is None:
        page = key.scored_page(start, end, is_reversed=is_reversed)
        pour(call, _members(call, None, page, with_scores=with_scores))
        return
    found.limit(start, end - start)
    begin(call, found, lambda: _members(call, found, [], with_scores=with_scores))


def _by_score(
    call: Call,
    within: ScoreRange,
    limit: tuple[i64, i64] | None,
    *,
    is_reversed: bool,
    with_scores: bool,
) -> None:
    offset, count = (0, -1) if limit is None else limit
    key = call.found(1, ValueKind.ZSET)
    if key is None or offset < 0:
        write_array(call.out, 0)
        return
    found = key.find_scored(within, is_reversed=is_reversed)
    if found is None:
        scored = key.scored_within(within, is_reversed=is_reversed)[offset:]
        scored = scored if count < 0 else scored[:count]
        pour(call, _members(call, None, scored, with_scores=with_scores))
        return
    found.limit(offset, HIGHEST if count < 0 else count)
    begin(call, found, lambda: _members(call, found, [], with_scores=with_scores))


def _members(
    call: Call, found: Gather | None, scored: list[Scored], *, with_scores: bool
) -> MemberArray:
    members = MemberArray(found, scored, call.proto)
    members.with_scores = with_scores
    members.is_paired = with_scores and call.proto >= 3
    return members


def zrangebyscore(call: Call) -> None:
    """Answer with members by score."""
    _range_by_score(call, is_reversed=False)


def zrevrangebyscore(call: Call) -> None:
    """Answer with members by score, the greatest first."""
    _range_by_score(call, is_reversed=True)


def _range_by_score(call: Call, *, is_reversed: bool) -> None:
    with_scores = False
    limit: tuple[i64, i64] | None = None
    at: i64 = 4
    while at < call.count():
        if call.is_word(at, b"WITHSCORES"):
            with_scores = True
        elif call.is_word(at, b"LIMIT") and at + 2 < call.count():
            limit = (call.integer(at + 1), call.integer(at + 2))
            at += 2
        else:
            raise Wrong(SYNTAX)
        at += 1
    within = _range(call, 3, 2) if is_reversed else _range(call, 2, 3)
    _by_score(call, within, limit, is_reversed=is_reversed, with_scores=with_scores)


def zpopmin(call: Call) -> None:
    """Remove the members with the least scores."""
    if call.count() > 3:
        raise Wrong(SYNTAX)
    count = read_count(call)
    key = call.found(1, ValueKind.ZSET)
    if key is not None:
        key.check_popped(count)
    found = (
        [] if key is None else key.scored_page(0, min(count, key.scored_count()), is_reversed=False)
    )
    if key is not None and found:
        key.drop_scored([member for member, _ in found])
    members = MemberArray(None, found, call.proto)
    members.with_scores = True
    members.is_paired = call.proto >= 3 and call.count() == 3
    pour(call, members)
