import json
import math
import struct
import zlib
from base64 import b64decode, b64encode

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobyard.model.job import BYTES, GZIP, JSON, MSGPACK, RAW
from jobyard.wire.msgpack.forms import DECODED_DEPTH_MAX, Ext, decode, skip
from jobyard.wire.msgpack.write import Raw, encode
from jobyard.wire.payload import NO_JSON, codec_of, parse_request, to_json, to_msgpack, to_raw
from tests.support.values.msgpack import FRAMES, same

CODECS = st.sampled_from([RAW, MSGPACK, JSON, GZIP, BYTES])
UNDEFINED = Raw(b"\xd4\0\0")

JSON_VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(1 << 31), (1 << 32) - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(),
    ),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=15,
)


def opened(data: bytes) -> object:
    return decode(data, 0, len(data))


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"a": [1, 2.50]}', b'{"a": [1, 2.50]}'),
        (b" 7\n", b" 7\n"),
        (b"null", b"null"),
        (b"hello", b'"hello"'),
        (b'say "hi"\n', b'"say \\"hi\\"\\n"'),
        ("é".encode(), '"é"'.encode()),
        (b"", b'""'),
        (b"NaN", b'"NaN"'),
        (b"-Infinity", b'"-Infinity"'),
        (b"[1,]", b'"[1,]"'),
        (b"\xff\x00", b'{"$base64":"/wA="}'),
        # JSON is UTF-8: other encodings that a parser might guess are plain bytes.
        ("1".encode("utf-16-le"), b'"1\\u0000"'),
        (b"9" * 5000, b"9" * 5000),
        (b"\xef\xbb\xbf1", '"\ufeff1"'.encode()),
    ],
)
def test_raw_to_json_is_itself_or_text_or_base64(body: bytes, text: bytes) -> None:
    assert to_json(RAW, body) == text
    assert to_json(BYTES, body) == text


@given(st.binary())
def test_bytes_stay_bytes_where_they_can(body: bytes) -> None:
    assert to_raw(BYTES, body) == body
    assert opened(to_msgpack(BYTES, body)) == body


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, -2, "é", None, True, False]}, '{"a":[1,-2,"é",null,true,false]}'),
        ({}, "{}"),
        ([], "[]"),
        ("x", '"x"'),
        ('"\\\n\0', '"\\"\\\\\\n\\u0000"'),
        (1.5, "1.5"),
        (1700000000000, "1700000000000"),
        (Raw(b"\xcf" + b"\xff" * 8), "18446744073709551615"),
        (Raw(b"\xd3\x80" + b"\0" * 7), "-9223372036854775808"),
        (Raw(b"\xca" + struct.pack(">f", 0.5)), "0.5"),
        ([math.nan, math.inf, -math.inf], "[null,null,null]"),
        (b"\xff\x00", '{"$base64":"/wA="}'),
        ({"a": b"", "b": Ext(5, b"\xff\x00")}, '{"a":{"$base64":""},"b":{"$base64":"/wA="}}'),
        ({"a": UNDEFINED, "b": 1, "c": UNDEFINED, "d": 2}, '{"b":1,"d":2}'),
        ([UNDEFINED, 1], "[null,1]"),
        (UNDEFINED, "null"),
        (Raw(b"\x84\x01\xc0\xc3\xc0\x91\x01\xc0\xc4\x01\xff\xc0"), None),
        (Raw(b"\xa1\xff"), '"\ufffd"'),
    ],
)
def test_msgpack_to_json(value: object, text: str | None) -> None:
    if text is None:
        text = '{"1":null,"true":null,"[object Array]":null,"\ufffd":null}'
    assert to_json(MSGPACK, encode(value)).decode() == text


