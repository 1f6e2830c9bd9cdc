"""Rows as records: the short way for plain batches gives what the long one gives, or declines."""

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobyard.client import Answer
from jobyard.spark.write.options import WriteOptions, write_options
from jobyard.spark.write.records import VALUE_MAX, BadRow, Record, RecordReader
from jobyard.spark.write.sending import CHUNK_ROWS, ChunkSender

PLAIN = write_options({"url": "http://localhost:1", "topic": "t"}, None)


def batch_of(*values: object, kind: pa.DataType = None) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, kind)], names=["value"])


def long_way(batch: pa.RecordBatch, options: WriteOptions = PLAIN) -> list[Record | BadRow]:
    return list(RecordReader(options).read(batch))


@pytest.mark.parametrize(
    "values",
    [
        ['{"a":1}', "[1, 2]", '"text"', "1", "null", "-1e9"],
        [b'{"a":1}', b"true"],
        ['"\u00e4\U0001f600"', '"\\ud800"'],
        [{"a": 1, "b": "x"}, {"a": 2, "b": None}],
        [1, None, 3][:1],
        [],
    ],
)
def test_values_that_are_json_go_the_short_way(values: list[object]) -> None:
    batch = batch_of(*values, kind=None if values else pa.string())
    found = RecordReader(PLAIN).bodies(batch)
    assert found is not None
    assert [Record("t", body) for body in found] == long_way(batch)


@pytest.mark.parametrize(
    "value",
    [
        None, "", " ", "a", "{", '{"a":1},{"b":2}', "1 2", '1}{"data":2', "NaN", "[Infinity]",
        " 1", "1\n", b"\xff", "[" * 100_000, "1" * (VALUE_MAX + 1), b"1" * (VALUE_MAX + 1),
    ],
    ids=str,
)  # fmt: skip
def test_any_other_value_makes_a_batch_go_the_long_way(value: str | bytes | None) -> None:
    around = (b"1", b"2") if isinstance(value, bytes) else ("1", "2")
    batch = batch_of(around[0], value, around[1])
    reader = RecordReader(PLAIN)
    assert reader.bodies(batch) is None
    first, middle, last = reader.read(batch)
    assert (first, last) == (Record("t", '{"data":1}'), Record("t", '{"data":2}'))
    if isinstance(middle, BadRow):
        assert middle.row == 1


@given(st.lists(st.text(alphabet='{}[]",:1aN \\', max_size=8), max_size=5))
def test_no_text_is_taken_for_json_that_is_none(values: list[str]) -> None:
    batch = batch_of(*values, kind=pa.string())
    found = RecordReader(PLAIN).bodies(batch)
    if found is not None:
        assert [Record("t", body) for body in found] == long_way(batch)


def test_only_values_for_one_topic_as_json_go_the_short_way() -> None:
    batch = batch_of("1")
    keyed = pa.RecordBatch.from_arrays([pa.array(["1"]), pa.array(["k"])], names=["value", "key"])
    assert RecordReader(PLAIN).bodies(keyed) is None
    assert RecordReader(replace(PLAIN, topic="")).bodies(batch) is None
    assert RecordReader(replace(PLAIN, value_format="bytes")).bodies(batch) is None
    assert RecordReader(replace(PLAIN, value_format="json")).bodies(batch) == ['{"data":1}']


def test_rows_are_counted_on_both_ways() -> None:
    reader = RecordReader(PLAIN)
    assert reader.bodies(batch_of("1", "2")) is not None
    (bad,) = reader.read(batch_of(None, kind=pa.string()))
    assert isinstance(bad, BadRow)
    assert bad.row == 2


class Posted:
    """A client that keeps how many records each call had."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def send(self, _method: str, _path: str, data: bytes, *, is_repeatable: bool) -> Answer:
        assert is_repeatable
        self.sizes.append(data.count(b'"data"'))
        return Answer({}, "", 200)


@pytest.mark.parametrize(
    ("batches", "sizes"),
    [
        ([CHUNK_ROWS], [CHUNK_ROWS]),
        ([CHUNK_ROWS - 1, 2], [CHUNK_ROWS, 1]),
        ([2 * CHUNK_ROWS + 3], [CHUNK_ROWS, CHUNK_ROWS, 3]),
        ([0], []),
        ([1, 0, 1], [2]),
    ],
)
def test_chunks_are_full_but_the_last(batches: list[int], sizes: list[int]) -> None:
    client = Posted()
    sender = ChunkSender(client, "", 0, 1)  # type: ignore[arg-type]
    for count in batches:
        sender.add_all("t", ['{"data":1}'] * count)
    assert sender.finish() == []
    assert client.sizes == sizes
    assert sender.counts.written == sum(sizes)
