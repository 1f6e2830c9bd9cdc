"""The keys of records in writes: reads them, and finds the records that are duplicates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jobyard.engine.logs import logs
from jobyard.engine.state.record_keys import keys_of, known_keys
from jobyard.engine.topics.topic_setup import config_of
from jobyard.model.topic.config import FSYNC, QUEUE
from jobyard.model.topic.new_keys import TooManyKeys
from jobyard.protocols.http.call import HttpRefused
from jobyard.protocols.topics.body import invalid, text
from jobyard.protocols.topics.records.written import Written, too_many_keys
from jobyard.wire.msgpack.forms import KIND_ABSENT, KIND_NIL

if TYPE_CHECKING:
    from mypy_extensions import i64

    from jobyard.engine.state.yard import Yard
    from jobyard.model.topic.config import TopicConfig
    from jobyard.model.topic.new_keys import NewKeys
    from jobyard.wire.json.read import JsonFields

# Of the key of a record and of that of a write, in bytes.
KEY_MAX: Final = 256


def read_key(record: JsonFields) -> str:
    """Return the key of a record; empty if it has none."""
    return read_label(record, b"key")


def read_label(record: JsonFields, name: bytes) -> str:
    """Return a short text of a record that is not empty if it is given."""
    kind = record.kind(name)
    if kind == KIND_ABSENT:
        return ""
    label = text(record, name, KEY_MAX)
    if not label and kind != KIND_NIL:
        raise invalid(f"{name.decode()} must not be empty")
    return label


def only_for_queues() -> HttpRefused:
    """Return the refusal of a record for a log that has fields of a job."""
    message = "name, job_id and max_attempts are for jobs, and the topic is a log"
    return HttpRefused(409, "not_a_queue", message)


def find_duplicates(
    yard: Yard, name: str, config: TopicConfig | None, keys: NewKeys, now_ms: i64
) -> None:
    """Find the duplicates among the records of a write, and refuse too many new keys.

    `config` is that of a topic that the write creates.
    """
    log = yard.logs.get(name)
    if log is not None:
        config = log.config
    elif config is None:
        config = config_of(yard.queues[name])
    if keys.job_ids and config.type != QUEUE:
        raise only_for_queues()
    try:
        known_keys(yard, keys_of(yard, name), keys, config, now_ms)
    except TooManyKeys as full:
        raise too_many_keys(full, len(keys.fresh)) from None


def nothing_new(yard: Yard, name: str, keys: NewKeys) -> Written:
    """Return the result of a write of duplicates only: the empty range behind the newest seq."""
    log = yard.logs.get(name)
    if log is not None:
        written = Written(
            log.next_seq, log.next_seq - 1, logs.batch_of_head(yard, log), is_deduped=False
        )
        written.is_synced = log.config.durability == FSYNC
    else:
        queue = yard.queues[name]
        # The answer shows the seqs of other writes, so it waits for all of them.
        batch = yard.journal.appended
        written = Written(queue.next_seq, queue.next_seq - 1, batch, is_deduped=False)
        written.is_synced = queue.is_synced
    written.keys = keys
    return written
