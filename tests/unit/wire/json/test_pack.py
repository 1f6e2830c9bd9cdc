"""Long JSON converted to MessagePack in slices: the same result as for short JSON at once."""

import json
import random

import pytest

from jobyard.wire.json.pack import PACKED_PIECE_SIZE, JsonPack
from jobyard.wire.msgpack.write import RawPart, encode
from jobyard.wire.payload import NO_JSON, parse_request


def packed(text: bytes, most: int) -> bytes | None:
    """Return what comes of a text that is gone through so much at a time."""
    pack = JsonPack(text)
    while not pack.is_done():
        assert pack.proceed(most) >= 1
    return None if pack.is_bad else pack.packed()


GOOD = [
    b"{}",
    b"[]",
    b" [ ] ",
    b"{ }",
    b"null",
    b"[true,false,null]",
    b'{"a":1,"b":[1,2,{"c":[]}],"d":{}}',
    b"[0,-0,1,-1,127,128,255,256,65535,65536,4294967295,4294967296,-32,-33,-128,-129]",
    b"[9999999999,99999999999,-2147483648,-2147483649,9007199254740993,18446744073709551615]",
    b"[-9223372036854775808,123456789012345678901234567890,1.5,1e3,-2.5E-3,0.1,1E+2]",
    '["ä","日本","\U0001f600"]'.encode(),
    rb'["\"\\\/\b\f\n\r\t\u00e4\ud83d\ude00"]',
    rb'["\ud83d","\ud83d\ud83d\ude00","\ude00x"]',
    b'\r\n\t {"x" : [ 1 , 2 ] , "y" : "z" } \n',
    b"[" + b",".join(b"%d" % at for at in range(1000)) + b"]",
    b'{"k":"' + b"x" * 70_000 + b'"}',
    b"[" * 100 + b"]" * 100,
    b"[[[1]],[[]],[],{}]",
    b" " * 70_000 + b"1" + b" " * 70_000,
]


@pytest.mark.parametrize("text", GOOD, ids=lambda text: repr(text[:30]))
@pytest.mark.parametrize("most", [1, 1000])
def test_it_is_what_is_made_of_it_at_once(text: bytes, most: int) -> None:
    assert packed(text, most) == encode(parse_request(text))


BAD = [
    b"",
    b" ",
    b"{",
    b"[1,]",
    b"[,1]",
    b"[1 2]",
    b"{,}",
    b'{"a"}',
    b'{"a":}',
    b'{"a":1,}',
    b'{"a" 1}',
    b"{1:2}",
    b"[1}",
    b'{"a":1]',
    b"1 2",
    b"[1]]",
    b"t",
    b"nul",
    b"NaN",
    b"Infinity",
    b"01",
    b"1.",
    b"-",
    b"+1",
    b".5",
    b"1e400",
    b'"\x01"',
    b'"\\x"',
    b'"\\u12"',
    b'"abc',
    b'"\xff"',
    b'"\xc3"',
    b"\x80" * 200_000,
    b"[" * 101 + b"]" * 101,
    b"\xef\xbb\xbf{}",
]


@pytest.mark.parametrize("text", BAD, ids=lambda text: repr(text[:30]))
@pytest.mark.parametrize("most", [1, 1000])
def test_what_is_no_json_is_none_here_either(text: bytes, most: int) -> None:
    # One level too deep is found where it is written.
    assert parse_request(text) is NO_JSON
    assert packed(text, most) is None


def test_a_long_text_is_copied_in_pieces() -> None:
    text = b'["' + b"x" * (2 * PACKED_PIECE_SIZE + 5) + b'",1]'
    assert packed(text, 1000) == encode(parse_request(text))


def test_long_texts_with_escapes_are_the_same_text() -> None:
    # Pairs of halves, and characters of several bytes, at every place of a cut.
    for shift in range(14):
        text = "x" * shift + "ä\U0001f600\n日" * 7000
        for raw in (json.dumps(text).encode(), json.dumps(text, ensure_ascii=False).encode()):
            made = packed(b"[%s]" % raw, 1000)
            assert made is not None
            whole = text.encode()
            assert made == b"\x91\xdb" + len(whole).to_bytes(4, "big") + whole


def value(luck: random.Random, depth: int) -> object:
    """Return any value."""
    kind = luck.randrange(9 if depth < 6 else 7)
    if kind == 0:
        return luck.choice([None, True, False])
    if kind <= 2:
        return luck.randint(-(10 ** luck.randrange(1, 22)), 10 ** luck.randrange(1, 22))
    if kind == 3:
        return luck.uniform(-1e9, 1e9)
    if kind <= 6:
        return "".join(
            luck.choice('ab"\\\n\u00e4\u65e5\U0001f600') for _ in range(luck.randrange(40))
        )
    if kind == 7:
        return [value(luck, depth + 1) for _ in range(luck.randrange(20))]
    return {f"k{at}": value(luck, depth + 1) for at in range(luck.randrange(20))}


def test_any_value_comes_out_the_same() -> None:
    luck = random.Random(7)
    for _ in range(300):
        one = value(luck, 0)
        indent = luck.choice([None, 1])
        text = json.dumps(one, indent=indent, ensure_ascii=luck.random() < 0.5).encode()
        assert packed(text, luck.choice([1, 3, 1000])) == encode(parse_request(text))


def test_any_spoiled_text_is_refused_or_read_the_same() -> None:
    luck = random.Random(8)
    for _ in range(1500):
        text = bytearray(json.dumps(value(luck, 3)).encode() or b"0")
        text[luck.randrange(len(text))] = luck.choice(b'[]{}",:\\0e.- \xff')
        known = parse_request(bytes(text))
        made = packed(bytes(text), 10)
        if known is NO_JSON:
            assert made is None, bytes(text)
        elif made is not None and made != encode(known):
            # A key occurs twice now.
            assert len(made) > len(encode(known))


def test_the_pairs_of_the_outermost_object() -> None:
    text = b'{"a":1,"b":[1,{"x":2}],"c":null,"d":"x","a":{"y":[3]}}'
    pack = JsonPack(text)
    while not pack.is_done():
        pack.proceed(1)
    pairs = pack.pairs(10)
    assert pairs is not None
    assert list(pairs) == ["a", "b", "c", "d"]
    assert pairs["c"] is None
    found = {key: encode(one) for key, one in pairs.items() if isinstance(one, RawPart)}
    assert found == {"a": encode({"y": [3]}), "b": encode([1, {"x": 2}]), "d": encode("x")}
    assert pack.pairs(4) is None


def test_no_object_has_no_pairs() -> None:
    pack = JsonPack(b"[1]")
    while not pack.is_done():
        pack.proceed(1)
    assert pack.pairs(10) is None


def test_a_step_does_about_what_it_is_asked_for() -> None:
    for text in (
        b"[" + b"1," * 20_000 + b"1]",
        b"[" + b"[]," * 20_000 + b"1]",
        b'["' + b"x" * 500_000 + b'"]',
        b'["' + rb"\u0041" * 20_000 + b'"]',
        b" " * 300_000 + b"1",
    ):
        pack = JsonPack(text)
        while not pack.is_done():
            # A long text without escapes is copied at once, and counted.
            assert pack.proceed(100) <= 100 + 1100
