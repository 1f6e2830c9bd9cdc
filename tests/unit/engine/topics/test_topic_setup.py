import pytest

from jobyard.engine.jobs.move import remove
from jobyard.engine.topics import topic_queue
from jobyard.model.topic.log import TopicFull
from tests.support.engine.topics import Topic, config, record
from tests.support.site.recount import recount
from tests.support.site.storage import MemoryStorage

# -- keys of writes ----------------------------------------------------------------------------


def test_a_write_with_the_same_key_is_answered_alike_for_as_long_as_configured() -> None:
    site = Topic(MemoryStorage(), given=config(idempotency_window_ms=1000))
    first = site.write(b"1", b"2", key="k")
    site.jump(600)
    again = site.write(b"3", key="k")
    assert (again.first_seq, again.last_seq, again.is_deduped) == (1, 2, True)
    assert again.batch == first.batch > 0
    site = site.after_a_crash(399)
    assert site.write(b"3", key="k").is_deduped
    assert site.write(b"3", key="other").first_seq == 3
    site.jump(1)
    assert not site.write(b"3", key="k").is_deduped
    assert site.seqs() == [1, 2, 3, 4]
    recount(site.yard)


def test_no_window_and_no_life_is_too_long() -> None:
    longest = (1 << 63) - 1
    site = Topic(MemoryStorage(), given=config(idempotency_window_ms=longest, ttl_ms=longest))
    site.write(b"1", key="k")
    site.jump(1 << 40)
    site = site.after_a_crash()
    assert site.write(b"1", key="k").is_deduped
    assert site.claimed() == [1]


def test_a_window_of_nothing_remembers_nothing() -> None:
    site = Topic(given=config(idempotency_window_ms=0))
    site.write(b"1", key="k")
    assert site.write(b"1", key="k").first_seq == 2


def test_a_write_that_is_refused_leaves_its_key_free() -> None:
    site = Topic(given=config(cap_records=1, discard="reject"))
    site.write(b"1")
    with pytest.raises(TopicFull):
        site.write(b"2", key="k")
    site.claim()
    site.ack(1)
    assert site.write(b"2", key="k").first_seq == 2


# -- caps and time to live ---------------------------------------------------------------------


def test_a_full_queue_that_rejects_refuses_at_every_door() -> None:
    site = Topic(given=config(cap_records=2, discard="reject"))
    site.write(b"1")
    client = site.connect()
    client.say(b"use t\r\n")
    assert client.say(b"put 0 0 60 1\r\na\r\n") == b"INSERTED 2\r\n"
    assert client.say(b"put 0 0 60 1\r\na\r\n") == b"OUT_OF_MEMORY\r\n"
    with pytest.raises(TopicFull):
        site.write(b"3")
    site.claim()
    site.ack(1)
    assert site.write(b"3").first_seq == 3


def test_a_full_queue_that_discards_lets_the_oldest_go_that_nobody_runs() -> None:
    site = Topic(MemoryStorage(), given=config(cap_records=3))
    site.write(b"1", b"2", b"3")
    site.claim()
    site.write(b"4")
    assert site.seqs() == [1, 3, 4]
    client = site.connect()
    client.say(b"use t\r\n")
    client.say(b"put 0 0 60 1\r\na\r\n")
    assert site.seqs() == [1, 4, 5]
    assert site.write(b"1", b"2", b"3", b"4").last_seq == 9
    site = site.after_a_crash()
    assert site.seqs() == [1, 8, 9]
    topic_state = site.t.topic_state
    assert topic_state is not None
    assert (topic_state.cap_floor, topic_state.ttl_floor) == (8, 1)


def test_bytes_are_capped_too() -> None:
    site = Topic(given=config(cap_bytes=10))
    site.write(b"1" * 4, b"2" * 4)
    site.write(b"3" * 6)
    assert site.seqs() == [2, 3]
    assert topic_queue.counts(site.t).bytes == 10
    assert site.write(b"4" * 11).last_seq == 4
    assert site.seqs() == []


def test_a_tighter_cap_counts_for_what_is_there() -> None:
    site = Topic()
    site.write(b"1", b"2", b"3")
    topic_queue.set_queue_config(site.yard, site.t, config(cap_records=1), site.now_ms)
    assert site.seqs() == [3]
    site = Topic()
    site.write(b"1", b"2", b"3")
    topic_queue.set_queue_config(
        site.yard, site.t, config(cap_records=1, discard="reject"), site.now_ms
    )
    assert site.seqs() == [1, 2, 3]


def test_jobs_that_outlive_their_time_go_unless_they_run() -> None:
    site = Topic(MemoryStorage(), given=config(ttl_ms=1000))
    site.write(b"1", b"2")
    site.claim(lease_ms=5000)
    site.jump(500)
    site.write(b"3")
    site.jump(500)
    assert site.seqs() == [1, 3]
    site.jump(500)
    assert site.seqs() == [1]
    site.nack(1)
    assert site.claim() == []
    assert site.seqs() == []
    topic_state = site.after_a_crash().t.topic_state
    assert topic_state is not None
    assert (topic_state.cap_floor, topic_state.ttl_floor) == (1, 4)
    recount(site.yard)


def test_a_job_that_was_given_back_too_old_goes_without_being_asked_for() -> None:
    site = Topic(given=config(ttl_ms=1000))
    site.write(b"1")
    site.claim(lease_ms=5000)
    site.jump(1500)
    site.nack(1)
    site.jump(1000)
    assert site.seqs() == []


