"""Logs over restarts: every kind of change, every cut of the last batch, and compaction."""

import random

import pytest

from jobyard.engine.logs.erase import erase_seqs
from jobyard.engine.logs.logs import HoldsRecords, drop_log, set_config
from jobyard.model.topic.config import DISK, EPHEMERAL, FSYNC, MEMORY
from jobyard.model.topic.log import LogTopic
from tests.support.engine.logs import (
    config_of,
    contents,
    delete_below,
    delete_tagged,
    new_log,
    page_of,
    row,
    seqs,
    write,
)
from tests.support.site.recount import recount
from tests.support.site.site import NOW_MS
from tests.support.site.snapshot import log_facts, snapshot
from tests.support.site.storage import EACH, MemoryStorage, stop_everywhere
from tests.support.site.yard import OpenYard, batches


def begin() -> tuple[OpenYard, LogTopic]:
    site = OpenYard(MemoryStorage())
    return site, new_log(site, durability=FSYNC)


def storage_of(site: OpenYard) -> MemoryStorage:
    assert isinstance(site.storage, MemoryStorage)
    return site.storage


def again(site: OpenYard, later_ms: int = 0) -> OpenYard:
    """Return the yard as it is after the power was cut and came back."""
    site.commit()
    recount(site.yard)
    other = OpenYard(storage_of(site).cut_off(), site.now_ms + later_ms)
    recount(other.yard)
    return other


def assert_same_after_restart(site: OpenYard) -> OpenYard:
    other = again(site)
    assert snapshot(other.yard) == snapshot(site.yard)
    return other


def test_an_empty_log_and_its_configuration_come_back() -> None:
    site = OpenYard(MemoryStorage())
    new_log(site, durability=FSYNC, cap_records=7)
    other = assert_same_after_restart(site)
    assert other.yard.logs["log"].config.cap_records == 7


def test_records_come_back_with_all_they_have() -> None:
    site, log = begin()
    write(site, log, row({"a": 1}, tag="t", node="n", meta={"m": 1}), row(None))
    site.now_ms += 5
    write(site, log, row("x" * 9000), key="k")
    for i in range(2000):
        write(site, log, row(i, tag=f"tag{i}"))
    other = assert_same_after_restart(site)
    assert write(other, other.yard.logs["log"], row(1), key="k").first_seq == 3


def test_a_log_continues_where_it_was() -> None:
    site, log = begin()
    write(site, log, row(1))
    other = again(site)
    log = other.yard.logs["log"]
    assert write(other, log, row(2)).first_seq == 2
    assert seqs(page_of(other, log)) == [1, 2]
    assert_same_after_restart(other)


def test_what_was_deleted_stays_away() -> None:
    site, log = begin()
    write(site, log, *[row(i, tag=f"t{i % 3}") for i in range(50)])
    delete_below(site, log, 10)
    site.commit()
    delete_tagged(site, log, "t1")
    delete_tagged(site, log, "t2", before=20)
    other = assert_same_after_restart(site)
    log = other.yard.logs["log"]
    assert page_of(other, log).tombstone is None
    delete_tagged(other, log, "t", prefix=True)
    assert (log.count, log.next_seq) == (0, 51)
    other = assert_same_after_restart(other)
    assert write(other, other.yard.logs["log"], row(1)).first_seq == 51


def test_records_removed_by_caps_and_time_stay_away_and_readers_are_notified() -> None:
    site, log = begin()
    write(site, log, *[row(i) for i in range(10)])
    set_config(site.yard, log, config_of(durability=FSYNC, cap_records=5), site.now_ms)
    write(site, log, row(10))
    assert_same_after_restart(site)
    set_config(site.yard, log, config_of(durability=FSYNC, ttl_ms=100), site.now_ms)
    site.now_ms += 200
    write(site, log, row(11))
    set_config(site.yard, log, config_of(durability=FSYNC), site.now_ms)
    other = assert_same_after_restart(site)
    tombstone = page_of(other, other.yard.logs["log"]).tombstone
    assert tombstone is not None
    assert tombstone.reason == "mixed"
    assert seqs(page_of(other, other.yard.logs["log"])) == [12]


