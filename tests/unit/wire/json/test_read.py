import json
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobyard.wire.json.read import (
    JsonFields,
    content_at,
    first_items,
    integer_at,
    items,
    kind_of,
    read_object,
    read_objects,
    text_at,
    value_at,
)
from jobyard.wire.json.scan import JSON_DEPTH_MAX, LONG_TEXT, NUMBER_SIZE_MAX, skip, skip_blanks
from jobyard.wire.msgpack.forms import (
    ABSENT,
    KIND_ABSENT,
    KIND_ARRAY,
    KIND_BOOL,
    KIND_FLOAT,
    KIND_INTEGER,
    KIND_MAP,
    KIND_NIL,
    KIND_TEXT,
)

# Good documents, each of a kind.
GOOD = [
    (b"null", KIND_NIL),
    (b"true", KIND_BOOL),
    (b"false", KIND_BOOL),
    (b"0", KIND_INTEGER),
    (b"-0", KIND_INTEGER),
    (b"10", KIND_INTEGER),
    (b"-12345678901234567890123", KIND_INTEGER),
    (b"0.5", KIND_FLOAT),
    (b"-1.50", KIND_FLOAT),
    (b"1e5", KIND_FLOAT),
    (b"1E+05", KIND_FLOAT),
    (b"0e-0", KIND_FLOAT),
    (b"1.5e300", KIND_FLOAT),
    (b'""', KIND_TEXT),
    (b'"\x7f/"', KIND_TEXT),
    ('"é\u2028😀"'.encode(), KIND_TEXT),
    (rb'"\"\\\/\b\f\n\r\t\u00e9\uD83D\uDE00"', KIND_TEXT),
    (rb'"\ud800"', KIND_TEXT),
    (b"[]", KIND_ARRAY),
    (b"[ \t\r\n]", KIND_ARRAY),
    (b'[1,"a",[],{}]', KIND_ARRAY),
    (b"[ 1 , [ 2 ] ]", KIND_ARRAY),
    (b"{}", KIND_MAP),
    (b"{ }", KIND_MAP),
    (b'{"":0}', KIND_MAP),
    (b'{ "a" : { "b" : [ ] } , "c" : null }', KIND_MAP),
    (b'{"a":1,"a":2}', KIND_MAP),
]

# Not JSON, however similar it looks.
BAD = [
    *(b"", b" ", b"\n", b",", b":", b"]", b"}", b"'a'", b"a", b"undefined", b"\xef\xbb\xbf1"),
    *(b"nul", b"nulL", b"True", b"trua", b"falsx", b"NaN", b"Infinity", b"-Infinity", b"nullx"),
    *(b"-", b"+1", b"01", b"-01", b"1.", b".5", b"1.e5", b"1e", b"1e+", b"1_0", b"0x1", b"1 2"),
    *(b"--1", b"1.2.3", b"1e5.5", b"1e5e5", b"- 1", b"00", b"1,", b"\xd9\xa1", b"1a"),
    *(b'"', b'"a', b'a"', b'"\\"', b'"\\x"', b'"\\u"', b'"\\u12"', b'"\\u12g4"', b'"\\u 123"'),
    *(b'"\\u+123"', b'"\\', b'"\\u1234', b'"\\U0000"', b'"\n"', b'"\t"', b'"\0"', b'"\x1f"'),
    *(b'"\xff"', b'"\xc3"', b'"\xed\xa0\x80"', b'"\xc0\x80"', b'"\xf4\x90\x80\x80"', b"[\xff]"),
    *(b"[", b"[1", b"[1,", b"[1,]", b"[,1]", b"[1,,2]", b"[,]", b"[1 2]", b"[1}", b"[1:2]", b"]["),
    *(b"[[]", b"[]]", b"[1]x", b"[/**/]", b"[//\n]", b"[\x0b]", b"[\x0c1]", b"[\xc2\xa01]"),
    *(b"{", b"{]", b'{"a"', b'{"a":', b'{"a":1', b'{"a":1,', b'{"a":1,}', b"{,}", b'{"a"}'),
    *(b'{"a",1}', b"{a:1}", b"{1:1}", b'{"a":1 "b":2}', b'{"a":1,,"b":2}', b'{"a"::1}', b'{"a":}'),
    *(b'{"a":1}}', b'{"a":1]', b'{"a":[}', b"{'a':1}", b'{"a":1,"b"}', b"{null:1}", b'{"a":1}{}'),
    *(b'{"\xff":1}', b'{"\n":1}', b'{"a\\":1}', b"{[]:1}", b"{:1}", b'{"a":\x00}', b'{"a" 1}'),
]

