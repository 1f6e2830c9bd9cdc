"""The journal entries of subscriptions.

Entries of kind SUBSCRIPTIONS, with these keys and values:

    <queue> 0 g <name>              floor: the stamp up to which all is done; birth; epoch
    <queue> 0 d <stamp> <name>      an entry above the floor that is done; epoch
    <queue> 0 r <job id> <name>     a redelivery: due time, number of stalls; birth

A subscription that ends, or is moved, may leave very many entries behind, which are dropped over
turns. Each entry says to which subscription it belongs, so that a restart meanwhile does not assign
it to a later subscription of the same name: birth is a number of the subscription, epoch is renewed
whenever the subscription is moved. Both are 0 in entries of versions that did not write them.
"""

import struct
from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.state.tasks import Task
from jobyard.engine.state.yard import Yard
from jobyard.errors import YardFull
from jobyard.journal.format.record import ENTRY_SIZE
from jobyard.model.entry import Entry, EntryKind
from jobyard.model.glidemq.subscriptions import Redelivery, Subscription, Subscriptions
from jobyard.model.index.sorted_blocks import SortedBlocks
from jobyard.model.queue import Queue

FLOOR_ENTRY: Final = b"g"
ACKED_ENTRY: Final = b"d"
REDELIVERY_ENTRY: Final = b"r"

# Cost of dropping an entry, in units of work.
_DROP_UNITS: Final = 2


def note_floor(yard: Yard, queue: Queue, subscription: Subscription, *, is_needed: bool) -> None:
    """Store the floor: the stamp up to which everything is done."""
    value = struct.pack("<qqq", subscription.floor, subscription.birth, subscription.epoch)
    _note(yard, _floor_key(queue, subscription), value, is_needed=is_needed)


def note_done(yard: Yard, queue: Queue, subscription: Subscription, stamp: int) -> None:
    """Store that an entry above the floor is done, if the disk has room for that."""
    value = struct.pack("<q", subscription.epoch)
    _note(yard, _key(queue.name, ACKED_ENTRY, stamp, subscription.name), value, is_needed=False)


def note_redelivery(
    yard: Yard, queue: Queue, subscription: Subscription, job_id: i64, due_ms: i64, stalls: i64
) -> None:
    """Store a redelivery to a subscription; YardFull changes nothing."""
    wall_ms = due_ms + yard.journal.wall_offset_ms
    value = struct.pack("<qiq", wall_ms, stalls, subscription.birth)
    _note(
        yard, _key(queue.name, REDELIVERY_ENTRY, job_id, subscription.name), value, is_needed=True
    )


def _note(yard: Yard, key: bytes, value: bytes, *, is_needed: bool) -> None:
    journal = yard.journal
    if not journal.is_on:
        return
    if not journal.has_room(ENTRY_SIZE + len(key) + len(value)):
        if is_needed:
            raise YardFull
        # An entry that is done while the disk is full may be delivered again after a restart.
        return
    journal.set_entry(EntryKind.SUBSCRIPTIONS, key, value)


def drop_floor(yard: Yard, queue: Queue, subscription: Subscription) -> None:
    """Drop the floor of a subscription, which has ended."""
    yard.journal.drop_entry(EntryKind.SUBSCRIPTIONS, _floor_key(queue, subscription))


def drop(yard: Yard, queue: Queue, tag: bytes, number: int, subscription: Subscription) -> None:
    """Drop the journal entry of an entry that is done, or of a redelivery."""
    if yard.journal.is_on:
        yard.journal.drop_entry(
            EntryKind.SUBSCRIPTIONS, _key(queue.name, tag, number, subscription.name)
        )


def _floor_key(queue: Queue, subscription: Subscription) -> bytes:
    return queue.name.encode() + b"\0" + FLOOR_ENTRY + subscription.name


def _key(queue: str, tag: bytes, number: int, name: bytes) -> bytes:
    return queue.encode() + b"\0" + tag + struct.pack(">Q", number) + name


# -- leftover entries --------------------------------------------------------------------------


