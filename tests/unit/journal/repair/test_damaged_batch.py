"""What is left of a damaged batch, record by record."""

from librt.strings import BytesWriter

from jobyard.journal.format.record import (
    GONE_SIZE,
    KIND_GONE,
    KIND_MOVED,
    KIND_NOTE,
    KIND_PUT,
    Cause,
    write_gone,
    write_queue,
)
from jobyard.journal.format.segment import (
    BATCH_HEADER_SIZE,
    SEAL_SIZE,
    SEGMENT_HEADER_SIZE,
    HeadFields,
    Segment,
    encode_batch,
    encode_seal,
    encode_segment_header,
)
from jobyard.journal.recovery.reader import Reader
from jobyard.journal.repair.salvage import repair_segment
from tests.support.site.storage import MemoryStorage

FIRST = SEGMENT_HEADER_SIZE + BATCH_HEADER_SIZE


def written(part1: bytes, number: int = 5) -> tuple[MemoryStorage, Segment]:
    """Return a sealed segment of one batch."""
    segment = Segment(3, 0, 0)
    fields = HeadFields(1, 0, 9)
    batch = encode_batch(segment, number, fields, part1, [])
    header = encode_segment_header(segment, 1, 9, 0, 0)
    segment.last_batch = number
    data = header + batch + encode_seal(segment, number, fields)
    storage = MemoryStorage()
    storage.create(segment.name, len(data))
    storage.write(segment.name, 0, data)
    segment.size = len(data)
    return storage, segment


def kinds(storage: MemoryStorage, segment: Segment) -> list[tuple[int, int]]:
    """Return kind and number of all records of a segment."""
    again = Segment(segment.number, 0, storage.size(segment.name))
    reader = Reader(storage, again)
    found: list[tuple[int, int]] = []
    head = reader.next()
    while head is not None and head.part1_size > 0:
        pos = int(reader.at) + BATCH_HEADER_SIZE
        end = pos + int(head.records_size)
        while pos < end:
            number = int.from_bytes(reader.data[pos + 8 : pos + 16], "little")
            found.append((reader.data[pos], number))
            pos += int.from_bytes(reader.data[pos + 4 : pos + 8], "little")
        head = reader.next()
    return found


def deaths(count: int) -> bytes:
    out = BytesWriter()
    for number in range(1, count + 1):
        write_gone(out, Cause.REMOVED, number, 0, 1, 0)
    return out.getvalue()


def test_records_beside_a_damaged_sector_are_kept() -> None:
    storage, segment = written(deaths(80))
    storage.write(segment.name, 1024, b"noise" * 100)
    salvage = repair_segment(storage, segment.name)
    found = {number for kind, number in kinds(storage, segment) if kind == KIND_GONE}
    hit = {
        number
        for number in range(1, 81)
        if FIRST + (number - 1) * GONE_SIZE < 1536 and FIRST + number * GONE_SIZE > 1024
    }
    assert found == set(range(1, 81)) - hit
    assert salvage.back_max == len(hit)
    assert salvage.lost_bytes == len(hit) * GONE_SIZE


def test_a_death_whose_beginning_can_be_read_still_counts() -> None:
    """The record of job 30 begins 24 bytes before the damaged sector: all that is needed."""
    out = BytesWriter()
    write_queue(out, 1, 1, b"q" * (1024 - FIRST - 24 - 24))
    write_gone(out, Cause.REMOVED, 30, 7, 2, 1234)
    out.write(deaths(40))
    storage, segment = written(out.getvalue())
    storage.spoil(segment.name, 1024)
    salvage = repair_segment(storage, segment.name)
    found = kinds(storage, segment)
    assert found[1] == (KIND_GONE, 30)
    assert (KIND_GONE, 40) in found
    assert salvage.back_jobs == set()


def test_a_base_that_is_hit_is_reported_by_its_id_and_queue() -> None:
    out = BytesWriter()
    put = bytes([KIND_PUT, 0, 0, 0]) + (900).to_bytes(4, "little")
    put += (17).to_bytes(8, "little") + (4).to_bytes(4, "little") + (820).to_bytes(4, "little")
    out.write(put + bytes(900 - len(put)))
    out.write(deaths(40))
    storage, segment = written(out.getvalue())
    storage.write(segment.name, 512, b"noise")
    salvage = repair_segment(storage, segment.name)
    assert salvage.lost_jobs == {17: 4}
    found = kinds(storage, segment)
    assert found[0] == (KIND_NOTE, 0), "records are numbered through"
    assert len(found) == 41


def test_a_new_body_that_is_hit_is_told_for_an_older_one_may_stand_for_it() -> None:
    moved = bytes([KIND_MOVED, 0, 0, 0]) + (900).to_bytes(4, "little")
    moved += (17).to_bytes(8, "little") + (4).to_bytes(4, "little") + (820).to_bytes(4, "little")
    storage, segment = written(moved + bytes(900 - len(moved)) + deaths(40))
    storage.write(segment.name, 512, b"noise")
    salvage = repair_segment(storage, segment.name)
    assert salvage.older_jobs == {17}
    assert salvage.older_max == 0


def test_a_bit_of_the_header_or_the_sums_or_the_seal_is_put_right() -> None:
    image, segment = written(deaths(60))
    wanted = kinds(image, segment)
    whole = bytes(image.files[segment.name].seen)
    sums_at = FIRST + 60 * GONE_SIZE
    places = [*range(SEGMENT_HEADER_SIZE, FIRST, 5), *range(sums_at, segment.size - SEAL_SIZE, 3)]
    for at in places:
        storage = image.killed()
        storage.flip(segment.name, at, at % 8)
        salvage = repair_segment(storage, segment.name)
        assert kinds(storage, segment) == wanted, at
        assert salvage.lost_bytes == 0
        assert len(salvage.corrected) == 1
        assert bytes(storage.files[segment.name].seen)[FIRST:-SEAL_SIZE] == whole[FIRST:-SEAL_SIZE]


def test_a_bit_of_the_sums_of_a_large_batch_is_put_right() -> None:
    count = 600 * 512 // GONE_SIZE
    image, segment = written(deaths(count))
    wanted = kinds(image, segment)
    sums_at = FIRST + count * GONE_SIZE
    assert segment.size - SEAL_SIZE - sums_at > 4096
    for at in (sums_at, sums_at + 4, (sums_at + segment.size) // 2, segment.size - SEAL_SIZE - 1):
        storage = image.killed()
        storage.flip(segment.name, at, at % 8)
        salvage = repair_segment(storage, segment.name)
        assert kinds(storage, segment) == wanted, at
        assert (salvage.lost_bytes, len(salvage.corrected)) == (0, 1)


def test_a_segment_whose_header_is_lost_is_known_by_what_it_holds() -> None:
    image, segment = written(deaths(60))
    image.write(segment.name, 8, b"noise, all of it")
    repair_segment(image, segment.name)
    assert image.read(segment.name, 20, 1) == b"\1", "deaths alone are what compaction saves"