ENCODED = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(),
    ),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
).flatmap(
    lambda value: st.sampled_from(
        [
            json.dumps(value).encode(),
            json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(),
            json.dumps(value, indent=1).encode(),
        ]
    )
)


def accepts(data: bytes) -> bool:
    """Whether we take the bytes for one document; each door must say the same."""
    start = skip_blanks(data, 0, len(data))
    end = skip(data, start, len(data))
    is_whole = end >= 0 and skip_blanks(data, end, len(data)) == len(data)
    fields = read_object(data, 0, len(data))
    spans = items(data, 0, len(data))
    try:
        data.decode()
        is_utf8 = True
    except UnicodeDecodeError:
        is_utf8 = False
    if data[start : start + 1] == b"{":
        assert (fields is not None) == (is_whole and is_utf8)
    else:
        assert fields is None
    if data[start : start + 1] == b"[":
        assert (spans is not None) == (is_whole and is_utf8)
    else:
        assert spans is None
    return is_whole and is_utf8


def python_accepts(data: bytes) -> bool:
    try:
        json.loads(data.decode(), parse_constant=refuse)
    except ValueError:
        return False
    return True


def refuse(word: str) -> None:
    raise ValueError(word)


def fields_of(document: bytes) -> JsonFields:
    fields = read_object(document, 0, len(document))
    assert fields is not None
    return fields


@pytest.mark.parametrize(("data", "kind"), GOOD)
def test_good_documents(data: bytes, kind: int) -> None:
    assert python_accepts(data)
    assert accepts(data)
    assert accepts(b" \t\r\n" + data + b"\n ")
    assert skip(data, 0, len(data)) == len(data)
    assert kind_of(data, 0, len(data)) == kind
    # Any of it missing leaves another value or none.
    for size in range(len(data)):
        assert accepts(data[:size]) == python_accepts(data[:size])


@pytest.mark.parametrize("data", BAD)
def test_bad_documents(data: bytes) -> None:
    assert not python_accepts(data)
    assert not accepts(data)
    assert items(b"[" + data + b"]", 0, len(data) + 2) in (None, [])
    assert read_object(b'{"a":' + data + b"}", 0, len(data) + 6) is None


@given(ENCODED)
def test_whatever_python_writes_is_accepted(data: bytes) -> None:
    assert accepts(data)
    assert value_at(data, 0, len(data)) == json.loads(data)


@given(ENCODED, st.data())
def test_whatever_is_spoilt_is_judged_as_python_judges_it(data: bytes, draw: st.DataObject) -> None:
    for _ in range(draw.draw(st.integers(1, 3))):
        at = draw.draw(st.integers(0, len(data)))
        piece = draw.draw(
            st.sampled_from(
                [b"", *(bytes([byte]) for byte in b'{}[],:"\\ \n01-+.eEtfnu\0\xff\xc3')]
            )
        )
        data = data[:at] + piece + data[at + draw.draw(st.integers(0, 2)) :]
    assert accepts(data) == python_accepts(data)


@example(b"[1.5e5]")
@given(st.text('{}[],:"\\ 01-+.eE', max_size=12).map(str.encode))
def test_noise_is_judged_as_python_judges_it(data: bytes) -> None:
    assert accepts(data) == python_accepts(data)


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
def test_depth_is_bounded_and_costs_nothing(opening: bytes) -> None:
    closing = opening.translate(bytes.maketrans(b"[{", b"]}"), b'"a:')[::-1]
    per = len(closing)
    for count in range(1, 3 * JSON_DEPTH_MAX):
        data = opening * count + b"1" + closing * count
        depth = count * per
        assert accepts(data) == (depth <= JSON_DEPTH_MAX)
    # Empty ones are as deep as others.
    empty = b"[" * JSON_DEPTH_MAX + b"]" * JSON_DEPTH_MAX
    assert accepts(empty)
    assert not accepts(b"[" + empty + b"]")
    bomb = opening * 1_000_000
    assert skip(bomb, 0, len(bomb)) == -1
    assert read_object(bomb, 0, len(bomb)) is None


