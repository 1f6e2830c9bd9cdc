"""Clients of four protocols that put jobs and work them off, some of them badly.

Each speaks its protocol with plain sockets, many requests at a time, since the tour wants tens of
thousands of jobs in seconds. Which jobs fail, wait or are given up is drawn from a seed.
"""

import json
import random
import socket
import time
from collections.abc import Iterator, Sequence
from http.client import HTTPConnection
from typing import Any, Final, Protocol

Address = tuple[str, int]
# Jobs that are put, taken and ended in one go.
BUNDLE: Final = 500
ERRORS: Final = (
    "TimeoutError: smtp.example.org did not answer in {n} s",
    "ValueError: user {n} has no address",
    "KeyError: 'template-{n}'",
)
# Shares of jobs that fail once, and that are given up.
FAILS: Final = 0.04
GIVEN_UP: Final = 0.01
DELAYED: Final = 0.03
DELAY_S: Final = 1
_PATIENCE_S: Final = 60


class Producer(Protocol):
    """One client that puts jobs and works them off."""

    def put(self, queue: str, count: int) -> None:
        """Put jobs, some of them delayed."""
        ...

    def work_off(self, queue: str) -> int:
        """Take and end all jobs that are ready; return how many runs ended."""
        ...


class _Dice:
    """What becomes of jobs."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311  drawn again in every run

    def is_delayed(self) -> bool:
        return self._random.random() < DELAYED

    def end(self) -> str:
        drawn = self._random.random()
        return "give up" if drawn < GIVEN_UP else "fail" if drawn < FAILS else "done"

    def error(self) -> str:
        return self._random.choice(ERRORS).format(n=self._random.randrange(1, 99))


def _bundles(count: int) -> Iterator[range]:
    for first in range(0, count, BUNDLE):
        yield range(first, min(first + BUNDLE, count))


class Beanstalk:
    """Text over TCP."""

    def __init__(self, address: Address, seed: int) -> None:
        self._sock = socket.create_connection(address, _PATIENCE_S)
        self._in = self._sock.makefile("rb")
        self._dice = _Dice(seed)

    def put(self, queue: str, count: int) -> None:
        """Put jobs, some of them delayed."""
        self._ask([b"use %s\r\n" % queue.encode()])
        for bundle in _bundles(count):
            lines = []
            for number in bundle:
                body = json.dumps({"mail": number}).encode()
                delay = DELAY_S if self._dice.is_delayed() else 0
                lines.append(b"put 0 %d 60 %d\r\n%s\r\n" % (delay, len(body), body))
            self._ask(lines)

    def work_off(self, queue: str) -> int:
        """Take and end all jobs that are ready; return how many runs ended."""
        self._ask([b"watch %s\r\n" % queue.encode(), b"ignore default\r\n"])
        ended = 0
        while taken := self._take():
            ended += len(taken)
            ends = {"done": b"delete %s\r\n", "fail": b"release %s 0 1\r\n",
                    "give up": b"bury %s 0\r\n"}  # fmt: skip
            self._ask([ends[self._dice.end()] % job_id for job_id in taken])
        return ended

    def _take(self) -> list[bytes]:
        self._sock.sendall(b"reserve-with-timeout 0\r\n" * BUNDLE)
        taken = []
        for _ in range(BUNDLE):
            words = self._in.readline().split()
            if words[0] == b"RESERVED":
                taken.append(words[1])
                self._in.read(int(words[2]) + 2)
        return taken

    def _ask(self, lines: Sequence[bytes]) -> None:
        self._sock.sendall(b"".join(lines))
        for line in lines:
            answer = self._in.readline()
            if not answer or b"_" in answer.split()[0]:
                raise RuntimeError(f"beanstalk answered {answer!r} to {line[:40]!r}")


class _Http:
    """JSON over HTTP."""

    def __init__(self, address: Address) -> None:
        self._connection = HTTPConnection(*address, timeout=_PATIENCE_S)

    def ask(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401  JSON
        """Send a request, which must succeed."""
        data = None if body is None else json.dumps(body)
        self._connection.request(method, path, data, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path} was answered {answer.status}: {content[:200]!r}")
        return json.loads(content)


class Bunqueue:
    """bunqueue's HTTP API."""

    def __init__(self, address: Address, seed: int) -> None:
        self._http = _Http(address)
        self._dice = _Dice(seed)

    def put(self, queue: str, count: int) -> None:
        """Put jobs, some of them delayed."""
        for bundle in _bundles(count):
            jobs = [
                {
                    "name": "resize",
                    "data": {"image": number},
                    "maxAttempts": 3,
                    "backoff": 500,
                    "delay": DELAY_S * 1000 if self._dice.is_delayed() else 0,
                }
                for number in bundle
            ]
            self._http.ask("POST", f"/queues/{queue}/jobs/bulk", {"jobs": jobs})

    def work_off(self, queue: str) -> int:
        """Take and end all jobs that are ready; return how many runs ended."""
        ended = 0
        while True:
            path = f"/queues/{queue}/jobs/pull-batch"
            jobs = self._http.ask("POST", path, {"count": BUNDLE})["jobs"]
            if not jobs:
                return ended
            ended += len(jobs)
            done = []
            for job in jobs:
                end = self._dice.end()
                if end == "done":
                    done.append(job["id"])
                elif end == "fail":
                    error = {"error": self._dice.error()}
                    self._http.ask("POST", f"/jobs/{job['id']}/fail", error)
                else:
                    self._http.ask("POST", f"/jobs/{job['id']}/discard")
            if done:
                self._http.ask("POST", "/jobs/ack-batch", {"ids": done})


