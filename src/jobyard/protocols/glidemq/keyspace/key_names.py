"""The names that keys may have, and which of them are stored as they were set.

    <prefix>:{<queue>}:<family>[:<rest>]       glide:{mail}:job:17
    <prefix>:usage:queues                      belongs to no queue, like those of flows:
    <prefix>:{flow:<id>}:<meta|jobs|roots>     written by the library's HTTP proxy
    <prefix>:flow:<id>:<meta|jobs|roots>       written by its packages for web frameworks

`parse_key` refuses any other name, with the reason.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.model.glidemq.stored_values import ValueKind
from jobyard.model.limits import QUEUE_NAME_SIZE_MAX
from jobyard.protocols.glidemq.errors import Wrong

KEY_PREFIX: Final = b"glide"
KEY_SIZE_MAX: Final = 4096

# Keys that register workers, under the names they read with.
WORKER_FAMILY: Final = b"w"

# Families of stored keys, and the kind that each must have.
STORED_FAMILIES: Final = {
    WORKER_FAMILY: ValueKind.STRING,
    b"schedulers": ValueKind.HASH,
    b"jstream": ValueKind.STREAM,
    b"signals": ValueKind.LIST,
    b"budget": ValueKind.HASH,
    b"tpm": ValueKind.STRING,
    b"usage": ValueKind.HASH,
    b"rate": ValueKind.HASH,
    b"dedup": ValueKind.HASH,
    b"job": ValueKind.HASH,
    b"xq-pending": ValueKind.SET,
}

# Keys of a flow that came over HTTP, and the kind that each must have.
FLOW: Final = b"flow"
_FLOW_HEAD: Final = FLOW + b":"
FLOW_PARTS: Final = {b"meta": ValueKind.HASH, b"jobs": ValueKind.SET, b"roots": ValueKind.SET}


@final
class KeyName:
    """A parsed key. `queue` is the queue's name in the yard; "" for a key of no queue."""

    def __init__(self, key: bytes, prefix: bytes, queue: str, family: bytes, rest: bytes) -> None:
        self.key = key
        self.prefix = prefix
        self.queue = queue
        self.family = family
        # What follows the family and its colon; b"" for none.
        self.rest = rest


def parse_key(key: bytes) -> KeyName:
    """Parse a key; refuse a name that no key can have, with the reason."""
    if len(key) > KEY_SIZE_MAX:
        raise Wrong(f"ERR a key can have at most {KEY_SIZE_MAX} bytes")
    if key.find(0) >= 0:
        raise Wrong("ERR a key cannot contain a zero byte")
    head, brace, tail = key.partition(b":{")
    name, closed, family = tail.partition(b"}:")
    if not brace or not closed:
        return _parse_unbraced(key)
    if head and _is_plain(head) and _is_plain(name) and _is_flow(name, family):
        return KeyName(key, head, "", FLOW, family)
    if not head or not _is_plain(head) or not name or not _is_plain(name) or name.find(b":") >= 0:
        raise Wrong(f"ERR {_shown(key)} names no queue: a queue name cannot contain {{ }} :")
    try:
        text = name.decode()
        inside = text if head == KEY_PREFIX else f"{head.decode()}:{text}"
    except UnicodeDecodeError:
        raise Wrong(f"ERR {_shown(key)} names no queue: it is not UTF-8") from None
    if len(text) > QUEUE_NAME_SIZE_MAX or len(head) > QUEUE_NAME_SIZE_MAX:
        raise Wrong(f"ERR a queue name can have at most {QUEUE_NAME_SIZE_MAX} characters")
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
        f"ERR {_shown(key)} is not a key of a queue: those have the form <prefix>:{{<queue>}}:..."
    )


def _is_plain(name: bytes) -> bool:
    return name.find(b"{") < 0 and name.find(b"}") < 0


def _is_flow(name: bytes, part: bytes) -> bool:
    return name.startswith(_FLOW_HEAD) and len(name) > len(_FLOW_HEAD) and part in FLOW_PARTS


def _shown(key: bytes) -> str:
    return "'" + key[:128].decode("utf-8", "replace") + "'"


def stored_kind(name: KeyName) -> i64:
    """Return the kind that a stored key must have; `ValueKind.NONE` if it is not a stored key."""
    family, rest = name.family, name.rest
    kind: i64 = ValueKind.NONE
    if family == b"usage:queues":
        kind = ValueKind.SET
    elif family == FLOW:
        # Queues have no such family: it belongs to keys without a queue.
        kind = ValueKind.NONE if name.queue else FLOW_PARTS[rest]
    elif family in (b"schedulers", b"suspended") and rest.startswith(b"lock:"):
        kind = ValueKind.STRING
    elif family == b"job" and b":" in rest:
        what = rest.partition(b":")[2]
        if what == b"usage-lock":
            kind = ValueKind.STRING
        elif what.startswith(b"sub:"):
            kind = ValueKind.HASH
    # These have no rest; all others have one.
    elif (family in (b"schedulers", b"rate", b"dedup", b"xq-pending")) != (rest != b""):
        kind = STORED_FAMILIES.get(family, ValueKind.NONE)
    return kind


def refuse_family(name: KeyName) -> Wrong:
    """Return the reply to a key that neither shows a queue nor can be stored."""
    return Wrong(f"ERR {_shown(name.key)} is not a known key of a queue")
