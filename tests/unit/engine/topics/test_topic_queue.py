from jobyard.engine.jobs.finish import bury, fail, finish, hand_back, held
from jobyard.engine.jobs.move import remove
from jobyard.engine.jobs.take import take
from jobyard.engine.topics import topic_queue
from jobyard.model.family import BUNQUEUE, TOPICS
from jobyard.model.job import DEAD, DELAYED, DONE, GONE, JSON, LEASED, READY
from jobyard.model.lease import Proof, Terms
from jobyard.model.policy import Policy
from jobyard.protocols.bunqueue.ids import id_text
from tests.support.doors.bunqueue import BareBunqueue
from tests.support.engine.topics import Topic, config, record
from tests.support.site.recount import recount
from tests.support.site.site import TOKEN_TERMS
from tests.support.site.storage import MemoryStorage


def test_a_write_gives_contiguous_seqs_and_jobs_of_its_own_family() -> None:
    site = Topic()
    one = site.write(b'{"a":1}', b"2")
    assert (one.first_seq, one.last_seq, one.is_deduped) == (1, 2, False)
    two = site.write(b"3")
    assert (two.first_seq, two.last_seq) == (3, 3)
    job = site.peek()[0]
    assert (job.family, job.codec, job.body, job.details) == (TOPICS, JSON, b'{"a":1}', None)
    assert site.counts() == (3, 0, 0, 3)
    assert topic_queue.counts(site.t).bytes == 9


def test_what_a_writer_says_of_a_job_stays_with_it_over_a_restart() -> None:
    site = Topic(MemoryStorage())
    site.produce(
        topic_queue.NewRecord(b"1", b'{"m":true}', "täg", "node-1"), topic_queue.NewRecord(b"2")
    )
    for yard in (site, site.after_a_crash()):
        one, two = yard.peek()
        record_meta = topic_queue.record_meta_of(one)
        assert record_meta is not None
        assert (record_meta.tag, record_meta.node, record_meta.meta) == (
            "täg",
            "node-1",
            b'{"m":true}',
        )
        assert topic_queue.record_meta_of(two) is None


def test_a_higher_priority_is_claimed_first_and_a_delay_is_waited_for() -> None:
    site = Topic()
    site.produce(record(), record(priority=5), record(delay_ms=100, priority=9))
    assert site.counts() == (2, 0, 1, 3)
    assert site.claimed() == [2]
    site.jump(100)
    assert site.claimed() == [3]
    assert site.claimed(most=5) == [1]


def test_a_claim_tells_seqs_in_order_and_counts_deliveries() -> None:
    site = Topic()
    site.produce(record(), record(priority=1), record())
    leases = site.claim(most=10, lease_ms=5000)
    assert [(int(one.job.key), int(one.job.deliveries)) for one in leases] == [
        (1, 1),
        (2, 1),
        (3, 1),
    ]
    assert {int(one.sort_key) for one in leases} == {site.now_ms + 5000}
    names = {topic_queue.lease_name(site.yard, one) for one in leases}
    assert len(names) == 3
    assert all(name.startswith("lease_") for name in names)
    assert site.counts() == (0, 3, 0, 3)
    assert site.claim() == []
    recount(site.yard)


def test_a_lease_lasts_as_configured_where_nothing_else_is_asked() -> None:
    site = Topic(given=config(lease_ms=7000))
    site.write(b"1")
    lease = site.claim(lease_ms=0)[0]
    assert lease.sort_key == site.now_ms + 7000


def test_an_ack_ends_what_the_node_holds_and_skips_the_rest() -> None:
    site = Topic()
    site.write(b"1", b"2", b"3")
    site.claim(most=2)
    site.claim("other")
    ended = site.ack(1, 3, 2, 77, 1, 1 << 70, -1)
    assert (ended.done, ended.skipped) == (2, [3, 77, 1, 1 << 70, -1])
    assert site.counts() == (0, 1, 0, 1)
    assert site.ack(1, 2).skipped == [1, 2]
    assert site.ack(3, node="other").done == 1
    recount(site.yard)


def test_a_lease_id_fences_a_lease_that_is_over() -> None:
    site = Topic()
    site.write(b"1")
    old = topic_queue.lease_name(site.yard, site.claim(lease_ms=100)[0])
    site.jump(100)
    new = topic_queue.lease_name(site.yard, site.claim()[0])
    assert site.ack(1, ids=[old]).skipped == [1]
    assert site.nack(1, ids=[old]).skipped == [1]
    assert site.extend(1, ids=[old]).skipped == [1]
    assert site.extend(1, ids=[""]).done == 1
    assert site.ack(1, ids=[new]).done == 1


