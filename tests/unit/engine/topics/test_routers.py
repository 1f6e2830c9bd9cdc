"""Routers: what is copied, when, how far, and the state after a crash."""

from itertools import pairwise

import pytest

from jobyard.engine.jobs.tick import tick
from jobyard.engine.logs.logs import drop_log, open_log, set_config
from jobyard.engine.topics import topic_queue, topic_setup
from jobyard.engine.topics.routers import (
    ROUTER_RETRY_MS,
    RouterCycle,
    RouterElsewhere,
    RouterFanIn,
    drop_router,
    drop_routers_of,
    set_router,
)
from jobyard.errors import YardFull
from jobyard.model.entry import EntryKind
from jobyard.model.topic.config import QUEUE, TopicConfig
from jobyard.model.topic.log import LogTopic
from jobyard.model.topic.router import EXACTLY_ONCE, HOPS_MAX, Router, decode_router, is_router_name
from tests.support.engine.logs import config_of, contents, delete_below, new_log, row, write
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard


def lead(
    site: OpenYard, source: str = "a", dest: str = "b", name: str = "", **fields: object
) -> Router:
    """Make a router between two topics, and those that are missing."""
    for topic in (source, dest):
        if topic not in site.yard.queues:
            open_log(site.yard, topic, TopicConfig(), site.now_ms)
    router = Router(name or f"{source}>{dest}", source, dest)
    for field, value in fields.items():
        assert hasattr(router, field)
        setattr(router, field, value)
    set_router(site.yard, router, site.now_ms)
    return router


def data(site: OpenYard, name: str) -> list[object]:
    """Return what a log holds."""
    return [record[4] for record in contents(site, site.yard.logs[name])]


def put(site: OpenYard, name: str, *values: object, **more: str) -> None:
    write(site, site.yard.logs[name], *[row(value, **more) for value in values])


def pass_ms(site: OpenYard, ms: int) -> None:
    site.now_ms += ms
    tick(site.yard, site.now_ms)


def catch_up(site: OpenYard) -> int:
    """Run long work to its end; return the number of turns."""
    turns = 1
    while site.yard.tasks.proceed(site.now_ms):
        turns += 1
    return turns


def again(site: OpenYard) -> OpenYard:
    """Stop without a word after the last commit, and start from what is on the disk."""
    assert isinstance(site.storage, MemoryStorage)
    return OpenYard(site.storage.killed(), site.now_ms)


def test_what_is_appended_is_copied_at_once_with_all_that_was_said_of_it() -> None:
    site = OpenYard()
    new_log(site, "a")
    put(site, "a", "before")
    router = lead(site)
    source = site.yard.logs["a"]
    write(site, source, row({"x": 1}, tag="t", node="n", meta={"k": 1}), row(2))
    copies = contents(site, site.yard.logs["b"])
    assert copies == [
        (1, site.now_ms, "t", "n", {"x": 1}, {"k": 1}),
        (2, site.now_ms, "", "", 2, None),
    ]
    assert (router.forwarded_total, router.cursor, router.is_behind) == (2, 3, False)


def test_a_write_tells_its_own_seqs_though_copies_come_back() -> None:
    site = OpenYard()
    lead(site, "a", "b")
    lead(site, "b", "a", allow_cycle=True)
    done = write(site, site.yard.logs["a"], row(1), row(2))
    assert (done.first_seq, done.last_seq) == (1, 2)


def test_long_and_joined_chunks_are_copied_too() -> None:
    site = OpenYard()
    lead(site)
    for start in range(0, 3000, 1000):
        put(site, "a", *range(start, start + 1000))
    catch_up(site)
    assert data(site, "b") == list(range(3000))


def test_tag_and_node_are_left_out_where_they_are_not_wanted() -> None:
    site = OpenYard()
    lead(site, preserve_tag=False, preserve_node=False)
    put(site, "a", 1, tag="t", node="n")
    assert contents(site, site.yard.logs["b"])[0][2:4] == ("", "")


