"""The options of `format("jobyard")` for writing: names, defaults, and checks.

The same rules as for reading: names in any case of letters, and an option that nobody knows is an
error. What is wrong with options or columns alone is known before any task runs.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

from jobyard.client import Token
from jobyard.client.errors import bad_option
from jobyard.spark.options import EVENTS_TOPIC, Connecting, Given, connecting
from jobyard.spark.write.bad_files import local_folder
from jobyard.spark.write.json_text import unwritable

STAGED: Final = "staged"
DIRECT: Final = "direct"

# What the server takes as names.
TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}")
TXN_NAME_MAX: Final = 256
TXN_NAME: Final = re.compile(rf"[A-Za-z0-9._:~-]{{1,{TXN_NAME_MAX}}}")
# What the transaction of a run of `enqueue` begins with.
RUN_PREFIX: Final = "run:"

WRITE_NAMES: Final = (
    *("url", "token", "tokenEnv", "tokenFile", "timeoutMs", "maxRetries"),
    *("topic", "queue", "commit", "keyAs", "valueFormat", "badRowsPath", "txn"),
)
# Options that Spark passes on with ours.
_CHECKPOINT: Final = "checkpointlocation"
_OF_SPARK: Final = frozenset({"path", _CHECKPOINT, "queryname"})
# What a column may be named, and which types it may have; `value` may be anything.
_TEXTS: Final = (StringType,)
_WHOLES: Final = (IntegerType, LongType, ShortType)
_COLUMNS: Final[dict[str, tuple[type[DataType], ...]]] = {
    "topic": _TEXTS,
    "queue": _TEXTS,
    "key": (StringType, BinaryType),
    "tag": (StringType, BinaryType),
    "headers": (MapType,),
    "priority": _WHOLES,
    "delay_ms": _WHOLES,
    "job_id": _TEXTS,
    "name": _TEXTS,
    "max_attempts": _WHOLES,
    "node": _TEXTS,
}
# In messages, where the type alone does not say it.
_WORDS: Final[dict[type[DataType], str]] = {MapType: "map<string,string>"}
# Columns that a read of a topic has and a write has no use for.
_PASSED_OVER: Final = frozenset({"partition", "seq", "ts", "offset", "timestamp", "timestampType"})


class ValueFormat:
    """How a value becomes the data of a record."""

    AUTO: Final = "auto"
    JSON: Final = "json"
    BYTES: Final = "bytes"


@dataclass(frozen=True)
class WriteOptions:
    """Everything that a writer needs to know, checked."""

    connecting: Connecting
    # Overrides the column of that name; empty if rows name their topic themselves.
    topic: str
    is_staged: bool
    # Whether the column `key` is the tag of a record, as Kafka's keys are.
    key_is_tag: bool
    value_format: str
    bad_rows_path: str
    # The name of the transaction; empty for one of its own.
    txn: str
    # Of a stream; empty if Spark does not say.
    checkpoint: str = ""


def write_options(options: Mapping[str, str], token: Token | None) -> WriteOptions:
    """Return the checked options of a write."""
    of_spark = {name: value for name, value in options.items() if name.lower() in _OF_SPARK}
    own = {name: value for name, value in options.items() if name not in of_spark}
    given = Given(own, WRITE_NAMES)
    if given.has("topic") and given.has("queue"):
        raise bad_option("topic and queue", "they mean the same: set one of them")
    commit = given.choice("commit", (STAGED, DIRECT))
    if given.has("txn"):
        if commit == DIRECT:
            raise bad_option("txn", "a direct write has no transaction")
        _check_txn(given.text("txn"))
    for name in ("topic", "queue"):
        if given.has(name):
            _check_topic(name, given.text(name))
    return WriteOptions(
        connecting=connecting(given, token),
        topic=given.text("topic") or given.text("queue"),
        is_staged=commit == STAGED,
        key_is_tag=given.choice("keyAs", ("key", "tag")) == "tag",
        value_format=given.choice(
            "valueFormat", (ValueFormat.AUTO, ValueFormat.JSON, ValueFormat.BYTES)
        ),
        bad_rows_path=local_folder(given.text("badRowsPath")) if given.has("badRowsPath") else "",
        txn=given.text("txn"),
        checkpoint=next((of_spark[key] for key in of_spark if key.lower() == _CHECKPOINT), ""),
    )


def _check_txn(name: str) -> None:
    if not TXN_NAME.fullmatch(name):
        raise bad_option("txn", f"{name!r} is no name: 1 to 256 letters, digits and . _ : ~ -")


def _check_topic(option: str, name: str) -> None:
    if name == EVENTS_TOPIC:
        raise bad_option(option, f"{EVENTS_TOPIC} is written by the server alone")
    if not TOPIC_NAME.fullmatch(name):
        raise bad_option(
            option,
            f"{name!r} is not the name of a topic: 1 to 255 letters, digits and . _ : -, "
            "the first a letter or digit",
        )


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Refuse columns that cannot be written, with what to write instead."""
    names = schema.fieldNames()
    if "value" not in names:
        raise bad_option(
            "value",
            f"there is no column value; the columns are {', '.join(names)}",
            'Write df.selectExpr("to_json(struct(*)) AS value") to send whole rows as JSON.',
        )
    if not options.topic and not {"topic", "queue"} & set(names):
        raise bad_option(
            "topic", "neither the option topic nor a column topic or queue says where rows go"
        )
    if {"topic", "queue"} <= set(names):
        raise bad_option("topic and queue", "the columns topic and queue mean the same")
    for field in schema.fields:
        if field.name == "value":
            _check_value(field.dataType)
            continue
        if field.name in _PASSED_OVER:
            continue
        wanted = _COLUMNS.get(field.name)
        if wanted is None:
            raise bad_option(
                field.name,
                f"there is no column {field.name} in a write; "
                f"columns are value, {', '.join(_COLUMNS)}",
                "Drop it, or make it part of value.",
            )
        if not isinstance(field.dataType, wanted) or not _is_text_map(field.dataType):
            words = " or ".join(_WORDS.get(kind, kind.typeName()) for kind in wanted)
            raise bad_option(
                field.name,
                f"the column {field.name} is {field.dataType.simpleString()} and must be {words}",
                f"Write CAST({field.name} AS {words.partition(' ')[0].upper()}).",
            )


def _check_value(kind: DataType) -> None:
    bad = unwritable(kind)
    if bad is not None:
        raise bad_option(
            "value",
            f"the column value has {bad.simpleString()} in it, which is not written as JSON here",
            "Write to_json(value) AS value, or cast that part to a string.",
        )


def _is_text_map(kind: DataType) -> bool:
    """Return whether a map has texts only; anything else passes."""
    return not isinstance(kind, MapType) or (
        isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)
    )