class GlideMq:
    """RESP with the functions of glide-mq."""

    def __init__(self, address: Address, seed: int) -> None:
        self._sock = socket.create_connection(address, _PATIENCE_S)
        self._in = self._sock.makefile("rb")
        self._dice = _Dice(seed)

    def put(self, queue: str, count: int) -> None:
        """Put jobs, some of them delayed."""
        keys = _keys(queue, "id", "stream", "scheduled", "events")
        for bundle in _bundles(count):
            calls = []
            for number in bundle:
                delay = DELAY_S * 1000 if self._dice.is_delayed() else 0
                opts = json.dumps({"attempts": 2, "backoff": {"type": "fixed", "delay": 500}})
                calls.append(
                    _call(
                        "addJob", keys, "invoice", json.dumps({"order": number}), opts, _now(),
                        delay, 0, "", 2, "", 0, 0, 0, 0, 0, 0, 0, "",
                    )
                )  # fmt: skip
            self._ask(calls)

    def work_off(self, queue: str) -> int:
        """Take and end all jobs that are ready; return how many runs ended."""
        (stream,) = _keys(queue, "stream")
        ended = 0
        while True:
            self._ask([_call("promote", _keys(queue, "scheduled", "stream", "events"), _now())])
            read = ["XREADGROUP", "GROUP", "workers", "demo", "COUNT", str(BUNDLE)]
            (found,) = self._ask([_words(*read, "STREAMS", stream, ">")])
            if not found:
                return ended
            entries = [(entry, fields[fields.index(b"jobId") + 1]) for entry, fields in found[0][1]]
            ended += len(entries)
            self._end(queue, entries)

    def _end(self, queue: str, entries: list[tuple[bytes, bytes]]) -> None:
        begun = []
        ends = []
        for entry, job_id in entries:
            job = f"job:{job_id.decode()}"
            begun.append(
                _call("moveToActive", _keys(queue, job, "stream"), _now(), entry, "workers", job_id)
            )
            if self._dice.end() == "done":
                keys = _keys(queue, "stream", "completed", "events", job, "metrics:completed")
                ends.append(
                    _call("complete", keys, job_id, entry, "null", _now(), "workers", 0, 0, 0)
                )
            else:
                keys = _keys(queue, "stream", "failed", "scheduled", "events", job,
                             "metrics:failed")  # fmt: skip
                ends.append(
                    _call("fail", keys, job_id, entry, self._dice.error(), _now(), 2, 500,
                          "workers", 0, 0, 0)
                )  # fmt: skip
        self._ask(begun)
        self._ask(ends)

    def _ask(self, commands: list[bytes]) -> list[Any]:
        self._sock.sendall(b"".join(commands))
        return [self._answer() for _ in commands]

    def _answer(self) -> Any:  # noqa: ANN401  what RESP can say
        line = self._in.readline()
        kind, text = line[:1], line[1:-2]
        if kind == b"$":
            size = int(text)
            return self._in.read(size + 2)[:-2] if size >= 0 else None
        if kind == b"*":
            return [self._answer() for _ in range(int(text))] if int(text) >= 0 else None
        if kind == b"-" or not line:
            raise RuntimeError(f"glide-mq answered {text.decode(errors='replace')}")
        return text


def _keys(queue: str, *parts: str) -> list[str]:
    return [f"glide:{{{queue}}}:{part}" for part in parts]


def _call(name: str, keys: list[str], *arguments: object) -> bytes:
    return _words("FCALL", f"glidemq_{name}", str(len(keys)), *keys, *arguments)


def _words(*words: object) -> bytes:
    plain = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(plain) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in plain)


def _now() -> int:
    return int(time.time() * 1000)


class Topics:
    """The topics API."""

    def __init__(self, address: Address, seed: int) -> None:
        self._http = _Http(address)
        self._dice = _Dice(seed)

    def make(self, queue: str) -> None:
        """Create a queue with a log of dead letters."""
        config = {"type": "queue", "dead_letter": f"{queue}.dead", "max_deliveries": 5}
        self._http.ask("PUT", f"/v0/topics/{queue}", config)

    def put(self, queue: str, count: int) -> None:
        """Put jobs, some of them delayed."""
        for bundle in _bundles(count):
            records = [
                {"data": {"order": number}, "delay_ms": DELAY_S * 1000}
                if self._dice.is_delayed()
                else {"data": {"order": number}}
                for number in bundle
            ]
            self._http.ask("POST", f"/v0/topics/{queue}", {"records": records})

    def work_off(self, queue: str) -> int:
        """Take and end all jobs that are ready; return how many runs ended."""
        ended = 0
        path = f"/v0/topics/{queue}"
        while True:
            claimed = self._http.ask("POST", f"{path}/claim", {"node": "demo", "max": BUNDLE})
            seqs = [job["$seq"] for job in claimed["claimed"]]
            if not seqs:
                return ended
            ended += len(seqs)
            ends = [self._dice.end() for _ in seqs]
            done = [seq for seq, end in zip(seqs, ends, strict=True) if end == "done"]
            if done:
                self._http.ask("POST", f"{path}/ack", {"node": "demo", "seqs": done})
            for seq, end in zip(seqs, ends, strict=True):
                body = {"node": "demo", "seqs": [seq], "error": self._dice.error()}
                if end == "fail":
                    self._http.ask("POST", f"{path}/nack", {**body, "delay_ms": 500})
                elif end == "give up":
                    self._http.ask("POST", f"{path}/dead-letter", body)
