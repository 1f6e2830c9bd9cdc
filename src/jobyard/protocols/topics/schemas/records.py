"""JSON schemas of the requests and answers of the topics API: data only.

A schema with a title appears under that title in the OpenAPI document. Nothing here is used to
serve a call; a test checks the schemas against what the server does. Answers may gain fields,
requests may have unknown fields, and null counts as absent. `maxLength` counts characters, but the
server counts bytes.
"""

from typing import Final

from jobyard.model.topic.config import (
    CONFIG_NUMBER_MAX,
    DURABILITIES,
    JITTER_MS_MAX,
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    TOPIC_PRIORITY_MAX,
)
from jobyard.protocols.http.call import EVENT_STREAM
from jobyard.protocols.http.routes import Parameter, RouteSchemas, Schema
from jobyard.protocols.topics.api import TOPIC_NAME_SCHEMA
from jobyard.protocols.topics.queue import leases
from jobyard.protocols.topics.records import reads, record, writes
from jobyard.protocols.topics.records.keys import KEY_MAX
from jobyard.protocols.topics.schemas.basic import (
    ANY_JSON,
    ANY_TEXT,
    DATA_B64,
    FLAG,
    LEASE_MS,
    LONG_NUMBER,
    MAYBE_FLAG,
    MAYBE_NODE,
    MAYBE_WHOLE,
    META_SCHEMA,
    NODE,
    NUMBER,
    PERFORMANCE,
    READER,
    SEQ,
    SEQS,
    WHOLE_NUMBER,
)
from jobyard.protocols.topics.schemas.cursors import CURSOR_STATE
from jobyard.protocols.topics.schemas.keys import (
    JOB_LABELS,
    KEY_CONFIG_FIELDS,
    KEYED_FIELDS,
    RECORD_KEY,
    STRICT,
)
from jobyard.protocols.topics.schemas.leases import (
    ACK,
    CLAIM,
    CLAIM_ANSWER,
    EXTEND,
    EXTENDED,
    GIVE_UP,
    NACK,
    PURGE,
    counted,
    ended,
)
from jobyard.protocols.topics.schemas.redrive import REDRIVE, REDRIVEN

# -- topics -------------------------------------------------------------------------------------

