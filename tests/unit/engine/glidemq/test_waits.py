from jobyard.engine.glidemq.add import id_of
from jobyard.engine.glidemq.take import wait_stream
from jobyard.engine.jobs.move import expire_ttl, remove
from jobyard.engine.jobs.move import make_dead as discard
from jobyard.engine.jobs.queues import copy_settings, set_settings
from jobyard.engine.jobs.take import cancel_wait, wait
from jobyard.engine.state.yard import Yard
from jobyard.model.job import Job
from jobyard.model.lease import Lease, LeaseSet, OpenHolder, Proof
from jobyard.model.limits import NEVER_MS
from jobyard.model.throttle.ready_lists import ReadyList
from jobyard.model.waiter import Waiter
from jobyard.protocols.beanstalk.door import TERMS
from tests.support.engine.glides import GlideYard
from tests.support.engine.many_glides import drain
from tests.support.site.recount import recount


class Hands(OpenHolder):
    """Remembers what it was given."""

    def __init__(self) -> None:
        self.jobs: list[str] = []
        self.late = 0

    def given(self, waiter: Waiter, lease: Lease) -> None:  # noqa: ARG002
        self.jobs.append(id_of(lease.job))

    def waited_enough(self, waiter: Waiter, *, is_deadline_soon: bool) -> None:  # noqa: ARG002
        self.late += 1


def hands_of(place: GlideYard) -> tuple[Hands, LeaseSet]:
    hands = Hands()
    return hands, place.site.yard.new_lease_set(hands)


def stream_waiter(place: GlideYard, lease_set: LeaseSet, until_ms: int = NEVER_MS) -> Waiter:
    yard = place.site.yard
    return wait_stream(yard, [place.site.queue()], "w1", lease_set, until_ms, place.now_ms)


def test_who_waits_at_the_stream_is_given_the_next_job_there() -> None:
    place = GlideYard()
    hands, lease_set = hands_of(place)
    stream_waiter(place, lease_set)
    place.add(is_lifo=True)
    place.add(priority=1)
    place.add(delay_ms=5)
    assert hands.jobs == []
    job = place.add()
    assert hands.jobs == ["4"]
    recount(place.site.yard)
    # It is held by the consumer, not by the connection.
    assert not lease_set.leases.items
    assert job.lease is not None
    assert (job.lease.terms.label, job.lease.terms.proof == Proof.LISTED) == ("w1", False)


def test_waiting_ends() -> None:
    place = GlideYard()
    hands, lease_set = hands_of(place)
    stream_waiter(place, lease_set, place.now_ms + 10)
    place.tick(10)
    assert hands.late == 1
    place.add()
    assert hands.jobs == []


def test_promotion_serves_a_waiting_client() -> None:
    place = GlideYard()
    hands, lease_set = hands_of(place)
    stream_waiter(place, lease_set)
    place.add(delay_ms=5)
    place.tick(5)
    assert hands.jobs == []
    place.promote()
    assert hands.jobs == ["1"]


def test_a_waiter_for_the_stream_hides_no_job_from_those_behind_it() -> None:
    place = GlideYard()
    site = place.site
    first, first_book = hands_of(place)
    second, second_book = hands_of(place)
    third, third_book = hands_of(place)
    stream_waiter(place, first_book)
    wait(site.yard, [site.queue()], second_book, TERMS, NEVER_MS, NEVER_MS)
    stream_waiter(place, third_book)
    place.add(is_lifo=True)
    assert (first.jobs, second.jobs, third.jobs) == ([], ["1"], [])
    place.add(priority=1)
    recount(site.yard)
    place.add()
    place.add()
    assert (first.jobs, second.jobs, third.jobs) == (["3"], ["1"], ["4"])


def test_an_ordering_group_that_opens_with_time_serves_waiting_clients() -> None:
    place = GlideYard()
    hands, lease_set = hands_of(place)
    for _ in range(2):
        place.add(ordering="a", concurrency=5, rate_max=1, rate_ms=100)
    assert place.taken() == ["1"]
    stream_waiter(place, lease_set)
    place.tick(99)
    assert hands.jobs == []
    place.tick(1)
    assert hands.jobs == ["2"]


def test_a_freed_slot_serves_a_waiting_client() -> None:
    place = GlideYard()
    hands, lease_set = hands_of(place)
    jobs = [place.add(ordering="a") for _ in range(2)]
    place.take()
    waiter = stream_waiter(place, lease_set)
    place.complete(jobs[0])
    assert hands.jobs == ["2"]
    cancel_wait(place.site.yard, waiter)


def test_a_paused_queue_gives_nothing() -> None:
    place = GlideYard()
    site = place.site
    settings = copy_settings(site.queue())
    settings.is_paused = True
    set_settings(site.yard, site.queue(), settings, site.now_ms)
    hands, lease_set = hands_of(place)
    for is_lifo in (False, True):
        place.add(is_lifo=is_lifo)
    assert (place.taken(), place.pop(ReadyList.LIFO)) == ([], [])
    stream_waiter(place, lease_set)
    settings = copy_settings(site.queue())
    settings.is_paused = False
    set_settings(site.yard, site.queue(), settings, site.now_ms)
    assert hands.jobs == ["1"]


def test_whatever_becomes_of_a_delayed_job_serves_who_waits_for_those_behind_it() -> None:
    for act in (expire, remove, make_dead):
        place = GlideYard()
        hands, lease_set = hands_of(place)
        late = place.add(ordering="a", delay_ms=1000, ttl_ms=100)
        place.add(ordering="a")
        stream_waiter(place, lease_set)
        act(place.site.yard, late, place.now_ms)
        place.tick(0)
        assert hands.jobs == ["2"]


def test_draining_gives_nobody_a_job_that_goes() -> None:
    place = GlideYard()
    hands, lease_set = hands_of(place)
    for _ in range(3):
        place.add(ordering="a", concurrency=2, rate_max=1, rate_ms=50)
    assert place.taken() == ["1"]
    stream_waiter(place, lease_set)
    assert len(drain(place.site.yard, place.site.queue(), place.now_ms, with_delayed=True)) == 2
    place.tick(50)
    assert hands.jobs == []
    assert place.states() == {"1": "active"}


def expire(yard: Yard, job: Job, now_ms: int) -> None:
    expire_ttl(yard, job, now_ms + 100)


def make_dead(yard: Yard, job: Job, now_ms: int) -> None:
    discard(yard, job, "no", now_ms)
