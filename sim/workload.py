"""The contents of a run: the swarm's choices for one seed, and the commands clients send.

Every seed draws its own limits, kinds of operation, kinds of fault and weights, so that runs differ
in kind and not only in order. A command is written once, as the bytes a client sends and as the
meaning for the model; nothing here knows the expected answer, except for commands that are wrong in
every state.
"""

from random import Random
from typing import Final

# Kinds of command, the index of the model's method for each.
PUT_LINE: Final = 0
PUT: Final = 1
RESERVE: Final = 2
RESERVE_WITH_TIMEOUT: Final = 3
RESERVE_JOB: Final = 4
DELETE: Final = 5
RELEASE: Final = 6
BURY: Final = 7
KICK: Final = 8
KICK_JOB: Final = 9
TOUCH: Final = 10
PEEK: Final = 11
PEEK_READY: Final = 12
PEEK_DELAYED: Final = 13
PEEK_BURIED: Final = 14
USE: Final = 15
WATCH: Final = 16
IGNORE: Final = 17
STATS: Final = 18
STATS_JOB: Final = 19
STATS_TUBE: Final = 20
LIST_TUBES: Final = 21
LIST_TUBE_USED: Final = 22
LIST_TUBES_WATCHED: Final = 23
PAUSE_TUBE: Final = 24
QUIT: Final = 25
WRONG: Final = 26
TOO_BIG_LINE: Final = 27

# Which counter of `stats` a command increments, once its line has arrived.
COUNTED: Final = {
    PUT_LINE: "put",
    TOO_BIG_LINE: "put",
    PEEK: "peek",
    PEEK_READY: "peek-ready",
    PEEK_DELAYED: "peek-delayed",
    PEEK_BURIED: "peek-buried",
    RESERVE: "reserve",
    RESERVE_WITH_TIMEOUT: "reserve-with-timeout",
    DELETE: "delete",
    RELEASE: "release",
    USE: "use",
    WATCH: "watch",
    IGNORE: "ignore",
    BURY: "bury",
    KICK: "kick",
    TOUCH: "touch",
    STATS: "stats",
    STATS_JOB: "stats-job",
    STATS_TUBE: "stats-tube",
    LIST_TUBES: "list-tubes",
    LIST_TUBE_USED: "list-tube-used",
    LIST_TUBES_WATCHED: "list-tubes-watched",
    PAUSE_TUBE: "pause-tube",
}

JOB_SIZE_MAX: Final = 20_000
_FILLER: Final = bytes(33 + i % 90 for i in range(JOB_SIZE_MAX + 512))
# Sizes on both sides of INLINE_BODY_MAX, where the body changes its place in a batch.
_EDGE_SIZES: Final = (4095, 4096, 4097, JOB_SIZE_MAX)

_WRONG: Final = (
    (b"\r\n", b"UNKNOWN_COMMAND\r\n"),
    (b"put\r\n", b"UNKNOWN_COMMAND\r\n"),
    (b"Reserve\r\n", b"UNKNOWN_COMMAND\r\n"),
    (b"put 1 2 x 4\r\n", b"BAD_FORMAT\r\n"),
    (b"delete 1 \r\n", b"BAD_FORMAT\r\n"),
    (b"delete 99999999999999999999\r\n", b"BAD_FORMAT\r\n"),
    (b"release 1 4294967296 0\r\n", b"BAD_FORMAT\r\n"),
    (b"reserve-with-timeout\r\n", b"BAD_FORMAT\r\n"),
    (b"use -tube\r\n", b"BAD_FORMAT\r\n"),
    (b"watch a b\r\n", b"BAD_FORMAT\r\n"),
    (b"stats\0\r\n", b"BAD_FORMAT\r\n"),
    (b"x" * 700 + b"\r\n", b"BAD_FORMAT\r\n"),
)


class Command:
    """One command, or the first line of a put: its meaning without its bytes."""

    __slots__ = ("a", "b", "body", "c", "kind", "text")

    def __init__(
        self, kind: int, a: int = 0, b: int = 0, c: int = 0, text: str = "", body: bytes = b""
    ) -> None:
        self.kind = kind
        self.a = a
        self.b = b
        self.c = c
        self.text = text
        self.body = body

    def __repr__(self) -> str:
        return f"{self.kind}({self.a} {self.b} {self.c} {self.text} {self.body[:20]!r})"


