"""Records of a log column by column, for readers that want many of them without JSON around them.

Data and meta are the texts of the writers, cut out of the stored text and never parsed; data that
were sent as bytes are decoded for the column of values. A page ends
at a seq, a number of rows or a size, whichever comes first, and holds at least one row if there is
one. Changes nothing.
"""

import json
from base64 import b64decode
from typing import Final, final

from librt.strings import read_i16_le, read_i32_le, read_i64_le
from mypy_extensions import i64

from jobyard.engine.logs.read import fit_end, size_between, whole_texts
from jobyard.journal.journal import Journal
from jobyard.model.topic.columns import Column, NumberColumn, TextColumn
from jobyard.model.topic.log import LogTopic, next_alive, next_dead
from jobyard.model.topic.log_chunk import LogChunk
from jobyard.model.topic.log_rows import META_FRAME_SIZE, base64_of, data_from, is_binary_at

# The sizes of `"$tag":` and `"$node":`.
_TAG_SIZE: Final = 7
_NODE: Final = b'"$node":'
_NODE_SIZE: Final = 8


@final
class RecordText:
    """Columns that are cut out of the text of records; bits."""

    META: Final = 1
    DATA: Final = 2
    VALUES: Final = 4


@final
class LogColumns:
    """Consecutive records of a log."""

    def __init__(self, after_seq: i64, wanted: int) -> None:
        # If no text is wanted, none is read; columns of text that are not wanted stay empty.
        self.has_text: bool = wanted != 0
        self.has_meta: bool = wanted & RecordText.META != 0
        self.has_data: bool = wanted & RecordText.DATA != 0
        self.has_values: bool = wanted & RecordText.VALUES != 0
        self.seqs = NumberColumn()
        # Wall clock, in microseconds.
        self.times = NumberColumn()
        self.tags = TextColumn()
        self.nodes = TextColumn()
        self.metas = TextColumn()
        self.data = TextColumn()
        # Data as bytes: the JSON text, or what was sent as bytes.
        self.values = TextColumn()
        self.count: i64 = 0
        self.first_seq: i64 = 0
        self.last_seq: i64 = 0
        # There are no other records up to here.
        self.reached_seq: i64 = after_seq

    def columns(self) -> list[Column]:
        """Return the columns in the order that readers see."""
        return [
            self.seqs,
            self.times,
            self.tags,
            self.nodes,
            self.metas,
            self.data,
            self.values,
        ]


def count_between(log: LogTopic, after_seq: i64, to_seq: i64) -> i64:
    """Return how many records there are after `after_seq`, up to `to_seq`."""
    count: i64 = 0
    index = log.chunk_index(after_seq + 1)
    while index < len(log.chunks):
        chunk = log.chunks[index]
        if chunk.base > to_seq:
            break
        if chunk.base > after_seq and chunk.last_seq() <= to_seq:
            count += chunk.count
        else:
            start = int(max(after_seq + 1 - chunk.base, 0))
            end = int(min(to_seq + 1 - chunk.base, chunk.used()))
            count += chunk.dead.count(0, start, end)
        index += 1
    return count


def columns_between(
    journal: Journal,
    log: LogTopic,
    after_seq: i64,
    to_seq: i64,
    rows_max: i64,
    bytes_max: i64,
    wanted: int = RecordText.META | RecordText.DATA,
) -> LogColumns:
    """Return the next records after `after_seq`, up to `to_seq`, as many as fit on a page.

    A page ends before text that is damaged on disk; TextDamaged if it would begin with it.
    """
    page = LogColumns(after_seq, wanted)
    left = bytes_max
    index = log.chunk_index(after_seq + 1)
    while index < len(log.chunks):
        chunk = log.chunks[index]
        if chunk.base > to_seq:
            break
        left = _take(journal, chunk, page, to_seq, rows_max, left)
        if left < 0:
            return page
        index += 1
    page.reached_seq = to_seq
    return page


def _take(
    journal: Journal, chunk: LogChunk, page: LogColumns, to_seq: i64, rows_max: i64, left: i64
) -> i64:
    """Add the records of a chunk; return the bytes left, or -1 for a full page."""
    stop: i64 = min(to_seq + 1 - chunk.base, chunk.used())
    slot = max(page.reached_seq + 1 - chunk.base, 0)
    while True:
        start = next_alive(chunk, slot)
        if start >= stop:
            return left
        if page.count >= rows_max:
            return -1
        end = min(next_dead(chunk, start), stop, start + rows_max - page.count)
        taken = end
        if page.has_text:
            taken = fit_end(chunk, start, end, left, needs_one=page.count == 0)
            if taken == start:
                return -1
            left = max(left - size_between(chunk, start, taken), 0)
        if _add(journal, chunk, page, start, taken) < end:
            return -1
        slot = taken