@pytest.mark.parametrize("level", [b"\x91", b"\x81\xa1a"])
def test_msgpack_nested_too_deep_is_shown_as_bytes(level: bytes) -> None:
    allowed = level * DECODED_DEPTH_MAX + b"\xc0"
    assert to_json(MSGPACK, allowed).count(b"null") == 1
    for deep in (level + allowed, level * 100_000 + b"\xc0"):
        shown = json.loads(to_json(MSGPACK, deep))
        assert b64decode(shown["$base64"]) == deep
        assert to_raw(MSGPACK, deep) == to_json(MSGPACK, deep)


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x91", b"\xc0\xc0", b"\xdd\xff\xff\xff\xff"])
def test_invalid_msgpack_is_shown_as_bytes(body: bytes) -> None:
    assert b64decode(json.loads(to_json(MSGPACK, body))["$base64"]) == body


def test_maps_as_keys_of_maps_do_not_grow_without_bounds() -> None:
    body = b"\x81" * DECODED_DEPTH_MAX + b"\xc0" + b"\x01" * DECODED_DEPTH_MAX
    assert to_json(MSGPACK, body) == b'{"[object Object]":1}'
    # Too deep to be opened, even as a key.
    deep = b"\x81" + b"\x91" * DECODED_DEPTH_MAX * 2 + b"\xc0\x01"
    assert b"$base64" in to_json(MSGPACK, deep)


def test_a_client_of_bytes_gets_bytes() -> None:
    assert to_raw(RAW, b"\xff") == b"\xff"
    assert to_raw(JSON, b"{ }") == b"{ }"
    assert to_raw(MSGPACK, encode(b"\xff\x00")) == b"\xff\x00"
    assert to_raw(MSGPACK, encode(bytes(70000))) == bytes(70000)
    assert to_raw(MSGPACK, encode([b"\xff\x00"])) == b'[{"$base64":"/wA="}]'
    assert to_raw(MSGPACK, encode("x")) == b'"x"'
    assert to_raw(MSGPACK, encode(b"x") + b"\xc0") == to_json(MSGPACK, encode(b"x") + b"\xc0")
    assert to_raw(MSGPACK, b"") == b'{"$base64":""}'


@pytest.mark.parametrize("codec", [RAW, JSON])
@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"a": [1, -2, null, true, "x"]}', {"a": [1, -2, None, True, "x"]}),
        (b"4294967295", 4294967295),
        (b"-2147483648", -2147483648),
        (b"4294967296", 4294967296.0),
        (b"-2147483649", -2147483649.0),
        (b"1700000000000", 1700000000000.0),
        (b"9" * 5000, math.inf),
        (b"-" + b"9" * 5000, -math.inf),
        (b"1.0", 1.0),
        (b"hello", "hello"),
        (b"", ""),
        (b"NaN", "NaN"),
        (b"\xff\x00", {"$base64": "/wA="}),
        (b'"\\ud800"', "\ufffd"),
        (b'{"\\ud83d\\ude00": 1}', {"\U0001f600": 1}),
    ],
)
def test_raw_and_json_to_msgpack(codec: int, body: bytes, value: object) -> None:
    assert same(opened(to_msgpack(codec, body)), value)


def test_each_family_gets_its_own_back_byte_for_byte() -> None:
    body = b"\xcf\x00"
    assert to_msgpack(MSGPACK, body) == body
    assert to_raw(RAW, body) == body
    assert to_json(JSON, body) == body


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_json_nested_too_deep_is_text(opening: bytes, closing: bytes) -> None:
    allowed = opening * DECODED_DEPTH_MAX + b"1" + closing * DECODED_DEPTH_MAX
    assert to_json(RAW, allowed) == allowed
    assert not isinstance(opened(to_msgpack(RAW, allowed)), str)
    for deep in (opening + allowed + closing, opening * 100_000 + b"1" + closing * 100_000):
        assert json.loads(to_json(RAW, deep)) == deep.decode()
        assert opened(to_msgpack(RAW, deep)) == deep.decode()
        assert opened(to_msgpack(JSON, deep)) == deep.decode()


def test_brackets_within_strings_are_not_depth() -> None:
    body = json.dumps(["[" * 1000, '"[\\' * 1000, {"{" * 1000: 1}]).encode()
    assert to_json(RAW, body) == body
    assert opened(to_msgpack(RAW, body)) == json.loads(body)


