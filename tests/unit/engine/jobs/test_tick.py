from jobyard.engine.jobs.queues import pause
from jobyard.model.job import READY
from jobyard.model.limits import FIRINGS_PER_TURN, NEVER_MS
from tests.support.site.recount import recount
from tests.support.site.site import NOW_MS
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard


def test_an_idle_yard_has_nothing_to_wait_for() -> None:
    site = OpenYard()
    assert site.jump() == NEVER_MS
    assert site.yard.next_timer_ms() == NEVER_MS


def test_a_lease_that_ends_always_ends() -> None:
    """Ticks before, at and after the deadline, alone and with others at the same moment."""
    for late_ms in (0, 1, 500):
        site = OpenYard(MemoryStorage())
        lease_set = site.connect().lease_set
        for _ in range(20):
            site.put(ttr_ms=1000)
            site.take(lease_set)
        assert site.jump(999) == NOW_MS + 1000
        assert site.yard.leased_count == 20
        site.jump(1 + late_ms)
        assert (site.yard.leased_count, site.yard.counters.timed_out_total()) == (0, 20)
        assert site.jump() == NEVER_MS
        recount(site.yard)


def test_leases_end_each_at_its_own_time() -> None:
    site = OpenYard()
    lease_set = site.connect().lease_set
    for seconds in (3, 1, 2):
        site.put(ttr_ms=seconds * 1000)
        site.take(lease_set)
    for left in (2, 1, 0):
        site.jump(1000)
        assert site.yard.leased_count == left
        recount(site.yard)


def test_a_book_that_rings_early_finds_the_next_deadline() -> None:
    site = OpenYard()
    client = site.connect()
    site.put(ttr_ms=1000)
    site.put(ttr_ms=5000)
    client.say(b"reserve\r\nreserve\r\ndelete 1\r\n")
    assert site.jump(1000) == NOW_MS + 5000
    assert site.yard.leased_count == 1
    site.jump(4000)
    assert site.yard.counters.timed_out_total() == 1


def test_a_job_whose_lease_ends_goes_to_a_waiting_client_at_once() -> None:
    site = OpenYard()
    holder, waiting = site.connect(), site.connect()
    site.put(b"x", ttr_ms=1000)
    holder.say(b"reserve\r\n")
    waiting.say(b"reserve\r\n")
    site.jump(1000)
    assert waiting.hear() == b"RESERVED 1 1\r\nx\r\n"
    job = site.yard.jobs.all()[0]
    assert (job.counters().timeouts, job.deliveries) == (1, 2)
    recount(site.yard)


def test_a_burst_of_delays_is_cut_into_turns() -> None:
    site = OpenYard()
    count = FIRINGS_PER_TURN * 2 + 10
    for _ in range(count):
        site.put(delay_ms=1000)
    turns = 0
    site.now_ms += 1000
    while site.jump() <= site.now_ms:
        turns += 1
        assert site.yard.ready_count <= turns * FIRINGS_PER_TURN
        assert turns < 10
    assert site.yard.ready_count == count
    assert turns == 2
    recount(site.yard)


def test_a_burst_of_leases_is_cut_into_turns() -> None:
    site = OpenYard()
    lease_set = site.connect().lease_set
    count = FIRINGS_PER_TURN + 500
    for _ in range(count):
        site.put(ttr_ms=1000)
        site.take(lease_set)
    site.now_ms += 1000
    assert site.jump() == site.now_ms
    assert 0 < site.yard.leased_count < count
    site.jump()
    assert site.yard.leased_count == 0
    recount(site.yard)


def test_a_burst_of_waits_is_cut_into_turns() -> None:
    site = OpenYard()
    clients = [site.connect() for _ in range(FIRINGS_PER_TURN + 5)]
    for client in clients:
        client.say(b"reserve-with-timeout 1\r\n")
    site.now_ms += 1000
    assert site.jump() == site.now_ms
    site.jump()
    assert all(client.hear() == b"TIMED_OUT\r\n" for client in clients)
    assert site.queue().waiting_count == 0


def test_things_happen_in_the_order_of_their_times_however_late_the_tick() -> None:
    site = OpenYard()
    holder = site.connect()
    site.put(b"x", ttr_ms=3000)
    holder.say(b"reserve\r\n")
    holder.say(b"reserve\r\n")
    # Warned at 2 s, freed at 3 s: the warning must not be lost in a tick that comes at 10 s.
    site.jump(10_000)
    assert holder.hear() == b"DEADLINE_SOON\r\n"
    assert site.yard.counters.timed_out_total() == 1
    assert site.yard.jobs.all()[0].state == READY


def test_a_wait_is_over_at_its_time_and_not_before() -> None:
    site = OpenYard()
    client = site.connect()
    client.say(b"reserve-with-timeout 2\r\n")
    assert site.jump(1999) == NOW_MS + 2000
    assert client.hear() == b""
    site.jump(1)
    assert client.hear() == b"TIMED_OUT\r\n"
    assert client.ears.wakes == 1
    assert site.door.waiting_count == 0
    recount(site.yard)


def test_a_queue_whose_timer_rings_early_stays_armed() -> None:
    site = OpenYard()
    soon, late = site.put(delay_ms=1000), site.put(delay_ms=9000)
    site.connect().say(b"delete %d\r\n" % soon.id)
    pause(site.yard, site.queue(), 3000, site.now_ms)
    assert site.jump(1000) == NOW_MS + 3000
    assert site.jump(2000) == NOW_MS + 9000
    site.jump(6000)
    assert late.state == READY
    recount(site.yard)
