"""HSCAN, SSCAN and ZSCAN: the first call returns everything that a key holds.

A key holds little, or is paged by other commands; so the cursor in the reply is always 0.
"""

from typing import final

from mypy_extensions import i64

from jobyard.model.glidemq.stored_values import ValueKind
from jobyard.protocols.glidemq.answers import SCAN, MemberArray, TextArray
from jobyard.protocols.glidemq.call import Call
from jobyard.protocols.glidemq.errors import SYNTAX, Wrong
from jobyard.protocols.glidemq.keyspace.gather import Gather
from jobyard.protocols.glidemq.keyspace.key import Scored
from jobyard.protocols.glidemq.long_commands import begin, pour
from jobyard.wire.glob import is_match


@final
class ScanArgs:
    """Arguments of a scan."""

    def __init__(self, call: Call) -> None:
        cursor = call.command.integer(2)
        if cursor is None or cursor < 0:
            raise Wrong("ERR invalid cursor")
        self.pattern = b"*"
        self.with_values = True
        at: i64 = 3
        while at < call.count():
            if call.is_word(at, b"NOVALUES") and call.is_word(0, b"HSCAN"):
                self.with_values = False
                at += 1
                continue
            if at + 1 == call.count():
                raise Wrong(SYNTAX)
            if call.is_word(at, b"MATCH"):
                self.pattern = call.arg(at + 1)
            elif not call.is_word(at, b"COUNT") or call.integer(at + 1) < 1:
                raise Wrong(SYNTAX)
            at += 2

    def holds(self, name: bytes) -> bool:
        """Return whether a name matches the pattern."""
        return self.pattern == b"*" or is_match(self.pattern, name)


def hscan(call: Call) -> None:
    """Answer with fields and their values."""
    wanted = ScanArgs(call)
    key = call.found(1, ValueKind.HASH)
    found: list[bytes] = []
    if key is not None:
        for name, value in key.fields().items():
            if wanted.holds(name):
                found.append(name)
                if wanted.with_values:
                    found.append(value)
    pour(call, TextArray(found, SCAN, call.proto))


def sscan(call: Call) -> None:
    """Answer with members."""
    wanted = ScanArgs(call)
    key = call.found(1, ValueKind.SET)
    members = [] if key is None else key.members()
    pour(call, TextArray([one for one in members if wanted.holds(one)], SCAN, call.proto))


def zscan(call: Call) -> None:
    """Answer with members and their scores."""
    wanted = ScanArgs(call)
    key = call.found(1, ValueKind.ZSET)
    found = None if key is None else key.find_scored(None, is_reversed=False)
    if found is None:
        scored = [] if key is None else key.scored()
        pour(call, _members(call, None, [one for one in scored if wanted.holds(one[0])]))
        return
    if wanted.pattern != b"*":
        found.pattern = wanted.pattern
    begin(call, found, lambda: _members(call, found, []))


def _members(call: Call, found: Gather | None, scored: list[Scored]) -> MemberArray:
    members = MemberArray(found, scored, call.proto)
    members.is_scan = True
    return members
