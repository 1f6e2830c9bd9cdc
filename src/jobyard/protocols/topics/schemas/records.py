"""What every call of the topics API takes and answers, as JSON schemas: data, and no more.

A schema with a title is known by it in the description of the API. Nothing here is consulted when
a call is served; a test holds it against what the server does. Answers may gain fields, requests
may have fields that nobody knows, and a field that is null counts as not given. Where a schema
limits a text by `maxLength`, the server counts bytes.
"""

from typing import Final

from jobyard.model.topic.config import (
    DURABILITIES,
    JITTER_MS_MAX,
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    WHOLE_MAX,
)
from jobyard.model.topic.config import PRIORITY_MAX as TOPIC_PRIORITY_MAX
from jobyard.protocols.http.call import EVENT_STREAM
from jobyard.protocols.http.routes import Parameter, Schema, Shape
from jobyard.protocols.topics.api import NAME
from jobyard.protocols.topics.queue import leases
from jobyard.protocols.topics.records import reads, writes

# -- words that the schemas are made of ---------------------------------------------------------

_ANY: Final[Schema] = {"description": "Any JSON, kept as it came."}
_FLAG: Final[Schema] = {"type": "boolean"}
_WHOLE: Final[Schema] = {"type": "integer", "minimum": 0}
_LONG: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": WHOLE_MAX}
_NUMBER: Final[Schema] = {"type": "number", "minimum": 0}
_TEXT: Final[Schema] = {"type": "string"}
_SEQ: Final[Schema] = _LONG
_SEQS: Final[Schema] = {"type": "array", "items": _SEQ}
_NODE: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": writes.NODE_MAX}
_MAYBE_FLAG: Final[Schema] = {"type": ["boolean", "null"]}
# Of a number that is cut to what there is; one with more digits is none.
CUT_MAX: Final = 10**20 - 1
_MAYBE_WHOLE: Final[Schema] = {"type": ["integer", "null"], "minimum": 0, "maximum": CUT_MAX}
_MAYBE_NODE: Final[Schema] = {"type": ["string", "null"], "maxLength": writes.NODE_MAX}
_READER: Final[Schema] = {"type": "string", "maxLength": writes.NODE_MAX}
_LEASE_MS: Final[Schema] = {
    **_MAYBE_WHOLE,
    "description": f"For how long, from {LEASE_MS_MIN} to {LEASE_MS_MAX}; what is beyond is cut.",
}
_META: Final[Schema] = {
    "type": "object",
    "description": "A small object, kept as it came.",
}
PERFORMANCE: Final[Schema] = {
    "title": "Performance",
    "type": "object",
    "required": ["server_total_ms"],
    "properties": {
        "server_total_ms": _NUMBER,
        "fsync_ms": {**_NUMBER, "description": "How long the disk takes, if it was waited for."},
        "throttle_wait_ms": {**_NUMBER, "description": "How long a claim was held back."},
    },
}

# -- topics -------------------------------------------------------------------------------------

