"""Patterns as in RESP servers: `*`, `?`, `[a-c]`, `[^a]`, and a backslash that escapes.

The time is bounded by pattern size times text size, however many stars there are: only the last one
is retried.
"""

from mypy_extensions import i64

_STAR = 42


def is_match(pattern: bytes, text: bytes) -> bool:
    """Return whether the pattern matches all of `text`."""
    at: i64 = 0
    done: i64 = 0
    star: i64 = -1
    retry: i64 = 0
    pattern_size: i64 = len(pattern)
    size: i64 = len(text)
    while done < size:
        if at < pattern_size and pattern[at] == _STAR:
            star = at
            retry = done
            at += 1
            continue
        after = _match_one(pattern, at, pattern_size, text[done]) if at < pattern_size else -1
        if after >= 0:
            at = after
            done += 1
        elif star >= 0:
            retry += 1
            done = retry
            at = star + 1
        else:
            return False
    while at < pattern_size and pattern[at] == _STAR:
        at += 1
    return at == pattern_size


def _match_one(pattern: bytes, at: i64, size: i64, byte: i64) -> i64:
    """Return the position after the pattern element that matches this byte; -1 for no match."""
    first: i64 = pattern[at]
    if first == 63:
        return at + 1
    if first == 91:
        return _match_class(pattern, at + 1, size, byte)
    if first == 92 and at + 1 < size:
        at += 1
    return at + 1 if i64(pattern[at]) == byte else -1


def _match_class(pattern: bytes, at: i64, size: i64, byte: i64) -> i64:
    is_not = at < size and pattern[at] == 94
    if is_not:
        at += 1
    is_in = False
    while at < size and pattern[at] != 93:
        if pattern[at] == 92 and at + 1 < size:
            at += 1
        low: i64 = pattern[at]
        high: i64 = low
        if at + 2 < size and pattern[at + 1] == 45 and pattern[at + 2] != 93:
            high = pattern[at + 2]
            at += 2
        if min(low, high) <= byte <= max(low, high):
            is_in = True
        at += 1
    # An unclosed class ends with the pattern.
    return min(at + 1, size) if is_in != is_not else -1


def literal_start(pattern: bytes) -> bytes:
    """Return the bytes every match begins with."""
    end: i64 = 0
    size: i64 = len(pattern)
    while end < size and pattern[end] not in (42, 63, 91, 92):
        end += 1
    return pattern[:end]
