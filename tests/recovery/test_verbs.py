"""Any sequence of the engine's verbs, then a restart: the same yard, and the same live bytes.

Replay sees only records, so a change that a verb made without one shows here as a difference; and
what a verb recorded in the wrong segment shows once compaction has removed that segment.
"""

import pytest

from jobyard.errors import StorageFull, YardFull
from jobyard.journal.space.live_bytes import queue_bytes
from tests.support.random.glides import RandomGlides
from tests.support.random.verbs import RandomVerbs
from tests.support.site.recount import live_bytes, recount
from tests.support.site.site import NOW_MS
from tests.support.site.snapshot import snapshot
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard

SEGMENT = 16 * 1024
STEPS = 600


def open_on(storage: MemoryStorage, now_ms: int) -> OpenYard:
    return OpenYard(storage, now_ms, segment_size=SEGMENT)


def restarted(site: OpenYard, storage: MemoryStorage) -> tuple[OpenYard, MemoryStorage]:
    """Start again on what the disk holds."""
    site.jump()
    site.commit()
    recount(site.yard)
    after = storage.cut_off()
    again = open_on(after, site.now_ms)
    recount(again.yard)
    return again, after


def reopened(site: OpenYard, storage: MemoryStorage) -> tuple[OpenYard, MemoryStorage]:
    """Start again on what the disk holds, and see that it is the same yard."""
    again, after = restarted(site, storage)
    assert snapshot(again.yard) == snapshot(site.yard)
    before, now = saved_bytes(site), saved_bytes(again)
    assert {number: now[number] for number in before} == before
    return again, after


def saved_bytes(site: OpenYard) -> dict[int, int]:
    """Return live bytes without the names of empty queues, some of which exist only by a rule."""
    live = live_bytes(site.yard)
    for queue in site.yard.queues.values():
        if queue.segment != 0 and queue.jobs_count() == 0:
            live[int(queue.segment)] -= int(queue_bytes(queue))
    return live


def compacted(site: OpenYard) -> None:
    """Compact to the end, which changes nothing that a client can see."""
    before = snapshot(site.yard)
    site.compact()
    recount(site.yard)
    assert site.journal.damages.count() == 0
    assert snapshot(site.yard) == before


@pytest.mark.parametrize("seed", range(1, 7))
def test_a_restart_after_any_verbs_brings_back_the_same_yard(seed: int) -> None:
    storage = MemoryStorage()
    site = open_on(storage, NOW_MS)
    verbs = RandomVerbs(site, seed)
    for number in range(STEPS):
        verbs.step()
        if number % 3 == 0:
            site.commit()
        if number % 20 == 0:
            reopened(site, storage)
    assert len(site.journal.segments) > 10


@pytest.mark.parametrize("seed", range(11, 19))
def test_a_yard_that_is_compacted_and_started_again_goes_on_the_same(seed: int) -> None:
    storage = MemoryStorage()
    site = open_on(storage, NOW_MS)
    verbs = RandomVerbs(site, seed)
    dropped_count = 0
    for number in range(STEPS):
        verbs.step()
        if number % 3 == 0:
            site.commit()
        if number % 20 == 0:
            reopened(site, storage)
            compacted(site)
            again, after = reopened(site, storage)
            if number % 60 == 0:
                dropped_count += int(site.compactor.dropped_count)
                site, storage = again, after
                verbs.go_on_at(site)
    assert dropped_count > 10


@pytest.mark.parametrize("seed", range(31, 37))
def test_jobs_of_glide_mq_go_on_the_same_too(seed: int) -> None:
    storage = MemoryStorage()
    site = open_on(storage, NOW_MS)
    verbs = RandomGlides(site, seed)
    for number in range(STEPS):
        verbs.step()
        recount(site.yard)
        if number % 3 == 0:
            site.commit()
        if number % 20 == 0:
            reopened(site, storage)
            compacted(site)
            again, after = reopened(site, storage)
            if number % 60 == 0:
                site, storage = again, after
                verbs.go_on_at(site)


@pytest.mark.parametrize("seed", range(41, 44))
def test_a_full_disk_leaves_every_index_and_every_count_right(seed: int) -> None:
    storage = MemoryStorage()
    site = open_on(storage, NOW_MS)
    verbs = RandomGlides(site, seed)
    # Notes change the job before they ask for room, which a session does not.
    verbs.forget(verbs.note_one)
    refused = 0
    for number in range(STEPS):
        if number == STEPS // 3:
            storage.capacity = sum(len(file.seen) for file in storage.files.values()) + SEGMENT
        try:
            verbs.step()
        except (YardFull, StorageFull):
            refused += 1
        recount(site.yard)
        if number % 5 == 0:
            site.commit()
    assert refused > 20
    storage.capacity = None
    site.jump(10_000)
    site.commit()
    recount(site.yard)


@pytest.mark.parametrize("seed", range(21, 24))
def test_jobs_that_are_gone_stay_gone_whatever_is_compacted(seed: int) -> None:
    storage = MemoryStorage()
    site = open_on(storage, NOW_MS)
    verbs = RandomVerbs(site, seed)
    for number in range(STEPS):
        verbs.step()
        if number % 3 == 0:
            site.commit()
        if number % 30 == 0:
            site.compactor.step()
    verbs.erase_all()
    reopened(site, storage)
    compacted(site)
    again, _ = reopened(site, storage)
    assert again.yard.jobs.count == 0
