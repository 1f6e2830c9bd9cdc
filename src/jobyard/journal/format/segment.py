r"""One file of the journal: its name, its header, its batches and its seal, as bytes.

    segment header, 64 bytes        batch header, 96 bytes             seal, 96 bytes
     0  magic "JOBYARD\n"             0  magic "JYBT" i32                0  magic "JYSL" i32
     8  format i32                   4  part 1 size i32                 4  0
    12  segment number i32           8  part 2 size                     8  0
    16  epoch i32                   16  batch number                   16  newest batch number
    20  temperature i32             24  segment number i32             24  segment number i32
    24  next id                     28  epoch i32                      28  epoch i32
    32  last batch number           32  wall - steady ms               32  0
    40  wall - steady ms            40  next id                        40  next id
    48  hot segment before it       48  newest durable batch           48  newest durable batch
    56  crc of bytes 0-55           56  first record number            56  next record number
                                    64  batch before it in this file   64  last batch in this file
                                    72  newest of other temperature    72  same
                                    80  crc of part 2 i32              80  0
                                    84  size of the sums i32           84  0
                                    88  crc of bytes 0-87 and the      88  crc of bytes 0-87
                                        sums, or part 1 without any

A batch is header, part 1 (records, followed by their sums if they are long: see `sums.py`) and
part 2 (bodies too long to inline). The checksum covers the segment number, so batches of an older
use of a recycled file are never read as new. A hot segment names the one before it, itself if there
was none, or 0 if no history is kept; history ends at a segment that is gone, and at a 0. A sealed
segment is never written again. Segments are hot (fresh records) or cold (records that compaction
copied); batch numbers run through both, and replay follows the numbers.
"""

from typing import Final, final
from zlib import crc32

from librt.strings import BytesWriter, read_i32_le, read_i64_le, write_i32_le, write_i64_le
from mypy_extensions import i32, i64

from jobyard.journal.format.sums import BLOCK, encode_sums

# 3 added logs, 4 sums, 5 who ran a job. Older ones are read too: their records show what they lack.
SEGMENT_FORMAT: Final = 5
SEGMENT_FORMAT_OLDEST: Final = 2
SEGMENT_MAGIC: Final = b"JOBYARD\n"
BATCH_MAGIC: Final = 0x5442594A
BATCH_MAGIC_BYTES: Final = b"JYBT"
SEAL_MAGIC: Final = 0x4C53594A
SEAL_MAGIC_BYTES: Final = b"JYSL"
SEGMENT_HEADER_SIZE: Final = 64
BATCH_HEADER_SIZE: Final = 96
SEAL_SIZE: Final = 96
HOT: Final = 0
COLD: Final = 1

# Segment numbers have 32 bits on disk, and ten digits in file names.
SEGMENT_NUMBER_MAX: Final = 0x7FFFFFFF
# A longer part of a batch is written without a copy; a shorter copy is cheaper than another write.
COPIED_MAX: Final = 64 << 10
_DIGITS: Final = 10
_NAME_TAIL: Final = ".journal"
_SPARE_TAIL: Final = ".spare"


def segment_name(number: int) -> str:
    """Return the file name of a segment."""
    return f"{number:010d}{_NAME_TAIL}"


def spare_name(number: int) -> str:
    """Return the file name of an unused, preallocated file."""
    return f"{number:010d}{_SPARE_TAIL}"


def segment_number(name: str) -> int:
    """Return the number in a segment's file name, or 0 for any other file."""
    return _number(name, _NAME_TAIL)


def spare_number(name: str) -> int:
    """Return the number in a spare's file name, or 0 for any other file."""
    return _number(name, _SPARE_TAIL)


def is_strange(name: str) -> bool:
    """Return whether a name looks like a segment or spare but is not one that a journal creates."""
    for tail in (_NAME_TAIL, _SPARE_TAIL):
        if name.endswith(tail) and name.removesuffix(tail).isdigit():
            return _number(name, tail) == 0
    return False


