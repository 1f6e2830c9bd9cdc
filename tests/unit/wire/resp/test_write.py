import math
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from librt.strings import BytesWriter
from redis.exceptions import ResponseError

from jobyard.wire.resp import write as w
from tests.support.clients.resp import unpack

I64 = st.integers(-(1 << 63), (1 << 63) - 1)


def said(*writes: Callable[[BytesWriter], None]) -> bytes:
    out = BytesWriter()
    for write in writes:
        write(out)
    return out.getvalue()


@pytest.mark.parametrize("proto", [2, 3])
def test_redis_py_reads_every_kind(proto: int) -> None:
    data = said(
        w.write_ok,
        lambda out: w.write_simple(out, b"PONG"),
        lambda out: w.write_integer(out, -7),
        lambda out: w.write_bulk(out, b"a\r\nb"),
        lambda out: w.write_text(out, "ä\udcff"),
        lambda out: w.write_verbatim(out, "role:master", proto),
        lambda out: w.write_nil(out, proto),
        lambda out: w.write_nil_array(out, proto),
        lambda out: w.write_array(out, 1),
        w.write_ok,
        lambda out: w.write_double(out, 2.5, proto),
        lambda out: w.write_push(out, 0, 2),
    )
    double = 2.5 if proto == 3 else b"2.5"
    verbatim = [b"role:master", b"txt:role:master", "role:master"]
    answers = unpack(data, proto)
    assert answers.pop(5) in verbatim
    assert answers == [
        b"OK", b"PONG", -7, b"a\r\nb", b"\xc3\xa4\xff", None, None, [b"OK"], double, [],
    ]  # fmt: skip


@pytest.mark.parametrize(("proto", "answer"), [(2, [b"a", b"b"]), (3, {b"a": b"b"})])
def test_a_map(proto: int, answer: object) -> None:
    data = said(
        lambda out: w.write_map(out, 1, proto),
        lambda out: w.write_bulk(out, b"a"),
        lambda out: w.write_bulk(out, b"b"),
    )
    assert unpack(data, proto) == [answer]


@pytest.mark.parametrize(("proto", "head"), [(2, b"*1\r\n"), (3, b"~1\r\n")])
def test_a_set(proto: int, head: bytes) -> None:
    assert said(lambda out: w.write_set(out, 1, proto)) == head


def test_an_unsolicited_message_is_distinguished_in_version_3() -> None:
    assert said(lambda out: w.write_push(out, 2, 3)) == b">2\r\n"


@given(st.text())
@example("a\r\nb\n+OK\r\n")
@example("\x85\u2028")
def test_an_error_is_one_line_whatever_it_quotes(quoted: str) -> None:
    data = said(lambda out: w.write_error(out, "ERR unknown command '" + _sane(quoted) + "'"))
    assert data.count(b"\n") == 1
    (answer,) = unpack(data)
    assert isinstance(answer, ResponseError)


def _sane(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


@given(I64)
def test_numbers(number: int) -> None:
    assert unpack(said(lambda out: w.write_integer(out, number))) == [number]


@given(st.floats(allow_nan=False))
@example(math.inf)
@example(-math.inf)
@example(1e17)
@example(4398046511104.0 * 2048)
def test_a_double_reads_back(number: float) -> None:
    assert unpack(said(lambda out: w.write_double(out, number, 3)), 3) == [number]
    assert float(unpack(said(lambda out: w.write_double(out, number, 2)))[0]) == number


def test_text_of_doubles() -> None:
    texts = [w.double_text(number) for number in (3.0, -0.5, math.inf, -math.inf, math.nan)]
    assert texts == [b"3", b"-0.5", b"inf", b"-inf", b"nan"]