@pytest.mark.parametrize(
    ("is_prefix", "found"),
    [(False, [1]), (True, [1, 2])],
)
def test_only_records_with_the_right_tag_are_copied(*, is_prefix: bool, found: list[int]) -> None:
    site = OpenYard()
    router = lead(site, tag="t", has_match=True, is_prefix=is_prefix)
    put(site, "a", 1, tag="t")
    put(site, "a", 2, tag="tu")
    put(site, "a", 3, tag="u")
    put(site, "a", 4)
    assert data(site, "b") == found
    assert (router.cursor, router.forwarded_total) == (4, len(found))


def test_a_copy_can_say_where_it_came_from() -> None:
    site = OpenYard()
    lead(site, guarantee=EXACTLY_ONCE)
    put(site, "a", 0)
    write(site, site.yard.logs["a"], row(1, meta={"k": 1}))
    stamp = {"router": "a>b", "source": "a", "seq": 2}
    assert contents(site, site.yard.logs["b"])[1][5] == {"k": 1, "_topics_router": stamp}


def test_copies_for_a_queue_become_jobs() -> None:
    site = OpenYard()
    config = TopicConfig()
    config.type = QUEUE
    topic_setup.open_topic_queue(site.yard, "q", config, site.now_ms)
    lead(site, "a", "q")
    put(site, "a", 1, 2, tag="t")
    queue = site.yard.queues["q"]
    assert topic_queue.counts(queue).ready == 2
    jobs = topic_queue.peek(site.yard, queue, 0, 10)
    record_meta = topic_queue.record_meta_of(jobs[0])
    assert record_meta is not None
    assert record_meta.tag == "t"


def letters_site(storage: MemoryStorage | None = None) -> OpenYard:
    """A queue whose dead letters are forwarded to itself."""
    site = OpenYard(storage)
    config = TopicConfig()
    config.type = QUEUE
    config.max_deliveries = 1
    config.dead_letter = "dead"
    topic_setup.open_topic_queue(site.yard, "q", config, site.now_ms)
    new_log(site, "dead")
    lead(site, "dead", "q")
    topic_queue.produce(
        site.yard, site.yard.queues["q"], [topic_queue.NewRecord(b"1")], "", site.now_ms
    )
    return site


def claim_and_give_back(site: OpenYard) -> list[int]:
    """Take what there is for a moment; return its seqs."""
    yard = site.yard
    queue = yard.queues["q"]
    lease_set = topic_queue.node_leases(yard, "n")
    leases = topic_queue.claim(yard, queue, "n", 5, 1000, lease_set, site.now_ms)
    seqs = [int(lease.job.key) for lease in leases]
    topic_queue.nack(yard, queue, "n", seqs, None, 0, site.now_ms)
    return seqs


def test_a_dead_letter_is_passed_on_when_the_verb_that_wrote_it_is_through() -> None:
    site = letters_site(MemoryStorage())
    assert claim_and_give_back(site) == [1]
    assert claim_and_give_back(site) == []
    assert data(site, "dead") == [1]
    router = site.yard.routers.by_name["dead>q"]
    assert router.is_behind
    site.journal.commit()
    # A crash in between changes nothing.
    site = again(site)
    pass_ms(site, ROUTER_RETRY_MS)
    assert not site.yard.routers.by_name["dead>q"].is_behind
    assert claim_and_give_back(site) == [2]
    assert claim_and_give_back(site) == []
    pass_ms(site, 0)
    assert claim_and_give_back(site) == [3]
    assert data(site, "dead") == [1, 1]


def test_a_waiting_worker_gets_the_job_that_a_dead_letter_becomes() -> None:
    site = letters_site()
    assert claim_and_give_back(site) == [1]
    worker = site.connect()
    assert worker.say(b"watch q\r\n") == b"WATCHING 2\r\n"
    assert worker.say(b"reserve\r\n") == b""
    assert data(site, "dead") == [1]
    pass_ms(site, 0)
    assert worker.hear().startswith(b"RESERVED ")
    assert data(site, "dead") == [1]


def test_routers_lead_on_through_several_topics() -> None:
    site = OpenYard()
    lead(site, "a", "b")
    lead(site, "b", "c")
    lead(site, "b", "d")
    put(site, "a", 1)
    assert [data(site, name) for name in "bcd"] == [[1], [1], [1]]


