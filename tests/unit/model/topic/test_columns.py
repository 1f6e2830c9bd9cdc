from hypothesis import given
from hypothesis import strategies as st

from jobyard.model.topic.columns import Column, NumberColumn, TextColumn


def bits(column: Column) -> list[bool]:
    packed = column.validity()
    return [bool(packed[i // 8] >> i % 8 & 1) for i in range(column.count)]


@given(st.lists(st.none() | st.binary(max_size=5), max_size=40))
def test_validity_has_a_bit_for_each_value_once_there_is_a_null(
    values: list[bytes | None],
) -> None:
    column = TextColumn()
    for value in values:
        if value is None:
            column.add_nulls(1)
        else:
            column.add(value)
    assert column.count == len(values)
    assert column.nulls == values.count(None)
    if None in values:
        assert bits(column) == [value is not None for value in values]
        assert len(column.validity()) == (len(values) + 7) // 8
    else:
        assert column.validity() == b""


def test_a_column_without_any_value_has_no_bit_set() -> None:
    column = NumberColumn()
    column.add_nulls(9)
    column.add_nulls(2)
    assert column.buffers() == [b"\0\0", bytes(88)]


def test_numbers_are_eight_bytes_each() -> None:
    column = NumberColumn()
    column.add(1)
    column.add(-1)
    assert column.buffers() == [b"", b"\1" + bytes(7) + b"\xff" * 8]


def test_texts_are_joined_and_their_places_stand_beside_them() -> None:
    column = TextColumn()
    assert column.buffers() == [b"", bytes(4), b""]
    column.add(b"ab")
    column.add(b"")
    column.add_nulls(1)
    column.add(b"c")
    assert column.size() == 3
    places = b"".join(place.to_bytes(4, "little") for place in (0, 2, 2, 2, 3))
    assert column.buffers() == [b"\x0b", places, b"abc"]


def test_what_is_not_known_has_no_value() -> None:
    numbers, texts = NumberColumn(), TextColumn()
    for number, text in ((0, b""), (5, b"x")):
        numbers.add_known(number)
        texts.add_known(text)
    assert bits(numbers) == bits(texts) == [False, True]