def test_an_ack_after_the_deadline_is_skipped_even_before_the_lease_is_swept() -> None:
    site = Topic()
    site.write(b"1")
    site.claim(lease_ms=100)
    site.now_ms += 100
    assert site.ack(1).skipped == [1]
    assert site.extend(1).skipped == [1]
    site.jump()
    assert site.counts() == (1, 0, 0, 1)


def test_what_comes_back_goes_before_younger_work() -> None:
    site = Topic()
    site.write(b"1", b"2", b"3", b"4")
    site.claim(most=2, lease_ms=1000)
    site.nack(2)
    site.jump(1000)
    leases = site.claim(most=3)
    assert [(int(one.job.key), int(one.job.deliveries)) for one in leases] == [
        (1, 2),
        (2, 2),
        (3, 1),
    ]


def test_a_nack_with_a_delay_hides_the_job_for_that_long_and_keeps_its_place() -> None:
    site = Topic()
    site.write(b"1", b"2")
    site.claim()
    assert site.nack(1, delay_ms=500).done == 1
    assert site.counts() == (1, 0, 1, 2)
    site.jump(500)
    assert site.claimed(most=2) == [1, 2]


def test_an_extension_sets_the_deadline_and_counts_nothing() -> None:
    site = Topic()
    site.write(b"1")
    lease = site.claim(lease_ms=1000)[0]
    site.jump(900)
    ended = site.extend(1, 9, lease_ms=1000)
    assert (ended.done, ended.skipped) == (1, [9])
    assert ended.deadlines == {1: site.now_ms + 1000}
    site.jump(999)
    assert (lease.job.state, lease.job.deliveries) == (LEASED, 1)
    site.jump(1)
    assert lease.job.state == READY


def test_a_node_that_holds_nothing_is_forgotten() -> None:
    site = Topic()
    assert site.claim() == []
    assert site.yard.nodes == {}
    site.write(b"1", b"2")
    site.claim(lease_ms=100, most=2)
    assert list(site.yard.nodes) == ["w"]
    site.ack(1)
    site.jump(100)
    assert site.yard.nodes == {}
    assert site.jump() > site.now_ms


def test_a_delete_takes_jobs_by_seq_by_tag_or_by_both() -> None:
    site = Topic()
    site.produce(*(record(b"1", tag) for tag in ("a:1", "a:2", "b", "", "a:1", "a:1")))
    site.claim()
    assert site.remove(tag="a:1", before_seq=6) == 2
    assert site.seqs() == [2, 3, 4, 6]
    assert site.remove(before_seq=4, tag="a:*") == 1
    assert site.remove(before_seq=4) == 1
    assert site.seqs() == [4, 6]
    assert site.remove(before_seq=1 << 62) == 2
    assert site.write(b"1").first_seq == 7
    recount(site.yard)


def test_a_purge_takes_dead_jobs_alone() -> None:
    site = Topic(MemoryStorage())
    site.produce(record(), record(delay_ms=99), record(), record())
    for lease in site.claim(most=2):
        bury(site.yard, lease.job, 0, site.now_ms)
    assert topic_queue.purge(site.yard, site.t, 1, site.now_ms) == 1
    assert topic_queue.purge(site.yard, site.t, 9, site.now_ms) == 1
    assert topic_queue.purge(site.yard, site.t, 9, site.now_ms) == 0
    assert topic_queue.counts(site.t).count == 2
    assert site.after_a_crash().write(b"1").first_seq == 5


def test_dead_jobs_are_driven_back_with_their_deliveries() -> None:
    site = Topic()
    site.write(b"1", b"2", b"3")
    for lease in site.claim(most=2):
        bury(site.yard, lease.job, 9, site.now_ms)
    assert site.t.dead.live_count == 2
    assert [int(job.state) for job in site.peek()] == [DEAD, DEAD, READY]
    assert topic_queue.redrive(site.yard, site.t, 1, site.now_ms) == 1
    assert topic_queue.redrive(site.yard, site.t, 9, site.now_ms) == 1
    assert topic_queue.redrive(site.yard, site.t, 9, site.now_ms) == 0
    assert [(int(one.job.key), int(one.job.deliveries)) for one in site.claim(most=3)] == [
        (1, 2),
        (2, 2),
        (3, 1),
    ]


# -- restart -----------------------------------------------------------------------------------


