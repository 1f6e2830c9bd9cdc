import pytest

from jobyard.engine.glidemq.add import entry_of, find, id_of, opts_of, state_of
from jobyard.engine.glidemq.finish import Keep, complete
from jobyard.engine.glidemq.move import promote_due
from jobyard.engine.jobs.finish import finish, hand_back
from jobyard.engine.jobs.move import kick_job
from jobyard.engine.jobs.retention import DONE_AGE_MS, watch
from jobyard.engine.jobs.take import take
from jobyard.errors import CostExceeds, Duplicate, IdExhausted, NotHeld
from jobyard.model.job import DEAD, DELAYED, DONE, READY
from jobyard.model.throttle.ready_lists import ReadyList
from jobyard.protocols.beanstalk.door import TERMS
from tests.support.engine.glides import GlideYard
from tests.support.site.recount import recount


def test_a_plain_job_is_as_small_as_any_and_has_its_seq_for_a_name() -> None:
    place = GlideYard()
    jobs = [place.add(opts=b'{"attempts":3}', max_attempts=3, ts=5) for _ in range(2)]
    assert [job.details for job in jobs] == [None, None]
    assert jobs[0].policy is jobs[1].policy
    assert [id_of(job) for job in jobs] == ["1", "2"]
    assert [opts_of(job) for job in jobs] == [b'{"attempts":3}'] * 2
    assert [state_of(job) for job in jobs] == ["waiting", "waiting"]
    queue = place.site.queue()
    assert find(place.site.yard, queue, "2") is jobs[1]
    for other in ("02", "3", "", "x", "²", "+2", "9" * 30):
        assert find(place.site.yard, queue, other) is None
    assert queue.rules is None
    place.restart()
    again = find(place.site.yard, place.site.queue(), "2")
    assert again is not None
    assert (again.own_ms, again.policy.name, opts_of(again)) == (5, "mail", b'{"attempts":3}')


def test_options_of_one_job_alone_are_not_shared() -> None:
    place = GlideYard()
    long = b'{"x":"' + b"y" * 300 + b'"}'
    for opts in (b'{"jobId":"a"}', long):
        job = place.add(opts=opts)
        assert opts_of(job) == opts
        assert job.policy.opts == b""
    assert opts_of(place.add()) == b"{}"
    place.restart()
    assert [opts_of(job) for job in place.site.yard.jobs.all()] == [b'{"jobId":"a"}', long, b"{}"]


def test_ids_go_on_when_the_last_job_is_gone_whatever_is_compacted() -> None:
    place = GlideYard()
    last = 0
    for _ in range(4):
        for _ in range(40):
            last += 1
            job = place.add(data=b"x" * 500)
            assert id_of(job) == str(last)
            [lease] = place.take()
            place.complete(lease.job, keep=Keep(is_kept=False))
        place.site.commit()
        place.site.compact()
        place.restart()
        assert place.site.queue().next_seq == last + 1


def test_a_failure_that_is_not_the_last_lets_no_other_go() -> None:
    place = GlideYard()
    dead, job = place.add(), place.add()
    place.take()
    assert place.fail(dead) == "failed"
    assert place.fail(job, most=3, keep=Keep(count=0)) == "retrying"
    assert dead.state == DEAD
    promote_due(place.site.yard, place.site.queue(), place.now_ms, 9)
    place.take()
    assert place.fail(job, most=2, keep=Keep(count=0)) == "failed"
    assert place.site.yard.jobs.count == 0


def test_an_id_is_given_once_in_a_queue() -> None:
    place = GlideYard()
    job = place.add(custom_id="invoice")
    with pytest.raises(Duplicate):
        place.add(custom_id="invoice")
    other = place.add()
    with pytest.raises(Duplicate):
        place.add(custom_id=id_of(other))
    assert (id_of(job), id_of(other)) == ("invoice", "2")
    # The seq of a job with a chosen id is not a name.
    assert find(place.site.yard, place.site.queue(), "1") is None
    assert place.site.queue().next_seq == 3
    elsewhere = place.site.queue("other")
    assert find(place.site.yard, elsewhere, "invoice") is None
    place.restart()
    with pytest.raises(Duplicate):
        place.add(custom_id="invoice")


