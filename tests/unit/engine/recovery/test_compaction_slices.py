from jobyard.engine.jobs.move import remove
from jobyard.engine.recovery.compaction import Compactor
from tests.support.site.recount import recount
from tests.support.site.snapshot import snapshot
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard


def test_a_long_batch_is_copied_in_slices() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    jobs = [site.put(b"%04d" % number) for number in range(200)]
    site.commit()
    victim = jobs[0].place >> 32
    while site.journal.hot.number == victim:
        site.put(b"x" * 1500)
    for job in jobs[::2]:
        remove(site.yard, job, site.now_ms)
    site.commit()
    site.compactor = Compactor(site.yard, [int(victim)])
    site.compactor.slice_records = 7
    steps = 0
    while victim in site.journal.segments:
        site.compactor.step()
        site.commit()
        steps += 1
        assert steps < 1000
    assert steps > 200 // 7
    recount(site.yard)
    again = OpenYard(storage.cut_off(), site.now_ms)
    assert snapshot(again.yard) == snapshot(site.yard)
