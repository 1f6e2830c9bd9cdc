"""A synchronous client of the bunqueue protocol, and servers for it.

Frames are length-prefixed MessagePack. Every received frame is scanned byte by byte: an
answer that holds a 64-bit integer fails at once, because common clients cannot read
one. Extension type 0 stands for JavaScript's `undefined` and is dropped on both sides. Answers
are plain dictionaries with values of any type, so they are `Any`.
"""

import contextlib
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from tests.support.servers.patience import PATIENCE_S
from tests.support.servers.processes import Process, start_doors

REPLY_S: Final = PATIENCE_S
SILENCE_S: Final = 0.05
FRAME_SIZE_MAX: Final = 64 * 1024 * 1024
INT64: Final = 0xD3
UINT64: Final = 0xCF
UNDEFINED: Final = msgspec.msgpack.Ext(0, b"\0")

Answer = dict[str, Any]

# If set to the host:port of the original, the tests run against it instead of Jobyard.
ORIGINAL: Final = os.environ.get("BUNQUEUE_ORIGINAL", "")

_HEADER_SIZES: Final = {
    0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4,
    0xD9: 1, 0xDA: 2, 0xDB: 4, 0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4,
}  # fmt: skip
_FIXED_SIZES: Final = {
    0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8,
    0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17,
}  # fmt: skip
_ARRAYS: Final = (0xDC, 0xDD)
_MAPS: Final = (0xDE, 0xDF)
_EXTENSIONS: Final = (0xC7, 0xC8, 0xC9)


class NoAnswer(AssertionError):
    """An answer, an event or the end of the connection did not come in time."""


def codes(payload: bytes) -> Iterator[int]:
    """Scan one MessagePack value and yield the first byte of every value in it."""
    at, left = 0, 1
    while left:
        code = payload[at]
        at += 1
        left -= 1
        yield code
        if code in _FIXED_SIZES:
            at += _FIXED_SIZES[code]
        elif code in _HEADER_SIZES:
            width = _HEADER_SIZES[code]
            size = int.from_bytes(payload[at : at + width], "big")
            at += width
            if code in _ARRAYS:
                left += size
            elif code in _MAPS:
                left += 2 * size
            else:
                at += size + (code in _EXTENSIONS)
        elif 0x80 <= code <= 0x8F:
            left += 2 * (code & 0x0F)
        elif 0x90 <= code <= 0x9F:
            left += code & 0x0F
        elif 0xA0 <= code <= 0xBF:
            at += code & 0x1F
    assert at == len(payload), f"{len(payload) - at} bytes after the value"


def _narrow(value: object) -> object:
    """Convert integers past 32 bits to floats, as every JavaScript client does."""
    if isinstance(value, dict):
        return {key: _narrow(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_narrow(inner) for inner in value]
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**31) <= value < 2**32:
        return float(value)
    return value


def _without_undefined(value: object) -> object:
    if isinstance(value, dict):
        kept = {key: inner for key, inner in value.items() if inner != UNDEFINED}
        return {key: _without_undefined(inner) for key, inner in kept.items()}
    if isinstance(value, list):
        return [_without_undefined(inner) for inner in value]
    return value


def pack(value: object) -> bytes:
    """Encode a value as the official client would."""
    return msgspec.msgpack.encode(_narrow(value))


def unpack(payload: bytes) -> object:
    """Decode a value; keys whose value is `undefined` are left out."""
    return _without_undefined(msgspec.msgpack.decode(payload))


def frame(payload: bytes) -> bytes:
    """Prepend the length."""
    return struct.pack(">I", len(payload)) + payload


