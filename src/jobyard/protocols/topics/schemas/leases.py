"""Schemas of requests and answers about leases: claims, acks, nacks, dead letters."""

from typing import Final

from jobyard.protocols.http.routes import Schema
from jobyard.protocols.topics import txn_fields
from jobyard.protocols.topics.api import TOPIC_NAME_SCHEMA
from jobyard.protocols.topics.queue import claims, leases
from jobyard.protocols.topics.records import reads
from jobyard.protocols.topics.schemas.basic import (
    ANY_JSON,
    ANY_TEXT,
    DATA_B64,
    LEASE_MS,
    MAYBE_WHOLE,
    META_SCHEMA,
    NODE,
    PERFORMANCE,
    SEQ,
    SEQS,
    WHOLE_NUMBER,
)
from jobyard.protocols.topics.schemas.keys import STRICT

WORKER_SCHEMA: Final[Schema] = {
    "type": ["string", "null"],
    "maxLength": txn_fields.WORKER_MAX,
    "description": "Name of the worker whose older epochs are refused.",
}
EPOCH: Final[Schema] = {
    "type": ["integer", "null"],
    "minimum": 0,
    "maximum": txn_fields.EPOCH_MAX,
    "description": "Calls with a smaller epoch than the greatest so far are refused.",
}
_MOST: Final = (
    f"Most jobs to claim; at most {leases.CLAIM_MAX}, with a claim_id {claims.SET_CLAIM_MAX}."
)

CLAIM: Final[Schema] = {
    "title": "Claim",
    "type": "object",
    "required": ["node"],
    "properties": {
        "node": NODE,
        "max": {**MAYBE_WHOLE, "description": _MOST},
        "lease_ms": LEASE_MS,
        "wait_ms": {
            **MAYBE_WHOLE,
            "description": f"How long to wait for a job; at most {reads.WAIT_MS_MAX} ms.",
        },
        "claim_id": {
            "type": ["string", "null"],
            "pattern": "^[A-Za-z0-9._:~-]{1,256}$",
            "description": "The same id gives the same jobs again, and claims no others.",
        },
        "worker": WORKER_SCHEMA,
        "epoch": EPOCH,
        "strict": STRICT,
    },
}
LEASE: Final[Schema] = {
    "title": "Lease",
    "type": "object",
    "required": ["$seq", "lease_id", "deadline", "$ts", "deliveries"],
    "properties": {
        "$seq": SEQ,
        "lease_id": {**ANY_TEXT, "description": "Proof of the lease, for ack, nack and extend."},
        "deadline": {
            **WHOLE_NUMBER,
            "description": "When the lease ends and the job can be claimed again.",
        },
        "$ts": WHOLE_NUMBER,
        "$tag": ANY_TEXT,
        "deliveries": {**WHOLE_NUMBER, "description": "Number of deliveries, including this one."},
        "data": ANY_JSON,
        "data_b64": DATA_B64,
        "meta": META_SCHEMA,
    },
}
# Of claims with a worker or a claim_id, and of answers about transactions.
COMMIT_LIMITS: Final[dict[str, Schema]] = {
    "rows_max": {
        **WHOLE_NUMBER,
        "description": "Most records of a commit: an ended run counts as three, a dead letter as "
        "20, a record with a key as two, 64 characters of an error as one.",
    },
    "bytes_max": {
        **WHOLE_NUMBER,
        "description": "Most bytes of the records of a commit and of the data of its dead letters.",
    },
}
CLAIM_ANSWER: Final[Schema] = {
    "title": "Claimed",
    "type": "object",
    "required": ["topic", "claimed", "count", "ready", "performance"],
    "properties": {
        "topic": TOPIC_NAME_SCHEMA,
        "claimed": {"type": "array", "items": LEASE},
        "count": WHOLE_NUMBER,
        "ready": {**WHOLE_NUMBER, "description": "Jobs that can be claimed now."},
        "claim_id": ANY_TEXT,
        "duplicate": {"type": "boolean", "description": "Whether the id was used before."},
        "left_out": {**WHOLE_NUMBER, "description": "Jobs of the claim that are not leased now."},
        **COMMIT_LIMITS,
        "performance": PERFORMANCE,
    },
}
SET_EXTEND: Final[Schema] = {
    "title": "ExtendClaim",
    "type": "object",
    "required": ["lease_ms"],
    "properties": {
        "lease_ms": {**WHOLE_NUMBER, "description": "New lease duration, counted from now."},
        "worker": WORKER_SCHEMA,
        "epoch": EPOCH,
        "strict": STRICT,
    },
}
_SET_EXTENDED_FIELDS: Final[dict[str, Schema]] = {
    "topic": TOPIC_NAME_SCHEMA,
    "claim_id": ANY_TEXT,
    "extended": WHOLE_NUMBER,
    "left_out": WHOLE_NUMBER,
    "deadline": WHOLE_NUMBER,
    "performance": PERFORMANCE,
}
SET_EXTENDED: Final[Schema] = {
    "title": "ExtendedClaim",
    "type": "object",
    "required": list(_SET_EXTENDED_FIELDS),
    "properties": _SET_EXTENDED_FIELDS,
}
HELD: Final[dict[str, Schema]] = {
    "node": NODE,
    "seqs": {**SEQS, "maxItems": leases.SEQS_MAX},
    "lease_ids": {
        "type": ["array", "null"],
        "items": ANY_TEXT,
        "maxItems": leases.SEQS_MAX,
        "description": "One for each seq; an empty string is not checked.",
    },
    "strict": STRICT,
}
_RUN_ERROR: Final[Schema] = {
    "type": ["string", "null"],
    "maxLength": leases.RUN_ERROR_MAX,
    "description": "Why the run failed: kept with the job, shown in `_events`, and in the meta of "
    f"its dead letter; at most {leases.RUN_ERROR_MAX} bytes.",
}
ACK: Final[Schema] = {
    "title": "Ack",
    "type": "object",
    "required": ["node", "seqs"],
    "properties": HELD,
}
NACK: Final[Schema] = {
    "title": "Nack",
    "type": "object",
    "required": ["node", "seqs"],
    "properties": {
        **HELD,
        "error": _RUN_ERROR,
        "delay_ms": {
            "type": ["integer", "null"],
            "minimum": 0,
            "maximum": leases.NACK_DELAY_MS_MAX,
            "description": "Delay until the jobs can be claimed again. Default: the backoff of the "
            "job if its protocol counts attempts, else none.",
        },
    },
}
GIVE_UP: Final[Schema] = {**ACK, "title": "DeadLetter", "properties": {**HELD, "error": _RUN_ERROR}}
EXTEND: Final[Schema] = {
    "title": "Extend",
    "type": "object",
    "required": ["node", "seqs", "lease_ms"],
    "properties": {
        **HELD,
        "lease_ms": {**WHOLE_NUMBER, "description": "New lease duration, counted from now."},
        "worker": WORKER_SCHEMA,
        "epoch": EPOCH,
    },
}
SKIPPED_SEQS: Final[Schema] = {
    **SEQS,
    "description": "Seqs that are not leased to this node, or not by that lease_id.",
}


