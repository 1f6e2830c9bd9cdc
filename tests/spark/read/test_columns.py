import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from jobyard.client import JobyardError
from jobyard.protocols.topics.export.jobs import JOB_FIELDS
from jobyard.protocols.topics.export.sources import HISTORY_FIELDS, LOG_FIELDS
from jobyard.spark.options import ReadOptions, read_options
from jobyard.spark.read.columns import (
    BINARY_KIND,
    EVENT_COLUMNS,
    JOB_COLUMNS,
    LONG_KIND,
    TEXT_KIND,
    TIME_KIND,
    TOPIC_COLUMNS,
    Table,
    TableColumn,
    schema_of,
    table_of,
)
from jobyard.wire.arrow.stream import BINARY, INT64, TIMESTAMP, UTF8, ArrowField

GOLDEN = Path(__file__).parent / "golden"
MOMENT = datetime(2026, 11, 16, 12, tzinfo=UTC)
SUBJECTS = {
    "topic": {"topic": "a"},
    "bare": {"topic": "a", "includeHeaders": "false", "includePayload": "false"},
    "kafka": {"subscribe": "a"},
    "kafka-headers": {"subscribe": "a", "includeHeaders": "true"},
    "events": {"topic": "_events"},
    "jobs": {"jobs": "mails"},
}


def options(**given: str) -> ReadOptions:
    return read_options({"url": "http://h:1", **given}, is_stream=False)


def whole(chosen: ReadOptions) -> StructType:
    return schema_of(table_of(chosen))


def table(*fields: tuple[str, object], **given: str) -> Table:
    return Table(
        options(**(given or {"topic": "a"})),
        StructType([StructField(name, kind) for name, kind in fields]),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("name", list(SUBJECTS))
def test_schemas_are_what_users_build_upon(name: str) -> None:
    golden = json.loads((GOLDEN / "schemas.json").read_text())
    schema = schema_of(table_of(options(**SUBJECTS[name])))
    assert [f"{each.name} {each.dataType.simpleString()}" for each in schema] == golden[name]


KINDS = {INT64: LONG_KIND, TIMESTAMP: TIME_KIND, UTF8: TEXT_KIND, BINARY: BINARY_KIND}


@pytest.mark.parametrize(
    ("columns", "fields", "left_out"),
    [
        (EVENT_COLUMNS, HISTORY_FIELDS, set()),
        # The same bytes are in `value`.
        (JOB_COLUMNS, JOB_FIELDS, {"data"}),
    ],
)
def test_tables_have_every_column_of_the_export(
    columns: tuple[TableColumn, ...], fields: list[ArrowField], left_out: set[str]
) -> None:
    found = {each.name: each.kind for each in columns}
    assert found == {each.name: KINDS[each.kind] for each in fields if each.name not in left_out}


def test_topics_have_every_column_of_the_export_under_their_own_names() -> None:
    sources = {each.source for each in TOPIC_COLUMNS if each.source}
    assert sources == {each.name for each in LOG_FIELDS} - {"data"}


@pytest.mark.parametrize("name", list(SUBJECTS))
def test_batches_have_exactly_the_schema_that_spark_expects(name: str) -> None:
    chosen = options(**SUBJECTS[name])
    schema = whole(chosen)
    made = Table(chosen, schema)
    found = pa.RecordBatch.from_arrays(
        [pa.nulls(3, pa.string()) for _ in made.sources()], names=made.sources()
    )
    batch = made.batch(found, "a")
    assert to_arrow_schema(schema, timezone="UTC").equals(batch.schema)


def test_a_record_becomes_a_row() -> None:
    made = Table(options(topic="a"), whole(options(topic="a")))
    assert made.sources() == ["seq", "ts", "tag", "value", "meta", "node"]
    found = pa.RecordBatch.from_pydict(
        {
            "seq": [7, 8],
            "ts": pa.array([MOMENT, MOMENT], pa.timestamp("us", tz="UTC")),
            "tag": ["t", None],
            "value": [b'{"a":1}', b""],
            "meta": ['{"x":"y","n":{"m":1},"u":"\\u00e4"}', None],
            "node": [None, "n1"],
        }
    )
    assert made.batch(found, "clicks").to_pylist() == [
        {
            "topic": "clicks", "partition": 0, "seq": 7, "ts": MOMENT, "key": b"t",
            "value": b'{"a":1}', "headers": [("x", "y"), ("n", '{"m": 1}'), ("u", "ä")],
            "node": None,
        },
        {
            "topic": "clicks", "partition": 0, "seq": 8, "ts": MOMENT, "key": None, "value": b"",
            "headers": None, "node": "n1",
        },
    ]  # fmt: skip


def test_a_record_becomes_a_row_of_kafka() -> None:
    chosen = options(subscribe="a", includeHeaders="true")
    made = Table(chosen, whole(chosen))
    found = pa.RecordBatch.from_pydict(
        {
            "tag": ["t"], "value": [b"v"], "seq": [7],
            "ts": pa.array([MOMENT], pa.timestamp("us", tz="UTC")), "meta": ['{"x":"y"}'],
        }
    )  # fmt: skip
    assert made.batch(found, "a").to_pylist() == [
        {
            "key": b"t", "value": b"v", "topic": "a", "partition": 0, "offset": 7,
            "timestamp": MOMENT, "timestampType": 1, "headers": [{"key": "x", "value": b"y"}],
        }
    ]  # fmt: skip


def test_only_the_columns_of_a_schema_are_asked_for() -> None:
    made = table(("KEY", BinaryType()), ("topic", StringType()))
    assert made.sources() == ["tag"]
    batch = made.batch(pa.RecordBatch.from_pydict({"tag": ["x"]}), "t")
    assert batch.to_pylist() == [{"KEY": b"x", "topic": "t"}]
    # A count alone needs no column, and rows need one to be counted by.
    assert table(("topic", StringType())).sources() == ["seq"]


def test_an_empty_schema_counts_rows() -> None:
    assert table().sources() == ["seq"]


def test_a_column_that_must_not_be_null_stays_so() -> None:
    made = Table(options(topic="a"), StructType([StructField("seq", LongType(), nullable=False)]))
    batch = made.batch(pa.RecordBatch.from_pydict({"seq": [1]}), "a")
    assert not batch.schema.field("seq").nullable


@pytest.mark.parametrize(
    ("field", "said"),
    [
        (("seqs", LongType()), "did you mean seq?"),
        (("zzz", LongType()), "columns are topic"),
        (("seq", IntegerType()), "has type bigint and not int"),
        (("ts", StringType()), "has type timestamp and not string"),
    ],
)
def test_a_schema_that_does_not_fit_is_explained(field: tuple[str, object], said: str) -> None:
    with pytest.raises(JobyardError) as caught:
        table(field)
    assert (caught.value.code, caught.value.option) == ("bad_option", "schema")
    assert said in str(caught.value)


def test_a_narrow_number_of_a_server_is_widened() -> None:
    made = table(("seq", LongType()), ("ts", TimestampType()))
    found = pa.RecordBatch.from_arrays(
        [pa.array([1], pa.int32()), pa.array([MOMENT], pa.timestamp("ms", tz="UTC"))],
        names=["seq", "ts"],
    )
    assert made.batch(found, "a").to_pylist() == [{"seq": 1, "ts": MOMENT}]