def test_very_many_jobs_that_outlive_their_time_at_once_go_over_turns() -> None:
    site = Topic(given=config(ttl_ms=1000))
    for _ in range(15):
        site.write(*[b"x"] * 100)
    site.jump(1000)
    assert site.t.jobs_count() == 1000
    site.jump(1)
    assert site.t.jobs_count() == 500
    site.jump(1)
    assert site.t.jobs_count() == 0


# -- the queue itself --------------------------------------------------------------------------


def test_an_empty_queue_survives_a_restart_with_its_seqs() -> None:
    site = Topic(MemoryStorage(), given=config(cap_records=7, lease_ms=1234))
    site.write(b"1", b"2")
    site.claim(most=2)
    site.ack(1, 2)
    site = site.after_a_crash()
    assert site.t.config is not None
    assert (site.t.config.cap_records, site.t.config.lease_ms) == (7, 1234)
    assert site.write(b"3").first_seq == 3


def test_no_seq_is_given_twice_when_all_that_had_one_is_compacted_away() -> None:
    site = Topic(MemoryStorage(), segment_size=1 << 13)
    # These keep the segment that has the name of the queue, so that it is not written again.
    site.produce(*(record(b"x" * 800, delay_ms=1 << 40) for _ in range(6)))
    for seq in range(7, 200):
        assert site.write(b"x" * 100).first_seq == seq
        site.claim()
        site.ack(seq)
        site.commit()
    site.compact()
    # None of the queue's newest jobs is left to show its last seq.
    other = site.queue("other")
    for _ in range(200):
        job = site.put(b"y" * 100, "other")
        site.commit()
        remove(site.yard, job, site.now_ms)
    site.compact()
    assert other.jobs_count() == 0
    assert len(site.journal.segments) < 6
    assert site.after_a_crash().write(b"1").first_seq == 200


def test_a_queue_that_is_dropped_is_gone_with_all_it_had() -> None:
    site = Topic(MemoryStorage(), given=config(cap_records=2, ttl_ms=9999))
    site.write(b"1", b"2", key="k")
    site.write(b"3")
    site.claim()
    topic_queue.drop_topic_queue(site.yard, site.t, site.now_ms)
    assert "t" not in site.yard.queues
    assert site.yard.nodes == {}
    assert not [entry for entry in site.journal.entries.values() if not entry.is_gone]
    recount(site.yard)
    site = site.after_a_crash()
    assert site.t.config is not None
    assert site.t.config.cap_records == 0
    assert not site.write(b"1", key="k").is_deduped
    assert site.after_a_crash().write(b"1").first_seq == 2


def test_very_many_keys_are_forgotten_over_several_writes_and_turns() -> None:
    site = Topic(MemoryStorage(), given=config(idempotency_window_ms=1000))
    site.yard.tasks.units_per_turn = 100
    site.yard.tasks.proceed(site.now_ms)
    for at in range(300):
        site.write(b"x", key=f"k{at}")
    site.jump(1000)
    assert not site.write(b"x", key="k299").is_deduped
    assert site.write(b"x", key="k299").is_deduped
    topic_state = site.t.topic_state
    assert topic_state is not None
    assert 100 < topic_state.writes.count() < 300
    topic_queue.drop_topic_queue(site.yard, site.t, site.now_ms)
    while site.yard.tasks.proceed(site.now_ms):
        pass
    assert not [entry for entry in site.journal.entries.values() if not entry.is_gone]
    recount(site.yard)


def test_a_longer_window_brings_no_forgotten_key_back() -> None:
    site = Topic(MemoryStorage(), given=config(idempotency_window_ms=1000))
    site.write(b"1", key="k")
    site.jump(1000)
    topic_queue.set_queue_config(site.yard, site.t, config(), site.now_ms)
    assert not site.write(b"1", key="k").is_deduped
    topic_queue.set_queue_config(site.yard, site.t, config(idempotency_window_ms=10), site.now_ms)
    site.write(b"1", key="short")
    site.jump(10)
    assert not site.write(b"1", key="short").is_deduped
    site = site.after_a_crash()
    assert site.write(b"1", key="k").is_deduped


def test_a_queue_that_is_dropped_while_another_door_uses_it_starts_over() -> None:
    site = Topic(MemoryStorage())
    client = site.connect()
    client.say(b"use t\r\n")
    site.write(b"1", b"2")
    queue = site.t
    topic_queue.drop_topic_queue(site.yard, queue, site.now_ms)
    client.say(b"put 0 0 60 1\r\na\r\n")
    assert site.t is queue
    assert site.seqs() == [1]
    assert site.after_a_crash().seqs() == [1]


def test_a_queue_born_at_another_door_is_a_queue_with_a_default_configuration() -> None:
    site = Topic(MemoryStorage())
    site.put(b"1", "born", rank=70_000)
    queue = site.queue("born")
    assert queue.config is None
    lease_set = topic_queue.node_leases(site.yard, "w")
    leases = topic_queue.claim(site.yard, queue, "w", 5, 0, lease_set, site.now_ms)
    assert [int(one.ttl_ms) for one in leases] == [30_000]
    assert topic_queue.ack(site.yard, queue, "w", [1], None, site.now_ms).done == 1
    assert "born" not in site.yard.queues
    site.put(b"1", "born")
    topic_queue.open_topic_queue(site.yard, "born", config(), site.now_ms)
    assert site.after_a_crash().queue("born").config is not None
