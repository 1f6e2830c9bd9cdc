"""When records are written to disk, and when the answers that wait for them are sent."""

import contextlib

import pytest

from jobyard.engine.topics.topic_setup import open_topic_queue
from jobyard.errors import StorageFailed
from jobyard.journal.reply_gate import Outbox
from jobyard.model.family import BUNQUEUE
from jobyard.model.limits import NEVER_MS
from jobyard.server.committer import LAZY_MS, OFF, OS, SYNC
from jobyard.server.disk import FileStorage
from tests.support.doors.bunqueue import BareBunqueue
from tests.support.engine.topics import config
from tests.support.site.committers import INTERVAL_MS, SLOW_S, Desk, Heard
from tests.support.site.site import NOW_MS
from tests.support.site.yard import OpenYard

# -- class sync --------------------------------------------------------------------------------


def test_one_write_and_one_sync_serve_all_waiting_replies() -> None:
    desk = Desk()
    for _ in range(5):
        desk.put()
    assert desk.heard.data == b""
    desk.committer.turn(NOW_MS)
    assert desk.take_calls() == ["write", "sync"]
    assert desk.heard.data.count(b"INSERTED") == 5
    assert desk.committer.turn(NOW_MS) == NEVER_MS
    assert desk.take_calls() == []


def test_what_nobody_waits_for_is_written_a_little_later() -> None:
    desk = Desk()
    desk.put()
    desk.committer.turn(NOW_MS)
    desk.take_calls()
    desk.say(b"reserve\r\n")
    assert desk.heard.data.endswith(b"RESERVED 1 1\r\nx\r\n"), "a lease was waited for"
    assert desk.committer.turn(NOW_MS) == NOW_MS + LAZY_MS
    assert desk.committer.turn(NOW_MS + LAZY_MS - 1) == NOW_MS + LAZY_MS
    assert desk.take_calls() == []
    assert desk.committer.turn(NOW_MS + LAZY_MS) == NEVER_MS
    assert desk.take_calls() == ["write", "sync"]


def test_much_that_nobody_waits_for_is_written_at_once() -> None:
    desk = Desk()
    for _ in range(100):
        desk.put()
    desk.committer.turn(NOW_MS)
    desk.take_calls()
    count = 0
    while desk.take_calls() == []:
        desk.say(b"reserve\r\n" * 100)
        desk.client.leave()
        desk.client = desk.site.connect()
        desk.committer.turn(NOW_MS)
        count += 1
        assert count < 1000, "a megabyte was never written"


def test_a_failed_sync_lets_nothing_go() -> None:
    desk = Desk()
    desk.put()
    desk.storage.fail_sync = True
    with pytest.raises(StorageFailed):
        desk.committer.turn(NOW_MS)
    assert desk.heard.data == b""


def test_after_a_failed_sync_nothing_goes_ever_again() -> None:
    """A second sync may succeed without the pages that the first could not write."""
    desk = Desk()
    desk.put(b"lost")
    desk.storage.fail_sync = True
    with pytest.raises(StorageFailed):
        desk.committer.turn(NOW_MS)
    desk.storage.fail_sync = False
    desk.put(b"later")
    with contextlib.suppress(StorageFailed):
        desk.committer.turn(NOW_MS)
    assert desk.heard.data == b"", "an answer left after the disk had failed"


# -- in the thread -----------------------------------------------------------------------------


def test_a_slow_sync_moves_to_the_thread() -> None:
    desk = Desk()
    desk.slow_down()
    desk.put()
    assert desk.committer.turn(NOW_MS) == NEVER_MS
    assert desk.take_calls() == ["write"]
    desk.worker.work()
    assert desk.take_calls() == ["sync"]
    assert desk.heard.data == b"", "the thread sent an answer"
    desk.worker.collect()
    assert desk.heard.data.startswith(b"INSERTED")


def test_what_arrives_during_a_sync_is_the_next_batch() -> None:
    desk = Desk()
    desk.slow_down()
    desk.put(b"first")
    desk.committer.turn(NOW_MS)
    for _ in range(3):
        desk.put(b"second")
        assert desk.committer.turn(NOW_MS) == NEVER_MS
    assert desk.take_calls() == ["write"], "the batch under way was added to"
    desk.worker.work()
    desk.worker.collect()
    assert desk.heard.data.count(b"INSERTED") == 1
    desk.committer.turn(NOW_MS)
    desk.worker.work_all()
    assert desk.heard.data.count(b"INSERTED") == 4
    assert desk.take_calls() == ["sync", "write", "sync"]


@pytest.mark.parametrize("is_slow", [False, True])
def test_what_was_done_before_a_commit_took_as_long_as_its_sync(*, is_slow: bool) -> None:
    desk = Desk()
    if is_slow:
        desk.slow_down()
    door = BareBunqueue().door
    desk.committer.observer = door.durations
    desk.storage.sync_s = SLOW_S
    counts = door.yard.counters.at(BUNQUEUE, BUNQUEUE)
    counts.put = 3
    desk.put()
    desk.committer.turn(NOW_MS)
    # Too late for this one.
    counts.put = 13
    desk.worker.work_all()
    assert door.durations.push.count == 3
    assert door.durations.push.sum_us >= 3 * SLOW_S * 1e6


