from librt.strings import BytesWriter

from jobyard.journal.space.live_bytes import queue_bytes
from jobyard.journal.space.survivors import Survivors
from jobyard.model.limits import INLINE_BODY_MAX
from tests.support.site.recount import recount
from tests.support.site.snapshot import snapshot
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard

BODIES = [b"short", b"m" * INLINE_BODY_MAX, b"l" * (INLINE_BODY_MAX + 1), b"L" * 9000]


def test_offsets_point_at_the_bodies_in_their_part() -> None:
    site = OpenYard(MemoryStorage())
    saved = Survivors()
    for body in BODIES:
        saved.add_job(site.put(body), body)
    part1 = BytesWriter()
    offsets = saved.encode(part1)
    parts = [part1.getvalue()] * 2 + [b"".join(saved.part2)] * 2
    for part, offset, body in zip(parts, offsets, BODIES, strict=True):
        assert part[offset : offset + len(body)] == body
    assert saved.part2_size == len(parts[-1])


def test_everything_saved_is_counted_and_weighed() -> None:
    site = OpenYard(MemoryStorage())
    job = site.put(b"abc")
    saved = Survivors()
    assert (saved.count(), saved.size) == (0, 0)
    saved.add_job(job, b"abc")
    saved.add_state(job)
    saved.add_kill(9, 1)
    saved.add_queue(job.queue)
    part1 = BytesWriter()
    saved.encode(part1)
    assert saved.count() == 4
    assert saved.size >= len(part1)
    assert queue_bytes(job.queue) == 24 + len("default")


def test_a_cold_batch_moves_jobs_and_reads_back_equal() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    lease_set = site.connect().lease_set
    saved = Survivors()
    for rank, body in enumerate(BODIES):
        saved.add_job(site.put(body, rank=rank), body)
    stay = site.put(b"its base stays", rank=0)
    site.take(lease_set)
    site.take(lease_set)
    saved.add_state(stay)
    saved.add_queue(site.queue())
    site.journal.write_cold(saved)
    recount(site.yard)
    site.commit()
    cold = site.journal.cold
    assert cold is not None
    assert {job.place >> 32 for job in saved.jobs} == {cold.number}
    for job, body in zip(saved.jobs, BODIES, strict=True):
        assert storage.read(cold.name, job.place & 0xFFFFFFFF, len(body)) == body
    again = OpenYard(storage.cut_off(), budget=0)
    assert snapshot(again.yard) == snapshot(site.yard)
    recount(again.yard)
