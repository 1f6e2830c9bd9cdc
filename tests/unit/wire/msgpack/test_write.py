import math
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from librt.strings import BytesWriter

from jobyard.wire.msgpack.forms import (
    ABSENT,
    DECODED_DEPTH_MAX,
    KIND_FLOAT,
    Ext,
    Malformed,
    decode,
    kind_of,
)
from jobyard.wire.msgpack.write import (
    Raw,
    begin_frame,
    encode,
    end_frame,
    write_array,
    write_ascii,
    write_bin,
    write_bool,
    write_ext,
    write_float,
    write_int,
    write_map,
    write_nil,
    write_text,
    write_value,
)
from tests.support.values.msgpack import EDGES


def written(write: Callable[[BytesWriter], None]) -> bytes:
    out = BytesWriter()
    write(out)
    return out.getvalue()


@pytest.mark.parametrize(
    ("number", "data"),
    [
        (0, b"\x00"),
        (127, b"\x7f"),
        (128, b"\xcc\x80"),
        (255, b"\xcc\xff"),
        (256, b"\xcd\x01\x00"),
        (65535, b"\xcd\xff\xff"),
        (65536, b"\xce\x00\x01\x00\x00"),
        ((1 << 31) - 1, b"\xce\x7f\xff\xff\xff"),
        (1 << 31, b"\xce\x80\x00\x00\x00"),
        ((1 << 32) - 1, b"\xce\xff\xff\xff\xff"),
        (1 << 32, b"\xcb" + struct.pack(">d", 2.0**32)),
        (1700000000000, b"\xcb" + struct.pack(">d", 1700000000000.0)),
        ((1 << 63) - 1, b"\xcb" + struct.pack(">d", 2.0**63)),
        (-1, b"\xff"),
        (-32, b"\xe0"),
        (-33, b"\xd0\xdf"),
        (-128, b"\xd0\x80"),
        (-129, b"\xd1\xff\x7f"),
        (-32768, b"\xd1\x80\x00"),
        (-32769, b"\xd2\xff\xff\x7f\xff"),
        (-(1 << 31), b"\xd2\x80\x00\x00\x00"),
        (-(1 << 31) - 1, b"\xcb" + struct.pack(">d", -(2.0**31) - 1)),
        (-(1 << 63), b"\xcb" + struct.pack(">d", -(2.0**63))),
    ],
)
def test_an_integer_takes_the_shortest_form_and_never_64_bits(number: int, data: bytes) -> None:
    assert written(lambda out: write_int(out, number)) == data
    assert encode(number) == data


@given(st.sampled_from(EDGES) | st.integers(-(1 << 63), (1 << 63) - 1))
def test_an_integer_is_read_back_as_the_same_number(number: int) -> None:
    data = written(lambda out: write_int(out, number))
    assert data[0] not in (0xCF, 0xD3)
    assert decode(data, 0, len(data)) == (number if data[0] != 0xCB else float(number))


@pytest.mark.parametrize(
    ("number", "real"),
    [
        (1 << 63, 2.0**63),
        (-(1 << 64), -(2.0**64)),
        (10**400, math.inf),
        (-(10**400), -math.inf),
    ],
)
def test_an_integer_of_any_size_is_a_float_beyond_32_bits(number: int, real: float) -> None:
    assert encode(number) == b"\xcb" + struct.pack(">d", real)


@pytest.mark.parametrize("number", [0.0, 1.0, -0.0, 1.5, math.inf])
def test_a_float_is_always_of_64_bits(number: float) -> None:
    data = written(lambda out: write_float(out, number))
    assert data == b"\xcb" + struct.pack(">d", number) == encode(number)
    assert kind_of(data, 0) == KIND_FLOAT


def test_nil_and_booleans() -> None:
    assert written(write_nil) == b"\xc0"
    assert written(lambda out: write_bool(out, value=True)) == b"\xc3"
    assert written(lambda out: write_bool(out, value=False)) == b"\xc2"
    assert encode([None, True, False]) == b"\x93\xc0\xc3\xc2"


