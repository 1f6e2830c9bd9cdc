"""Pending entries of subscriptions: found in slices, and written in pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from jobyard.engine.subscriptions.deliveries import ENOUGH, DeliveryWalk
from jobyard.protocols.glidemq.keyspace.views.stream import entry_text
from jobyard.protocols.glidemq.long_commands import Pieces
from jobyard.wire.resp.write import write_array, write_bulk, write_integer

if TYPE_CHECKING:
    from librt.strings import BytesWriter

    from jobyard.model.glidemq.subscriptions import Delivery, Subscription
    from jobyard.protocols.glidemq.call import Call


def idle_ms(delivery: Delivery, now_ms: i64) -> i64:
    """Return how long an entry has been idle."""
    return max(now_ms - delivery.at_ms, 0)


@final
class DeliveryGather(DeliveryWalk):
    """The first `count` pending entries from `low` to `high`, in order."""

    def __init__(
        self, call: Call, subscription: Subscription, low: i64, high: i64, count: i64
    ) -> None:
        super().__init__(subscription, low, high)
        self.is_reading = True
        self._call = call
        self._count: i64 = count
        # Which consumer, b"" for all, and the minimum idle time.
        self.consumer: bytes = b""
        self.least_ms: i64 = 0
        self.items: list[Delivery] = []

    def step(self, most: i64, now_ms: i64) -> i64:
        """Check some entries."""
        # Entries found in a later turn are reported as of then.
        self._call.now_ms = now_ms
        if self._count <= 0 or (self.consumer and self.consumer not in self.subscription.held):
            return 0
        return super().step(most, now_ms)

    def look(self, delivery: Delivery, now_ms: i64) -> i64:
        """Remember an entry that matches."""
        if self._is_asked_for(delivery, now_ms):
            self.items.append(delivery)
        return ENOUGH if len(self.items) >= self._count else 0

    def _is_asked_for(self, delivery: Delivery, now_ms: i64) -> bool:
        is_wanted = self.consumer in (b"", delivery.consumer)
        return is_wanted and idle_ms(delivery, now_ms) >= self.least_ms

    def still_given(self, now_ms: i64) -> list[Delivery]:
        """Return the entries found that are still pending and still match."""
        subscription = self.subscription
        return [
            one
            for one in self.items
            if subscription.find(one.stamp) is one and self._is_asked_for(one, now_ms)
        ]


@final
class GivenEntries(Pieces):
    """Pending entries, each with its consumer, idle time and delivery count."""

    def __init__(self, found: DeliveryGather, now_ms: i64) -> None:
        super().__init__(len(found.items))
        self._items = found.items
        self._now_ms: i64 = now_ms

    def write_head(self, out: BytesWriter) -> None:
        """Write the header with the number of entries."""
        write_array(out, self.count)

    def write_part(self, out: BytesWriter, at: i64) -> None:
        """Write one entry."""
        delivery = self._items[at]
        write_array(out, 4)
        write_bulk(out, entry_text(delivery.stamp))
        write_bulk(out, delivery.consumer)
        write_integer(out, idle_ms(delivery, self._now_ms))
        write_integer(out, delivery.count)
