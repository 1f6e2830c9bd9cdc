"""Hostile values to put where others are expected, above all numbers beyond every limit.

The plain build has integers of any size where the compiled one has 64 bits, so these are
most useful on the compiled build.
"""

import json
import math
import struct
from typing import Final

# At, before and beyond what 31, 32, 53, 63 and 64 bits hold.
WHOLE: Final[tuple[object, ...]] = (
    0, -1, 1, (1 << 31) - 1, 1 << 31, 1 << 32, (1 << 53) - 1, (1 << 53) + 1, (1 << 63) - 1,
    -(1 << 63), 1 << 63, (1 << 64) - 1, 1 << 64, -(1 << 63) - 1, -(1 << 64), 10**30,
)  # fmt: skip
FLOATS: Final[tuple[object, ...]] = (0.5, -0.5, 1e15, 1e19, -1e19, 1e308, -1e308, 5e-324)
NO_NUMBERS: Final[tuple[object, ...]] = (math.nan, math.inf, -math.inf)
OTHERS: Final[tuple[object, ...]] = (
    None, True, False, "", "x", "\0", "1", "-1", "1e19", "9" * 40, "y" * 300, "\ud7ff\U0001f600",
    [], [[]], {}, {"": None}, [1 << 40, "x", None], {"a": {"b": [1e308]}}, [[[[[[[[[[]]]]]]]]]],
)  # fmt: skip
# The same as text.
WORDS: Final[tuple[str, ...]] = (
    *(str(one) for one in (*WHOLE, *FLOATS)), "nan", "inf", "-inf", "1e999", "9" * 400, "9" * 5000,
    "-" + "9" * 5000, "0" * 50 + "1", "", " ", "x", "-", "+", "+1", "1_0", "0x10", "1.5", "1e3",
    "\0",
    "\xff", "y" * 300, "18446744073709551615-18446744073709551615", "99999999999999999999-1", "(1",
)  # fmt: skip
# The few of these that find most.
SHARP: Final[tuple[object, ...]] = (1 << 63, 1e308, -1e19, math.nan, [[]])


def pack(value: object) -> bytes:
    """Write MessagePack with 64-bit integers, which the server itself never writes.

    Larger integers become doubles.
    """
    if isinstance(value, str):
        content = value.encode()
        return b"\xdb" + struct.pack(">I", len(content)) + content
    if isinstance(value, list):
        return b"\xdd" + struct.pack(">I", len(value)) + b"".join(pack(one) for one in value)
    if isinstance(value, dict):
        pairs = b"".join(pack(key) + pack(one) for key, one in value.items())
        return b"\xdf" + struct.pack(">I", len(value)) + pairs
    return _pack_plain(value)


def _pack_plain(value: object) -> bytes:
    if value is None or isinstance(value, bool):
        return {None: b"\xc0", True: b"\xc3", False: b"\xc2"}[value]
    assert isinstance(value, int | float)
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 64:
        is_signed = value < 1 << 63
        return (b"\xd3" if is_signed else b"\xcf") + struct.pack(">q" if is_signed else ">Q", value)
    return b"\xcb" + struct.pack(">d", float(value))


def frame(command: object) -> bytes:
    """Return a command as bunqueue clients send it."""
    content = pack(command)
    return struct.pack(">I", len(content)) + content


def as_json(value: object) -> bytes:
    """Write JSON; values that are not JSON numbers are written as one that is too large."""
    text = json.dumps(value)
    for word, number in (("-Infinity", "-1e999"), ("Infinity", "1e999"), ("NaN", "1e999")):
        text = text.replace(word, number)
    return text.encode()


# -- templates ----------------------------------------------------------------------------------


def filled(value: object, cast: dict[str, object]) -> object:
    """Return a template with the jobs of this round filled in."""
    if isinstance(value, str):
        return cast.get(value, value)
    if isinstance(value, list):
        return [filled(one, cast) for one in value]
    if isinstance(value, dict):
        return {key: filled(one, cast) for key, one in value.items()}
    return value


def places(value: object) -> list[tuple[object, ...]]:
    """Return the path to every place in a template."""
    found: list[tuple[object, ...]] = []
    if isinstance(value, dict):
        steps: list[tuple[object, object]] = list(value.items())
    elif isinstance(value, list):
        steps = list(enumerate(value))
    else:
        return found
    for key, one in steps:
        found.append((key,))
        found += [(key, *way) for way in places(one)]
    return found


def put(value: object, way: tuple[object, ...], other: object) -> object:
    """Return a template with another value in one place."""
    if not way:
        return other
    if isinstance(value, list):
        return [put(one, way[1:], other) if at == way[0] else one for at, one in enumerate(value)]
    assert isinstance(value, dict)
    return {**value, way[0]: put(value.get(way[0]), way[1:], other)}