@pytest.mark.parametrize(
    ("size", "head"),
    [
        (0, b"\xa0"),
        (31, b"\xbf"),
        (32, b"\xd9\x20"),
        (255, b"\xd9\xff"),
        (256, b"\xda\x01\x00"),
        (65535, b"\xda\xff\xff"),
        (65536, b"\xdb\x00\x01\x00\x00"),
    ],
)
def test_the_length_of_a_text_is_that_of_its_bytes(size: int, head: bytes) -> None:
    assert written(lambda out: write_text(out, "x" * size)) == head + b"x" * size
    assert written(lambda out: write_ascii(out, b"x" * size)) == head + b"x" * size
    wide = "é" * (size // 2) + "x" * (size % 2)
    assert encode(wide) == head + wide.encode()


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("a\ud800b", "a\ufffdb"),
        ("\udfff", "\ufffd"),
        ("\ud83d\ude00", "\U0001f600"),
    ],
)
def test_halves_of_characters_are_replaced_and_pairs_joined(text: str, data: str) -> None:
    encoded = encode(text)
    assert decode(encoded, 0, len(encoded)) == data


@pytest.mark.parametrize(
    ("size", "head"),
    [
        (0, b"\xc4\x00"),
        (255, b"\xc4\xff"),
        (256, b"\xc5\x01\x00"),
        (65536, b"\xc6\x00\x01\x00\x00"),
    ],
)
def test_bin(size: int, head: bytes) -> None:
    content = b"\xff" * size
    assert written(lambda out: write_bin(out, content)) == encode(content) == head + content


@pytest.mark.parametrize(
    ("size", "head"),
    [
        (0, b"\xc7\x00\x85"),
        (1, b"\xd4\x85"),
        (2, b"\xd5\x85"),
        (3, b"\xc7\x03\x85"),
        (4, b"\xd6\x85"),
        (8, b"\xd7\x85"),
        (16, b"\xd8\x85"),
        (17, b"\xc7\x11\x85"),
        (256, b"\xc8\x01\x00\x85"),
        (65536, b"\xc9\x00\x01\x00\x00\x85"),
    ],
)
def test_ext(size: int, head: bytes) -> None:
    content = b"x" * size
    assert written(lambda out: write_ext(out, -123, content)) == head + content
    assert encode(Ext(-123, content)) == head + content


@pytest.mark.parametrize("count", [0, 15, 16, 65535, 65536])
def test_heads_of_arrays_and_maps(count: int) -> None:
    wide = struct.pack(">H", count) if count < 65536 else struct.pack(">I", count)
    array = bytes([0x90 + count]) if count < 16 else bytes([0xDB + len(wide) // 2]) + wide
    pairs = bytes([0x80 + count]) if count < 16 else bytes([0xDD + len(wide) // 2]) + wide
    assert written(lambda out: write_array(out, count)) == array
    assert written(lambda out: write_map(out, count)) == pairs
    assert encode([None] * count) == array + b"\xc0" * count
    assert encode((None,) * count) == array + b"\xc0" * count
    assert encode(dict.fromkeys(map(str, range(count))))[: len(pairs)] == pairs


def test_absent_is_left_out_of_maps_and_nil_elsewhere() -> None:
    assert encode({"a": ABSENT, "b": 1, "c": ABSENT}) == b"\x81\xa1b\x01"
    assert encode([ABSENT, 1]) == b"\x92\xc0\x01"
    assert encode(ABSENT) == b"\xc0"


def test_what_is_encoded_already_goes_out_as_it_is() -> None:
    assert encode({"a": Raw(b"\xcf" + b"\xff" * 8)}) == b"\x81\xa1a\xcf" + b"\xff" * 8


def test_keys_that_are_no_text_are_printed() -> None:
    assert encode({1: 1, None: 2, b"x": 3}) == b"\x83\xa11\x01\xa4null\x02\xa1x\x03"


def test_values_nested_too_deep_are_refused() -> None:
    for wrap in (lambda inner: [inner], lambda inner: {"a": inner}):
        value: object = None
        for _ in range(DECODED_DEPTH_MAX):
            value = wrap(value)
        data = encode(value)
        assert decode(data, 0, len(data)) == value
        with pytest.raises(Malformed):
            encode(wrap(value))
    circle: list[object] = []
    circle.append(circle)
    with pytest.raises(Malformed):
        encode(circle)


def test_a_value_without_a_form_is_our_own_mistake() -> None:
    with pytest.raises(TypeError, match="set"):
        encode({"a": {1}})


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65536, 1 << 24])
def test_a_frame_begins_with_its_length(size: int) -> None:
    out = BytesWriter()
    out.write(b"before")
    first = begin_frame(out)
    out.write(b"x" * size)
    end_frame(out, first)
    second = begin_frame(out)
    write_value(out, "y")
    end_frame(out, second)
    assert out.getvalue() == b"before" + struct.pack(">I", size) + b"x" * size + b"\0\0\0\2\xa1y"
