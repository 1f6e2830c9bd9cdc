"""The bytes of the keys of records: one KEYS holds up to 2,048 keys of a write, or of copies.

It begins as all records do (see `record`), then:

    KEYS     8 table i32, 12 keys i32, 16 first seq, 24 at, 32 keys

    key, 24 bytes: digest, 16 bytes; seq - first i32, at - that of the record i32

The keys of a write are in the batch of its records, so both count or neither. A table is the keys
of one topic; the entry RECORD_KEY of the topic names its number, and the time up to which keys do
not count. Of two KEYS with the same digest the later one counts. Nothing is written when a key is
no longer valid: its age says so.
"""

from typing import Final, final

from librt.strings import BytesWriter, read_i32_le, read_i64_le, write_i32_le, write_i64_le
from mypy_extensions import i32, i64

from jobyard.journal.format.log_record import SPAN_MAX

KIND_KEYS: Final = 21

KEYS_SIZE: Final = 32
KEY_SIZE: Final = 24
# Keys of one record, so that compaction can look at them in slices.
KEYS_PER_RECORD: Final = 2048
_DIGEST_SIZE: Final = 16


@final
class KeyRows:
    """Keys of one table that are written or read together."""

    def __init__(self, table: i64, first_seq: i64, at_ms: i64) -> None:
        self.table: i64 = table
        self.first_seq: i64 = first_seq
        self.at_ms: i64 = at_ms
        self.digests: list[bytes] = []
        self.seqs: list[int] = []
        self.times: list[int] = []

    def add(self, digest: bytes, seq: i64, at_ms: i64) -> None:
        """Append a key."""
        self.digests.append(digest)
        self.seqs.append(seq)
        self.times.append(at_ms)

    def may_take(self, seq: i64, at_ms: i64) -> bool:
        """Return whether a key fits into the same record."""
        return (
            len(self.digests) < KEYS_PER_RECORD
            and -SPAN_MAX <= seq - self.first_seq <= SPAN_MAX
            and -SPAN_MAX <= at_ms - self.at_ms <= SPAN_MAX
        )


def keys_length(count: i64) -> i64:
    """Return the size of the records of some keys."""
    return KEYS_SIZE * ((count + KEYS_PER_RECORD - 1) // KEYS_PER_RECORD) + KEY_SIZE * count


def write_keys(out: BytesWriter, rows: KeyRows) -> None:
    """Encode a KEYS."""
    count: i64 = len(rows.digests)
    assert count <= KEYS_PER_RECORD
    write_i64_le(out, KIND_KEYS | keys_length(count) << 32)
    write_i32_le(out, i32(rows.table))
    write_i32_le(out, i32(count))
    write_i64_le(out, rows.first_seq)
    write_i64_le(out, rows.at_ms)
    i: i64 = 0
    while i < count:
        out.write(rows.digests[i])
        write_i32_le(out, i32(i64(rows.seqs[i]) - rows.first_seq))
        write_i32_le(out, i32(i64(rows.times[i]) - rows.at_ms))
        i += 1


def read_keys(data: bytes, pos: i64) -> KeyRows:
    """Decode a KEYS."""
    rows = KeyRows(
        i64(read_i32_le(data, pos + 8)), read_i64_le(data, pos + 16), read_i64_le(data, pos + 24)
    )
    at: i64 = pos + KEYS_SIZE
    end: i64 = at + KEY_SIZE * i64(read_i32_le(data, pos + 12))
    while at < end:
        rows.add(
            data[at : at + _DIGEST_SIZE],
            rows.first_seq + i64(read_i32_le(data, at + 16)),
            rows.at_ms + i64(read_i32_le(data, at + 20)),
        )
        at += KEY_SIZE
    return rows