def test_a_crash_ends_all_leases_and_forgets_no_delivery() -> None:
    site = Topic(MemoryStorage())
    site.write(b"1", b"2", b"3", b"4")
    old = topic_queue.lease_name(site.yard, site.claim(most=3, lease_ms=600_000)[0])
    site.ack(2)
    site.nack(3, delay_ms=60_000)
    site = site.after_a_crash()
    assert site.counts() == (2, 0, 1, 3)
    assert [(int(one.key), int(one.deliveries)) for one in site.peek()] == [(1, 1), (3, 1), (4, 0)]
    assert site.ack(1).skipped == [1]
    lease = site.claim()[0]
    assert (lease.job.key, lease.job.deliveries) == (1, 2)
    assert topic_queue.lease_name(site.yard, lease) != old
    site = site.after_a_crash().again()
    assert [int(one.deliveries) for one in site.peek()] == [2, 1, 0]


def test_an_ack_of_many_lies_in_one_batch_wherever_the_segment_ends() -> None:
    for filler in range(0, 3000, 97):
        site = Topic(MemoryStorage(), segment_size=1 << 13)
        site.write(b"x" * filler)
        site.write(*(b"y" for _ in range(20)))
        site.claim(most=30)
        site.commit()
        before = site.journal.open_number
        assert site.ack(*range(2, 22)).done == 20
        ended = site.ack(1)
        site.commit()
        assert site.journal.open_number - before <= 2
        assert ended.batch == site.journal.durable


# -- other doors -------------------------------------------------------------------------------


def test_a_beanstalk_client_works_on_jobs_of_a_topic() -> None:
    site = Topic(given=config(lease_ms=5000))
    client = site.connect()
    client.say(b"watch t\r\n")
    site.write(b'{"a":1}', b"2")
    assert client.say(b"reserve\r\n") == b'RESERVED 1 7\r\n{"a":1}\r\n'
    job = site.peek()[0]
    assert job.lease is not None
    assert job.lease.ttl_ms == 5000
    assert client.say(b"release 1 77 0\r\n") == b"RELEASED\r\n"
    assert (job.state, job.rank) == (READY, 0)
    client.say(b"reserve\r\n")
    assert client.say(b"bury 1 99\r\n") == b"BURIED\r\n"
    assert (job.state, job.rank) == (DEAD, 0)
    assert client.say(b"kick-job 1\r\n") == b"KICKED\r\n"
    assert client.say(b"reserve\r\n").startswith(b"RESERVED 1 ")
    assert site.ack(1).skipped == [1]
    assert client.say(b"delete 1\r\n") == b"DELETED\r\n"
    client.say(b"reserve\r\n")
    site.jump(5000)
    assert site.peek()[0].state == READY
    recount(site.yard)


def test_a_beanstalk_client_cannot_end_a_claim() -> None:
    site = Topic()
    site.write(b"1")
    site.claim()
    client = site.connect()
    assert client.say(b"delete 1\r\n") == b"NOT_FOUND\r\n"
    assert client.say(b"release 1 0 0\r\n") == b"NOT_FOUND\r\n"


def test_a_failed_run_at_another_door_is_tried_again_later_for_ever() -> None:
    site = Topic(MemoryStorage())
    site.write(b"1")
    for attempt in range(1, 12):
        lease = take(site.yard, [site.t], site.lease_set, TOKEN_TERMS, site.now_ms)
        assert lease is not None
        fail(site.yard, lease.job, "no", site.now_ms)
        job = lease.job
        assert (job.state, job.attempts) == (DELAYED, attempt)
        wait_ms = int(job.due_ms) - site.now_ms
        assert min(60_000, 500 << attempt) <= wait_ms <= min(60_000, 1500 << attempt)
        site.jump(wait_ms)
    job = site.after_a_crash().peek()[0]
    assert (job.state, job.attempts, job.stamp == site.peek()[0].stamp) == (READY, 11, True)


def test_a_topic_job_that_is_finished_or_discarded_at_another_door() -> None:
    site = Topic()
    site.write(b"1", b"2")
    for is_final in (False, True):
        lease = take(site.yard, [site.t], site.lease_set, TOKEN_TERMS, site.now_ms)
        assert lease is not None
        if is_final:
            fail(site.yard, lease.job, "no", site.now_ms, is_final=True)
        else:
            finish(site.yard, lease.job, site.now_ms)
        assert lease.job.state == (DEAD if is_final else GONE)


