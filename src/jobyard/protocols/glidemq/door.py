"""State shared by all glide-mq connections: the yard, the password, the keys, counters of INFO."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr

from jobyard.model.secrets import is_digest_of
from jobyard.protocols.glidemq.events import QueueEvents
from jobyard.protocols.glidemq.keyspace.finder import QueueProjections
from jobyard.protocols.glidemq.keyspace.key_names import (
    WORKER_FAMILY,
    KeyName,
    parse_key,
    refuse_family,
    stored_kind,
)
from jobyard.protocols.glidemq.keyspace.key_parts import text_of
from jobyard.protocols.glidemq.keyspace.stored import StoredKey
from jobyard.protocols.glidemq.keyspace.views.streams import RecentlyAcked
from jobyard.protocols.glidemq.maintenance import Promoter, Register
from jobyard.protocols.glidemq.recent_events import recall
from jobyard.protocols.shared_limits import MEMORY_DEFAULT, SharedLimits

if TYPE_CHECKING:
    from jobyard.engine.state.yard import Yard
    from jobyard.protocols.glidemq.client import Client
    from jobyard.protocols.glidemq.keyspace.key import Projections, RedisKey

# The version reported to clients: the commands supported here are those of that version.
REDIS_VERSION: Final = "7.2.4"


# Budget for the commands of all connections in a turn, for each unit that tasks have. A connection
# always gets a quarter of it, which is more than a usual batch of commands needs.
TURN_NS: Final = 1500


@mypyc_attr(allow_interpreted_subclasses=True)
class GlidemqFacts:
    """Facts about the process and the machine that INFO reports."""

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
        """Return 40 hex digits that are unique to this run of the server."""
        raise NotImplementedError


@final
class GlidemqDoor(Register):
    """State shared by the glide-mq sessions of one server."""

    def __init__(self, yard: Yard, facts: GlidemqFacts, now_ms: i64) -> None:
        self.yard = yard
        self.facts = facts
        self.started_ms: i64 = now_ms
        self.is_draining: bool = False
        self.shared_limits = SharedLimits(MEMORY_DEFAULT)
        # Digest of the password; empty if none is required.
        self.password: bytes = b""
        # Whether replies wait for the disk.
        self.is_synced: bool = True
        self.events = QueueEvents(yard)
        recall(self.events, yard)
        self.sessions: dict[int, Client] = {}
        self.promoter = Promoter(yard, self)
        # By the key of deduplication entries: how many there may be before old ones are dropped.
        self.dedup_marks: dict[bytes, int] = {}
        self.recently_acked = RecentlyAcked()
        self.projections: Projections = QueueProjections(
            yard, self.events, self.promoter.groups, self.recently_acked
        )
        self.sessions_total: i64 = 0
        self.commands_count: i64 = 0
        self.errors_count: i64 = 0
        self.read_bytes: i64 = 0
        # Cost of the commands run in a turn, and the number of that turn.
        self._turn: i64 = 0
        self._turn_ns: i64 = 0

    def room_ns(self) -> i64:
        """Return how long a connection's commands may run before it must yield to others."""
        tasks = self.yard.tasks
        if self._turn != tasks.turns_count:
            self._turn = tasks.turns_count
            self._turn_ns = 0
        most = tasks.units_per_turn * TURN_NS
        return max(most - self._turn_ns, most // 4)

    def spend(self, work_ns: i64) -> None:
        """Add the cost of a connection's commands to this turn."""
        self._turn_ns += work_ns

    def is_open(self, session_id: int) -> bool:
        """Return whether a session is still open."""
        return session_id in self.sessions

    def sign_off(self, key: bytes, now_ms: i64) -> None:
        """Sign off a worker whose registration was deleted: that is the last thing workers do."""
        name = parse_key(key)
        if name.family != WORKER_FAMILY:
            return
        consumer = text_of(name.rest)
        for session in self.sessions.values():
            session.stand_aside(name.queue, consumer)
        readers = self.promoter.groups.get(name.queue)
        reader = None if readers is None else self.sessions.get(readers.pop(consumer, -1))
        if reader is not None:
            reader.take_back(name.queue, consumer, now_ms)

    def is_right(self, password: bytes) -> bool:
        """Return whether this is the password, in constant time."""
        return is_digest_of(password, self.password)

    def keyed(self, key: bytes, now_ms: i64) -> RedisKey:
        """Return the key of that name, existing or not; refuse a name that no key can have."""
        name = parse_key(key)
        found = self._find(name, now_ms)
        if found is None:
            raise refuse_family(name)
        return found

    def known(self, key: bytes, now_ms: i64) -> RedisKey | None:
        """Return the key of that name, existing or not; None if the name belongs to no queue."""
        return self._find(parse_key(key), now_ms)

    def _find(self, name: KeyName, now_ms: i64) -> RedisKey | None:
        shown = self.projections.find(name, now_ms)
        if shown is not None:
            return shown
        kind = stored_kind(name)
        return StoredKey(self.yard, name.key, kind, now_ms) if kind != 0 else None

    def wall_ms(self, steady_ms: i64) -> i64:
        """Convert steady time to wall time."""
        return steady_ms + self.yard.journal.wall_offset_ms
