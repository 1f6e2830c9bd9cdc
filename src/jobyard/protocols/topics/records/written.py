"""What a write answers, and how it is refused because of its size or because the topic is full."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from jobyard.engine.topics import topic_queue
from jobyard.engine.topics.topic_setup import config_of
from jobyard.protocols.http.call import HttpRefused
from jobyard.protocols.topics.answers import put_bool, put_int
from jobyard.protocols.topics.records.jobs import earliest_seq
from jobyard.wire.json.write import write_int

if TYPE_CHECKING:
    from librt.strings import BytesWriter

    from jobyard.model.queue import Queue
    from jobyard.model.topic.config import TopicConfig
    from jobyard.model.topic.new_keys import NewKeys, TooManyKeys


@final
class Written:
    """The result of a write."""

    def __init__(self, first_seq: i64, last_seq: i64, batch: i64, *, is_deduped: bool) -> None:
        self.first_seq: i64 = first_seq
        self.last_seq: i64 = last_seq
        # The answer waits for this batch.
        self.batch: i64 = batch
        self.is_deduped = is_deduped
        self.head_seq: i64 = last_seq
        self.is_created: bool = False
        self.is_synced: bool = False
        # The keys of the records, if any had one.
        self.keys: NewKeys | None = None


def too_many_keys(full: TooManyKeys, new: i64) -> HttpRefused:
    """Return the refusal of a write whose keys the topic may not store in addition to its own."""
    detail: dict[str, object] = {
        "key_max": int(full.key_max),
        "keys": int(full.count),
        "new": int(new),
    }
    message = "the topic has as many keys as it may; they expire after its key_window_ms"
    return HttpRefused(422, "too_many_keys", message, detail)


def too_large() -> HttpRefused:
    """Return the refusal of a write that exceeds the caps of an empty topic."""
    return HttpRefused(400, "record_too_large", "the write exceeds the caps of the topic")


def queue_full(queue: Queue) -> HttpRefused:
    """Return the refusal of a write to a queue that has reached its caps."""
    counts = topic_queue.counts(queue)
    seqs = (earliest_seq(queue), queue.next_seq - 1)
    return topic_full(config_of(queue), counts.count, counts.bytes, seqs)


def topic_full(config: TopicConfig, count: i64, size: i64, seqs: tuple[i64, i64]) -> HttpRefused:
    """Return the refusal of a write to a topic that has reached its caps."""
    detail: dict[str, object] = {
        "cap_records": config.cap_records,
        "cap_bytes": config.cap_bytes,
        "count": int(count),
        "bytes": int(size),
        "earliest_seq": int(seqs[0]),
        "head_seq": int(seqs[1]),
    }
    return HttpRefused(422, "topic_full", "the topic has reached its caps", detail)


def put_written(out: BytesWriter, written: Written, *, has_seqs: bool) -> None:
    """Add the result of a write to an answer that has the topic already."""
    first = written.first_seq
    last = written.last_seq
    put_int(out, b',"first_seq":', first)
    put_int(out, b',"last_seq":', last)
    if has_seqs:
        _write_seqs(out, first, last)
    put_int(out, b',"head_seq":', written.head_seq)
    put_int(out, b',"count":', last - first + 1)
    put_bool(out, b',"created":', value=written.is_created)
    put_bool(out, b',"deduped":', value=written.is_deduped)
    if written.keys is not None:
        put_int(out, b',"written":', last - first + 1)
        _write_duplicates(out, written.keys)


def _write_seqs(out: BytesWriter, first: i64, last: i64) -> None:
    out.write(b',"seqs":[')
    seq = first
    while seq <= last:
        if seq > first:
            out.write(b",")
        write_int(out, seq)
        seq += 1
    out.write(b"]")


def _write_duplicates(out: BytesWriter, keys: NewKeys) -> None:
    out.write(b',"duplicates":[')
    for i in range(len(keys.duplicates)):
        out.write(b",[" if i > 0 else b"[")
        write_int(out, i64(keys.duplicates[i]))
        out.write(b",")
        write_int(out, i64(keys.duplicate_seqs[i]))
        out.write(b"]")
    out.write(b"]")
