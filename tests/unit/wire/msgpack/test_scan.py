"""Long MessagePack scanned in slices: the same verdict as for a short value at once."""

import random

import pytest

from jobyard.wire.msgpack.forms import is_deeper, skip
from jobyard.wire.msgpack.scan import (
    MALFORMED,
    NOTED_SIZE_MIN,
    TOO_DEEP,
    UNKNOWN,
    WHOLE,
    MsgpackScan,
)
from tests.support.servers.bunqueue import pack


def scanned(data: bytes, most: int, depth_max: int = 512) -> MsgpackScan:
    """Return a scan that is through."""
    scan = MsgpackScan(data, 0, len(data), depth_max)
    while scan.verdict == UNKNOWN:
        assert scan.proceed(most) <= most
    return scan


def verdict(data: bytes, depth_max: int = 512) -> int:
    """Return the verdict on a value read at once."""
    if is_deeper(data, 0, len(data), depth_max):
        return TOO_DEEP
    return WHOLE if skip(data, 0, len(data)) == len(data) else MALFORMED


@pytest.mark.parametrize("most", [1, 7, 10_000])
def test_whole_values(most: int) -> None:
    values: list[object] = [1, None, "x" * 70_000, [], {}, [[]], {"a": [1, {"b": 2.5}]}, [1] * 5000]
    for value in values:
        data = pack(value)
        assert scanned(data, most).verdict == WHOLE
        assert scanned(data[:-1], most).verdict == MALFORMED
        assert scanned(data + b"\x01", most).verdict == MALFORMED


def test_depth() -> None:
    for depth in (4, 5, 6):
        data = b"\x91" * depth + b"\x01"
        assert scanned(data, 1, 5).verdict == verdict(data, 5)
    # Empty ones hold nothing that would be deeper.
    data = b"\x91" * 5 + b"\x90"
    assert scanned(data, 1, 5).verdict == verdict(data, 5) == WHOLE


def test_any_bytes_get_the_same_verdict() -> None:
    luck = random.Random(3)
    for _ in range(3000):
        data = bytes(
            luck.choice(b"\x80\x81\x90\x92\xa2\xc0\xc1\xcd\xdc\xde\xd4\xc7\x01\x00")
            for _ in range(luck.randrange(1, 30))
        )
        assert scanned(data, luck.choice([1, 3, 100]), 6).verdict == verdict(data, 6), data


def test_the_ends_of_long_parts_are_known() -> None:
    value = {
        "jobs": [{"data": [1] * NOTED_SIZE_MIN}, {"data": [1] * 10}],
        "x": "y" * NOTED_SIZE_MIN,
    }
    data = pack(value)
    ends = scanned(data, 100).ends
    # The frame, the list, the first job and its data.
    assert len(ends.known) == 4
    for start, end in ends.known.items():
        assert skip(data, start, len(data)) == end == ends.after(data, start, len(data))
    assert ends.after(data, 1, len(data)) == skip(data, 1, len(data))
