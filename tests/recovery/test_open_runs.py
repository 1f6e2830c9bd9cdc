"""Any verbs and any kills: each run that was claimed is ended by one row of history, or goes on."""

import pytest

from jobyard.engine.state.history import read_history
from jobyard.model.topic.history_row import ABANDONED, CLAIMED
from tests.support.random.topics import RandomTopics
from tests.support.site.site import ALL_HISTORY, NOW_MS
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard

STEPS = 400
STEPS_PER_BOOT = 25


def open_runs(site: OpenYard) -> tuple[dict[int, tuple[int, int]], int]:
    """Return lease and deliveries of each run without an end, and how many were abandoned."""
    runs: dict[int, tuple[int, int]] = {}
    abandoned = 0
    for row in read_history(site.yard, 0, 1 << 20, 1 << 30).rows:
        job_id = int(row.job_id)
        run = (int(row.lease), int(row.deliveries))
        if row.event == CLAIMED:
            assert job_id not in runs, "claimed again without an end"
            runs[job_id] = run
        elif row.lease != 0:
            assert runs.pop(job_id) == run, "another run was ended, or one a second time"
            abandoned += row.event == ABANDONED
        elif row.state == "gone":
            runs.pop(job_id, None)
    return runs, abandoned


@pytest.mark.parametrize("is_power_cut", [False, True])
@pytest.mark.parametrize("seed", range(51, 55))
def test_no_run_stays_open_over_a_kill(seed: int, *, is_power_cut: bool) -> None:
    storage = MemoryStorage()
    site = OpenYard(storage, NOW_MS, window=ALL_HISTORY)
    verbs = RandomTopics(site, seed)
    abandoned = kept_count = 0
    for number in range(1, STEPS + 1):
        verbs.step()
        if number % 3 == 0:
            site.commit()
        if number % STEPS_PER_BOOT == 0:
            storage = storage.cut_off() if is_power_cut else storage.killed()
            site = OpenYard(storage, site.now_ms, window=ALL_HISTORY)
            runs, abandoned = open_runs(site)
            leases = {int(one.id): one.lease for one in site.yard.jobs.all() if one.lease}
            kept = {key: int(lease.row_number) for key, lease in leases.items()}
            assert {key: lease for key, (lease, _) in runs.items()} == kept
            kept_count += len(kept)
            verbs.go_on_at(site)
    assert abandoned > 10
    assert kept_count > 0
