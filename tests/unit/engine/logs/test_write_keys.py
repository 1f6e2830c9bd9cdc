"""Keys of writes to a log, more than one write or one turn can expire."""

from jobyard.engine.logs.logs import drop_log
from tests.support.engine.logs import new_log, row, write
from tests.support.site.recount import recount
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard


def test_very_many_keys_whose_time_is_over_are_forgotten_with_several_writes() -> None:
    site = OpenYard(MemoryStorage())
    log = new_log(site, idempotency_window_ms=1000)
    for at in range(300):
        write(site, log, row(at), key=f"k{at}")
    site.now_ms += 1000
    # An expired key that is not forgotten yet is invalid, and is replaced.
    assert not write(site, log, row(1), key="k299").is_deduped
    assert 100 < log.keys.count() < 300
    assert write(site, log, row(1), key="k299").is_deduped
    for at in range(5):
        write(site, log, row(at), key=f"n{at}")
    assert sorted(name for name, _ in log.keys.items()) == ["k299", "n0", "n1", "n2", "n3", "n4"]
    recount(site.yard)


def test_the_keys_of_a_log_that_is_dropped_are_forgotten_over_turns() -> None:
    site = OpenYard(MemoryStorage())
    site.yard.tasks.units_per_turn = 100
    site.yard.tasks.proceed(site.now_ms)
    log = new_log(site)
    for at in range(300):
        write(site, log, row(at), key=f"k{at}")
    other = new_log(site, "other")
    write(site, other, row(1))
    drop_log(site.yard, log, site.now_ms)
    assert site.yard.tasks.proceed(site.now_ms)
    # Its segments may go before its keys do.
    site.commit()
    site.compact()
    while site.yard.tasks.proceed(site.now_ms):
        pass
    recount(site.yard)