_CONFIG_FIELDS: Final[dict[str, Schema]] = {
    "type": {"enum": ["log", "queue"], "description": "Cannot be changed."},
    "ttl_ms": {**LONG_NUMBER, "description": "Records older than this are removed; 0: no limit."},
    "cap_records": {**LONG_NUMBER, "description": "Most records to keep; 0: no limit."},
    "cap_bytes": {**LONG_NUMBER, "description": "Most bytes to keep; 0: no limit."},
    "discard": {
        "enum": ["old", "reject"],
        "description": "When the topic is full: drop old records, or reject writes.",
    },
    "durable": {**FLAG, "description": "Whether durability is fsync."},
    "durability": {"enum": list(DURABILITIES)},
    "priority": {
        "type": ["integer", "null"],
        "minimum": -TOPIC_PRIORITY_MAX,
        "maximum": TOPIC_PRIORITY_MAX,
    },
    "auto_priority": FLAG,
    "auto_create": FLAG,
    "idempotency_window_ms": {
        **LONG_NUMBER,
        "description": "How long an idempotency key is remembered.",
    },
    **KEY_CONFIG_FIELDS,
    "dedupe_node": {**FLAG, "description": "Whether readers skip records of their own node."},
    "lease_ms": {"type": "integer", "minimum": LEASE_MS_MIN, "maximum": LEASE_MS_MAX},
    "claim_jitter_ms": {"type": "integer", "minimum": 0, "maximum": JITTER_MS_MAX},
    "max_deliveries": {
        **LONG_NUMBER,
        "description": "After this many deliveries a job becomes a dead letter; 0: never.",
    },
    "dead_letter": {
        "anyOf": [TOPIC_NAME_SCHEMA, {"type": "null"}],
        "description": "Topic that receives dead letters.",
    },
    "leases_durable": FLAG,
}
CONFIG: Final[Schema] = {
    "title": "TopicConfig",
    "type": "object",
    "required": list(_CONFIG_FIELDS),
    "properties": _CONFIG_FIELDS,
}
_WANTED_FIELDS: Final[dict[str, Schema]] = {
    **{
        name: {"anyOf": [schema, {"type": "null"}]}
        for name, schema in _CONFIG_FIELDS.items()
        if name != "dead_letter"
    },
    "lease_ms": {**LEASE_MS, "maximum": CONFIG_NUMBER_MAX},
    "claim_jitter_ms": {**MAYBE_WHOLE, "maximum": CONFIG_NUMBER_MAX},
    "dead_letter": _CONFIG_FIELDS["dead_letter"],
}
WANTED_CONFIG: Final[Schema] = {
    "title": "WantedTopicConfig",
    "type": "object",
    "description": "An omitted field gets its default, even if the topic exists.",
    "properties": _WANTED_FIELDS,
}
_PUT_TOPIC: Final[Schema] = {
    **WANTED_CONFIG,
    "title": "PutTopic",
    "properties": {**_WANTED_FIELDS, "strict": STRICT},
}
_PLACES: Final[dict[str, Schema]] = {
    "head_seq": {**SEQ, "description": "The newest seq ever assigned; 0: none."},
    "earliest_seq": {
        **SEQ,
        "description": "Seq of the oldest record, or the next seq if there is none.",
    },
    "count": {**WHOLE_NUMBER, "description": "Number of records."},
    "bytes": {**WHOLE_NUMBER, "description": "Total size of the records."},
}
_MADE: Final[Schema] = {
    "title": "TopicMade",
    "type": "object",
    "required": ["topic", "created", "config", "performance"],
    "properties": {
        "topic": TOPIC_NAME_SCHEMA,
        "created": FLAG,
        "config": CONFIG,
        "performance": PERFORMANCE,
    },
}
_STATE_FIELDS: Final[dict[str, Schema]] = {
    "topic": TOPIC_NAME_SCHEMA,
    "type": {"enum": ["log", "queue"]},
    **_PLACES,
    "next_seq": SEQ,
    "config": CONFIG,
    "effective_priority": {"type": "integer"},
    "last_write_ts": MAYBE_WHOLE,
    "last_read_ts": MAYBE_WHOLE,
    "performance": PERFORMANCE,
}
_STATE: Final[Schema] = {
    "title": "TopicState",
    "type": "object",
    "required": list(_STATE_FIELDS),
    "properties": {
        **_STATE_FIELDS,
        "incarnation": {
            **ANY_TEXT,
            "description": "Changes when the topic is deleted and created again.",
        },
        "read_only": {**FLAG, "description": "Only for _events."},
        "head_row_seq": {
            **WHOLE_NUMBER,
            "description": "The last seq that is a record, a job, or a row of _events.",
        },
        "cursors": {"type": "array", "items": CURSOR_STATE},
        "queue": {
            "type": "object",
            "description": "Only for queues.",
            "required": ["ready", "in_flight", "delayed", "dead_lettered"],
            "properties": {
                "ready": WHOLE_NUMBER,
                "in_flight": WHOLE_NUMBER,
                "delayed": WHOLE_NUMBER,
                "dead_lettered": WHOLE_NUMBER,
            },
        },
    },
}
_LINE_FIELDS: Final[dict[str, Schema]] = {
    "topic": TOPIC_NAME_SCHEMA,
    "type": {"enum": ["log", "queue"]},
    **_PLACES,
    "effective_priority": {"type": "integer"},
    "durable": FLAG,
}
_LIST: Final[Schema] = {
    "title": "TopicList",
    "type": "object",
    "required": ["topics", "performance"],
    "properties": {
        "topics": {
            "type": "array",
            "items": {
                "type": "object",
                "required": list(_LINE_FIELDS),
                "properties": {
                    **_LINE_FIELDS,
                    "incarnation": {**ANY_TEXT, "description": "As its state shows it."},
                },
            },
        },
        "next_cursor": {
            **ANY_TEXT,
            "description": "Cursor of the next page; absent on the last one.",
        },
        "performance": PERFORMANCE,
    },
}
_REMOVED: Final[Schema] = {
    "title": "TopicRemoved",
    "type": "object",
    "required": ["topic", "deleted", "routers_removed", "performance"],
    "properties": {
        "topic": TOPIC_NAME_SCHEMA,
        "deleted": {**FLAG, "description": "Whether the topic existed."},
        "routers_removed": {"type": "array", "items": ANY_TEXT},
        "performance": PERFORMANCE,
    },
}

# -- records ------------------------------------------------------------------------------------

