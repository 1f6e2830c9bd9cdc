from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from jobyard.model.topic.columns import Column, NumberColumn, TextColumn
from jobyard.wire.arrow.stream import (
    BINARY,
    END,
    INT64,
    TIMESTAMP,
    UTF8,
    ArrowField,
    batch_message,
    buffers_of,
    packed_buffer,
    packed_message,
    schema_message,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)
# What Python can show as a date.
MICROSECONDS = st.integers(-(10**15), 10**16)
WORDS = st.text(st.characters(codec="utf-8"), max_size=12)
NOTES = st.dictionaries(WORDS, WORDS, max_size=4)
VALUES: dict[int, st.SearchStrategy[object]] = {
    INT64: NUMBERS,
    TIMESTAMP: MICROSECONDS,
    UTF8: WORDS,
    BINARY: st.binary(max_size=12),
}
TYPES = {
    INT64: pa.int64(),
    TIMESTAMP: pa.timestamp("us", tz="UTC"),
    UTF8: pa.utf8(),
    BINARY: pa.binary(),
}

Values = list[object]


def column_of(kind: int, values: Values) -> Column:
    if kind in (INT64, TIMESTAMP):
        numbers = NumberColumn()
        for value in values:
            if value is None:
                numbers.add_nulls(1)
            else:
                assert isinstance(value, int)
                numbers.add(value)
        return numbers
    texts = TextColumn()
    for value in values:
        if value is None:
            texts.add_nulls(1)
        else:
            text = value.encode() if isinstance(value, str) else value
            assert isinstance(text, bytes)
            texts.add(text)
    return texts


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[ArrowField], list[list[Values]]]:
    kinds = draw(st.lists(st.tuples(st.sampled_from(sorted(VALUES)), st.booleans()), min_size=1))
    fields = [ArrowField(draw(WORDS), kind, is_nullable=is_nullable) for kind, is_nullable in kinds]
    batches: list[list[Values]] = []
    for _ in range(draw(st.integers(0, 5))):
        rows = draw(st.integers(0, 20))
        batches.append(
            [
                draw(
                    st.lists(
                        VALUES[field.kind] | st.none() if field.is_nullable else VALUES[field.kind],
                        min_size=rows,
                        max_size=rows,
                    )
                )
                for field in fields
            ]
        )
    return fields, batches


def read_back(value: object) -> object:
    if isinstance(value, datetime):
        return (value - EPOCH) // timedelta(microseconds=1)
    return value


def packed(columns: list[Column]) -> list[bytes]:
    """Compress the buffers of a batch, each alone."""
    compress = zstandard.ZstdCompressor(level=1).compress
    return [packed_buffer(one, compress(one)) for one in buffers_of(columns)]


@given(streams(), NOTES, st.booleans())
def test_a_stream_is_what_pyarrow_reads(
    stream: tuple[list[ArrowField], list[list[Values]]],
    notes: dict[str, str],
    is_packed: bool,  # noqa: FBT001  drawn
) -> None:
    fields, batches = stream
    data = schema_message(fields, notes)
    for number, batch in enumerate(batches):
        columns = [
            column_of(field.kind, values) for field, values in zip(fields, batch, strict=True)
        ]
        numbered = {**notes, "number": str(number)}
        message = batch_message(columns, numbered)
        if is_packed:
            message = packed_message(columns, packed(columns), numbered)
        assert len(message) % 64 == 0
        data += message
    reader = pa.ipc.open_stream(data + END)
    expected = pa.schema(
        [pa.field(field.name, TYPES[field.kind], nullable=field.is_nullable) for field in fields]
    )
    assert reader.schema.equals(expected)
    assert reader.schema.metadata == {k.encode(): v.encode() for k, v in notes.items()}
    for number, batch in enumerate(batches):
        found = reader.read_next_batch_with_custom_metadata()
        found.batch.validate(full=True)
        assert found.custom_metadata[b"number"] == str(number).encode()
        assert [
            [read_back(value) for value in column.to_pylist()] for column in found.batch.columns
        ] == batch
    with pytest.raises(StopIteration):
        reader.read_next_batch()


def test_a_buffer_is_packed_only_if_it_gets_smaller() -> None:
    size = (1000).to_bytes(8, "little")
    assert packed_buffer(b"x" * 1000, b"short") == size + b"short"
    assert packed_buffer(b"abc", b"longer") == b"\xff" * 8 + b"abc"
    assert packed_buffer(b"abc", b"123") == b"\xff" * 8 + b"abc"
    assert packed_buffer(b"", b"header") == b""


def test_a_packed_batch_is_smaller() -> None:
    column = TextColumn()
    for _ in range(1000):
        column.add(b"the same text again")
    plain = batch_message([column], {})
    message = packed_message([column], packed([column]), {})
    assert len(message) * 5 < len(plain)
    data = schema_message([ArrowField("a", UTF8)], {}) + message + plain + END
    found = pa.ipc.open_stream(data).read_all()
    assert found.to_pylist() == [{"a": "the same text again"}] * 2000


def test_every_part_of_a_message_is_aligned() -> None:
    column = TextColumn()
    column.add(b"x")
    schema = schema_message([ArrowField("a", UTF8)], {})
    batch = batch_message([column], {})
    for message in (schema, batch):
        assert message[:4] == b"\xff" * 4
        assert (8 + int.from_bytes(message[4:8], "little")) % 64 == 0
    # Places and text, each filled up.
    assert batch[-128:] == b"\0\0\0\0\1" + bytes(59) + b"x" + bytes(63)


def test_a_batch_of_columns_that_are_not_equally_long_cannot_be_made() -> None:
    longer = NumberColumn()
    longer.add(1)
    with pytest.raises(AssertionError):
        batch_message([NumberColumn(), longer], {})


def test_a_batch_stands_alone_in_a_file_that_is_mapped() -> None:
    column = NumberColumn()
    column.add(7)
    data = schema_message([ArrowField("a", INT64)], {}) + batch_message([column], {}) + END
    found = pa.ipc.open_stream(pa.BufferReader(pa.py_buffer(data))).read_all()
    assert found.to_pylist() == [{"a": 7}]