def test_numbers_are_bounded() -> None:
    most = b"1" * NUMBER_SIZE_MAX
    assert accepts(most)
    assert not accepts(most + b"1")
    assert not accepts(b"0." + b"0" * NUMBER_SIZE_MAX)
    assert value_at(most, 0, len(most)) == int(most)


def test_only_the_bytes_named_are_read() -> None:
    data = b'xx{"a":[1,2]}yy'
    assert read_object(data, 0, len(data)) is None
    fields = read_object(data, 2, len(data) - 2)
    assert fields is not None
    assert fields.raw(b"a") == b"[1,2]"
    assert items(data, 7, 12) == [(8, 9), (10, 11)]
    for end in range(2, len(data) - 2):
        assert read_object(data, 2, end) is None
    assert skip(b"12345", 1, 3) == 3
    assert skip(b'"ab"', 0, 3) == -1
    assert skip(b"true", 0, 3) == -1
    assert skip(b"1", 1, 1) == -1


DOCUMENT = {
    "text": "a\n\u2028é😀",
    "plain": "abc",
    "one": 1,
    "minus": -7,
    "half": 0.5,
    "big": 1 << 70,
    "yes": True,
    "no": False,
    "nil": None,
    "list": [1, [2], {"a": "]"}],
    "map": {"a": {"b": "}"}, "one": 2},
    "texts": ["a", "\n"],
    "": "empty",
    "é": "e",
}


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("is_ascii", [True, False])
def test_fields_say_what_was_written(indent: int | None, *, is_ascii: bool) -> None:
    fields = fields_of(json.dumps(DOCUMENT, indent=indent, ensure_ascii=is_ascii).encode())
    assert fields.keys() == list(DOCUMENT)
    for key, value in DOCUMENT.items():
        name = key.encode()
        assert fields.has(name)
        assert fields.value(name) == value
        raw = fields.raw(name)
        assert raw is not None
        assert json.loads(raw) == value
        start, end = fields.find(name)
        assert fields.data[start:end] == raw
        assert fields.text(name) == (value if isinstance(value, str) else None)
        content = value.encode() if isinstance(value, str) else None
        assert fields.content(name) == content
        assert fields.is_true(name) == (value is True)
        assert fields.is_false(name) == (value is False)
        assert fields.is_nil(name) == (value is None)
    assert fields.texts(b"texts") == ["a", "\n"]
    assert fields.texts(b"list") is None
    assert fields.texts(b"plain") is None


def test_what_is_not_there() -> None:
    fields = fields_of(b'{"a":1,"bc":2}')
    for key in (b"b", b"", b"ab", b"A", b"c", b"bcd"):
        assert not fields.has(key)
        assert fields.find(key) == (-1, -1)
        assert fields.kind(key) == KIND_ABSENT
        assert fields.raw(key) is None
        assert fields.value(key) is ABSENT
        assert fields.text(key) is None
        assert fields.content(key) is None
        assert fields.texts(key) is None
        assert fields.integer(key, 5) == 5
        assert fields.number(key, 0.5) == 0.5
        assert not fields.is_nil(key)
        assert not fields.is_true(key)
        assert not fields.is_false(key)
    assert fields_of(b" { } ").keys() == []


def test_of_two_equal_keys_the_last_counts_however_it_is_written() -> None:
    assert fields_of(b'{"a":1,"a":2}').integer(b"a", 0) == 2
    assert fields_of(rb'{"a":1,"\u0061":2}').integer(b"a", 0) == 2
    assert fields_of(rb'{"\u0061":1,"a":2}').integer(b"a", 0) == 2
    fields = fields_of(rb'{"\"":1,"\u00e9":2,"\n":3}')
    assert fields.integer(b'"', 0) == 1
    assert fields.integer("é".encode(), 0) == 2
    assert fields.integer(b"\n", 0) == 3
    assert fields.keys() == ['"', "é", "\n"]


