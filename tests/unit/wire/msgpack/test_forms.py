import math
import struct
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobyard.errors import Refused
from jobyard.wire.msgpack import forms
from jobyard.wire.msgpack.forms import (
    ABSENT,
    DECODED_DEPTH_MAX,
    KIND_ABSENT,
    KIND_ARRAY,
    KIND_BIN,
    KIND_BOOL,
    KIND_EXT,
    KIND_FLOAT,
    KIND_INTEGER,
    KIND_MAP,
    KIND_NIL,
    KIND_TEXT,
    Ext,
    Malformed,
    array_header,
    decode,
    float_text,
    key_text,
    kind_of,
    map_header,
    skip,
)
from jobyard.wire.msgpack.write import encode
from tests.support.values.msgpack import FRAMES, VALUES, WIDE_VALUES, as_read, same

UNDEFINED = b"\xd4\0\0"

# Every form: bytes, kind, value.
FORMS: list[tuple[bytes, int, object]] = [
    (b"\x00", KIND_INTEGER, 0),
    (b"\x7f", KIND_INTEGER, 127),
    (b"\xe0", KIND_INTEGER, -32),
    (b"\xff", KIND_INTEGER, -1),
    (b"\xcc\xff", KIND_INTEGER, 255),
    (b"\xcd\xff\xfe", KIND_INTEGER, 65534),
    (b"\xce\xff\xff\xff\xfe", KIND_INTEGER, (1 << 32) - 2),
    (b"\xcf" + b"\xff" * 8, KIND_INTEGER, (1 << 64) - 1),
    (b"\xcf\x7f" + b"\xff" * 7, KIND_INTEGER, (1 << 63) - 1),
    (b"\xd0\x80", KIND_INTEGER, -128),
    (b"\xd0\x7f", KIND_INTEGER, 127),
    (b"\xd1\x80\x00", KIND_INTEGER, -32768),
    (b"\xd2\x80\x00\x00\x00", KIND_INTEGER, -(1 << 31)),
    (b"\xd3\x80" + b"\0" * 7, KIND_INTEGER, -(1 << 63)),
    (b"\xd3" + b"\xff" * 8, KIND_INTEGER, -1),
    (b"\xca\x3f\xc0\0\0", KIND_FLOAT, 1.5),
    (b"\xcb" + struct.pack(">d", -2.25), KIND_FLOAT, -2.25),
    (b"\xc0", KIND_NIL, None),
    (b"\xc2", KIND_BOOL, False),
    (b"\xc3", KIND_BOOL, True),
    (b"\xa0", KIND_TEXT, ""),
    (b"\xa2\xc3\xa9", KIND_TEXT, "é"),
    (b"\xbf" + b"x" * 31, KIND_TEXT, "x" * 31),
    (b"\xd9\x01x", KIND_TEXT, "x"),
    (b"\xda\x00\x01x", KIND_TEXT, "x"),
    (b"\xdb\x00\x00\x00\x01x", KIND_TEXT, "x"),
    (b"\xa2\xff\xfe", KIND_TEXT, "\ufffd\ufffd"),
    (b"\xc4\x02\x00\xff", KIND_BIN, b"\x00\xff"),
    (b"\xc5\x00\x02\x00\xff", KIND_BIN, b"\x00\xff"),
    (b"\xc6\x00\x00\x00\x02\x00\xff", KIND_BIN, b"\x00\xff"),
    (b"\xd4\x05a", KIND_EXT, Ext(5, b"a")),
    (b"\xd5\x05ab", KIND_EXT, Ext(5, b"ab")),
    (b"\xd6\xffabcd", KIND_EXT, Ext(-1, b"abcd")),
    (b"\xd7\x80abcdefgh", KIND_EXT, Ext(-128, b"abcdefgh")),
    (b"\xd8\x7fabcdefghabcdefgh", KIND_EXT, Ext(127, b"abcdefghabcdefgh")),
    (b"\xc7\x00\x05", KIND_EXT, Ext(5, b"")),
    (b"\xc7\x03\x05abc", KIND_EXT, Ext(5, b"abc")),
    (b"\xc8\x00\x03\x05abc", KIND_EXT, Ext(5, b"abc")),
    (b"\xc9\x00\x00\x00\x03\x05abc", KIND_EXT, Ext(5, b"abc")),
    (UNDEFINED, KIND_ABSENT, ABSENT),
    (b"\xd5\x00ab", KIND_ABSENT, ABSENT),
    (b"\xc7\x00\x00", KIND_ABSENT, ABSENT),
    (b"\xc8\x00\x01\x00x", KIND_ABSENT, ABSENT),
    (b"\xc9\x00\x00\x00\x01\x00x", KIND_ABSENT, ABSENT),
    (b"\x90", KIND_ARRAY, []),
    (b"\x92\x01\xc0", KIND_ARRAY, [1, None]),
    (b"\xdc\x00\x01\x07", KIND_ARRAY, [7]),
    (b"\xdd\x00\x00\x00\x01\x07", KIND_ARRAY, [7]),
    (b"\x92" + UNDEFINED + b"\x01", KIND_ARRAY, [None, 1]),
    (b"\x80", KIND_MAP, {}),
    (b"\x81\xa1a\x91\x80", KIND_MAP, {"a": [{}]}),
    (b"\xde\x00\x01\xa1a\x07", KIND_MAP, {"a": 7}),
    (b"\xdf\x00\x00\x00\x01\xa1a\x07", KIND_MAP, {"a": 7}),
    (b"\x82\xa1a" + UNDEFINED + b"\xa1b\x01", KIND_MAP, {"b": 1}),
    (b"\x82\xa1a\x01\xa1a\x02", KIND_MAP, {"a": 2}),
    (b"\x82\xa1a\x01\xa1a" + UNDEFINED, KIND_MAP, {}),
]

