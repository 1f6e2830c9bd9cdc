"""Cursors of readers: stored, never back, and holding records within a bound."""

import pytest

from jobyard.engine.jobs.finish import finish
from jobyard.engine.jobs.tick import tick
from jobyard.engine.logs.cursors import CursorBehind, CursorChange, drop_cursor, set_cursor
from jobyard.engine.logs.logs import trim
from jobyard.model.topic.config import EVENTS_TOPIC
from jobyard.model.topic.cursor import TopicCursor
from jobyard.model.topic.log import LogTopic
from tests.support.engine.logs import new_log, row, write
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard


def put(
    site: OpenYard,
    seq: int,
    *,
    hold: bool = False,
    force: bool = False,
    name: str = "c",
    topic: str = "log",
) -> bool:
    cursor = TopicCursor(topic, name)
    cursor.seq = seq
    cursor.holds = hold
    wanted = CursorChange(cursor, is_forced=force, keeps_hold=False)
    return bool(set_cursor(site.yard, wanted, site.now_ms))


def at(site: OpenYard, name: str = "c", topic: str = "log") -> TopicCursor:
    cursor = site.yard.cursors.get(topic, name)
    assert cursor is not None
    return cursor


def seqs(log: LogTopic) -> tuple[int, int]:
    return int(log.earliest_seq), int(log.next_seq) - 1


def again(site: OpenYard, ms: int = 0) -> OpenYard:
    site.commit()
    assert isinstance(site.storage, MemoryStorage)
    return OpenYard(site.storage.killed(), site.now_ms + ms)


def test_a_cursor_survives_a_kill_and_never_goes_back() -> None:
    site = OpenYard(MemoryStorage())
    write(site, new_log(site), *[row(n) for n in range(9)])
    assert put(site, 3)
    assert not put(site, 5)
    with pytest.raises(CursorBehind) as refused:
        put(site, 4)
    assert refused.value.seq == 5
    site = again(site)
    assert at(site).seq == 5
    assert not put(site, 2, force=True)
    site = again(site)
    assert at(site).seq == 2
    drop_cursor(site.yard, at(site))
    site = again(site)
    assert site.yard.cursors.count == 0


def test_caps_do_not_pass_a_cursor_that_holds() -> None:
    site = OpenYard(MemoryStorage())
    log = new_log(site, cap_records=3)
    write(site, log, row(1), row(2))
    put(site, 1, hold=True)
    for n in range(3, 9):
        write(site, log, row(n))
    assert seqs(log) == (2, 8)
    site = again(site)
    log = site.yard.logs["log"]
    write(site, log, row(9))
    assert seqs(log) == (2, 9)
    put(site, 4, hold=True)
    trim(site.yard, log, site.now_ms)
    assert seqs(log) == (5, 9)
    put(site, 9, hold=True)
    trim(site.yard, log, site.now_ms)
    assert seqs(log) == (7, 9)


def test_a_cursor_without_hold_holds_nothing() -> None:
    site = OpenYard(MemoryStorage())
    log = new_log(site, cap_records=3)
    put(site, 0)
    write(site, log, *[row(n) for n in range(9)])
    assert seqs(log) == (7, 9)


def test_age_does_not_pass_a_cursor_that_holds() -> None:
    site = OpenYard(MemoryStorage())
    log = new_log(site, ttl_ms=1000)
    write(site, log, row(1), row(2), row(3))
    put(site, 1, hold=True)
    for _ in range(5):
        site.now_ms += 1000
        tick(site.yard, site.now_ms)
    assert seqs(log) == (2, 3)
    put(site, 3, hold=True)
    site.now_ms += 1000
    tick(site.yard, site.now_ms)
    assert log.count == 0
    assert log.ttl_floor == 4


def test_a_hold_that_costs_too_much_is_broken_and_says_so() -> None:
    site = OpenYard(MemoryStorage())
    site.yard.cursors.hold_bytes = 50_000
    log = new_log(site, cap_records=1)
    put(site, 0, hold=True, name="slow")
    count = 0
    while not at(site, "slow").is_broken:
        count += 1
        assert count < 1000
        write(site, log, row("x" * 1000))
        assert log.bytes < 60_000
    assert log.count == 1
    assert len(site.yard.cursors.take_stories()) == 1
    assert site.yard.cursors.take_stories() == []
    site = again(site)
    assert at(site, "slow").is_broken
    log = site.yard.logs["log"]
    write(site, log, row(1))
    assert log.count == 1
    put(site, int(log.next_seq) - 2, hold=True, name="slow")
    write(site, log, row(2))
    assert log.count == 2


def test_a_write_larger_than_the_caps_keeps_what_is_held() -> None:
    site = OpenYard(MemoryStorage())
    log = new_log(site, cap_records=2)
    write(site, log, row(1))
    put(site, 0, hold=True)
    write(site, log, *[row(n) for n in range(5)])
    assert seqs(log) == (1, 6)
    put(site, 4, hold=True)
    write(site, log, *[row(n) for n in range(5)])
    assert seqs(log) == (5, 11)


def test_the_window_of_history_does_not_pass_a_cursor_that_holds() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage, window=(1 << 40, 100_000), segment_size=16_384)
    history = site.journal.history
    first = int(history.next_durable) - 1
    put(site, first, hold=True, topic=EVENTS_TOPIC)

    def work() -> None:
        for _ in range(200):
            site.put(b"x" * 500)
            finish(site.yard, site.take(site.lease_set).job, site.now_ms)
            site.commit()
        site.compact()

    work()
    work()
    assert history.floor <= first + 1
    assert sum(int(segment.end) for segment in history.segments) > 150_000
    history.hold_bytes = 20_000
    work()
    assert at(site, topic=EVENTS_TOPIC).is_broken
    assert history.floor > first + 1
