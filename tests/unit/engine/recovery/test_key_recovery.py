"""Keys of records over restarts, kills at every step, and compaction."""

import pytest

from jobyard.engine.jobs.finish import finish
from jobyard.engine.jobs.move import remove
from jobyard.engine.logs.logs import drop_log, set_config
from jobyard.engine.topics.topic_setup import drop_topic_queue, open_topic_queue, set_queue_config
from jobyard.model.entry import EntryKind
from jobyard.model.topic.config import DISK, EPHEMERAL, QUEUE
from jobyard.model.topic.log import LogTopic
from tests.support.engine.logs import config_of, delete_below, new_log, row, write
from tests.support.engine.record_keys import key_tables, keys_in, produce_keyed, write_keyed
from tests.support.site.recount import recount
from tests.support.site.snapshot import snapshot
from tests.support.site.storage import EACH, MemoryStorage, stop_everywhere
from tests.support.site.yard import OpenYard

DAY_MS = 86_400_000


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


def log_of(site: OpenYard) -> LogTopic:
    return site.yard.logs["log"]


def test_a_key_is_known_after_a_restart_even_if_its_record_is_gone() -> None:
    site = OpenYard(MemoryStorage())
    log = new_log(site)
    assert write_keyed(site, log, (1, "a"), (2, ""), (3, "b"), (4, "a")) == (3, [(3, 1)])
    delete_below(site, log, 4)
    assert log.count == 0
    for _ in range(3):
        site = again(site, 1000)
        assert write_keyed(site, log_of(site), (9, "b"), (9, "a")) == (0, [(0, 3), (1, 1)])
    assert log_of(site).next_seq == 4
    assert write_keyed(site, log_of(site), (9, "c"), (9, "c")) == (1, [(1, 4)])


def test_a_key_of_a_job_is_known_when_the_job_and_its_queue_are_empty() -> None:
    site = OpenYard(MemoryStorage())
    queue = open_topic_queue(site.yard, "q", config_of(type=QUEUE), site.now_ms)
    assert produce_keyed(site, queue, (1, "a"), (2, "b")) == (2, [])
    for job in list(site.yard.jobs.all()):
        site.run(job)
        finish(site.yard, job, site.now_ms)
    assert queue.jobs_count() == 0
    site = again(site)
    assert produce_keyed(site, site.yard.queues["q"], (1, "b"), (2, "c")) == (1, [(0, 2)])
    assert site.yard.jobs.all()[0].key == 3


def test_a_queue_of_another_door_becomes_a_topic_with_its_first_key() -> None:
    site = OpenYard(MemoryStorage())
    job = site.put()
    queue = site.queue()
    assert queue.config is None
    assert produce_keyed(site, queue, (1, "a")) == (1, [])
    for one in [job, *site.yard.jobs.all()[1:]]:
        remove(site.yard, one, site.now_ms)
    site = again(site)
    assert produce_keyed(site, site.queue(), (1, "a")) == (0, [(0, 2)])


def test_a_key_is_forgotten_after_its_window_and_the_time_without_power_counts() -> None:
    site = OpenYard(MemoryStorage())
    write_keyed(site, new_log(site, key_window_ms=DAY_MS), (1, "a"))
    site = again(site, DAY_MS - 1)
    assert write_keyed(site, log_of(site), (1, "a")) == (0, [(0, 1)])
    site = again(site, 1)
    assert write_keyed(site, log_of(site), (1, "a")) == (1, [])
    # The newer of the two counts, whatever is still on the disk.
    site = again(site, DAY_MS - 1)
    assert write_keyed(site, log_of(site), (1, "a")) == (0, [(0, 2)])


def test_a_longer_window_does_not_bring_back_what_was_forgotten() -> None:
    site = OpenYard(MemoryStorage())
    log = new_log(site, key_window_ms=1000)
    write_keyed(site, log, (1, "a"))
    site.now_ms += 1000
    write_keyed(site, log, (1, "b"))
    set_config(site.yard, log, config_of(key_window_ms=DAY_MS), site.now_ms)
    for one in (site, again(site, 5000)):
        assert write_keyed(one, log_of(one), (1, "b")) == (0, [(0, 2)])
        assert write_keyed(one, log_of(one), (1, "a")) == (1, [])
    # A shorter one counts at once.
    site = again(site, 5000)
    set_config(site.yard, log_of(site), config_of(key_window_ms=10), site.now_ms)
    assert write_keyed(site, log_of(site), (1, "b")) == (1, [])


def test_the_keys_of_a_dropped_topic_are_gone() -> None:
    site = OpenYard(MemoryStorage())
    queue = open_topic_queue(site.yard, "q", config_of(type=QUEUE), site.now_ms)
    write_keyed(site, new_log(site), (1, "a"))
    produce_keyed(site, queue, (1, "a"))
    site = again(site)
    drop_log(site.yard, log_of(site), site.now_ms)
    drop_topic_queue(site.yard, site.yard.queues["q"], site.now_ms)
    recount(site.yard)
    assert site.yard.bodies.pinned == 0
    site = again(site)
    assert not site.yard.key_tables
    entries = site.journal.entries.values()
    assert all(one.is_gone for one in entries if one.kind == EntryKind.RECORD_KEY)
    assert write_keyed(site, new_log(site), (1, "a")) == (1, [])
    # Under a number that no old record has.
    site = again(site)
    assert write_keyed(site, log_of(site), (1, "a")) == (0, [(0, 1)])
    assert len(site.yard.key_tables) == 1