# Keys that are not text, and how they are printed.
KEYS: list[tuple[bytes, str]] = [
    (b"\x07", "7"),
    (b"\xcf" + b"\xff" * 8, "18446744073709551615"),
    (b"\xff", "-1"),
    (b"\xc0", "null"),
    (b"\xc2", "false"),
    (b"\xc3", "true"),
    (b"\xcb" + struct.pack(">d", 1.0), "1"),
    (b"\xcb" + struct.pack(">d", 1.5), "1.5"),
    (b"\xcb" + struct.pack(">d", math.nan), "NaN"),
    (b"\xc4\x01x", "x"),
    (b"\xc4\x01\xff", "\ufffd"),
    (b"\xd4\x05a", "5:61"),
    (UNDEFINED, "undefined"),
    (b"\x91\x01", "[object Array]"),
    (b"\x80", "[object Object]"),
]


@pytest.mark.parametrize(("form", "kind", "value"), FORMS)
def test_every_form_has_its_end_its_kind_and_its_value(
    form: bytes, kind: int, value: object
) -> None:
    assert skip(form, 0, len(form)) == len(form)
    assert kind_of(form, 0) == kind
    assert same(decode(form, 0, len(form)), value)


@pytest.mark.parametrize("form", [form for form, _, _ in FORMS])
def test_a_value_is_found_between_others_and_not_past_its_end(form: bytes) -> None:
    data = b"\xc0" + form + b"\xc0"
    end = 1 + len(form)
    assert skip(data, 1, len(data)) == skip(data, 1, end) == end
    for cut in range(1, end):
        assert skip(data, 1, cut) == -1
        with pytest.raises(Malformed):
            decode(data, 1, cut)
    with pytest.raises(Malformed):
        decode(data, 1, len(data))


@pytest.mark.parametrize(
    "bomb",
    [
        b"\xc1",
        b"\x91\xc1",
        b"\xdd\xff\xff\xff\xff",
        b"\xdd\xff\xff\xff\xff" + b"\0" * 1000,
        b"\xdf\xff\xff\xff\xff\xa1a",
        b"\xdf\x80\x00\x00\x00" + b"\0" * 64,
        b"\xdb\xff\xff\xff\xffx",
        b"\xc6\xff\xff\xff\xffx",
        b"\xc9\xff\xff\xff\xff\x05x",
        b"\xdd\xff\xff\xff\xff" * 200,
        b"\x9f" * 100_000,
    ],
)
def test_what_announces_more_than_there_is_ends_at_once(bomb: bytes) -> None:
    assert skip(bomb, 0, len(bomb)) == -1
    with pytest.raises(Malformed):
        decode(bomb, 0, len(bomb))


@pytest.mark.parametrize("level", [b"\x91", b"\x81\xa1a", b"\xdc\x00\x01", b"\xde\x00\x01\xa1a"])
def test_depth_is_no_matter_to_skip_and_limited_in_decode(level: bytes) -> None:
    allowed = level * DECODED_DEPTH_MAX + b"\xc0"
    value = decode(allowed, 0, len(allowed))
    for _ in range(DECODED_DEPTH_MAX):
        assert isinstance(value, dict | list)
        value = value["a"] if isinstance(value, dict) else value[0]
    assert value is None
    for deep in (level * (DECODED_DEPTH_MAX + 1) + b"\xc0", level * 1_000_000 + b"\xc0"):
        assert skip(deep, 0, len(deep)) == len(deep)
        with pytest.raises(Malformed):
            decode(deep, 0, len(deep))


def test_maps_as_keys_of_maps_do_not_grow_without_bounds() -> None:
    data = b"\x81" * DECODED_DEPTH_MAX + b"\xc0" + b"\x01" * DECODED_DEPTH_MAX
    assert decode(data, 0, len(data)) == {"[object Object]": 1}


