from librt.strings import BytesWriter, read_i32_le

from jobyard.journal.format.key_record import (
    KEYS_PER_RECORD,
    KIND_KEYS,
    KeyRows,
    keys_length,
    read_keys,
    write_keys,
)
from jobyard.journal.format.log_record import SPAN_MAX
from jobyard.model.topic.key_table import digest_of


def test_keys_are_read_as_they_were_written() -> None:
    rows = KeyRows(7, 1 << 40, 1_700_000_000_000)
    rows.add(digest_of("a"), 1 << 40, 1_700_000_000_000)
    rows.add(digest_of("b"), (1 << 40) - SPAN_MAX, 1_700_000_000_000 + SPAN_MAX)
    out = BytesWriter()
    out.write(b"before")
    write_keys(out, rows)
    data = out.getvalue()
    assert data[6] == KIND_KEYS
    assert read_i32_le(data, 10) == len(data) - 6 == keys_length(2) == 32 + 2 * 24
    found = read_keys(data, 6)
    assert (found.table, found.digests) == (7, [digest_of("a"), digest_of("b")])
    assert (found.seqs, found.times) == (rows.seqs, rows.times)


def test_keys_that_are_too_far_apart_need_records_of_their_own() -> None:
    rows = KeyRows(7, 100, 1000)
    assert rows.may_take(100 + SPAN_MAX, 1000 - SPAN_MAX)
    assert not rows.may_take(101 + SPAN_MAX, 1000)
    assert not rows.may_take(100, 1001 + SPAN_MAX)
    assert not rows.may_take(100, 999 - SPAN_MAX)
    for _ in range(KEYS_PER_RECORD):
        assert rows.may_take(100, 1000)
        rows.add(digest_of("a"), 100, 1000)
    assert not rows.may_take(100, 1000)
    assert keys_length(KEYS_PER_RECORD) == 32 + 24 * KEYS_PER_RECORD
    assert keys_length(KEYS_PER_RECORD + 1) == 64 + 24 * (KEYS_PER_RECORD + 1)