def test_chosen_ids_are_stepped_over() -> None:
    place = GlideYard()
    queue = place.site.queue()
    place.add(custom_id="2")
    assert id_of(place.add()) == "3"
    for each in range(5000, 6000):
        place.add(custom_id=str(each))
    queue.next_seq = 5001
    assert id_of(place.add()) == "6000"
    place.add(custom_id="6001")
    queue.next_seq = 5000
    before = place.site.yard.jobs.count
    with pytest.raises(IdExhausted):
        place.add()
    assert (place.site.yard.jobs.count, queue.next_seq) == (before, 5000)


def test_a_job_that_costs_too_much_leaves_nothing_behind() -> None:
    place = GlideYard()
    with pytest.raises(CostExceeds):
        place.add(ordering="a", tb_capacity=999)
    with pytest.raises(CostExceeds):
        place.add(ordering="a", tb_capacity=2000, cost=2001)
    assert place.site.queue().rules is None
    assert place.site.queue().next_seq == 1
    assert id_of(place.add(ordering="a", tb_capacity=2000, cost=2000)) == "1"


def test_the_stream_gives_jobs_in_the_order_they_came_and_once() -> None:
    place = GlideYard()
    jobs = [place.add() for _ in range(3)]
    entries = [entry_of(job) for job in jobs]
    assert entries == sorted(set(entries))
    assert place.taken(2) == ["1", "2"]
    assert place.taken() == ["3"]
    assert place.taken() == []
    lease = jobs[0].lease
    assert lease is not None
    assert lease.terms.label == "w1"
    assert place.states() == {"1": "active", "2": "active", "3": "active"}


def test_a_finished_job_stays_with_what_it_returned() -> None:
    place = GlideYard()
    job = place.add()
    place.take()
    with pytest.raises(NotHeld):
        place.complete(place.add())
    place.complete(job, b'{"ok":true}')
    assert (job.state, job.outcome().result) == (DONE, b'{"ok":true}')
    with pytest.raises(NotHeld):
        place.complete(job)
    place.restart()
    assert place.states() == {"1": "completed", "2": "waiting"}


def test_who_lost_a_job_to_a_restart_may_still_end_it_by_its_entry() -> None:
    place = GlideYard()
    place.add()
    place.take()
    place.restart()
    job = place.site.yard.jobs.all()[0]
    assert job.state == READY
    place.complete(job, b"1")
    assert job.state == DONE


def test_who_lost_a_job_to_a_restart_may_not_end_what_another_took() -> None:
    place = GlideYard()
    entry = entry_of(place.add())
    place.take()
    place.restart()
    (lease,) = place.take(consumer="w2")
    job = lease.job
    assert entry_of(job) != entry
    with pytest.raises(NotHeld):
        complete(place.site.yard, job, entry, b"1", Keep(), place.now_ms)
    newer = entry_of(job)
    place.restart()
    job = place.site.yard.jobs.all()[0]
    with pytest.raises(NotHeld):
        complete(place.site.yard, job, entry, b"1", Keep(), place.now_ms)
    complete(place.site.yard, job, newer, b"1", Keep(), place.now_ms)
    assert job.state == DONE


def test_what_was_never_taken_cannot_be_ended() -> None:
    place = GlideYard()
    with pytest.raises(NotHeld):
        place.complete(place.add())
    with pytest.raises(NotHeld):
        place.fail(place.add())


