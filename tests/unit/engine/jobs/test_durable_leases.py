"""Leases that survive a restart: their holders, their deadlines, and what ends them."""

import pytest

from jobyard.engine.jobs.durable_leases import durable_lease_of
from jobyard.engine.topics import topic_queue
from jobyard.errors import YardFull
from jobyard.model.details import DurableLease
from jobyard.model.job import LEASED, READY
from tests.support.engine.topics import Topic, config
from tests.support.site.recount import recount
from tests.support.site.storage import MemoryStorage


def topic(**given: object) -> Topic:
    """Return a queue whose leases survive the server."""
    return Topic(MemoryStorage(), given=config(leases_durable=True, **given))


def held(site: Topic) -> list[tuple[int, str, str, int]]:
    """Return seq, node, name and deadline of every lease."""
    leases = [job.lease for job in site.peek() if job.lease is not None]
    return [
        (
            int(lease.job.key),
            lease.terms.label,
            topic_queue.lease_name(site.yard, lease),
            int(lease.until_ms),
        )
        for lease in leases
    ]


def kept(site: Topic, seq: int = 1) -> DurableLease | None:
    """Return what is noted of the lease on a job."""
    (job,) = [job for job in site.peek() if job.key == seq]
    return durable_lease_of(job)


def test_a_lease_survives_with_holder_name_and_deadline() -> None:
    site = topic()
    site.write(b"1", b"2", b"3")
    site.claim("a", 1, 10_000)
    site.jump(500)
    site.claim("b", 1, 20_000)
    before = held(site)
    assert [(seq, node) for seq, node, _, _ in before] == [(1, "a"), (2, "b")]
    after = site.after_a_crash(ms=2000)
    assert held(after) == before
    assert after.claimed("c", most=9) == [3], "what is leased was given to another"
    assert (after.after_a_crash().counts()) == (0, 2 + 1, 0, 3)


def test_a_claim_waits_for_its_record() -> None:
    site = topic()
    site.write(b"1")
    site.commit()
    (lease,) = site.claim()
    assert lease.job.batch == site.journal.open_number


def test_a_lease_can_be_ended_by_its_old_name_after_a_restart() -> None:
    site = topic()
    site.write(b"1", b"2")
    site.claim("a", 2)
    names = [name for _, _, name, _ in held(site)]
    after = site.after_a_crash()
    assert after.ack(1, node="b", ids=names[:1]).skipped == [1]
    assert after.ack(1, node="a", ids=["lease_1000"]).skipped == [1]
    assert after.ack(1, node="a", ids=names[:1]).done == 1
    assert after.nack(2, node="a").done == 1
    (lease,) = after.claim("a", 9)
    assert lease.job.deliveries == 2
    assert topic_queue.lease_name(after.yard, lease) not in names
    assert after.after_a_crash().seqs() == [2]


def test_a_lease_that_ran_out_while_nobody_was_there_has_run_out() -> None:
    site = topic()
    site.write(b"1")
    site.claim("a", 1, 10_000)
    after = site.after_a_crash(ms=10_001)
    after.jump()
    (job,) = after.peek()
    assert (job.state, job.deliveries, job.counters().timeouts) == (READY, 1, 1)
    assert after.yard.nodes == {}
    (lease,) = after.claim("b")
    assert lease.job.deliveries == 2
    assert held(after.after_a_crash()) == held(after)


def test_a_lease_that_is_renewed_survives_with_its_new_deadline() -> None:
    site = topic()
    site.write(b"1")
    site.claim("a", 1, 1000)
    site.commit()
    site.jump(900)
    ended = site.extend(1, node="a", lease_ms=50_000)
    assert ended.batch == site.journal.open_number
    before = held(site)
    assert before[0][3] == site.now_ms + 50_000
    after = site.after_a_crash(ms=20_000)
    assert held(after) == before
    after.jump(30_001)
    assert held(after) == []