_NEW_RECORD: Final[Schema] = {
    "title": "NewRecord",
    "type": "object",
    "oneOf": [
        {"required": ["data"], "properties": {"data_b64": {"type": "null"}}},
        {
            "required": ["data_b64"],
            "properties": {"data_b64": {"type": "string"}},
            "not": {"required": ["data"]},
        },
    ],
    "properties": {
        "data": ANY_JSON,
        "data_b64": {**DATA_B64, "type": ["string", "null"]},
        "key": RECORD_KEY,
        **JOB_LABELS,
        "tag": {"type": ["string", "null"], "maxLength": record.TAG_MAX},
        "node": {
            **MAYBE_NODE,
            "description": "Writer of the record; readers of that node skip it.",
        },
        "meta": {"type": ["object", "null"], "maxProperties": record.META_KEYS_MAX},
        "delay_ms": {
            "type": ["integer", "null"],
            "minimum": 0,
            "maximum": record.WRITE_DELAY_MS_MAX,
            "description": "Delay until the job can be claimed; only for queues.",
        },
        "priority": {
            "type": ["integer", "null"],
            "minimum": -record.PRIORITY_MAX,
            "maximum": record.PRIORITY_MAX,
            "description": "Higher priorities are claimed first; only for queues.",
        },
    },
}
_WRITE: Final[Schema] = {
    "title": "Write",
    "type": "object",
    "required": ["records"],
    "properties": {
        "records": {
            "type": "array",
            "items": _NEW_RECORD,
            "minItems": 1,
            "maxItems": writes.RECORDS_MAX,
        },
        "node": {**MAYBE_NODE, "description": "Default node of the records."},
        "idempotency_key": {"type": ["string", "null"], "maxLength": KEY_MAX},
        "create": {**MAYBE_FLAG, "description": "Whether to create a missing topic."},
        "strict": STRICT,
        "config": {
            "anyOf": [WANTED_CONFIG, {"type": "null"}],
            "description": "Configuration of the topic if this write creates it.",
        },
    },
}
_WRITTEN_FIELDS: Final[dict[str, Schema]] = {
    "topic": TOPIC_NAME_SCHEMA,
    "first_seq": SEQ,
    "last_seq": SEQ,
    "head_seq": SEQ,
    "count": {**WHOLE_NUMBER, "description": "Records in this write."},
    "created": {**FLAG, "description": "Whether this write created the topic."},
    "deduped": {
        **FLAG,
        "description": "Whether the idempotency key was known and nothing was written.",
    },
    "performance": PERFORMANCE,
}
_WRITTEN: Final[Schema] = {
    "title": "Written",
    "type": "object",
    "required": list(_WRITTEN_FIELDS),
    "properties": {**_WRITTEN_FIELDS, "seqs": SEQS, **KEYED_FIELDS},
}
_READ: Final[Schema] = {
    "title": "Read",
    "type": "object",
    "properties": {
        "from_seq": {
            **MAYBE_WHOLE,
            "description": "Read records after this seq; 0: from the beginning.",
        },
        "limit": {
            **MAYBE_WHOLE,
            "description": (
                f"Most records; 0: {reads.LIMIT_DEFAULT}. At most {reads.PAGE_RECORDS_MAX}."
            ),
        },
        "node": {
            "anyOf": [MAYBE_NODE, {"type": "array", "items": READER}],
            "description": "The reader's own nodes; their records are skipped.",
        },
        "include_tags": MAYBE_FLAG,
        "include_meta": MAYBE_FLAG,
        "wait_ms": {
            **MAYBE_WHOLE,
            "description": f"How long to wait for a first record; at most {reads.WAIT_MS_MAX} ms.",
        },
        "max_batch_bytes": {**MAYBE_WHOLE, "description": f"Page size; at most {reads.BYTES_MAX}."},
        "strict": STRICT,
    },
}
RECORD: Final[Schema] = {
    "title": "Record",
    "type": "object",
    "required": ["$seq", "$ts"],
    "properties": {
        "$seq": SEQ,
        "$ts": WHOLE_NUMBER,
        "$tag": ANY_TEXT,
        "$node": ANY_TEXT,
        "data": ANY_JSON,
        "data_b64": DATA_B64,
        "meta": META_SCHEMA,
    },
}
_TOMBSTONE_FIELDS: Final[dict[str, Schema]] = {
    "gap_from": SEQ,
    "gap_to": SEQ,
    "reason": {"enum": ["cap", "ttl", "mixed", "recreated"]},
    "missed_estimate": WHOLE_NUMBER,
    "earliest_seq": SEQ,
    "head_seq": SEQ,
}
TOMBSTONE: Final[Schema] = {
    "title": "Tombstone",
    "type": "object",
    "description": "Records that were removed before this reader reached them.",
    "required": list(_TOMBSTONE_FIELDS),
    "properties": _TOMBSTONE_FIELDS,
}
_PAGE_FIELDS: Final[dict[str, Schema]] = {
    "topic": TOPIC_NAME_SCHEMA,
    "records": {"type": "array", "items": RECORD},
    "next_from_seq": {**SEQ, "description": "Cursor for the next read."},
    "head_seq": SEQ,
    "earliest_seq": SEQ,
    "caught_up": {**FLAG, "description": "Whether the cursor has reached the head."},
    "tombstone": {"anyOf": [TOMBSTONE, {"type": "null"}]},
    "lag": {**WHOLE_NUMBER, "description": "How many seqs the cursor is behind the head."},
    "performance": PERFORMANCE,
}
_PAGE: Final[Schema] = {
    "title": "Page",
    "type": "object",
    "required": list(_PAGE_FIELDS),
    "properties": _PAGE_FIELDS,
}
_TAG_WORD: Final[Schema] = {"const": "tag"}
MATCH: Final[Schema] = {
    "title": "Match",
    "description": "A tag, or a tag prefix followed by a star.",
    "anyOf": [
        {"type": "string", "maxLength": record.TAG_MAX + 1},
        {
            "type": "array",
            "prefixItems": [_TAG_WORD, {"const": "Eq"}, ANY_TEXT],
            "minItems": 3,
            "maxItems": 3,
        },
        {
            "type": "array",
            "prefixItems": [
                _TAG_WORD,
                {"const": "Glob"},
                {"type": "string", "pattern": r"^[^*]*\*$"},
            ],
            "minItems": 3,
            "maxItems": 3,
        },
    ],
}
_DELETE: Final[Schema] = {
    "title": "Delete",
    "type": "object",
    "description": "Deletes records below a seq, with a tag, or both combined.",
    "properties": {
        "before_seq": MAYBE_WHOLE,
        "match": {"anyOf": [MATCH, {"type": "null"}]},
    },
    "anyOf": [
        {"required": ["before_seq"], "properties": {"before_seq": WHOLE_NUMBER}},
        {"required": ["match"], "properties": {"match": MATCH}},
    ],
}
_DELETED: Final[Schema] = {
    "title": "Deleted",
    "type": "object",
    "required": ["topic", "deleted", *_PLACES, "performance"],
    "properties": {
        "topic": TOPIC_NAME_SCHEMA,
        "deleted": WHOLE_NUMBER,
        **_PLACES,
        "performance": PERFORMANCE,
    },
}