def test_unbalanced_brackets_are_text() -> None:
    for body in (b"]" * 500 + b"[" * 500, b'"' + b"\\" * 501, b"[" * 100_000, b'["' + b"[" * 9999):
        assert opened(to_msgpack(RAW, body)) == body.decode()


@given(JSON_VALUES)
def test_json_survives_the_way_through_msgpack(value: object) -> None:
    packed = to_msgpack(RAW, json.dumps(value).encode())
    assert opened(packed) == value
    assert json.loads(to_json(MSGPACK, packed)) == value


@given(CODECS, st.binary(max_size=40) | FRAMES | st.text(max_size=20).map(str.encode))
@example(JSON, b"\xff")
def test_any_bytes_become_something_well_formed(codec: int, body: bytes) -> None:
    text = to_json(codec, body)
    packed = to_msgpack(codec, body)
    assert isinstance(to_raw(codec, body), bytes)
    if codec != JSON:
        json.loads(text.decode())
    if codec != MSGPACK:
        assert skip(packed, 0, len(packed)) == len(packed)


# --- gzip


def gz(content: bytes) -> bytes:
    zipper = zlib.compressobj(wbits=31)
    return b"gz:" + b64encode(zipper.compress(content) + zipper.flush())


@pytest.mark.parametrize(
    ("data", "codec"),
    [(b'{"a":1}', JSON), (b" 7", JSON), (gz(b"1"), GZIP), (b"gz:", GZIP), (b"gz", RAW), (b"", RAW)],
)
def test_what_a_door_of_text_is_given_tells_how_it_is_written(data: bytes, codec: int) -> None:
    assert codec_of(data) == codec


@pytest.mark.parametrize(
    ("content", "value"),
    [(b'{"a": [1]}', {"a": [1]}), (b"words", "words"), (b"", ""), (b"\xff", {"$base64": "/w=="})],
)
def test_what_is_zipped_is_shown_as_what_it_holds(content: bytes, value: object) -> None:
    assert to_raw(GZIP, gz(content)) == content
    assert json.loads(to_json(GZIP, gz(content))) == value
    assert opened(to_msgpack(GZIP, gz(content))) == value


@pytest.mark.parametrize(
    "body",
    [
        b"gz:",
        b"gz:AAAA",
        b"gz:no base64!",
        gz(b"cut short")[:-8],
        # A bomb: what it holds is never made.
        gz(b" " * ((1 << 20) + 1)),
    ],
)
def test_what_cannot_be_opened_is_a_text(body: bytes) -> None:
    assert to_raw(GZIP, body) == body
    assert to_json(GZIP, body) == b'"' + body + b'"'
    assert opened(to_msgpack(GZIP, body)) == body.decode()


def test_as_much_as_a_megabyte_is_opened() -> None:
    assert to_raw(GZIP, gz(b" " * (1 << 20))) == b" " * (1 << 20)


@pytest.mark.parametrize(
    "number",
    [
        0,
        -1,
        1 << 53,
        (1 << 53) + 1,
        -(1 << 53) - 1,
        (1 << 63) - 1,
        1 << 63,
        (1 << 64) - 1,
        -(1 << 63),
    ],
)
def test_whole_numbers_of_a_request_stay_what_they_are(number: int) -> None:
    value = parse_request(b'{"n": %d}' % number)
    assert json.loads(to_json(MSGPACK, encode(value))) == {"n": number}


def test_whole_numbers_beyond_64_bits_are_doubles() -> None:
    assert parse_request(b"%d" % (1 << 64)) == float(1 << 64)
    assert parse_request(b"1" + b"0" * 300) == 1e300


@pytest.mark.parametrize("text", [b"1e999", b"[-1e400]", b"9" * 400, b"NaN", b"Infinity"])
def test_numbers_that_no_double_can_hold_are_no_request(text: bytes) -> None:
    assert parse_request(text) is NO_JSON
