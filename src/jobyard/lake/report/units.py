"""Numbers as people read them: few digits, and the unit that suits the size.

Every function takes None for "nothing to tell" and returns a dash for it.
"""

import math
import re
from datetime import UTC, datetime
from typing import Final

NOTHING: Final = "\N{EN DASH}"
# Between a number and its unit; no line ends there.
_GAP: Final = "\N{NO-BREAK SPACE}"
# Zeros behind a point.
_ZEROS: Final = re.compile(r"\.0+(?=\D)|(?<=\.\d)0(?=\D)")
_SECOND: Final = 1000.0
_DURATIONS: Final = (
    (_SECOND, 1.0, "ms"),
    (60 * _SECOND, _SECOND, "s"),
    (3600 * _SECOND, 60 * _SECOND, "min"),
    (48 * 3600 * _SECOND, 3600 * _SECOND, "h"),
    (math.inf, 86_400 * _SECOND, "d"),
)
_COUNTS: Final = ((1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T"))


def is_nothing(number: float | None) -> bool:
    """Return whether there is no number."""
    return number is None or math.isnan(number)


def duration(ms: float | None) -> str:
    """Return `12 ms`, `1.24 s`, `3.1 min`, `5.0 h` or `12.0 d`."""
    if ms is None or math.isnan(ms):
        return NOTHING
    for limit, unit, name in _DURATIONS:
        text = _digits(ms / unit, whole=name == "ms")
        # What rounds up to the next unit takes that: not 60.0 s.
        if float(text) * unit < limit:
            return f"{text}{_GAP}{name}"
    raise AssertionError("the last unit has no limit")


def count(number: float | None) -> str:
    """Return `9,999`, `12.3 k`, `4.56 M`."""
    if number is None or math.isnan(number):
        return NOTHING
    if abs(number) < 10_000:
        return exact(number)
    for unit, name in _COUNTS:
        text = _digits(abs(number) / unit, whole=False)
        if float(text) < 1000 or name == "T":
            return f"{'-' if number < 0 else ''}{text}{_GAP}{name}".replace("-", "\N{MINUS SIGN}")
    raise AssertionError("the last unit has no limit")


def axis_count(number: float) -> str:
    """Return a count without zeros behind its point: `30 k`."""
    return _ZEROS.sub("", count(number))


def exact(number: float | None) -> str:
    """Return all digits of a whole number, in groups of three."""
    if number is None or math.isnan(number):
        return NOTHING
    return f"{round(number):,}".replace("-", "\N{MINUS SIGN}")


def signed(number: float) -> str:
    """Return a change, with its sign."""
    return f"+{count(number)}" if round(number) > 0 else count(number)


def tenths(number: float | None) -> str:
    """Return a number with one digit behind the point, or none above 100."""
    if number is None or math.isnan(number):
        return NOTHING
    text = f"{number:.1f}" if abs(number) < 100 else f"{number:,.0f}"
    return text.replace("-", "\N{MINUS SIGN}")


def share(part: float | None) -> str:
    """Return a share in per cent; what is not all and not nothing never reads as if it were."""
    if part is None or math.isnan(part):
        return NOTHING
    percent = part * 100
    if percent < 0:
        text = f"\N{MINUS SIGN}{-percent:,.0f}"
    elif 0 < percent < 0.01:
        text = "<0.01"
    elif 99 < percent < 100:
        text = f"{math.floor(percent * 100) / 100:.2f}"
    else:
        text = f"{percent:.2f}" if 0 < percent < 1 else _whole(percent)
    return f"{text}{_GAP}%"


def clock(time: datetime | None) -> str:
    """Return a time to the minute, UTC."""
    return NOTHING if time is None else time.astimezone(UTC).strftime("%Y-%m-%d %H:%M")


def plural(number: float, word: str) -> str:
    """Return a number with its word, which takes an s for many."""
    return f"{count(number)} {word}{'' if round(number) == 1 else 's'}"


def _whole(percent: float) -> str:
    return f"{percent:.1f}" if 0 < percent < 10 else f"{percent:,.0f}"


def _digits(number: float, *, whole: bool) -> str:
    if whole or number >= 100:
        return f"{number:.0f}"
    return f"{number:.1f}" if number >= 10 else f"{number:.2f}"