def test_jobs_of_the_other_doors_are_claimed_and_end_by_their_own_family() -> None:
    site = Topic()
    site.put(b"a", "t", rank=5)
    policy = Policy(0)
    policy.max_attempts = 2
    site.enter(b"\xc0", "t", rank=6, policy=policy)
    site.enter(b"\xc0", "t", rank=7)
    one, two, three = (lease.job for lease in site.claim(most=3))
    ended = site.nack(1, 2)
    assert ended.done == 2
    assert (one.state, one.counters().releases, one.rank) == (READY, 1, 5)
    assert (two.state, two.attempts) == (READY, 1)
    site.ack(3)
    assert three.state == DONE
    site.claim(most=3)
    assert site.nack(2).done == 1
    assert two.state == DEAD
    assert site.ack(1).done == 1
    assert one.state == GONE
    assert site.seqs() == [2]
    assert site.counts() == (0, 0, 0, 1)
    assert topic_queue.counts(site.t).bytes == 1


def test_a_claimed_job_of_bunqueue_that_stalls_is_charged_an_attempt() -> None:
    site = Topic()
    job = site.enter(b"\xc0", "t")
    site.claim(lease_ms=1000)
    site.jump(1000)
    assert (job.state, job.attempts, job.stalls()) == (READY, 1, 1)


def test_the_bytes_of_a_queue_follow_jobs_that_are_done_and_come_back() -> None:
    site = Topic()
    site.enter(b"12345", "t")
    lease = take(site.yard, [site.t], site.lease_set, TOKEN_TERMS, site.now_ms)
    assert lease is not None
    finish(site.yard, lease.job, site.now_ms)
    assert lease.job.state == DONE
    assert topic_queue.counts(site.t).bytes == 0
    remove(site.yard, lease.job, site.now_ms)
    assert topic_queue.counts(site.t).bytes == 0


def test_a_node_cannot_end_a_lease_of_another_door() -> None:
    site = Topic()
    site.write(b"1")
    terms = Terms(BUNQUEUE, Proof.DOOR, 1000, "w")
    lease = take(site.yard, [site.t], site.lease_set, terms, site.now_ms)
    assert lease is not None
    assert site.ack(1).skipped == [1]
    assert hand_back(site.yard, held(site.yard, lease.job.id, site.lease_set), 3, 0, site.now_ms)


def test_a_cap_counts_for_pushes_and_batches_of_bunqueue() -> None:
    site = BareBunqueue()
    queue = topic_queue.open_topic_queue(
        site.yard, "t", config(cap_records=2, discard="reject"), site.now_ms
    )
    client = site.connect()
    client.push("t", 1)
    client.refused("PUSHB", queue="t", jobs=[{"data": 1}, {"data": 2}])
    client.push("t", 2)
    client.refused("PUSH", queue="t", data=3)
    assert [int(job.key) for job in topic_queue.peek(site.yard, queue, 0, 9)] == [1, 2]
    topic_queue.set_queue_config(site.yard, queue, config(cap_records=2), site.now_ms)
    client.ok("PUSHB", queue="t", jobs=[{"data": 1}, {"data": 2}])
    client.push("t", 3)
    assert [int(job.key) for job in topic_queue.peek(site.yard, queue, 0, 9)] == [4, 5]
    site.check()


def test_a_bunqueue_client_works_on_jobs_of_a_topic() -> None:
    site = BareBunqueue()
    queue = topic_queue.open_topic_queue(site.yard, "t", config(), site.now_ms)
    one = topic_queue.NewRecord(b'{"a":1}', b'{"m":2}', "tag", "node")
    topic_queue.produce(site.yard, queue, [one, one, one, one], "", site.now_ms)
    client = site.connect()
    job = client.pull("t")
    assert (job["data"], job["name"]) == ({"a": 1}, "default")
    assert client.ok("GetJob", id=job["id"])["job"]["data"] == {"a": 1}
    client.ok("ACK", id=job["id"], result=1)
    assert client.state(job["id"]) == "unknown"
    job_id, token = client.lock("t")
    client.ok("FAIL", id=job_id, token=token, error="no")
    assert client.state(job_id) == "delayed"
    lease_set = topic_queue.node_leases(site.yard, "w")
    lease = topic_queue.claim(site.yard, queue, "w", 1, 0, lease_set, site.now_ms)[0]
    claimed_id = id_text(lease.job)
    client.refused("ACK", id=claimed_id)
    assert client.state(claimed_id) == "active"
    job = client.pull("t")
    client.ok("FAIL", id=job["id"], error="no", unrecoverable=True)
    assert client.ok("Dlq", queue="t")["jobs"][0]["id"] == job["id"]
    client.ok("RetryDlq", queue="t")
    assert client.pull("t")["id"] == job["id"]
    site.tick(61_000)
    site.check()
