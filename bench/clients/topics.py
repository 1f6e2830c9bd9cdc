"""A client of the topics API: creates topics, fills them, and checks what they hold.

One connection, one request at a time. Knows the paths and fields needed to prepare and check
a measurement, no load and no figures. Any answer but the expected one is a BenchError.
"""

import http.client
import json
from contextlib import closing
from typing import Final, TypeVar

import msgspec

from bench.load import BenchError

__all__ = ["DATA", "FILL_BATCH", "Topic", "TopicState", "records_body"]

ANSWER_SECONDS_MAX: Final = 120.0
DATA: Final = "x" * 100
FILL_BATCH: Final = 1000
NODE: Final = "w1"
Answer = TypeVar("Answer")


class TopicState(msgspec.Struct, frozen=True):
    """The fields of a topic's state that are used here."""

    head_seq: int
    count: int


class Page(msgspec.Struct, frozen=True):
    """The fields of the answer to diff that are used here."""

    records: list[dict[str, object]]
    next_from_seq: int


class Written(msgspec.Struct, frozen=True):
    """The fields of the answer to a write that are used here."""

    count: int
    head_seq: int


class Job(msgspec.Struct, frozen=True):
    """The fields of a claimed job that are used here."""

    seq: int = msgspec.field(name="$seq")


class Claimed(msgspec.Struct, frozen=True):
    """The fields of the answer to a claim that are used here."""

    claimed: list[Job]


class Acked(msgspec.Struct, frozen=True):
    """The fields of the answer to an ack that are used here."""

    acked: int


def records_body(count: int) -> bytes:
    """Return the body of a write of this many records."""
    return json.dumps({"records": [{"data": DATA}] * count}, separators=(",", ":")).encode()


class Topic:
    """One topic of the server that listens on `port`."""

    def __init__(self, port: int, name: str) -> None:
        self._port = port
        self.path = f"/v0/topics/{name}"

    def make(self, *, is_queue: bool = False, is_durable: bool = False) -> None:
        """Create the topic; durable answers wait for the disk."""
        config = {"type": "queue" if is_queue else "log", "durable": is_durable}
        self._ask("PUT", self.path, json.dumps(config).encode(), 201)

    def state(self) -> TopicState:
        """Return the state of the topic."""
        return self._read(self._ask("GET", f"{self.path}?touch=false"), TopicState)

    def fill(self, count: int) -> None:
        """Write `count` records, and check that they are there."""
        before = self.state()
        whole = records_body(FILL_BATCH)
        with closing(self._connect()) as connection:
            for begin in range(0, count, FILL_BATCH):
                size = min(FILL_BATCH, count - begin)
                body = whole if size == FILL_BATCH else records_body(size)
                path = f"{self.path}?return_seqs=false"
                answer = self._send(connection, "POST", path, body)
                if self._read(answer, Written).count != size:
                    raise BenchError(f"{size} records were written, the answer was {answer!r}")
        after = self.state()
        if (after.count, after.head_seq) != (before.count + count, before.head_seq + count):
            raise BenchError(f"{before} became {after} after {count} records were acknowledged")

    def work_off(self, count: int) -> None:
        """Claim and ack `count` jobs, which must be there."""
        claim = json.dumps({"node": NODE, "max": FILL_BATCH, "lease_ms": 60_000}).encode()
        with closing(self._connect()) as connection:
            while count > 0:
                answer = self._send(connection, "POST", f"{self.path}/claim", claim)
                seqs = [job.seq for job in self._read(answer, Claimed).claimed]
                ack = json.dumps({"node": NODE, "seqs": seqs}).encode()
                done = self._read(self._send(connection, "POST", f"{self.path}/ack", ack), Acked)
                if not seqs or done.acked != len(seqs):
                    raise BenchError(f"of {len(seqs)} claimed jobs {done.acked} were acked")
                count -= len(seqs)

    def has_history(self) -> bool:
        """Return whether the server keeps the history of jobs."""
        with closing(self._connect()) as connection:
            connection.request("GET", "/v0/topics/_events/seq?ts=0")
            answer = connection.getresponse()
            answer.read()
            return answer.status == 200

    def check_page(self, from_seq: int, limit: int) -> None:
        """Check that a page holds exactly the records that were written."""
        asked = json.dumps({"from_seq": from_seq, "limit": limit}).encode()
        page = self._read(self._ask("POST", f"{self.path}/diff", asked), Page)
        seqs = [record["$seq"] for record in page.records]
        expected = list(range(from_seq + 1, from_seq + limit + 1))
        is_whole = all(record["data"] == DATA for record in page.records)
        if seqs != expected or page.next_from_seq != from_seq + limit or not is_whole:
            raise BenchError(f"diff of {limit} from {from_seq} differs from the written: {seqs}")

    def _ask(self, method: str, path: str, body: bytes = b"", status: int = 200) -> bytes:
        with closing(self._connect()) as connection:
            return self._send(connection, method, path, body, status)

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self._port, timeout=ANSWER_SECONDS_MAX)

    @staticmethod
    def _send(
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: bytes,
        status: int = 200,
    ) -> bytes:
        headers = {"Content-Type": "application/json"} if body else {}
        connection.request(method, path, body or None, headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != status:
            raise BenchError(f"{method} {path} answered {answer.status}: {text[:200]!r}")
        return text

    @staticmethod
    def _read(answer: bytes, kind: type[Answer]) -> Answer:
        try:
            return msgspec.json.decode(answer, type=kind)
        except msgspec.MsgspecError as error:
            raise BenchError(f"invalid answer ({error}): {answer[:200]!r}") from error
