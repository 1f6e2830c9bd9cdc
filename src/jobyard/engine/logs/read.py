"""Builds pages of a log, mostly from slices of the stored text.

A text is stored as most readers see it, so a page is mostly slices of it. A page is built record by
record only if the reader wants tags, no meta, or no records of its own node, and the chunk has
such. Changes nothing.
"""

import json
from bisect import bisect_right
from json.encoder import encode_basestring_ascii
from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.logs.text import text_at, texts_between
from jobyard.errors import TextDamaged
from jobyard.journal.journal import Journal
from jobyard.model.topic.log import (
    CAP,
    MIXED,
    TTL,
    LogPage,
    LogQuery,
    LogRecord,
    LogTopic,
    Tombstone,
    next_alive,
    next_dead,
)
from jobyard.model.topic.log_chunk import LogChunk

# The most bytes of records that are kept for the next reader.
SHARED_SIZE_MAX: Final = 1 << 20


def label_of(name: bytes, value: str) -> bytes:
    """Return a label as it is shown, or nothing if it is not set."""
    if not value:
        return b""
    return b"".join([name, encode_basestring_ascii(value).encode(), b","])


def collect(journal: Journal, log: LogTopic, query: LogQuery, page: LogPage) -> None:
    """Fill a page with the records after its cursor, and move the cursor past what was scanned.

    A page ends before text that is damaged on disk; TextDamaged if it would begin with it.
    """
    left: i64 = query.max_bytes
    seq = page.next_from_seq + 1
    nodes = [label_of(b'"$node":', node) for node in query.nodes] if log.config.dedupe_node else []
    index = log.chunk_index(seq)
    while index < len(log.chunks):
        chunk = log.chunks[index]
        slot = max(seq - chunk.base, 0)
        if _is_plain(chunk, query):
            left = _slice(journal, chunk, slot, query.limit, left, page)
        else:
            left = _pick(journal, chunk, slot, query, nodes, left, page)
        if left < 0:
            return
        index += 1
    page.next_from_seq = page.head_seq


def _is_plain(chunk: LogChunk, query: LogQuery) -> bool:
    """Return whether the stored texts of a chunk are what the reader requested."""
    if not query.include_data:
        return False
    if (query.include_tags and chunk.has_labels) or (not query.include_meta and chunk.has_meta):
        return False
    # A reader sees which node wrote a record, and does not see records of its own node.
    return len(chunk.node_numbers) == 0


def _slice(
    journal: Journal, chunk: LogChunk, slot: i64, limit: i64, left: i64, page: LogPage
) -> i64:
    """Add the records of a chunk as they are; return the bytes left, or -1 for a full page."""
    used = chunk.used()
    while True:
        start = next_alive(chunk, slot)
        page.scanned += start - slot
        if start >= used:
            page.next_from_seq = chunk.last_seq()
            return left
        if page.count >= limit and page.count > 0:
            return -1
        end = next_dead(chunk, start)
        end = min(end, start + max(limit - page.count, 1))
        taken = fit_end(chunk, start, end, left, needs_one=page.count == 0)
        if taken == start:
            return -1
        left = max(left - size_between(chunk, start, taken), 0)
        if chunk.is_joined and not chunk.is_cold:
            at = chunk.start_of(start) + (0 if page.count > 0 else 1)
            page.records.append(chunk.text[at : chunk.ends[taken - 1]])
        else:
            texts = whole_texts(journal, chunk, start, taken, needs_one=page.count == 0)
            if page.count == 0:
                texts[0] = texts[0][1:]
            page.records.extend(texts)
            if len(texts) < taken - start:
                # The next read reports the damage.
                taken = start + len(texts)
                end = taken + 1
        page.count += taken - start
        page.scanned += taken - start
        page.next_from_seq = chunk.base + taken - 1
        if taken < end:
            return -1
        slot = taken


def whole_texts(
    journal: Journal, chunk: LogChunk, start: i64, end: i64, *, needs_one: bool
) -> list[bytes]:
    """Return the texts before the first damaged one; TextDamaged if `needs_one` and none is."""
    try:
        return texts_between(journal, chunk, start, end)
    except TextDamaged as damage:
        stop = i64(damage.first_seq) - chunk.base
        if stop == start and needs_one:
            raise
        return texts_between(journal, chunk, start, stop)


def size_between(chunk: LogChunk, start: i64, end: i64) -> i64:
    """Return the size of the texts of some slots."""
    if chunk.is_joined:
        return i64(chunk.ends[end - 1]) - chunk.start_of(start)
    size: i64 = 0
    while start < end:
        size += len(chunk.pieces[start])
        start += 1
    return size


