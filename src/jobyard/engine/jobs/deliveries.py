"""Goes through what a subscription was given, in slices: there may be very much of it.

It is gone through by rising stamps. Between two slices anything may happen: what is over by then is
not met, and what stays is met once.
"""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from jobyard.engine.state.tasks import Task
from jobyard.engine.state.yard import abs_stamp
from jobyard.model.glidemq.subscriptions import (
    SWEEP_MIN,
    Audience,
    Delivery,
    Subscription,
    has_entry,
)
from jobyard.model.index.sorted_blocks import SortedBlocks

# How long an entry that is gone may still be acknowledged, where too much is remembered.
GONE_MS: Final = 3_600_000
# Of those that are looked at, and of those that are freed, in one unit of work.
_PER_UNIT: Final = 4
_FREED_PER_UNIT: Final = 16
# So many are looked at in one go.
_SOME: Final = 256
# What look() returns when nothing further is wanted.
ENOUGH: Final = -1


def is_there(delivery: Delivery) -> bool:
    """Tell whether an entry that was given is still in the stream."""
    job = delivery.job
    return has_entry(job) and (
        delivery.repeat is not None or abs_stamp(job.stamp) == delivery.stamp
    )


@mypyc_attr(allow_interpreted_subclasses=True)
class DeliveryWalk(Task):
    """A way through what was given, by stamps from `low` to `high`; a subclass says what for."""

    def __init__(self, subscription: Subscription, low: i64, high: i64) -> None:
        super().__init__()
        self.subscription = subscription
        self._next: i64 = low
        self._high: i64 = high

    def look(self, delivery: Delivery, now_ms: i64) -> i64:
        """Look at one; return the units it took apart from that, or ENOUGH."""
        raise NotImplementedError

    def step(self, most: i64, now_ms: i64) -> i64:
        """Look at some."""
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
class Sweeping(DeliveryWalk):
    """Lets entries be over that are gone from the stream and were given to somebody long ago.

    One that nobody ever acknowledges would have all behind it remembered one by one, without end.
    """

    def __init__(self, subscription: Subscription) -> None:
        super().__init__(subscription, 0, subscription.cursor)
        subscription.is_sweeping = True

    def look(self, delivery: Delivery, now_ms: i64) -> i64:
        """Let one be over that is gone; to look at its job takes a unit, as it is far off."""
        if delivery.repeat is not None or now_ms - delivery.at_ms <= GONE_MS:
            return 0
        if not is_there(delivery):
            self.subscription.take_pending(int(delivery.stamp))
        return 1

    def step(self, most: i64, now_ms: i64) -> i64:
        """Look at some; know at the end when to sweep again."""
        done = super().step(most, now_ms)
        if done < most:
            subscription = self.subscription
            remembered = subscription.pending.count + subscription.done.count
            subscription.sweep_at = 2 * remembered + SWEEP_MIN
            subscription.is_sweeping = False
        return done


@final
class Freeing(Task):
    """Lets go of what a subscription, or all of a queue, remembered that ended."""

    def __init__(self, table: SortedBlocks | Audience) -> None:
        super().__init__()
        self._table = table

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  the task's
        """Let some go."""
        done: i64 = 0
        while done < most:
            count = self._table.unload()
            if count == 0:
                return min(done, most - 1)
            done += count // _FREED_PER_UNIT + 1
        return done
