"""Subscribing groups compared with those of a Valkey: the same commands have the same answers."""

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import redis

from tests.support.servers.glidemq import Yard
from tests.support.servers.valkey import MISSING, find_valkey, running_valkey

ROOT: Final = Path(__file__).resolve().parents[3]
VALKEY: Final = find_valkey(ROOT)

pytestmark = pytest.mark.skipif(VALKEY is None, reason=MISSING)

GROUPS: Final = ("mails", "stock")
CONSUMERS: Final = ("c1", "c2")
STEPS: Final = 60


@pytest.fixture(scope="module")
def rival() -> Iterator[Any]:
    """A client of the Valkey."""
    assert VALKEY is not None
    with (
        running_valkey(VALKEY) as (host, port),
        redis.Redis(host=host, port=port, protocol=2) as client,
    ):
        yield client


def plain(client: Any, *words: object) -> Any:
    """Return an answer as it came, of an error its first word."""
    client.response_callbacks.clear()
    try:
        return client.execute_command(*words)
    except redis.ResponseError as error:
        return str(error).split(" ")[0]


class Pair:
    """One stream at both, with the same entries."""

    def __init__(self, ours: Any, rival: Any, base: str, seed: int) -> None:
        self.ours = ours
        self.rival = rival
        self.base = base
        self.stream = f"{base}stream"
        self.entries: list[str] = []
        self._random = random.Random(seed)

    def add(self) -> None:
        """Add a message here, and its entry there."""
        keys = [self.base + part for part in ("id", "stream", "scheduled", "events")]
        now = int(time.time() * 1000)
        words = ["mail", "{}", "{}", now, 0, 0, "", 0, "", *([0] * 7), ""]
        plain(self.ours, "FCALL", "glidemq_addJob", 4, *keys, *words)
        [[entry, fields]] = plain(self.ours, "XREVRANGE", self.stream, "+", "-", "COUNT", 1)
        assert plain(self.rival, "XADD", self.stream, entry, *fields) == entry
        self.entries.append(entry.decode())

    def command(self) -> list[object]:
        """Return any command of a group."""
        pick = self._random.choice
        group, consumer, entry, count = (
            pick(GROUPS),
            pick(CONSUMERS),
            pick(self.entries),
            pick("123"),
        )
        stream = self.stream
        start = pick(["0", entry])
        read: list[object] = ["XREADGROUP", "GROUP", group, consumer, "COUNT", count]
        just = pick([[], ["JUSTID"]])
        commands: list[list[object]] = [
            ["XGROUP", "CREATE", stream, group, pick(["$", "0", entry])],
            [*read, "STREAMS", stream, ">"],
            [*read, "STREAMS", stream, ">"],
            [*read, "NOACK", "STREAMS", stream, ">"],
            [*read, "STREAMS", stream, start],
            ["XACK", stream, group, entry, pick(self.entries)],
            ["XPENDING", stream, group],
            ["XPENDING", stream, group, pick(["-", entry, f"({entry}"]), "+", count],
            ["XCLAIM", stream, group, consumer, 0, entry, *just],
            ["XAUTOCLAIM", stream, group, consumer, 0, start, "COUNT", count, *just],
            ["XGROUP", "CREATECONSUMER", stream, group, consumer],
            ["XINFO", "GROUPS", stream],
            ["XINFO", "CONSUMERS", stream, group],
            ["XDEL", stream, entry],
        ]
        return pick(commands)


def told(words: list[object], answer: Any) -> Any:
    """Return an answer without times and without values that are calculated differently."""
    if not isinstance(answer, list):
        return answer
    if words[1] == "GROUPS":
        return sorted(row[:8] for row in answer if row[1] != b"workers")
    if words[1] == "CONSUMERS":
        return sorted(row[:4] for row in answer)
    if words[0] == "XPENDING" and len(words) > 3:
        return [[entry, consumer, times] for entry, consumer, _, times in answer]
    return answer


@pytest.mark.parametrize("seed", range(6))
def test_groups_answer_as_those_of_valkey(shared: Yard, rival: Any, queue: str, seed: int) -> None:
    with shared.client(protocol=2) as ours:
        pair = Pair(ours, rival, queue, seed)
        pair.add()
        for step in range(STEPS):
            if step % 6 == 5:
                pair.add()
            words = pair.command()
            answers = [told(words, plain(client, *words)) for client in (ours, rival)]
            assert answers[0] == answers[1], words
