import json

import pytest

from jobyard.engine.jobs.tick import tick
from jobyard.engine.logs.logs import (
    TRIM_ROWS,
    drop_log,
    drop_reader,
    hold_reader,
    open_log,
    seq_at,
    set_config,
)
from jobyard.errors import YardFull
from jobyard.model.limits import NEVER_MS
from jobyard.model.topic.config import EPHEMERAL, FSYNC
from jobyard.model.topic.log import LogTopic, OpenLogReader, TopicFull, WriteTooLarge
from jobyard.model.topic.log_chunk import LOG_CHUNK_ROWS
from tests.support.engine.logs import (
    config_of,
    contents,
    delete_below,
    delete_tagged,
    items,
    new_log,
    page_of,
    row,
    seqs,
    write,
)
from tests.support.site.recount import recount
from tests.support.site.site import NOW_MS
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard


class Listener(OpenLogReader):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def appended(self, log: LogTopic) -> None:
        self.heard.append(log.name)


def fill(site: OpenYard, log: LogTopic, count: int, tag: str = "") -> None:
    write(site, log, *[row(i, tag=tag) for i in range(count)])


def test_a_write_gets_seqs_in_a_row_and_is_read_back_as_it_came() -> None:
    site = OpenYard()
    log = new_log(site)
    first = write(site, log, row({"a": [1, None]}), row("x", meta={"k": 1}))
    second = write(site, log, row(3))
    assert (first.first_seq, first.last_seq, first.is_deduped) == (1, 2, False)
    assert (second.first_seq, second.last_seq) == (3, 3)
    page = page_of(site, log)
    assert b"".join(page.records) == (
        b'{"$seq":1,"$ts":1700000000000,"data":{"a": [1, null]}},'
        b'{"$seq":2,"$ts":1700000000000,"data":"x","meta":{"k": 1}},'
        b'{"$seq":3,"$ts":1700000000000,"data":3}'
    )
    assert (page.next_from_seq, page.head_seq, page.earliest_seq) == (3, 3, 1)
    assert page.tombstone is None
    assert log.bytes == len('{"a": [1, null]}"x"{"k": 1}3')


def test_an_empty_log_has_its_first_record_at_its_next_seq() -> None:
    site = OpenYard()
    log = new_log(site)
    page = page_of(site, log)
    assert (page.next_from_seq, page.head_seq, page.earliest_seq, page.count) == (0, 0, 1, 0)
    assert page.tombstone is None


def test_tags_are_shown_between_time_and_data_when_asked_for_and_nodes_always() -> None:
    site = OpenYard()
    log = new_log(site)
    write(site, log, row(1, tag='a"b', node="n"), row(2), row(3, node="m"))
    page = page_of(site, log, tags=True)
    assert b"".join(page.records) == (
        b'{"$seq":1,"$ts":1700000000000,"$tag":"a\\"b","$node":"n","data":1},'
        b'{"$seq":2,"$ts":1700000000000,"data":2},'
        b'{"$seq":3,"$ts":1700000000000,"$node":"m","data":3}'
    )
    # Without tags the node is still stored: readers skip their own records by it.
    assert b"".join(page_of(site, log).records) == (
        b'{"$seq":1,"$ts":1700000000000,"$node":"n","data":1},'
        b'{"$seq":2,"$ts":1700000000000,"data":2},'
        b'{"$seq":3,"$ts":1700000000000,"$node":"m","data":3}'
    )


def test_data_is_left_out_when_it_is_not_wanted() -> None:
    site = OpenYard()
    log = new_log(site)
    write(site, log, row("long", meta={"k": "}{"}, tag="t", node="n"), row(2))
    assert b"".join(page_of(site, log, data=False, tags=True).records) == (
        b'{"$seq":1,"$ts":1700000000000,"$tag":"t","$node":"n","meta":{"k": "}{"}},'
        b'{"$seq":2,"$ts":1700000000000}'
    )
    assert items(page_of(site, log, data=False, meta=False)) == [
        {"$seq": 1, "$ts": NOW_MS, "$node": "n"},
        {"$seq": 2, "$ts": NOW_MS},
    ]
    assert items(page_of(site, log, data=False)) == [
        {"$seq": 1, "$ts": NOW_MS, "$node": "n", "meta": {"k": "}{"}},
        {"$seq": 2, "$ts": NOW_MS},
    ]