class Swarm:
    """The choices of one seed."""

    def __init__(self, rng: Random) -> None:
        pick = rng.choice
        self.segment_size = pick((4096, 8192, 16384, 65536))
        self.is_os = rng.random() < 0.35
        self.body_budget = pick((0, 3000, 40_000, 1 << 30))
        self.clients_max = pick((1, 2, 3, 5, 8))
        self.tubes = ["default", *[f"tube-{i}" for i in range(1, pick((1, 2, 4, 8)))]]
        self.steps_count = pick((200, 350, 500))
        self.pipeline_max = pick((1, 2, 6))
        self.jobs_aimed = pick((3, 12, 40))
        self.delays = pick(((0,), (0, 0, 0, 1, 2), (0, 1, 5, 60)))
        self.ttrs = pick(((60,), (0, 1, 2, 60), (2, 3)))
        self.ranks = pick(((0,), (0, 1, 1024), (0, 5, 1023, 1024, 4294967295)))
        self.long_odds = pick((0.0, 0.05, 0.3))
        self.small_max = pick((20, 300, 1500))
        self.commands = _weigh(rng, _COMMANDS)
        self.faults = {name for name, odds in _FAULTS if rng.random() < odds}
        if "full" in self.faults:
            # Less would not hold what clients do while one compaction runs.
            self.segment_size = max(self.segment_size, 16384)
        # How active each part of the world is.
        self.commit_odds = pick((0.1, 0.3, 0.6))
        self.is_sync_late = rng.random() < 0.3
        self.compaction_odds = pick((0.05, 0.3, 0.8))
        self.cut_odds = pick((0.0, 0.2, 0.7))
        self.crash_odds = pick((0.005, 0.015, 0.04))
        self.leap_odds = pick((0.02, 0.1))
        # Drawn from a separate generator, so that older seeds keep their runs.
        beside = Random()
        beside.setstate(rng.getstate())
        self.events_bytes = self.segment_size * beside.choice((0, 0, 0, 0, 0, 1, 4, 1000))
        self.events_ms = beside.choice((100, 20_000, 3_600_000))
        # Units a turn has for long work; 0 for no limit.
        self.units_per_turn = beside.choice((0, 0, 12))

    def describe(self) -> str:
        """Return the choices that matter most to a reader of a failure."""
        kind = "os" if self.is_os else "sync"
        faults = " ".join(sorted(self.faults))
        sizes = f"segments of {self.segment_size}, body budget {self.body_budget}"
        history = f"history of {self.events_bytes} bytes, {self.events_ms} ms"
        return f"class {kind}, {sizes}, {history}, faults: {faults}"


_FAULTS: Final = (
    ("power", 0.6),
    ("kill", 0.4),
    ("midway", 0.5),
    ("failed-sync", 0.3),
    ("failed-write", 0.25),
    ("failed-read", 0.25),
    ("full", 0.3),
    ("slow-sync", 0.3),
    ("clock", 0.35),
    ("network", 0.5),
    ("damage", 0.4),
    ("freeze", 0.3),
    ("many-ids", 0.3),
)

_COMMANDS: Final = (
    (PUT, 14.0),
    (RESERVE, 2.0),
    (RESERVE_WITH_TIMEOUT, 8.0),
    (RESERVE_JOB, 1.0),
    (DELETE, 8.0),
    (RELEASE, 3.0),
    (BURY, 2.0),
    (KICK, 1.0),
    (KICK_JOB, 0.7),
    (TOUCH, 1.0),
    (PEEK, 1.0),
    (PEEK_READY, 0.4),
    (PEEK_DELAYED, 0.4),
    (PEEK_BURIED, 0.4),
    (USE, 1.5),
    (WATCH, 1.5),
    (IGNORE, 0.8),
    (STATS, 0.2),
    (STATS_JOB, 0.7),
    (STATS_TUBE, 0.4),
    (LIST_TUBES, 0.3),
    (LIST_TUBE_USED, 0.1),
    (LIST_TUBES_WATCHED, 0.2),
    (PAUSE_TUBE, 0.4),
    (QUIT, 0.1),
    (WRONG, 0.3),
)


def _weigh(rng: Random, table: tuple[tuple[int, float], ...]) -> tuple[list[int], list[float]]:
    """Drop some kinds and stress others; kinds that put and remove jobs always stay."""
    kinds: list[int] = []
    totals: list[float] = []
    total = 0.0
    for kind, weight in table:
        if kind not in (PUT, RESERVE_WITH_TIMEOUT, DELETE) and rng.random() < 0.25:
            continue
        total += weight * (0.3 + 2 * rng.random())
        kinds.append(kind)
        totals.append(total)
    return kinds, totals


def draw(rng: Random, weighed: tuple[list[int], list[float]]) -> int:
    """Draw one kind by weight."""
    kinds, totals = weighed
    mark = rng.random() * totals[-1]
    for kind, total in zip(kinds, totals, strict=True):
        if mark < total:
            return kind
    return kinds[-1]


