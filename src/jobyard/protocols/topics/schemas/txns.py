"""JSON schemas of transactions: data only.

The rules in `schemas/records.py` apply here too.
"""

from typing import Final

from jobyard.protocols.http.routes import RouteSchemas, Schema
from jobyard.protocols.topics.api import TOPIC_NAME_SCHEMA, TXN_NAME_SCHEMA
from jobyard.protocols.topics.queue.leases import NACK_DELAY_MS_MAX, RUN_ERROR_MAX
from jobyard.protocols.topics.records import record, writes
from jobyard.protocols.topics.schemas.basic import (
    ANY_JSON,
    ANY_TEXT,
    DATA_B64,
    FLAG,
    META_SCHEMA,
    NODE,
    PERFORMANCE,
    SEQ,
    WHOLE_NUMBER,
)
from jobyard.protocols.topics.schemas.cursors import CURSOR_FIELDS, CURSOR_NAME
from jobyard.protocols.topics.schemas.export import COLUMNS, NULLABLE
from jobyard.protocols.topics.schemas.keys import JOB_LABELS, RECORD_KEY, STRICT
from jobyard.protocols.topics.schemas.leases import (
    CLAIM_ANSWER,
    COMMIT_LIMITS,
    EPOCH,
    SET_EXTEND,
    SET_EXTENDED,
    WORKER_SCHEMA,
)
from jobyard.protocols.topics.txns import commit, stage
from jobyard.wire.arrow.stream import ARROW_STREAM

_PART: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": stage.PART_MAX}
_ATTEMPT: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": stage.ATTEMPT_MAX}
_RECORD: Final[Schema] = {
    "title": "StagedRecord",
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
        "tag": {"type": ["string", "null"], "maxLength": record.TAG_MAX},
        "node": {"type": ["string", "null"], "maxLength": record.NODE_MAX},
        "meta": {"anyOf": [META_SCHEMA, {"type": "null"}]},
        "key": RECORD_KEY,
        **JOB_LABELS,
        "delay_ms": {
            "type": ["integer", "null"],
            "minimum": 0,
            "maximum": record.WRITE_DELAY_MS_MAX,
        },
        "priority": {
            "type": ["integer", "null"],
            "minimum": -record.PRIORITY_MAX,
            "maximum": record.PRIORITY_MAX,
        },
        "with": {
            "type": ["array", "null"],
            "prefixItems": [ANY_TEXT, SEQ],
            "minItems": 2,
            "maxItems": 2,
            "description": "Queue and seq of a job: written only if the commit ends its run.",
        },
    },
}
_STAGE: Final[Schema] = {
    "title": "Stage",
    "type": "object",
    "required": ["topic", "part", "attempt", "chunk", "records"],
    "properties": {
        "topic": TOPIC_NAME_SCHEMA,
        "part": _PART,
        "attempt": _ATTEMPT,
        "chunk": {"type": "integer", "minimum": 0, "maximum": stage.CHUNKS_MAX - 1},
        "records": {
            "type": "array",
            "minItems": 1,
            "maxItems": writes.RECORDS_MAX,
            "items": _RECORD,
        },
        "strict": STRICT,
    },
}
_STAGED_FIELDS: Final[dict[str, Schema]] = {
    "topic": TOPIC_NAME_SCHEMA,
    "txn": TXN_NAME_SCHEMA,
    "part": _PART,
    "attempt": _ATTEMPT,
    "chunk": WHOLE_NUMBER,
    "rows": WHOLE_NUMBER,
    "bytes": WHOLE_NUMBER,
    **COMMIT_LIMITS,
    "duplicate": {**FLAG, "description": "Whether the chunk was staged before."},
    "performance": PERFORMANCE,
}
_STAGED: Final[Schema] = {
    "title": "Staged",
    "type": "object",
    "required": list(_STAGED_FIELDS),
    "properties": _STAGED_FIELDS,
}
_LEASE_ID: Final[Schema] = {
    "type": ["string", "null"],
    "description": "Not checked if it is empty, null or left out.",
}
_ERROR: Final[Schema] = {"type": ["string", "null"], "maxLength": RUN_ERROR_MAX}
_DELAY: Final[Schema] = {
    "type": ["integer", "null"],
    "minimum": 0,
    "maximum": NACK_DELAY_MS_MAX,
    "description": "Default: the backoff of the job if its protocol counts attempts, else none.",
}


def _ends(values: list[Schema]) -> Schema:
    """Return the schema of runs to end, by queue and node."""
    item: Schema = {
        "type": "array",
        "prefixItems": [SEQ, *values],
        "minItems": 1,
        "maxItems": len(values) + 1,
    }
    return {
        "type": ["array", "null"],
        "items": {
            "type": "object",
            "required": ["queue", "node", "items"],
            "properties": {
                "queue": ANY_TEXT,
                "node": NODE,
                "items": {"type": "array", "items": item},
            },
        },
    }