def test_meta_is_left_out_when_it_is_not_wanted() -> None:
    site = OpenYard()
    log = new_log(site)
    write(site, log, row(1, meta={"long": "}{"}, tag="t"), row(2))
    assert items(page_of(site, log, meta=False, tags=True)) == [
        {"$seq": 1, "$ts": NOW_MS, "$tag": "t", "data": 1},
        {"$seq": 2, "$ts": NOW_MS, "data": 2},
    ]


def test_a_reader_does_not_see_what_its_own_nodes_wrote_but_moves_past_it() -> None:
    site = OpenYard()
    log = new_log(site)
    write(site, log, row(1, node="a"), row(2, node="b"), row(3), row(4, node="a"))
    page = page_of(site, log, 0, 10, 1 << 20, "a")
    assert seqs(page) == [2, 3]
    assert (page.next_from_seq, page.scanned) == (4, 4)
    assert seqs(page_of(site, log, 0, 10, 1 << 20, "a", "b")) == [3]
    assert seqs(page_of(site, log, 0, 10, 1 << 20, "z")) == [1, 2, 3, 4]
    set_config(site.yard, log, config_of(dedupe_node=False), site.now_ms)
    assert seqs(page_of(site, log, 0, 10, 1 << 20, "a")) == [1, 2, 3, 4]


@pytest.mark.parametrize("tags", [False, True])
def test_a_page_ends_at_its_limit_and_at_its_size_but_has_one_record(*, tags: bool) -> None:
    site = OpenYard()
    log = new_log(site)
    fill(site, log, 2 * LOG_CHUNK_ROWS + 10, tag="t")
    assert seqs(page_of(site, log, 5, 3, tags=tags)) == [6, 7, 8]
    page = page_of(site, log, LOG_CHUNK_ROWS - 2, 4, tags=tags)
    assert seqs(page) == [
        LOG_CHUNK_ROWS - 1,
        LOG_CHUNK_ROWS,
        LOG_CHUNK_ROWS + 1,
        LOG_CHUNK_ROWS + 2,
    ]
    assert page.next_from_seq == LOG_CHUNK_ROWS + 2
    assert seqs(page_of(site, log, 9, 100, 0, tags=tags)) == [10]
    assert seqs(page_of(site, log, 2 * LOG_CHUNK_ROWS, 100, 0, tags=tags)) == [
        2 * LOG_CHUNK_ROWS + 1
    ]
    few = page_of(site, log, 9, 100, 200, tags=tags)
    assert few.count >= 2
    assert len(b"".join(few.records)) <= 200
    assert few.next_from_seq == 9 + few.count
    many = page_of(site, log, tags=tags)
    assert many.count == 2 * LOG_CHUNK_ROWS + 10


def test_following_the_cursor_gives_every_record_once() -> None:
    site = OpenYard()
    log = new_log(site)
    fill(site, log, 3000)
    delete_below(site, log, 500)
    found: list[object] = []
    cursor = 0
    while cursor < log.next_seq - 1:
        page = page_of(site, log, cursor, 77, 2000)
        found += seqs(page)
        cursor = int(page.next_from_seq)
    assert found == list(range(500, 3001))


def test_long_records_are_not_joined_and_read_alike() -> None:
    site = OpenYard()
    log = new_log(site)
    for i in range(LOG_CHUNK_ROWS + 5):
        write(site, log, row("x" * (3000 if i < 1000 else 5), tag="t"))
    assert not log.chunks[0].is_joined
    assert seqs(page_of(site, log, 0, 3)) == [1, 2, 3]
    assert seqs(page_of(site, log, 3, 100, 6200)) == [4, 5]
    assert page_of(site, log).count == LOG_CHUNK_ROWS + 5
    assert delete_tagged(site, log, "t") == LOG_CHUNK_ROWS + 5
    assert log.memory == 0


