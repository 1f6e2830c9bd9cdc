"""Any verbs, including those of topics, then a restart: the same yard, no seq assigned twice."""

import pytest

from jobyard.model.entry import EntryKind
from tests.recovery.test_verbs import compacted, open_on, restarted
from tests.support.random.topics import RandomTopics
from tests.support.site.site import NOW_MS
from tests.support.site.snapshot import Snapshot, snapshot
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard

STEPS = 500


def facts(site: OpenYard) -> Snapshot:
    """Return what must survive; a log may leave out seqs that it had reserved."""
    found = snapshot(site.yard)
    write = f"entry {EntryKind.WRITE} "
    kept = {key: value for key, value in found.items() if not str(key).startswith(("log ", write))}
    for name, queue in site.yard.queues.items():
        if queue.config is not None and queue.topic_state is not None:
            for key, one in queue.topic_state.writes.items():
                if one.until_ms > site.now_ms:
                    kept[f"write {name} {key}"] = (int(one.first_seq), int(one.count))
    return kept


def reopened(site: OpenYard, storage: MemoryStorage) -> tuple[OpenYard, MemoryStorage]:
    """Start again on what the disk holds, and see that it is the same yard."""
    again, after = restarted(site, storage)
    assert facts(again) == facts(site)
    for name, log in site.yard.logs.items():
        other = again.yard.logs[name]
        assert (other.count, other.bytes) == (log.count, log.bytes)
    return again, after


@pytest.mark.parametrize("seed", range(31, 37))
def test_a_restart_after_any_verbs_of_topics_brings_back_the_same_yard(seed: int) -> None:
    storage = MemoryStorage()
    site = open_on(storage, NOW_MS)
    verbs = RandomTopics(site, seed)
    topics_count = 0
    for number in range(STEPS):
        verbs.step()
        topics_count += any(queue.config is not None for queue in site.yard.queues.values())
        if number % 3 == 0:
            site.commit()
        if number % 20 == 0:
            reopened(site, storage)
            compacted(site)
            again, after = reopened(site, storage)
            if number % 60 == 0:
                site, storage = again, after
                verbs.go_on_at(site)
    assert topics_count > STEPS // 2
