"""The columns of a job in a stream of claims, and how they are made of the server's.

Spark accepts a batch only if its Arrow schema is exactly that of the table. A job names its claim,
worker and epoch, because the sink that ends its run knows nothing else of the stream.
"""

import base64
import binascii
import json
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from jobyard.client.errors import bad_option
from jobyard.spark.fleet.offsets import ClaimOffset

_TEXT: Final = (StringType(), pa.string())
_LONG: Final = (LongType(), pa.int64())
_TIME: Final = (TimestampType(), pa.timestamp("us", tz="UTC"))
HEADERS: Final = pa.map_(pa.string(), pa.string())
COLUMNS: Final[dict[str, tuple[DataType, pa.DataType]]] = {
    "queue": _TEXT,
    "worker": _TEXT,
    "epoch": _LONG,
    "claim": _TEXT,
    "seq": _LONG,
    "lease_id": _TEXT,
    "deliveries": _LONG,
    "ts": _TIME,
    "tag": _TEXT,
    "headers": (MapType(StringType(), StringType()), HEADERS),
    "value": (BinaryType(), pa.binary()),
}
# The same in all jobs of a claim.
FIXED: Final = ("queue", "worker", "epoch", "claim")
# What the sink needs of a job besides what became of it.
IDENTITY: Final = (*FIXED, "seq", "lease_id")
# How the server shows bytes where others have JSON.
_BYTES_BEGIN: Final = b'{"$base64":"'
_BYTES_END: Final = b'"}'


def job_schema() -> StructType:
    """Return all columns of a job, as Spark's schema."""
    return StructType([StructField(name, kind) for name, (kind, _) in COLUMNS.items()])


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of the columns that a reader was asked for."""
    fields = []
    for field in schema.fields:
        kinds = COLUMNS.get(field.name)
        if kinds is None or kinds[0].simpleString() != field.dataType.simpleString():
            raise bad_option(
                "schema",
                f"a job has no column {field.name} {field.dataType.simpleString()}; columns are "
                + ", ".join(f"{name} {kind.simpleString()}" for name, (kind, _) in COLUMNS.items()),
            )
        fields.append(pa.field(field.name, kinds[1], nullable=field.nullable))
    return pa.schema(fields)


def job_rows(
    found: pa.RecordBatch, at: ClaimOffset, epoch: int, schema: pa.Schema
) -> pa.RecordBatch:
    """Return the jobs of a claim set with the columns of a schema."""
    fixed = {"queue": at.queue, "worker": at.worker, "epoch": epoch, "claim": at.claim_id}
    arrays = []
    for field in schema:
        if field.name in fixed:
            array = pa.repeat(pa.scalar(fixed[field.name], field.type), found.num_rows)
        elif field.name == "headers":
            array = _headers(found.column("meta"))
        elif field.name == "value":
            array = _values(found.column("data"))
        else:
            array = found.column(field.name)
            array = array if array.type == field.type else array.cast(field.type)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _values(texts: pa.Array) -> pa.Array:
    """Return JSON texts as they are, and bytes as the bytes that they stand for."""
    values = texts.cast(pa.binary())
    is_bytes = pc.starts_with(values, _BYTES_BEGIN)
    if not pc.any(is_bytes).as_py():
        return values
    return pa.array([_value(one) for one in values.to_pylist()], pa.binary())


def _value(data: bytes) -> bytes:
    if data.startswith(_BYTES_BEGIN) and data.endswith(_BYTES_END):
        try:
            return base64.b64decode(data[len(_BYTES_BEGIN) : -len(_BYTES_END)], validate=True)
        except binascii.Error:
            return data
    return data


def _headers(texts: pa.Array) -> pa.Array:
    if texts.null_count == len(texts):
        return pa.nulls(len(texts), HEADERS)
    # Many jobs have the same few headers: each text is parsed once.
    distinct = texts.dictionary_encode()
    parsed = [
        [
            (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
            for name, value in json.loads(text).items()
        ]
        for text in distinct.dictionary.to_pylist()
    ]
    return pa.array(parsed, HEADERS).take(distinct.indices)
