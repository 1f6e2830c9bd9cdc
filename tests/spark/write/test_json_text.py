"""Values as JSON: the texts are those of Spark's `to_json`, which a test with Spark compares."""

import datetime as dt
import json
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DayTimeIntervalType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from jobyard.client import JobyardError
from jobyard.spark.write.json_text import to_text, unwritable
from jobyard.spark.write.options import check_columns, write_options
from jobyard.spark.write.records import BadRow, Record, RecordReader

PLAIN = write_options({"url": "http://localhost:1", "topic": "t"}, None)
INT_OR_NULL = pa.struct([("x", pa.int32()), ("y", pa.int32())])


def both(batch: pa.RecordBatch) -> list[Record | BadRow]:
    """Return what both ways make of a batch."""
    bodies = RecordReader(PLAIN).bodies(batch)
    long = list(RecordReader(PLAIN).read(batch))
    if bodies is not None:
        assert [Record("t", body) for body in bodies] == long
    return long


def written(value: Any, kind: pa.DataType) -> str:
    """Return the data of a record on both ways."""
    batch = pa.RecordBatch.from_arrays([pa.array([value], kind)], names=["value"])
    assert RecordReader(PLAIN).bodies(batch) is not None
    (record,) = both(batch)
    assert isinstance(record, Record)
    text = record.body.removeprefix('{"data":').removesuffix("}")
    json.loads(text)
    return text


def zoned(zone: str) -> pa.DataType:
    return pa.timestamp("us", tz=zone)


WHEN = dt.datetime.fromisoformat("2020-02-03T04:05:06.789123")


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        ({"x": 1, "y": None}, INT_OR_NULL, '{"x":1}'),
        ({"x": None, "y": None}, INT_OR_NULL, "{}"),
        ([1, None, 2], pa.list_(pa.int32()), "[1,null,2]"),
        ([[1], [None], None], pa.list_(pa.list_(pa.int32())), "[[1],[null],null]"),
        ([{"x": None, "y": 1}, None], pa.list_(INT_OR_NULL), '[{"y":1},null]'),
        ([], pa.list_(pa.int32()), "[]"),
        ([("a", 1), ("b", None)], pa.map_(pa.string(), pa.int32()), '{"a":1,"b":null}'),
        ([], pa.map_(pa.string(), pa.int32()), "{}"),
        ([(1, "x")], pa.map_(pa.int32(), pa.string()), '{"1":"x"}'),
        ([(True, 1)], pa.map_(pa.bool_(), pa.int32()), '{"true":1}'),
        ([(1e10, 1)], pa.map_(pa.float64(), pa.int32()), '{"1.0E10":1}'),
        ([(Decimal("1.50"), 1)], pa.map_(pa.decimal128(5, 2), pa.int32()), '{"1.50":1}'),
        ([(WHEN.date(), 1)], pa.map_(pa.date32(), pa.int32()), '{"18295":1}'),
        ([(WHEN, 1)], pa.map_(zoned("UTC"), pa.int32()), '{"1580702706789123":1}'),
        ([(WHEN, 1)], pa.map_(pa.timestamp("us"), pa.int32()), '{"1580702706789123":1}'),
        (True, pa.bool_(), "true"),
        (9223372036854775807, pa.int64(), "9223372036854775807"),
        (1.0, pa.float64(), "1.0"),
        (-0.0, pa.float64(), "-0.0"),
        (1e10, pa.float64(), "1.0E10"),
        (123456789.125, pa.float64(), "1.23456789125E8"),
        (1e-5, pa.float64(), "1.0E-5"),
        (0.001, pa.float64(), "0.001"),
        (9999999.5, pa.float64(), "9999999.5"),
        (float("nan"), pa.float64(), '"NaN"'),
        (float("-inf"), pa.float64(), '"-Infinity"'),
        (float("nan"), pa.float32(), '"NaN"'),
        (0.1, pa.float32(), "0.1"),
        (1e10, pa.float32(), "1.0E10"),
        (3.4028235e38, pa.float32(), "3.4028235E38"),
        (16777216.0, pa.float32(), "1.6777216E7"),
        (1234567.0, pa.float32(), "1234567.0"),
        (Decimal("1.50"), pa.decimal128(10, 2), "1.50"),
        (Decimal(0), pa.decimal128(38, 18), "0E-18"),
        (Decimal("12345678901234567890.123"), pa.decimal128(38, 3), "12345678901234567890.123"),
        ({"b": b"\0\xff"}, pa.struct([("b", pa.binary())]), '{"b":"AP8="}'),
        (WHEN.date(), pa.date32(), '"2020-02-03"'),
        (dt.date(1, 1, 1), pa.date32(), '"0001-01-01"'),
        (WHEN, zoned("UTC"), '"2020-02-03T04:05:06.789Z"'),
        (WHEN, pa.timestamp("us"), '"2020-02-03T04:05:06.789"'),
        (WHEN.replace(tzinfo=dt.UTC), zoned("Asia/Kathmandu"), '"2020-02-03T09:50:06.789+05:45"'),
        (WHEN.replace(tzinfo=dt.UTC), zoned("Europe/London"), '"2020-02-03T04:05:06.789Z"'),
        (dt.datetime.fromisoformat("1969-12-31T23:59:59.999999"), zoned("UTC"),
         '"1969-12-31T23:59:59.999Z"'),
        ({"s": '\u00e4"\n/\u2028'}, pa.struct([("s", pa.string())]), '{"s":"\u00e4\\"\\n/\u2028"}'),
        ({'a"b': "x"}, pa.struct([('a"b', pa.string())]), '{"a\\"b":"x"}'),
    ],
    ids=str,
)  # fmt: skip
def test_values_look_as_spark_shows_them(value: Any, kind: pa.DataType, text: str) -> None:
    assert written(value, kind) == text


