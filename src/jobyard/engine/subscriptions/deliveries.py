"""Iterate over the pending deliveries of a subscription in slices: there may be very many.

The order is by rising stamps. Anything may happen between two slices: a delivery that is done by
then is not visited, and one that stays is visited once.
"""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from jobyard.engine.state.tasks import Task
from jobyard.engine.state.yard import abs_stamp
from jobyard.model.glidemq.subscriptions import (
    SWEEP_MIN,
    Delivery,
    Subscription,
    Subscriptions,
    has_entry,
)
from jobyard.model.index.sorted_blocks import SortedBlocks

# How long an entry that is gone can still be acknowledged once too many are remembered.
GONE_MS: Final = 3_600_000
# Deliveries that are looked at, and that are freed, for one unit of work.
_PER_UNIT: Final = 4
_FREED_PER_UNIT: Final = 16
# The most deliveries that are fetched at once.
_SOME: Final = 256
# Returned by look() to stop.
ENOUGH: Final = -1


def is_there(delivery: Delivery) -> bool:
    """Return whether a delivered entry is still in the stream."""
    job = delivery.job
    return has_entry(job) and (
        delivery.repeat is not None or abs_stamp(job.stamp) == delivery.stamp
    )


@mypyc_attr(allow_interpreted_subclasses=True)
class DeliveryWalk(Task):
    """Iterates over deliveries with stamps from `low` to `high`; subclasses define `look`."""

    def __init__(self, subscription: Subscription, low: i64, high: i64) -> None:
        super().__init__()
        self.subscription = subscription
        self._next: i64 = low
        self._high: i64 = high

    def look(self, delivery: Delivery, now_ms: i64) -> i64:
        """Visit one; return the units it took beyond the visit itself, or ENOUGH."""
        raise NotImplementedError

    def step(self, most: i64, now_ms: i64) -> i64:
        """Visit some."""
        done: i64 = 0
        while done < most:
            some = self.subscription.given_from(self._next, min((most - done) * _PER_UNIT, _SOME))
            if not some:
                return min(done, most - 1)
            done += len(some) // _PER_UNIT + 1
            for delivery in some:
                if delivery.stamp > self._high:
                    return min(done, most - 1)
                self._next = delivery.stamp + 1
                took = self.look(delivery, now_ms)
                if took < 0:
                    return min(done, most - 1)
                done += took
                if took > 0 and done >= most:
                    break
        return done


@final
class StaleDeliveryTask(DeliveryWalk):
    """Marks deliveries as done that are old and whose entries are gone from the stream.

    Otherwise an entry that is never acknowledged would hold the floor, and all later acknowledged
    entries would have to be stored one by one, without end.
    """

    def __init__(self, subscription: Subscription) -> None:
        super().__init__(subscription, 0, subscription.cursor)
        subscription.is_sweeping = True

    def look(self, delivery: Delivery, now_ms: i64) -> i64:
        """Mark one as done if its entry is gone; reading its job costs a unit (a cache miss)."""
        if delivery.repeat is not None or now_ms - delivery.at_ms <= GONE_MS:
            return 0
        if not is_there(delivery):
            self.subscription.take_pending(int(delivery.stamp))
        return 1

    def step(self, most: i64, now_ms: i64) -> i64:
        """Visit some; at the end set when to sweep again."""
        done = super().step(most, now_ms)
        if done < most:
            subscription = self.subscription
            remembered = subscription.pending.count + subscription.done.count
            subscription.sweep_at = 2 * remembered + SWEEP_MIN
            subscription.is_sweeping = False
        return done


@final
class SubscriptionFreeing(Task):
    """Frees the memory of a subscription that ended, or of all subscriptions of a queue."""

    def __init__(self, table: SortedBlocks | Subscriptions) -> None:
        super().__init__()
        self._table = table

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  set by Task
        """Free some."""
        done: i64 = 0
        while done < most:
            count = self._table.unload()
            if count == 0:
                return min(done, most - 1)
            done += count // _FREED_PER_UNIT + 1
        return done