@pytest.mark.parametrize("end", ["ack", "nack", "expire", "delete", "beanstalk"])
def test_whatever_ends_a_lease_ends_it_for_good(end: str) -> None:
    site = topic()
    site.write(b"1", b"2")
    site.claim("a", 1, 1000)
    site.commit()
    if end == "ack":
        site.ack(1, node="a")
    elif end == "nack":
        site.nack(1, node="a", delay_ms=60_000)
    elif end == "expire":
        site.jump(1001)
    elif end == "delete":
        site.remove(before_seq=2)
    else:
        # Taken at another door after it came back, and held there no longer than that lasts.
        site.nack(1, node="a")
        client = site.connect()
        assert client.say(b"watch t\r\nreserve\r\n").startswith(b"WATCHING 2\r\nRESERVED")
        assert site.counts()[1] == 1
    after = site.after_a_crash()
    assert held(after) == []
    assert after.counts()[1] == 0
    assert all(durable_lease_of(job) is None for job in after.peek())


def test_a_clock_that_was_set_back_makes_no_lease_longer() -> None:
    site = topic()
    site.write(b"1")
    site.claim("a", 1, 10_000)
    after = site.after_a_crash(ms=-3_600_000)
    assert held(after)[0][3] == after.now_ms + 10_000
    assert held(after.after_a_crash())[0][3] == after.now_ms + 10_000


def test_streams_hold_on_to_nothing_over_a_restart() -> None:
    site = topic()
    site.write(b"1")
    _stream, inbox = site.stream()
    assert inbox.seqs() == [1]
    assert kept(site) is None
    assert site.after_a_crash().counts() == (1, 0, 0, 1)


def test_other_queues_pay_nothing() -> None:
    site = Topic(MemoryStorage(), given=config())
    site.write(b"1")
    count = site.journal.records_count
    site.claim("a")
    assert site.journal.records_count == count + 1
    assert kept(site) is None
    assert site.peek()[0].details is None
    assert site.after_a_crash().counts() == (1, 0, 0, 1)


def test_a_lease_outlives_the_wish_for_it() -> None:
    site = topic()
    site.write(b"1", b"2")
    site.claim("a")
    topic_queue.set_queue_config(site.yard, site.t, config(), site.now_ms)
    site.claim("b")
    assert [(seq, node) for seq, node, _, _ in held(site.after_a_crash())] == [(1, "a")]


def test_leases_survive_the_segments_they_were_noted_in() -> None:
    site = topic()
    site.write(*[b'"%d"' % n for n in range(40)])
    site.claim("a", 20, 3_600_000)
    before = held(site)
    for _ in range(300):
        site.write(b'"%s"' % (b"x" * 1000))
        (seq,) = site.claimed("b")
        site.ack(seq, node="b")
        site.commit()
    site.compact()
    assert site.compactor.dropped_count > 2
    assert site.journal.moved_count > 0
    recount(site.yard)
    after = site.after_a_crash()
    assert held(after) == before
    after.compact()
    after.ack(*range(1, 11), node="a")
    recount(after.yard)
    assert held(after.after_a_crash()) == before[10:]


def test_on_a_full_disk_leases_are_noted_as_long_as_there_is_room_aside() -> None:
    storage = MemoryStorage()
    site = Topic(storage, given=config(leases_durable=True))
    site.write(*[b"1"] * 10)
    site.commit()
    storage.capacity = storage.used()
    site.journal.note_full()
    assert site.claimed("a", 3) == [1, 2, 3]
    assert all(kept(site, seq) is not None for seq in (1, 2, 3))
    site.commit()
    assert [job.state for job in site.after_a_crash().peek(limit=3)] == [LEASED] * 3


def test_a_claim_that_cannot_be_noted_is_refused() -> None:
    storage = MemoryStorage()
    site = Topic(storage, given=config(leases_durable=True))
    site.write(*[b"1"] * 10)
    site.commit()
    storage.capacity = storage.used()
    site.journal.note_full()
    site.journal.spares.clear()
    with pytest.raises(YardFull):
        site.claim("a", 3)
    assert [job.state for job in site.peek(limit=3)] == [READY] * 3
    assert site.yard.nodes == {}
    site.journal.is_full = False
    assert site.claimed("a", 3) == [1, 2, 3]
    until_ms = kept(site)
    site.journal.is_full = True
    with pytest.raises(YardFull):
        site.extend(1, node="a")
    assert kept(site) == until_ms
    assert site.ack(2, node="a").done == 1


def test_without_a_journal_nothing_is_noted() -> None:
    site = Topic(given=config(leases_durable=True))
    site.write(b"1")
    site.claim("a")
    assert kept(site) is None
    assert site.extend(1, node="a").done == 1