def test_a_circle_is_refused_with_all_its_topics() -> None:
    site = OpenYard()
    lead(site, "a", "b")
    lead(site, "b", "c")
    with pytest.raises(RouterCycle) as refused:
        lead(site, "c", "a")
    assert refused.value.circle == ["c", "a", "b", "c"]
    assert sorted(site.yard.routers.by_name) == ["a>b", "b>c"]
    lead(site, "c", "d")


def test_records_go_round_a_circle_only_so_often() -> None:
    site = OpenYard()
    lead(site, "a", "b")
    lead(site, "b", "a", allow_cycle=True)
    put(site, "a", 1)
    assert len(data(site, "a")) + len(data(site, "b")) == 1 + HOPS_MAX
    assert site.yard.routers.hops == 0
    put(site, "b", 2)
    assert data(site, "a").count(2) + data(site, "b").count(2) == 1 + HOPS_MAX
    # What comes after a cycle does not confuse the search for others.
    lead(site, "b", "c")
    lead(site, "c", "d")


def test_a_chain_longer_than_that_ends_there() -> None:
    site = OpenYard()
    names = [f"t{i}" for i in range(HOPS_MAX + 3)]
    for source, dest in pairwise(names):
        lead(site, source, dest)
    put(site, "t0", 1)
    assert [len(data(site, name)) for name in names] == [1] * (HOPS_MAX + 1) + [0, 0]


def test_a_topic_has_one_router_that_leads_to_it() -> None:
    site = OpenYard()
    lead(site, "a", "b")
    with pytest.raises(RouterFanIn):
        lead(site, "c", "b")


def test_a_router_leads_where_it_leads() -> None:
    site = OpenYard()
    lead(site, "a", "b", "r")
    with pytest.raises(RouterElsewhere):
        lead(site, "a", "c", "r")


def test_a_router_that_is_set_again_continues_where_it_was() -> None:
    site = OpenYard()
    lead(site, name="r")
    put(site, "a", 1, tag="t")
    router = Router("r", "a", "b")
    router.preserve_tag = False
    assert not set_router(site.yard, router, site.now_ms)
    put(site, "a", 2, tag="t")
    assert [record[2:5:2] for record in contents(site, site.yard.logs["b"])] == [("t", 1), ("", 2)]
    assert router.forwarded_total == 2


def test_a_router_that_is_gone_copies_no_more() -> None:
    site = OpenYard(MemoryStorage())
    lead(site, "a", "b")
    other = lead(site, "a", "c")
    drop_router(site.yard, site.yard.routers.by_name["a>b"])
    put(site, "a", 1)
    assert (data(site, "b"), data(site, "c")) == ([], [1])
    drop_router(site.yard, other)
    assert site.yard.logs["a"].onward is None
    site.journal.commit()
    site = again(site)
    assert site.yard.routers.by_name == {}
    put(site, "a", 2)
    assert data(site, "c") == [1]


def test_a_topic_that_goes_takes_its_routers_along() -> None:
    site = OpenYard()
    lead(site, "a", "b")
    lead(site, "b", "c")
    lead(site, "b", "d")
    assert drop_routers_of(site.yard, "b") == ["a>b", "b>c", "b>d"]
    assert drop_routers_of(site.yard, "b") == []
    assert site.yard.logs["a"].onward is None
    assert site.yard.routers.by_source == {}
    assert site.yard.routers.by_dest == {}


# -- a destination that is full --------------------------------------------------------------------


def full(site: OpenYard, **caps: int) -> tuple[Router, LogTopic]:
    dest = new_log(site, "b", discard="reject", **caps)
    return lead(site), dest


