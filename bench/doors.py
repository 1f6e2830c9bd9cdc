"""The doors of a server under test, and the requests that fill it."""

import http.client
import json
import socket
import struct
from dataclasses import dataclass, field
from typing import Final

import msgspec

from bench.clients.resp import Resp
from bench.load import BenchError

ANSWER_S_MAX: Final = 300.0
BUNDLE: Final = 1000
HEAD: Final = struct.Struct(">I")


@dataclass
class Doors:
    """A server under test, and how much data to put into it."""

    ports: dict[str, int]
    jobs: int
    queues: int
    routers: int
    details: dict[str, socket.socket] = field(default_factory=dict)

    def command(self, cmd: str, **fields: object) -> dict[str, object]:
        """Send a command to the bunqueue door."""
        asked = msgspec.msgpack.encode({"cmd": cmd, **fields})
        with socket.create_connection(("127.0.0.1", self.ports["bunqueue"]), ANSWER_S_MAX) as peer:
            peer.sendall(HEAD.pack(len(asked)) + asked)
            with peer.makefile("rb") as answers:
                (size,) = HEAD.unpack(answers.read(HEAD.size))
                answer: dict[str, object] = msgspec.msgpack.decode(answers.read(size))
        if answer.get("ok") is not True:
            raise BenchError(f"unexpected answer to {cmd}: {answer}")
        return answer

    def request(self, method: str, path: str, body: object = None) -> bytes:
        """Send a request to the HTTP port."""
        peer = http.client.HTTPConnection("127.0.0.1", self.ports["http"], timeout=ANSWER_S_MAX)
        data = None if body is None else json.dumps(body)
        peer.request(method, path, data, {"Content-Type": "application/json"} if data else {})
        answer = peer.getresponse()
        content = answer.read()
        peer.close()
        if answer.status >= 300:
            raise BenchError(f"{method} {path} answered {answer.status} {content[:200]!r}")
        return content

    def resp(self, *words: str) -> object:
        """Send a command to the glide-mq door."""
        with Resp(self.ports["glidemq"]) as peer:
            return peer.ask(*words)

    def push(self, queue: str, count: int, **fields: object) -> None:
        """Put jobs into a queue."""
        for start in range(0, count, BUNDLE):
            jobs = [{"data": "x" * 20, **fields}] * min(BUNDLE, count - start)
            self.command("PUSHB", queue=queue, jobs=jobs)

    def spread(self) -> None:
        """Put a job into each of many queues."""
        with (
            socket.create_connection(("127.0.0.1", self.ports["beanstalk"]), ANSWER_S_MAX) as peer,
            peer.makefile("rb") as answers,
        ):
            for start in range(0, self.queues, BUNDLE):
                names = range(start, min(start + BUNDLE, self.queues))
                peer.sendall(b"".join(b"use q%d\r\nput 0 0 60 1\r\nx\r\n" % name for name in names))
                for _ in names:
                    answers.readline()
                    if not answers.readline().startswith(b"INSERTED"):
                        raise BenchError("a put was refused")
