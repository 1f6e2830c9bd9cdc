"""The columns of a topic, of the history and of jobs, and how Spark's are made from an export's.

Spark accepts a batch only if its Arrow schema is exactly that of the table, so every batch is made
for one schema. No JSON is parsed, except the headers of records that have any; everything
else is passed on as it came.
"""

import difflib
import json
from collections.abc import Sequence
from typing import Final, NamedTuple, final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from jobyard.client.errors import bad_option
from jobyard.spark.options import ReadOptions

# Kafka's number for a time that the server gave a record, and not its writer.
_LOG_APPEND_TIME: Final = 1


class Kind(NamedTuple):
    """A type, in Spark and in Arrow."""

    spark: DataType
    arrow: pa.DataType


TEXT_KIND: Final = Kind(StringType(), pa.string())
LONG_KIND: Final = Kind(LongType(), pa.int64())
INT_KIND: Final = Kind(IntegerType(), pa.int32())
TIME_KIND: Final = Kind(TimestampType(), pa.timestamp("us", tz="UTC"))
BINARY_KIND: Final = Kind(BinaryType(), pa.binary())
HEADERS_KIND: Final = Kind(MapType(StringType(), StringType()), pa.map_(pa.string(), pa.string()))
KAFKA_HEADERS_KIND: Final = Kind(
    ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
    pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
)


class TableColumn(NamedTuple):
    """One column of a table, and the column of the export that it is made of."""

    name: str
    kind: Kind
    # Empty if the column is the same in all rows.
    source: str


# Parts that a table always has, and the options that leave out the others.
VALUE: Final = TableColumn("value", BINARY_KIND, "value")
TOPIC_COLUMNS: Final = (
    TableColumn("topic", TEXT_KIND, ""),
    TableColumn("partition", INT_KIND, ""),
    TableColumn("seq", LONG_KIND, "seq"),
    TableColumn("ts", TIME_KIND, "ts"),
    TableColumn("key", BINARY_KIND, "tag"),
    VALUE,
    TableColumn("headers", HEADERS_KIND, "meta"),
    TableColumn("node", TEXT_KIND, "node"),
)
# As Kafka's source orders them.
KAFKA_COLUMNS: Final = (
    TableColumn("key", BINARY_KIND, "tag"),
    VALUE,
    TableColumn("topic", TEXT_KIND, ""),
    TableColumn("partition", INT_KIND, ""),
    TableColumn("offset", LONG_KIND, "seq"),
    TableColumn("timestamp", TIME_KIND, "ts"),
    TableColumn("timestampType", INT_KIND, ""),
    TableColumn("headers", KAFKA_HEADERS_KIND, "meta"),
)
_CONSTANTS: Final = {"partition": 0, "timestampType": _LOG_APPEND_TIME}


def _same(kind: Kind, *names: str) -> tuple[TableColumn, ...]:
    return tuple(TableColumn(name, kind, name) for name in names)


EVENT_COLUMNS: Final = (
    *_same(LONG_KIND, "seq"),
    *_same(TIME_KIND, "ts"),
    *_same(TEXT_KIND, "event", "queue"),
    *_same(LONG_KIND, "job_id", "queue_seq"),
    *_same(TEXT_KIND, "client_id", "name", "state", "family", "door", "worker"),
    *_same(LONG_KIND, "rank", "attempts", "deliveries", "size", "lease", "holder", "ttl_ms"),
    *_same(TIME_KIND, "due_at", "enqueued_at", "available_at", "claimed_at", "finished_at"),
    *_same(TEXT_KIND, "error"),
    *_same(LONG_KIND, "origin_id"),
    *_same(TEXT_KIND, "origin_queue", "reason", "letter_topic"),
    *_same(LONG_KIND, "letter_seq"),
)
JOB_COLUMNS: Final = (
    *_same(LONG_KIND, "job_id", "queue_seq"),
    *_same(TEXT_KIND, "client_id", "name", "queue", "state", "family"),
    *_same(LONG_KIND, "priority", "deliveries", "attempts", "max_attempts"),
    *_same(TEXT_KIND, "worker"),
    *_same(TIME_KIND, "enqueued_at", "available_at", "claimed_at", "finished_at", "due_at"),
    *_same(TEXT_KIND, "error", "tag", "meta"),
    VALUE,
)