_COMMIT: Final[Schema] = {
    "title": "Commit",
    "type": "object",
    "properties": {
        "parts": {
            "type": ["array", "null"],
            "maxItems": commit.PARTS_MAX,
            "description": "Chunks of other attempts are dropped.",
            "items": {
                "type": "object",
                "required": ["topic", "part", "attempt", "chunks", "rows"],
                "properties": {
                    "topic": TOPIC_NAME_SCHEMA,
                    "part": _PART,
                    "attempt": _ATTEMPT,
                    "chunks": {"type": "integer", "minimum": 0, "maximum": stage.CHUNKS_MAX},
                    "rows": WHOLE_NUMBER,
                },
            },
        },
        "acks": _ends([_LEASE_ID]),
        "nacks": _ends([_LEASE_ID, _DELAY, _ERROR]),
        "dead_letters": _ends([_LEASE_ID, _ERROR]),
        "cursors": {
            "type": ["array", "null"],
            "maxItems": commit.CURSORS_MAX,
            "description": "Set together with everything else, as with PUT.",
            "items": {
                "type": "object",
                "required": ["topic", "cursor", "seq"],
                "properties": {
                    "topic": TOPIC_NAME_SCHEMA,
                    "cursor": CURSOR_NAME,
                    **CURSOR_FIELDS,
                },
            },
        },
        "worker": WORKER_SCHEMA,
        "epoch": EPOCH,
        "strict": STRICT,
    },
}
_WRITTEN: Final[Schema] = {
    "title": "CommittedTopic",
    "type": "object",
    "required": ["first_seq", "last_seq", "written", "duplicates", "left_out"],
    "properties": {
        "first_seq": WHOLE_NUMBER,
        "last_seq": WHOLE_NUMBER,
        "written": WHOLE_NUMBER,
        "duplicates": {
            **WHOLE_NUMBER,
            "description": "Records whose key the topic knew, or that an earlier one had.",
        },
        "left_out": {**WHOLE_NUMBER, "description": "Records of jobs whose runs were skipped."},
    },
}
_OUTCOME: Final[dict[str, Schema]] = {
    "topics": {"type": "object", "additionalProperties": _WRITTEN},
    "acked": WHOLE_NUMBER,
    "nacked": WHOLE_NUMBER,
    "dead_lettered": WHOLE_NUMBER,
    "skipped": {
        "type": "array",
        "items": {
            "type": "array",
            "prefixItems": [
                ANY_TEXT,
                SEQ,
                {"enum": ["expired", "other_holder", "gone", "no_room"]},
            ],
        },
        "description": "Queue, seq and reason of each run that was not ended.",
    },
    "cursors": {**WHOLE_NUMBER, "description": "How many cursors were set."},
}
_COMMITTED_FIELDS: Final[dict[str, Schema]] = {
    "txn": TXN_NAME_SCHEMA,
    "state": {"const": "committed"},
    **_OUTCOME,
    "duplicate": {**FLAG, "description": "Whether the same commit was made before."},
    "performance": PERFORMANCE,
}
_COMMITTED: Final[Schema] = {
    "title": "Committed",
    "type": "object",
    "required": list(_COMMITTED_FIELDS),
    "properties": _COMMITTED_FIELDS,
}
_LOOK: Final[Schema] = {
    "title": "Txn",
    "type": "object",
    "required": ["txn", "state", "performance"],
    "properties": {
        "txn": TXN_NAME_SCHEMA,
        "state": {"enum": ["open", "committed", "aborted", "unknown"]},
        "chunks": WHOLE_NUMBER,
        "rows": WHOLE_NUMBER,
        "bytes": WHOLE_NUMBER,
        "expires_at": WHOLE_NUMBER,
        "expired": {**FLAG, "description": "Whether its stages expired; nobody aborted it."},
        **_OUTCOME,
        **COMMIT_LIMITS,
        "performance": PERFORMANCE,
    },
}
_ABORTED: Final[Schema] = {
    "title": "Aborted",
    "type": "object",
    "required": ["txn", "state", "performance"],
    "properties": {
        "txn": TXN_NAME_SCHEMA,
        "state": {
            "enum": ["aborted", "unknown"],
            "description": "unknown if nothing was staged or committed under the name.",
        },
        "expired": {**FLAG, "description": "Whether its stages expired; nobody aborted it."},
        "performance": PERFORMANCE,
    },
}
_TXN: Final = "/v0/txns/{txn}"
_CLAIM: Final = "/v0/topics/{topic}/claims/{claim}"
_BODY: Final = (400, 403, 404, 409, 413, 415, 429, 503, 507)

TXN_SHAPES: Final[dict[str, RouteSchemas]] = {
    f"POST {_TXN}/stage": RouteSchemas(
        _STAGE, needs_body=True, answers={200: _STAGED}, refusals=_BODY
    ),
    f"POST {_TXN}/commit": RouteSchemas(
        _COMMIT,
        needs_body=True,
        answers={200: _COMMITTED},
        refusals=(*_BODY, 410, 416, 422, 500),
    ),
    f"GET {_CLAIM}": RouteSchemas(
        query=(COLUMNS, NULLABLE),
        answers={200: CLAIM_ANSWER},
        texts=(ARROW_STREAM,),
        refusals=(400, 403, 404, 409),
    ),
    f"POST {_CLAIM}/extend": RouteSchemas(
        SET_EXTEND, needs_body=True, answers={200: SET_EXTENDED}, refusals=_BODY
    ),
    f"GET {_TXN}": RouteSchemas(answers={200: _LOOK}, refusals=(400, 403)),
    f"DELETE {_TXN}": RouteSchemas(answers={200: _ABORTED}, refusals=(400, 403, 409, 507)),
}
