"""Routers whose source is a queue: jobs are copied when they are put, and are not changed."""

import pytest

from jobyard.engine.logs.erase import erase_seqs
from jobyard.engine.logs.logs import open_log
from jobyard.engine.topics import topic_queue
from jobyard.engine.topics.routers import ROUTER_RETRY_MS, drop_router, set_router
from jobyard.model.topic.config import TopicConfig
from jobyard.model.topic.router import HOPS_MAX, Router
from tests.support.engine.logs import config_of, contents
from tests.support.engine.topics import Topic, config, record
from tests.support.site.recount import recount
from tests.support.site.storage import MemoryStorage, PowerCut


def lead(site: Topic, source: str = "t", dest: str = "log", **fields: object) -> Router:
    """Create a router between two topics, and a log as destination if there is none."""
    if dest not in site.yard.queues and dest not in site.yard.logs:
        open_log(site.yard, dest, TopicConfig(), site.now_ms)
    router = Router(f"{source}>{dest}", source, dest)
    for field, value in fields.items():
        assert hasattr(router, field)
        setattr(router, field, value)
    set_router(site.yard, router, site.now_ms)
    return router


def copies(site: Topic, name: str = "log") -> list[object]:
    """Return what a log holds."""
    return [one[4] for one in contents(site, site.yard.logs[name])]


def test_jobs_are_copied_when_they_are_put_with_all_that_was_said_of_them() -> None:
    site = Topic()
    site.write(b'"before"')
    router = lead(site)
    one = topic_queue.NewRecord(b'{"x":1}', b'{"k":1}', "tag", "node")
    late = record(b"2", delay_ms=5000)
    site.produce(one, late)
    assert contents(site, site.yard.logs["log"]) == [
        (1, site.now_ms, "tag", "node", {"x": 1}, {"k": 1}),
        (2, site.now_ms, "", "", 2, None),
    ]
    assert (router.forwarded_total, router.cursor, router.is_behind) == (2, 3, False)
    assert site.counts() == (2, 0, 1, 3)
    recount(site.yard)


def test_what_is_done_at_once_was_copied() -> None:
    site = Topic()
    lead(site)
    worker = site.connect()
    worker.say(b"watch t\r\nuse t\r\nput 0 0 60 1\r\n7\r\nreserve\r\ndelete 1\r\n")
    assert site.counts() == (0, 0, 0, 0)
    assert copies(site) == [None]
    recount(site.yard)


def test_a_filter_and_a_stamp_work_as_for_logs() -> None:
    site = Topic()
    lead(site, tag="a", has_match=True, guarantee="exactly_once")
    site.produce(record(b"1", "a"), record(b"2", "b"), record(b"3", "a"))
    found = [(one[4], one[5]) for one in contents(site, site.yard.logs["log"])]
    stamp = {"router": "t>log", "source": "t"}
    assert found == [
        (1, {"_topics_router": {**stamp, "seq": 1}}),
        (3, {"_topics_router": {**stamp, "seq": 3}}),
    ]


def test_a_queue_may_lead_to_a_queue_and_on() -> None:
    site = Topic()
    topic_queue.open_topic_queue(site.yard, "u", config(), site.now_ms)
    lead(site, "t", "u")
    lead(site, "u", "log")
    site.write(b"1", b"2")
    assert [int(job.key) for job in topic_queue.peek(site.yard, site.yard.queues["u"], 0, 9)] == [
        1,
        2,
    ]
    assert copies(site) == [1, 2]
    recount(site.yard)


def test_jobs_go_round_a_circle_only_so_often() -> None:
    site = Topic()
    topic_queue.open_topic_queue(site.yard, "u", config(), site.now_ms)
    lead(site, "t", "u")
    lead(site, "u", "t", allow_cycle=True)
    site.write(b"1")
    count = site.counts()[3] + int(topic_queue.counts(site.yard.queues["u"]).count)
    assert count == HOPS_MAX + 1
    recount(site.yard)


def test_a_full_destination_is_tried_again_with_the_jobs_that_are_left() -> None:
    site = Topic()
    open_log(site.yard, "log", config_of(cap_records=1, discard="reject"), site.now_ms)
    router = lead(site)
    site.write(b"1", b"2", b"3")
    assert (copies(site), router.is_behind, router.cursor) == ([1], True, 1)
    assert site.claimed() == [1]
    assert site.claimed() == [2]
    site.ack(2)
    erase_seqs(site.yard, site.yard.logs["log"], [1])
    site.jump(ROUTER_RETRY_MS)
    assert (copies(site), router.is_behind) == ([3], False)
    recount(site.yard)


def test_a_router_that_is_gone_copies_no_more() -> None:
    site = Topic()
    router = lead(site)
    site.write(b"1")
    drop_router(site.yard, router)
    site.write(b"2")
    assert copies(site) == [1]


@pytest.mark.parametrize("segment_size", [1 << 14, 1 << 16])
def test_a_crash_takes_job_and_copy_or_none(segment_size: int) -> None:
    """Wherever the disk stops, there are as many copies as jobs, and a start continues there."""
    for stop in range(0, 400, 7):
        storage = MemoryStorage()
        site = Topic(storage, segment_size=segment_size)
        lead(site)
        site.commit()
        storage.stop_at = storage.calls_count + stop
        try:
            for at in range(40):
                site.write(b'"%s"' % (b"x" * 900), b"%d" % at)
                site.commit()
        except PowerCut:
            pass
        storage.stop_at = None
        after = Topic(storage.cut_off(), site.now_ms, segment_size=segment_size)
        assert len(copies(after)) == after.counts()[3]
        after.write(b'"more"')
        assert copies(after)[-1] == "more"
        recount(after.yard)