class Client:
    """One connection. `ask` waits for its own answer; others and events are kept for later."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.events: list[Answer] = []
        self._sock = socket.create_connection(address, timeout=REPLY_S)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._unread = bytearray()
        self._has_ended = False
        self._asked = 0
        self._answers: list[Answer] = []

    def send_bytes(self, data: bytes) -> None:
        """Send raw bytes."""
        self._sock.sendall(data)

    def send_payload(self, payload: bytes) -> None:
        """Send a frame around a payload, valid or not."""
        self.send_bytes(frame(payload))

    def send(self, cmd: str, **fields: object) -> str:
        """Send a command without waiting; return the reqId its answer will carry."""
        self._asked += 1
        request = str(fields.pop("reqId", f"r{self._asked}"))
        self.send_payload(pack({"cmd": cmd, **fields, "reqId": request}))
        return request

    def _read_more(self, deadline: float, what: str) -> None:
        left_s = deadline - time.monotonic()
        if self._has_ended or left_s <= 0 or not select.select([self._sock], [], [], left_s)[0]:
            why = "the connection ended" if self._has_ended else "timeout"
            raise NoAnswer(f"no {what}: {why}; unread: {bytes(self._unread[:200])!r}")
        try:
            data = self._sock.recv(1 << 20)
        except ConnectionResetError:
            data = b""
        if not data:
            self._has_ended = True
        self._unread += data

    def receive_payload(self, within_s: float = REPLY_S, what: str = "frame") -> bytes:
        """Take the payload of the next frame of any kind."""
        deadline = time.monotonic() + within_s
        while len(self._unread) < 4 or len(self._unread) < 4 + self._size():
            self._read_more(deadline, what)
        size = self._size()
        payload = bytes(self._unread[4 : 4 + size])
        del self._unread[: 4 + size]
        return payload

    def _size(self) -> int:
        return int.from_bytes(self._unread[:4], "big")

    def _take_frame(self, within_s: float, what: str) -> None:
        payload = self.receive_payload(within_s, what)
        wide = [code for code in codes(payload) if code in (INT64, UINT64)]
        assert not wide, f"an answer holds a 64-bit integer: {payload[:500]!r}"
        answer = unpack(payload)
        assert isinstance(answer, dict), f"an answer must be a map: {answer!r}"
        if answer.get("type") == "event" and "ok" not in answer:
            self.events.append(answer["event"])
        else:
            self._answers.append(answer)

    def receive(self, request: str | None = None, within_s: float = REPLY_S) -> Answer:
        """Take the answer to a request, or the next answer to anything."""
        deadline = time.monotonic() + within_s
        seen = 0
        while True:
            for at in range(seen, len(self._answers)):
                if request is None or self._answers[at].get("reqId") == request:
                    return self._answers.pop(at)
            seen = len(self._answers)
            self._take_frame(deadline - time.monotonic(), f"answer to {request}")

    def ask(self, cmd: str, **fields: object) -> Answer:
        """Send a command and return its answer, without the reqId."""
        answer = self.receive(self.send(cmd, **fields))
        del answer["reqId"]
        return answer

    def ok(self, cmd: str, **fields: object) -> Answer:
        """Send a command that must succeed."""
        answer = self.ask(cmd, **fields)
        assert answer.pop("ok") is True, f"{cmd} {fields}: {answer}"
        return answer

    def refused(self, cmd: str, **fields: object) -> str:
        """Send a command that must be refused; return the reason."""
        answer = self.ask(cmd, **fields)
        assert answer["ok"] is False, f"{cmd} {fields} was granted: {answer}"
        assert set(answer) == {"ok", "error"}, answer
        error: str = answer["error"]
        assert error
        return error

    def next_event(self, kind: str | None = None, within_s: float = REPLY_S) -> Answer:
        """Take the next event (of a kind); earlier ones of other kinds are dropped."""
        deadline = time.monotonic() + within_s
        while True:
            while self.events:
                event = self.events.pop(0)
                if kind is None or event["eventType"] == kind:
                    return event
            self._take_frame(deadline - time.monotonic(), f"event {kind}")

    def is_silent(self, for_s: float = SILENCE_S) -> bool:
        """Return whether nothing arrives for a while."""
        return not self._unread and not select.select([self._sock], [], [], for_s)[0]

    def push(self, queue: str, data: object = None, **options: object) -> str:
        """Push a job and return its id."""
        answer = self.ok("PUSH", queue=queue, data={} if data is None else data, **options)
        assert set(answer) == {"id"}, answer
        job_id: str = answer["id"]
        return job_id

    def pull(self, queue: str, timeout: int = 5000, **options: object) -> Answer:
        """Pull a job that must be there, or must come."""
        job = self.ok("PULL", queue=queue, timeout=timeout, **options)["job"]
        assert isinstance(job, dict), f"no job in {queue}"
        return job

    def lock(self, queue: str, timeout: int = 5000, **options: object) -> tuple[str, str]:
        """Pull under a lock; return the id and the token."""
        answer = self.ok("PULL", queue=queue, timeout=timeout, **{"owner": "me", **options})
        assert answer["job"], f"no job in {queue}"
        return answer["job"]["id"], answer["token"]

    def is_empty(self, queue: str) -> bool:
        """Return whether a pull finds nothing right now."""
        return self.ok("PULL", queue=queue)["job"] is None

    def state(self, job_id: str) -> str:
        """Return the state of a job."""
        answer = self.ok("GetState", id=job_id)
        assert answer["id"] == job_id
        state: str = answer["state"]
        return state

    def job(self, job_id: str) -> Answer:
        """Return a job that must be there."""
        job = self.ok("GetJob", id=job_id)["job"]
        assert isinstance(job, dict)
        return job

    def bury(self, queue: str, data: object = None, **options: object) -> str:
        """Push a job and fail it for good; return its id."""
        job_id = self.push(queue, data, **options)
        assert self.pull(queue)["id"] == job_id
        self.ok("FAIL", id=job_id, error="no", unrecoverable=True)
        return job_id

    def finish(
        self, queue: str, data: object = None, result: object = None, **options: object
    ) -> str:
        """Push a job and complete it; return its id."""
        job_id = self.push(queue, data, **options)
        assert self.pull(queue)["id"] == job_id
        self.ok("ACK", id=job_id, result=result)
        return job_id

    def send_without_waiting(self, data: bytes) -> None:
        """Send as much as the kernel accepts at once; the peer may have stopped reading."""
        self._sock.settimeout(1.0)
        with contextlib.suppress(TimeoutError, ConnectionError):
            self._sock.sendall(data)
        self._sock.settimeout(REPLY_S)

    def drain_or_end(self, within_s: float) -> None:
        """Read and discard until nothing arrives for a second, or the connection ends."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            if not select.select([self._sock], [], [], 1.0)[0]:
                return
            try:
                if not self._sock.recv(1 << 20):
                    return
            except ConnectionResetError:
                return

    def receive_lenient(self) -> Answer:
        """Take the next answer even if a text in it is not UTF-8."""
        payload = self.receive_payload()
        try:
            answer = unpack(payload)
        except UnicodeDecodeError:
            return {}
        assert isinstance(answer, dict)
        return answer

    def half_close(self) -> None:
        """Close the sending side only."""
        self._sock.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Close with a reset instead of a FIN."""
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._sock.close()

    def await_end(self, within_s: float = REPLY_S) -> None:
        """Wait until the server closes the connection."""
        deadline = time.monotonic() + within_s
        while not self._has_ended:
            self._read_more(deadline, "end of the connection")

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Yard:
    """A Jobyard server with two or more doors that can be killed and started again."""

    def __init__(self, *flags: str, env: dict[str, str] | None = None) -> None:
        self._flags = flags
        self._env = env
        self._process: Process | None = None
        self._clients: list[Client] = []
        self.bunqueue: tuple[str, int] = ("", 0)
        self.beanstalk: tuple[str, int] = ("", 0)
        # Set if a flag opened that door.
        self.http: tuple[str, int] = ("", 0)

    @property
    def process(self) -> Process:
        """Return the running process."""
        assert self._process is not None, "the server is not running"
        return self._process

    @property
    def is_running(self) -> bool:
        """Return whether it was started and not closed."""
        return self._process is not None

    @property
    def has_ended(self) -> bool:
        """Return whether the process has ended on its own."""
        return self._process is not None and self._process.child.poll() is not None

    def start(self) -> None:
        """Start and wait until it is ready."""
        doors = ("beanstalk", "bunqueue")
        self._process, addresses = start_doors(doors, *self._flags, env=self._env)
        self.bunqueue = addresses["bunqueue"]
        self.beanstalk = addresses["beanstalk"]
        self.http = addresses.get("http", self.http)

    def connect(self) -> Client:
        """Open a connection, which is closed with the server at the latest."""
        client = Client(self.bunqueue)
        self._clients.append(client)
        return client

    def restart(self, by: signal.Signals = signal.SIGKILL) -> Client:
        """End the process by a signal, start again, and return a new connection."""
        self.process.signal(by)
        self.process.wait()
        self.close()
        self.start()
        return self.connect()

    def close(self) -> None:
        """End the server, and every connection to it."""
        for client in self._clients:
            client.close()
        self._clients = []
        if self._process is not None:
            self._process.close()
            self._process = None


@contextlib.contextmanager
def running(*flags: str, env: dict[str, str] | None = None) -> Iterator[Yard]:
    """Start a server, yield it, and end it."""
    with contextlib.closing(Yard(*flags, env=env)) as yard:
        yard.start()
        yield yard


@contextlib.contextmanager
def durable(folder: Path, *flags: str, env: dict[str, str] | None = None) -> Iterator[Yard]:
    """Start a server with a data directory, yield it, and end it."""
    with running("--data", str(folder), *flags, env=env) as yard:
        yield yard


def ours(reason: str) -> pytest.MarkDecorator:
    """Skip a test on the original, which differs on purpose or by a bug."""
    return pytest.mark.skipif(bool(ORIGINAL), reason=f"the original differs: {reason}")