_CONFIG_FIELDS: Final[dict[str, Schema]] = {
    "type": {"enum": ["log", "queue"], "description": "Never changes."},
    "ttl_ms": {**_LONG, "description": "Older records are gone; 0: none is."},
    "cap_records": {**_LONG, "description": "So many records are kept; 0: all."},
    "cap_bytes": {**_LONG, "description": "So many bytes are kept; 0: all."},
    "discard": {"enum": ["old", "reject"], "description": "What gives way when a topic is full."},
    "durable": {**_FLAG, "description": "Whether the class is fsync."},
    "durability": {"enum": list(DURABILITIES)},
    "priority": {
        "type": ["integer", "null"],
        "minimum": -TOPIC_PRIORITY_MAX,
        "maximum": TOPIC_PRIORITY_MAX,
    },
    "auto_priority": _FLAG,
    "auto_create": _FLAG,
    "idempotency_window_ms": {**_LONG, "description": "How long a key is remembered."},
    "dedupe_node": {**_FLAG, "description": "Whether readers miss records of their own node."},
    "lease_ms": {"type": "integer", "minimum": LEASE_MS_MIN, "maximum": LEASE_MS_MAX},
    "claim_jitter_ms": {"type": "integer", "minimum": 0, "maximum": JITTER_MS_MAX},
    "max_deliveries": {**_LONG, "description": "Then a job is a dead letter; 0: never."},
    "dead_letter": {"anyOf": [NAME, {"type": "null"}], "description": "Where dead letters go."},
    "leases_durable": _FLAG,
}
CONFIG: Final[Schema] = {
    "title": "TopicConfig",
    "type": "object",
    "required": list(_CONFIG_FIELDS),
    "properties": _CONFIG_FIELDS,
}
WANTED_CONFIG: Final[Schema] = {
    "title": "WantedTopicConfig",
    "type": "object",
    "description": "What is left out has its default, on a topic that is there too.",
    "properties": {
        **{
            name: {"anyOf": [schema, {"type": "null"}]}
            for name, schema in _CONFIG_FIELDS.items()
            if name != "dead_letter"
        },
        "lease_ms": {**_LEASE_MS, "maximum": WHOLE_MAX},
        "claim_jitter_ms": {**_MAYBE_WHOLE, "maximum": WHOLE_MAX},
        "dead_letter": _CONFIG_FIELDS["dead_letter"],
    },
}
_PLACES: Final[dict[str, Schema]] = {
    "head_seq": {**_SEQ, "description": "The newest seq ever given; 0: none."},
    "earliest_seq": {**_SEQ, "description": "The oldest record that is there, or the next."},
    "count": {**_WHOLE, "description": "Records that are there."},
    "bytes": {**_WHOLE, "description": "How much they hold."},
}
_MADE: Final[Schema] = {
    "title": "TopicMade",
    "type": "object",
    "required": ["topic", "created", "config", "performance"],
    "properties": {
        "topic": NAME,
        "created": _FLAG,
        "config": CONFIG,
        "performance": PERFORMANCE,
    },
}
_STATE_FIELDS: Final[dict[str, Schema]] = {
    "topic": NAME,
    "type": {"enum": ["log", "queue"]},
    **_PLACES,
    "next_seq": _SEQ,
    "config": CONFIG,
    "effective_priority": {"type": "integer"},
    "last_write_ts": _MAYBE_WHOLE,
    "last_read_ts": _MAYBE_WHOLE,
    "performance": PERFORMANCE,
}
_STATE: Final[Schema] = {
    "title": "TopicState",
    "type": "object",
    "required": list(_STATE_FIELDS),
    "properties": {
        **_STATE_FIELDS,
        "incarnation": {**_TEXT, "description": "Another one after a log was made anew."},
        "read_only": {**_FLAG, "description": "Of _events only."},
        "queue": {
            "type": "object",
            "description": "Of a queue only.",
            "required": ["ready", "in_flight", "delayed", "dead_lettered"],
            "properties": {
                "ready": _WHOLE,
                "in_flight": _WHOLE,
                "delayed": _WHOLE,
                "dead_lettered": _WHOLE,
            },
        },
    },
}
_LINE_FIELDS: Final[dict[str, Schema]] = {
    "topic": NAME,
    "type": {"enum": ["log", "queue"]},
    **_PLACES,
    "effective_priority": {"type": "integer"},
    "durable": _FLAG,
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
                "properties": _LINE_FIELDS,
            },
        },
        "next_cursor": {**_TEXT, "description": "Where the next page begins; absent on the last."},
        "performance": PERFORMANCE,
    },
}
_REMOVED: Final[Schema] = {
    "title": "TopicRemoved",
    "type": "object",
    "required": ["topic", "deleted", "routers_removed", "performance"],
    "properties": {
        "topic": NAME,
        "deleted": {**_FLAG, "description": "Whether it was there."},
        "routers_removed": {"type": "array", "items": _TEXT},
        "performance": PERFORMANCE,
    },
}

