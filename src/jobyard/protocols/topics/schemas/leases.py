"""Schemas of requests and answers about leases: claims, acks, nacks, dead letters."""

from typing import Final

from jobyard.protocols.http.routes import Schema
from jobyard.protocols.topics.api import TOPIC_NAME_SCHEMA
from jobyard.protocols.topics.queue import leases
from jobyard.protocols.topics.schemas.basic import (
    ANY_JSON,
    ANY_TEXT,
    LEASE_MS,
    MAYBE_WHOLE,
    META,
    NODE,
    PERFORMANCE,
    SEQ,
    SEQS,
    WHOLE_NUMBER,
)

CLAIM: Final[Schema] = {
    "title": "Claim",
    "type": "object",
    "required": ["node"],
    "properties": {
        "node": NODE,
        "max": {**MAYBE_WHOLE, "description": f"Most jobs to claim; at most {leases.CLAIM_MAX}."},
        "lease_ms": LEASE_MS,
        "wait_ms": {
            **MAYBE_WHOLE,
            "description": f"How long to wait for a job; at most {leases.WAIT_MS_MAX} ms.",
        },
    },
}
LEASE: Final[Schema] = {
    "title": "Lease",
    "type": "object",
    "required": ["$seq", "lease_id", "deadline", "$ts", "deliveries", "data"],
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
        "meta": META,
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
        "performance": PERFORMANCE,
    },
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
        "delay_ms": {
            "type": ["integer", "null"],
            "minimum": 0,
            "maximum": leases.NACK_DELAY_MS_MAX,
            "description": "Delay until the jobs can be claimed again. Default: the backoff of the "
            "job if its protocol counts attempts, else none.",
        },
    },
}
GIVE_UP: Final[Schema] = {**ACK, "title": "DeadLetter"}
EXTEND: Final[Schema] = {
    "title": "Extend",
    "type": "object",
    "required": ["node", "seqs", "lease_ms"],
    "properties": {
        **HELD,
        "lease_ms": {**WHOLE_NUMBER, "description": "New lease duration, counted from now."},
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
REDRIVE: Final[Schema] = {
    "title": "Redrive",
    "type": "object",
    "properties": {
        "max": {**MAYBE_WHOLE, "description": f"Most jobs to change; at most {leases.CLAIM_MAX}."}
    },
}
PURGE: Final[Schema] = {**REDRIVE, "title": "Purge"}