def test_time_counts_while_the_server_does_not_run() -> None:
    site, _ = begin()
    log = new_log(site, "short", durability=FSYNC, ttl_ms=1000, idempotency_window_ms=1000)
    write(site, log, row(1), key="k")
    assert page_of(again(site, 900), again(site, 900).yard.logs["short"]).count == 1
    other = again(site, 1100)
    log = other.yard.logs["short"]
    page = page_of(other, log)
    assert (page.count, page.next_from_seq) == (0, 1)
    assert not write(other, log, row(1), key="k").is_deduped


def test_the_shown_time_stays_when_the_clock_was_set() -> None:
    site, log = begin()
    site.journal.wall_offset_ms = -50_000
    write(site, log, row(1))
    other = again(site)
    item = contents(other, other.yard.logs["log"])[0]
    assert item[1] == NOW_MS - 50_000


def test_records_go_in_time_behind_one_from_before_the_clock_was_set_back() -> None:
    site, log = begin()
    set_config(site.yard, log, config_of(ttl_ms=3000), site.now_ms)
    write(site, log, row(1))
    other = again(site, -3_600_000)
    log = other.yard.logs["log"]
    other.jump(5000)
    write(other, log, row(2))
    assert seqs(page_of(other, log)) == [1, 2]
    delete_below(other, log, 2)
    other.jump(3001)
    assert log.count == 0, "though nobody reads or appends"


def test_a_dropped_log_does_not_come_back() -> None:
    site, log = begin()
    write(site, log, row(1), key="k")
    delete_tagged(site, log, "none")
    site.commit()
    drop_log(site.yard, log, site.now_ms)
    other = assert_same_after_restart(site)
    assert other.yard.logs == {}


def test_a_recreated_log_has_nothing_of_the_one_before() -> None:
    site, log = begin()
    write(site, log, *[row(i, tag="t") for i in range(5)], key="k")
    delete_tagged(site, log, "other")
    drop_log(site.yard, log, site.now_ms)
    fresh = new_log(site, durability=FSYNC)
    write(site, fresh, row("new"))
    other = assert_same_after_restart(site)
    log = other.yard.logs["log"]
    assert [item[4] for item in contents(other, log)] == ["new"]
    assert log.incarnation == fresh.incarnation
    assert not write(other, log, row(1), key="k").is_deduped


def test_the_number_of_a_dropped_log_is_not_given_again_while_its_records_are_there() -> None:
    site, log = begin()
    write(site, log, row(1))
    site.commit()
    drop_log(site.yard, log, site.now_ms)
    other = again(site)
    fresh = new_log(other, "another", durability=FSYNC)
    assert fresh.number > log.number
    assert_same_after_restart(other)


@pytest.mark.parametrize("is_clean", [False, True])
def test_an_ephemeral_log_comes_back_empty_and_gives_no_seq_twice(is_clean: bool) -> None:  # noqa: FBT001
    site = OpenYard(MemoryStorage())
    log = new_log(site, durability=EPHEMERAL, cap_records=4000)
    done = write(site, log, *[row(i) for i in range(3000)], key="k")
    assert done.batch <= site.journal.newest()
    site.commit()
    for _ in range(1000):
        last = write(site, log, *[row(i) for i in range(7)]).last_seq
        if site.journal.has_open_records():
            site.commit()
    if is_clean:
        site.journal.append_clean()
        site.journal.close()
    other = OpenYard(storage_of(site).cut_off(), site.now_ms)
    recount(other.yard)
    log = other.yard.logs["log"]
    assert (log.count, log.config.durability) == (0, EPHEMERAL)
    assert log.next_seq > last
    page = page_of(other, log, 3000)
    assert page.tombstone is not None
    assert (page.tombstone.gap_from, page.tombstone.gap_to) == (3001, log.next_seq - 1)
    assert page_of(other, log, int(log.next_seq) - 1).tombstone is None
    write(other, log, row("new"))
    assert [item[4] for item in contents(other, log)] == ["new"]


def test_a_log_of_class_memory_is_remembered_like_any_other() -> None:
    site = OpenYard(MemoryStorage())
    log = new_log(site, durability=MEMORY)
    assert write(site, log, row(1)).batch == site.journal.open_number
    assert_same_after_restart(site)