# -- records ------------------------------------------------------------------------------------

_NEW_RECORD: Final[Schema] = {
    "title": "NewRecord",
    "type": "object",
    "required": ["data"],
    "properties": {
        "data": _ANY,
        "tag": {"type": ["string", "null"], "maxLength": writes.TAG_MAX},
        "node": {**_MAYBE_NODE, "description": "Who wrote it; readers of that node do not get it."},
        "meta": {"type": ["object", "null"], "maxProperties": writes.META_KEYS_MAX},
        "delay_ms": {
            "type": ["integer", "null"],
            "minimum": 0,
            "maximum": writes.DELAY_MS_MAX,
            "description": "Not claimable before; of a queue only.",
        },
        "priority": {
            "type": ["integer", "null"],
            "minimum": -writes.PRIORITY_MAX,
            "maximum": writes.PRIORITY_MAX,
            "description": "Higher ones are claimed first; of a queue only.",
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
        "node": {**_MAYBE_NODE, "description": "Of records that name none."},
        "idempotency_key": {"type": ["string", "null"], "maxLength": writes.KEY_MAX},
        "create": {**_MAYBE_FLAG, "description": "Whether a topic that is not there is made."},
        "config": {
            "anyOf": [WANTED_CONFIG, {"type": "null"}],
            "description": "Of the topic, if this write makes it.",
        },
    },
}
_WRITTEN_FIELDS: Final[dict[str, Schema]] = {
    "topic": NAME,
    "first_seq": _SEQ,
    "last_seq": _SEQ,
    "head_seq": _SEQ,
    "count": {**_WHOLE, "description": "Records of this write."},
    "created": {**_FLAG, "description": "Whether this write made the topic."},
    "deduped": {**_FLAG, "description": "Whether the key was known, and nothing was written."},
    "performance": PERFORMANCE,
}
_WRITTEN: Final[Schema] = {
    "title": "Written",
    "type": "object",
    "required": list(_WRITTEN_FIELDS),
    "properties": {**_WRITTEN_FIELDS, "seqs": _SEQS},
}
_READ: Final[Schema] = {
    "title": "Read",
    "type": "object",
    "properties": {
        "from_seq": {**_MAYBE_WHOLE, "description": "Records after this one; 0: from the first."},
        "limit": {
            **_MAYBE_WHOLE,
            "description": f"At most so many; 0: {reads.LIMIT_DEFAULT}. Cut to {reads.LIMIT_MAX}.",
        },
        "node": {
            "anyOf": [_MAYBE_NODE, {"type": "array", "items": _READER}],
            "description": "The reader's own nodes, whose records it does not get.",
        },
        "include_tags": _MAYBE_FLAG,
        "include_meta": _MAYBE_FLAG,
        "wait_ms": {
            **_MAYBE_WHOLE,
            "description": f"How long to wait for the first; cut to {reads.WAIT_MS_MAX}.",
        },
        "max_batch_bytes": {**_MAYBE_WHOLE, "description": f"Cut to {reads.BYTES_MAX}."},
    },
}
RECORD: Final[Schema] = {
    "title": "Record",
    "type": "object",
    "required": ["$seq", "$ts", "data"],
    "properties": {
        "$seq": _SEQ,
        "$ts": _WHOLE,
        "$tag": _TEXT,
        "$node": _TEXT,
        "data": _ANY,
        "meta": _META,
    },
}
_TOMBSTONE_FIELDS: Final[dict[str, Schema]] = {
    "gap_from": _SEQ,
    "gap_to": _SEQ,
    "reason": {"enum": ["cap", "ttl", "mixed", "recreated"]},
    "missed_estimate": _WHOLE,
    "earliest_seq": _SEQ,
    "head_seq": _SEQ,
}
TOMBSTONE: Final[Schema] = {
    "title": "Tombstone",
    "type": "object",
    "description": "What was lost before it could be read.",
    "required": list(_TOMBSTONE_FIELDS),
    "properties": _TOMBSTONE_FIELDS,
}
_PAGE_FIELDS: Final[dict[str, Schema]] = {
    "topic": NAME,
    "records": {"type": "array", "items": RECORD},
    "next_from_seq": {**_SEQ, "description": "The cursor to keep."},
    "head_seq": _SEQ,
    "earliest_seq": _SEQ,
    "caught_up": {**_FLAG, "description": "Whether there is no more now."},
    "tombstone": {"anyOf": [TOMBSTONE, {"type": "null"}]},
    "lag": {**_WHOLE, "description": "How far the cursor is behind."},
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
    "description": "A tag, or the beginning of one with a star behind it.",
    "anyOf": [
        {"type": "string", "maxLength": writes.TAG_MAX + 1},
        {
            "type": "array",
            "prefixItems": [_TAG_WORD, {"const": "Eq"}, _TEXT],
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
    "description": "Records below a seq, with a tag, or both at once.",
    "properties": {
        "before_seq": _MAYBE_WHOLE,
        "match": {"anyOf": [MATCH, {"type": "null"}]},
    },
    "anyOf": [
        {"required": ["before_seq"], "properties": {"before_seq": _WHOLE}},
        {"required": ["match"], "properties": {"match": MATCH}},
    ],
}
_DELETED: Final[Schema] = {
    "title": "Deleted",
    "type": "object",
    "required": ["topic", "deleted", *_PLACES, "performance"],
    "properties": {"topic": NAME, "deleted": _WHOLE, **_PLACES, "performance": PERFORMANCE},
}

# -- leases -------------------------------------------------------------------------------------

_CLAIM: Final[Schema] = {
    "title": "Claim",
    "type": "object",
    "required": ["node"],
    "properties": {
        "node": _NODE,
        "max": {**_MAYBE_WHOLE, "description": f"At most so many; cut to {leases.CLAIM_MAX}."},
        "lease_ms": _LEASE_MS,
        "wait_ms": {
            **_MAYBE_WHOLE,
            "description": f"How long to wait for a job; cut to {leases.WAIT_MS_MAX}.",
        },
    },
}
LEASE: Final[Schema] = {
    "title": "Lease",
    "type": "object",
    "required": ["$seq", "lease_id", "deadline", "$ts", "deliveries", "data"],
    "properties": {
        "$seq": _SEQ,
        "lease_id": {**_TEXT, "description": "To show with ack, nack and extend."},
        "deadline": {**_WHOLE, "description": "When the job is anybody's again."},
        "$ts": _WHOLE,
        "$tag": _TEXT,
        "deliveries": {**_WHOLE, "description": "How often it was handed out, with this time."},
        "data": _ANY,
        "meta": _META,
    },
}
_CLAIMED: Final[Schema] = {
    "title": "Claimed",
    "type": "object",
    "required": ["topic", "claimed", "count", "ready", "performance"],
    "properties": {
        "topic": NAME,
        "claimed": {"type": "array", "items": LEASE},
        "count": _WHOLE,
        "ready": {**_WHOLE, "description": "Jobs that could be claimed now."},
        "performance": PERFORMANCE,
    },
}
_HELD: Final[dict[str, Schema]] = {
    "node": _NODE,
    "seqs": {**_SEQS, "maxItems": leases.SEQS_MAX},
    "lease_ids": {
        "type": ["array", "null"],
        "items": _TEXT,
        "maxItems": leases.SEQS_MAX,
        "description": "As many as seqs; an empty one is not compared.",
    },
}
_ACK: Final[Schema] = {
    "title": "Ack",
    "type": "object",
    "required": ["node", "seqs"],
    "properties": _HELD,
}
_NACK: Final[Schema] = {
    "title": "Nack",
    "type": "object",
    "required": ["node", "seqs"],
    "properties": {
        **_HELD,
        "delay_ms": {
            "type": ["integer", "null"],
            "minimum": 0,
            "maximum": leases.DELAY_MS_MAX,
            "description": "When the jobs may be claimed again, from now. Where it is not given, "
            "jobs of doors that count attempts wait as they were put to, others come at once.",
        },
    },
}
_GIVE_UP: Final[Schema] = {**_ACK, "title": "DeadLetter"}
_EXTEND: Final[Schema] = {
    "title": "Extend",
    "type": "object",
    "required": ["node", "seqs", "lease_ms"],
    "properties": {**_HELD, "lease_ms": {**_WHOLE, "description": "From now, not added."}},
}
_SKIPPED: Final[Schema] = {**_SEQS, "description": "Not leased to this node, or not so."}


def _ended(title: str, count: str) -> Schema:
    fields: dict[str, Schema] = {
        "topic": NAME,
        count: _WHOLE,
        "skipped": _SKIPPED,
        "ready": _WHOLE,
        "in_flight": _WHOLE,
        "performance": PERFORMANCE,
    }
    return {"title": title, "type": "object", "required": list(fields), "properties": fields}


def _counted(title: str, count: str) -> Schema:
    fields = {"topic": NAME, count: _WHOLE, "performance": PERFORMANCE}
    return {"title": title, "type": "object", "required": list(fields), "properties": fields}


_EXTENDED_FIELDS: Final[dict[str, Schema]] = {
    "topic": NAME,
    "extended": _WHOLE,
    "skipped": _SKIPPED,
    "deadlines": {
        "type": "object",
        "propertyNames": {"pattern": "^[0-9]+$"},
        "additionalProperties": _WHOLE,
        "description": "By seq.",
    },
    "performance": PERFORMANCE,
}
_EXTENDED: Final[Schema] = {
    "title": "Extended",
    "type": "object",
    "required": list(_EXTENDED_FIELDS),
    "properties": _EXTENDED_FIELDS,
}
_REDRIVE: Final[Schema] = {
    "title": "Redrive",
    "type": "object",
    "properties": {
        "max": {**_MAYBE_WHOLE, "description": f"At most so many; cut to {leases.CLAIM_MAX}."}
    },
}
_PURGE: Final[Schema] = {**_REDRIVE, "title": "Purge"}

# -- the server ---------------------------------------------------------------------------------

_HEALTH: Final[Schema] = {
    "title": "Health",
    "type": "object",
    "required": ["status", "version", "uptime_ms"],
    "properties": {
        "status": {"enum": ["ok", "degraded"]},
        "version": _TEXT,
        "uptime_ms": _WHOLE,
        "problems": {
            "type": "array",
            "items": {"enum": ["disk_full", "damaged"]},
            "description": "Only where the status is degraded.",
        },
        "damage": _TEXT,
    },
}
_READY: Final[Schema] = {
    "title": "Ready",
    "type": "object",
    "required": ["status", "wal_replay_complete", "topics"],
    "properties": {"status": {"const": "ready"}, "wal_replay_complete": _FLAG, "topics": _WHOLE},
}
_METRICS: Final[Schema] = {
    "title": "Metrics",
    "type": "object",
    "description": "For those who accept JSON; all others get the text of an exposition.",
    "additionalProperties": _NUMBER,
}

# -- calls --------------------------------------------------------------------------------------

_RETURN_SEQS: Final = Parameter("return_seqs", _FLAG, "Whether every seq is told.")
_KEY: Final = Parameter(
    "Idempotency-Key",
    {"type": "string", "maxLength": writes.KEY_MAX},
    "Used if the body has none.",
    place="header",
)
_IF_EMPTY: Final = Parameter("if_empty", _FLAG, "Whether to refuse if there are records.")
PAGING: Final = (
    Parameter("prefix", _TEXT, "How names begin."),
    Parameter("page_size", _WHOLE, "At most so many, from 1 to 1000; what is beyond is cut."),
    Parameter("cursor", _TEXT, "Where to go on: `next_cursor` of the page before."),
)
_WORKER: Final = (
    Parameter("node", _NODE, "Who works.", is_required=True),
    Parameter("max", _WHOLE, f"How many jobs at once, 1 if not said; cut to {leases.CLAIM_MAX}."),
    Parameter("lease_ms", _WHOLE, "For how long each is leased; the topic's if not said."),
)
# What may go wrong when a body is read.
BODY_REFUSALS: Final = (400, 413, 415)
# What a queue may say to that.
_QUEUE: Final = (*BODY_REFUSALS, 404, 409, 507)

_ONE: Final = "/v0/topics/{topic}"


def _queue_call(body: Schema, answer: Schema, *, needs_body: bool) -> Shape:
    return Shape(body, needs_body=needs_body, answers={200: answer}, refusals=_QUEUE)


SHAPES: Final[dict[str, Shape]] = {
    "GET /v0/topics": Shape(query=PAGING, answers={200: _LIST}, refusals=(400,)),
    f"PUT {_ONE}": Shape(
        WANTED_CONFIG,
        answers={200: _MADE, 201: _MADE},
        refusals=(*BODY_REFUSALS, 403, 409, 429, 507),
    ),
    f"GET {_ONE}": Shape(answers={200: _STATE}, refusals=(400, 404)),
    f"DELETE {_ONE}": Shape(
        query=(_IF_EMPTY,), answers={200: _REMOVED}, refusals=(400, 403, 409, 507)
    ),
    f"POST {_ONE}": Shape(
        _WRITE,
        needs_body=True,
        query=(_RETURN_SEQS, _KEY),
        answers={200: _WRITTEN, 201: _WRITTEN},
        refusals=(*BODY_REFUSALS, 403, 404, 409, 422, 429, 503, 507),
    ),
    f"POST {_ONE}/diff": Shape(
        _READ, answers={200: _PAGE}, refusals=(*BODY_REFUSALS, 404, 429, 500)
    ),
    f"POST {_ONE}/delete": Shape(
        _DELETE, needs_body=True, answers={200: _DELETED}, refusals=(*BODY_REFUSALS, 403, 404, 507)
    ),
    f"POST {_ONE}/claim": Shape(
        _CLAIM, needs_body=True, answers={200: _CLAIMED}, refusals=(*_QUEUE, 429)
    ),
    f"POST {_ONE}/ack": _queue_call(_ACK, _ended("Acked", "acked"), needs_body=True),
    f"POST {_ONE}/nack": _queue_call(_NACK, _ended("Nacked", "nacked"), needs_body=True),
    f"POST {_ONE}/dead-letter": _queue_call(
        _GIVE_UP, _ended("DeadLettered", "dead_lettered"), needs_body=True
    ),
    f"POST {_ONE}/extend": _queue_call(_EXTEND, _EXTENDED, needs_body=True),
    f"POST {_ONE}/redrive": Shape(
        _REDRIVE, answers={200: _counted("Redriven", "redriven")}, refusals=(*_QUEUE, 422)
    ),
    f"POST {_ONE}/purge": _queue_call(_PURGE, _counted("Purged", "purged"), needs_body=False),
    f"GET {_ONE}/work": Shape(
        query=_WORKER, answers={}, texts=(EVENT_STREAM,), refusals=(400, 404, 409, 429)
    ),
    "GET /v0/health": Shape(answers={200: _HEALTH}),
    "GET /v0/ready": Shape(answers={200: _READY}, refusals=(503,)),
    "GET /readyz": Shape(answers={200: _READY}, refusals=(503,)),
    "GET /v0/metrics": Shape(answers={200: _METRICS}, texts=("text/plain",)),
}