def test_a_frame_full_of_tiny_values_is_not_opened() -> None:
    count = forms.VALUES_MAX
    data = b"\xdd" + struct.pack(">I", count) + b"\xc0" * count
    assert skip(data, 0, len(data)) == len(data)
    with pytest.raises(Malformed):
        decode(data, 0, len(data))
    smaller = b"\xdd" + struct.pack(">I", count - 1) + b"\xc0" * (count - 1)
    assert decode(smaller, 0, len(smaller)) == [None] * (count - 1)


def test_malformed_is_a_way_to_say_no() -> None:
    assert issubclass(Malformed, Refused)


@pytest.mark.parametrize(("key", "text"), KEYS)
def test_keys_that_are_no_text_are_printed(key: bytes, text: str) -> None:
    data = b"\x81" + key + b"\x01"
    assert decode(data, 0, len(data)) == {text: 1}
    assert key_text(decode(key, 0, len(key))) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1700000000000.0, "1700000000000"),
        (-0.0, "0"),
        (0.5, "0.5"),
        (1e300, "1e+300"),
        (2.0**53, "9007199254740992"),
        (2.0**54, "1.8014398509481984e+16"),
    ],
)
def test_a_float_is_printed_without_a_needless_fraction(number: float, text: str) -> None:
    assert float_text(number) == text
    assert float(text) == number


def test_headers_give_the_count_and_the_first_item() -> None:
    array = b"\xc0\xdc\x00\x02\x01\x02"
    assert array_header(array, 1, len(array)) == (2, 4)
    assert array_header(b"\x92\x01\x02", 0, 3) == (2, 1)
    assert map_header(b"\xdf\0\0\0\x01\xa0\x01", 0, 7) == (1, 5)
    assert map_header(b"\x81\xa0\x01", 0, 3) == (1, 1)
    for data in (b"", b"\xc0", b"\xa1a", b"\xdc\x00", b"\xdd\xff\xff\xff\xff\x00"):
        assert array_header(data, 0, len(data)) == (-1, 0)
    for data in (b"", b"\xc0", b"\x91\x01", b"\xde\x00", b"\xdf\xff\xff\xff\xff\x00"):
        assert map_header(data, 0, len(data)) == (-1, 0)


def test_extensions_and_absence_can_be_told_apart_and_shown() -> None:
    assert Ext(1, b"a") == Ext(1, b"a")
    assert len({Ext(1, b"a"), Ext(1, b"a"), Ext(2, b"a")}) == 2
    assert Ext(1, b"a") != Ext(1, b"b")
    assert Ext(1, b"a") != b"a"
    assert repr(Ext(1, b"a")) == "Ext(1, b'a')"
    assert repr(ABSENT) == "ABSENT"


@given(VALUES)
def test_what_is_written_is_read_back(value: object) -> None:
    data = encode(value)
    assert skip(data, 0, len(data)) == len(data)
    assert same(decode(data, 0, len(data)), as_read(value))


@given(st.binary(max_size=64))
@example(b"\xdf\xff\xff\xff\xff")
def test_garbage_is_skipped_or_refused_and_decoded_or_malformed(data: bytes) -> None:
    end = skip(data, 0, len(data))
    assert -1 <= end <= len(data)
    if end == len(data):
        decode(data, 0, end)
    else:
        with pytest.raises(Malformed):
            decode(data, 0, len(data))


@given(FRAMES)
def test_a_frame_with_wrong_bytes_is_decoded_or_malformed(data: bytes) -> None:
    end = skip(data, 0, len(data))
    if end == len(data):
        decode(data, 0, end)
    else:
        with pytest.raises(Malformed):
            decode(data, 0, len(data))


def spec() -> Any:
    """Another implementation to compare with."""
    return pytest.importorskip("msgspec", exc_type=ImportError)


def as_spec(other: Any, value: object) -> object:
    """Return a value with our extensions as the other implementation's."""
    if isinstance(value, Ext):
        return other.msgpack.Ext(value.code, value.content)
    if isinstance(value, list):
        return [as_spec(other, each) for each in value]
    if isinstance(value, dict):
        return {key: as_spec(other, each) for key, each in value.items()}
    return value


@given(WIDE_VALUES)
def test_what_another_implementation_writes_is_read_the_same(value: object) -> None:
    other = spec()
    data = other.msgpack.encode(as_spec(other, value))
    assert skip(data, 0, len(data)) == len(data)
    assert same(decode(data, 0, len(data)), value)


@given(VALUES)
def test_another_implementation_reads_what_we_write_the_same(value: object) -> None:
    other = spec()
    read = other.msgpack.decode(encode(value))
    assert same(read, as_spec(other, as_read(value)))


@given(FRAMES)
def test_another_implementation_agrees_on_what_is_whole(data: bytes) -> None:
    other = spec()
    try:
        other.msgpack.decode(data, type=other.Raw)
        is_whole = True
    except other.DecodeError:
        is_whole = False
    assert (skip(data, 0, len(data)) == len(data)) == is_whole
