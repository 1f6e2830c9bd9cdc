"""`python -m bench.libraries`: our codecs beside the libraries that could replace them.

Each row does the same work both ways in one process, in turn, and shows the best of several
rounds in microseconds and their ratio. What each way checks beyond the other is the subject of the
decision pages 38 to 41, not of this table. Run it on the compiled build: `make libraries`.
"""

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, NamedTuple

import cronsim
import h11
import httptools
import msgspec
import wsproto.connection
from wsproto.events import Message

from jobyard import build
from jobyard.model.timetable import Timetable
from jobyard.wire.http.request import HttpReader
from jobyard.wire.http.websocket import WsReader
from jobyard.wire.json.read import read_object, read_objects
from jobyard.wire.json.write import encode

__all__ = ["ROWS", "Row", "measure"]

ROUNDS: Final = 15
ROUND_S: Final = 0.02
RECORDS_MAX: Final = 10_000

Work = Callable[[], object]


class Row(NamedTuple):
    """One piece of work, our way and the library's."""

    name: str
    ours: Work
    library: str
    theirs: Work


class _Record(msgspec.Struct):
    data: msgspec.Raw
    tag: str | None = None


class _Write(msgspec.Struct):
    records: list[_Record]


def _body(count: int) -> bytes:
    record = b'{"data": {"to": "a@example.org", "text": "%b"}, "tag": "t1"}' % (b"x" * 60)
    return b'{"records": [' + b", ".join([record] * count) + b"]}"


def _read_ours(body: bytes) -> Work:
    def work() -> list[tuple[bytes | None, str | None]]:
        fields = read_object(body, 0, len(body))
        assert fields is not None
        assert not fields.has_twins()
        start, end = fields.find(b"records")
        records = read_objects(body, start, end, RECORDS_MAX)
        assert records is not None
        return [(record.raw(b"data"), record.text(b"tag")) for record in records]

    return work


def _read_theirs(body: bytes) -> Work:
    decoder = msgspec.json.Decoder(_Write)

    def work() -> list[tuple[bytes, str | None]]:
        return [(bytes(record.data), record.tag) for record in decoder.decode(body).records]

    return work


ANSWER: Final = {
    "topic": "mails",
    "seqs": list(range(100)),
    "performance": {"server_ms": 0.125, "sync_ms": 0.5},
    "head": 12345,
    "ok": True,
}
REQUEST: Final = (
    b"POST /v0/topics/mails HTTP/1.1\r\nHost: localhost:6790\r\nUser-Agent: client/1.0\r\n"
    b"Accept: */*\r\nContent-Type: application/json\r\nContent-Length: 40\r\n"
    b"X-Request-Id: %08d\r\n\r\n" + b"x" * 40
)


def _http_ours(*, is_alike: bool) -> Work:
    reader = HttpReader(1 << 20)
    texts = _requests(is_alike=is_alike)

    def work() -> int:
        reader.feed(next(texts))
        reader.requests.clear()
        return 1

    return work


def _requests(*, is_alike: bool) -> "_Requests":
    return _Requests(is_alike=is_alike)


class _Requests:
    """Requests without end, all the same or each with another head."""

    def __init__(self, *, is_alike: bool) -> None:
        self._texts = [REQUEST % (0 if is_alike else at) for at in range(1000)]
        self._at = 0

    def __next__(self) -> bytes:
        self._at = (self._at + 1) % len(self._texts)
        return self._texts[self._at]


class _Callbacks:
    def __init__(self) -> None:
        self.headers: dict[bytes, bytes] = {}
        self.body = b""
        self.is_complete = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name] = value

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.is_complete = True


def _http_httptools() -> Work:
    texts = _requests(is_alike=False)

    def work() -> bool:
        callbacks = _Callbacks()
        httptools.HttpRequestParser(callbacks).feed_data(next(texts))
        return callbacks.is_complete

    return work


def _http_h11() -> Work:
    texts = _requests(is_alike=False)

    def work() -> object:
        connection = h11.Connection(h11.SERVER)
        connection.receive_data(next(texts))
        event: object = None
        while not isinstance(event, h11.EndOfMessage):
            event = connection.next_event()
        return event

    return work


def _frames() -> bytes:
    client = wsproto.connection.Connection(wsproto.connection.ConnectionType.CLIENT)
    return b"".join(client.send(Message(data="x" * 100)) for _ in range(100))


def _frames_ours(frames: bytes) -> Work:
    def work() -> int:
        reader = WsReader(1 << 20)
        reader.feed(frames)
        return len(reader.messages)

    return work


def _frames_theirs(frames: bytes) -> Work:
    def work() -> int:
        server = wsproto.connection.Connection(wsproto.connection.ConnectionType.SERVER)
        server.receive_data(frames)
        return sum(1 for _ in server.events())

    return work


def _cron_ours(expression: str) -> Work:
    timetable = Timetable(expression, "UTC")
    start_ms = 1_790_000_000_000

    def work() -> int:
        at_ms = start_ms
        for _ in range(10):
            at_ms = timetable.next_after(at_ms)
        return at_ms

    return work


def _cron_theirs(expression: str) -> Work:
    start = datetime.fromtimestamp(1_790_000_000, UTC)

    def work() -> object:
        moments = cronsim.CronSim(expression, start)
        for _ in range(9):
            next(moments)
        return next(moments)

    return work


ROWS: Final = (
    Row("JSON: read a write of 1 record", _read_ours(_body(1)), "msgspec", _read_theirs(_body(1))),
    Row(
        "JSON: read a write of 100 records",
        _read_ours(_body(100)),
        "msgspec",
        _read_theirs(_body(100)),
    ),
    Row(
        "JSON: write an answer",
        lambda: encode(ANSWER),
        "msgspec",
        lambda: msgspec.json.encode(ANSWER),
    ),
    Row("HTTP: a request, new head", _http_ours(is_alike=False), "httptools", _http_httptools()),
    Row("HTTP: a request, same head", _http_ours(is_alike=True), "httptools", _http_httptools()),
    Row("HTTP: a request, new head", _http_ours(is_alike=False), "h11", _http_h11()),
    Row(
        "WebSocket: 100 messages of 100 bytes",
        _frames_ours(_frames()),
        "wsproto",
        _frames_theirs(_frames()),
    ),
    Row(
        "cron: 10 slots of */5 * * * *",
        _cron_ours("*/5 * * * *"),
        "cronsim",
        _cron_theirs("*/5 * * * *"),
    ),
    Row(
        "cron: 10 slots of 0 0 29 2 *",
        _cron_ours("0 0 29 2 *"),
        "cronsim",
        _cron_theirs("0 0 29 2 *"),
    ),
)


def measure(work: Work, round_s: float, rounds: int) -> float:
    """Return the microseconds of the best round."""
    best = float("inf")
    for _ in range(rounds):
        count = 0
        begin = time.perf_counter()
        while time.perf_counter() - begin < round_s:
            work()
            count += 1
        best = min(best, (time.perf_counter() - begin) / count)
    return best * 1e6


def main() -> int:
    """Print the table."""
    write = sys.stdout.write
    write(f"jobyard {build.kind()}, best of {ROUNDS} rounds, microseconds\n")
    write(f"{'work':40}  {'ours':>8}  {'library':>9}  {'theirs':>8}  {'theirs/ours':>11}\n")
    for row in ROWS:
        ours = measure(row.ours, ROUND_S, ROUNDS)
        theirs = measure(row.theirs, ROUND_S, ROUNDS)
        write(
            f"{row.name:40}  {ours:8.2f}  {row.library:>9}  {theirs:8.2f}  {theirs / ours:11.2f}\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
