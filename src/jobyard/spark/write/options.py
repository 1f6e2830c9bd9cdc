"""The options of `format("jobyard")` for writing: names, defaults, and checks.

The same rules as for reading: names in any case of letters, and an option that nobody knows is an
error. What is wrong with options or columns alone is known before any task runs.
"""

import difflib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructType,
    VariantType,
)

from jobyard.client import Token
from jobyard.client.errors import bad_option
from jobyard.spark.options import (
    EVENTS_TOPIC,
    TOPIC_NAME,
    Connecting,
    Given,
    check_topic_name,
    connecting,
)
from jobyard.spark.write.bad_files import local_folder
from jobyard.spark.write.json_text import unwritable

STAGED: Final = "staged"
DIRECT: Final = "direct"

# What the server takes as names.
TXN_NAME_MAX: Final = 256
TXN_NAME: Final = re.compile(rf"[A-Za-z0-9._:~-]{{1,{TXN_NAME_MAX}}}")
# What the transaction of a run of `enqueue` begins with, and one whose name was drawn.
RUN_PREFIX: Final = "run:"
DRAWN: Final = "batch:"

WRITE_NAMES: Final = (
    *("url", "token", "tokenEnv", "tokenFile", "timeoutMs", "maxRetries"),
    *("topic", "queue", "commit", "keyAs", "valueFormat", "badRowsPath", "txn"),
)
# Options that Spark passes on with ours.
_CHECKPOINT: Final = "checkpointlocation"
_PATH: Final = "path"
_OF_SPARK: Final = frozenset({_PATH, _CHECKPOINT, "queryname"})
# What a column may be named, and which types it may have; `value` may be anything.
_TEXTS: Final = (StringType,)
_WHOLES: Final = (IntegerType, LongType, ShortType)
_COLUMNS: Final[dict[str, tuple[type[DataType], ...]]] = {
    "topic": _TEXTS,
    "queue": _TEXTS,
    "key": (StringType, BinaryType),
    "tag": (StringType, BinaryType),
    "headers": (MapType, ArrayType),
    "priority": _WHOLES,
    "delay_ms": _WHOLES,
    "job_id": _TEXTS,
    "name": _TEXTS,
    "max_attempts": _WHOLES,
    "node": _TEXTS,
}
# Of these a log has none, and the server passes over some of them in silence.
JOB_COLUMN_NAMES: Final = ("priority", "delay_ms", "job_id", "name", "max_attempts")
# In messages, where types alone do not say it.
_WORDS: Final = {"headers": "map<string,string> or array<struct<key:string,value:binary>>"}
# Columns that a read of a topic has and a write has no use for.
_PASSED_OVER: Final = frozenset({"partition", "seq", "ts", "offset", "timestamp", "timestampType"})
# Columns by which rows are known to come from a read, whose `key` is a tag.
_OF_A_READ: Final = frozenset({"seq", "ts", "offset", "timestamp"})


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
    # Whether the option says so; else it is the default.
    is_key_said: bool
    value_format: str
    bad_rows_path: str
    # The name of the transaction; empty for one of its own.
    txn: str
    # Whether the topic must be a queue: it was given as one.
    wants_queue: bool = False
    # Of a stream; empty if Spark does not say.
    checkpoint: str = ""


def write_options(options: Mapping[str, str], token: Token | None) -> WriteOptions:
    """Return the checked options of a write."""
    of_spark = {name: value for name, value in options.items() if name.lower() in _OF_SPARK}
    own = {name: value for name, value in options.items() if name not in of_spark}
    given = Given(own, WRITE_NAMES)
    if given.has("topic") and given.has("queue"):
        raise bad_option(
            "topic and queue",
            "the options topic and queue mean the same",
            "Leave out one of them.",
        )
    _check_path(of_spark)
    commit = given.choice("commit", (STAGED, DIRECT))
    if given.has("txn"):
        if commit == DIRECT:
            raise bad_option(
                "txn", "a direct write has no transaction", "Leave out txn, or commit=direct."
            )
        _check_txn(given.text("txn"))
    for name in ("topic", "queue"):
        if given.has(name):
            _check_topic(name, given.text(name))
    return WriteOptions(
        connecting=connecting(given, token),
        topic=given.text("topic") or given.text("queue"),
        is_staged=commit == STAGED,
        key_is_tag=given.choice("keyAs", ("key", "tag")) == "tag",
        is_key_said=given.has("keyAs"),
        value_format=given.choice(
            "valueFormat", (ValueFormat.AUTO, ValueFormat.JSON, ValueFormat.BYTES)
        ),
        bad_rows_path=local_folder(given.text("badRowsPath")) if given.has("badRowsPath") else "",
        txn=given.text("txn"),
        wants_queue=given.has("queue"),
        checkpoint=next((of_spark[key] for key in of_spark if key.lower() == _CHECKPOINT), ""),
    )