def test_a_failed_job_is_tried_again_after_its_wait_and_its_promotion() -> None:
    place = GlideYard()
    job = place.add(max_attempts=3)
    place.take()
    assert place.fail(job, most=3, backoff_ms=100) == "retrying"
    assert (job.state, state_of(job), job.attempts) == (DELAYED, "delayed", 1)
    place.restart()
    job = place.site.yard.jobs.all()[0]
    assert place.promote() == 0
    place.tick(100)
    # Due, but in the stream only once a worker promotes it.
    assert (job.state, state_of(job), place.taken()) == (READY, "delayed", [])
    place.restart()
    job = place.site.yard.jobs.all()[0]
    entry = entry_of(job)
    assert place.promote() == 1
    assert entry_of(job) != entry
    assert place.taken() == ["1"]
    assert place.fail(job, most=2) == "failed"
    assert (job.state, job.outcome().error, job.attempts) == (DEAD, "boom", 2)
    place.restart()
    assert place.states() == {"1": "failed"}


def test_no_attempts_are_one() -> None:
    place = GlideYard()
    job = place.add()
    place.take()
    assert place.fail(job) == "failed"


def test_a_job_tried_again_at_once_still_waits_for_its_promotion() -> None:
    place = GlideYard()
    job = place.add()
    place.take()
    assert place.fail(job, most=2) == "retrying"
    assert (state_of(job), place.taken()) == ("delayed", [])
    place.restart()
    assert (place.promote(), place.taken()) == (1, ["1"])


def test_jobs_with_a_priority_are_promoted_best_first_and_first_come_first() -> None:
    place = GlideYard()
    for priority in (2, 1, 2, 1, 0, 1):
        place.add(priority=priority)
    assert sorted(set(place.states().values())) == ["prioritized", "waiting"]
    assert (place.taken(), place.pop(ReadyList.PROMOTED)) == (["5"], [])
    place.restart()
    assert place.promote(4) == 4
    assert place.promote(4) == 1
    place.restart()
    assert place.pop(ReadyList.PROMOTED) == ["2", "4", "6", "1", "3"]
    # Taken from a list, a job lost comes back to the stream.
    place.restart()
    assert place.taken() == ["5", "2", "4", "6", "1", "3"]


def test_equal_priorities_go_in_the_order_of_the_puts_beyond_the_tenth() -> None:
    place = GlideYard()
    for _ in range(12):
        place.add(priority=1)
    place.promote()
    assert place.pop(ReadyList.PROMOTED) == [str(each) for each in range(1, 13)]


def test_the_last_of_a_stack_goes_first() -> None:
    place = GlideYard()
    for _ in range(3):
        place.add(is_lifo=True)
    late = place.add(is_lifo=True, delay_ms=10)
    assert (place.taken(), place.pop(ReadyList.PROMOTED)) == ([], [])
    place.restart()
    assert place.pop(ReadyList.LIFO, 1) == ["3"]
    place.tick(10)
    assert place.promote() == 1
    place.restart()
    assert place.pop(ReadyList.LIFO) == ["4", "2", "1"]
    assert entry_of(late)[0] != "-"


def test_delayed_jobs_come_in_the_order_in_which_they_are_due() -> None:
    place = GlideYard()
    for delay_ms in (30, 10, 20):
        place.add(delay_ms=delay_ms)
    assert set(place.states().values()) == {"delayed"}
    # The timers of the yard need not have rung.
    place.site.now_ms += 25
    assert place.promote() == 2
    assert place.taken() == ["2", "3"]
    place.restart()
    place.tick(5)
    assert place.promote() == 1


def test_other_doors_take_the_least_rank_of_all_ready_lists() -> None:
    place = GlideYard()
    place.add(priority=3)
    place.add(is_lifo=True)
    place.add()
    place.add(priority=1)
    place.promote(1)
    site = place.site
    served = []
    while True:
        lease = take(site.yard, [site.queue()], site.lease_set, TERMS, site.now_ms)
        if lease is None:
            break
        served.append(id_of(lease.job))
        assert lease.job.ready_list == ReadyList.STREAM
        recount(site.yard)
    assert served == ["2", "3", "4", "1"]


