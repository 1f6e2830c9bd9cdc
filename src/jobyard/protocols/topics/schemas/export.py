"""JSON schemas of the export and of the search for a seq: data only.

The rules in `schemas/records.py` apply here too.
"""

from typing import Final

from jobyard.protocols.http.routes import Parameter, RouteSchemas, Schema
from jobyard.protocols.topics.api import TOPIC_NAME_SCHEMA
from jobyard.protocols.topics.schemas.basic import PERFORMANCE
from jobyard.wire.arrow.stream import ARROW_STREAM

_FLAG: Final[Schema] = {"type": "boolean"}
_WHOLE: Final[Schema] = {"type": "integer", "minimum": 0}
_TEXT: Final[Schema] = {"type": "string"}

_INCARNATION: Final = Parameter(
    "incarnation",
    _TEXT,
    "Refuse the request if the topic was deleted and created again since then.",
)
COLUMNS: Final = Parameter(
    "columns", _TEXT, "Comma-separated column names of an Arrow stream. Default: all but value."
)
NULLABLE: Final = Parameter(
    "nullable", _FLAG, "Mark all columns of an Arrow stream as nullable, as Spark needs it."
)
_RANGE: Final = (
    Parameter("from_seq", _WHOLE, "Start after this seq. Default: the beginning."),
    Parameter("to_seq", _WHOLE, "The last seq to export. Default: the newest."),
    COLUMNS,
    NULLABLE,
    Parameter(
        "compress", {"enum": ["zstd"]}, "Compress each batch; 406 if the server cannot do that."
    ),
    Parameter("allow_gap", _FLAG, "Continue if caps or the TTL have removed part of the range."),
    Parameter("jobs", _TEXT, "The jobs of a queue in these states, comma-separated."),
    Parameter("queue", _TEXT, "Only rows of these queues, comma-separated; only for _events."),
    Parameter("event", _TEXT, "Only rows of these events, comma-separated; only for _events."),
    Parameter("from_ts", _WHOLE, "Only rows at or after this time, in ms; only for _events."),
    Parameter("to_ts", _WHOLE, "Only rows at or before this time, in ms; only for _events."),
    _INCARNATION,
)
_TS: Final = Parameter(
    "ts", _WHOLE, "Wall-clock time in milliseconds since 1970.", is_required=True
)
_PLACE: Final[dict[str, Schema]] = {
    "topic": TOPIC_NAME_SCHEMA,
    "seq": {
        **_WHOLE,
        "description": "First seq at or after that time; the next seq if there is none.",
    },
    "from_seq": {**_WHOLE, "description": "The from_seq that reads that record first."},
    "found": {**_FLAG, "description": "Whether such a record exists."},
    "head_seq": _WHOLE,
    "earliest_seq": _WHOLE,
    "incarnation": _TEXT,
    "performance": PERFORMANCE,
}
_FOUND: Final[Schema] = {
    "title": "FoundSeq",
    "type": "object",
    "required": list(_PLACE),
    "properties": _PLACE,
}
_ONE: Final = "/v0/topics/{topic}"

EXPORT_SHAPES: Final[dict[str, RouteSchemas]] = {
    f"GET {_ONE}/export": RouteSchemas(
        query=_RANGE,
        answers={},
        texts=(ARROW_STREAM,),
        refusals=(400, 404, 406, 409, 410, 416, 429, 500),
    ),
    f"GET {_ONE}/seq": RouteSchemas(
        query=(_TS, _INCARNATION), answers={200: _FOUND}, refusals=(400, 404, 409)
    ),
}