def test_a_zone_behind_greenwich_keeps_its_sign() -> None:
    noon = dt.datetime(2020, 7, 3, 12, tzinfo=ZoneInfo("America/New_York"))
    assert to_text(zoned("America/New_York"))(noon) == '"2020-07-03T12:00:00.000-04:00"'


def test_a_null_is_a_row_without_value() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([None, {"x": 1}], INT_OR_NULL)], names=["value"])
    assert both(batch) == [BadRow(0, "value is null", "null"), Record("t", '{"data":{"x":1}}')]


def test_what_has_no_json_concerns_its_row_only() -> None:
    places, texts = b"\0\0\0\0\1\0\0\0\2\0\0\0", b"\xff7"
    bad = pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(places), pa.py_buffer(texts)])
    # A day of the year 12000, which Python does not know.
    days = pa.array([3_700_000, 1], pa.int32()).cast(pa.date32())
    for column, good in ((bad, '{"x":"7"}'), (days, '{"x":"1970-01-02"}')):
        values = pa.StructArray.from_arrays([column], names=["x"])
        batch = pa.RecordBatch.from_arrays([values], names=["value"])
        first, second = both(batch)
        assert isinstance(first, BadRow)
        assert first.reason.startswith("value has no JSON: ")
        assert second == Record("t", f'{{"data":{good}}}')


def made_of(kind: DataType) -> StructType:
    return StructType([StructField("value", ArrayType(StructType([StructField("x", kind)])))])


@pytest.mark.parametrize(
    "kind",
    [DayTimeIntervalType(), VariantType(), MapType(BinaryType(), StringType()),
     MapType(ArrayType(StringType()), LongType()), MapType(StringType(), VariantType())],
    ids=lambda kind: str(kind.simpleString()),
)  # fmt: skip
def test_types_that_have_no_json_here_are_refused(kind: DataType) -> None:
    with pytest.raises(JobyardError) as refused:
        check_columns(made_of(kind), PLAIN)
    assert refused.value.option == "value"
    assert "to_json(value)" in refused.value.remedy


def test_all_other_types_are_written() -> None:
    for kind in (
        *(MapType(TimestampType(), BinaryType()), ArrayType(IntegerType()), LongType()),
        NullType(),
    ):
        assert unwritable(kind) is None
        check_columns(made_of(kind), PLAIN)


def test_what_is_no_json_by_itself_is_cast() -> None:
    for kind, word in ((DayTimeIntervalType(), "CAST(value AS STRING)"), (NullType(), "is null")):
        with pytest.raises(JobyardError) as refused:
            check_columns(StructType([StructField("value", kind)]), PLAIN)
        assert word in str(refused.value)
        assert "to_json" not in str(refused.value)


def test_a_field_that_is_null_in_all_rows_is_left_out() -> None:
    kind = pa.struct([("a", pa.int64()), ("n", pa.null()), ("l", pa.list_(pa.null()))])
    batch = pa.RecordBatch.from_arrays(
        [pa.array([{"a": 1, "n": None, "l": [None]}], kind)], names=["value"]
    )
    assert both(batch) == [Record("t", '{"data":{"a":1,"l":[null]}}')]
