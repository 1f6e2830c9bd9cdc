"""What is compared of a glide-mq yard across a restart, beside its jobs: side keys and projections.

A side key that is on the disk must come back as it was; one that goes by itself soon must not. What
clients were shown of every queue when the server stopped in good order they must be shown after it
has started again, but for what ends with a process: leases.
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
    from jobyard.model.glidemq.stored_values import SideKey
    from sim.glidemq.boot import GlideBoot
    from sim.glidemq.model import GlideModel
    from sim.glidemq.network import Answer

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


# What a hash tells of a run, which ends with the process.
_OF_RUNS: Final = (b"state", b"processedOn", b"lastActive")
# What it tells of others of a key.
_OF_LANES: Final = (b"state",)
_SORTED: Final = ("scheduled", "completed", "failed")


class Showing:
    """What clients are shown of some queues: every job as its hash, and the sorted sets."""

    def __init__(self, boot: GlideBoot, model: GlideModel, queues: tuple[str, ...]) -> None:
        self._boot = boot
        self._session = boot.glidemq.enter(Ear([]))
        self._now_ms = model.now
        self._running = {job.number for job in model.jobs.values() if job.held is not None}
        # Which of them go on is not remembered: after a restart the first in order do.
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
        """See that clients are shown the same after a restart, but for runs."""
        if after.sets != self.sets:
            raise Violation("restart", f"shown {after.sets}, not {self.sets}"[:1500])
        for number, before in self.jobs.items():
            found, wanted = after.jobs.get(number), before
            if number in self._running:
                found, wanted = _without(found, _OF_RUNS), _without(wanted, _OF_RUNS)
            elif number in self._crowded:
                found, wanted = _without(found, _OF_LANES), _without(wanted, _OF_LANES)
            if found != wanted:
                raise Violation(
                    "restart", f"job {number} is shown {found!r}, not {wanted!r}"[:1500]
                )


def _without(answer: Answer, fields: tuple[bytes, ...]) -> Answer:
    """Return a hash without some fields."""
    words = answer if isinstance(answer, list) else []
    pairs = zip(words[::2], words[1::2], strict=True)
    return [word for pair in pairs if pair[0] not in fields for word in pair]