# -- letting go ------------------------------------------------------------------------------------


def test_a_cap_on_records_lets_the_oldest_go_and_tells_late_readers() -> None:
    site = OpenYard()
    log = new_log(site, cap_records=3)
    fill(site, log, 2)
    fill(site, log, 3)
    assert (log.count, log.earliest_seq) == (3, 3)
    page = page_of(site, log)
    assert seqs(page) == [3, 4, 5]
    tombstone = page.tombstone
    assert tombstone is not None
    assert (tombstone.gap_from, tombstone.gap_to, tombstone.reason) == (1, 2, "cap")
    assert (tombstone.missed_estimate, tombstone.earliest_seq, tombstone.head_seq) == (2, 3, 5)
    assert page_of(site, log, 2).tombstone is None
    assert page_of(site, log, 1).tombstone is not None


def test_a_cap_on_bytes_lets_the_oldest_go() -> None:
    site = OpenYard()
    log = new_log(site, cap_bytes=10)
    write(site, log, row("aa"), row("bb"))
    assert log.bytes == 8
    write(site, log, row("c"))
    assert (log.bytes, log.earliest_seq) == (7, 2)


def test_a_write_larger_than_the_cap_of_a_log_that_rejects_changes_nothing() -> None:
    site = OpenYard()
    log = new_log(site, cap_records=2, cap_bytes=20, discard="reject")
    fill(site, log, 1)
    with pytest.raises(WriteTooLarge):
        fill(site, log, 3)
    with pytest.raises(WriteTooLarge):
        write(site, log, row("x" * 20))
    assert (log.count, log.next_seq) == (1, 2)


def test_of_a_write_larger_than_the_cap_the_newest_stay() -> None:
    site = OpenYard()
    log = new_log(site, cap_records=2)
    fill(site, log, 1)
    fill(site, log, 4)
    assert (log.count, log.earliest_seq, log.next_seq, log.cap_floor) == (2, 4, 6, 4)


def test_a_full_log_that_rejects_lets_nothing_go() -> None:
    site = OpenYard()
    log = new_log(site, cap_records=2, discard="reject")
    fill(site, log, 2)
    with pytest.raises(TopicFull):
        fill(site, log, 1)
    assert (log.count, log.next_seq) == (2, 3)
    delete_below(site, log, 2)
    fill(site, log, 1)
    assert seqs(page_of(site, log)) == [2, 3]


def test_records_go_when_their_time_is_over() -> None:
    site = OpenYard()
    log = new_log(site, ttl_ms=1000)
    fill(site, log, 2)
    site.jump(600)
    fill(site, log, 1)
    site.now_ms += 400
    assert page_of(site, log).count == 3
    site.now_ms += 1
    page = page_of(site, log)
    assert seqs(page) == [3]
    assert page.tombstone is not None
    assert page.tombstone.reason == "ttl"
    site.jump(2000)
    assert log.count == 0, "the timer lets go of what nobody reads"
    page = page_of(site, log, 2)
    assert (page.next_from_seq, page.earliest_seq, page.count) == (3, 4, 0)


def test_a_gap_by_cap_and_by_time_is_mixed() -> None:
    site = OpenYard()
    log = new_log(site, ttl_ms=1000, cap_records=3)
    fill(site, log, 3)
    fill(site, log, 1)
    site.now_ms += 2000
    fill(site, log, 1)
    reasons = []
    for from_seq in (0, 1, 3, 4):
        tombstone = page_of(site, log, from_seq).tombstone
        reasons.append(None if tombstone is None else tombstone.reason)
    assert reasons == ["mixed", "ttl", "ttl", None]