@final
class LeftEntries(Task):
    """Drops the journal entries of a subscription that ended or was moved."""

    def __init__(self, yard: Yard, queue: Queue, subscription: Subscription) -> None:
        super().__init__()
        self._yard = yard
        self._queue: str = queue.name
        self._name: bytes = subscription.name
        self._epoch: i64 = subscription.epoch
        self._birth: i64 = subscription.birth
        self._done = subscription.done
        subscription.done = SortedBlocks()
        self._redeliveries: SortedBlocks | None = None
        self._subscriptions: Subscriptions | None = None

    def add_redeliveries(self, subscriptions: Subscriptions, subscription: Subscription) -> None:
        """Drop its redeliveries too."""
        self._subscriptions = subscriptions
        self._redeliveries = subscription.redeliveries
        subscription.redeliveries = SortedBlocks()

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  set by Task
        """Drop some."""
        done: i64 = 0
        while done < most and self._done.count > 0:
            stamp = int(self._done.first())
            self._done.pop(stamp)
            self._drop(ACKED_ENTRY, stamp)
            done += _DROP_UNITS
        while done < most and self._redeliveries is not None and self._redeliveries.count > 0:
            self._drop_repeat(self._redeliveries)
            done += _DROP_UNITS
        return done

    def _drop_repeat(self, repeats: SortedBlocks) -> None:
        number = int(repeats.first())
        repeat = repeats.pop(number)
        assert isinstance(repeat, Redelivery)
        assert self._subscriptions is not None
        if repeat.pos >= 0:
            self._subscriptions.due.remove(repeat)
        self._drop(REDELIVERY_ENTRY, number)

    def _drop(self, tag: bytes, number: int) -> None:
        journal = self._yard.journal
        entry = journal.entries.get(
            (EntryKind.SUBSCRIPTIONS, _key(self._queue, tag, number, self._name))
        )
        # A later subscription of the same name may have set it again.
        if entry is not None and _owner(entry, tag) == (
            self._epoch if tag == ACKED_ENTRY else self._birth
        ):
            journal.drop_entry(EntryKind.SUBSCRIPTIONS, entry.key)


@final
class StaleEntries(Task):
    """Drops entries of ended subscriptions that were found at a restart."""

    def __init__(self, yard: Yard, found: list[tuple[Entry, bytes]]) -> None:
        super().__init__()
        self._yard = yard
        self._found = found

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  set by Task
        """Drop some that still have the value they were found with."""
        done: i64 = 0
        while done < most and self._found:
            entry, value = self._found.pop()
            if entry.value == value:
                self._yard.journal.drop_entry(EntryKind.SUBSCRIPTIONS, entry.key)
            done += _DROP_UNITS
        return done


# -- after a restart ---------------------------------------------------------------------------


def floor_of(entry: Entry) -> Subscription:
    """Return the subscription that a floor entry describes."""
    value = entry.value.ljust(24, b"\0")
    floor, birth, epoch = struct.unpack("<qqq", value)
    _, _, element = entry.key.partition(b"\0")
    subscription = Subscription(element[1:], floor)
    subscription.birth = birth
    subscription.epoch = epoch
    return subscription


def is_of(entry: Entry, tag: bytes, subscription: Subscription) -> bool:
    """Return whether an entry belongs to a subscription as it is now."""
    return _owner(entry, tag) == (subscription.epoch if tag == ACKED_ENTRY else subscription.birth)


def _owner(entry: Entry, tag: bytes) -> i64:
    """Return the epoch of an entry that is done, the birth of a redelivery."""
    value = entry.value if tag == ACKED_ENTRY else entry.value[12:]
    return int.from_bytes(value, "little", signed=True)


def repeat_facts(entry: Entry) -> tuple[int, int]:
    """Return when a redelivery is due by the wall clock, and how often it stalled."""
    value = entry.value
    due_ms = int.from_bytes(value[:8], "little", signed=True)
    return due_ms, int.from_bytes(value[8:12], "little", signed=True)
