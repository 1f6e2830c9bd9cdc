"""Keys of records in the yard: memory, expiry over turns, and what a refused write leaves."""

import pytest

from jobyard.engine.logs.logs import drop_log
from jobyard.engine.state.record_keys import KEYS_AT_ONCE
from jobyard.errors import YardFull
from jobyard.model.topic.key_table import KEY_MEMORY
from jobyard.model.topic.new_keys import TooManyKeys
from tests.support.engine.logs import new_log, row, write
from tests.support.engine.record_keys import write_keyed
from tests.support.site.recount import recount
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard


def many(count: int, name: str = "k") -> list[tuple[object, str]]:
    return [(at, f"{name}{at}") for at in range(count)]


def test_keys_count_as_memory_that_cannot_be_freed() -> None:
    site = OpenYard(MemoryStorage(), budget=10 * KEY_MEMORY)
    log = new_log(site)
    write_keyed(site, log, *many(9))
    assert site.bodies.pinned == 9 * KEY_MEMORY
    with pytest.raises(YardFull):
        write_keyed(site, log, ("x", "x"), ("y", "y"))
    # Known keys need no room.
    assert write_keyed(site, log, *many(9))[0] == 0
    assert write_keyed(site, log, ("x", "x"))[0] == 1
    recount(site.yard)


def test_very_many_expired_keys_are_forgotten_over_turns() -> None:
    site = OpenYard(MemoryStorage())
    log = new_log(site, key_window_ms=1000)
    write_keyed(site, log, *many(2 * KEYS_AT_ONCE + 10))
    table = log.record_keys
    assert table is not None
    site.tick(1001)
    left = []
    while table.count:
        left.append(int(table.count))
        # They are not valid, and do not count against the limit.
        assert table.valid_count(site.now_ms) == 0
        site.tick(1)
    assert left == [KEYS_AT_ONCE + 10, 10]
    site.commit()
    recount(site.yard)


def test_a_steady_stream_of_keys_is_looked_at_once_a_second() -> None:
    site = OpenYard(MemoryStorage())
    log = new_log(site, key_window_ms=5000)
    for at in range(1000):
        write_keyed(site, log, (at, f"k{at}"))
        site.tick(10)
    table = log.record_keys
    assert table is not None
    assert 500 <= table.count <= 600
    assert len(site.yard.timers.items) == 1
    recount(site.yard)


def test_the_keys_of_a_dropped_log_are_freed_over_turns() -> None:
    site = OpenYard(MemoryStorage())
    site.yard.tasks.units_per_turn = 100
    site.yard.tasks.proceed(site.now_ms)
    log = new_log(site)
    write_keyed(site, log, *many(2000))
    other = new_log(site, "other")
    write_keyed(site, other, *many(3))
    drop_log(site.yard, log, site.now_ms)
    assert site.yard.tasks.proceed(site.now_ms)
    assert site.bodies.pinned > 3 * KEY_MEMORY
    # Its segments may go before its keys do.
    site.commit()
    site.compact()
    while site.yard.tasks.proceed(site.now_ms):
        pass
    assert site.bodies.pinned == 3 * KEY_MEMORY
    recount(site.yard)


def test_an_expired_key_that_is_not_forgotten_yet_is_replaced() -> None:
    site = OpenYard(MemoryStorage())
    log = new_log(site, key_window_ms=1000)
    write_keyed(site, log, *many(5))
    site.now_ms += 1000
    assert write_keyed(site, log, (1, "k3"), (2, "k3")) == (1, [(1, 6)])
    table = log.record_keys
    assert table is not None
    assert table.count == 5
    site.commit()
    recount(site.yard)
    site.tick(1)
    assert table.count == 1
    assert write_keyed(site, log, (1, "k3"))[1] == [(0, 6)]
    recount(site.yard)


def test_a_refused_write_leaves_no_keys() -> None:
    site = OpenYard(MemoryStorage())
    log = new_log(site, key_max=2)
    with pytest.raises(TooManyKeys):
        write_keyed(site, log, *many(3))
    assert log.record_keys is None
    assert write_keyed(site, log, *many(2))[0] == 2
    write(site, log, row(1))
    with pytest.raises(TooManyKeys):
        write_keyed(site, log, (1, "x"))
    recount(site.yard)