def test_a_write_succeeds_though_its_copies_do_not_fit() -> None:
    site = OpenYard()
    router, dest = full(site, cap_records=3)
    put(site, "a", 1, 2)
    put(site, "a", 3, 4, 5)
    assert data(site, "a") == [1, 2, 3, 4, 5]
    assert data(site, "b") == [1, 2, 3]
    assert (router.is_behind, router.cursor, router.forwarded_total) == (True, 3, 3)
    put(site, "a", 6)
    assert data(site, "b") == [1, 2, 3]
    delete_below(site, dest, 3)
    pass_ms(site, ROUTER_RETRY_MS)
    assert data(site, "b") == [3, 4, 5]
    delete_below(site, dest, 100)
    pass_ms(site, ROUTER_RETRY_MS)
    assert data(site, "b") == [6]
    assert (router.is_behind, router.cursor) == (False, 6)
    put(site, "a", 7)
    assert data(site, "b") == [6, 7]
    pass_ms(site, ROUTER_RETRY_MS)
    assert len(site.yard.timers.items) == 0


def test_a_record_that_will_never_fit_does_not_stand_in_the_way() -> None:
    site = OpenYard()
    router, _ = full(site, cap_bytes=10)
    put(site, "a", "x" * 20)
    put(site, "a", 1)
    assert data(site, "b") == [1]
    assert not router.is_behind


def test_more_at_once_than_a_destination_holds_pushes_the_oldest_out() -> None:
    site = OpenYard()
    new_log(site, "b", cap_records=2)
    lead(site)
    put(site, "a", 1, 2, 3, 4, 5)
    assert data(site, "b") == [4, 5]


def test_what_the_source_lets_go_of_is_not_waited_for() -> None:
    site = OpenYard()
    router, dest = full(site, cap_records=1)
    put(site, "a", 1, 2, 3, 4)
    delete_below(site, site.yard.logs["a"], 4)
    delete_below(site, dest, 100)
    pass_ms(site, ROUTER_RETRY_MS)
    assert data(site, "b") == [4]
    assert not router.is_behind


def test_a_destination_that_is_missing_is_made_if_it_may_be() -> None:
    site = OpenYard()
    router = lead(site)
    drop_log(site.yard, site.yard.logs["b"], site.now_ms)
    put(site, "a", 1)
    assert data(site, "b") == [1]
    router.create_dest = False
    drop_log(site.yard, site.yard.logs["b"], site.now_ms)
    put(site, "a", 2)
    assert router.is_behind
    new_log(site, "b")
    pass_ms(site, ROUTER_RETRY_MS)
    assert data(site, "b") == [2]


# -- the journal -----------------------------------------------------------------------------------


def test_copies_lie_in_the_batch_of_what_they_are_copies_of() -> None:
    site = OpenYard(MemoryStorage(), segment_size=1 << 14)
    lead(site)
    for i in range(200):
        put(site, "a", "x" * (i * 7 % 300))
        source = site.yard.logs["a"]
        assert source.batch == site.yard.logs["b"].batch
        if i % 3 == 0:
            site.journal.commit()


def test_routers_go_on_after_a_restart() -> None:
    site = OpenYard(MemoryStorage())
    lead(site, tag="t", has_match=True, is_prefix=True, preserve_node=False)
    put(site, "a", 1, tag="t", node="n")
    site.journal.commit()
    site = again(site)
    router = site.yard.routers.by_name["a>b"]
    assert (router.cursor, router.is_behind) == (site.yard.logs["a"].next_seq - 1, False)
    assert router.match() == ["tag", "Glob", "t*"]
    put(site, "a", 2, tag="tt", node="n")
    put(site, "a", 3)
    found = contents(site, site.yard.logs["b"])
    assert [record[2:5] for record in found] == [("t", "", 1), ("tt", "", 2)]


def test_routers_lead_from_memory_to_disk_and_back() -> None:
    site = OpenYard(MemoryStorage())
    new_log(site, "a", durability="ephemeral")
    new_log(site, "c", durability="ephemeral", cap_records=2, discard="reject")
    lead(site, "a", "b")
    behind = lead(site, "b", "c")
    put(site, "a", 1, 2, 3)
    assert (data(site, "b"), data(site, "c")) == ([1, 2, 3], [1, 2])
    assert behind.is_behind
    site.commit()
    site = again(site)
    assert (data(site, "a"), data(site, "b"), data(site, "c")) == ([], [1, 2, 3], [])
    pass_ms(site, ROUTER_RETRY_MS)
    assert data(site, "c") == [3], "what was copied is copied once, wherever it was"
    put(site, "a", 4)
    assert (data(site, "a"), data(site, "b"), data(site, "c")) == ([4], [1, 2, 3, 4], [3, 4])


