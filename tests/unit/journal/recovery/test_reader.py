from itertools import pairwise

import pytest

from jobyard.journal.format.segment import (
    BATCH_HEADER_SIZE,
    SEGMENT_HEADER_SIZE,
    HeadFields,
    Segment,
    encode_batch,
)
from jobyard.journal.recovery.reader import READ_WINDOW, Reader
from jobyard.model.limits import INLINE_BODY_MAX
from tests.support.site.snapshot import snapshot
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard, batches, boot

LONG = b"L" * (INLINE_BODY_MAX + 500)


def test_a_reader_finds_every_batch_and_stops_at_the_first_flaw() -> None:
    storage = MemoryStorage()
    site = boot(storage, b"a", LONG, b"c")
    found = batches(storage, site.journal.hot)
    assert [number for number, _, _ in found] == [1, 2, 3, 4]
    assert found[0][1] == SEGMENT_HEADER_SIZE
    for (_, offset, size), (_, following, _) in pairwise(found):
        assert offset + size == following
    storage.flip(site.journal.hot.name, found[2][1] + BATCH_HEADER_SIZE + 20, 1)
    assert batches(storage, site.journal.hot) == found[:2]


def test_a_reader_steps_over_batches_wider_than_its_window() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage, job_size_max=1 << 24)
    site.put(b"B" * (5 << 20))
    site.put(b"after")
    site.commit()
    site.put(b"C" * (5 << 20))
    site.commit()
    site.put(b"last")
    site.commit()
    again = OpenYard(storage.cut_off())
    assert snapshot(again.yard) == snapshot(site.yard)


@pytest.mark.parametrize("offset", [24, 0])
def test_a_head_of_another_segment_or_another_magic_is_no_batch(offset: int) -> None:
    storage = MemoryStorage()
    site = boot(storage, b"a")
    storage.flip(site.journal.hot.name, SEGMENT_HEADER_SIZE + offset, 0)
    reader = Reader(storage, site.journal.hot)
    assert reader.next() is None


def test_sizes_that_leave_the_file_are_no_batch() -> None:
    storage = MemoryStorage()
    site = boot(storage, b"a")
    hot = site.journal.hot
    for sizes in ((1 << 30, 0), (0, 1 << 40), (-1, 0), (0, -1)):
        fields = HeadFields(1, 0, 1)
        head = bytearray(encode_batch(hot, 9, fields, b"", []))
        head[4:8] = sizes[0].to_bytes(4, "little", signed=True)
        head[8:16] = sizes[1].to_bytes(8, "little", signed=True)
        storage.write(hot.name, hot.end, bytes(head))
        assert Reader(storage, hot).peek(hot.end) is None
    assert Reader(storage, hot).peek(hot.size - 3) is None


def test_long_bodies_are_tested_apart_from_the_records() -> None:
    storage = MemoryStorage()
    site = boot(storage, LONG)
    hot = site.journal.hot
    _, offset, size = batches(storage, hot)[-1]
    reader = Reader(storage, hot)
    head = reader.peek(offset)
    assert head is not None
    assert reader.is_part2_whole(head, offset)
    storage.flip(hot.name, offset + size - 1, 0)
    assert Reader(storage, hot).peek(offset) is not None
    assert not reader.is_part2_whole(head, offset)


def test_a_batch_is_found_behind_a_flaw_wherever_it_is() -> None:
    storage = MemoryStorage()
    site = boot(storage, b"a", b"b", b"c")
    hot = site.journal.hot
    found = batches(storage, hot)
    reader = Reader(storage, hot)
    for (_, offset, _), (_, following, _) in pairwise(found):
        assert reader.find_batch(offset + 1) == following
        stray = reader.find_stray(offset + 1)
        assert stray is not None
        assert stray.previous > 0
    assert reader.find_batch(found[-1][1] + 1) == -1
    assert reader.find_stray(found[-1][1] + 1) is None


def test_a_batch_is_found_behind_more_than_one_window_of_nothing() -> None:
    storage = MemoryStorage()
    segment = Segment(3, 0, 9 << 20)
    storage.create(segment.name, segment.size)
    batch = encode_batch(segment, 5, HeadFields(1, 0, 1), b"", [])
    # The magic number straddles the end of the first window.
    offset = READ_WINDOW + 7 - 2
    storage.write(segment.name, offset, batch)
    assert Reader(storage, segment).find_batch(7) == offset
    assert Reader(storage, segment).find_batch(offset + 1) == -1


def test_bytes_that_only_look_like_a_batch_are_passed_over() -> None:
    storage = MemoryStorage()
    site = boot(storage, b"JYBT" * 50, b"JYSL" * 50, b"real")
    found = batches(storage, site.journal.hot)
    reader = Reader(storage, site.journal.hot)
    assert reader.find_batch(found[1][1] + 1) == found[2][1]
    assert OpenYard(storage.cut_off()).yard.jobs.count == 3


def test_a_file_shorter_than_it_was_found_to_be_ends_early() -> None:
    storage = MemoryStorage()
    site = boot(storage, b"a", b"b")
    hot = site.journal.hot
    found = batches(storage, hot)
    storage.truncate(hot.name, found[-1][1] + 20)
    assert batches(storage, hot) == found[:-1]