def test_other_doors_end_jobs_as_their_family_asks() -> None:
    place = GlideYard()
    site = place.site
    jobs = [place.add(max_attempts=2, backoff_kind=2, backoff_ms=50) for _ in range(2)]
    for job in jobs:
        assert take(site.yard, [site.queue()], site.lease_set, TERMS, site.now_ms) is not None
        with pytest.raises(NotHeld):
            place.complete(job)
    finish(site.yard, jobs[0], site.now_ms)
    assert jobs[0].state == DONE
    assert hand_back(site.yard, jobs[1], 0, 0, site.now_ms)
    assert (jobs[1].attempts, state_of(jobs[1])) == (1, "delayed")
    lease = take(site.yard, [site.queue()], site.lease_set, TERMS, site.now_ms)
    assert lease is not None
    assert not hand_back(site.yard, jobs[1], 0, 0, site.now_ms)
    recount(site.yard)
    place.restart()
    assert place.states() == {"1": "completed", "2": "failed"}
    kick_job(place.site.yard, jobs[1].id, place.now_ms)
    recount(place.site.yard)
    place.restart()
    assert place.taken() == ["2"]


def test_a_lease_of_another_door_that_runs_out_is_a_stall() -> None:
    place = GlideYard()
    site = place.site
    job = place.add(lock_ms=5000)
    for state in (READY, DEAD):
        assert take(site.yard, [site.queue()], site.lease_set, TERMS, site.now_ms) is not None
        place.tick(4999)
        assert state_of(job) == "active"
        place.tick(1)
        assert (job.state, job.attempts) == (state, 0)
    assert job.outcome().error == "job stalled more than maxStalledCount"
    place.restart()


def test_a_job_whose_time_is_over_is_dead() -> None:
    place = GlideYard()
    for fields in ({}, {"priority": 1}, {"delay_ms": 500}, {"ordering": "a"}):
        place.add(ttl_ms=100, **fields)
    place.restart()
    place.site.now_ms += 100
    assert place.taken() == []
    place.tick(0)
    assert set(place.states().values()) == {"failed"}
    assert {job.outcome().error for job in place.site.yard.jobs.all()} == {"expired"}
    place.restart()
    assert set(place.states().values()) == {"failed"}


def test_ready_lists_survive_compaction() -> None:
    place = GlideYard()
    for fields in ({"priority": 4}, {"is_lifo": True}, {"ordering": "a"}, {"ordering": "a"}, {}):
        place.add(**fields)
    gone = [place.add(data=b"x" * 2000) for _ in range(60)]
    place.promote()
    for job in gone:
        site = place.site
        site.yard.drop(job, site.now_ms)
    place.compact()
    place.restart()
    assert (place.pop(ReadyList.PROMOTED), place.pop(ReadyList.LIFO), place.taken()) == (
        ["1"],
        ["2"],
        ["3", "5"],
    )


def test_done_jobs_go_at_their_age_and_dead_ones_stay() -> None:
    place = GlideYard()
    site = place.site
    watch(site.yard, site.now_ms)
    jobs = [place.add() for _ in range(2)]
    place.take()
    place.complete(jobs[0])
    place.fail(jobs[1])
    minute_counters = site.queue().minute_counters
    assert minute_counters is not None
    place.tick(DONE_AGE_MS)
    assert place.states() == {"2": "failed"}


def test_a_beanstalk_client_peeks_at_every_ready_list() -> None:
    place = GlideYard()
    client = place.site.connect()
    assert client.say(b"peek-ready\r\n") == b"NOT_FOUND\r\n"
    place.add(priority=2, data=b'"a"')
    assert client.say(b"peek-ready\r\n") == b'FOUND 1 3\r\n"a"\r\n'
    place.add(is_lifo=True, data=b'"b"')
    assert client.say(b"peek-ready\r\n") == b'FOUND 2 3\r\n"b"\r\n'
    assert client.say(b"reserve-with-timeout 0\r\n") == b'RESERVED 2 3\r\n"b"\r\n'
    assert client.say(b"bury 2 0\r\n") == b"BURIED\r\n"
    assert client.say(b"kick-job 2\r\n") == b"KICKED\r\n"
    assert place.taken() == ["2"]
