"""Numbers of any size become 64-bit numbers, or are refused."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from librt.strings import BytesWriter

from jobyard.wire.numbers import (
    FINE,
    LEAST,
    MOST,
    NO_NUMBER,
    NOT_FINITE,
    NOT_WHOLE,
    decimal,
    flaw_of,
    nearest,
    whole_or,
    write_number,
)


@pytest.mark.parametrize(
    ("value", "flaw"),
    [
        (0, FINE),
        (-(1 << 70), FINE),
        (1 << 4000, FINE),
        (1e19, FINE),
        (1e308, FINE),
        (-0.0, FINE),
        (0.5, NOT_WHOLE),
        (math.nan, NOT_FINITE),
        (math.inf, NOT_FINITE),
        (-math.inf, NOT_FINITE),
        (True, NO_NUMBER),
        (None, NO_NUMBER),
        ("1", NO_NUMBER),
        ([1], NO_NUMBER),
    ],
)
def test_what_keeps_a_value_from_being_a_whole_number(value: object, flaw: int) -> None:
    assert flaw_of(value) == flaw


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (0, 0),
        (-5, -5),
        (1 << 53, 1 << 53),
        (MOST, MOST),
        (MOST + 1, MOST),
        (1 << 64, MOST),
        (10**400, MOST),
        (LEAST, LEAST),
        (LEAST - 1, LEAST),
        (-(10**400), LEAST),
        (2.9, 2),
        (-2.9, -2),
        (float(1 << 62), 1 << 62),
        (float(1 << 63), MOST),
        (-float(1 << 63), LEAST),
        (1e19, MOST),
        (-1e308, LEAST),
        (math.inf, MOST),
        (-math.inf, LEAST),
        (math.nan, 0),
        ("7", 0),
        (None, 0),
    ],
)
def test_the_nearest_number_of_64_bits(value: object, found: int) -> None:
    assert nearest(value) == found


@pytest.mark.parametrize(
    ("number", "found"),
    [(3.0, 3), (3.5, -1), (float(1 << 63), -1), (-float(1 << 63), LEAST), (math.nan, -1)],
)
def test_a_float_that_is_whole(number: float, found: int) -> None:
    assert whole_or(number, -1) == found


@pytest.mark.parametrize(
    ("digits", "found"),
    [
        (b"0", 0),
        (b"0" * 5000 + b"12", 12),
        (b"9223372036854775807", MOST),
        (b"9223372036854775808", MOST),
        (b"1" + b"0" * 5000, MOST),
    ],
)
def test_digits_of_any_length(digits: bytes, found: int) -> None:
    assert decimal(digits) == found


@given(st.one_of(st.integers(0, MOST), st.integers(0, 18).map(lambda power: 10**power)))
@example(0)
@example(9)
@example(10)
@example(99)
@example(100)
@example(MOST)
def test_a_number_is_written_in_decimal(number: int) -> None:
    out = BytesWriter()
    out.write(b"<")
    write_number(out, number)
    assert out.getvalue() == b"<%d" % number
