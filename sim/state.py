"""The nouns of the model: jobs, tubes, connections, and what a restart may bring back of a job.

No behaviour except the accounting of each object; the effects of commands are in `model`.
"""

from typing import Final

from sim.beanstalk.memory import READY, Entry
from sim.workload import Command

FOREVER: Final = 1 << 61
# A statistic whose value only the yard can know.
UNKNOWN: Final = "?"


class Violation(Exception):
    """The yard broke an invariant, which the first argument names."""

    def __init__(self, invariant: str, story: str) -> None:
        super().__init__(f"{invariant}: {story}")
        self.invariant = invariant


class ModelJob:
    """One job."""

    def __init__(self, number: int, tube: "Tube", command: Command, now: int) -> None:
        self.id = number
        self.tube = tube
        self.rank = command.a
        self.delay_ms = command.b * 1000
        self.ttr_ms = max(1, command.c) * 1000
        self.body = command.body
        self.state = READY
        self.due = now + self.delay_ms
        self.created = now
        self.created_walls: set[int] = set()
        self.holder: Client | None = None
        self.deadline = 0
        self.lease = 0
        self.reserves = self.timeouts = self.releases = self.buries = self.kicks = 0
        # Its place among all burials.
        self.ending = 0
        self.history: list[Entry] = []
        # The last record that answers about this job wait for.
        self.waited = 0


class Tube:
    """One tube; sorted lists of (rank, id) and (due, id), and ids in order of burial."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready: list[tuple[int, int]] = []
        self.delayed: list[tuple[int, int]] = []
        self.buried: list[int] = []
        self.leased_count = 0
        self.waiters: list[Client] = []
        self.users_count = 0
        self.watchers_count = 0
        self.pause_until = 0
        self.pause_ms = 0
        self.total_count = 0
        self.deleted_count = 0
        self.pauses_count = 0

    def jobs_count(self) -> int:
        """Return the number of jobs in any state."""
        return len(self.ready) + len(self.delayed) + len(self.buried) + self.leased_count


class Client:
    """One connection: what it did, what it waits for, and answers that are not checked yet."""

    def __init__(self, number: int, default: Tube) -> None:
        self.number = number
        self.used = default
        self.watched = [default]
        default.users_count += 1
        default.watchers_count += 1
        self.held: dict[int, ModelJob] = {}
        self.commands: list[Command] = []
        self.observed = b""
        self.said_size = 0
        # (size of all answers up to this one, record it waits for, id it discloses).
        self.promises: list[tuple[int, int, int]] = []
        self.is_waiting = False
        self.until = 0
        self.soon = 0
        self.arrival = 0
        self.is_finished = False
        self.is_ended = False
        self.is_producer = False
        self.is_worker = False

    def say(self, answer: bytes, awaited: int, disclosed: int = 0) -> None:
        """Check the next answer of the yard."""
        if not self.observed.startswith(answer):
            got = self.observed[: len(answer) + 40]
            raise Violation("reply", f"client {self.number}: expected {answer!r}, got {got!r}")
        self.observed = self.observed[len(answer) :]
        self.said_size += len(answer)
        self.promises.append((self.said_size, awaited, disclosed))

    def say_facts(self, facts: dict[str, str], awaited: int) -> None:
        """Check an answer of `key: value` lines; values that only the yard can know are skipped."""
        head, _, rest = self.observed.partition(b"\r\n")
        size = int(head[3:]) if head.startswith(b"OK ") and head[3:].isdigit() else -1
        text = rest[:size]
        if size < 0 or not text.startswith(b"---\n") or rest[size : size + 2] != b"\r\n":
            raise Violation("reply", f"client {self.number}: no statistics: {self.observed[:80]!r}")
        told = dict(line.split(": ", 1) for line in text.decode().splitlines()[1:])
        told = {key: value for key, value in told.items() if facts.get(key) != UNKNOWN}
        known = {key: value for key, value in facts.items() if value != UNKNOWN}
        if told != known:
            wrong = [key for key in known | told if told.get(key) != known.get(key)]
            story = {key: (known.get(key), told.get(key)) for key in wrong}
            raise Violation("counters", f"client {self.number}: (expected, found) {story}")
        self.say(head + b"\r\n" + text + b"\r\n", awaited)

    def soonest(self) -> int:
        """Return the first deadline of the jobs it holds."""
        return min((job.deadline for job in self.held.values()), default=FOREVER)
