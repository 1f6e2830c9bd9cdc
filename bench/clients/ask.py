"""Queries to a bunqueue server: its own job counts, for comparison with the load generator's count.

One connection for each query. Knows two commands and their framing, no load and no
figures. A server that refuses to answer, or answers something else, is a BenchError.
"""

import socket
import struct
from typing import Final, TypeVar

import msgspec

from bench.load import BenchError

__all__ = ["Ledger", "read_ledger"]

QUEUE: Final = "bench"  # where the load generator works
ANSWER_SECONDS_MAX: Final = 120.0
HEAD: Final = struct.Struct(">I")
Answer = TypeVar("Answer")


class Totals(msgspec.Struct, rename="camel"):
    """Jobs since the start of the server. JavaScript has no integers, so they may be floats."""

    total_pushed: float
    total_pulled: float
    total_completed: float


class MetricsAnswer(msgspec.Struct):
    """The fields of a Metrics answer that are used here."""

    metrics: Totals


class CountsAnswer(msgspec.Struct):
    """The fields of a GetJobCounts answer that are used here: jobs by state."""

    counts: dict[str, float]


class Ledger(msgspec.Struct, frozen=True):
    """The server's counts: jobs since its start, and jobs of the queue that are not completed."""

    pushed: int
    pulled: int
    completed: int
    standing: int


def read_ledger(port: int) -> Ledger:
    """Ask the server that listens on `port` for its counts."""
    totals = _ask(port, MetricsAnswer, cmd="Metrics").metrics
    counts = _ask(port, CountsAnswer, cmd="GetJobCounts", queue=QUEUE).counts
    return Ledger(
        pushed=int(totals.total_pushed),
        pulled=int(totals.total_pulled),
        completed=int(totals.total_completed),
        standing=int(sum(counts.values()) - counts.get("completed", 0)),
    )


def _ask(port: int, kind: type[Answer], **command: str) -> Answer:
    asked = msgspec.msgpack.encode(command)
    with (
        socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS_MAX) as peer,
        peer.makefile("rb") as answers,
    ):
        peer.sendall(HEAD.pack(len(asked)) + asked)
        head = answers.read(HEAD.size)
        answer = answers.read(HEAD.unpack(head)[0]) if len(head) == HEAD.size else b""
    try:
        return msgspec.msgpack.decode(answer, type=kind)
    except msgspec.MsgspecError as error:
        raise BenchError(f"unexpected answer to {command}: {answer!r}: {error}") from error