def test_in_class_sync_seqs_are_not_reserved_for_what_is_written() -> None:
    site = OpenYard(MemoryStorage())
    write(site, new_log(site, durability=DISK), row(1))
    other = again(site)
    assert other.yard.logs["log"].next_seq == 2


def test_seqs_answered_before_their_sync_are_not_given_again() -> None:
    site = OpenYard(MemoryStorage(), ids_ahead=True)
    log = new_log(site, durability=DISK)
    given = 0
    for i in range(50):
        given = int(write(site, log, *[row(i) for i in range(199)]).last_seq)
        site.journal.seal_batch()
        site.journal.write_pending()
        if site.journal.ids_at_risk():
            site.commit()
        lost = OpenYard(storage_of(site).cut_off(), ids_ahead=True)
        assert lost.yard.logs["log"].next_seq > given, i


def test_a_clean_stop_leaves_no_gap() -> None:
    site = OpenYard(MemoryStorage(), ids_ahead=True)
    log = new_log(site, durability=DISK)
    write(site, log, row(1))
    site.journal.append_clean()
    site.journal.close()
    other = OpenYard(storage_of(site).cut_off(), ids_ahead=True)
    assert other.yard.logs["log"].next_seq == 2
    write(other, other.yard.logs["log"], row(2))
    other.commit()
    third = OpenYard(storage_of(other).cut_off(), ids_ahead=True)
    assert third.yard.logs["log"].next_seq > 3


def test_a_clean_stop_after_a_crash_does_not_bring_back_the_seqs_left_out() -> None:
    site = OpenYard(MemoryStorage(), ids_ahead=True)
    log = new_log(site, durability=DISK)
    write(site, log, row(1))
    site.commit()
    after_crash = OpenYard(storage_of(site).cut_off(), ids_ahead=True)
    next_seq = int(after_crash.yard.logs["log"].next_seq)
    assert next_seq > 2
    after_crash.journal.append_clean()
    after_crash.journal.close()
    after_stop = OpenYard(storage_of(after_crash).cut_off(), ids_ahead=True)
    assert after_stop.yard.logs["log"].next_seq == next_seq


def test_a_log_whose_durability_changes_keeps_what_was_written() -> None:
    site, log = begin()
    write(site, log, *[row(i) for i in range(5)])
    set_config(site.yard, log, config_of(durability=MEMORY, cap_records=3), site.now_ms)
    write(site, log, row(6))
    assert seqs(page_of(site, log)) == [4, 5, 6]
    assert_same_after_restart(site)


def test_a_log_that_holds_records_becomes_neither_ephemeral_nor_lasting() -> None:
    site, log = begin()
    write(site, log, row(1))
    with pytest.raises(HoldsRecords):
        set_config(site.yard, log, config_of(durability=EPHEMERAL), site.now_ms)
    assert log.config.durability == FSYNC
    other = new_log(site, "other", durability=EPHEMERAL)
    write(site, other, row(1))
    with pytest.raises(HoldsRecords):
        set_config(site.yard, other, config_of(durability=DISK), site.now_ms)
    set_config(site.yard, other, config_of(durability=EPHEMERAL, cap_records=1), site.now_ms)
    assert again(site).yard.logs["other"].config.cap_records == 1


def test_an_empty_log_may_become_ephemeral_and_lasting_again() -> None:
    site, log = begin()
    write(site, log, *[row(i, tag="t") for i in range(5)])
    delete_tagged(site, log, "t")
    set_config(site.yard, log, config_of(durability=EPHEMERAL, cap_records=2), site.now_ms)
    write(site, log, row("lost"), row("kept"))
    write(site, log, row("kept too"))
    recount(site.yard)
    other = again(site)
    log = other.yard.logs["log"]
    assert log.count == 0
    first = int(log.next_seq)
    write(other, log, row("gone"))
    delete_below(other, log, first + 1)
    set_config(other.yard, log, config_of(durability=DISK), other.now_ms)
    write(other, log, row("safe"))
    third = again(other)
    log = third.yard.logs["log"]
    recount(third.yard)
    assert [(item[0], item[4]) for item in contents(third, log)] == [(first + 1, "safe")]
    assert page_of(third, log, 6).tombstone is not None, "what a restart took was forgotten"


