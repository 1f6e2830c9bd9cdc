"""Values and frames for the MessagePack tests, and how to compare them."""

import struct

from hypothesis import strategies as st

from jobyard.wire.msgpack.forms import Ext
from jobyard.wire.msgpack.write import encode

EDGES = [
    sign * (edge + by)
    for edge in (0, 1 << 5, 1 << 7, 1 << 8, 1 << 15, 1 << 16, 1 << 31, 1 << 32, 1 << 53)
    for by in (-1, 0, 1)
    for sign in (1, -1)
]

_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(EDGES),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(),
    st.text(max_size=40),
    st.integers(0, 300).map(lambda size: "é" * size),
    st.binary(max_size=40),
    st.integers(250, 260).map(bytes),
    st.integers(65530, 65540).map(bytes),
    # Type -1 is a timestamp, which other implementations decode; type 0 is undefined.
    st.builds(Ext, st.integers(1, 127), st.binary(max_size=20)),
)


def _nested(scalars: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.recursive(
        scalars,
        lambda inner: st.one_of(
            st.lists(inner, max_size=20),
            st.dictionaries(st.text(max_size=8), inner, max_size=20),
        ),
        max_leaves=20,
    )


VALUES = _nested(_SCALARS | st.integers(-(1 << 80), 1 << 80))
WIDE_VALUES = _nested(_SCALARS)


@st.composite
def _mutated(draw: st.DrawFn) -> bytes:
    data = bytearray(encode(draw(WIDE_VALUES)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        size = draw(st.integers(0, 2))
        data[at : at + size] = draw(st.binary(max_size=2))
    return bytes(data)


FRAMES: st.SearchStrategy[bytes] = _mutated()


def as_read(value: object) -> object:
    """Return what a written value is read back as: integers past 32 bits are floats."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -(1 << 31) <= value < 1 << 32 else float(value)
    if isinstance(value, list):
        return [as_read(each) for each in value]
    if isinstance(value, dict):
        return {key: as_read(each) for key, each in value.items()}
    return value


def same(one: object, other: object) -> bool:
    """Return whether two values are equal, including their types, with NaN equal to NaN."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float) and isinstance(other, float):
        return struct.pack(">d", one) == struct.pack(">d", other)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return one == other
