"""Compaction with a crash at every call it makes to the storage.

Compaction changes nothing that a client can see. So whatever it had done when the process died
or the power failed, a start finds the same yard, and finishing it later leaves the same yard again.
"""

from collections.abc import Callable

import pytest

from jobyard.engine.jobs.move import remove
from tests.support.random.beanstalk import RandomRun
from tests.support.site.recount import recount
from tests.support.site.snapshot import Snapshot, snapshot
from tests.support.site.storage import MemoryStorage, PowerCut, stop_everywhere
from tests.support.site.yard import OpenYard

SEGMENT = 8 * 1024
ENDS: list[Callable[[MemoryStorage], MemoryStorage]] = [MemoryStorage.killed, MemoryStorage.cut_off]


def open_on(storage: MemoryStorage, now_ms: int) -> OpenYard:
    return OpenYard(storage, now_ms, segment_size=SEGMENT, budget=0)


def worn(seed: int) -> tuple[MemoryStorage, int]:
    """Return a journal with much to compact, and the time it stopped at."""
    storage = MemoryStorage()
    site = OpenYard(storage, segment_size=SEGMENT, budget=0)
    run = RandomRun(site, seed, sizes=(0, 40, 300, 4500))
    for _ in range(160):
        run.step()
        site.commit()
    run.leave()
    site.jump()
    site.commit()
    return storage.killed(), site.now_ms


def state_of(site: OpenYard) -> Snapshot:
    recount(site.yard)
    return snapshot(site.yard)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_crash_at_any_call_of_a_compaction_changes_nothing(
    seed: int, end: Callable[[MemoryStorage], MemoryStorage]
) -> None:
    image, now_ms = worn(seed)
    wanted = state_of(open_on(image.killed(), now_ms))
    dropped = []

    def compact(storage: MemoryStorage) -> None:
        site = open_on(storage, now_ms)
        site.compact()
        dropped.append(site.compactor.dropped_count)

    for number, storage in enumerate(stop_everywhere(image.killed, compact)):
        after = end(storage)
        again = open_on(after, now_ms)
        assert state_of(again) == wanted
        if number % 4 == 0:
            _proceed(again, after, now_ms)
    assert dropped[-1] > 2


def _proceed(site: OpenYard, storage: MemoryStorage, now_ms: int) -> None:
    """Delete some jobs, finish the compaction, and check that none comes back."""
    for job in site.yard.jobs.all()[::2]:
        remove(site.yard, job, now_ms)
    site.commit()
    wanted = state_of(site)
    site.compact()
    assert state_of(site) == wanted
    again = open_on(storage.cut_off(), now_ms)
    assert state_of(again) == wanted
    again.compact()
    assert state_of(open_on(storage.cut_off(), now_ms)) == wanted


class Recorded:
    """A run of clients during a compaction, with the state of the yard after each commit."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.states: list[Snapshot] = []
        self.now_ms: list[int] = []
        self._run(MemoryStorage(), note=True)
        # Looking at the yard reads bodies back, so calls are counted without it.
        self.calls = self._run(MemoryStorage(), note=False)

    def _run(self, storage: MemoryStorage, *, note: bool) -> int:
        site = OpenYard(storage, segment_size=SEGMENT, budget=0)
        run = RandomRun(site, self._seed, sizes=(0, 40, 300, 4500))
        self.commits = 0
        if note:
            self._note(site)
        for _ in range(200):
            run.step()
            site.compactor.step()
            site.commit()
            self.commits += 1
            if note:
                self._note(site)
        return storage.calls_count

    def _note(self, site: OpenYard) -> None:
        # Leases end with the boot, so times are compared as of the last answered command.
        self.states.append(snapshot(site.yard))
        self.now_ms.append(site.now_ms)

    def stop(self, calls: int) -> MemoryStorage:
        """Run again up to a call of the storage; `commits` is how many were answered."""
        storage = MemoryStorage()
        storage.stop_at = calls
        try:
            self._run(storage, note=False)
        except PowerCut:
            return storage
        raise AssertionError("the run came to its end")


@pytest.mark.parametrize("seed", range(4))
def test_a_crash_beside_busy_clients_loses_nothing_that_was_answered(seed: int) -> None:
    """What was begun and not answered may have happened, or not, or in part: verb by verb."""
    recorded = Recorded(seed)
    begin = 20  # the start itself is the matter of another test
    for calls in range(begin, recorded.calls, 37):
        storage = recorded.stop(calls)
        done = recorded.commits
        before, after = recorded.states[done], recorded.states[done + 1]
        for end in ENDS:
            found = state_of(open_on(end(storage), recorded.now_ms[done + 1]))
            for key in {*found, *before, *after}:
                assert found.get(key) in (before.get(key), after.get(key)), key
