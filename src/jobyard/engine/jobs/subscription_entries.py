"""What the journal remembers of subscriptions.

Entries of kind AUDIENCE, by these keys:

    <queue> 0 g <name>              up to which stamp everything is over for it, birth and epoch
    <queue> 0 d <stamp> <name>      an entry above that is over all the same; its epoch
    <queue> 0 r <job id> <name>     a job it is to get again: when, how often it stalled, its birth

A subscription that ends, or goes on elsewhere, may leave very many entries behind, which are
dropped over turns. So that a restart meanwhile does not take them for those of a later subscription
of the same name, each says to which one it belongs: birth is a number of the subscription, epoch
one of it since it was last moved. Both are 0 in entries that were written before there were such.
"""

import struct
from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.state.tasks import Task
from jobyard.engine.state.yard import Yard
from jobyard.errors import YardFull
from jobyard.journal.format.record import ENTRY_SIZE
from jobyard.model.entry import AUDIENCE, Entry
from jobyard.model.glidemq.subscriptions import Audience, Repeat, Subscription
from jobyard.model.index.sorted_blocks import SortedBlocks
from jobyard.model.queue import Queue

FLOOR: Final = b"g"
DONE: Final = b"d"
REPEAT: Final = b"r"

# What it takes to drop an entry, in units of work.
_DROP_UNITS: Final = 2


def note_floor(yard: Yard, queue: Queue, subscription: Subscription, *, is_needed: bool) -> None:
    """Remember up to where everything is over."""
    value = struct.pack("<qqq", subscription.floor, subscription.birth, subscription.epoch)
    _note(yard, _floor_key(queue, subscription), value, is_needed=is_needed)


def note_done(yard: Yard, queue: Queue, subscription: Subscription, stamp: int) -> None:
    """Remember that an entry above the floor is over, if the disk has room for that."""
    value = struct.pack("<q", subscription.epoch)
    _note(yard, _key(queue.name, DONE, stamp, subscription.name), value, is_needed=False)


def note_repeat(
    yard: Yard, queue: Queue, subscription: Subscription, job_id: i64, due_ms: i64, stalls: i64
) -> None:
    """Remember a job that a subscription is to get again; YardFull changes nothing."""
    wall_ms = due_ms + yard.journal.wall_offset_ms
    value = struct.pack("<qiq", wall_ms, stalls, subscription.birth)
    _note(yard, _key(queue.name, REPEAT, job_id, subscription.name), value, is_needed=True)


def _note(yard: Yard, key: bytes, value: bytes, *, is_needed: bool) -> None:
    journal = yard.journal
    if not journal.is_on:
        return
    if not journal.has_room(ENTRY_SIZE + len(key) + len(value)):
        if is_needed:
            raise YardFull
        # What is over on a full disk may be given again after a restart.
        return
    journal.set_entry(AUDIENCE, key, value)


def drop_floor(yard: Yard, queue: Queue, subscription: Subscription) -> None:
    """Remember that a subscription has ended."""
    yard.journal.drop_entry(AUDIENCE, _floor_key(queue, subscription))


def drop(yard: Yard, queue: Queue, tag: bytes, number: int, subscription: Subscription) -> None:
    """Forget that an entry is over, or a repeat."""
    if yard.journal.is_on:
        yard.journal.drop_entry(AUDIENCE, _key(queue.name, tag, number, subscription.name))


def _floor_key(queue: Queue, subscription: Subscription) -> bytes:
    return queue.name.encode() + b"\0" + FLOOR + subscription.name


def _key(queue: str, tag: bytes, number: int, name: bytes) -> bytes:
    return queue.encode() + b"\0" + tag + struct.pack(">Q", number) + name


# -- what is left behind -----------------------------------------------------------------------


@final
class LeftEntries(Task):
    """Drops what a subscription remembered that ended, or that goes on elsewhere."""

    def __init__(self, yard: Yard, queue: Queue, subscription: Subscription) -> None:
        super().__init__()
        self._yard = yard
        self._queue: str = queue.name
        self._name: bytes = subscription.name
        self._epoch: i64 = subscription.epoch
        self._birth: i64 = subscription.birth
        self._done = subscription.done
        subscription.done = SortedBlocks()
        self._repeats: SortedBlocks | None = None
        self._audience: Audience | None = None

    def add_repeats(self, audience: Audience, subscription: Subscription) -> None:
        """Drop its repeats too."""
        self._audience = audience
        self._repeats = subscription.repeats
        subscription.repeats = SortedBlocks()

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  nothing is left to be told
        """Drop some."""
        done: i64 = 0
        while done < most and self._done.count > 0:
            stamp = int(self._done.first())
            self._done.pop(stamp)
            self._drop(DONE, stamp)
            done += _DROP_UNITS
        while done < most and self._repeats is not None and self._repeats.count > 0:
            self._drop_repeat(self._repeats)
            done += _DROP_UNITS
        return done

    def _drop_repeat(self, repeats: SortedBlocks) -> None:
        number = int(repeats.first())
        repeat = repeats.pop(number)
        assert isinstance(repeat, Repeat)
        assert self._audience is not None
        if repeat.pos >= 0:
            self._audience.due.remove(repeat)
        self._drop(REPEAT, number)

    def _drop(self, tag: bytes, number: int) -> None:
        journal = self._yard.journal
        entry = journal.entries.get((AUDIENCE, _key(self._queue, tag, number, self._name)))
        # A later subscription of the same name may have set it anew.
        if entry is not None and _owner(entry, tag) == (
            self._epoch if tag == DONE else self._birth
        ):
            journal.drop_entry(AUDIENCE, entry.key)


@final
class StaleEntries(Task):
    """Drops entries that a restart has found, of subscriptions that had ended."""

    def __init__(self, yard: Yard, found: list[tuple[Entry, bytes]]) -> None:
        super().__init__()
        self._yard = yard
        self._found = found

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  nothing is left to be told
        """Drop some that still have the value they were found with."""
        done: i64 = 0
        while done < most and self._found:
            entry, value = self._found.pop()
            if entry.value == value:
                self._yard.journal.drop_entry(AUDIENCE, entry.key)
            done += _DROP_UNITS
        return done


# -- after a restart ---------------------------------------------------------------------------


def floor_of(entry: Entry) -> Subscription:
    """Return the subscription that an entry tells of."""
    value = entry.value.ljust(24, b"\0")
    floor, birth, epoch = struct.unpack("<qqq", value)
    _, _, element = entry.key.partition(b"\0")
    subscription = Subscription(element[1:], floor)
    subscription.birth = birth
    subscription.epoch = epoch
    return subscription


def is_of(entry: Entry, tag: bytes, subscription: Subscription) -> bool:
    """Tell whether an entry belongs to a subscription as it is now."""
    return _owner(entry, tag) == (subscription.epoch if tag == DONE else subscription.birth)


def _owner(entry: Entry, tag: bytes) -> i64:
    """Return the epoch of an entry that is over, the birth of a repeat."""
    value = entry.value if tag == DONE else entry.value[12:]
    return int.from_bytes(value, "little", signed=True)


def repeat_facts(entry: Entry) -> tuple[int, int]:
    """Return when a repeat is due by the wall clock, and how often it stalled."""
    value = entry.value
    due_ms = int.from_bytes(value[:8], "little", signed=True)
    return due_ms, int.from_bytes(value[8:12], "little", signed=True)