def test_a_router_that_is_behind_catches_up_after_a_restart() -> None:
    site = OpenYard(MemoryStorage())
    _, dest = full(site, cap_records=2)
    put(site, "a", 1, 2, 3)
    put(site, "a", 4)
    site.journal.commit()
    site = again(site)
    router = site.yard.routers.by_name["a>b"]
    assert (router.is_behind, router.cursor) == (True, 2)
    dest = site.yard.logs["b"]
    set_config(site.yard, dest, config_of(), site.now_ms)
    pass_ms(site, ROUTER_RETRY_MS)
    assert data(site, "b") == [1, 2, 3, 4]
    site.journal.commit()
    site = again(site)
    assert not site.yard.routers.by_name["a>b"].is_behind
    pass_ms(site, ROUTER_RETRY_MS)
    put(site, "a", 5)
    assert data(site, "b") == [1, 2, 3, 4, 5]


def test_nothing_is_copied_twice_or_lost_wherever_a_crash_comes() -> None:
    site = OpenYard(MemoryStorage(), segment_size=1 << 13)
    full(site, cap_records=7)
    put(site, "a", 0)
    for i in range(1, 60):
        if i % 4 == 0:
            delete_below(site, site.yard.logs["b"], site.yard.logs["b"].next_seq - 3)
        put(site, "a", i, "x" * 100)
        pass_ms(site, ROUTER_RETRY_MS // 2)
        if i % 3 == 0:
            site.journal.commit()
        if i % 5 == 0:
            assert isinstance(site.storage, MemoryStorage)
            site = OpenYard(site.storage.killed(), site.now_ms, segment_size=1 << 13)
        numbers = [value for value in data(site, "b") if isinstance(value, int)]
        assert numbers == sorted(set(numbers))
    delete_below(site, site.yard.logs["b"], 1 << 40)
    set_config(site.yard, site.yard.logs["b"], config_of(), site.now_ms)
    pass_ms(site, ROUTER_RETRY_MS)
    router = site.yard.routers.by_name["a>b"]
    assert not router.is_behind
    assert data(site, "b") == data(site, "a")[-len(data(site, "b")) :]


def test_a_router_survives_the_segment_it_was_written_in() -> None:
    site = OpenYard(MemoryStorage(), segment_size=1 << 13)
    lead(site)
    for i in range(300):
        put(site, "a", i, "x" * 200)
        delete_below(site, site.yard.logs["a"], 1 << 40)
        delete_below(site, site.yard.logs["b"], 1 << 40)
        site.journal.commit()
        site.compactor.step()
    site.journal.commit()
    site = again(site)
    put(site, "a", "still")
    assert data(site, "b") == ["still"]


def test_a_full_disk_makes_no_router() -> None:
    site = OpenYard(MemoryStorage())
    new_log(site, "a")
    new_log(site, "b")
    site.journal.is_full = True
    site.journal.spares.clear()
    with pytest.raises(YardFull):
        lead(site)
    assert site.yard.routers.by_name == {}
    assert not site.journal.entries.has((EntryKind.ROUTER, b"a>b"))


def test_a_router_reads_back_as_it_was_written_down() -> None:
    router = Router("a>b", "a", "b")
    router.tag, router.is_prefix, router.has_match = "t", False, True
    router.preserve_tag = router.create_dest = False
    router.allow_cycle = True
    router.guarantee = EXACTLY_ONCE
    read = decode_router(router.encode())
    assert read.fields() == router.fields()
    assert read.match() == ["tag", "Eq", "t"]
    assert not read.is_behind
    router.is_behind = True
    router.cursor = 7
    read = decode_router(router.encode())
    assert (read.cursor, read.is_behind) == (7, True)


@pytest.mark.parametrize(
    ("name", "is_one"),
    [("a", True), ("a>b", True), ("", False), ("a b", False), ("a" * 256, False)],
)
def test_a_router_is_named_like_a_topic_or_like_two(name: str, *, is_one: bool) -> None:
    assert is_router_name(name) == is_one
