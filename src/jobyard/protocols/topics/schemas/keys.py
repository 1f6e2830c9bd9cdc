"""Schemas of the keys of records, and of the flag that refuses unknown fields."""

from typing import Final

from jobyard.model.topic.config import KEY_COUNT_MAX, KEY_WINDOW_MS_MAX
from jobyard.protocols.http.routes import Schema
from jobyard.protocols.topics.records.keys import KEY_MAX
from jobyard.protocols.topics.records.record import ATTEMPTS_MAX
from jobyard.protocols.topics.schemas.basic import MAYBE_FLAG, SEQ, WHOLE_NUMBER

# In the configuration of a topic.
KEY_CONFIG_FIELDS: Final[dict[str, Schema]] = {
    "key_window_ms": {
        "type": "integer",
        "minimum": 1,
        "maximum": KEY_WINDOW_MS_MAX,
        "description": "How long the key of a record is known.",
    },
    "key_max": {
        "type": "integer",
        "minimum": 0,
        "maximum": KEY_COUNT_MAX,
        "description": "Most keys that are known at a time; beyond them, new keys are refused.",
    },
}
# In a record.
RECORD_KEY: Final[Schema] = {
    "type": ["string", "null"],
    "minLength": 1,
    "maxLength": KEY_MAX,
    "description": "A record whose key the topic knows is not written.",
}
# In a record for a queue.
JOB_LABELS: Final[dict[str, Schema]] = {
    "name": {
        "type": ["string", "null"],
        "minLength": 1,
        "maxLength": KEY_MAX,
        "description": "Name of the job, as doors show it that name jobs; only for queues.",
    },
    "job_id": {
        "type": ["string", "null"],
        "minLength": 1,
        "maxLength": KEY_MAX,
        "description": "Id of the job, unique among all queues: a record whose id a job has is not "
        "written; only for queues.",
    },
    "max_attempts": {
        "type": ["integer", "null"],
        "minimum": 1,
        "maximum": ATTEMPTS_MAX,
        "description": "Deliveries of this job instead of max_deliveries; only for queues.",
    },
}
# In the answer to a write.
KEYED_FIELDS: Final[dict[str, Schema]] = {
    "written": {
        **WHOLE_NUMBER,
        "description": "Records that were written; only if a record had a key.",
    },
    "duplicates": {
        "type": "array",
        "items": {"type": "array", "items": SEQ, "minItems": 2, "maxItems": 2},
        "description": "Position of each record that was not written, and the seq of the record "
        "that has its key; only if a record had a key.",
    },
}
# In the body of a call.
STRICT: Final[Schema] = {**MAYBE_FLAG, "description": "Whether unknown fields are refused."}
