"""Comparisons of a glide-mq yard across a restart, besides its jobs: stored values and views.

A stored value on the disk must come back as it was; one that expires soon must not. What
clients saw of every queue when the server stopped cleanly they must see after it
has started again, except for what ends with a process: leases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jobyard.model.limits import NEVER_MS
from jobyard.protocols.glidemq.session import GlidemqSession
from sim.bunqueue.memory import Snapshot
from sim.glidemq.network import Reader, pack
from sim.glidemq.words import key, keys_of
from sim.network import Ear
from sim.state import Violation

if TYPE_CHECKING:
    from jobyard.engine.state.yard import Yard
    from jobyard.model.glidemq.stored_values import StoredValue
    from sim.glidemq.boot import GlideBoot
    from sim.glidemq.model import GlideModel
    from sim.glidemq.network import Answer

# A key that expires within this time is not recorded.
VOLATILE_MS: Final = 600_000
Shown = tuple[object, ...]


def side_of(yard: Yard, now_ms: int) -> dict[bytes, Shown]:
    """Return all stored values that do not expire soon."""
    keys = yard.stored_values.keys
    return {
        bytes(name): _dump(key)
        for name, key in keys.items()
        if key.expires_ms - now_ms > VOLATILE_MS
    }


def _dump(key: StoredValue) -> Shown:
    items = tuple(key.items[at] for at in sorted(key.items))
    until = NEVER_MS if key.expires_ms >= NEVER_MS else int(key.expires_ms)
    return (int(key.kind), key.text, tuple(sorted(key.table.items())), items, until)


class GlideSnapshot(Snapshot):
    """A yard at the moment a batch was sealed, with its stored values."""

    def __init__(self, yard: Yard, bodies: dict[int, bytes], now_ms: int) -> None:
        super().__init__(yard, bodies)
        self.side = side_of(yard, now_ms)

    def check_side(self, yard: Yard, *, has_jumped: bool) -> None:
        """Check that a yard that came back has these stored values and no others."""
        found = {bytes(name): _dump(key) for name, key in yard.stored_values.keys.items()}
        wanted = self.side
        if has_jumped:
            found = {name: shown[:-1] for name, shown in found.items()}
            wanted = {name: shown[:-1] for name, shown in wanted.items()}
        if found != wanted:
            wrong = {name for name in {*found, *wanted} if found.get(name) != wanted.get(name)}
            story = [(name, found.get(name), wanted.get(name)) for name in sorted(wrong)]
            raise Violation("restart", f"stored values (found, expected): {story}"[:1500])


# Fields of a hash about a run, which ends with the process.
_OF_RUNS: Final = (b"state", b"processedOn", b"lastActive")
# Fields about other jobs of its key.
_OF_ORDERINGS: Final = (b"state",)
_SORTED: Final = ("scheduled", "completed", "failed")


class Showing:
    """What clients see of some queues: every job as its hash, and the sorted sets."""

    def __init__(self, boot: GlideBoot, model: GlideModel, queues: tuple[str, ...]) -> None:
        self._boot = boot
        self._session = boot.glidemq.enter(Ear([]))
        self._now_ms = model.now
        self._running = {job.number for job in model.jobs.values() if job.held is not None}
        # Which of them continue is not recorded: after a restart the first in order do.
        self._crowded = {job.number for job in model.jobs.values() if model.is_crowded(job)}
        self.jobs = {
            number: self._ask([b"HGETALL", key(job.queue, f"job:{job.id}")])
            for number, job in model.jobs.items()
        }
        self.sets = {
            place: self._ask([b"ZRANGE", place, b"0", b"-1", b"WITHSCORES"])
            for queue in queues
            for place in keys_of(queue, *_SORTED)
        }
        self._session.closed(model.now)

    def _ask(self, words: list[bytes]) -> Answer:
        session = self._session
        assert isinstance(session, GlidemqSession)
        session.receive(pack(words), self._now_ms)
        self._boot.finish_work(session, self._now_ms)
        return Reader(bytes(session.take_output())).read()

    def check(self, after: Showing) -> None:
        """Check that clients see the same after a restart, except for runs."""
        if after.sets != self.sets:
            raise Violation("restart", f"shown {after.sets}, not {self.sets}"[:1500])
        for number, before in self.jobs.items():
            found, wanted = after.jobs.get(number), before
            if number in self._running:
                found, wanted = _without(found, _OF_RUNS), _without(wanted, _OF_RUNS)
            elif number in self._crowded:
                found, wanted = _without(found, _OF_ORDERINGS), _without(wanted, _OF_ORDERINGS)
            if found != wanted:
                raise Violation(
                    "restart", f"job {number} is shown {found!r}, not {wanted!r}"[:1500]
                )


def _without(answer: Answer, fields: tuple[bytes, ...]) -> Answer:
    """Return a hash without some fields."""
    words = answer if isinstance(answer, list) else []
    pairs = zip(words[::2], words[1::2], strict=True)
    return [word for pair in pairs if pair[0] not in fields for word in pair]
