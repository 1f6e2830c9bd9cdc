import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobyard.model.limits import ID_MAX, TUBE_NAME_SIZE_MAX, U32_MAX, U64_MAX
from jobyard.wire.beanstalk import is_tube_name, parse_id, parse_kick_bound, tube_name_end
from jobyard.wire.numbers import REFUSED, parse_number

# What lines are made of, weighted to what the rules speak of.
TEXT = st.lists(
    st.one_of(
        st.sampled_from([b" ", b"0", b"1", b"9", b"\t", b"\r", b"-", b"+", b"x", b"_", b"\0"]),
        st.sampled_from([b"4294967295", b"4294967296", b"9223372036854775807"]),
        st.sampled_from([b"9223372036854775808", b"18446744073709551615"]),
        st.sampled_from([b"18446744073709551616", b"000000000000000000000000000000007"]),
        st.binary(min_size=1, max_size=2),
    ),
    max_size=6,
).map(b"".join)


@given(TEXT, st.sampled_from([0, 9, U32_MAX, (1 << 31) - 1]))
def test_a_number_is_spaces_then_digits_up_to_the_limit(text: bytes, most: int) -> None:
    match = re.match(rb" *([0-9]+)", text)
    value, after = parse_number(text, 0, len(text), most)
    if match is None or int(match[1]) > most:
        assert value == REFUSED
    else:
        assert (value, after) == (int(match[1]), match.end())


@given(TEXT, TEXT, TEXT)
def test_a_number_is_read_only_inside_its_bounds(before: bytes, text: bytes, after: bytes) -> None:
    whole = before + text + after
    value, end = parse_number(whole, len(before), len(before) + len(text), U32_MAX)
    alone, alone_end = parse_number(text, 0, len(text), U32_MAX)
    assert value == alone
    if value >= 0:
        assert end == alone_end + len(before)


@given(TEXT)
@example(b"%d" % ID_MAX)
@example(b"%d" % (ID_MAX + 1))
@example(b"%d" % U64_MAX)
@example(b"%d" % (U64_MAX + 1))
@example(b"  000%d" % U64_MAX)
def test_an_id_is_up_to_64_bits_and_one_never_issued_reads_as_none(text: bytes) -> None:
    match = re.match(rb" *([0-9]+)", text)
    value, after = parse_id(text, 0, len(text))
    if match is None or int(match[1]) > U64_MAX:
        assert value == REFUSED
    else:
        wanted = int(match[1])
        assert value == (wanted if wanted <= ID_MAX else 0)
        assert after == match.end()


@pytest.mark.parametrize("digit", [b"0", b"9"])
def test_an_id_of_any_length_is_answered_and_not_an_error(digit: bytes) -> None:
    text = digit * 60_000
    value, _ = parse_id(text, 0, len(text))
    assert value == (0 if digit == b"0" else REFUSED)


@given(TEXT)
@example(b"\t+1x")
@example(b"-1")
@example(b"4294967296")
@example(b"0" * 200 + b"5")
@example(b"")
@example(b"-")
def test_the_bound_of_a_kick_reads_as_strtoul_would(text: bytes) -> None:
    match = re.match(rb"[ \t\n\v\f\r]*([-+]?)([0-9]+)", text)
    bound = parse_kick_bound(text)
    if match is None or int(match[2]) > U64_MAX:
        assert bound == REFUSED
    else:
        value = int(match[2])
        assert bound == (-value if match[1] == b"-" else value) % (1 << 32)


@given(st.binary(max_size=8))
@example(b"a" * 200)
@example(b"a" * 201)
@example(b"-a")
@example(b"a-")
def test_a_tube_name_is_up_to_200_of_the_allowed_bytes_and_begins_with_no_hyphen(
    name: bytes,
) -> None:
    wanted = re.fullmatch(rb"(?!-)[A-Za-z0-9\-+/;.$_()]{1,200}", name) is not None
    assert TUBE_NAME_SIZE_MAX == 200
    assert is_tube_name(name) == wanted


@given(st.binary(max_size=12))
@example(b"")
@example(b"abc")
@example(b"ab 1")
def test_a_name_reaches_to_the_first_byte_that_cannot_stand_in_one(data: bytes) -> None:
    match = re.match(rb"[A-Za-z0-9\-+/;.$_()]*", data)
    assert match is not None
    assert tube_name_end(data) == match.end()


def test_every_byte_is_judged_alone() -> None:
    allowed = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-+/;.$_()"
    for byte in range(256):
        assert is_tube_name(b"a" + bytes([byte])) == (byte in allowed)
