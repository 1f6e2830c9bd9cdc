"""Schemas of the call that redrives dead letters and dead jobs."""

from typing import Final

from jobyard.engine.topics.redrive import RedriveSkip
from jobyard.protocols.http.routes import Schema
from jobyard.protocols.topics.api import TOPIC_NAME_SCHEMA
from jobyard.protocols.topics.queue import redrive
from jobyard.protocols.topics.records.keys import KEY_MAX
from jobyard.protocols.topics.schemas.basic import (
    ANY_TEXT,
    FLAG,
    MAYBE_FLAG,
    PERFORMANCE,
    WHOLE_NUMBER,
)
from jobyard.protocols.topics.schemas.keys import STRICT
from jobyard.protocols.topics.schemas.leases import MAX
from jobyard.wire.json.merge_patch import PATCH_DEPTH_MAX

_ID: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": redrive.REDRIVE_ID_MAX}
_IDS: Final[Schema] = {"type": "array", "items": _ID, "maxItems": redrive.IDS_MAX}
_NAMED: Final = ("seqs", "job_ids")
_OTHERS: Final = ("patch", "key", "dry_run")

REDRIVE: Final[Schema] = {
    "title": "Redrive",
    "type": "object",
    "oneOf": [
        {
            "required": ["seqs"],
            "not": {"anyOf": [{"required": [one]} for one in ("job_ids", "max")]},
        },
        {
            "required": ["job_ids"],
            "not": {"anyOf": [{"required": [one]} for one in ("seqs", "max")]},
        },
        {"not": {"anyOf": [{"required": [one]} for one in (*_NAMED, *_OTHERS)]}},
    ],
    "properties": {
        "max": MAX,
        "seqs": {**_IDS, "description": "Seqs of dead letters of this queue, in their log."},
        "job_ids": {**_IDS, "description": "Numbers of dead jobs of this queue."},
        "patch": {
            "type": ["object", "array", "string", "number", "boolean"],
            "description": "Merge patch (RFC 7396) of the data, without duplicate keys, nested at "
            f"most {PATCH_DEPTH_MAX} deep and {redrive.PATCH_MAX} bytes long.",
        },
        "key": {
            "type": "string",
            "minLength": 1,
            "maxLength": KEY_MAX,
            "description": "What was moved under this key is not moved again.",
        },
        "dry_run": {**MAYBE_FLAG, "description": "Only show what would be moved."},
        "strict": STRICT,
    },
}
_PAIRS: Final[Schema] = {
    "type": "array",
    "items": {
        "type": "array",
        "prefixItems": [_ID, {"type": ["integer", "null"], "minimum": 1}],
        "minItems": 2,
        "maxItems": 2,
    },
}
_REASONS: Final = [
    RedriveSkip.GONE,
    RedriveSkip.OTHER_QUEUE,
    RedriveSkip.NOT_DEAD,
    RedriveSkip.NOT_JSON,
    RedriveSkip.TOO_LARGE,
    RedriveSkip.CORRUPT,
]
REDRIVEN: Final[Schema] = {
    "title": "Redriven",
    "type": "object",
    "required": ["topic", "redriven", "performance"],
    "properties": {
        "topic": TOPIC_NAME_SCHEMA,
        "redriven": {**WHOLE_NUMBER, "description": "How many were moved by this call."},
        "duplicate": {
            **FLAG,
            "description": "Whether everything that can be moved was moved before under the key.",
        },
        "dry_run": FLAG,
        "moved": {
            **_PAIRS,
            "description": "What was moved, or would be: its number in the call, and the seq of "
            "its job.",
        },
        "already": {**_PAIRS, "description": "What was moved before under the key."},
        "skipped": {
            "type": "array",
            "items": {
                "type": "array",
                "prefixItems": [_ID, {"enum": _REASONS}],
                "minItems": 2,
                "maxItems": 2,
            },
            "description": "What cannot be moved, and why.",
        },
        "left": {**WHOLE_NUMBER, "description": "How many were not reached."},
        "stopped": {**ANY_TEXT, "description": "The error code of why it stopped before its end."},
        "performance": PERFORMANCE,
    },
}
