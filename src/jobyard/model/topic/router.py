"""A router passes on the records of one topic to another; `Routers` finds them from either end.

Knows what a router is, how it is encoded, and which topics it connects; copies nothing.
"""

import json
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from jobyard.model.topic.config import TOPIC_NAME_MAX, is_topic_name

AT_LEAST_ONCE: Final = "at_least_once"
EXACTLY_ONCE: Final = "exactly_once"
GUARANTEES: Final = (AT_LEAST_ONCE, EXACTLY_ONCE)

# A record is passed on at most this many times, where routers form a cycle.
HOPS_MAX: Final = 8
# Stored for a router that is never behind its source.
IN_STEP: Final = -1


@mypyc_attr(allow_interpreted_subclasses=True)
class Printer:
    """Prints bodies of jobs as JSON; this base class knows no other codec."""

    def json_of(self, codec: i64, body: bytes) -> bytes:  # noqa: ARG002  for subclasses
        """Return a body that is not JSON as JSON."""
        return b"null"


@final
class Router:
    """A connection from one topic to another."""

    def __init__(self, name: str, source: str, dest: str) -> None:
        self.name = name
        self.source = source
        self.dest = dest
        self.preserve_node: bool = True
        self.preserve_tag: bool = True
        self.create_dest: bool = True
        self.allow_cycle: bool = False
        self.guarantee: str = AT_LEAST_ONCE
        # Which records: all, those with this tag, or those whose tag begins with it.
        self.tag: str = ""
        self.is_prefix: bool = False
        self.has_match: bool = False
        # Seqs of the source up to this were passed on or skipped.
        self.cursor: i64 = 0
        # The destination accepts no more for now; the cursor is stored.
        self.is_behind: bool = False
        # It continues as the yard has time; or, if its destination refused records, when that is
        # retried: until then it is not in the list of late routers.
        self.is_late: bool = False
        self.is_retrying: bool = False
        # Since this process started.
        self.forwarded_total: i64 = 0
        # All but the cursor, encoded; it does not change.
        self._written: str = ""

    def takes(self, tag: str) -> bool:
        """Return whether a record with this tag is passed on."""
        if not self.has_match:
            return True
        if not tag:
            return False
        return tag.startswith(self.tag) if self.is_prefix else tag == self.tag

    def copies_all(self) -> bool:
        """Return whether records are passed on unchanged."""
        return self.preserve_tag and self.preserve_node and self.guarantee == AT_LEAST_ONCE

    def match(self) -> list[str] | None:
        """Return the filter in the form of a request."""
        if not self.has_match:
            return None
        return ["tag", "Glob", self.tag + "*"] if self.is_prefix else ["tag", "Eq", self.tag]

    def fields(self) -> dict[str, object]:
        """Return the router's settings as shown to clients."""
        return {
            "router": self.name,
            "source": self.source,
            "dest": self.dest,
            "preserve_node": self.preserve_node,
            "preserve_tag": self.preserve_tag,
            "create_dest": self.create_dest,
            "filter": self.match(),
            "allow_cycle": self.allow_cycle,
            "guarantee": self.guarantee,
        }

    def encode(self) -> bytes:
        """Return its stored form."""
        cursor = int(self.cursor) if self.is_behind else IN_STEP
        if not self._written:
            match = [self.tag, self.is_prefix, self.has_match]
            self._written = json.dumps([match, self.fields()], separators=(",", ":"))[1:]
        return f"[{cursor},{self._written}".encode()


def decode_router(data: bytes) -> Router:
    """Decode what `encode` wrote; the cursor is IN_STEP unless the router is behind."""
    cursor, match, fields = json.loads(data)
    router = Router(fields["router"], fields["source"], fields["dest"])
    router.preserve_node = fields["preserve_node"]
    router.preserve_tag = fields["preserve_tag"]
    router.create_dest = fields["create_dest"]
    router.allow_cycle = fields["allow_cycle"]
    router.guarantee = fields["guarantee"]
    router.tag, router.is_prefix, router.has_match = match
    router.cursor = cursor
    router.is_behind = cursor != IN_STEP
    return router


def is_router_name(name: str) -> bool:
    """Return whether this is a valid router name: a topic name, or two with an arrow."""
    return len(name) <= TOPIC_NAME_MAX and is_topic_name(name.replace(">", "-"))


@final
class Routers:
    """All routers of a yard."""

    def __init__(self) -> None:
        self.by_name: dict[str, Router] = {}
        self.by_dest: dict[str, Router] = {}
        self.by_source: dict[str, list[Router]] = {}
        # Those that are behind and continue as the yard has time; all others that are behind wait.
        self.late: list[Router] = []
        self.is_catching_up: bool = False
        # Incremented when a router is added or removed, falls behind or catches up.
        self.version: i64 = 0
        # How often the record that is being appended was already passed on.
        self.hops: i64 = 0
        # Whether a record is appended within another verb: nothing is passed on before that ends.
        self.is_held: bool = False
        # Prints jobs of other doors for copies in logs.
        self.printer = Printer()

    def add(self, router: Router) -> None:
        """Add a router with a new name and a new destination."""
        self.version += 1
        self.by_name[router.name] = router
        self.by_dest[router.dest] = router
        self.by_source.setdefault(router.source, []).append(router)

    def remove(self, router: Router) -> None:
        """Remove a router."""
        self.version += 1
        del self.by_name[router.name]
        del self.by_dest[router.dest]
        beside = self.by_source[router.source]
        beside.remove(router)
        if not beside:
            del self.by_source[router.source]

    def circle(self, source: str, dest: str) -> list[str]:
        """Return the topics of the cycle that a router would close; empty if it closes none.

        A topic has at most one router that leads to it, so there is one way back.
        """
        way = [source]
        topic = source
        while topic != dest:
            before = self.by_dest.get(topic)
            if before is None or before.source in way:
                return []
            topic = before.source
            way.append(topic)
        way.append(source)
        way.reverse()
        return way
