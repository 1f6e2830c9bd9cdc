"""XREADGROUP of subscriptions: delivers entries to a consumer, now or when they come."""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.subscriptions import subscriptions as verbs
from jobyard.engine.subscriptions.deliveries import is_there
from jobyard.model.glidemq.stored_values import StreamReader
from jobyard.model.glidemq.subscriptions import Delivery, Subscription
from jobyard.model.limits import NEVER_MS
from jobyard.model.queue import Queue
from jobyard.protocols.glidemq.call import Call
from jobyard.protocols.glidemq.client import Blocked
from jobyard.protocols.glidemq.groups.args import NEW, GroupReadArgs, entry_id
from jobyard.protocols.glidemq.groups.delivery_gather import DeliveryGather
from jobyard.protocols.glidemq.groups.pending_entries import Gathers
from jobyard.protocols.glidemq.groups.subscriptions import found, note_seen, write_delivery
from jobyard.protocols.glidemq.keyspace.key_parts import bytes_of
from jobyard.protocols.glidemq.keyspace.views.stream import ENTRY_MAX
from jobyard.protocols.glidemq.long_commands import begin
from jobyard.wire.resp.write import write_array, write_bulk, write_map, write_nil_array

# Longer than any server runs.
BLOCK_MAX_MS: Final = 1 << 50


def xreadgroup(call: Call, reading: GroupReadArgs) -> None:
    """Deliver new entries of the group to a consumer, or answer again with its pending ones."""
    if reading.only_new():
        _read(call, reading, [])
        return
    own = [_own(call, reading, each) for each in range(len(reading.keys))]
    begin(call, Gathers([one for one in own if one is not None]), lambda: _read(call, reading, own))


def _own(call: Call, reading: GroupReadArgs, each: i64) -> DeliveryGather | None:
    """Return the search for a consumer's pending entries of a stream, if that is requested."""
    text = reading.ids[each]
    if text == NEW:
        return None
    subscription = found(call.yard.queues.get(reading.names[each]), reading.group)
    own = DeliveryGather(call, subscription, entry_id(text) + 1, ENTRY_MAX, reading.count)
    own.consumer = bytes_of(reading.consumer)
    return own


def _read(call: Call, reading: GroupReadArgs, own: list[DeliveryGather | None]) -> None:
    wait = SubscriberWait(call, reading, own)
    if wait.try_again(call.now_ms):
        return
    if reading.block_ms < 0 or not call.may_wait or not reading.only_new():
        wait.give_up()
        return
    wait.begin()
    until_ms: i64 = NEVER_MS
    if reading.block_ms > 0:
        until_ms = min(call.now_ms + min(reading.block_ms, BLOCK_MAX_MS), NEVER_MS - 1)
    call.session.block(wait, until_ms)


@final
class Arrival(StreamReader):
    """Wakes the connection of a waiting consumer."""

    def __init__(self, call: Call) -> None:
        self._session = call.session

    def stream_grew(self) -> None:
        """Let the session try again, in this turn."""
        self._session.peer.wake()


@final
class SubscriberWait(Blocked):
    """A consumer that reads streams, and waits if there is nothing for it."""

    def __init__(
        self, call: Call, reading: GroupReadArgs, own: list[DeliveryGather | None]
    ) -> None:
        self._call = call
        self._reading = reading
        # The consumer's pending entries of each stream; empty if only new ones are requested.
        self._own = own
        self._arrival = Arrival(call)
        self._watched: list[Queue] = []
        self._is_aside: bool = False

    def begin(self) -> None:
        """Watch the streams for new entries."""
        for name in dict.fromkeys(self._reading.names):
            queue = self._call.yard.queues.get(name)
            if queue is not None:
                verbs.watch(queue, self._arrival)
                self._watched.append(queue)

    def try_again(self, now_ms: i64) -> bool:
        """Answer if there is anything for the consumer."""
        if self._is_aside:
            return False
        reading = self._reading
        subscribed: list[tuple[Queue, Subscription]] = []
        for name in reading.names:
            queue = self._call.yard.queues.get(name)
            subscription = found(queue, reading.group)
            assert queue is not None
            note_seen(subscription, bytes_of(reading.consumer), now_ms)
            subscribed.append((queue, subscription))
        answer: list[tuple[bytes, list[Delivery]]] = []
        for at in range(len(reading.keys)):
            queue, subscription = subscribed[at]
            if reading.ids[at] != NEW:
                answer.append((reading.keys[at], self._give_own(at, subscription, now_ms)))
                continue
            given = self._deliver(queue, subscription, now_ms)
            if given:
                answer.append((reading.keys[at], given))
        if answer:
            self._write(answer)
        return bool(answer)

    def _deliver(self, queue: Queue, subscription: Subscription, now_ms: i64) -> list[Delivery]:
        reading = self._reading
        yard = self._call.yard
        consumer = bytes_of(reading.consumer)
        given = verbs.deliver(yard, queue, subscription, consumer, reading.count, now_ms)
        if reading.is_noack and given:
            verbs.acknowledge(yard, queue, subscription, [one.stamp for one in given])
        return given

    def _give_own(self, at: int, subscription: Subscription, now_ms: i64) -> list[Delivery]:
        """Return the consumer's pending entries, and count that as another delivery."""
        own = self._own[at]
        assert own is not None
        given = own.still_given(now_ms)
        for one in given:
            if is_there(one):
                verbs.hand_to(subscription, one, own.consumer, now_ms)
        return given

    def _write(self, answer: list[tuple[bytes, list[Delivery]]]) -> None:
        call = self._call
        is_map = call.proto >= 3
        if is_map:
            write_map(call.out, len(answer), call.proto)
        else:
            write_array(call.out, len(answer))
        for key, given in answer:
            if not is_map:
                write_array(call.out, 2)
            write_bulk(call.out, key)
            write_array(call.out, len(given))
            for delivery in given:
                write_delivery(call, delivery)

    def stand_aside(self, queue_name: str, consumer: str) -> None:
        """Deliver nothing more if this consumer waits here, and at this queue alone."""
        if self._reading.is_by(queue_name, consumer):
            self._is_aside = True

    def give_up(self) -> None:
        """Answer that there is nothing."""
        write_nil_array(self._call.out, self._call.proto)

    def leave(self) -> None:
        """Stop watching the streams."""
        for queue in self._watched:
            verbs.unwatch(self._call.yard, queue, self._arrival)
        self._watched = []