def table_of(options: ReadOptions) -> tuple[TableColumn, ...]:
    """Return all columns of what the options read."""
    if options.is_events:
        return EVENT_COLUMNS
    columns = JOB_COLUMNS
    if not options.jobs:
        columns = KAFKA_COLUMNS if options.kafka_names else TOPIC_COLUMNS
    left_out = {"headers"} if not options.has_headers else set()
    if not options.has_payload:
        left_out.add("value")
    return tuple(column for column in columns if column.name not in left_out)


def schema_of(columns: Sequence[TableColumn]) -> StructType:
    """Return columns as Spark's schema."""
    return StructType([StructField(column.name, column.kind.spark) for column in columns])


@final
class Table:
    """The columns that a read returns: all of them, or those of the schema that a user gave."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        known = {column.name.lower(): column for column in table_of(options)}
        self.columns = [_fitting(field, known) for field in schema.fields]
        self._arrow = pa.schema(
            [
                pa.field(field.name, column.kind.arrow, nullable=field.nullable)
                for field, column in zip(schema.fields, self.columns, strict=True)
            ]
        )

    def __reduce__(self) -> tuple[object, ...]:
        return _table, (self.columns, self._arrow)

    def sources(self) -> list[str]:
        """Return the columns to ask of the server; a count needs one, too."""
        found = list(dict.fromkeys(column.source for column in self.columns if column.source))
        return found or ["seq"]

    def source_of(self, name: str) -> str:
        """Return the column of the export behind a column; its own name if it is in all rows."""
        for column in self.columns:
            if column.name == name:
                return column.source or column.name
        return ""

    def batch(self, found: pa.RecordBatch, topic: str) -> pa.RecordBatch:
        """Return the rows of an export as rows of this table."""
        arrays = [_made(column, found, topic) for column in self.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow)


def _table(columns: list[TableColumn], arrow: pa.Schema) -> Table:
    table = Table.__new__(Table)
    table.columns = columns
    table._arrow = arrow  # noqa: SLF001  what __init__ would set
    return table


def _fitting(field: StructField, known: dict[str, TableColumn]) -> TableColumn:
    column = known.get(field.name.lower())
    if column is None:
        near = difflib.get_close_matches(field.name.lower(), list(known), n=1)
        hint = f"did you mean {near[0]}?" if near else f"columns are {', '.join(known)}"
        raise bad_option(
            "schema",
            f"there is no column {field.name}; {hint}",
            "Name columns of this read only, or leave out the schema.",
        )
    wanted, found = column.kind.spark.simpleString(), field.dataType.simpleString()
    if wanted != found:
        raise bad_option(
            "schema", f"column {field.name} has type {wanted} and not {found}",
            "Convert it with a cast after the read.",
        )  # fmt: skip
    return column._replace(name=field.name)


def _made(column: TableColumn, found: pa.RecordBatch, topic: str) -> pa.Array:
    kind = column.kind
    if not column.source:
        value = _CONSTANTS.get(column.name, topic)
        return pa.repeat(pa.scalar(value, kind.arrow), found.num_rows)
    array = found.column(column.source)
    if kind in (HEADERS_KIND, KAFKA_HEADERS_KIND):
        return _headers(array, kind)
    return array if array.type == kind.arrow else array.cast(kind.arrow)


def _headers(texts: pa.Array, kind: Kind) -> pa.Array:
    if texts.null_count == len(texts):
        return pa.nulls(len(texts), kind.arrow)
    # Many records have the same few headers: each text is parsed once.
    distinct = texts.dictionary_encode()
    parsed = [_pairs(text, kind) for text in distinct.dictionary.to_pylist()]
    return pa.array(parsed, kind.arrow).take(distinct.indices)


def _pairs(text: str, kind: Kind) -> list[object]:
    fields = json.loads(text)
    pairs = [
        (name, value if value is None or isinstance(value, str) else _json(value))
        for name, value in fields.items()
    ]
    if kind is KAFKA_HEADERS_KIND:
        return [
            {"key": name, "value": None if value is None else value.encode()}
            for name, value in pairs
        ]
    return list(pairs)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
