"""HSCAN, SSCAN and ZSCAN: what a key holds, all of it with the first call.

A key holds little, or is paged by other commands; so the cursor is always 0 in the answer.
"""

from typing import final

from mypy_extensions import i64

from jobyard.model.side import HASH, SET, ZSET
from jobyard.sessions.glidemq.call import Call
from jobyard.sessions.glidemq.words import SYNTAX, Wrong
from jobyard.wire.glob import is_match
from jobyard.wire.resp_write import double_text, write_array, write_bulk


@final
class Wanted:
    """What a scan asks for."""

    def __init__(self, call: Call) -> None:
        cursor = call.command.integer(2)
        if cursor is None or cursor < 0:
            raise Wrong("ERR invalid cursor")
        self._pattern = b"*"
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
                self._pattern = call.arg(at + 1)
            elif not call.is_word(at, b"COUNT") or call.integer(at + 1) < 1:
                raise Wrong(SYNTAX)
            at += 2

    def holds(self, name: bytes) -> bool:
        """Tell whether a name is asked for."""
        return self._pattern == b"*" or is_match(self._pattern, name)


def _write(call: Call, found: list[bytes]) -> None:
    write_array(call.out, 2)
    write_bulk(call.out, b"0")
    write_array(call.out, len(found))
    for one in found:
        write_bulk(call.out, one)


def hscan(call: Call) -> None:
    """Tell fields with their values."""
    wanted = Wanted(call)
    key = call.found(1, HASH)
    found: list[bytes] = []
    if key is not None:
        for name, value in key.fields().items():
            if wanted.holds(name):
                found.append(name)
                if wanted.with_values:
                    found.append(value)
    _write(call, found)


def sscan(call: Call) -> None:
    """Tell members."""
    wanted = Wanted(call)
    key = call.found(1, SET)
    members = [] if key is None else key.members()
    _write(call, [member for member in members if wanted.holds(member)])


def zscan(call: Call) -> None:
    """Tell members with their scores."""
    wanted = Wanted(call)
    key = call.found(1, ZSET)
    found: list[bytes] = []
    for member, score in [] if key is None else key.scored():
        if wanted.holds(member):
            found += [member, double_text(score)]
    _write(call, found)
