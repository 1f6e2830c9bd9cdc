"""The keys of records of a yard as plain values, and a recount of what they take."""

import json
from typing import Protocol

from jobyard.engine.logs.logs import append_drafted, draft
from jobyard.engine.state.record_keys import keys_of, known_keys
from jobyard.engine.state.yard import Yard
from jobyard.engine.topics.job_batch import JobBatch, NewRecord
from jobyard.engine.topics.topic_queue import produce_batch
from jobyard.engine.topics.topic_setup import config_of
from jobyard.journal.format.key_record import KEY_SIZE
from jobyard.model.queue import Queue
from jobyard.model.topic.key_table import KEY_MEMORY, KeyTable
from jobyard.model.topic.log import LogRecord, LogTopic
from jobyard.model.topic.log_rows import LogRows
from jobyard.model.topic.new_keys import NewKeys


class OpenSite(Protocol):
    """A yard, and the time there."""

    yard: Yard
    now_ms: int


# Digest: seq, time, segment.
Keys = dict[bytes, tuple[int, int, int]]


def key_tables(yard: Yard) -> list[KeyTable]:
    """Return the tables of all topics that have one."""
    states = [queue.topic_state for queue in yard.queues.values()]
    tables = [log.record_keys for log in yard.logs.values()]
    tables += [None if state is None else state.record_keys for state in states]
    return [table for table in tables if table is not None]


def keys_in(table: KeyTable) -> Keys:
    """Return all keys of a table; check that each can be found."""
    found: Keys = {}
    for number in table.numbers():
        digest = table.digest_at(number)
        assert table.find(digest) == number
        facts = (table.seq_of(number), table.at_of(number), table.segment_of(number))
        found[digest] = (int(facts[0]), int(facts[1]), int(facts[2]))
    assert len(found) == table.count
    return found


def add_key_bytes(yard: Yard, live: dict[int, int]) -> None:
    """Add the bytes of all keys to those of the segments that hold them."""
    tables = key_tables(yard)
    written = {int(table.number): table for table in tables if table.number != 0}
    assert written == yard.key_tables
    for table in tables:
        for _, _, segment in keys_in(table).values():
            if segment in live:
                live[segment] += KEY_SIZE


def key_memory(yard: Yard) -> int:
    """Return what the keys of all topics count in the memory budget."""
    return sum(int(table.count) * KEY_MEMORY for table in key_tables(yard))


def key_facts(yard: Yard) -> dict[object, tuple[object, ...]]:
    """Return all valid keys as plain values: seq and time of each digest."""
    found: dict[object, tuple[object, ...]] = {}
    for table in key_tables(yard):
        valid_after = int(table.valid_after(yard.now_ms))
        for digest, (seq, at_ms, _) in keys_in(table).items():
            if at_ms > valid_after:
                found[f"key {table.name} {digest.hex()}"] = (seq, at_ms)
    return found


def write_keyed(
    site: OpenSite, log: LogTopic, *records: tuple[object, str]
) -> tuple[int, list[tuple[int, int]]]:
    """Append records with keys as a door does; return how many were new, and the duplicates."""
    keys = NewKeys()
    rows = LogRows(0, 0, 0)
    for data, key in records:
        keys.add(key)
        draft(rows, LogRecord(json.dumps(data).encode()))
    known_keys(site.yard, log.record_keys, keys, log.config, site.now_ms)
    if keys.kept:
        rows.keep(keys.kept)
        rows.record_keys = keys
        append_drafted(site.yard, log, rows, "", site.now_ms)
    return len(keys.kept), list(zip(keys.duplicates, keys.duplicate_seqs, strict=True))


def produce_keyed(
    site: OpenSite, queue: Queue, *records: tuple[object, str]
) -> tuple[int, list[tuple[int, int]]]:
    """Put jobs with keys, likewise."""
    keys = NewKeys()
    batch = JobBatch(site.yard)
    for data, key in records:
        keys.add(key)
        batch.add(NewRecord(json.dumps(data).encode()))
    table = keys_of(site.yard, queue.name)
    known_keys(site.yard, table, keys, config_of(queue), site.now_ms)
    if keys.kept:
        batch.keep(keys.kept)
        batch.record_keys = keys
        produce_batch(site.yard, queue, batch, "", site.now_ms)
    return len(keys.kept), list(zip(keys.duplicates, keys.duplicate_seqs, strict=True))
