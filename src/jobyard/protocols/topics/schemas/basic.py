"""Schemas of single values: numbers, names, flags, and what several requests have in common."""

from typing import Final

from jobyard.model.topic.config import CONFIG_NUMBER_MAX, LEASE_MS_MAX, LEASE_MS_MIN
from jobyard.protocols.http.routes import Schema
from jobyard.protocols.topics.records import record

ANY_JSON: Final[Schema] = {"description": "Any JSON value; stored unchanged."}
# Base64 as RFC 4648 has it, with padding.
BASE64_PATTERN: Final = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
DATA_B64: Final[Schema] = {
    "type": "string",
    "pattern": BASE64_PATTERN,
    "contentEncoding": "base64",
    "description": "Bytes in the place of data.",
}
FLAG: Final[Schema] = {"type": "boolean"}
WHOLE_NUMBER: Final[Schema] = {"type": "integer", "minimum": 0}
LONG_NUMBER: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": CONFIG_NUMBER_MAX}
NUMBER: Final[Schema] = {"type": "number", "minimum": 0}
ANY_TEXT: Final[Schema] = {"type": "string"}
SEQ: Final[Schema] = LONG_NUMBER
SEQS: Final[Schema] = {"type": "array", "items": SEQ}
NODE: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": record.NODE_MAX}
MAYBE_FLAG: Final[Schema] = {"type": ["boolean", "null"]}
# For numbers that are clamped to a limit: 20 digits at most, a longer number is refused.
CUT_MAX: Final = 10**20 - 1
MAYBE_WHOLE: Final[Schema] = {"type": ["integer", "null"], "minimum": 0, "maximum": CUT_MAX}
MAYBE_NODE: Final[Schema] = {"type": ["string", "null"], "maxLength": record.NODE_MAX}
READER: Final[Schema] = {"type": "string", "maxLength": record.NODE_MAX}
LEASE_MS: Final[Schema] = {
    **MAYBE_WHOLE,
    "description": f"Lease duration, clamped to {LEASE_MS_MIN} to {LEASE_MS_MAX} ms.",
}
META_SCHEMA: Final[Schema] = {
    "type": "object",
    "description": "A small JSON object; stored unchanged.",
}
PERFORMANCE: Final[Schema] = {
    "title": "Performance",
    "type": "object",
    "required": ["server_total_ms"],
    "properties": {
        "server_total_ms": NUMBER,
        "fsync_ms": {
            **NUMBER,
            "description": "Duration of a disk sync, if the answer waited for one.",
        },
        "throttle_wait_ms": {**NUMBER, "description": "How long the claim was throttled."},
    },
}