def test_keys_of_a_log_in_memory_are_forgotten_with_its_records() -> None:
    site = OpenYard(MemoryStorage())
    log = new_log(site, durability=EPHEMERAL)
    write_keyed(site, log, (1, "a"))
    assert write_keyed(site, log, (1, "a")) == (0, [(0, 1)])
    delete_below(site, log, 9)
    set_config(site.yard, log, config_of(durability=DISK), site.now_ms)
    write_keyed(site, log, (1, "b"))
    site = again(site)
    assert write_keyed(site, log_of(site), (1, "b"))[0] == 0
    assert write_keyed(site, log_of(site), (1, "a")) == (1, [])


@pytest.mark.parametrize("back_ms", [5000, 10 * 365 * DAY_MS])
def test_if_the_clock_is_set_back_a_key_stays_for_one_window(back_ms: int) -> None:
    site = OpenYard(MemoryStorage())
    write_keyed(site, new_log(site, key_window_ms=DAY_MS), (1, "a"))
    site = again(site, -back_ms)
    assert write_keyed(site, log_of(site), (1, "a"), (1, "b")) == (1, [(0, 1)])
    site.now_ms += DAY_MS
    assert write_keyed(site, log_of(site), (1, "a")) == (1, [])


def prepared() -> MemoryStorage:
    """Return a journal in which keys are among much that is dead, some of them expired."""
    site = OpenYard(MemoryStorage(), segment_size=1 << 13)
    log = new_log(site, key_window_ms=DAY_MS)
    other = new_log(site, "other", key_window_ms=DAY_MS)
    queue = open_topic_queue(site.yard, "q", config_of(type=QUEUE), site.now_ms)
    write_keyed(site, other, (0, "gone"))
    for at in range(40):
        site.now_ms += 1000
        write_keyed(site, log, (at, f"a{at}"), (at, f"b{at}"), (at, f"a{at // 2}"))
        produce_keyed(site, queue, (at, f"q{at}"))
        write(site, log, row("x" * 400))
        site.commit()
    drop_log(site.yard, other, site.now_ms)
    site.now_ms += DAY_MS - 20_000
    delete_below(site, log, int(log.next_seq))
    write_keyed(site, log, (1, "a3"))
    site.commit()
    recount(site.yard)
    return storage_of(site).cut_off()


def test_compaction_copies_the_valid_keys_and_no_others() -> None:
    site = OpenYard(prepared())
    before = snapshot(site.yard)
    now_ms = site.now_ms
    size = len(storage_of(site).files)
    site.compact()
    recount(site.yard)
    assert snapshot(site.yard) == before
    assert len(storage_of(site).files) < size
    site = again(site)
    assert snapshot(site.yard) == before
    site.now_ms = now_ms
    assert write_keyed(site, log_of(site), (1, "a39"), (1, "nobody"))[1][0][0] == 0


def test_a_kill_at_any_step_of_a_write_loses_key_and_record_or_neither() -> None:
    def begin() -> MemoryStorage:
        site = OpenYard(MemoryStorage())
        write_keyed(site, new_log(site), (1, "a"))
        site.commit()
        return storage_of(site).cut_off()

    def run(storage: MemoryStorage) -> None:
        site = OpenYard(storage)
        write_keyed(site, log_of(site), (2, "b"), (2, "a"), (3, "c"))
        site.commit()
        write_keyed(site, log_of(site), (4, "d"))
        site.commit()

    seen = set()
    for storage in stop_everywhere(begin, run):
        for left in (storage.killed(), storage.cut_off()):
            site = OpenYard(left)
            recount(site.yard)
            log = log_of(site)
            (table,) = key_tables(site.yard)
            seqs = sorted(seq for seq, _, _ in keys_in(table).values())
            assert seqs == list(range(1, int(log.next_seq)))
            assert len(seqs) == log.count
            seen.add(len(seqs))
    assert seen == {1, 3, 4}


def test_a_kill_at_any_step_of_compaction_loses_no_key() -> None:
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
            site.compact()
            recount(site.yard)
            site.commit()
            assert snapshot(OpenYard(storage_of(site).cut_off()).yard) == expected
    assert count > 20


def test_a_new_window_is_stored_for_queues_too() -> None:
    site = OpenYard(MemoryStorage())
    queue = open_topic_queue(site.yard, "q", config_of(type=QUEUE, key_window_ms=1000), site.now_ms)
    produce_keyed(site, queue, (1, "a"))
    site.now_ms += 2000
    later = config_of(type=QUEUE, key_window_ms=DAY_MS)
    set_queue_config(site.yard, queue, later, site.now_ms)
    site = again(site)
    assert produce_keyed(site, site.yard.queues["q"], (1, "a")) == (1, [])


def test_the_keys_of_a_large_write_are_copied_in_slices() -> None:
    site = OpenYard(MemoryStorage())
    log = new_log(site)
    count = 5000
    write_keyed(site, log, *((at, f"k{at}") for at in range(count)))
    before = {int(number) for number in site.journal.segments}
    delete_below(site, log, count + 1)
    site = again(site)
    steps = 0
    while before & {int(number) for number in site.journal.segments} and steps < 200:
        site.compactor.step()
        site.commit()
        recount(site.yard)
        steps += 1
    assert 5 < steps < 200
    site = again(site)
    (table,) = key_tables(site.yard)
    assert table.count == count
    known = [(at, f"k{at}") for at in range(0, count, 7)]
    assert write_keyed(site, log_of(site), *known) == (
        0,
        [(place, at + 1) for place, (at, _) in enumerate(known)],
    )
