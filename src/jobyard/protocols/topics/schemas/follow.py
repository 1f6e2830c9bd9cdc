"""JSON schemas of watches, sockets and routers: data only.

The rules in `schemas/records.py` apply here too.
"""

from typing import Final

from jobyard.model.topic.router import GUARANTEES
from jobyard.protocols.http.call import EVENT_STREAM
from jobyard.protocols.http.routes import Parameter, RouteSchemas, Schema
from jobyard.protocols.topics.api import TOPIC_NAME_SCHEMA
from jobyard.protocols.topics.follow import watch
from jobyard.protocols.topics.schemas.basic import CUT_MAX, PERFORMANCE
from jobyard.protocols.topics.schemas.records import BODY_REFUSALS, MATCH, PAGING

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
        "from_seq": {**_MAYBE_WHOLE, "description": "Start after this seq."},
        "tail": {**_MAYBE_FLAG, "description": "Start with the next new record."},
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
            "propertyNames": TOPIC_NAME_SCHEMA,
            "additionalProperties": _PLACE,
        },
        "node": {
            "description": "Leave out records of these nodes: a string, or an array of strings."
        },
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
_LENIENT: Final = Parameter("lenient", _FLAG, "Leave out topics that do not exist.")
_LAST_ID: Final = Parameter(
    "Last-Event-ID", _TEXT, "Id of the last event the client received.", place="header"
)

# -- routers ------------------------------------------------------------------------------------

_GUARANTEE: Final[Schema] = {"enum": list(GUARANTEES)}
_WANTED_ROUTER: Final[Schema] = {
    "title": "WantedRouter",
    "type": "object",
    "required": ["source", "dest"],
    "properties": {
        "source": TOPIC_NAME_SCHEMA,
        "dest": TOPIC_NAME_SCHEMA,
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
    "source": TOPIC_NAME_SCHEMA,
    "dest": TOPIC_NAME_SCHEMA,
    "preserve_node": _FLAG,
    "preserve_tag": _FLAG,
    "create_dest": _FLAG,
    "filter": {"anyOf": [MATCH, {"type": "null"}]},
    "allow_cycle": _FLAG,
    "guarantee": _GUARANTEE,
}
_STATE_FIELDS: Final[dict[str, Schema]] = {
    **_ROUTER_FIELDS,
    "forwarded_total": {**_WHOLE, "description": "Records forwarded since the server started."},
    "cursor": {**_WHOLE, "description": "Seq of the last source record it has processed."},
    "lag": {**_WHOLE, "description": "How many seqs the cursor is behind the head of the source."},
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
    Parameter("source", _TEXT, "Only routers with this source."),
    Parameter("dest", _TEXT, "Only routers with this destination."),
)
_ONE: Final = "/v0/routers/{router}"

FOLLOW_SHAPES: Final[dict[str, RouteSchemas]] = {
    "POST /v0/watch": RouteSchemas(
        _WATCH,
        needs_body=True,
        query=(_LENIENT,),
        answers={200: _WATCHED},
        refusals=(*BODY_REFUSALS, 404, 429),
    ),
    "GET /v0/watch/{wid}": RouteSchemas(
        query=(_LAST_ID,), answers={}, texts=(EVENT_STREAM,), refusals=(401, 404, 429)
    ),
    "GET /v0/ws": RouteSchemas(answers={101: {}}, refusals=(400, 403, 426, 429)),
    "GET /v0/routers": RouteSchemas(
        query=(*PAGING, *_ENDS), answers={200: _ROUTERS}, refusals=(400,)
    ),
    f"PUT {_ONE}": RouteSchemas(
        _WANTED_ROUTER,
        needs_body=True,
        answers={200: _MADE, 201: _MADE},
        refusals=(*BODY_REFUSALS, 403, 404, 409, 429, 507),
    ),
    f"GET {_ONE}": RouteSchemas(answers={200: _ROUTER}, refusals=(404,)),
    f"DELETE {_ONE}": RouteSchemas(answers={200: _REMOVED}, refusals=(507,)),
}
