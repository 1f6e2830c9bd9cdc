import json
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from librt.strings import BytesWriter

from jobyard.wire.json.read import read_object
from jobyard.wire.json.scan import JSON_DEPTH_MAX, skip
from jobyard.wire.json.write import (
    JsonRaw,
    Unwritable,
    encode,
    quoted,
    write_bool,
    write_content,
    write_float,
    write_int,
    write_texts,
)
from jobyard.wire.msgpack.forms import ABSENT

VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(),
    ),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", b'""'),
        ("abc", b'"abc"'),
        ('a"b\\c', rb'"a\"b\\c"'),
        ("\b\t\n\f\r", rb'"\b\t\n\f\r"'),
        ("\0\x1f", rb'"\u0000\u001f"'),
        ("\x7f", b'"\x7f"'),
        ("</script>&", rb'"\u003c/script\u003e\u0026"'),
        ("\u2028a\u2029", rb'"\u2028a\u2029"'),
        ("\u2027\u202a\u20ac", '"\u2027\u202a\u20ac"'.encode()),
        ("é😀", '"é😀"'.encode()),
        ("\ud800a", b'"\xef\xbf\xbda"'),
        ("\ud83d\ude00", '"😀"'.encode()),
    ],
)
def test_text(text: str, expected: bytes) -> None:
    assert quoted(text) == expected


@example("\u2028")
@given(st.text())
def test_any_text_comes_back_and_breaks_out_of_nothing(text: str) -> None:
    data = quoted(text)
    assert json.loads(data) == text
    assert skip(data, 0, len(data)) == len(data)
    assert not set(data) & set(b"\r\n\0<>&")
    assert not {"\u2028", "\u2029"} & set(data.decode())


@given(st.binary())
def test_bytes_that_are_no_text_do_no_harm(content: bytes) -> None:
    out = BytesWriter()
    write_content(out, content)
    assert skip(out.getvalue(), 0, len(out)) == len(out)


@example(-(1 << 63))
@example((1 << 63) - 1)
@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_whole_numbers(number: int) -> None:
    out = BytesWriter()
    write_int(out, number)
    assert out.getvalue() == b"%d" % number


@given(st.floats())
def test_floats(number: float) -> None:
    out = BytesWriter()
    write_float(out, number)
    if math.isfinite(number):
        assert json.loads(out.getvalue()) == number
    else:
        assert out.getvalue() == b"null"


def test_small_things() -> None:
    out = BytesWriter()
    write_bool(out, True)  # noqa: FBT003  it is what is written
    write_bool(out, False)  # noqa: FBT003
    write_texts(out, [])
    write_texts(out, ["a", "\n"])
    assert out.getvalue() == b'truefalse[]["a","\\n"]'


@given(VALUES)
def test_any_value_comes_back(value: object) -> None:
    data = encode(value)
    assert json.loads(data) == value
    assert skip(data, 0, len(data)) == len(data)


def test_raw_and_absent() -> None:
    value = {"a": JsonRaw(b"[1, 2]"), "b": ABSENT, "c": (ABSENT, None), "d": math.inf}
    assert encode(value) == b'{"a":[1, 2],"c":[null,null],"d":null}'
    assert encode({"b": ABSENT}) == b"{}"


def test_what_has_no_form() -> None:
    with pytest.raises(TypeError):
        encode(b"bytes")
    with pytest.raises(TypeError):
        encode({1: 2})


def test_what_can_be_written_can_be_read() -> None:
    nested: object = {}
    for _ in range(JSON_DEPTH_MAX - 1):
        nested = {"a": nested}
    data = encode(nested)
    assert read_object(data, 0, len(data)) is not None
    with pytest.raises(Unwritable):
        encode([nested])
    with pytest.raises(Unwritable):
        encode({"a": nested})
