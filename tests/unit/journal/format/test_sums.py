"""The sums of a batch's records: which sector is damaged, and where records begin behind it."""

from random import Random
from zlib import crc32

import pytest

from jobyard.journal.format.segment import (
    BATCH_HEADER_SIZE,
    SEGMENT_HEADER_SIZE,
    BatchHead,
    HeadFields,
    Segment,
    encode_batch,
)
from jobyard.journal.format.sums import (
    BLOCK,
    SUM_SIZE,
    Summing,
    encode_sums,
    find_bad,
    first_record,
    sums_size,
    sums_size_max,
)
from jobyard.journal.recovery.reader import Reader
from jobyard.journal.repair.bit_flip import SIZE_MAX, corrected
from tests.support.site.storage import MemoryStorage


def records(*lengths: int) -> bytes:
    """Return records of nothing but a length."""
    return b"".join(
        bytes(4) + length.to_bytes(4, "little") + b"r" * (length - 8) for length in lengths
    )


@pytest.mark.parametrize("start", [0, 1, 160, 511, 512, 700])
def test_every_sector_of_the_file_has_a_sum_and_its_first_record(start: int) -> None:
    data = records(8, 100, 600, 40, 1500, 24, 8)
    sums = encode_sums(data, start)
    assert len(sums) == sums_size(start, len(data)) <= sums_size_max(len(data))
    begins = [0, 8, 108, 708, 748, 2248, 2272]
    at = number = 0
    while at < len(data):
        stop = min(len(data), at + BLOCK - (start + at) % BLOCK)
        inside = [begin for begin in begins if at <= begin < stop]
        assert first_record(sums, number) == (inside[0] - at if inside else -1)
        at = stop
        number += 1
    assert number * SUM_SIZE == len(sums)


@pytest.mark.parametrize("start", [0, 160, 511])
def test_pieces_are_summed_as_if_they_were_joined(start: int) -> None:
    draw = Random(start)
    lengths = [draw.choice([8, 30, 700, 3000]) for _ in range(40)]
    data = records(*lengths)
    sums = encode_sums(data, start)
    for most in (1, 600, 5000, len(data) + 1):
        pieces = []
        for length in lengths:
            one, data = data[:length], data[length:]
            cut = draw.randrange(8, length + 1)
            pieces += [one[:cut], one[cut:cut], one[cut:]]
        data = b"".join(pieces)
        summing = Summing(pieces, start)
        while not summing.is_done():
            assert 0 < summing.proceed(most) < most + BLOCK
        assert summing.sums() == sums


@pytest.mark.parametrize("start", [0, 160, 511])
def test_a_damaged_sector_is_found(start: int) -> None:
    data = records(*[90] * 20)
    sums = encode_sums(data, start)
    whole = data + sums
    assert find_bad(whole, 0, start, len(data)) == -1
    for at in range(0, len(data), 7):
        wrong = bytearray(whole)
        wrong[at] ^= 0x21
        number = find_bad(bytes(wrong), 0, start, len(data))
        assert number == (start + at) // BLOCK - start // BLOCK
        assert find_bad(bytes(wrong), 0, start, len(data), number + 1) == -1


def test_short_batches_have_none_and_are_as_they_were() -> None:
    segment = Segment(7, 0, 100_000)
    fields = HeadFields(1, 0, 1)
    short = BatchHead(encode_batch(segment, 1, fields, records(512), []), 0)
    assert (short.sums_size, short.records_size, short.part1_size) == (0, 512, 512)
    long = encode_batch(segment, 1, fields, records(300, 300), [b"bo", b"dy"])
    head = BatchHead(long, 0)
    assert head.records_size == 600
    assert head.sums_size == sums_size(int(segment.end) + BATCH_HEADER_SIZE, 600)
    assert head.part2_crc == crc32(b"body")
    assert long.endswith(b"body")
    assert len(long) == head.total_size()


def test_a_flipped_bit_is_found_and_other_damage_is_not() -> None:
    draw = Random(5)
    data = draw.randbytes(BLOCK)
    known = crc32(data, 77)
    for _ in range(8):
        wrong = bytearray(data)
        wrong[draw.randrange(BLOCK)] ^= 1 << draw.randrange(8)
        assert corrected(bytes(wrong), known, 77) == data
    for _ in range(3):
        assert corrected(draw.randbytes(BLOCK), known, 77) is None
    assert corrected(bytes(SIZE_MAX + 1), known) is None


def test_a_batch_of_an_older_format_is_read_though_it_is_long() -> None:
    """Its checksum is over the header and all records, and the place of the sums is zero."""
    part1 = records(400, 300, 900)
    segment = Segment(7, 0, 10_000)
    head = bytearray(encode_batch(segment, 5, HeadFields(1, 0, 9), part1, [])[:BATCH_HEADER_SIZE])
    head[4:8] = len(part1).to_bytes(4, "little")
    head[84:88] = bytes(4)
    head[88:96] = crc32(part1, crc32(head[:88])).to_bytes(8, "little")
    storage = MemoryStorage()
    storage.create(segment.name, int(segment.size))
    storage.write(segment.name, SEGMENT_HEADER_SIZE, bytes(head) + part1)
    reader = Reader(storage, segment)
    found = reader.next()
    assert found is not None
    assert (found.number, found.records_size, found.sums_size) == (5, len(part1), 0)
    storage.flip(segment.name, SEGMENT_HEADER_SIZE + BATCH_HEADER_SIZE + 1000, 3)
    assert Reader(storage, segment).next() is None
