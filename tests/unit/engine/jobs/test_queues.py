from jobyard.engine.jobs.queues import (
    drop_user,
    drop_watch,
    hold_user,
    hold_watch,
    open_queue,
    pause,
)
from jobyard.model.limits import NEVER_MS
from tests.support.site.recount import recount
from tests.support.site.site import NOW_MS
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard


def test_a_queue_is_made_once() -> None:
    site = OpenYard()
    queue = open_queue(site.yard, "q")
    assert open_queue(site.yard, "q") is queue


def test_a_queue_lives_while_it_is_used_watched_or_holds_a_job() -> None:
    site = OpenYard()
    queue = open_queue(site.yard, "q")
    hold_user(queue)
    hold_watch(queue)
    drop_user(site.yard, queue)
    assert "q" in site.yard.queues
    job = site.put(queue="q")
    drop_watch(site.yard, queue)
    assert "q" in site.yard.queues
    client = site.connect()
    client.say(b"reserve-job %d\r\n" % job.id)
    assert "q" in site.yard.queues, "a reserved job holds its queue"
    client.say(b"delete %d\r\n" % job.id)
    assert "q" not in site.yard.queues


def test_the_last_user_or_watcher_takes_an_empty_queue_along() -> None:
    site = OpenYard()
    for hold, drop in ((hold_user, drop_user), (hold_watch, drop_watch)):
        queue = open_queue(site.yard, "q")
        hold(queue)
        hold(queue)
        drop(site.yard, queue)
        assert "q" in site.yard.queues
        drop(site.yard, queue)
        assert "q" not in site.yard.queues


def test_the_default_queue_never_goes() -> None:
    site = OpenYard()
    client = site.connect()
    client.say(b"use a\r\nwatch a\r\nignore default\r\n")
    assert list(site.yard.queues) == ["default", "a"]
    client.leave()
    assert list(site.yard.queues) == ["default"]


def test_a_queue_that_died_forgets_its_counters_and_its_pause() -> None:
    site = OpenYard(MemoryStorage())
    job = site.put(queue="q")
    pause(site.yard, job.queue, 5000, site.now_ms)
    site.connect().say(b"delete %d\r\n" % job.id)
    assert site.jump() == NEVER_MS
    again = site.put(queue="q").queue
    assert again is not job.queue
    assert (again.total_count, again.pause_until_ms, again.next_seq) == (1, 0, 2)
    assert again.number != job.queue.number
    recount(site.yard)


def test_the_latest_pause_wins() -> None:
    site = OpenYard()
    client = site.connect()
    queue = site.queue()
    pause(site.yard, queue, 9000, site.now_ms)
    pause(site.yard, queue, 2000, site.now_ms)
    assert (queue.pause_ms, queue.pauses_count) == (2000, 2)
    client.say(b"reserve\r\n")
    site.put(b"x")
    assert site.jump(1999) == NOW_MS + 2000
    assert client.hear() == b""
    site.jump(1)
    assert client.hear() == b"RESERVED 1 1\r\nx\r\n"
    assert queue.pause_ms == 0


def test_a_longer_pause_is_not_cut_short_by_the_timer_of_the_first() -> None:
    site = OpenYard()
    client = site.connect()
    pause(site.yard, site.queue(), 1000, site.now_ms)
    pause(site.yard, site.queue(), 5000, site.now_ms)
    client.say(b"reserve\r\n")
    site.put(b"x")
    site.jump(1000)
    assert client.hear() == b""
    site.jump(4000)
    assert client.hear().startswith(b"RESERVED")


def test_a_pause_of_zero_ends_the_pause_and_wakes_waiting_clients() -> None:
    site = OpenYard()
    client = site.connect()
    pause(site.yard, site.queue(), 9000, site.now_ms)
    client.say(b"reserve\r\n")
    site.put(b"x")
    pause(site.yard, site.queue(), 0, site.now_ms)
    assert client.hear() == b"RESERVED 1 1\r\nx\r\n"
    assert site.queue().pause_ms == 0


def test_delays_that_end_during_a_pause_wait_for_its_end() -> None:
    site = OpenYard()
    client = site.connect()
    client.say(b"reserve\r\n")
    site.put(b"a", delay_ms=1000)
    site.put(b"b", delay_ms=4000)
    pause(site.yard, site.queue(), 3000, site.now_ms)
    assert site.jump(1000) == NOW_MS + 3000
    assert site.yard.ready_count == 1
    assert client.hear() == b""
    assert site.jump(2000) == NOW_MS + 4000
    assert client.hear() == b"RESERVED 1 1\r\na\r\n"
    recount(site.yard)
