"""What is compared of a glide-mq yard across a restart, beside its jobs: side keys and projections.

A side key that is on the disk must come back as it was; one that goes by itself soon must not. What
clients were shown of every queue when the server stopped in good order they must be shown after it
has started again, but for what ends with a process: leases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jobyard.model.limits import NEVER_MS
from sim.bunqueue.memory import Snapshot
from sim.state import Violation

if TYPE_CHECKING:
    from jobyard.engine.yard import Yard
    from jobyard.model.side import SideKey

# A key that goes by itself within this time is not remembered.
VOLATILE_MS: Final = 600_000
Shown = tuple[object, ...]


def side_of(yard: Yard, now_ms: int) -> dict[bytes, Shown]:
    """Return all side keys that do not go by themselves soon."""
    keys = yard.side.keys
    return {
        bytes(name): _dump(key)
        for name, key in keys.items()
        if key.expires_ms - now_ms > VOLATILE_MS
    }


def _dump(key: SideKey) -> Shown:
    items = tuple(key.items[at] for at in sorted(key.items))
    until = NEVER_MS if key.expires_ms >= NEVER_MS else int(key.expires_ms)
    return (int(key.kind), key.text, tuple(sorted(key.table.items())), items, until)


class GlideSnapshot(Snapshot):
    """A yard at the moment a batch was sealed, with its side keys."""

    def __init__(self, yard: Yard, bodies: dict[int, bytes], now_ms: int) -> None:
        super().__init__(yard, bodies)
        self.side = side_of(yard, now_ms)

    def check_side(self, yard: Yard, *, has_jumped: bool) -> None:
        """See that a yard that came back has these side keys and no other."""
        found = {bytes(name): _dump(key) for name, key in yard.side.keys.items()}
        wanted = self.side
        if has_jumped:
            found = {name: shown[:-1] for name, shown in found.items()}
            wanted = {name: shown[:-1] for name, shown in wanted.items()}
        if found != wanted:
            wrong = {name for name in {*found, *wanted} if found.get(name) != wanted.get(name)}
            story = [(name, found.get(name), wanted.get(name)) for name in sorted(wrong)]
            raise Violation("restart", f"side keys (found, expected): {story}"[:1500])