# -- the server ---------------------------------------------------------------------------------

_HEALTH: Final[Schema] = {
    "title": "Health",
    "type": "object",
    "required": ["status", "version", "uptime_ms"],
    "properties": {
        "status": {"enum": ["ok", "degraded"]},
        "version": ANY_TEXT,
        "uptime_ms": WHOLE_NUMBER,
        "problems": {
            "type": "array",
            "items": {"enum": ["disk_full", "damaged"]},
            "description": "Present if the status is degraded.",
        },
        "damage": ANY_TEXT,
    },
}
_READY: Final[Schema] = {
    "title": "Ready",
    "type": "object",
    "required": ["status", "wal_replay_complete", "topics"],
    "properties": {
        "status": {"const": "ready"},
        "wal_replay_complete": FLAG,
        "topics": WHOLE_NUMBER,
    },
}
_METRICS: Final[Schema] = {
    "title": "Metrics",
    "type": "object",
    "description": "For clients that accept JSON; others get the Prometheus text format.",
    "additionalProperties": NUMBER,
}

# -- calls --------------------------------------------------------------------------------------

_RETURN_SEQS: Final = Parameter("return_seqs", FLAG, "Whether the answer lists every seq.")
_KEY: Final = Parameter(
    "Idempotency-Key",
    {"type": "string", "maxLength": KEY_MAX},
    "Used if the body has no idempotency_key.",
    place="header",
)
_IF_EMPTY: Final = Parameter("if_empty", FLAG, "Refuse if the topic has records.")
_AFTER_SEQ: Final = Parameter(
    "after_seq", WHOLE_NUMBER, "Wait for a row beyond this seq; needs wait_ms."
)
_WAIT_MS: Final = Parameter(
    "wait_ms", WHOLE_NUMBER, "Wait at most this long for it, clamped to 30 seconds."
)
PAGING: Final = (
    Parameter("prefix", ANY_TEXT, "Only names that begin with this."),
    Parameter("page_size", WHOLE_NUMBER, "Entries per page, clamped to 1 to 1000."),
    Parameter("cursor", ANY_TEXT, "`next_cursor` of the previous page."),
)
_WORKER: Final = (
    Parameter("node", NODE, "Name of the worker.", is_required=True),
    Parameter(
        "max", WHOLE_NUMBER, f"Most jobs leased at once. Default: 1; at most {leases.CLAIM_MAX}."
    ),
    Parameter("lease_ms", WHOLE_NUMBER, "Lease duration. Default: that of the topic."),
)
# Refusals of a call with a body.
BODY_REFUSALS: Final = (400, 413, 415)
# Refusals of a call to a queue.
_QUEUE: Final = (*BODY_REFUSALS, 404, 409, 507)

