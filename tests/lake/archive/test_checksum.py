"""The checksum of rows: the same for the same rows, another one for any others."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobyard.lake.archive.checksum import RowsChecksum

ROW = st.tuples(
    st.integers(0, 1 << 40),
    st.one_of(st.none(), st.text(max_size=5)),
    st.one_of(st.none(), st.binary(max_size=5)),
    st.one_of(st.none(), st.integers(0, 1 << 50)),
)
SCHEMA = pa.schema(
    [
        ("seq", pa.int64()),
        ("tag", pa.string()),
        ("value", pa.binary()),
        ("ts", pa.timestamp("us", tz="UTC")),
    ]
)
Row = tuple[int, str | None, bytes | None, int | None]


def batch(rows: list[Row]) -> pa.RecordBatch:
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], [], []]
    arrays = [pa.array(column, field.type)
              for column, field in zip(columns, SCHEMA, strict=True)]  # fmt: skip
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def checksum(*batches: pa.RecordBatch) -> str:
    found = RowsChecksum(SCHEMA.names)
    for each in batches:
        found.add(each)
    return found.text()


@given(st.lists(ROW, max_size=20), st.integers(0, 20), st.integers(0, 20))
def test_it_does_not_depend_on_batches(rows: list[Row], first: int, second: int) -> None:
    whole = batch(rows)
    first, last = sorted((min(first, len(rows)), min(second, len(rows))))
    pieces = [whole.slice(0, first), whole.slice(first, last - first), whole.slice(last)]
    assert checksum(*pieces) == checksum(whole) == checksum(*(batch([row]) for row in rows))


@given(st.lists(ROW, max_size=5), st.lists(ROW, max_size=5))
def test_other_rows_have_another_one(left: list[Row], right: list[Row]) -> None:
    assert (checksum(batch(left)) == checksum(batch(right))) == (left == right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ([(1, "ab", b"", 1), (2, "c", b"", 1)], [(1, "a", b"", 1), (2, "bc", b"", 1)]),
        ([(1, None, b"", 1)], [(1, "", b"", 1)]),
        ([(1, "", None, 1)], [(1, "", b"", 1)]),
        ([(1, "", b"", 0)], [(1, "", b"", None)]),
        ([(1, "", b"", 1), (2, "", b"", 1)], [(2, "", b"", 1), (1, "", b"", 1)]),
    ],
)
def test_what_looks_alike_is_told_apart(left: list[Row], right: list[Row]) -> None:
    assert checksum(batch(left)) != checksum(batch(right))
