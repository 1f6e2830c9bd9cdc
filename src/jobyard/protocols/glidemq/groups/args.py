"""Arguments of consumer group commands, parsed before anything is done: streams, ids, options.

The same for the workers of a queue and for its subscriptions.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.protocols.glidemq.call import Call
from jobyard.protocols.glidemq.errors import SYNTAX, Wrong
from jobyard.protocols.glidemq.keyspace import key_parts
from jobyard.protocols.glidemq.keyspace.key_names import parse_key
from jobyard.protocols.glidemq.keyspace.key_parts import KeyPlace, find_place
from jobyard.protocols.glidemq.keyspace.views.stream import ENTRY_MAX, parse_entry
from jobyard.protocols.glidemq.number_text import whole

# Entries that one XREAD returns: a reader asks again from the last one.
READ_MAX: Final = 1000
BAD_ENTRY: Final = "ERR Invalid stream ID specified as stream command argument"
PENDING_MAX: Final = 10_000
CLAIM_COUNT: Final = 100
ENTRIES_READ_MAX: Final = 1000
NEW: Final = b">"
_UNBALANCED: Final = (
    "ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID must be specified."
)


def stream_place(key: bytes) -> KeyPlace:
    """Return the queue whose stream a key is."""
    place = find_place(parse_key(key))
    if place.part != key_parts.KeyPart.STREAM:
        raise Wrong("ERR only the stream of a queue can have consumer groups")
    return place


# -- ids ---------------------------------------------------------------------------------------


def entry_id(text: bytes) -> i64:
    """Return an entry id as one number."""
    return _bound(text, 0)


def _low(text: bytes) -> i64:
    if text in (b"-", b"+"):
        return 0 if text == b"-" else ENTRY_MAX
    return _bound(text[1:], 0) + 1 if text[:1] == b"(" else _bound(text, 0)


def _high(text: bytes) -> i64:
    if text in (b"-", b"+"):
        return 0 if text == b"-" else ENTRY_MAX
    return _bound(text[1:], ENTRY_MAX) - 1 if text[:1] == b"(" else _bound(text, ENTRY_MAX)


def _bound(text: bytes, low: i64) -> i64:
    stamp = parse_entry(text, low)
    if stamp is None:
        raise Wrong(BAD_ENTRY)
    return min(i64(stamp), ENTRY_MAX - 1)


# -- options -----------------------------------------------------------------------------------


def read_consumer(call: Call) -> str:
    """Return the name of a consumer, which other doors show as text."""
    try:
        return call.arg(3).decode()
    except UnicodeDecodeError:
        raise Wrong("ERR the consumer name must be UTF-8") from None


@final
class GroupReadArgs:
    """Arguments of XREADGROUP."""

    def __init__(self, call: Call) -> None:
        if not call.is_word(1, b"GROUP") or call.count() < 7:
            raise Wrong(SYNTAX)
        self.group: bytes = call.arg(2)
        self.consumer: str = read_consumer(call)
        self.count: i64 = ENTRIES_READ_MAX
        # -1: do not wait.
        self.block_ms: i64 = -1
        # Entries count as acknowledged when they are delivered.
        self.is_noack: bool = False
        at = self._read_options(call)
        named: i64 = call.count() - at
        if named % 2 != 0 or named == 0:
            raise Wrong(_UNBALANCED)
        half: i64 = named // 2
        self.keys = [call.arg(at + each) for each in range(half)]
        self.ids = [call.arg(at + half + each) for each in range(half)]
        self.names = [stream_place(key).queue_name for key in self.keys]
        for text in self.ids:
            if text != NEW:
                entry_id(text)

    def _read_options(self, call: Call) -> i64:
        at: i64 = 4
        while at < call.count():
            if call.is_word(at, b"STREAMS"):
                return at + 1
            if call.is_word(at, b"COUNT"):
                asked = _number(call, at + 1)
                self.count = min(asked, ENTRIES_READ_MAX) if asked > 0 else ENTRIES_READ_MAX
                at += 1
            elif call.is_word(at, b"BLOCK"):
                self.block_ms = _number(call, at + 1)
                if self.block_ms < 0:
                    raise Wrong("ERR timeout is negative")
                at += 1
            elif call.is_word(at, b"NOACK"):
                self.is_noack = True
            else:
                raise Wrong(SYNTAX)
            at += 1
        raise Wrong(SYNTAX)

    def only_new(self) -> bool:
        """Return whether only new entries are requested."""
        return all(text == NEW for text in self.ids)

    def is_by(self, queue_name: str, consumer: str) -> bool:
        """Return whether a consumer reads the stream of this queue, and no other."""
        return self.consumer == consumer and self.names == [queue_name]


def _number(call: Call, at: i64) -> i64:
    if at >= call.count():
        raise Wrong(SYNTAX)
    return call.integer(at)


@final
class PendingArgs:
    """Arguments of the long form of XPENDING: which of the pending entries."""

    def __init__(self, call: Call) -> None:
        at: i64 = 3
        self.least_ms: i64 = 0
        if call.is_word(at, b"IDLE") and call.count() > 4:
            self.least_ms = call.integer(4)
            at = 5
        if call.count() not in (at + 3, at + 4):
            raise Wrong(SYNTAX)
        self.low: i64 = _low(call.arg(at))
        self.high: i64 = _high(call.arg(at + 1))
        self.count: i64 = min(max(call.integer(at + 2), 0), PENDING_MAX)
        # b"" for all of them.
        self.consumer: bytes = call.arg(at + 3) if call.count() == at + 4 else b""


@final
class AutoClaimArgs:
    """Arguments of XAUTOCLAIM: from which id, how many, minimum idle time."""

    def __init__(self, call: Call) -> None:
        self.consumer: bytes = call.arg(3)
        self.least_ms: i64 = max(call.integer(4), 0)
        self.low: i64 = _low(call.arg(5))
        self.count: i64 = CLAIM_COUNT
        self.is_short: bool = False
        at: i64 = 6
        while at < call.count():
            if call.is_word(at, b"COUNT") and at + 1 < call.count():
                self.count = min(max(call.integer(at + 1), 1), ENTRIES_READ_MAX)
                at += 1
            elif call.is_word(at, b"JUSTID"):
                self.is_short = True
            else:
                raise Wrong(SYNTAX)
            at += 1


@final
class ClaimArgs:
    """Arguments of XCLAIM: which entries, minimum idle time, and the counters to set."""

    def __init__(self, call: Call) -> None:
        self.consumer: bytes = call.arg(3)
        self.least_ms: i64 = max(call.integer(4), 0)
        self.stamps: list[i64] = []
        at: i64 = 5
        while at < call.count() and whole(call.arg(at)[:1]) is not None:
            self.stamps.append(entry_id(call.arg(at)))
            at += 1
        self.is_short: bool = False
        # The idle time and the delivery count to set; -1 if not given.
        self.idle_ms: i64 = -1
        self.times: i64 = -1
        while at < call.count():
            if call.is_word(at, b"JUSTID"):
                self.is_short = True
            elif not call.is_word(at, b"FORCE"):
                # IDLE, TIME, RETRYCOUNT, LASTID: each is followed by a number or an id.
                if at + 1 >= call.count():
                    raise Wrong(SYNTAX)
                self._read_number(call, at)
                at += 1
            at += 1

    def _read_number(self, call: Call, at: i64) -> None:
        if call.is_word(at, b"IDLE"):
            self.idle_ms = max(call.integer(at + 1), 0)
        elif call.is_word(at, b"RETRYCOUNT"):
            self.times = max(call.integer(at + 1), 0)
        elif call.is_word(at, b"LASTID"):
            entry_id(call.arg(at + 1))
        elif call.is_word(at, b"TIME"):
            call.integer(at + 1)
        else:
            raise Wrong(SYNTAX)
