import pytest

from jobyard.engine.jobs.move import remove
from jobyard.engine.jobs.put import (
    NewJob,
    enter,
    give_back_seqs,
    intern,
    make_job,
    make_room,
    room_for,
)
from jobyard.engine.topics.topic_queue import drop_topic_queue, open_topic_queue
from jobyard.errors import YardFull
from jobyard.model.details import JobDetails
from jobyard.model.family import BUNQUEUE
from jobyard.model.job import DELAYED, LEASED, MSGPACK, READY
from jobyard.model.limits import URGENT_RANK
from jobyard.model.policy import LIFO, Policy
from tests.support.engine.topics import Topic, config
from tests.support.site.recount import recount
from tests.support.site.site import NOW_MS
from tests.support.site.snapshot import snapshot
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard


def test_a_job_without_a_delay_is_ready() -> None:
    site = OpenYard()
    job = site.put(b"abc", "q", 5)
    assert (job.state, job.rank, job.own_ms) == (READY, 5, 60_000)
    assert (job.created_ms, job.due_ms, job.deliveries) == (NOW_MS, NOW_MS, 0)
    recount(site.yard)


def test_a_job_with_a_delay_waits_for_its_time() -> None:
    site = OpenYard()
    job = site.put(delay_ms=1500)
    assert (job.state, job.due_ms) == (DELAYED, NOW_MS + 1500)
    assert site.jump(1499) == NOW_MS + 1500
    assert job.state == DELAYED
    site.jump(1)
    assert job.state == READY
    recount(site.yard)


def test_ids_rise_over_all_queues_and_seqs_within_each() -> None:
    site = OpenYard()
    jobs = [site.put(queue=name) for name in "abab"]
    assert [job.id for job in jobs] == [1, 2, 3, 4]
    assert [job.key for job in jobs] == [1, 1, 2, 2]
    assert len({job.stamp for job in jobs}) == 4


def test_ready_jobs_of_low_rank_count_as_urgent() -> None:
    site = OpenYard()
    site.put(rank=URGENT_RANK - 1)
    site.put(rank=URGENT_RANK)
    site.put(rank=0, delay_ms=1000)
    assert site.yard.urgent_count == 1
    site.jump(1000)
    assert site.yard.urgent_count == 2
    recount(site.yard)


def test_a_job_goes_straight_to_the_first_waiting_client() -> None:
    site = OpenYard(MemoryStorage())
    first, second = site.connect(), site.connect()
    assert first.say(b"reserve\r\n") == b""
    assert second.say(b"reserve\r\n") == b""
    job = site.put(b"abc")
    assert job.state == LEASED
    assert first.hear() == b"RESERVED 1 3\r\nabc\r\n"
    assert first.ears.wakes == 1
    assert second.hear() == b""
    recount(site.yard)


def test_a_due_job_goes_to_a_waiting_client() -> None:
    site = OpenYard()
    client = site.connect()
    client.say(b"reserve\r\n")
    site.put(b"abc", delay_ms=1000)
    assert client.hear() == b""
    site.jump(1000)
    assert client.hear() == b"RESERVED 1 3\r\nabc\r\n"


def test_a_refused_job_leaves_nothing_behind() -> None:
    site = OpenYard(budget=10)
    client = site.connect()
    with pytest.raises(YardFull):
        site.put(b"x" * 11)
    assert client.say(b"put 0 0 1 11\r\nxxxxxxxxxxx\r\n") == b"OUT_OF_MEMORY\r\n"
    assert (site.yard.jobs.count, site.yard.counters.put_total()) == (0, 0)
    assert site.put(b"x" * 10).id == 1
    recount(site.yard)


def test_the_totals_count_every_put() -> None:
    site = OpenYard()
    site.put(queue="a")
    site.put(queue="b")
    assert site.yard.counters.put_total() == 2
    assert site.queue("a").total_count == 1


# -- the other family --------------------------------------------------------------------------


def named(name: str) -> Policy:
    policy = Policy(0)
    policy.name = name
    return policy


def test_a_wish_comes_back_after_a_restart_with_every_field() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    details = JobDetails()
    details.custom_id, details.group_id, details.protocol_fields = "mine", "g", b"marks"
    job = site.enter(b"x" * 5000, "q", rank=-7, delay_ms=900, policy=named("mail"), details=details)
    assert (job.family, job.codec, job.own_ms, job.policy.name) == (
        BUNQUEUE,
        MSGPACK,
        NOW_MS,
        "mail",
    )
    site.commit()
    again = OpenYard(storage.cut_off())
    assert snapshot(again.yard) == snapshot(site.yard)
    recount(again.yard)


