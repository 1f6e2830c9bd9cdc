"""How much a repair reports as lost with a segment that is missing or cut short."""

import io
import re

import pytest

from jobyard.engine.jobs.move import remove, set_body
from jobyard.engine.recovery.repair import repair_storage
from jobyard.journal.format.segment import SEGMENT_HEADER_SIZE, segment_number
from jobyard.model.job import RAW
from tests.support.random.flips import SEGMENT, Journal
from tests.support.site.site import NOW_MS
from tests.support.site.snapshot import snapshot
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard

TOLD = re.compile(
    r"^(\d+\.journal) is (missing|cut short): "
    r"(?:all of its contents are|its part of batch(?:es)? [\d to]+ is) lost"
    r"(?:, at most (\d+) records)?"
    r"(?:, at most (\d+) jobs?| and as many jobs|; the number of lost jobs is unknown)$",
    re.MULTILINE,
)

OLDER = re.compile(r"^up to (\d+) jobs may have an older body", re.MULTILINE)
BACK = re.compile(r"^up to (\d+) finished jobs may be back", re.MULTILINE)


def mended(storage: MemoryStorage, now_ms: int = NOW_MS) -> str:
    out = io.StringIO()
    assert repair_storage(storage, "data", now_ms, out), out.getvalue()
    return out.getvalue()


def thirty_jobs(*, ids_ahead: bool = False) -> MemoryStorage:
    storage = MemoryStorage()
    for _ in range(3):
        site = OpenYard(storage, NOW_MS, segment_size=SEGMENT, ids_ahead=ids_ahead)
        for _ in range(10):
            site.put(b"job" * 20)
            site.commit()
        site.journal.append_clean()
        site.journal.close()
    return storage.killed()


def segments(storage: MemoryStorage) -> list[str]:
    return sorted(name for name in storage.names() if segment_number(name) > 0)


@pytest.mark.parametrize("ids_ahead", [False, True])
@pytest.mark.parametrize("which", [0, 1])
def test_a_missing_segment_is_told_with_how_much_it_held(which: int, *, ids_ahead: bool) -> None:
    storage = thirty_jobs(ids_ahead=ids_ahead)
    name = segments(storage)[which]
    storage.unlink(name)
    text = mended(storage)
    found = TOLD.search(text)
    assert found, text
    assert found.group(1, 2) == (name, "missing")
    # With ten jobs went the name of their queue or not, and what a boot begins and ends with.
    assert 10 <= int(found.group(4)) <= int(found.group(3)) <= 14
    assert "20 jobs can be served" in text


@pytest.mark.parametrize("which", [0, 1])
def test_a_segment_cut_short_is_told_with_how_much_is_lost(which: int) -> None:
    storage = thirty_jobs()
    name = segments(storage)[which]
    storage.truncate(name, 1200)
    storage.sync(name)
    text = mended(storage)
    found = TOLD.search(text)
    assert found, text
    assert found.group(1, 2) == (name, "cut short")
    served = re.search(r"^(\d+) jobs can be served", text, re.MULTILINE)
    assert served
    lost = 30 - int(served.group(1))
    assert 0 < lost <= int(found.group(4)) <= lost + 1


@pytest.mark.parametrize("seed", [3, 11])
def test_what_is_told_is_never_too_little(seed: int) -> None:
    journal = Journal(seed)
    told_count = 0
    for name in journal.segments():
        storage = journal.storage.killed()
        storage.unlink(name)
        text = mended(storage, journal.now_ms)
        site = OpenYard(storage, journal.now_ms, segment_size=SEGMENT, budget=0)
        lost = journal.jobs - {key for key in snapshot(site.yard) if isinstance(key, int)}
        for found in TOLD.finditer(text):
            told_count += 1
            if found.group(3) is not None:
                assert len(lost) <= int(found.group(3)), text
        assert not lost or TOLD.search(text), text
    assert told_count > 0


def test_new_bodies_that_went_with_a_whole_segment_are_told() -> None:
    """Copies of them, in a cold segment of which nothing can be read, behind which none comes."""
    storage = MemoryStorage()
    site = OpenYard(storage, NOW_MS, segment_size=SEGMENT)
    jobs = [site.put(b"old body") for _ in range(3)]
    # So much other data is live that their segment stays.
    kept = [site.put(b"k" * 1500) for _ in range(18)]
    site.commit()
    site.journal.close()
    site = OpenYard(storage, NOW_MS, segment_size=SEGMENT)
    for known in jobs:
        job = site.yard.jobs.get(known.id)
        assert job is not None
        set_body(site.yard, job, b"new body", RAW, site.now_ms)
    others = [site.put(b"x" * 1500) for _ in range(40)]
    site.commit()
    for job in others:
        remove(site.yard, job, site.now_ms)
    site.commit()
    site.compact()
    site.put(b"fresh")
    site.commit()
    cold = site.journal.cold
    assert cold is not None
    site.journal.close()
    end = cold.end - SEGMENT_HEADER_SIZE
    storage.write(cold.name, SEGMENT_HEADER_SIZE, b"?" * end)
    text = mended(storage)
    again = OpenYard(storage, NOW_MS, segment_size=SEGMENT)
    bodies = [again.yard.bodies.fetch(job) for job in again.yard.jobs.all()]
    assert bodies == [b"old body"] * 3 + [b"k" * 1500] * len(kept) + [b"fresh"]
    older = OLDER.search(text)
    back = BACK.search(text)
    assert older, text
    assert back, text
    # What compaction removed before leaves the same traces, but no more jobs than exist.
    assert 3 <= int(older.group(1)) <= len(bodies)
    assert int(back.group(1)) <= len(bodies)
    found = TOLD.search(text)
    assert found, text
    assert found.group(1, 2) == (cold.name, "cut short")
    # By the numbers of records around it, though those are hot.
    assert found.group(3) is not None, text
