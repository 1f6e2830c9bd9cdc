from librt.strings import BytesWriter

from jobyard.journal.format.log_record import (
    Erased,
    head_bytes,
    log_length,
    may_share,
    read_erased,
    read_log,
    write_erased,
    write_head,
    write_log,
)
from jobyard.model.topic.config import TopicConfig
from jobyard.model.topic.log import LogTopic
from jobyard.model.topic.log_rows import LogRows


def some_rows() -> LogRows:
    rows = LogRows(7, 1_700_000_000_000, 5000)
    rows.key = "kéy"
    rows.total = 9
    rows.add(8, 1_700_000_000_001, 4000, b',{"$seq":8}', 0, b'"$tag":"t",', b"")
    rows.add(12, 1_699_999_999_000, 6000, b',{"$seq":12}', 5, b"", b'"$node":"n",')
    rows.add(13, 1_700_000_000_000, 5000, b',{"$seq":13}', 0, b"", b"")
    return rows


def test_rows_are_read_back_as_they_were() -> None:
    log = LogTopic("log", TopicConfig())
    log.number = 3
    rows = some_rows()
    out = BytesWriter()
    out.write(b"before")
    write_log(out, log, rows)
    assert len(out) == 6 + log_length(rows)
    found = read_log(out.getvalue(), 6)
    for name in ("first_seq", "ts", "at_ms", "key", "total", "size", "labels_size"):
        assert getattr(found, name) == getattr(rows, name), name
    for name in ("seqs", "times", "arrivals", "metas", "contents", "tags", "nodes", "texts"):
        assert getattr(found, name) == getattr(rows, name), name


def test_the_record_of_a_key_may_hold_no_rows() -> None:
    log = LogTopic("log", TopicConfig())
    rows = LogRows(7, 1, 2)
    rows.key = "k"
    rows.total = 4
    out = BytesWriter()
    write_log(out, log, rows)
    found = read_log(out.getvalue(), 0)
    assert (found.first_seq, found.total, found.key, found.seqs) == (7, 4, "k", [])


def test_rows_share_a_record_only_where_their_distance_can_be_written() -> None:
    rows = some_rows()
    assert may_share(rows, 7 + (1 << 31) - 1, rows.ts, rows.at_ms)
    assert not may_share(rows, 7 + (1 << 31), rows.ts, rows.at_ms)
    assert not may_share(rows, 6, rows.ts, rows.at_ms)
    assert not may_share(rows, 8, rows.ts + (1 << 31), rows.at_ms)
    assert not may_share(rows, 8, rows.ts, rows.at_ms - (1 << 31))


def test_deleted_seqs_are_kept_as_ranges() -> None:
    erased = Erased(3, 77)
    for seq in (1, 2, 3, 1 << 40, 1 << 41, (1 << 41) + 1):
        erased.add(seq)
    assert erased.firsts == [1, 1 << 40, 1 << 41]
    assert erased.counts == [3, 1, 2]
    out = BytesWriter()
    write_erased(out, erased)
    assert len(out) == erased.length()
    found = read_erased(out.getvalue(), 0)
    assert (found.number, found.segment) == (3, 77)
    assert (found.firsts, found.counts) == (erased.firsts, erased.counts)


def test_a_head_is_as_long_as_it_says() -> None:
    log = LogTopic("some-log", TopicConfig())
    out = BytesWriter()
    write_head(out, log)
    assert len(out) == head_bytes(log)
