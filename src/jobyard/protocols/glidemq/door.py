"""What all glide-mq connections share: the yard, the password, the keys, the counters of INFO."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr

from jobyard.model.secrets import is_digest_of
from jobyard.protocols.glidemq.events import Events
from jobyard.protocols.glidemq.keyspace.finder import QueueProjections
from jobyard.protocols.glidemq.keyspace.key_names import (
    WORKER,
    KeyName,
    parse_key,
    refuse_family,
    side_kind,
)
from jobyard.protocols.glidemq.keyspace.key_parts import text_of
from jobyard.protocols.glidemq.keyspace.stored import SideKeyed
from jobyard.protocols.glidemq.keyspace.views.streams import Husks
from jobyard.protocols.glidemq.maintenance import Promoter, Register
from jobyard.protocols.glidemq.recent_events import recall
from jobyard.protocols.shared_limits import MEMORY_DEFAULT, Guard

if TYPE_CHECKING:
    from jobyard.engine.state.yard import Yard
    from jobyard.protocols.glidemq.keyspace.key import Keyed, Projections
    from jobyard.protocols.glidemq.session import GlidemqSession

# What clients take for the version of the server: the commands it knows are of that age.
REDIS_VERSION: Final = "7.2.4"


# What commands of all connections may take in a turn, for each unit that its tasks have. A
# connection has a quarter of that in any case, which is more than it sends of usual ones at once.
TURN_NS: Final = 2000


@mypyc_attr(allow_interpreted_subclasses=True)
class Facts:
    """What INFO tells of the process and the machine."""

    def pid(self) -> int:
        """Return the process id."""
        raise NotImplementedError

    def port(self) -> int:
        """Return the port of this door, 0 if it has none."""
        raise NotImplementedError

    def memory_bytes(self) -> int:
        """Return the resident memory of the process."""
        raise NotImplementedError

    def cpu_times(self) -> tuple[float, float]:
        """Return seconds of processor time in user and kernel mode."""
        raise NotImplementedError

    def machine(self) -> tuple[str, str, str]:
        """Return host name, version of the operating system, and hardware platform."""
        raise NotImplementedError

    def run_id(self) -> str:
        """Return 40 hex digits that no other run of the server has."""
        raise NotImplementedError


@final
class GlidemqDoor(Register):
    """State common to the glide-mq sessions of one server."""

    def __init__(self, yard: Yard, facts: Facts, now_ms: i64) -> None:
        self.yard = yard
        self.facts = facts
        self.started_ms: i64 = now_ms
        self.is_draining: bool = False
        self.guard = Guard(MEMORY_DEFAULT)
        # What is kept of the password; empty if nobody is asked for one.
        self.password: bytes = b""
        # Whether answers wait for the disk.
        self.is_synced: bool = True
        self.events = Events(yard)
        recall(self.events, yard)
        self.sessions: dict[int, GlidemqSession] = {}
        self.promoter = Promoter(yard, self)
        # By the key of deduplication entries: how many there may be before old ones are dropped.
        self.dedup_marks: dict[bytes, int] = {}
        self.husks = Husks()
        self.projections: Projections = QueueProjections(
            yard, self.events, self.promoter.groups, self.husks
        )
        self.sessions_total: i64 = 0
        self.commands_count: i64 = 0
        self.errors_count: i64 = 0
        self.read_bytes: i64 = 0
        # What commands took in a turn, by their prices, and which turn that was.
        self._turn: i64 = 0
        self._turn_ns: i64 = 0

    def room_ns(self) -> i64:
        """Return how long the commands of a connection may take before it lets others go first."""
        tasks = self.yard.tasks
        if self._turn != tasks.turns_count:
            self._turn = tasks.turns_count
            self._turn_ns = 0
        most = tasks.units_per_turn * TURN_NS
        return max(most - self._turn_ns, most // 4)

    def spend(self, work_ns: i64) -> None:
        """Count what the commands of a connection took."""
        self._turn_ns += work_ns

    def is_open(self, session_id: int) -> bool:
        """Tell whether a session is still there."""
        return session_id in self.sessions

    def sign_off(self, key: bytes, now_ms: i64) -> None:
        """Let a worker go whose registration was deleted: that is the last it does."""
        name = parse_key(key)
        if name.family != WORKER:
            return
        consumer = text_of(name.rest)
        for session in self.sessions.values():
            session.stand_aside(name.queue, consumer)
        readers = self.promoter.groups.get(name.queue)
        reader = None if readers is None else self.sessions.get(readers.pop(consumer, -1))
        if reader is not None:
            reader.take_back(name.queue, consumer, now_ms)

    def is_right(self, password: bytes) -> bool:
        """Tell whether this is the password, in the same time whatever is said."""
        return is_digest_of(password, self.password)

    def keyed(self, key: bytes, now_ms: i64) -> Keyed:
        """Return the key of that name, there or not; refuse a name that no key has."""
        name = parse_key(key)
        found = self._find(name, now_ms)
        if found is None:
            raise refuse_family(name)
        return found

    def known(self, key: bytes, now_ms: i64) -> Keyed | None:
        """Return the key of that name, there or not; None if no key of a queue is called so."""
        return self._find(parse_key(key), now_ms)

    def _find(self, name: KeyName, now_ms: i64) -> Keyed | None:
        shown = self.projections.find(name, now_ms)
        if shown is not None:
            return shown
        kind = side_kind(name)
        return SideKeyed(self.yard, name.key, kind, now_ms) if kind != 0 else None

    def wall_ms(self, steady_ms: i64) -> i64:
        """Return the wall time of a moment."""
        return steady_ms + self.yard.journal.wall_offset_ms
