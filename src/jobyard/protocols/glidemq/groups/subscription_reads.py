"""XREADGROUP of consumer groups other than `workers`: what they are given, now or when it comes."""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.jobs import subscriptions as verbs
from jobyard.model.glidemq.stored_values import StreamReader
from jobyard.model.glidemq.subscriptions import Delivery, Subscription
from jobyard.model.limits import NEVER_MS
from jobyard.model.queue import Queue
from jobyard.protocols.glidemq.call import Blocked, Call
from jobyard.protocols.glidemq.groups.args import NEW, Reading, entry_id
from jobyard.protocols.glidemq.groups.subscriptions import found, hear, is_there, write_delivery
from jobyard.protocols.glidemq.keyspace.key_parts import bytes_of
from jobyard.wire.resp.write import write_array, write_bulk, write_map, write_nil_array

# Longer than any server runs.
BLOCK_MAX_MS: Final = 1 << 50


def xreadgroup(call: Call, reading: Reading) -> None:
    """Give a consumer what its group has not seen, or tell again what it was given."""
    wait = SubscriberWait(call, reading)
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
    """Lets the connection of a consumer look again."""

    def __init__(self, call: Call) -> None:
        self._session = call.session

    def stream_grew(self) -> None:
        """Look again, in this turn."""
        self._session.peer.stirred()


@final
class SubscriberWait(Blocked):
    """A consumer that reads streams, and waits at them if there is nothing for it."""

    def __init__(self, call: Call, reading: Reading) -> None:
        self._call = call
        self._reading = reading
        self._arrival = Arrival(call)
        self._watched: list[Queue] = []
        self._is_aside: bool = False

    def begin(self) -> None:
        """Be told of whatever comes."""
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
            hear(subscription, bytes_of(reading.consumer), now_ms)
            subscribed.append((queue, subscription))
        answer: list[tuple[bytes, list[Delivery]]] = []
        for at in range(len(reading.keys)):
            queue, subscription = subscribed[at]
            if reading.ids[at] != NEW:
                own = self._own(subscription, reading.ids[at], now_ms)
                answer.append((reading.keys[at], own))
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

    def _own(self, subscription: Subscription, text: bytes, now_ms: i64) -> list[Delivery]:
        """Return what the consumer has, which is given to it once more."""
        after = entry_id(text)
        consumer = bytes_of(self._reading.consumer)
        own = [
            one
            for one in subscription.deliveries()
            if one.stamp > after and one.consumer == consumer
        ][: int(self._reading.count)]
        for one in own:
            if is_there(one):
                verbs.hand_to(one, consumer, now_ms)
        return own

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
        """Be given nothing any more if it is that worker who waits, there alone."""
        if self._reading.is_by(queue_name, consumer):
            self._is_aside = True

    def give_up(self) -> None:
        """Answer that there is nothing."""
        write_nil_array(self._call.out, self._call.proto)

    def leave(self) -> None:
        """Be told no more."""
        for queue in self._watched:
            verbs.unwatch(self._call.yard, queue, self._arrival)
        self._watched = []