def ended(title: str, count: str) -> Schema:
    """Return the answer to a request that ends leases."""
    fields: dict[str, Schema] = {
        "topic": TOPIC_NAME_SCHEMA,
        count: WHOLE_NUMBER,
        "skipped": SKIPPED_SEQS,
        "ready": WHOLE_NUMBER,
        "in_flight": WHOLE_NUMBER,
        "performance": PERFORMANCE,
    }
    return {"title": title, "type": "object", "required": list(fields), "properties": fields}


def counted(title: str, count: str) -> Schema:
    """Return the answer to a request that changes dead jobs."""
    fields = {"topic": TOPIC_NAME_SCHEMA, count: WHOLE_NUMBER, "performance": PERFORMANCE}
    return {"title": title, "type": "object", "required": list(fields), "properties": fields}


EXTENDED_FIELDS: Final[dict[str, Schema]] = {
    "topic": TOPIC_NAME_SCHEMA,
    "extended": WHOLE_NUMBER,
    "skipped": SKIPPED_SEQS,
    "deadlines": {
        "type": "object",
        "propertyNames": {"pattern": "^[0-9]+$"},
        "additionalProperties": WHOLE_NUMBER,
        "description": "New deadlines, by seq.",
    },
    "performance": PERFORMANCE,
}
EXTENDED: Final[Schema] = {
    "title": "Extended",
    "type": "object",
    "required": list(EXTENDED_FIELDS),
    "properties": EXTENDED_FIELDS,
}
MAX: Final[Schema] = {
    **MAYBE_WHOLE,
    "description": f"Most jobs to change; at most {leases.CLAIM_MAX}.",
}
PURGE: Final[Schema] = {
    "title": "Purge",
    "type": "object",
    "properties": {"max": MAX, "strict": STRICT},
}
