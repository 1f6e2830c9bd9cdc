"""The bytes of the records of logs.

They begin as all records do (see `record`), then:

    LOG      8 log i32, 12 rows i32, 16 first seq, 24 ts, 32 at, 40 cap floor, 48 ttl floor
             56 rows of the write i32, 60 key size i32, 64 rows, key, labels, texts
    HEAD     8 log i32, 12 name size i32, 16 next seq, 24 seq limit, 32 cap floor, 40 ttl floor
             48 erased floor, 56 incarnation, 64 last write, 72 name
    ERASED   8 log i32, 12 ranges i32, 16 segment i32, 20 0 i32, 24 ranges: first seq, count i32

    row, 24 bytes: seq - first i32, text size i32, meta size i32, tag size i16, node size i16,
                   ts - that of the record i32, at - that of the record i32

The text of a record and its labels (tag, then node) are written as readers see them, so that
reading back means slicing; the text alone says whether data are bytes. All of it is in part 1 of a
batch, under its checksum.

One write is one LOG, so all of it counts or none. Compaction may copy records of several writes
into one LOG too, unless a key names the write. A LOG stores the floors of the caps at the time it
was written; any other change of a floor writes the head again. ERASED names records that were
deleted one by one, by the segment that holds them, and is kept as long as that segment exists.
"""

from typing import Final, final

from librt.strings import (
    BytesWriter,
    read_i16_le,
    read_i32_le,
    read_i64_le,
    write_i32_le,
    write_i64_le,
)
from mypy_extensions import i32, i64

from jobyard.model.topic.log import LogTopic
from jobyard.model.topic.log_rows import LogRows

KIND_LOG: Final = 14
KIND_HEAD: Final = 15
KIND_ERASED: Final = 16

LOG_SIZE: Final = 64
ROW_SIZE: Final = 24
HEAD_SIZE: Final = 72
ERASED_SIZE: Final = 24
RANGE_SIZE: Final = 12

# In a row, the size of a label has two bytes, and a time four, relative to that of the record.
LABEL_SIZE_MAX: Final = 0x7FFF
SPAN_MAX: Final = (1 << 31) - 1


def log_length(rows: LogRows) -> i64:
    """Return the size of the record of some rows."""
    return LOG_SIZE + ROW_SIZE * len(rows.seqs) + rows.size + len(rows.key.encode())


def may_share(rows: LogRows, seq: i64, ts: i64, at_ms: i64) -> bool:
    """Return whether a row fits into the same record as others."""
    return (
        0 <= seq - rows.first_seq <= SPAN_MAX
        and -SPAN_MAX <= ts - rows.ts <= SPAN_MAX
        and -SPAN_MAX <= at_ms - rows.at_ms <= SPAN_MAX
    )


def _begin(out: BytesWriter, kind: i64, length: i64) -> None:
    write_i64_le(out, kind | length << 32)


def write_log(out: BytesWriter, log: LogTopic, rows: LogRows) -> None:
    """Encode records of a log, and the floors below which its caps removed others."""
    write_log_rows(out, log, rows)
    for text in rows.texts:
        out.write(text)


def write_log_rows(out: BytesWriter, log: LogTopic, rows: LogRows) -> None:
    """Encode all of a LOG except the texts, which the caller writes next."""
    key = rows.key.encode()
    count: i64 = len(rows.seqs)
    _begin(out, KIND_LOG, log_length(rows))
    write_i32_le(out, i32(log.number))
    write_i32_le(out, i32(count))
    write_i64_le(out, rows.first_seq)
    write_i64_le(out, rows.ts)
    write_i64_le(out, rows.at_ms)
    write_i64_le(out, log.cap_floor)
    write_i64_le(out, log.ttl_floor)
    write_i32_le(out, i32(rows.total))
    write_i32_le(out, i32(len(key)))
    i: i64 = 0
    while i < count:
        seq: i64 = rows.seqs[i]
        write_i64_le(out, (seq - rows.first_seq) | len(rows.texts[i]) << 32)
        labels: i64 = len(rows.tags[i]) | len(rows.nodes[i]) << 16
        write_i64_le(out, i64(rows.metas[i]) | labels << 32)
        if rows.is_one_time:
            write_i64_le(out, 0)
        else:
            write_i32_le(out, i32(rows.times[i] - rows.ts))
            write_i32_le(out, i32(rows.arrivals[i] - rows.at_ms))
        i += 1
    if key:
        out.write(key)
    if rows.labels_size > 0:
        out.write(b"".join(rows.labels))


