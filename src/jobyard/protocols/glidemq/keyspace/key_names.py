"""The names keys may have, and which of them are kept as they were set.

    <prefix>:{<queue>}:<family>[:<rest>]       glide:{mail}:job:17
    <prefix>:usage:queues                      belongs to no queue, nor do those of flows:
    <prefix>:{flow:<id>}:<meta|jobs|roots>     as the library's HTTP proxy notes them
    <prefix>:flow:<id>:<meta|jobs|roots>       as its packages for web frameworks do

A key outside these names is refused by `parse_key`, with the reason.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.model.glidemq.stored_values import HASH, LIST, NO_KIND, SET, STREAM, STRING
from jobyard.protocols.glidemq.errors import Wrong

PREFIX: Final = b"glide"
KEY_SIZE_MAX: Final = 4096
NAME_SIZE_MAX: Final = 256

# Of keys by which workers are registered, under the names they read with.
WORKER: Final = b"w"

# Families of keys that are kept as they were set, and the kind each must be of.
SIDE_FAMILIES: Final = {
    WORKER: STRING,
    b"schedulers": HASH,
    b"jstream": STREAM,
    b"signals": LIST,
    b"budget": HASH,
    b"tpm": STRING,
    b"usage": HASH,
    b"rate": HASH,
    b"dedup": HASH,
    b"job": HASH,
    b"xq-pending": SET,
}

# What is noted of a flow that came over HTTP, and the kind each must be of.
FLOW: Final = b"flow"
_FLOW_HEAD: Final = FLOW + b":"
FLOW_PARTS: Final = {b"meta": HASH, b"jobs": SET, b"roots": SET}


@final
class KeyName:
    """A key taken apart. `queue` is the name inside; "" for a key of no queue."""

    def __init__(self, key: bytes, prefix: bytes, queue: str, family: bytes, rest: bytes) -> None:
        self.key = key
        self.prefix = prefix
        self.queue = queue
        self.family = family
        # What stands behind the family and its colon; b"" for none.
        self.rest = rest


def parse_key(key: bytes) -> KeyName:
    """Take a key apart; refuse one that can be no key here, with the reason."""
    if len(key) > KEY_SIZE_MAX:
        raise Wrong(f"ERR a key has at most {KEY_SIZE_MAX} bytes here")
    if key.find(0) >= 0:
        raise Wrong("ERR a key has no zero byte here")
    head, brace, tail = key.partition(b":{")
    name, closed, family = tail.partition(b"}:")
    if not brace or not closed:
        return _parse_unbraced(key)
    if head and _is_plain(head) and _is_plain(name) and _is_flow(name, family):
        return KeyName(key, head, "", FLOW, family)
    if not head or not _is_plain(head) or not name or not _is_plain(name) or name.find(b":") >= 0:
        raise Wrong(f"ERR {_shown(key)} names no queue: a name holds none of {{ }} :")
    try:
        text = name.decode()
        inside = text if head == PREFIX else f"{head.decode()}:{text}"
    except UnicodeDecodeError:
        raise Wrong(f"ERR {_shown(key)} names no queue: it is no UTF-8") from None
    if len(text) > NAME_SIZE_MAX or len(head) > NAME_SIZE_MAX:
        raise Wrong(f"ERR the name of a queue has at most {NAME_SIZE_MAX} characters")
    first, _, rest = family.partition(b":")
    return KeyName(key, head, inside, first, rest)


def _parse_unbraced(key: bytes) -> KeyName:
    prefix, _, rest = key.partition(b":")
    if prefix and _is_plain(key):
        if rest == b"usage:queues":
            return KeyName(key, prefix, "", rest, b"")
        flow, _, part = rest.rpartition(b":")
        if _is_flow(flow, part):
            return KeyName(key, prefix, "", FLOW, part)
    raise Wrong(
        f"ERR {_shown(key)} is no key of a queue: those are called <prefix>:{{<queue>}}:..."
    )


def _is_plain(name: bytes) -> bool:
    return name.find(b"{") < 0 and name.find(b"}") < 0


def _is_flow(name: bytes, part: bytes) -> bool:
    return name.startswith(_FLOW_HEAD) and len(name) > len(_FLOW_HEAD) and part in FLOW_PARTS


def _shown(key: bytes) -> str:
    return "'" + key[:128].decode("utf-8", "replace") + "'"


def side_kind(name: KeyName) -> i64:
    """Return of which kind a key must be that is kept as it was set; NO_KIND if it is none."""
    family, rest = name.family, name.rest
    kind: i64 = NO_KIND
    if family == b"usage:queues":
        kind = SET
    elif family == FLOW:
        # Of a queue there is no such family: this is one of no queue.
        kind = NO_KIND if name.queue else FLOW_PARTS[rest]
    elif family in (b"schedulers", b"suspended") and rest.startswith(b"lock:"):
        kind = STRING
    elif family == b"job" and b":" in rest:
        what = rest.partition(b":")[2]
        if what == b"usage-lock":
            kind = STRING
        elif what.startswith(b"sub:"):
            kind = HASH
    # These have no rest, all others one.
    elif (family in (b"schedulers", b"rate", b"dedup", b"xq-pending")) != (rest != b""):
        kind = SIDE_FAMILIES.get(family, NO_KIND)
    return kind


def refuse_family(name: KeyName) -> Wrong:
    """Return the answer to a key that is neither shown nor kept."""
    return Wrong(f"ERR {_shown(name.key)}: no such key of a queue is known here")
