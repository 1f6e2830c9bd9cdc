"""Batches waiting to be written: in pieces, and readable before they are written."""

import random

from jobyard.journal.format.segment import (
    HOT,
    HeadFields,
    Segment,
    crc_of,
    encode_batch,
    encode_pieces,
)
from jobyard.journal.outgoing import OutgoingBatch
from jobyard.journal.unsummed import Unsummed
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard

LARGE = 100_000


def test_any_part_of_a_batch_is_read_whatever_its_pieces() -> None:
    rng = random.Random(7)
    pieces = [bytes(rng.randrange(256) for _ in range(size)) for size in (3, 0, 10, 1, 7)]
    whole = b"".join(pieces)
    batch = OutgoingBatch(Segment(1, HOT, 1000), pieces, 5, 1, is_seal=False)
    assert batch.size == len(whole)
    for at in range(len(whole)):
        for size in range(len(whole) + 2):
            assert batch.read(at, size) == whole[at : at + size]


def test_pieces_are_the_batch() -> None:
    segment = Segment(3, HOT, 1 << 30)
    record = (1).to_bytes(4, "little") + LARGE.to_bytes(4, "little") + bytes(LARGE - 8)
    short = (1).to_bytes(4, "little") + (20).to_bytes(4, "little") + bytes(12)
    for part1 in (short, record):
        for bodies in ([], [b"body"], [b"x" * LARGE, b"y" * 10]):
            fields = HeadFields(1, 0, 9)
            pieces = encode_pieces(segment, 5, fields, part1, bodies, crc_of(bodies))
            assert b"".join(pieces) == encode_batch(segment, 5, fields, part1, bodies)
            # What is long is the very bytes that were given.
            assert all(any(one is piece for piece in pieces) for one in bodies if len(one) == LARGE)


def test_a_batch_that_is_summed_over_turns_is_like_any_other() -> None:
    segment = Segment(3, HOT, 1 << 30)
    segment.last_batch = 4
    record = (1).to_bytes(4, "little") + LARGE.to_bytes(4, "little") + bytes(LARGE - 8)
    short = (1).to_bytes(4, "little") + (20).to_bytes(4, "little") + bytes(12)
    bodies_found: list[list[bytes]] = [[], [b"body"], [b"x" * LARGE, b"", b"y" * 10]]
    for records in ([short], [record[:100], record[100:], b"", short]):
        for bodies in bodies_found:
            fields = HeadFields(1, 0, 9)
            whole = encode_batch(segment, 5, fields, b"".join(records), bodies)
            for crc in (-1, crc_of(bodies)):
                for most in (1000, len(whole)):
                    unsummed = Unsummed(segment, 5, fields, records, bodies, crc)
                    assert sum(len(piece) for piece in unsummed.pieces) == len(whole)
                    while unsummed.proceed(most) >= most:
                        pass
                    assert b"".join(unsummed.pieces) == whole


def test_long_bodies_come_back_from_the_disk_and_from_memory() -> None:
    """One in a batch is summed once, several are summed together."""
    storage = MemoryStorage()
    site = OpenYard(storage, segment_size=4 << 20, job_size_max=1 << 20)
    bodies = [bytes([at]) * (LARGE + at) for at in range(3)]
    site.put(bodies[0])
    site.journal.seal_batch()
    site.put(bodies[1])
    site.put(bodies[2])
    site.journal.seal_batch()
    jobs = [site.yard.jobs.get(at + 1) for at in range(3)]
    for _ in range(2):
        for job, body in zip(jobs, bodies, strict=True):
            assert job is not None
            place = int(job.place)
            assert site.journal.read(place >> 32, place & 0xFFFFFFFF, len(body)) == body
        site.commit()
    again = OpenYard(storage.killed(), segment_size=4 << 20)
    for number, body in enumerate(bodies, 1):
        job = again.yard.jobs.get(number)
        assert job is not None
        assert again.bodies.fetch(job) == body