def read_log(data: bytes, pos: i64) -> LogRows:
    """Return the records that a LOG holds."""
    rows = LogRows(read_i64_le(data, pos + 16), read_i64_le(data, pos + 24), 0)
    rows.at_ms = read_i64_le(data, pos + 32)
    rows.total = i64(read_i32_le(data, pos + 56))
    count = i64(read_i32_le(data, pos + 12))
    at: i64 = pos + LOG_SIZE
    key_at: i64 = at + count * ROW_SIZE
    label_at: i64 = key_at + i64(read_i32_le(data, pos + 60))
    rows.key = data[key_at:label_at].decode()
    text_at = label_at
    i: i64 = 0
    while i < count:
        row: i64 = at + i * ROW_SIZE
        text_at += i64(read_i16_le(data, row + 12)) + i64(read_i16_le(data, row + 14))
        i += 1
    i = 0
    while i < count:
        text_end: i64 = text_at + i64(read_i32_le(data, at + 4))
        tag_end: i64 = label_at + i64(read_i16_le(data, at + 12))
        node_end: i64 = tag_end + i64(read_i16_le(data, at + 14))
        rows.add(
            rows.first_seq + i64(read_i32_le(data, at)),
            rows.ts + i64(read_i32_le(data, at + 16)),
            rows.at_ms + i64(read_i32_le(data, at + 20)),
            data[text_at:text_end],
            i64(read_i32_le(data, at + 8)),
            data[label_at:tag_end],
            data[tag_end:node_end],
        )
        at += ROW_SIZE
        text_at = text_end
        label_at = node_end
        i += 1
    return rows


def head_bytes(log: LogTopic) -> i64:
    """Return the size of a log's HEAD record. A name is ASCII."""
    return HEAD_SIZE + len(log.name)


def write_head(out: BytesWriter, log: LogTopic) -> None:
    """Encode everything stored about a log except its records and its configuration."""
    name = log.name.encode()
    _begin(out, KIND_HEAD, HEAD_SIZE + len(name))
    write_i32_le(out, i32(log.number))
    write_i32_le(out, i32(len(name)))
    write_i64_le(out, log.next_seq)
    write_i64_le(out, log.seq_limit)
    write_i64_le(out, log.cap_floor)
    write_i64_le(out, log.ttl_floor)
    write_i64_le(out, log.erased_floor)
    write_i64_le(out, log.incarnation)
    write_i64_le(out, log.last_write_ms)
    out.write(name)


@final
class Erased:
    """Records of one log in one segment that were deleted: ranges of seqs."""

    def __init__(self, number: i64, segment: i64) -> None:
        self.number: i64 = number
        self.segment: i64 = segment
        self.firsts: list[int] = []
        self.counts: list[int] = []

    def add(self, seq: i64) -> None:
        """Add a seq that is greater than all before."""
        if self.firsts and self.firsts[-1] + self.counts[-1] == seq:
            self.counts[-1] += 1
        else:
            self.firsts.append(seq)
            self.counts.append(1)

    def length(self) -> i64:
        """Return the size of the record."""
        return ERASED_SIZE + RANGE_SIZE * len(self.firsts)


def write_erased(out: BytesWriter, erased: Erased) -> None:
    """Encode which records of a segment were deleted."""
    _begin(out, KIND_ERASED, erased.length())
    write_i32_le(out, i32(erased.number))
    write_i32_le(out, i32(len(erased.firsts)))
    write_i32_le(out, i32(erased.segment))
    write_i32_le(out, 0)
    for i in range(len(erased.firsts)):
        write_i64_le(out, erased.firsts[i])
        write_i32_le(out, i32(erased.counts[i]))


def read_erased(data: bytes, pos: i64) -> Erased:
    """Decode an ERASED."""
    erased = Erased(i64(read_i32_le(data, pos + 8)), i64(read_i32_le(data, pos + 16)))
    at: i64 = pos + ERASED_SIZE
    end: i64 = at + RANGE_SIZE * i64(read_i32_le(data, pos + 12))
    while at < end:
        erased.firsts.append(read_i64_le(data, at))
        erased.counts.append(i64(read_i32_le(data, at + 8)))
        at += RANGE_SIZE
    return erased