def _add(journal: Journal, chunk: LogChunk, page: LogColumns, start: i64, end: i64) -> i64:
    """Add the records of slots that all hold one; return the end of those that are whole."""
    texts: list[bytes] = []
    is_here = chunk.is_joined and not chunk.is_cold
    if page.has_text and not is_here:
        texts = whole_texts(journal, chunk, start, end, needs_one=page.count == 0)
        end = start + len(texts)
        if not texts:
            return end
    if page.count == 0:
        page.first_seq = chunk.base + start
    page.count += end - start
    page.last_seq = chunk.base + end - 1
    page.reached_seq = page.last_seq
    _add_labels(chunk, page, start, end)
    # Columns are copied whole: reading one item of an array costs more than writing it.
    times = chunk.ts[start:end].tobytes()
    if not page.has_text:
        _add_places(page, chunk.base + start, times)
        return end
    metas = chunk.metas[start:end].tobytes() if chunk.has_meta else b""
    if not chunk.has_meta and page.has_meta:
        page.metas.add_nulls(end - start)
    if not is_here:
        at: i64 = 0
        while at < len(texts):
            text = texts[at]
            seq = chunk.base + start + at
            _add_row(page, seq, read_i64_le(times, 8 * at), _meta_at(metas, at), text, 0, len(text))
            at += 1
        return end
    text = chunk.text
    ends = chunk.ends[start:end].tobytes()
    text_start = chunk.start_of(start)
    at = 0
    while at < end - start:
        text_end: i64 = i64(read_i32_le(ends, 4 * at)) & 0xFFFFFFFF
        seq = chunk.base + start + at
        ts = read_i64_le(times, 8 * at)
        _add_row(page, seq, ts, _meta_at(metas, at), text, text_start, text_end)
        text_start = text_end
        at += 1
    return end


def _add_places(page: LogColumns, seq: i64, times: bytes) -> None:
    """Add the seqs and times of records from `seq` on."""
    at: i64 = 0
    while at < len(times):
        page.seqs.add(seq)
        page.times.add(read_i64_le(times, at) * 1000)
        seq += 1
        at += 8


def _meta_at(metas: bytes, at: i64) -> i64:
    return i64(read_i16_le(metas, 2 * at)) & 0xFFFF if len(metas) > 0 else -1


def _add_row(
    page: LogColumns, seq: i64, ts: i64, meta_size: i64, text: bytes, start: i64, end: i64
) -> None:
    """Add the record with the text from `start` to `end`.

    `meta_size` is -1 for a chunk without any meta.
    """
    page.seqs.add(seq)
    page.times.add(ts * 1000)
    data_end = end - 1
    if meta_size > 0:
        if page.has_meta:
            page.metas.add(text[data_end - meta_size : data_end])
        data_end -= meta_size + META_FRAME_SIZE
    elif meta_size == 0 and page.has_meta:
        page.metas.add_nulls(1)
    data_at: i64 = start + data_from(seq, ts)
    if is_binary_at(text, data_at):
        encoded = base64_of(text, data_at, data_end)
        if page.has_data:
            page.data.add(b"".join([b'{"$base64":"', encoded, b'"}']))
        if page.has_values:
            page.values.add(b64decode(encoded))
        return
    data = text[data_at:data_end]
    if page.has_data:
        page.data.add(data)
    if page.has_values:
        page.values.add(data)


def _add_labels(chunk: LogChunk, page: LogColumns, start: i64, end: i64) -> None:
    if not chunk.has_labels:
        page.tags.add_nulls(end - start)
        page.nodes.add_nulls(end - start)
        return
    while start < end:
        label = chunk.label_at(start)
        at: i64 = label.find(_NODE)
        if at < 0:
            at = len(label)
            page.nodes.add_nulls(1)
        else:
            page.nodes.add(_plain(label[at + _NODE_SIZE : -1]))
        # Both labels end with a comma.
        if at > 0:
            page.tags.add(_plain(label[_TAG_SIZE : at - 1]))
        else:
            page.tags.add_nulls(1)
        start += 1


def _plain(quoted: bytes) -> bytes:
    """Decode a JSON string."""
    if b"\\" not in quoted:
        return quoted[1:-1]
    text: str = json.loads(quoted)
    return text.encode()
