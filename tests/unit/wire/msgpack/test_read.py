import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobyard.wire.msgpack.forms import (
    ABSENT,
    KIND_ABSENT,
    KIND_ARRAY,
    KIND_BOOL,
    KIND_FLOAT,
    KIND_INTEGER,
    KIND_NIL,
    KIND_TEXT,
    Malformed,
    decode,
    skip,
)
from jobyard.wire.msgpack.read import MAP_KEYS_MAX, MapFields, read_fields, text_at
from jobyard.wire.msgpack.write import Raw, encode
from tests.support.values.msgpack import FRAMES, WIDE_VALUES, as_read, same

UNDEFINED = Raw(b"\xd4\0\0")


def fields_of(value: object) -> MapFields:
    data = encode(value)
    fields = read_fields(data, 0, len(data))
    assert fields is not None
    return fields


def number(form: str, value: float) -> Raw:
    """Return a number in the requested form, not in the shortest."""
    first = {"Q": b"\xcf", "q": b"\xd3", "f": b"\xca", "d": b"\xcb", "I": b"\xce"}[form]
    return Raw(first + struct.pack(">" + form, value))


COMMAND = {
    "cmd": "PUSH",
    "queue": "emails",
    "data": {"to": ["a", "b"], "n": 1.5},
    "priority": -7,
    "delay": 0,
    "durable": True,
    "lifo": False,
    "reqId": None,
    "ttl": UNDEFINED,
    "": "empty",
    "ids": ["a", "é"],
}


def test_a_field_is_found_by_its_name_and_no_other() -> None:
    fields = fields_of(COMMAND)
    assert fields.has(b"cmd")
    assert fields.has(b"")
    assert not fields.has(b"cm")
    assert not fields.has(b"cmd2")
    assert not fields.has(b"cmx")
    assert not fields.has(b"to")


def test_undefined_is_not_there_and_nil_is() -> None:
    fields = fields_of(COMMAND)
    assert not fields.has(b"ttl")
    assert not fields.is_nil(b"ttl")
    assert fields.raw(b"ttl") is None
    assert fields.value(b"ttl") is ABSENT
    assert fields.kind(b"ttl") == KIND_ABSENT
    assert fields.find(b"ttl") == (-1, -1)
    assert fields.has(b"reqId")
    assert fields.is_nil(b"reqId")
    assert fields.value(b"reqId") is None
    assert not fields.is_nil(b"nothing")
    assert fields.value(b"nothing") is ABSENT


def test_a_value_comes_back_byte_for_byte_or_decoded() -> None:
    data = encode(COMMAND)
    fields = fields_of(COMMAND)
    raw = fields.raw(b"data")
    assert raw == encode(COMMAND["data"])
    start, end = fields.find(b"data")
    assert data[start:end] == raw
    assert fields.value(b"data") == COMMAND["data"]
    assert fields.value(b"priority") == -7


def test_kinds() -> None:
    fields = fields_of(COMMAND | {"f": 1.5})
    for key, kind in (
        (b"cmd", KIND_TEXT),
        (b"priority", KIND_INTEGER),
        (b"f", KIND_FLOAT),
        (b"durable", KIND_BOOL),
        (b"ids", KIND_ARRAY),
        (b"reqId", KIND_NIL),
        (b"nothing", KIND_ABSENT),
    ):
        assert fields.kind(key) == kind


def test_text_is_only_text() -> None:
    fields = fields_of(COMMAND | {"bin": b"x", "bad": Raw(b"\xa1\xff")})
    assert fields.text(b"queue") == "emails"
    assert fields.content(b"queue") == b"emails"
    assert fields.text(b"") == "empty"
    assert fields.text(b"bad") == "\ufffd"
    assert fields.content(b"bad") == b"\xff"
    for key in (b"bin", b"priority", b"reqId", b"ids", b"ttl", b"nothing"):
        assert fields.text(key) is None
        assert fields.content(key) is None


def test_texts_is_only_an_array_of_text() -> None:
    fields = fields_of({"ids": ["a", "é" * 40], "none": [], "mixed": ["a", 1], "text": "a"})
    assert fields.texts(b"ids") == ["a", "é" * 40]
    assert fields.texts(b"none") == []
    assert fields.texts(b"mixed") is None
    assert fields.texts(b"text") is None
    assert fields.texts(b"nothing") is None


def test_only_true_is_true_and_only_false_is_false() -> None:
    fields = fields_of(COMMAND | {"one": 1})
    assert fields.is_true(b"durable")
    assert not fields.is_false(b"durable")
    assert fields.is_false(b"lifo")
    for key in (b"lifo", b"one", b"cmd", b"ttl", b"nothing"):
        assert not fields.is_true(key)
    for key in (b"reqId", b"delay", b"ttl", b"nothing"):
        assert not fields.is_false(key)


