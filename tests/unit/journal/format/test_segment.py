import struct
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobyard.errors import StartRefused
from jobyard.journal.format.segment import (
    BATCH_HEADER_SIZE,
    BATCH_MAGIC,
    BATCH_MAGIC_BYTES,
    COLD,
    HOT,
    SEAL_MAGIC,
    SEAL_MAGIC_BYTES,
    SEAL_SIZE,
    SEGMENT_FORMAT,
    SEGMENT_HEADER_SIZE,
    BatchHead,
    HeadFields,
    Segment,
    encode_batch,
    encode_seal,
    encode_segment_header,
    is_strange,
    segment_name,
    segment_number,
    spare_name,
    spare_number,
)
from jobyard.journal.recovery.scan import Recovery
from tests.support.site.storage import MemoryStorage

NATURAL = st.integers(0, (1 << 63) - 1)


@given(st.integers(1, (1 << 31) - 1))
def test_the_number_of_a_file_is_read_from_its_name(number: int) -> None:
    assert segment_number(segment_name(number)) == number
    assert spare_number(spare_name(number)) == number
    assert segment_number(spare_name(number)) == 0
    assert spare_number(segment_name(number)) == 0


def test_other_files_are_no_segments() -> None:
    for name in ("lock", "journal", ".journal", "x.journal", "-1.journal", "1.journal.damaged"):
        assert segment_number(name) == 0
        assert spare_number(name) == 0


def test_names_sort_as_their_numbers_do() -> None:
    numbers = [1, 9, 10, 99, 100, 4_294_967_295]
    assert sorted(map(segment_name, numbers)) == [segment_name(number) for number in numbers]


def test_a_segment_header_is_laid_out_as_drawn() -> None:
    header = encode_segment_header(Segment(7, COLD, 100), 3, 41, 12, -5)
    assert len(header) == SEGMENT_HEADER_SIZE
    magic, *fields = struct.unpack("<8siiiiqqqqq", header)
    assert magic == b"JOBYARD\n"
    assert fields == [SEGMENT_FORMAT, 7, 3, COLD, 41, 12, -5, 0, crc32(header[:56])]


@given(NATURAL, NATURAL, st.integers(-(1 << 62), 1 << 62), st.binary(max_size=40), st.binary())
def test_a_batch_reads_back_as_it_was_written(
    number: int, next_id: int, wall_ms: int, part1: bytes, part2: bytes
) -> None:
    segment = Segment(9, HOT, 1 << 20)
    segment.last_batch = 4
    fields = HeadFields(2, wall_ms, next_id)
    fields.durable, fields.first_record, fields.other = 3, 17, 2
    data = encode_batch(segment, number, fields, part1, [part2])
    head = BatchHead(b"??" + data, 2)
    assert data.startswith(BATCH_MAGIC_BYTES)
    assert (head.magic, head.number, head.segment, head.epoch) == (BATCH_MAGIC, number, 9, 2)
    assert (head.wall_offset_ms, head.next_id) == (wall_ms, next_id)
    assert (head.durable, head.first_record, head.previous, head.other) == (3, 17, 4, 2)
    assert (head.part1_size, head.part2_size) == (len(part1), len(part2))
    assert head.part2_crc == crc32(part2)
    assert head.crc == crc32(part1, crc32(data[: BATCH_HEADER_SIZE - 8]))
    assert head.total_size() == len(data)
    assert data[BATCH_HEADER_SIZE:] == part1 + part2


def test_a_seal_is_a_header_without_contents() -> None:
    segment = Segment(9, HOT, 1 << 20)
    segment.last_batch = 4
    data = encode_seal(segment, 6, HeadFields(2, 0, 10))
    head = BatchHead(data, 0)
    assert len(data) == SEAL_SIZE == head.total_size()
    assert data.startswith(SEAL_MAGIC_BYTES)
    assert (head.magic, head.number, head.previous) == (SEAL_MAGIC, 6, 4)
    assert head.crc == crc32(data[: SEAL_SIZE - 8])


def test_a_new_segment_begins_behind_its_header_and_holds_nothing() -> None:
    segment = Segment(3, COLD, 1000)
    assert segment.name == segment_name(3)
    assert (segment.end, segment.live, segment.is_sealed) == (SEGMENT_HEADER_SIZE, 0, False)
    assert segment.kills == {}


@pytest.mark.parametrize(
    ("name", "is_odd"),
    [
        ("0000000012.journal", False),
        ("2147483647.spare", False),
        ("99999999999999999999.journal", True),
        ("2147483648.journal", True),
        ("0000000000.journal", True),
        ("12.journal", True),
        ("00000000012.spare", True),
        ("lock", False),
        ("notes.journal", False),
        ("0000000012.journal.damaged", False),
    ],
)
def test_names_that_no_journal_gives_are_told_from_others(name: str, *, is_odd: bool) -> None:
    assert is_strange(name) == is_odd
    if is_odd:
        assert segment_number(name) == spare_number(name) == 0


def test_a_file_with_such_a_name_refuses_the_start() -> None:
    storage = MemoryStorage()
    storage.create("99999999999999999999.journal", 10)
    with pytest.raises(StartRefused, match=r"9{20}\.journal is not a journal file"):
        Recovery(storage).survey()
