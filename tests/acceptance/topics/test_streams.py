"""Long-lasting calls on every loop: streams and long polls, ended by either side."""

import contextlib
import json
import signal
import socket
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from typing import Any

import pytest

from tests.support.servers.http import HttpYard, Topics

# Far less than any lease or any wait below: what happens within was no matter of time.
SOON_S = 5.0


@pytest.fixture(params=["epoll", "uvloop", "asyncio"])
def yard(request: pytest.FixtureRequest) -> Iterator[HttpYard]:
    """A server on every loop."""
    server = HttpYard("--memory", "--loop", request.param)
    yield server
    server.close()


@pytest.fixture
def api(yard: HttpYard) -> Iterator[Topics]:
    """A connection."""
    with contextlib.closing(Topics(yard.address)) as client:
        yield client


class Stream:
    """A worker that jobs are pushed to."""

    def __init__(self, yard: HttpYard, query: str) -> None:
        self._connection = HTTPConnection(*yard.address, timeout=60)
        self._connection.request("GET", f"/v0/topics/q/work?{query}")
        self._answer: HTTPResponse = self._connection.getresponse()
        assert self._answer.status == 200
        assert self._event() == {"retry": "2000"}

    def _event(self) -> dict[str, str]:
        fields: dict[str, str] = {}
        while True:
            line = self._answer.readline().decode()
            if line in {"\n", ""}:
                return fields
            name, _, value = line.rstrip("\n").partition(": ")
            fields[name] = value

    def job(self) -> Any:
        """Return the next job."""
        event = self._event()
        assert event["event"] == "job"
        return json.loads(event["data"])

    def error(self) -> Any:
        """Return why the stream ends, and see that it does."""
        event = self._event()
        assert event["event"] == "error"
        assert self._answer.read() == b""
        return json.loads(event["data"])

    def close(self) -> None:
        """Leave."""
        self._answer.close()
        self._connection.close()


def write(api: Topics, name: str, *data: object) -> None:
    status, answer = api.ask("POST", f"/v0/topics/{name}", {"records": [{"data": d} for d in data]})
    assert status in {200, 201}, answer


def test_jobs_are_pushed_refilled_and_given_back(yard: HttpYard, api: Topics) -> None:
    assert api.ask("PUT", "/v0/topics/q", {"type": "queue", "lease_ms": 60_000})[0] == 201
    first = Stream(yard, "node=a&max=1")
    write(api, "q", 1, 2, 3)
    assert first.job()["data"] == 1
    status, answer = api.ask("POST", "/v0/topics/q/ack", {"node": "a", "seqs": [1]})
    assert (status, answer["acked"]) == (200, 1)
    assert first.job()["data"] == 2
    second = Stream(yard, "node=b&max=2")
    assert second.job()["data"] == 3
    started = time.monotonic()
    first.close()
    again = second.job()
    assert (again["data"], again["deliveries"]) == (2, 2)
    assert time.monotonic() - started < SOON_S
    second.close()


def test_a_server_that_stops_ends_streams_and_long_polls(yard: HttpYard, api: Topics) -> None:
    assert api.ask("PUT", "/v0/topics/q", {"type": "queue"})[0] == 201
    assert api.ask("PUT", "/v0/topics/log")[0] == 201
    stream = Stream(yard, "node=a")
    polls = [HTTPConnection(*yard.address, timeout=60) for _ in range(2)]
    for poll in polls:
        poll.request("GET", "/v0/health")
        assert poll.getresponse().read()
    body = json.dumps({"wait_ms": 30_000, "node": "w"})
    kind = {"Content-Type": "application/json"}
    polls[0].request("POST", "/v0/topics/log/diff", body, kind)
    polls[1].request("POST", "/v0/topics/q/claim", body, kind)
    # The server has accepted all of them, and reads them in the order they send.
    assert api.ask("GET", "/v0/health")[0] == 200
    yard.process.signal(signal.SIGTERM)
    started = time.monotonic()
    assert stream.error()["code"] == "server_shutting_down"
    assert json.load(polls[0].getresponse())["records"] == []
    assert json.load(polls[1].getresponse())["claimed"] == []
    assert time.monotonic() - started < SOON_S
    assert yard.process.wait() == 0
    for poll in polls:
        poll.close()
    stream.close()


@pytest.mark.parametrize("kind", ["log", "queue"])
def test_who_waits_is_answered_by_a_write(yard: HttpYard, api: Topics, kind: str) -> None:
    assert api.ask("PUT", "/v0/topics/t", {"type": kind})[0] == 201
    reader = HTTPConnection(*yard.address, timeout=60)
    body = json.dumps({"wait_ms": 30_000})
    reader.request("POST", "/v0/topics/t/diff", body, {"Content-Type": "application/json"})
    started = time.monotonic()
    write(api, "t", "now")
    page = json.load(reader.getresponse())
    assert [one["data"] for one in page["records"]] == ["now"]
    assert time.monotonic() - started < SOON_S
    reader.close()


def test_who_breaks_off_holds_nothing(yard: HttpYard, api: Topics) -> None:
    assert api.ask("PUT", "/v0/topics/q", {"type": "queue", "lease_ms": 60_000})[0] == 201
    write(api, "q", 1)
    worker = socket.create_connection(yard.address)
    worker.sendall(b"GET /v0/topics/q/work?node=a HTTP/1.1\r\nHost: localhost\r\n\r\n")
    heard = b""
    while b"event: job" not in heard:
        heard += worker.recv(65536)
    # A reset, not an end: nothing more is sent.
    worker.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    worker.close()
    claim = {"node": "b", "wait_ms": 30_000}
    started = time.monotonic()
    status, answer = api.ask("POST", "/v0/topics/q/claim", claim)
    assert (status, answer["count"]) == (200, 1)
    assert time.monotonic() - started < SOON_S


def test_a_hundred_streams_share_what_comes(yard: HttpYard, api: Topics) -> None:
    assert api.ask("PUT", "/v0/topics/q", {"type": "queue"})[0] == 201
    streams = [Stream(yard, f"node=w{number}&max=1") for number in range(100)]
    write(api, "q", *range(100))
    assert sorted(stream.job()["data"] for stream in streams) == list(range(100))
    for stream in streams:
        stream.close()
