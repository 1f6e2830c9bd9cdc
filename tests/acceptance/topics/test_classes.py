"""Durability classes of topics on a server that answers before the sync, on any loop."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers.http import HttpYard, Topics
from tests.support.servers.sockets import connect

LOOPS = ("epoll", "uvloop", "asyncio")


@pytest.fixture(params=LOOPS)
def yard(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HttpYard]:
    """A server in class os."""
    flags = ("--durability", "os", "--loop", request.param)
    with contextlib.closing(HttpYard("--data", str(tmp_path / "data"), *flags)) as started:
        yield started


@pytest.fixture
def api(yard: HttpYard) -> Iterator[Topics]:
    with contextlib.closing(Topics(yard.address)) as client:
        yield client


def test_topics_of_all_classes_are_answered(yard: HttpYard, api: Topics) -> None:
    for durability in ("fsync", "disk", "memory", "ephemeral"):
        for kind in ("log", "queue"):
            path = f"/v0/topics/{durability}-{kind}"
            assert api.ask("PUT", path, {"type": kind, "durability": durability})[0] == 201
            for number in range(1, 20):
                status, answer = api.ask("POST", path, {"records": [{"data": number}]})
                assert (status, answer["seqs"]) == (200, [number])
                assert ("fsync_ms" in answer["performance"]) == (durability == "fsync")
            page = api.ask("POST", f"{path}/diff", {})[1]
            assert [record["data"] for record in page["records"]] == list(range(1, 20))
    claimed = api.ask("POST", "/v0/topics/fsync-queue/claim", {"node": "w", "max": 5})[1]
    seqs = [job["$seq"] for job in claimed["claimed"]]
    answer = api.ask("POST", "/v0/topics/fsync-queue/ack", {"node": "w", "seqs": seqs})[1]
    assert (answer["acked"], answer["performance"]["fsync_ms"] > 0) == (5, True)
    peer = connect(yard.addresses["beanstalk"])
    peer.send(b"use fsync-queue\r\nput 0 0 60 1\r\n1\r\nuse other\r\nput 0 0 60 1\r\n1\r\n")
    wanted = b"USING fsync-queue\r\nINSERTED %d\r\nUSING other\r\nINSERTED %d\r\n"
    # Every queue has had nineteen jobs before.
    assert peer.read(len(wanted % (77, 78))) == wanted % (77, 78)
    peer.close()


def test_answers_of_one_connection_keep_their_order(yard: HttpYard, api: Topics) -> None:
    api.ask("PUT", "/v0/topics/careful", {"durable": True})
    api.ask("PUT", "/v0/topics/plain", {})
    body = b'{"records":[{"data":1}]}'
    asked = b""
    names = [b"careful", b"plain"] * 20
    for name in names:
        asked += b"POST /v0/topics/%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n" % (
            name,
            len(body),
        )
        asked += b"Content-Type: application/json\r\n\r\n" + body
    with socket.create_connection(yard.address, timeout=60) as line:
        line.sendall(asked)
        heard = b""
        while heard.count(b'"performance"') < len(names):
            more = line.recv(65536)
            assert more, "the server closed the connection"
            heard += more
    found = [part.split(b'"')[0] for part in heard.split(b'"topic":"')[1:]]
    assert found == names