def _number(name: str, tail: str) -> int:
    stem = name.removesuffix(tail)
    is_number = len(stem) == _DIGITS and stem != name and stem.isascii() and stem.isdigit()
    number = int(stem) if is_number else 0
    return number if number <= SEGMENT_NUMBER_MAX else 0


@final
class Segment:
    """What the server keeps in memory about a segment."""

    def __init__(self, number: i64, temperature: i64, size: i64) -> None:
        self.number: i64 = number
        self.name: str = segment_name(number)
        self.temperature: i64 = temperature
        self.size: i64 = size
        # Where the next batch goes; once sealed, where the seal ends.
        self.end: i64 = SEGMENT_HEADER_SIZE
        self.is_sealed: bool = False
        # Its removal is announced: recovery must not require it.
        self.is_leaving: bool = False
        # Number of the last batch in it.
        self.last_batch: i64 = 0
        # Bytes that compaction would have to copy.
        self.live: i64 = 0
        # Bytes of kill records by the segment of the base they remove; part of `live`.
        self.kills: dict[int, int] = {}
        # How many names of removed queues that history needs are written here.
        self.past_names: i64 = 0
        # The hot segment before it, itself if there was none, 0 if it is unknown.
        self.prior: i64 = 0
        # Its records are numbered from the first (-1: it has none) to below the next.
        self.first_record: i64 = -1
        self.next_record: i64 = 0
        # The last of its records that is a row of history, or of those before it.
        self.last_row: i64 = 0
        # The newest wall time in its records.
        self.newest_ms: i64 = 0
        # No row of history in it is later: the wall clock may have gone back meanwhile.
        self.latest_ms: i64 = 0
        # Whether it is part of readable history and must not be removed.
        self.is_history: bool = False
        # Where some of its batches begin, and the number of the first record in each.
        self.points: list[i64] = []
        self.point_records: list[i64] = []
        # How many rows there are before each.
        self.point_rows: list[i64] = []


def encode_segment_header(
    segment: Segment, epoch: i64, next_id: i64, last_batch: i64, wall_ms: i64
) -> bytes:
    """Return the first 64 bytes of a segment."""
    out = BytesWriter()
    out.write(SEGMENT_MAGIC)
    write_i32_le(out, SEGMENT_FORMAT)
    write_i32_le(out, i32(segment.number))
    write_i32_le(out, i32(epoch))
    write_i32_le(out, i32(segment.temperature))
    write_i64_le(out, next_id)
    write_i64_le(out, last_batch)
    write_i64_le(out, wall_ms)
    write_i64_le(out, segment.prior)
    write_i64_le(out, crc32(out.getvalue()))
    return out.getvalue()


@final
class BatchHead:
    """The header of a batch or seal, read back."""

    def __init__(self, data: bytes, at: i64) -> None:
        self.magic: i64 = i64(read_i32_le(data, at))
        self.part1_size: i64 = i64(read_i32_le(data, at + 4))
        self.part2_size: i64 = read_i64_le(data, at + 8)
        self.number: i64 = read_i64_le(data, at + 16)
        self.segment: i64 = i64(read_i32_le(data, at + 24))
        self.epoch: i64 = i64(read_i32_le(data, at + 28))
        self.wall_offset_ms: i64 = read_i64_le(data, at + 32)
        self.next_id: i64 = read_i64_le(data, at + 40)
        self.durable: i64 = read_i64_le(data, at + 48)
        self.first_record: i64 = read_i64_le(data, at + 56)
        self.previous: i64 = read_i64_le(data, at + 64)
        self.other: i64 = read_i64_le(data, at + 72)
        summed = read_i64_le(data, at + 80)
        self.part2_crc: i64 = summed & 0xFFFFFFFF
        # Part 1 is records and then their sums.
        self.sums_size: i64 = summed >> 32
        self.records_size: i64 = self.part1_size - self.sums_size
        self.crc: i64 = read_i64_le(data, at + 88)

    def total_size(self) -> i64:
        """Return the size of the whole batch."""
        return BATCH_HEADER_SIZE + self.part1_size + self.part2_size