def test_a_cursor_ahead_of_the_log_starts_over() -> None:
    site = OpenYard()
    log = new_log(site)
    fill(site, log, 2)
    page = page_of(site, log, 9)
    assert page.tombstone is not None
    assert page.tombstone.reason == "recreated"
    assert seqs(page) == [1, 2]
    assert page.next_from_seq == 2


def test_records_that_may_live_for_ever_are_looked_at_in_ages() -> None:
    site = OpenYard()
    log = new_log(site, ttl_ms=(1 << 63) - 1)
    write(site, log, row(1))
    assert log.alarm is not None
    assert NEVER_MS // 2 < log.alarm.sort_key < NEVER_MS


def test_tightened_caps_and_ttl_apply_at_once() -> None:
    site = OpenYard()
    log = new_log(site)
    fill(site, log, 10)
    set_config(site.yard, log, config_of(cap_records=4), site.now_ms)
    assert (log.count, log.earliest_seq) == (4, 7)
    site.now_ms += 100
    set_config(site.yard, log, config_of(ttl_ms=50), site.now_ms)
    assert (log.count, log.earliest_seq, log.next_seq) == (0, 11, 11)


# -- delete ----------------------------------------------------------------------------------------


def test_delete_by_seq_is_silent_and_bounded_by_the_head() -> None:
    site = OpenYard()
    log = new_log(site)
    fill(site, log, 5)
    assert delete_below(site, log, 3) == 2
    assert delete_below(site, log, 3) == 0
    page = page_of(site, log)
    assert (seqs(page), page.tombstone) == ([3, 4, 5], None)
    assert delete_below(site, log, 1 << 40) == 3
    fill(site, log, 1)
    assert seqs(page_of(site, log)) == [6]


@pytest.mark.parametrize("before", [1, 3000])
def test_delete_by_tag_takes_what_is_there_now(before: int) -> None:
    site = OpenYard()
    log = new_log(site)
    fill(site, log, before)
    write(site, log, row(1, tag="a:1"), row(2, tag="a:10"), row(3), row(4, tag="b", node="a:1"))
    fill(site, log, before)
    first = before + 1
    assert delete_tagged(site, log, "a:1") == 1
    assert seqs(page_of(site, log, first - 1, 2)) == [first + 1, first + 2]
    write(site, log, row(5, tag="a:1"))
    assert delete_tagged(site, log, "a:", before=first + 1, prefix=True) == 0
    assert delete_tagged(site, log, "a:", prefix=True) == 2
    assert delete_tagged(site, log, "") == 0, "no tag matches nothing"
    assert delete_tagged(site, log, "", prefix=True) == 1, "any tag"
    assert page_of(site, log).tombstone is None


def test_texts_of_deleted_records_leave_memory() -> None:
    site = OpenYard()
    log = new_log(site)
    write(site, log, *[row(i, tag="odd" if i % 4 else "even") for i in range(2000)])
    whole = int(log.memory)
    delete_tagged(site, log, "odd")
    assert log.memory * 2 < whole
    assert seqs(page_of(site, log)) == list(range(1, 2001, 4))
    assert site.yard.bodies.in_memory == log.memory


# -- keys ------------------------------------------------------------------------------------------


def test_a_key_answers_the_first_seqs_within_its_window() -> None:
    site = OpenYard()
    log = new_log(site, idempotency_window_ms=1000)
    fill(site, log, 1)
    first = write(site, log, row(1), row(2), key="k")
    site.now_ms += 999
    again = write(site, log, row(1), row(2), key="k")
    assert (again.first_seq, again.last_seq, again.is_deduped) == (2, 3, True)
    assert (again.batch, log.next_seq) == (first.batch, 4)
    assert not write(site, log, row(1), key="other").is_deduped
    site.now_ms += 1
    assert write(site, log, row(1), key="k").first_seq == 5


def test_a_key_answers_even_when_the_log_is_full() -> None:
    site = OpenYard()
    log = new_log(site, cap_records=1, discard="reject")
    write(site, log, row(1), key="k")
    assert write(site, log, row(1), key="k").is_deduped