class Author:
    """Writes commands, as bytes and as meaning."""

    def __init__(self, rng: Random, swarm: Swarm) -> None:
        self._rng = rng
        self._swarm = swarm
        self._bodies_count = 0

    def write(self, kind: int, held: list[int], known: list[int]) -> tuple[bytes, list[Command]]:
        """Return one command of a kind; a put has two meanings, that of its line and its own.

        `held` are jobs the client may hold, `known` others that may exist.
        """
        if kind == PUT:
            return self._put()
        if kind == WRONG:
            data, answer = _WRONG[int(self._rng.random() * len(_WRONG))]
            return data, [Command(WRONG, body=answer)]
        if kind in _BARE:
            return _BARE[kind], [Command(kind)]
        if kind in _NAMED:
            return self._with_tube(kind)
        if kind in (KICK, RESERVE_WITH_TIMEOUT):
            number = int(self._rng.random() * 4)
            return _NUMBERED[kind] + b"%d\r\n" % number, [Command(kind, number)]
        return self._with_job(kind, self._job(held, known))

    def _with_tube(self, kind: int) -> tuple[bytes, list[Command]]:
        tubes = self._swarm.tubes
        tube = tubes[int(self._rng.random() * len(tubes))]
        command = Command(kind, text=tube)
        if kind == PAUSE_TUBE:
            command.a = int(self._rng.random() * 4)
            return b"pause-tube %s %d\r\n" % (tube.encode(), command.a), [command]
        return _NAMED[kind] + tube.encode() + b"\r\n", [command]

    def _with_job(self, kind: int, job: int) -> tuple[bytes, list[Command]]:
        rng = self._rng
        word = _NUMBERED[kind]
        if kind == RELEASE:
            rank, delay = rng.choice(self._swarm.ranks), rng.choice(self._swarm.delays)
            return word + b"%d %d %d\r\n" % (job, rank, delay), [Command(kind, job, rank, delay)]
        if kind == BURY:
            rank = rng.choice(self._swarm.ranks)
            return word + b"%d %d\r\n" % (job, rank), [Command(kind, job, rank)]
        return word + b"%d\r\n" % job, [Command(kind, job)]

    def _job(self, held: list[int], known: list[int]) -> int:
        rng = self._rng
        if held and rng.random() < 0.7:
            return held[int(rng.random() * len(held))]
        if known and rng.random() < 0.95:
            return known[int(rng.random() * len(known))]
        return int(rng.random() * 5)

    def _put(self) -> tuple[bytes, list[Command]]:
        rng = self._rng
        swarm = self._swarm
        rank = rng.choice(swarm.ranks)
        delay = rng.choice(swarm.delays)
        ttr = rng.choice(swarm.ttrs)
        body = self._body()
        line = b"put %d %d %d %d\r\n" % (rank, delay, ttr, len(body))
        chance = rng.random()
        if chance < 0.01:
            size = JOB_SIZE_MAX + 1 + int(rng.random() * 100)
            data = b"put 0 0 1 %d\r\n%s\r\n" % (size, _FILLER[:size])
            answer = Command(WRONG, len(data), body=b"JOB_TOO_BIG\r\n")
            return data, [Command(TOO_BIG_LINE, data.index(b"\n") + 1), answer]
        begun = Command(PUT_LINE, len(line))
        if chance < 0.02:
            return line + body + b"\n\r", [begun, Command(WRONG, body=b"EXPECTED_CRLF\r\n")]
        return line + body + b"\r\n", [begun, Command(PUT, rank, delay, ttr, body=body)]

    def _body(self) -> bytes:
        rng = self._rng
        swarm = self._swarm
        self._bodies_count += 1
        size = int(rng.random() * rng.random() * swarm.small_max)
        if rng.random() < swarm.long_odds:
            size = int(rng.random() * JOB_SIZE_MAX)
            if rng.random() < 0.3:
                # Two of the last kind do not quite fit into one segment.
                half = swarm.segment_size // 2 - int(rng.random() * 400)
                size = min(rng.choice((*_EDGE_SIZES, half)), JOB_SIZE_MAX)
        # All bodies differ unless they are shorter than their own number.
        start = self._bodies_count % 512
        return (b"%d:" % self._bodies_count + _FILLER[start : start + size])[:size]


_BARE: Final = {
    RESERVE: b"reserve\r\n",
    PEEK_READY: b"peek-ready\r\n",
    PEEK_DELAYED: b"peek-delayed\r\n",
    PEEK_BURIED: b"peek-buried\r\n",
    STATS: b"stats\r\n",
    LIST_TUBES: b"list-tubes\r\n",
    LIST_TUBE_USED: b"list-tube-used\r\n",
    LIST_TUBES_WATCHED: b"list-tubes-watched\r\n",
    QUIT: b"quit\r\n",
}
_NAMED: Final = {
    USE: b"use ",
    WATCH: b"watch ",
    IGNORE: b"ignore ",
    STATS_TUBE: b"stats-tube ",
    PAUSE_TUBE: b"pause-tube ",
}
_NUMBERED: Final = {
    RESERVE_WITH_TIMEOUT: b"reserve-with-timeout ",
    RESERVE_JOB: b"reserve-job ",
    DELETE: b"delete ",
    RELEASE: b"release ",
    BURY: b"bury ",
    KICK: b"kick ",
    KICK_JOB: b"kick-job ",
    TOUCH: b"touch ",
    PEEK: b"peek ",
    STATS_JOB: b"stats-job ",
}