def test_quick_syncs_come_back_to_the_loop() -> None:
    desk = Desk()
    desk.slow_down()
    commits = 0
    while True:
        desk.put()
        desk.committer.turn(NOW_MS)
        if not desk.worker.waiting:
            break
        desk.worker.work_all()
        commits += 1
        assert commits < 200, "the thread stays though the disk is quick"
    assert commits > 2, "one quick sync is no reason to come back"
    assert desk.heard.data.count(b"INSERTED") == commits + 1


# -- classes os and off ------------------------------------------------------------------------


def test_in_class_os_an_answer_waits_for_the_write_only() -> None:
    desk = Desk(OS)
    desk.committer.turn(NOW_MS)
    desk.worker.work_all()
    desk.storage.calls.clear()
    desk.put()
    next_ms = desk.committer.turn(NOW_MS + 1)
    assert desk.take_calls() == ["write"]
    assert desk.heard.data.startswith(b"INSERTED")
    assert NOW_MS < next_ms <= NOW_MS + 1 + INTERVAL_MS


def test_in_class_os_the_sync_follows_in_the_thread() -> None:
    desk = Desk(OS)
    desk.committer.turn(NOW_MS)
    desk.worker.work_all()
    desk.put()
    next_ms = desk.committer.turn(NOW_MS + 1)
    desk.storage.calls.clear()
    desk.committer.turn(next_ms)
    assert desk.take_calls() == []
    desk.worker.work_all()
    assert desk.take_calls() == ["sync"]
    assert desk.journal.durable == desk.journal.written
    assert desk.committer.turn(next_ms + 1) == NEVER_MS


def test_in_class_os_a_slow_sync_makes_nobody_spin() -> None:
    desk = Desk(OS)
    desk.put()
    desk.committer.turn(NOW_MS + INTERVAL_MS)
    assert desk.worker.waiting, "no sync is under way"
    desk.put()
    late_ms = NOW_MS + 10 * INTERVAL_MS
    assert desk.committer.turn(late_ms) > late_ms, "the loop would turn without a pause"
    assert len(desk.worker.waiting) == 1, "a second sync was begun beside the first"
    desk.worker.work_all()
    desk.committer.turn(late_ms)
    desk.worker.work_all()
    assert desk.journal.durable == desk.journal.written


def test_in_class_os_ids_are_on_disk_before_they_run_out() -> None:
    """What a power cut takes away must not be given out again."""
    desk = Desk(OS)
    desk.journal.next_id = (1 << 18) + 5
    desk.put()
    desk.committer.turn(NOW_MS + 1)
    cut = desk.storage.cut_off()
    again = OpenYard(cut, ids_ahead=True)
    assert again.journal.next_id > (1 << 18) + 5


def careful_desk(durability: str = OS) -> Desk:
    """Return a desk with nothing left to sync, whose queue `default` requires syncs."""
    desk = Desk(durability)
    open_topic_queue(desk.site.yard, "default", config(durable=True), NOW_MS)
    desk.committer.turn(NOW_MS)
    desk.worker.work_all()
    desk.storage.calls.clear()
    return desk


def test_in_class_os_an_answer_may_ask_for_a_sync() -> None:
    desk = careful_desk()
    desk.put()
    desk.committer.turn(NOW_MS + 1)
    assert desk.take_calls() == ["write", "sync"]
    assert desk.heard.data.startswith(b"INSERTED")
    assert desk.committer.mean_sync_us() > 0
    desk.say(b"use other\r\n")
    desk.put()
    desk.committer.turn(NOW_MS + 2)
    assert desk.take_calls() == ["write"], "nobody asked for this sync"
    assert desk.heard.data.count(b"INSERTED") == 2


def test_in_class_os_one_sync_serves_all_who_ask_while_others_pass() -> None:
    desk = careful_desk()
    desk.storage.sync_s = SLOW_S
    desk.put()
    desk.committer.turn(NOW_MS + 1)
    desk.storage.sync_s = 0.0
    desk.heard.data = b""
    desk.put()
    desk.committer.turn(NOW_MS + 2)
    assert len(desk.worker.waiting) == 1, "a slow sync belongs to the thread"
    desk.put()
    desk.put()
    other = Heard()
    Outbox(desk.gate, other).hand(b"other", desk.journal.appended)
    desk.committer.turn(NOW_MS + 3)
    assert other.data == b"other"
    assert desk.heard.data == b""
    assert len(desk.worker.waiting) == 1
    desk.worker.work()
    desk.worker.collect()
    assert desk.heard.data.count(b"INSERTED") == 1, "the later ones were not in that sync"
    desk.committer.turn(NOW_MS + 3)
    desk.worker.work_all()
    assert desk.heard.data.count(b"INSERTED") == 3
    assert desk.gate.held == []