def _check_path(of_spark: Mapping[str, str]) -> None:
    """Refuse `save(path)`: the rows would go elsewhere than it says."""
    path = next((value for name, value in of_spark.items() if name.lower() == _PATH), "")
    # Spark itself adds where a table of its catalog would lie.
    if path and not path.startswith("file:"):
        name = path if TOPIC_NAME.fullmatch(path) else "NAME"
        raise bad_option(
            "path",
            "a write has no path",
            f'Write .option("topic", "{name}").save() without a path.',
        )


def _check_txn(name: str) -> None:
    if not TXN_NAME.fullmatch(name):
        raise bad_option(
            "txn",
            f"{name[:300]!r} is not the name of a transaction",
            f"Write 1 to {TXN_NAME_MAX} letters, digits and . _ : ~ -",
        )


def _check_topic(option: str, name: str) -> None:
    if name == EVENTS_TOPIC:
        raise bad_option(
            option,
            f"only the server writes {EVENTS_TOPIC}",
            "Write to a topic of your own.",
        )
    check_topic_name(option, name)


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
            "topic",
            "nothing says where rows go: there is no option topic, and no column topic or queue",
            'Write .option("topic", "NAME").',
        )
    if {"topic", "queue"} <= set(names):
        raise bad_option(
            "topic and queue", "the columns topic and queue mean the same", "Drop one of them."
        )
    check_key(names, options)
    for field in schema.fields:
        if field.name == "value":
            _check_value(field.dataType)
            continue
        if field.name in _PASSED_OVER:
            continue
        check_known(field.name)
        _check_type(field.name, field.dataType)


def check_known(name: str) -> None:
    """Refuse a column that a write does not know, with the nearest name."""
    if name == "value" or name in _COLUMNS or name in _PASSED_OVER:
        return
    near = difflib.get_close_matches(name.lower(), list(_COLUMNS), n=1)
    hint = f"did you mean {near[0]}?" if near else f"columns are value, {', '.join(_COLUMNS)}"
    raise bad_option(
        name,
        f"there is no column {name} in a write; {hint}",
        f"Rename it to {near[0]}, drop it, or make it part of value."
        if near
        else "Drop it, or make it part of value.",
    )


def check_key(names: Collection[str], options: WriteOptions) -> None:
    """Refuse to take the tags of a read as keys: of each tag only one record would be written."""
    if "key" in names and not options.is_key_said and _OF_A_READ & set(names):
        raise bad_option(
            "keyAs",
            "the column key of a read is the tag of each record, and a write takes a column key "
            "as the key that a topic stores once",
            "Set keyAs=tag to copy each record with its tag, or keyAs=key to write each key once.",
        )


def _check_type(name: str, kind: DataType) -> None:
    wanted = _COLUMNS[name]
    # A column of nulls is one that no row has.
    if isinstance(kind, NullType) and name not in ("topic", "queue"):
        return
    if isinstance(kind, wanted) and (name != "headers" or _are_headers(kind)):
        return
    words = _WORDS.get(name) or " or ".join(each.typeName() for each in wanted)
    remedy = f"Write CAST({name} AS {words.partition(' ')[0].upper()})."
    if name == "headers" and not isinstance(kind, MapType):
        remedy = (
            "Write map('name', text) AS headers, or map_from_entries(headers) for an array of "
            "pairs of texts."
        )
    raise bad_option(
        name, f"the column {name} is {kind.simpleString()} and must be {words}", remedy
    )


def _check_value(kind: DataType) -> None:
    bad = kind if isinstance(kind, NullType) else unwritable(kind)
    if bad is None:
        return
    message = f"the column value has {bad.simpleString()} in it, which is not written as JSON here"
    if isinstance(bad, NullType):
        message = "the column value is null in all rows, and a record needs a value"
    remedy = "Write CAST(value AS STRING) AS value."
    if isinstance(kind, StructType | ArrayType | MapType | VariantType):
        # Spark itself takes nothing else.
        remedy = "Write to_json(value) AS value, or cast that part to a string."
    raise bad_option("value", message, remedy)


def _are_headers(kind: DataType) -> bool:
    """Return whether a type is a map of texts, or the array of pairs that Kafka has."""
    if isinstance(kind, MapType):
        return isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)
    pair = kind.elementType if isinstance(kind, ArrayType) else None
    if not isinstance(pair, StructType) or pair.fieldNames() != ["key", "value"]:
        return False
    name, value = (field.dataType for field in pair.fields)
    return isinstance(name, StringType) and isinstance(value, StringType | BinaryType)
