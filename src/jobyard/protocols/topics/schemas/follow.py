"""What watches, sockets and routers take and answer, as JSON schemas: data, and no more.

Beside `schemas`, and under the same rules.
"""

from typing import Final

from jobyard.model.topic.router import GUARANTEES
from jobyard.protocols.http.call import EVENT_STREAM
from jobyard.protocols.http.routes import Parameter, Schema, Shape
from jobyard.protocols.topics.api import NAME
from jobyard.protocols.topics.follow import watch
from jobyard.protocols.topics.schemas.records import (
    BODY_REFUSALS,
    CUT_MAX,
    MATCH,
    PAGING,
    PERFORMANCE,
)

_FLAG: Final[Schema] = {"type": "boolean"}
_MAYBE_FLAG: Final[Schema] = {"type": ["boolean", "null"]}
_WHOLE: Final[Schema] = {"type": "integer", "minimum": 0}
_MAYBE_WHOLE: Final[Schema] = {"type": ["integer", "null"], "minimum": 0, "maximum": CUT_MAX}
_TEXT: Final[Schema] = {"type": "string"}

# -- watches ------------------------------------------------------------------------------------

_PLACE: Final[Schema] = {
    "title": "WatchPlace",
    "type": ["object", "null"],
    "properties": {
        "from_seq": {**_MAYBE_WHOLE, "description": "After which record to begin."},
        "tail": {**_MAYBE_FLAG, "description": "Whether to begin with what comes next."},
    },
}
_WATCH: Final[Schema] = {
    "title": "Watch",
    "type": "object",
    "required": ["topics"],
    "properties": {
        "topics": {
            "type": "object",
            "minProperties": 1,
            "maxProperties": watch.TOPICS_MAX,
            "propertyNames": NAME,
            "additionalProperties": _PLACE,
        },
        "node": {"description": "Whose records are left out: a text, or an array of texts."},
        "limit": _MAYBE_WHOLE,
        "max_batch_bytes": _MAYBE_WHOLE,
        "heartbeat_ms": _MAYBE_WHOLE,
        "include_data": _MAYBE_FLAG,
        "include_meta": _MAYBE_FLAG,
        "include_tags": _MAYBE_FLAG,
        "consistency": {"enum": ["eventual", "strong", None]},
    },
}
_STARTS: Final[Schema] = {
    "type": "object",
    "additionalProperties": {
        "title": "WatchStart",
        "type": "object",
        "required": ["from_seq", "head_seq", "earliest_seq"],
        "properties": {"from_seq": _WHOLE, "head_seq": _WHOLE, "earliest_seq": _WHOLE},
    },
}
_WATCHED: Final[Schema] = {
    "title": "Watched",
    "type": "object",
    "required": ["wid", "stream_url", "session_ttl_ms", "topics", "performance"],
    "properties": {
        "wid": {"type": "string", "pattern": "^wid_[A-Za-z0-9_-]{22}$"},
        "stream_url": _TEXT,
        "session_ttl_ms": _WHOLE,
        "topics": _STARTS,
        "performance": PERFORMANCE,
    },
}
_LENIENT: Final = Parameter("lenient", _FLAG, "Whether to leave out topics that are not there.")
_LAST_ID: Final = Parameter(
    "Last-Event-ID", _TEXT, "The id of the last event that was seen.", place="header"
)

# -- routers ------------------------------------------------------------------------------------

_GUARANTEE: Final[Schema] = {"enum": list(GUARANTEES)}
_WANTED_ROUTER: Final[Schema] = {
    "title": "WantedRouter",
    "type": "object",
    "required": ["source", "dest"],
    "properties": {
        "source": NAME,
        "dest": NAME,
        "preserve_node": _MAYBE_FLAG,
        "preserve_tag": _MAYBE_FLAG,
        "create_dest": _MAYBE_FLAG,
        "filter": {"anyOf": [MATCH, {"type": "null"}]},
        "allow_cycle": _MAYBE_FLAG,
        "guarantee": {"enum": [*GUARANTEES, None]},
    },
}
_ROUTER_FIELDS: Final[dict[str, Schema]] = {
    "router": _TEXT,
    "source": NAME,
    "dest": NAME,
    "preserve_node": _FLAG,
    "preserve_tag": _FLAG,
    "create_dest": _FLAG,
    "filter": {"anyOf": [MATCH, {"type": "null"}]},
    "allow_cycle": _FLAG,
    "guarantee": _GUARANTEE,
}
_STATE_FIELDS: Final[dict[str, Schema]] = {
    **_ROUTER_FIELDS,
    "forwarded_total": {**_WHOLE, "description": "Since the server was started."},
    "cursor": {**_WHOLE, "description": "Up to which record of the source it has come."},
    "lag": {**_WHOLE, "description": "How far that is behind."},
}


def _object(title: str, fields: dict[str, Schema]) -> Schema:
    return {
        "title": title,
        "type": "object",
        "required": list(fields),
        "properties": fields,
    }


_MADE: Final = _object(
    "RouterMade", {**_ROUTER_FIELDS, "created": _FLAG, "performance": PERFORMANCE}
)
_ROUTER: Final = _object("Router", {**_STATE_FIELDS, "performance": PERFORMANCE})
_ROUTERS: Final[Schema] = {
    "title": "Routers",
    "type": "object",
    "required": ["routers", "performance"],
    "properties": {
        "routers": {"type": "array", "items": _object("RouterLine", _STATE_FIELDS)},
        "next_cursor": _TEXT,
        "performance": PERFORMANCE,
    },
}
_REMOVED: Final = _object(
    "RouterRemoved", {"router": _TEXT, "deleted": _FLAG, "performance": PERFORMANCE}
)
_ENDS: Final = (
    Parameter("source", _TEXT, "Only those that lead from here."),
    Parameter("dest", _TEXT, "Only those that lead to here."),
)
_ONE: Final = "/v0/routers/{router}"

FOLLOW_SHAPES: Final[dict[str, Shape]] = {
    "POST /v0/watch": Shape(
        _WATCH,
        needs_body=True,
        query=(_LENIENT,),
        answers={200: _WATCHED},
        refusals=(*BODY_REFUSALS, 404, 429),
    ),
    "GET /v0/watch/{wid}": Shape(
        query=(_LAST_ID,), answers={}, texts=(EVENT_STREAM,), refusals=(401, 404, 429)
    ),
    "GET /v0/ws": Shape(answers={101: {}}, refusals=(400, 403, 426, 429)),
    "GET /v0/routers": Shape(query=(*PAGING, *_ENDS), answers={200: _ROUTERS}, refusals=(400,)),
    f"PUT {_ONE}": Shape(
        _WANTED_ROUTER,
        needs_body=True,
        answers={200: _MADE, 201: _MADE},
        refusals=(*BODY_REFUSALS, 403, 404, 409, 429, 507),
    ),
    f"GET {_ONE}": Shape(answers={200: _ROUTER}, refusals=(404,)),
    f"DELETE {_ONE}": Shape(answers={200: _REMOVED}, refusals=(507,)),
}