# -- readers and time ------------------------------------------------------------------------------


def test_readers_are_notified_of_writes_settings_and_the_end() -> None:
    site = OpenYard()
    log = new_log(site)
    listener = Listener()
    hold_reader(log, listener)
    fill(site, log, 3)
    assert len(listener.heard) == 1
    set_config(site.yard, log, config_of(ttl_ms=5), site.now_ms)
    assert len(listener.heard) == 2
    drop_reader(log, listener)
    fill(site, log, 1)
    hold_reader(log, listener)
    drop_log(site.yard, log, site.now_ms)
    assert len(listener.heard) == 3
    assert log.is_dropped


def test_a_dropped_log_is_gone_and_another_of_its_name_starts_over() -> None:
    site = OpenYard()
    log = new_log(site)
    fill(site, log, 3)
    drop_log(site.yard, log, site.now_ms)
    assert site.yard.logs == {}
    assert site.yard.bodies.in_memory == 0
    fresh = new_log(site)
    assert fresh.incarnation != log.incarnation
    assert open_log(site.yard, "log", fresh.config, site.now_ms) is fresh
    fill(site, fresh, 1)
    assert seqs(page_of(site, fresh)) == [1]


def test_time_never_goes_back_in_a_log() -> None:
    site = OpenYard()
    log = new_log(site)
    site.journal.wall_offset_ms = 5000
    fill(site, log, 1)
    site.journal.wall_offset_ms = 0
    fill(site, log, 1)
    assert [item["$ts"] for item in items(page_of(site, log))] == [NOW_MS + 5000] * 2


def test_a_seq_is_found_by_time() -> None:
    site = OpenYard()
    log = new_log(site)
    for _ in range(2100):
        fill(site, log, 1)
        site.now_ms += 2
    assert seq_at(site.yard, log, 0) == 1
    assert seq_at(site.yard, log, NOW_MS + 4) == 3
    assert seq_at(site.yard, log, NOW_MS + 5) == 4
    assert seq_at(site.yard, log, NOW_MS + 2 * 1500) == 1501
    assert seq_at(site.yard, log, site.now_ms + 1) == 2101
    delete_below(site, log, 1000)
    assert seq_at(site.yard, log, 0) == 1000


# -- room ------------------------------------------------------------------------------------------


def test_without_a_journal_the_budget_refuses_what_does_not_fit() -> None:
    site = OpenYard(budget=400)
    log = new_log(site)
    write(site, log, row("x" * 200))
    with pytest.raises(YardFull):
        write(site, log, row("x" * 200), key="k")
    assert (log.count, log.next_seq, log.keys.count()) == (1, 2, 0)
    delete_below(site, log, 5)
    write(site, log, row("x" * 200))


def test_a_full_disk_refuses_writes_and_changes_nothing() -> None:
    storage = MemoryStorage()
    storage.capacity = 6 << 16
    site = OpenYard(storage)
    log = new_log(site, durability=FSYNC, cap_records=5)
    refused = 0
    for _ in range(400):
        before = contents(site, log)
        try:
            write(site, log, row("x" * 1000, tag="t"))
        except YardFull:
            refused += 1
            assert contents(site, log) == before
        site.commit()
    assert refused > 0
    assert delete_tagged(site, log, "t") == 5
    with pytest.raises(YardFull):
        new_log(site, "other")
    assert "other" not in site.yard.logs


def test_logs_that_promise_nothing_write_no_records() -> None:
    site = OpenYard(MemoryStorage())
    log = new_log(site, durability=EPHEMERAL, cap_records=200, ttl_ms=1000)
    site.commit()
    fill(site, log, 1)
    site.commit()
    # The first write behind the one that reserved seqs sees that they are reserved.
    fill(site, log, 3)
    count = site.journal.records_count
    for _ in range(100):
        assert write(site, log, row(0, tag="t"), row(1), row(2)).batch == 0
    assert page_of(site, log).count == 200
    assert delete_tagged(site, log, "t") > 0
    assert delete_below(site, log, 200) > 0
    site.jump(2000)
    assert page_of(site, log).count == 0
    assert site.journal.records_count == count
    assert not site.journal.has_open_records()


