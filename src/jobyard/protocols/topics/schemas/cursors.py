"""JSON schemas of the cursors of readers: data only.

The rules in `schemas/records.py` apply here too.
"""

from typing import Final

from jobyard.protocols.http.routes import RouteSchemas, Schema
from jobyard.protocols.topics.api import TOPIC_NAME_SCHEMA
from jobyard.protocols.topics.cursor_fields import CURSOR_NAME_MAX
from jobyard.protocols.topics.schemas.basic import FLAG, MAYBE_FLAG, PERFORMANCE, WHOLE_NUMBER
from jobyard.protocols.topics.schemas.keys import STRICT

_TEXT: Final[Schema] = {"type": "string"}
CURSOR_NAME: Final[Schema] = {"type": "string", "maxLength": CURSOR_NAME_MAX}
# Of a cursor to set, besides its name.
CURSOR_FIELDS: Final[dict[str, Schema]] = {
    "seq": {**WHOLE_NUMBER, "description": "The last seq that the reader is done with."},
    "incarnation": {
        "type": ["string", "null"],
        "maxLength": 64,
        "description": "Refuse the request if the topic was created again since then.",
    },
    "hold": {
        **MAYBE_FLAG,
        "description": "Keep the records after seq, up to --hold-bytes. Default: as before.",
    },
    "force": {**MAYBE_FLAG, "description": "Allow the cursor to go back."},
}
_SET: Final[Schema] = {
    "title": "SetCursor",
    "type": "object",
    "required": ["seq"],
    "properties": {**CURSOR_FIELDS, "strict": STRICT},
}
_FIELDS: Final[dict[str, Schema]] = {
    "cursor": CURSOR_NAME,
    "topic": TOPIC_NAME_SCHEMA,
    "seq": WHOLE_NUMBER,
    "incarnation": _TEXT,
    "hold": FLAG,
    "is_broken": {**FLAG, "description": "Records after seq were removed although it held them."},
    "lag": {**WHOLE_NUMBER, "description": "Records or rows after it; for a queue, jobs put."},
    "lag_ms": {
        **WHOLE_NUMBER,
        "description": "Age of the first record or job after it, 0 for none.",
    },
    "updated_ms": WHOLE_NUMBER,
}
CURSOR_STATE: Final[Schema] = {
    "title": "Cursor",
    "type": "object",
    "required": list(_FIELDS),
    "properties": _FIELDS,
}
_ANSWER: Final[Schema] = {
    "title": "CursorAnswer",
    "type": "object",
    "required": [*_FIELDS, "performance"],
    "properties": {**_FIELDS, "created": FLAG, "performance": PERFORMANCE},
}
_LIST: Final[Schema] = {
    "title": "Cursors",
    "type": "object",
    "required": ["cursors", "performance"],
    "properties": {
        "cursors": {"type": "array", "items": CURSOR_STATE},
        "performance": PERFORMANCE,
    },
}
_DELETED: Final[Schema] = {
    "title": "DeletedCursor",
    "type": "object",
    "required": ["cursor", "topic", "deleted", "performance"],
    "properties": {
        "cursor": _TEXT,
        "topic": TOPIC_NAME_SCHEMA,
        "deleted": FLAG,
        "performance": PERFORMANCE,
    },
}
_ALL: Final = "/v0/topics/{topic}/cursors"
_ONE: Final = f"{_ALL}/{{cursor}}"

CURSOR_SHAPES: Final[dict[str, RouteSchemas]] = {
    f"GET {_ALL}": RouteSchemas(answers={200: _LIST}, refusals=(400, 404)),
    f"GET {_ONE}": RouteSchemas(answers={200: _ANSWER}, refusals=(400, 404)),
    f"PUT {_ONE}": RouteSchemas(
        _SET,
        needs_body=True,
        answers={200: _ANSWER, 201: _ANSWER},
        refusals=(400, 404, 409, 413, 415, 416, 429, 507),
    ),
    f"DELETE {_ONE}": RouteSchemas(answers={200: _DELETED}, refusals=(400, 404)),
}