def test_in_class_sync_nothing_is_asked_for_beyond_it() -> None:
    desk = careful_desk(SYNC)
    desk.put()
    assert desk.journal.command_sync_batch == 0
    desk.committer.turn(NOW_MS + 1)
    assert desk.take_calls() == ["write", "sync"]
    assert desk.gate.held_sync_batch == 0
    assert desk.heard.data.startswith(b"INSERTED")


def test_class_off_never_syncs_even_when_asked() -> None:
    desk = careful_desk(OFF)
    desk.put()
    desk.committer.turn(NOW_MS + 1)
    assert desk.take_calls() == ["write"]
    assert desk.heard.data.startswith(b"INSERTED")


def test_class_off_never_syncs() -> None:
    desk = Desk(OFF)
    for n in range(5):
        desk.put()
        assert desk.committer.turn(NOW_MS + 1000 * n) == NEVER_MS
    assert set(desk.take_calls()) == {"write"}
    assert desk.heard.data.count(b"INSERTED") == 5


# -- spare files -------------------------------------------------------------------------------


def test_spare_files_are_made_one_at_a_time_and_filled_in_pieces() -> None:
    desk = Desk()
    desk.journal.spares.clear()
    desk.storage.fills.clear()
    desk.committer.turn(NOW_MS)
    desk.committer.turn(NOW_MS)
    assert len(desk.worker.waiting) == 1
    desk.worker.work()
    assert desk.journal.spares == []
    desk.worker.collect()
    desk.worker.work_all()
    assert len(desk.journal.spares) == 1
    name = desk.journal.spares[0]
    assert desk.storage.fills == [f"{name} 0", f"{name} 1", f"{name} 2"]


def test_a_sync_passes_between_the_pieces_of_a_spare() -> None:
    desk = Desk()
    desk.slow_down()
    desk.journal.spares.clear()
    desk.committer.turn(NOW_MS)
    desk.worker.work()
    desk.worker.collect()
    desk.put()
    desk.committer.turn(NOW_MS)
    assert len(desk.worker.waiting) == 2
    desk.worker.work()
    desk.worker.work()
    desk.worker.collect()
    assert desk.heard.data.startswith(b"INSERTED")
    assert len(desk.worker.waiting) == 1, "the spare is done, or given up"


def test_a_disk_without_room_is_asked_again_until_it_has_some() -> None:
    desk = Desk()
    desk.journal.spares.clear()
    desk.storage.capacity = desk.storage.used()
    now_ms = NOW_MS
    desk.committer.turn(now_ms)
    desk.worker.work_all()
    assert desk.is_full()
    creates = 0
    for _ in range(100):
        now_ms += 10
        assert desk.committer.turn(now_ms) <= now_ms + 200
        creates += desk.take_calls().count("create")
        desk.worker.work_all()
    assert 1 <= creates <= 10, "a full disk is asked too often, or never"
    desk.storage.capacity = None
    desk.committer.turn(now_ms + 1000)
    desk.worker.work_all()
    assert not desk.is_full()
    assert desk.journal.spares


# -- the end -----------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", [SYNC, OS, OFF])
def test_a_stop_makes_everything_durable_and_lets_it_go(durability: str) -> None:
    desk = Desk(durability)
    desk.put(b"last")
    desk.say(b"reserve\r\n")
    desk.committer.stop()
    assert desk.heard.data.startswith(b"INSERTED 1\r\nRESERVED 1 4\r\nlast\r\n")
    again = OpenYard(desk.storage.cut_off(), ids_ahead=durability != SYNC)
    assert again.connect().say(b"reserve\r\n") == b"RESERVED 1 4\r\nlast\r\n"


def test_a_stop_leaves_no_gap_in_the_seqs_of_a_topic() -> None:
    desk = Desk(OS)
    open_topic_queue(desk.site.yard, "default", config(), NOW_MS)
    desk.put()
    desk.committer.turn(NOW_MS)
    desk.committer.stop()
    again = OpenYard(desk.storage.cut_off(), ids_ahead=True)
    assert again.yard.queues["default"].next_seq == 2


def test_a_stop_waits_for_the_sync_under_way() -> None:
    desk = Desk()
    desk.slow_down()
    desk.put(b"first")
    desk.committer.turn(NOW_MS)
    desk.put(b"second")
    desk.committer.stop()
    assert desk.heard.data.count(b"INSERTED") == 2


def test_a_stop_whose_sync_fails_lets_nothing_go() -> None:
    desk = Desk()
    desk.put()
    desk.storage.fail_sync = True
    with pytest.raises(StorageFailed):
        desk.committer.stop()
    assert desk.heard.data == b""


def test_the_committer_needs_what_a_file_storage_has() -> None:
    """The replacement above must not have what the real one lacks."""
    for name in ("sync", "create", "fill"):
        assert callable(getattr(FileStorage, name))