@given(ENCODED)
def test_an_object_is_found_as_python_finds_it(data: bytes) -> None:
    expected = json.loads(data)
    fields = read_object(data, 0, len(data))
    spans = items(data, 0, len(data))
    assert (fields is not None) == isinstance(expected, dict)
    assert (spans is not None) == isinstance(expected, list)
    if fields is not None:
        assert fields.keys() == list(expected)
        for key, value in expected.items():
            assert fields.value(key.encode()) == value
    if spans is not None:
        assert [value_at(data, start, end) for start, end in spans] == expected


@pytest.mark.parametrize(
    ("number", "whole"),
    [
        (b"0", 0),
        (b"-0", 0),
        (b"123", 123),
        (b"-123", -123),
        (b"999999999999999999", 10**18 - 1),
        (b"9223372036854775807", (1 << 63) - 1),
        (b"9223372036854775808", None),
        (b"-9223372036854775808", -(1 << 63)),
        (b"-9223372036854775809", None),
        (b"1" * 100, None),
        (b"1.0", 1),
        (b"1e3", 1000),
        (b"-2.5e1", -25),
        (b"1.5", None),
        (b"1e18", 10**18),
        (b"1e19", None),
        (b"1e999", None),
        (b"-1e999", None),
        (b'"1"', None),
        (b"true", None),
        (b"null", None),
        (b"[1]", None),
    ],
)
def test_whole_numbers(number: bytes, whole: int | None) -> None:
    expected = 77 if whole is None else whole
    assert integer_at(number, 0, len(number), 77) == expected
    assert fields_of(b'{"a": ' + number + b" }").integer(b"a", 77) == expected


def test_any_number() -> None:
    fields = fields_of(b'{"a":1,"b":-2.5e1,"c":"1","d":1e999,"e":' + b"9" * 400 + b"}")
    assert fields.number(b"a", 0) == 1.0
    assert fields.number(b"b", 0) == -25.0
    assert fields.number(b"c", 0.5) == 0.5
    assert fields.number(b"d", 0) == math.inf
    assert fields.number(b"e", 0) == math.inf
    assert fields.kind(b"a") == KIND_INTEGER
    assert fields.kind(b"b") == KIND_FLOAT


def test_half_a_surrogate_pair_is_replaced_in_text_and_kept_in_raw() -> None:
    fields = fields_of(rb'{"a":"x\ud800","b":{"\uDC00":["\ud83d\ude00\ud83d"]},"c\ud800":1}')
    assert fields.text(b"a") == "x\ufffd"
    assert fields.content(b"a") == "x\ufffd".encode()
    assert fields.raw(b"a") == rb'"x\ud800"'
    assert fields.value(b"a") == "x\ufffd"
    assert fields.value(b"b") == {"\ufffd": ["😀\ufffd"]}
    assert fields.integer("c\ufffd".encode(), 0) == 1
    assert fields.keys()[2] == "c\ufffd"


def test_single_values() -> None:
    data = rb'["a\n", 1]'
    spans = items(data, 0, len(data))
    assert spans is not None
    (start, end), (other, other_end) = spans
    assert text_at(data, start, end) == "a\n"
    assert content_at(data, start, end) == b"a\n"
    assert text_at(data, other, other_end) is None
    assert content_at(data, other, other_end) is None


def test_many_keys_are_no_trouble() -> None:
    document = {f"key{number}": number for number in range(5000)}
    fields = fields_of(json.dumps(document).encode())
    assert fields.integer(b"key0", -1) == 0
    assert fields.integer(b"key4999", -1) == 4999


# --- text is passed over several bytes at a time


