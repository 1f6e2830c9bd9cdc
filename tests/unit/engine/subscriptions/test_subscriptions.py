"""Subscriptions: what they are delivered, what they have finished, and both after a restart."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobyard.engine.glidemq.add import id_of
from jobyard.engine.jobs.move import remove
from jobyard.engine.subscriptions import subscriptions as verbs
from jobyard.engine.subscriptions.deliveries import GONE_MS
from jobyard.engine.topics.topic_queue import drop_topic_queue
from jobyard.errors import StorageFull, YardFull
from jobyard.model.entry import EntryKind
from jobyard.model.glidemq.subscriptions import Delivery, Subscription
from tests.support.engine.glides import GlideYard
from tests.support.site.recount import recount
from tests.support.site.site import NOW_MS
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard


def subscribe(site: OpenYard, name: bytes = b"g", cursor: int = 0) -> Subscription:
    return verbs.subscribe(site.yard, site.queue(), name, cursor)


def deliver(site: OpenYard, name: bytes = b"g", count: int = 99) -> list[Delivery]:
    queue = site.queue()
    subscription = verbs.find(queue, name)
    assert subscription is not None
    return verbs.deliver(site.yard, queue, subscription, b"c", count, site.now_ms)


def ids(deliveries: list[Delivery]) -> list[str]:
    return [id_of(one.job) for one in deliveries]


def acknowledge(site: OpenYard, deliveries: list[Delivery], name: bytes = b"g") -> int:
    subscription = verbs.find(site.queue(), name)
    assert subscription is not None
    stamps = [one.stamp for one in deliveries]
    return int(verbs.acknowledge(site.yard, site.queue(), subscription, stamps))


def noted(site: OpenYard) -> list[bytes]:
    """Return the journal entries of subscriptions, by the letter of each."""
    entries = site.yard.journal.entries.values()
    live = [one.key for one in entries if one.kind == EntryKind.SUBSCRIPTIONS and not one.is_gone]
    return sorted(key.partition(b"\0")[2][:1] for key in live)


def test_jobs_of_all_families_are_given_in_the_order_of_their_entries() -> None:
    glides = GlideYard()
    site = glides.site
    subscribe(site)
    site.put(b"one", rank=9)
    glides.add()
    site.enter(b"2")
    assert ids(deliver(site)) == ["1", "2", "3"]


def test_a_job_that_keeps_its_old_place_is_not_missed() -> None:
    glides = GlideYard()
    site = glides.site
    subscribe(site)
    site.put(b"late", delay_ms=1000)
    glides.add()
    assert ids(deliver(site)) == ["2"]
    site.jump(1000)
    [again] = deliver(site)
    assert id_of(again.job) == "1"
    assert again.repeat is not None
    assert deliver(site) == []


def test_a_job_that_was_only_away_for_a_while_is_not_given_twice() -> None:
    glides = GlideYard()
    site = glides.site
    subscribe(site)
    glides.add()
    [lease] = glides.take()
    assert ids(deliver(site)) == ["1"]
    glides.complete(lease.job)
    assert deliver(site) == []
    site.put(b"beans")
    held = site.pull("default")
    assert held is not None
    assert ids(deliver(site)) == ["2"]


def test_the_index_lets_go_of_what_is_gone() -> None:
    glides = GlideYard()
    site = glides.site
    subscribe(site)
    for _ in range(500):
        job = glides.add()
        remove(site.yard, job, site.now_ms)
    subscriptions = site.queue().subscriptions
    assert subscriptions is not None
    assert subscriptions.count() < 200


def test_an_order_of_acknowledgements_leaves_one_note() -> None:
    glides = GlideYard()
    site = glides.site
    subscribe(site)
    for _ in range(4):
        glides.add()
    first, second, third, fourth = deliver(site)
    acknowledge(site, [third, second])
    assert noted(site) == [b"d", b"d", b"g"]
    acknowledge(site, [first])
    assert noted(site) == [b"g"]
    acknowledge(site, [fourth])
    assert noted(site) == [b"g"]
    assert acknowledge(site, [fourth]) == 0


def test_what_is_noted_ends_with_the_subscription() -> None:
    glides = GlideYard()
    site = glides.site
    subscription = subscribe(site)
    for _ in range(3):
        glides.add()
    given = deliver(site)
    acknowledge(site, given[1:2])
    verbs.give_again(site.yard, site.queue(), subscription, given[2], site.now_ms + 5, site.now_ms)
    assert noted(site) == [b"d", b"d", b"g", b"r"]
    verbs.unsubscribe(site.yard, site.queue(), subscription)
    assert noted(site) == []
    assert site.queue().subscriptions is None
    site.jump(10)


def half_dropped(glides: GlideYard, *, moves: bool) -> None:
    """End or reset a subscription that has more to forget than fits into one turn."""
    site = glides.site
    site.yard.tasks.units_per_turn = 100
    site.yard.tasks.proceed(site.now_ms)
    subscription = subscribe(site)
    for _ in range(400):
        glides.add()
    given = deliver(site, count=400)
    acknowledge(site, given[1:200])
    queue = site.queue()
    for one in given[200:]:
        verbs.give_again(site.yard, queue, subscription, one, site.now_ms + 5000, site.now_ms)
    if moves:
        verbs.move_to(site.yard, queue, subscription, 0)
    else:
        verbs.unsubscribe(site.yard, queue, subscription)
        subscribe(site)
    assert len(noted(site)) > 100


def finish(site: OpenYard) -> None:
    while site.yard.tasks.proceed(site.now_ms):
        pass


@pytest.mark.parametrize("restarts", [False, True])
def test_what_a_subscription_leaves_behind_is_not_that_of_the_next(*, restarts: bool) -> None:
    glides = GlideYard()
    half_dropped(glides, moves=False)
    if restarts:
        glides.restart()
    given = deliver(glides.site, count=999)
    assert len(given) == 400
    acknowledge(glides.site, given[300:])
    finish(glides.site)
    assert noted(glides.site) == [b"d"] * 100 + [b"g"]
    assert verbs.waiting_redeliveries(glides.site.queue()) == []
    recount(glides.site.yard)
    glides.restart()
    assert len(deliver(glides.site, count=999)) == 300


@pytest.mark.parametrize("restarts", [False, True])
def test_a_subscription_that_goes_back_gets_what_was_over(*, restarts: bool) -> None:
    glides = GlideYard()
    half_dropped(glides, moves=True)
    if restarts:
        glides.restart()
    given = deliver(glides.site, count=999)
    assert len(given) == 400
    acknowledge(glides.site, given[300:])
    finish(glides.site)
    assert noted(glides.site) == [b"d"] * 100 + [b"g"] + [b"r"] * 200
    glides.site.jump(5000)
    assert len(deliver(glides.site, count=999)) == 200


def test_very_many_repeats_become_due_over_turns() -> None:
    glides = GlideYard()
    site = glides.site
    subscription = subscribe(site)
    for _ in range(1200):
        glides.add()
    for one in deliver(site, count=1200):
        verbs.give_again(site.yard, site.queue(), subscription, one, site.now_ms + 50, site.now_ms)
    site.jump(50)
    assert len(deliver(site, count=2000)) == 500
    site.jump(1)
    site.jump(1)
    assert len(deliver(site, count=2000)) == 700


def test_a_repeat_of_a_job_that_went_is_forgotten() -> None:
    glides = GlideYard()
    site = glides.site
    subscription = subscribe(site)
    jobs = [glides.add() for _ in range(3)]
    queue = site.queue()
    for one, due_ms in zip(deliver(site), (0, 5, 5000), strict=True):
        verbs.give_again(site.yard, queue, subscription, one, site.now_ms + due_ms, site.now_ms)
    for job in jobs:
        remove(site.yard, job, site.now_ms)
    site.jump(5)
    assert deliver(site) == []
    assert noted(site) == [b"g", b"r"]
    glides.restart()
    assert deliver(glides.site) == []
    assert noted(glides.site) == [b"g"]


def test_subscriptions_outlive_compaction_and_an_empty_queue() -> None:
    glides = GlideYard()
    subscribe(glides.site)
    glides.add()
    acknowledge(glides.site, deliver(glides.site))
    glides.compact()
    glides.restart()
    assert deliver(glides.site) == []
    [lease] = glides.take()
    glides.complete(lease.job)
    glides.add()
    assert ids(deliver(glides.site)) == ["2"]


def test_a_topic_that_is_deleted_takes_its_subscriptions_along() -> None:
    glides = GlideYard()
    site = glides.site
    subscribe(site)
    drop_topic_queue(site.yard, site.queue(), site.now_ms)
    assert site.queue().subscriptions is None
    assert noted(site) == []


def fill(site: OpenYard) -> None:
    """Leave no room on the disk."""
    storage = site.storage
    assert isinstance(storage, MemoryStorage)
    site.commit()
    storage.capacity = storage.used()
    for _ in range(3000):
        try:
            site.put(b"x" * 1000)
        except (YardFull, StorageFull):
            return
        site.commit()
    pytest.fail("there is always room")


def test_a_full_disk_refuses_what_must_be_remembered() -> None:
    storage = MemoryStorage()
    site = OpenYard(storage, segment_size=64 << 10)
    subscription = subscribe(site)
    for _ in range(2):
        site.put(b"message")
    first, second = deliver(site)
    fill(site)
    refusals: list[Callable[[], object]] = [
        lambda: subscribe(site, b"more"),
        lambda: verbs.give_again(site.yard, site.queue(), subscription, first, NOW_MS, site.now_ms),
    ]
    for refusal in refusals:
        with pytest.raises(YardFull):
            refusal()
    assert verbs.find(site.queue(), b"more") is None
    assert subscription.find(first.stamp) is first
    # What is over is over, though only for as long as the server runs.
    assert acknowledge(site, [second, first]) == 2
    assert deliver(site)[0].stamp > second.stamp


# -- what happens in any order --------------------------------------------------------------------

NAMES = (b"g", b"h")


class Readers:
    """Two subscriptions, what each has at work, and what is over for it."""

    def __init__(self) -> None:
        self.glides = GlideYard()
        for name in NAMES:
            subscribe(self.glides.site, name)
        self.over: dict[bytes, set[str]] = {name: set() for name in NAMES}
        self.held: dict[bytes, list[Delivery]] = {name: [] for name in NAMES}

    def add(self, _name: bytes, _number: int) -> None:
        self.glides.add()

    def take(self, _name: bytes, _number: int) -> None:
        for lease in self.glides.take(1):
            self.glides.complete(lease.job)

    def remove(self, _name: bytes, number: int) -> None:
        site = self.glides.site
        for job in site.yard.jobs.all()[number : number + 1]:
            remove(site.yard, job, site.now_ms)

    def read(self, name: bytes, number: int) -> None:
        given_now = deliver(self.glides.site, name, number)
        assert not self.over[name] & set(ids(given_now))
        self.held[name] += given_now

    def ack(self, name: bytes, number: int) -> None:
        for one in self._drop(name, number):
            assert acknowledge(self.glides.site, [one], name) == 1
            self.over[name].add(id_of(one.job))

    def again(self, name: bytes, number: int) -> None:
        site = self.glides.site
        subscription = verbs.find(site.queue(), name)
        assert subscription is not None
        for one in self._drop(name, number):
            due_ms = site.now_ms + 10 * number
            verbs.give_again(site.yard, site.queue(), subscription, one, due_ms, site.now_ms)

    def _drop(self, name: bytes, number: int) -> list[Delivery]:
        held = self.held[name]
        chosen = held[number : number + 1]
        del held[number : number + 1]
        return chosen

    def tick(self, _name: bytes, number: int) -> None:
        self.glides.tick(10 * number)

    def restart(self, _name: bytes, _number: int) -> None:
        self.glides.restart()
        self.held = {name: [] for name in NAMES}

    def check(self) -> None:
        """Check that each gets what it has not finished, and nothing else."""
        self.glides.tick(100)
        waiting = {job for job, state in self.glides.states().items() if state == "waiting"}
        for name in NAMES:
            held = set(ids(self.held[name])) & waiting
            left = set(ids(deliver(self.glides.site, name)))
            assert left | held == waiting - self.over[name]


STEPS = ["add", "take", "remove", "read", "ack", "again", "tick", "restart"]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(STEPS), st.sampled_from(NAMES), st.integers(0, 7)), max_size=40
    )
)
def test_every_message_is_given_until_it_is_over_and_then_no_more(
    steps: list[tuple[str, bytes, int]],
) -> None:
    readers = Readers()
    for what, name, number in steps:
        step: Callable[[bytes, int], None] = getattr(readers, what)
        step(name, number)
    readers.check()


def test_an_entry_that_is_gone_and_never_acknowledged_does_not_hold_up_the_floor_for_ever() -> None:
    glides = GlideYard()
    site = glides.site
    subscription = subscribe(site)
    lost, stays = glides.add(), glides.add()
    deliver(site)
    for _ in range(3):
        glides.add()
        acknowledge(site, deliver(site))
    assert noted(site) == [b"d", b"d", b"d", b"g"]
    remove(site.yard, lost, site.now_ms)
    subscription.sweep_at = 0
    deliver(site)
    assert subscription.pending_count() == 2
    site.jump(GONE_MS + 1)
    subscription.sweep_at = 0
    deliver(site)
    left = subscription.given_from(0, 10)
    assert [one.job for one in left] == [stays]
    acknowledge(site, left)
    assert noted(site) == [b"g"]