# -- torn tails ------------------------------------------------------------------------------------


def test_all_of_a_write_comes_back_or_nothing_wherever_the_last_batch_is_cut() -> None:
    site, log = begin()
    write(site, log, row("before"))
    site.commit()
    before = log_facts(site.yard, log)
    cap = config_of(durability=FSYNC)
    assert log.config.encode() == cap.encode()
    write(site, log, *[row("x" * 30, tag=f"t{i}") for i in range(4)], key="k")
    site.commit()
    after = log_facts(site.yard, log)
    segment = site.journal.hot
    _, offset, size = batches(storage_of(site), segment)[-1]
    for end in range(offset, offset + size + 1):
        storage = storage_of(site).killed()
        blank = bytes(offset + size - end)
        storage.write(segment.name, end, blank)
        left = OpenYard(storage).yard
        found = log_facts(left, left.logs["log"])
        assert found == (after if end == offset + size else before), end


# -- compaction ------------------------------------------------------------------------------------


def change(site: OpenYard, log: LogTopic, what: int, chance: random.Random) -> None:
    """Append to a log, or delete from it."""
    if what < 12:
        rows = [
            row("x" * chance.randrange(300), tag=chance.choice(["", "a", "b:1", "b:2"]))
            for _ in range(chance.randrange(1, 20))
        ]
        write(site, log, *rows, key=chance.choice(["", "", "k1", "k2"]))
    elif what < 14:
        delete_tagged(site, log, "b", prefix=True)
    else:
        delete_below(site, log, int(log.earliest_seq) + chance.randrange(100))


def churn(site: OpenYard, chance: random.Random, steps: int) -> None:
    """Append, delete and expire in several logs and a queue, at random."""
    names = [f"log{i}" for i in range(4)]
    for _ in range(steps):
        name = chance.choice(names)
        log = site.yard.logs.get(name)
        what = chance.randrange(20)
        if log is None:
            caps = chance.choice([0, 0, 30])
            new_log(site, name, durability=FSYNC, cap_records=caps, ttl_ms=chance.choice([0, 900]))
        elif what < 15:
            change(site, log, what, chance)
        elif what < 17:
            site.put(b"y" * chance.randrange(2000))
        elif what == 17:
            client = site.connect()
            client.say(b"reserve-with-timeout 0\r\ndelete 1\r\n")
            client.leave()
        elif what == 18 and chance.random() < 0.3:
            drop_log(site.yard, log, site.now_ms)
        site.now_ms += chance.randrange(20)
        if chance.random() < 0.3:
            site.commit()
        if chance.random() < 0.05:
            site.compactor.step()


@pytest.mark.parametrize("seed", range(12))
def test_logs_and_jobs_survive_compaction_and_restarts(seed: int) -> None:
    chance = random.Random(seed)
    budget = 1 << 40 if seed % 2 else 0
    site = OpenYard(MemoryStorage(), budget=budget)
    dropped = 0
    for _ in range(4):
        churn(site, chance, 150)
        recount(site.yard)
        site.commit()
        site.compact()
        recount(site.yard)
        site.commit()
        expected = snapshot(site.yard)
        dropped += int(site.compactor.dropped_count)
        site = OpenYard(storage_of(site).cut_off(), site.now_ms, budget=budget)
        recount(site.yard)
        assert snapshot(site.yard) == expected
    assert dropped > 3


def test_a_segment_whose_records_are_all_gone_goes_unread() -> None:
    site, log = begin()
    for _ in range(200):
        write(site, log, row("x" * 1000))
        site.commit()
    assert len(site.journal.segments) > 3
    delete_below(site, log, 200)
    site.commit()
    site.compact()
    assert len(site.journal.segments) <= 3
    assert site.journal.moved_count < 20
    assert_same_after_restart(site)


def test_a_log_that_lives_whole_is_not_copied_in_a_circle() -> None:
    site, log = begin()
    for i in range(3000):
        write(site, log, row(i))
        site.commit()
    site.compact()
    moved = site.journal.moved_count
    for _ in range(20):
        site.compact()
    assert site.journal.moved_count == moved
    assert page_of(site, log).count == 3000
    assert_same_after_restart(site)