@pytest.mark.parametrize("size", [*range(24), LONG_TEXT - 1, LONG_TEXT, LONG_TEXT + 1])
def test_a_byte_that_ends_or_spoils_a_text_is_seen_wherever_it_stands(size: int) -> None:
    plain = b"x" * size
    for at in {0, 1, size // 2, size - 2, size - 1} & set(range(size)):
        for byte in range(128):
            text = plain[:at] + bytes([byte]) + plain[at + 1 :]
            document = b'"' + text + b'"'
            try:
                json.loads(document)
            except ValueError:
                expected = at + 2 if byte == 34 else -1
            else:
                expected = len(document)
            assert skip(document, 0, len(document)) == expected, document


def test_what_stands_behind_a_text_is_not_taken_for_a_part_of_it() -> None:
    for size in range(20):
        text = b'"' + b"y" * size + b'"'
        for behind in (b"", b"\x00", b"\\", b'"', b"\x00" * 9):
            document = text + behind
            assert skip(document, 0, len(text)) == len(text)
            assert skip(document, 0, len(text) - 1) == -1


@given(st.lists(st.dictionaries(st.text(max_size=6), st.integers() | st.text(), max_size=4)))
def test_the_objects_of_an_array_are_those_that_were_written(made: list[dict[str, object]]) -> None:
    data = json.dumps(made, indent=1).encode()
    found = read_objects(data, 0, len(data), 1000)
    assert found is not None
    for one, expected in zip(found, made, strict=True):
        assert one.keys() == list(expected)
        assert {key: one.value(key.encode()) for key in expected} == expected


@pytest.mark.parametrize("data", [b"[1]", b"[{},[]]", b'[{}, "{}"]', b"[null]"])
def test_an_array_of_anything_but_objects_is_refused(data: bytes) -> None:
    assert read_objects(data, 0, len(data), 1000) is None


def test_no_more_objects_are_read_than_are_wanted() -> None:
    data = b"[" + b"{}," * 9 + b"{}]"
    assert len(read_objects(data, 0, len(data), 4) or []) == 4


@given(st.lists(st.recursive(st.integers() | st.text(), st.lists)), st.integers(0, 9))
def test_the_first_items_are_those_that_all_begin_with(value: list[object], most: int) -> None:
    data = json.dumps(value, indent=1).encode()
    every = items(data, 0, len(data))
    assert every is not None
    assert first_items(data, 0, len(data), most) == every[:most]


# -- duplicate keys --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "is_twice"),
    [
        (b"{}", False),
        (b'{"a":1}', False),
        (b'{"a":1,"b":2,"ab":3}', False),
        (b'{"a":{"a":1},"b":[{"a":1,"a":2}]}', False),
        (b'{"a":1,"A":2,"a ":3}', False),
        (b'{"":1,"a":1}', False),
        (b'{"a":1,"a":1}', True),
        (b'{"a":1,"b":2,"c":3,"b":4}', True),
        (b'{"":1,"a":1,"":2}', True),
        (b'{"a":1,"\\u0061":2}', True),
        (b'{"\\u0061":1,"\\u0061":2}', True),
        (b'{"\\u0061":1,"b":2}', False),
        ('{"ä":1,"\\u00e4":2}'.encode(), True),
    ],
)
def test_keys_that_stand_twice_are_found(data: bytes, *, is_twice: bool) -> None:
    fields = read_object(data, 0, len(data))
    assert fields is not None
    assert fields.has_twins() == is_twice


@pytest.mark.parametrize("count", [2, 15, 16, 17, 200])
def test_among_many_keys_too(count: int) -> None:
    names = [f"key{i}" for i in range(count)]
    for last in (names[0], names[count // 2], "other"):
        pairs = ",".join(f'"{name}":1' for name in [*names, last])
        data = f"{{{pairs}}}".encode()
        fields = read_object(data, 0, len(data))
        assert fields is not None
        assert fields.has_twins() == (last != "other")


@pytest.mark.parametrize("digits", [b"9" * 21, b"-" + b"9" * 5000, b"1" * 100_000])
def test_a_number_of_any_length_is_none_within_64_bits(digits: bytes) -> None:
    assert integer_at(digits, 0, len(digits), -7) == -7