_ONE: Final = "/v0/topics/{topic}"


def _queue_call(body: Schema, answer: Schema, *, needs_body: bool) -> RouteSchemas:
    return RouteSchemas(body, needs_body=needs_body, answers={200: answer}, refusals=_QUEUE)


SHAPES: Final[dict[str, RouteSchemas]] = {
    "GET /v0/topics": RouteSchemas(query=PAGING, answers={200: _LIST}, refusals=(400,)),
    f"PUT {_ONE}": RouteSchemas(
        _PUT_TOPIC,
        answers={200: _MADE, 201: _MADE},
        refusals=(*BODY_REFUSALS, 403, 409, 429, 507),
    ),
    f"GET {_ONE}": RouteSchemas(
        query=(_AFTER_SEQ, _WAIT_MS), answers={200: _STATE}, refusals=(400, 404, 429)
    ),
    f"DELETE {_ONE}": RouteSchemas(
        query=(_IF_EMPTY,), answers={200: _REMOVED}, refusals=(400, 403, 409, 507)
    ),
    f"POST {_ONE}": RouteSchemas(
        _WRITE,
        needs_body=True,
        query=(_RETURN_SEQS, _KEY),
        answers={200: _WRITTEN, 201: _WRITTEN},
        refusals=(*BODY_REFUSALS, 403, 404, 409, 422, 429, 503, 507),
    ),
    f"POST {_ONE}/diff": RouteSchemas(
        _READ, answers={200: _PAGE}, refusals=(*BODY_REFUSALS, 404, 429, 500)
    ),
    f"POST {_ONE}/delete": RouteSchemas(
        _DELETE, needs_body=True, answers={200: _DELETED}, refusals=(*BODY_REFUSALS, 403, 404, 507)
    ),
    f"POST {_ONE}/claim": RouteSchemas(
        CLAIM, needs_body=True, answers={200: CLAIM_ANSWER}, refusals=(*_QUEUE, 429)
    ),
    f"POST {_ONE}/ack": _queue_call(ACK, ended("Acked", "acked"), needs_body=True),
    f"POST {_ONE}/nack": _queue_call(NACK, ended("Nacked", "nacked"), needs_body=True),
    f"POST {_ONE}/dead-letter": _queue_call(
        GIVE_UP, ended("DeadLettered", "dead_lettered"), needs_body=True
    ),
    f"POST {_ONE}/extend": _queue_call(EXTEND, EXTENDED, needs_body=True),
    f"POST {_ONE}/redrive": RouteSchemas(REDRIVE, answers={200: REDRIVEN}, refusals=(*_QUEUE, 422)),
    f"POST {_ONE}/purge": _queue_call(PURGE, counted("Purged", "purged"), needs_body=False),
    f"GET {_ONE}/work": RouteSchemas(
        query=_WORKER, answers={}, texts=(EVENT_STREAM,), refusals=(400, 404, 409, 429)
    ),
    "GET /v0/health": RouteSchemas(answers={200: _HEALTH}),
    "GET /v0/ready": RouteSchemas(answers={200: _READY}, refusals=(503,)),
    "GET /readyz": RouteSchemas(answers={200: _READY}, refusals=(503,)),
    "GET /v0/metrics": RouteSchemas(answers={200: _METRICS}, texts=("text/plain",)),
}