def sliced() -> MemoryStorage:
    """Return a journal with a segment that takes several slices to compact."""
    site, log = begin()
    for i in range(300):
        write(site, log, row(i, tag="first" if i < 80 else "stay" if i % 8 == 0 else "go"))
        site.commit()
    delete_tagged(site, log, "go")
    for _ in range(70):
        write(site, log, row("y" * 800, tag="stay"))
    site.commit()
    return storage_of(site).cut_off()


def prepared() -> MemoryStorage:
    """Return a journal with a segment that is worth compacting, with every kind of record in it."""
    site, log = begin()
    write(site, log, row("keyed", tag="stay"), key="k")
    for i in range(120):
        write(site, log, row("x" * 400, tag="stay" if i % 8 == 0 else "go"))
    site.commit()
    delete_tagged(site, log, "go")
    drop_log(site.yard, new_log(site, "gone", durability=FSYNC), site.now_ms)
    for i in range(140):
        write(site, log, row("y" * 400, tag="stay" if i % 8 == 0 else "go"))
    delete_tagged(site, log, "go")
    site.put(b"a job")
    site.commit()
    return storage_of(site).cut_off()


def test_compaction_may_be_cut_anywhere() -> None:
    expected = snapshot(OpenYard(prepared()).yard)

    def run(storage: MemoryStorage) -> None:
        OpenYard(storage).compact()

    count = 0
    for storage in stop_everywhere(prepared, run):
        count += EACH
        for left in (storage.killed(), storage.cut_off()):
            site = OpenYard(left)
            recount(site.yard)
            assert snapshot(site.yard) == expected
            # What was cut short is brought to its end, and deleted records stay away.
            site.compact()
            recount(site.yard)
            site.commit()
            assert isinstance(site.storage, MemoryStorage)
            assert snapshot(OpenYard(site.storage.cut_off()).yard) == expected
    assert count > 20


def test_the_clock_may_be_set_by_years_between_a_write_with_a_key_and_its_copy() -> None:
    site = OpenYard(prepared())
    site.journal.wall_offset_ms = 10 * 365 * 86_400_000
    superseded = 0
    for _ in range(30):
        site.compactor.step()
        site.commit()
        again = OpenYard(storage_of(site).killed())
        assert again.recovered is not None
        superseded += len(again.recovered.superseded) > 0
        log = again.yard.logs["log"]
        others = [int(record[0]) for record in contents(again, log) if record[0] > 1]
        erase_seqs(again.yard, log, others)
        again.commit()
        again.compact()
        recount(again.yard)
        key = log.keys.get("k")
        assert key is not None
        assert key.first_seq == 1
        assert [record[0] for record in contents(again, log)] == [1]
    assert superseded > 0


def test_what_is_deleted_after_a_cut_compaction_does_not_come_back_from_its_victim() -> None:
    def run(storage: MemoryStorage) -> None:
        OpenYard(storage).compact()

    superseded = 0
    for storage in stop_everywhere(sliced, run):
        site = OpenYard(storage.killed())
        assert site.recovered is not None
        if not site.recovered.superseded:
            continue
        superseded += 1
        log = site.yard.logs["log"]
        # The copies are all gone now, while the victim holds what was not copied yet.
        delete_tagged(site, log, "first")
        site.commit()
        for _ in range(4):
            site.compactor.step()
            site.commit()
        for _ in range(60):
            write(site, log, row("z" * 1000, tag="late"))
        delete_tagged(site, log, "late")
        site.commit()
        for _ in range(12):
            site.compactor.step()
            site.commit()
            recount(site.yard)
            left = storage_of(site).cut_off()
            assert snapshot(OpenYard(left).yard) == snapshot(site.yard)
    assert superseded > 0


def test_seqs_go_on_when_the_segment_of_the_last_record_is_gone() -> None:
    site, log = begin()
    write(site, log, row(1, tag="t"))
    delete_tagged(site, log, "t")
    for _ in range(200):
        site.put(b"x" * 1000)
        site.commit()
    segment = int(log.segment)
    for job in site.yard.jobs.all():
        client = site.connect()
        client.say(b"delete %d\r\n" % int(job.id))
    site.commit()
    site.compact()
    assert segment not in site.journal.segments
    other = again(site)
    assert other.yard.logs["log"].next_seq == 2