def test_an_answer_waits_for_the_batch_of_its_write() -> None:
    site = OpenYard(MemoryStorage())
    log = new_log(site, durability=FSYNC)
    site.commit()
    done = write(site, log, row(1))
    assert done.batch == site.journal.open_number
    assert page_of(site, log).batch == done.batch
    site.commit()
    assert page_of(site, log).batch <= site.journal.durable
    assert json.loads(b"".join(page_of(site, log).records))["$seq"] == 1


def test_very_many_records_are_removed_over_turns() -> None:
    site = OpenYard()
    many = 3 * int(TRIM_ROWS)
    aged = new_log(site, "aged", ttl_ms=5000)
    capped = new_log(site, "capped")
    for _ in range(0, many, 4096):
        write(site, aged, *[row(1)] * 4096)
        write(site, capped, *[row(1)] * 4096)
    site.now_ms += 5001
    for count in (2, 1, 0):
        tick(site.yard, site.now_ms)
        assert aged.count == count * TRIM_ROWS
        site.now_ms += 1
    set_config(site.yard, capped, config_of(cap_records=10), site.now_ms)
    for count in (2, 1, 0):
        assert capped.count == max(count * TRIM_ROWS, 10)
        site.now_ms += 1
        tick(site.yard, site.now_ms)
    assert not capped.is_late


def test_the_weight_of_a_chunk_is_that_of_its_records() -> None:
    site = OpenYard(MemoryStorage())
    log = new_log(site)
    for at in range(3 * LOG_CHUNK_ROWS):
        write(site, log, row(at, tag=f"t{at % 7}", node="n" * (at % 3)))
    first, second, third = log.chunks
    for step, tag in enumerate(("t3", "t1", "t6", "t0")):
        delete_tagged(site, log, tag)
        if step == 2:
            site.commit()
            log.cool(second)
        for chunk in (first, second, third):
            slots = [slot for slot in range(int(chunk.used())) if chunk.is_alive(slot)]
            assert chunk.weight() == sum(chunk.weight_of(slot) for slot in slots)
    recount(site.yard)


def test_a_log_that_is_dropped_is_off_the_books_at_once_and_freed_in_slices() -> None:
    site = OpenYard(MemoryStorage())
    site.yard.tasks.units_per_turn = 200
    site.yard.tasks.proceed(site.now_ms)
    log = new_log(site)
    write(site, log, *[row(at, tag=f"t{at % 2}") for at in range(9 * LOG_CHUNK_ROWS)])
    delete_tagged(site, log, "t1")
    drop_log(site.yard, log, site.now_ms)
    assert (log.count, log.memory, site.yard.bodies.in_memory) == (0, 0, 0)
    recount(site.yard)
    turns = 0
    while site.yard.tasks.proceed(site.now_ms):
        turns += 1
    assert turns > 1


def test_the_texts_of_a_long_write_are_joined_afterwards() -> None:
    site = OpenYard(MemoryStorage())
    site.yard.tasks.units_per_turn = 200
    site.yard.tasks.proceed(site.now_ms)
    log = new_log(site)
    write(site, log, row("first"))
    write(
        site, log, *[row(at, tag=f"t{at % 9}", meta={"a": at}) for at in range(3 * LOG_CHUNK_ROWS)]
    )
    before = contents(site, log)
    assert [chunk.is_joined for chunk in log.chunks] == [False] * 4
    delete_tagged(site, log, "t4")
    while site.yard.tasks.proceed(site.now_ms):
        write(site, log, row("more"))
    assert [chunk.is_joined for chunk in log.chunks] == [True] * 3 + [False]
    kept = [one for one in before if one[2] != "t4"]
    assert contents(site, log)[: len(kept)] == kept
    recount(site.yard)