@pytest.mark.parametrize(
    ("value", "whole", "real"),
    [
        (7, 7, 7.0),
        (-7, -7, -7.0),
        (number("I", (1 << 32) - 1), (1 << 32) - 1, 4294967295.0),
        (number("q", -(1 << 63)), -(1 << 63), -(2.0**63)),
        (number("q", -5), -5, -5.0),
        (number("Q", (1 << 63) - 1), (1 << 63) - 1, 2.0**63),
        (number("Q", 1 << 63), None, 2.0**63),
        (number("Q", (1 << 64) - 1), None, 2.0**64),
        (number("d", 1700000000000.0), 1700000000000, 1700000000000.0),
        (number("d", -0.0), 0, 0.0),
        (number("d", 0.5), None, 0.5),
        (number("d", 1e300), None, 1e300),
        (number("d", 2.0**63), None, 2.0**63),
        (number("d", -(2.0**63)), -(1 << 63), -(2.0**63)),
        (number("d", float("inf")), None, float("inf")),
        (number("f", 16.0), 16, 16.0),
        ("7", None, None),
        (True, None, None),
        (None, None, None),
        (UNDEFINED, None, None),
        ([7], None, None),
    ],
)
def test_numbers_in_every_form(value: object, whole: int | None, real: float | None) -> None:
    fields = fields_of({"n": value})
    for otherwise in (-1, 99):
        assert fields.integer(b"n", otherwise) == (otherwise if whole is None else whole)
        assert fields.number(b"n", float(otherwise)) == (otherwise if real is None else real)
        assert fields.integer(b"m", otherwise) == otherwise
        assert fields.number(b"m", float(otherwise)) == otherwise


def test_nan_is_a_number_but_no_integer() -> None:
    fields = fields_of({"n": float("nan")})
    assert fields.integer(b"n", -1) == -1
    assert fields.number(b"n", 0.0) != fields.number(b"n", 0.0)


def test_the_last_of_two_equal_keys_counts() -> None:
    data = b"\x83\xa1a\x01\xa1b\x02\xa1a\x03"
    fields = read_fields(data, 0, len(data))
    assert fields is not None
    assert fields.integer(b"a", -1) == 3
    data = b"\x82\xa1a\x01\xa1a\xd4\0\0"
    fields = read_fields(data, 0, len(data))
    assert fields is not None
    assert not fields.has(b"a")


def test_keys_that_are_no_text_are_passed_over_in_any_length_of_form() -> None:
    data = b"\x84\x01\xa1x\xc4\x01a\x05\xd9\x01a\x06\x91\xa1a\x07"
    fields = read_fields(data, 0, len(data))
    assert fields is not None
    assert fields.integer(b"a", -1) == 6
    assert not fields.has(b"\x01")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc0",
        b"\x91\x80",
        b"\xa1a",
        b"\x80\xc0",
        b"\x81\xa1a",
        b"\x81\xa1a\x01\xc0",
        b"\x81\xa2a",
        b"\x81\xc1\x01",
        b"\x81\xa1a\xc1",
        b"\xdf\xff\xff\xff\xff",
        b"\xdf\x00\x00\x00\x02\xa1a\x01",
        b"\xde\x00",
    ],
)
def test_anything_but_one_whole_map_has_no_fields(data: bytes) -> None:
    assert read_fields(data, 0, len(data)) is None


def test_a_map_of_endless_keys_is_refused() -> None:
    def named(count: int) -> bytes:
        return b"\xde" + struct.pack(">H", count) + b"\xa1a\x01" * count

    assert read_fields(named(MAP_KEYS_MAX), 0, 3 + 3 * MAP_KEYS_MAX) is not None
    assert read_fields(named(MAP_KEYS_MAX + 1), 0, 6 + 3 * MAP_KEYS_MAX) is None


def test_a_deep_value_is_carried_but_not_opened() -> None:
    deep = b"\x91" * 100_000 + b"\xc0"
    fields = fields_of({"data": Raw(deep), "n": 1})
    assert fields.raw(b"data") == deep
    assert fields.integer(b"n", 0) == 1
    with pytest.raises(Malformed):
        fields.value(b"data")


def test_a_map_is_read_in_the_middle_of_other_bytes() -> None:
    data = b"\xff\xff" + encode({"a": "x", "b": 2}) + b"\x00"
    fields = read_fields(data, 2, len(data) - 1)
    assert fields is not None
    assert fields.text(b"a") == "x"
    assert fields.integer(b"b", 0) == 2
    assert fields.raw(b"b") == b"\x02"
    assert read_fields(data, 2, len(data)) is None


def test_text_at_reads_text_and_nothing_else() -> None:
    assert text_at(b"\xc0\xa1x", 1, 3) == "x"
    assert text_at(b"\xc0\xa1x", 0, 1) is None


@given(st.dictionaries(st.text(max_size=8), WIDE_VALUES, max_size=20))
def test_fields_say_what_the_whole_map_says(pairs: dict[str, object]) -> None:
    fields = fields_of(pairs)
    for key, value in pairs.items():
        assert same(fields.value(key.encode()), as_read(value))
        assert fields.raw(key.encode()) == encode(value)


@given(FRAMES | st.binary(max_size=40).map(lambda rest: b"\x82" + rest))
def test_garbage_has_fields_exactly_when_it_is_a_map(data: bytes) -> None:
    fields = read_fields(data, 0, len(data))
    is_whole = skip(data, 0, len(data)) == len(data)
    is_map = is_whole and isinstance(decode(data, 0, len(data)), dict)
    assert (fields is not None) == is_map
    if fields is not None:
        for key in (b"", b"a", b"cmd"):
            raw = fields.raw(key)
            assert (raw is not None) == fields.has(key)
            fields.text(key)
            fields.texts(key)
            fields.integer(key, 0)
            fields.number(key, 0.0)
