from jobyard.engine.jobs.finish import bury
from jobyard.engine.jobs.move import erase
from jobyard.engine.topics import topic_queue
from tests.support.engine.topics import Topic, config
from tests.support.site.recount import recount
from tests.support.site.storage import MemoryStorage


def test_a_stream_gets_what_is_ready_and_never_more_than_it_may_have() -> None:
    site = Topic()
    site.write(*(b"1" for _ in range(5)))
    _, inbox = site.stream(most=3)
    assert inbox.seqs() == [1, 2, 3]
    assert site.counts() == (2, 3, 0, 5)
    recount(site.yard)


def test_an_ack_a_nack_an_expiry_and_a_delete_each_bring_the_next_job_at_once() -> None:
    site = Topic(given=config(lease_ms=1000))
    site.write(*(b"1" for _ in range(5)))
    _, inbox = site.stream()
    assert inbox.seqs() == [1]
    assert site.ack(1).done == 1
    assert inbox.seqs() == [2]
    assert site.nack(2, delay_ms=60_000).done == 1
    assert inbox.seqs() == [3]
    site.jump(1000)
    assert inbox.seqs() == [3]
    erase(site.yard, site.t.leased.items[0], site.now_ms)  # type: ignore[arg-type]
    assert inbox.seqs() == [4]
    assert site.remove(before_seq=5) == 2
    assert inbox.seqs() == [5]
    recount(site.yard)


def test_a_dead_letter_brings_the_next_job_at_once() -> None:
    site = Topic(MemoryStorage(), given=config(dead_letter="t.dlq"))
    site.write(*(b"1" for _ in range(4)))
    _, inbox = site.stream()
    assert inbox.seqs() == [1]
    assert topic_queue.give_up(site.yard, site.t, "w", [1], None, site.now_ms).done == 1
    assert inbox.seqs() == [2]
    bury(site.yard, site.peek()[0], 0, site.now_ms)
    assert inbox.seqs() == [3]
    recount(site.yard)


def test_a_nacked_job_comes_back_to_the_only_stream_there_is() -> None:
    site = Topic()
    site.write(b"1", b"2")
    _, inbox = site.stream()
    site.nack(1)
    assert inbox.seqs() == [1, 1]
    bury(site.yard, site.peek()[0], 0, site.now_ms)
    assert inbox.seqs() == [2]


def test_new_jobs_go_round_robin_to_the_streams_that_wait() -> None:
    site = Topic()
    _, one = site.stream("a", 2)
    _, two = site.stream("b", 2)
    site.write(b"1", b"2", b"3")
    assert (one.seqs(), two.seqs()) == ([1, 3], [2])
    site.write(b"4", b"5")
    assert (one.seqs(), two.seqs()) == ([], [4])
    site.ack(3, node="a")
    assert one.seqs() == [5]


def test_who_waits_longest_is_served_first() -> None:
    site = Topic()
    site.write(b"1", b"2")
    _, one = site.stream("a")
    _, two = site.stream("b")
    _, three = site.stream("c")
    assert (one.seqs(), two.seqs(), three.seqs()) == ([1], [2], [])
    site.ack(1, node="a")
    site.ack(2, node="b")
    site.write(b"3", b"4", b"5")
    assert (one.seqs(), two.seqs(), three.seqs()) == ([4], [5], [3])


def test_what_a_stream_leaves_goes_to_the_next_at_once() -> None:
    site = Topic(MemoryStorage())
    site.write(b"1", b"2", b"3")
    first, one = site.stream("a", 2)
    _, two = site.stream("b", 3)
    claimed = site.claimed("a", most=9)
    assert (one.seqs(), two.seqs(), claimed) == ([1, 2], [3], [])
    site.write(b"4")
    assert two.seqs() == [4]
    first.close(site.now_ms)
    assert two.seqs() == [1]
    assert site.counts() == (1, 3, 0, 4)
    assert one.seqs() == []
    site.ack(3, node="b")
    assert two.seqs() == [2]
    assert int(site.peek()[0].deliveries) == 2
    first.close(site.now_ms)
    recount(site.yard)


def test_a_claim_of_the_same_node_outlives_its_stream() -> None:
    site = Topic()
    site.write(b"1", b"2")
    assert site.claimed() == [1]
    stream, inbox = site.stream()
    assert inbox.seqs() == [2]
    stream.close(site.now_ms)
    assert site.counts() == (1, 1, 0, 2)
    assert site.ack(1).done == 1


def test_a_stream_is_acked_by_its_node_from_anywhere_and_renewed_too() -> None:
    site = Topic(given=config(lease_ms=1000))
    site.write(b"1", b"2")
    _, inbox = site.stream()
    lease = inbox.leases[0]
    assert site.extend(1, lease_ms=5000).done == 1
    site.jump(1000)
    assert site.ack(1, ids=[topic_queue.lease_name(site.yard, lease)]).done == 1
    assert inbox.seqs() == [1, 2]


def test_a_job_that_is_finished_at_another_door_serves_a_stream_too() -> None:
    site = Topic()
    client = site.connect()
    client.say(b"watch t\r\n")
    site.write(b"1")
    assert client.say(b"reserve\r\n").startswith(b"RESERVED 1")
    _, inbox = site.stream()
    client.say(b"release 1 0 0\r\n")
    assert inbox.seqs() == [1]


def test_an_ack_of_many_is_over_before_the_next_jobs_are_given() -> None:
    site = Topic(MemoryStorage())
    site.write(*(b"1" for _ in range(6)))
    _, inbox = site.stream(most=3)
    inbox.leases.clear()
    ended = site.ack(1, 2, 3)
    assert ended.done == 3
    assert inbox.seqs() == [4, 5, 6]
    recount(site.yard)


def test_a_stream_ends_with_its_queue_whether_it_waits_or_not() -> None:
    site = Topic(MemoryStorage())
    site.write(b"1", b"2", b"3")
    full, one = site.stream("a")
    waiting, two = site.stream("b", 9)
    queue = site.t
    one.leases.clear()
    two.leases.clear()
    topic_queue.drop_topic_queue(site.yard, queue, site.now_ms)
    assert (one.is_over, two.is_over) == (True, True)
    assert (one.seqs(), two.seqs()) == ([], [])
    assert not full.is_open
    assert not waiting.is_open
    assert "t" not in site.yard.queues
    recount(site.yard)


def test_a_stream_keeps_a_queue_that_nobody_configured() -> None:
    site = Topic()
    stream, inbox = site.stream()
    site.t.config = None
    site.write(b"1")
    assert site.ack(1).done == 1
    site.write(b"2")
    assert inbox.seqs() == [1, 2]
    site.ack(2)
    stream.close(site.now_ms)
    assert "t" not in site.yard.queues