def test_the_room_of_a_wish_is_never_too_small() -> None:
    site = OpenYard(MemoryStorage())
    for size in (0, 4096, 4097):
        details = JobDetails()
        details.custom_id = "\N{SNOWMAN}" * 50
        new_job = NewJob(BUNQUEUE, MSGPACK, b"x" * size)
        new_job.policy, new_job.details = intern(site.yard, named(f"p{size}")), details
        queue = site.queue("\N{SNOWMAN}" * 30 + str(size))
        room = room_for(queue, new_job)
        before = site.journal.open_bytes()
        make_room(site.yard, room, site.now_ms)
        enter(site.yard, make_job(queue, new_job), site.now_ms)
        assert before < site.journal.open_bytes() <= before + room


def test_jobs_that_want_to_go_first_do() -> None:
    site = OpenYard()
    last_first = Policy(0)
    last_first.flags = LIFO
    plain = site.enter()
    first, second = site.enter(policy=last_first), site.enter(policy=last_first)
    served = [lease.job for _ in range(3) if (lease := site.pull()) is not None]
    assert served == [second, first, plain]


def test_equal_wishes_are_one_policy_and_one_record() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage)
    jobs = [site.enter(policy=named(name)) for name in ("a", "b", "a")]
    assert jobs[0].policy is jobs[2].policy
    assert [int(job.policy.number) for job in jobs] == [1, 2, 1]
    assert (jobs[0].policy.jobs_count, site.journal.entries.count) == (2, 2)
    site.commit()
    again = OpenYard(storage.cut_off())
    assert again.enter(policy=named("b")).policy.number == 2
    assert again.enter(policy=named("c")).policy.number == 3


def test_a_policy_that_was_forgotten_is_written_down_again() -> None:
    """Or a yard with its jobs could never be opened again."""
    storage = MemoryStorage()
    site = OpenYard(storage)
    most = 8
    site.yard.policies_max = most
    remove(site.yard, site.enter(policy=named("known")), site.now_ms)
    known = intern(site.yard, named("known"))
    assert known.number == 1
    for number in range(most):
        intern(site.yard, named(f"other {number}"))
    new_job = NewJob(BUNQUEUE, MSGPACK, b"")
    new_job.policy = known
    make_room(site.yard, room_for(site.queue(), new_job), site.now_ms)
    job = enter(site.yard, make_job(site.queue(), new_job), site.now_ms)
    site.commit()
    again = OpenYard(storage.cut_off())
    found = again.yard.jobs.get(job.id)
    assert found is not None
    assert found.policy.name == "known"


# -- seqs of topics where an answer may precede the sync -------------------------------------------


def write_only(site: Topic) -> None:
    """Hand what was appended to the kernel, and sync only where seqs or ids would be at risk."""
    site.journal.seal_batch()
    site.journal.write_pending()
    if site.journal.ids_at_risk():
        site.commit()


def test_seqs_of_a_queue_that_were_answered_are_not_given_again() -> None:
    storage = MemoryStorage()
    site = Topic(storage, ids_ahead=True, segment_size=1 << 19)
    synced = 0
    for turn in range(50):
        done = site.write(*[b"{}"] * 199)
        site.ack(*site.claimed(most=150))
        before = site.journal.durable
        write_only(site)
        synced += site.journal.durable > before
        if turn % 5 == 0:
            lost = Topic(storage.cut_off(), site.now_ms, ids_ahead=True, segment_size=1 << 19)
            assert lost.t.next_seq > done.last_seq, turn
    recount(lost.yard)
    assert 0 < synced < 25, "a sync for nearly every write"
    site.compact()
    assert Topic(storage.cut_off(), site.now_ms, ids_ahead=True).t.next_seq > done.last_seq


def test_a_stop_in_good_order_gives_reserved_seqs_back() -> None:
    storage = MemoryStorage()
    site = Topic(storage, ids_ahead=True)
    site.write(b"1", b"2")
    give_back_seqs(site.yard)
    site.journal.append_clean()
    site.journal.close()
    again = Topic(storage.cut_off(), site.now_ms, ids_ahead=True)
    assert again.t.next_seq == 3
    assert again.write(b"3").first_seq == 3
    write_only(again)
    assert isinstance(again.storage, MemoryStorage)
    assert Topic(again.storage.cut_off(), site.now_ms, ids_ahead=True).t.next_seq > 4


def test_seqs_are_reserved_for_no_queue_that_waits_for_its_syncs() -> None:
    for ids_ahead, given in ((True, config(durable=True)), (False, config())):
        site = Topic(MemoryStorage(), given=given, ids_ahead=ids_ahead)
        site.write(b"1")
        assert site.t.seq_limit == 1
        assert site.journal.seqs_sync_batch == 0
        assert site.after_a_crash().t.next_seq == 2


def test_a_queue_that_is_created_again_begins_at_the_first_seq() -> None:
    site = Topic(MemoryStorage(), ids_ahead=True)
    site.write(b"1")
    drop_topic_queue(site.yard, site.t, site.now_ms)
    open_topic_queue(site.yard, "t", config(), site.now_ms)
    assert site.write(b"1").first_seq == 1
    assert site.t.seq_limit > 1