@final
class HeadFields:
    """What a batch header says about the state of the whole journal."""

    def __init__(self, epoch: i64, wall_offset_ms: i64, next_id: i64) -> None:
        self.epoch: i64 = epoch
        self.wall_offset_ms: i64 = wall_offset_ms
        self.next_id: i64 = next_id
        self.durable: i64 = 0
        self.first_record: i64 = 0
        # Newest batch of the other temperature: shows when the end of that stream is lost.
        self.other: i64 = 0


def encode_batch(
    segment: Segment, number: i64, fields: HeadFields, part1: bytes, bodies: list[bytes]
) -> bytes:
    """Return a whole batch, to be written at the end of its segment."""
    return b"".join(encode_pieces(segment, number, fields, part1, bodies, crc_of(bodies)))


def encode_pieces(
    segment: Segment,
    number: i64,
    fields: HeadFields,
    part1: bytes,
    bodies: list[bytes],
    bodies_crc: i64,
) -> list[bytes]:
    """Return a whole batch in pieces; long pieces are not copied."""
    sums = b""
    if len(part1) > BLOCK:
        sums = encode_sums(part1, segment.end + BATCH_HEADER_SIZE)
    size: i64 = len(part1) + len(sums)
    bodies_size: i64 = 0
    for body in bodies:
        bodies_size += len(body)
    out = begin_head(segment, number, fields, size, bodies_size)
    end_head(out, bodies_crc, sums, sums or part1)
    if size > COPIED_MAX:
        return [out.getvalue(), part1, sums, *bodies]
    out.write(part1)
    if sums:
        out.write(sums)
    if bodies_size > COPIED_MAX:
        return [out.getvalue(), *bodies]
    for body in bodies:
        out.write(body)
    return [out.getvalue()]


def begin_head(
    segment: Segment, number: i64, fields: HeadFields, part1_size: i64, part2_size: i64
) -> BytesWriter:
    """Return the header of a batch at the end of its segment, without its checksums."""
    return _encode_head(BATCH_MAGIC, segment, number, fields, (part1_size, part2_size))


def end_head(out: BytesWriter, bodies_crc: i64, sums: bytes, summed: bytes) -> None:
    """Add the checksums to the header of a batch; its own is over `summed` too."""
    write_i64_le(out, bodies_crc | i64(len(sums)) << 32)
    write_i64_le(out, crc32(summed, crc32(out.getvalue())))


def crc_of(bodies: list[bytes]) -> i64:
    """Return the checksum over bodies that follow each other."""
    crc: i64 = 0
    for body in bodies:
        crc = crc32(body, crc)
    return crc


def encode_seal(segment: Segment, number: i64, fields: HeadFields) -> bytes:
    """Return the seal of a segment; nothing after it counts."""
    out = _encode_head(SEAL_MAGIC, segment, number, fields, (0, 0))
    write_i64_le(out, 0)
    write_i64_le(out, crc32(out.getvalue()))
    return out.getvalue()


def _encode_head(
    magic: i64, segment: Segment, number: i64, fields: HeadFields, sizes: tuple[i64, i64]
) -> BytesWriter:
    out = BytesWriter()
    write_i32_le(out, i32(magic))
    write_i32_le(out, i32(sizes[0]))
    write_i64_le(out, sizes[1])
    write_i64_le(out, number)
    write_i32_le(out, i32(segment.number))
    write_i32_le(out, i32(fields.epoch))
    write_i64_le(out, fields.wall_offset_ms)
    write_i64_le(out, fields.next_id)
    write_i64_le(out, fields.durable)
    write_i64_le(out, fields.first_record)
    write_i64_le(out, segment.last_batch)
    write_i64_le(out, fields.other)
    return out