def fit_end(chunk: LogChunk, start: i64, end: i64, left: i64, *, needs_one: bool) -> i64:
    """Return the end of the records from `start` that fit into `left` bytes.

    With `needs_one`, the first counts even if it does not fit.
    """
    if size_between(chunk, start, end) <= left:
        return end
    if chunk.is_joined:
        at: i64 = bisect_right(chunk.ends, chunk.start_of(start) + left, start, end)
    else:
        at = start
        while at < end and left >= len(chunk.pieces[at]):
            left -= len(chunk.pieces[at])
            at += 1
    return start + 1 if at == start and needs_one else at


def _pick(
    journal: Journal,
    chunk: LogChunk,
    slot: i64,
    query: LogQuery,
    nodes: list[bytes],
    left: i64,
    page: LogPage,
) -> i64:
    """Add the records of a chunk for this reader one by one, in the form it requested."""
    own = {chunk.node_numbers[node] for node in nodes if node in chunk.node_numbers}
    used = chunk.used()
    while slot < used:
        if chunk.dead[slot] == 0 and chunk.nodes[slot] not in own:
            if page.count > 0 and page.count >= query.limit:
                return -1
            try:
                whole = text_at(journal, chunk, slot)
            except TextDamaged:
                if page.count == 0:
                    raise
                # The next read reports the damage.
                return -1
            text = chunk.view(
                slot,
                whole,
                include_tags=query.include_tags,
                include_meta=query.include_meta,
                include_data=query.include_data,
            )
            if page.count > 0 and len(text) > left:
                return -1
            page.records.append(text if page.count > 0 else text[1:])
            page.count += 1
            left = max(left - len(text), 0)
        page.scanned += 1
        page.next_from_seq = chunk.base + slot
        slot += 1
    return left


@final
class WrittenRows:
    """Records as they were written, with their seqs."""

    def __init__(self) -> None:
        self.seqs: list[int] = []
        self.rows: list[LogRecord] = []
        # There are no other records up to here.
        self.last_seq: i64 = 0


def rows_after(journal: Journal, log: LogTopic, after_seq: i64, most: i64) -> WrittenRows:
    """Return the records that follow a seq, except those that are damaged on disk."""
    found = WrittenRows()
    index = log.chunk_index(after_seq + 1)
    while index < len(log.chunks):
        chunk = log.chunks[index]
        slot = next_alive(chunk, max(after_seq + 1 - chunk.base, 0))
        while slot < chunk.used():
            if len(found.rows) >= most:
                return found
            found.last_seq = chunk.base + slot
            try:
                found.rows.append(_row_at(chunk, slot, text_at(journal, chunk, slot)))
            except TextDamaged:
                # Treated as deleted.
                slot = next_alive(chunk, slot + 1)
                continue
            found.seqs.append(chunk.base + slot)
            slot = next_alive(chunk, slot + 1)
        index += 1
    found.last_seq = log.next_seq - 1
    return found


def _row_at(chunk: LogChunk, slot: i64, text: bytes) -> LogRecord:
    data, meta = chunk.content_of(slot, text)
    is_binary = chunk.is_binary(slot, text)
    label = chunk.label_at(slot)
    if not label:
        return LogRecord(data, meta, is_binary=is_binary)
    labels = json.loads(b"{" + label[:-1] + b"}")
    tag, node = labels.get("$tag", ""), labels.get("$node", "")
    return LogRecord(data, meta, tag, node, is_binary=is_binary)


@final
class SharedRows:
    """Records read for one router, kept for the next that asks, if none were removed since."""

    def __init__(self) -> None:
        self._rows: WrittenRows | None = None
        self._after: i64 = 0
        self._most: i64 = 0
        # How many seqs have no record.
        self._gone: i64 = 0

    def after(self, journal: Journal, log: LogTopic, cursor: i64, most: i64) -> WrittenRows:
        """Return the records that follow a seq; long ones are read again each time."""
        gone = log.next_seq - log.count
        rows = self._rows
        if rows is not None and self._after == cursor and self._most == most and self._gone == gone:
            return rows
        rows = rows_after(journal, log, cursor, most)
        size: i64 = 0
        for row in rows.rows:
            size += len(row.data) + len(row.meta)
        self._rows = rows if size <= SHARED_SIZE_MAX else None
        self._after = cursor
        self._most = most
        self._gone = gone
        return rows


def gap(page: LogPage, gap_from: i64, gap_to: i64, reason: str) -> Tombstone:
    """Return the tombstone for records that are missing from a page."""
    return Tombstone(gap_from, gap_to, reason, page.earliest_seq, page.head_seq)


def gap_reason(cap_floor: i64, ttl_floor: i64, after: i64) -> str:
    """Return why records after a cursor were removed, by the floors above it."""
    if cap_floor > after + 1:
        return MIXED if ttl_floor > after + 1 else CAP
    return TTL
