"""Watching topics over real sockets: many readers, slow ones, and ones that disconnect."""

import json
import socket
from collections.abc import Iterator
from signal import SIGTERM
from typing import Any

import pytest

from tests.support.servers.http import HttpYard, Topics

STREAMS = 50
RECORDS = 40


@pytest.fixture
def yard() -> Iterator[HttpYard]:
    """A server without a disk."""
    found = HttpYard("--memory")
    yield found
    found.close()


@pytest.fixture
def topics(yard: HttpYard) -> Iterator[Topics]:
    """A caller."""
    found = Topics(yard.address)
    yield found
    found.close()


class Reader:
    """One stream of events, chunk by chunk."""

    def __init__(self, address: tuple[str, int], path: str, last_id: str = "") -> None:
        self._socket = socket.create_connection(address, timeout=60)
        self._file = self._socket.makefile("rb")
        last = f"Last-Event-ID: {last_id}\r\n" if last_id else ""
        headers = f"Host: localhost\r\n{last}"
        self._socket.sendall(f"GET {path} HTTP/1.1\r\n{headers}\r\n".encode())
        assert self._file.readline() == b"HTTP/1.1 200 OK\r\n"
        while self._file.readline() != b"\r\n":
            pass
        self.last_id = ""

    def events(self) -> Iterator[tuple[str, Any]]:
        """Yield the events of one chunk after the other."""
        while size := int(self._file.readline(), 16):
            text = self._file.read(size).decode()
            self._file.readline()
            for block in text.split("\n\n"):
                fields = dict(line.partition(": ")[::2] for line in block.split("\n") if line)
                self.last_id = fields.get("id", self.last_id)
                if "event" in fields:
                    yield fields["event"], json.loads(fields["data"])

    def records(self, count: int) -> list[dict[str, Any]]:
        """Return the next records."""
        found: list[dict[str, Any]] = []
        for name, data in self.events():
            if name == "record":
                found += data["records"]
            if len(found) >= count:
                break
        return found

    def close(self) -> None:
        """Vanish."""
        self._file.close()
        self._socket.close()


def watch(topics: Topics, **places: object) -> str:
    """Make a watch; return the path of its stream."""
    status, answer = topics.ask("POST", "/v0/watch", {"topics": places})
    assert status == 200, answer
    path = answer["stream_url"]
    assert isinstance(path, str)
    return path


def write(topics: Topics, topic: str, *data: object) -> None:
    records = [{"data": one} for one in data]
    status, answer = topics.ask("POST", f"/v0/topics/{topic}", {"records": records})
    assert status in (200, 201), answer


def test_every_reader_sees_every_record_once_and_in_order(yard: HttpYard, topics: Topics) -> None:
    write(topics, "a", 0)
    write(topics, "b", 0)
    readers = [
        Reader(yard.address, watch(topics, a={"tail": True}, b={"from_seq": 1}))
        for _ in range(STREAMS)
    ]
    for i in range(1, RECORDS + 1):
        write(topics, "a" if i % 2 else "b", i)
        if i == RECORDS // 2:
            for vanished in readers[:10]:
                vanished.close()
    for reader in readers[10:]:
        found = [record["data"] for record in reader.records(RECORDS)]
        assert sorted(found) == list(range(1, RECORDS + 1))
        assert [one for one in found if one % 2] == list(range(1, RECORDS + 1, 2))
        reader.close()


def test_a_reader_that_comes_back_misses_nothing(yard: HttpYard, topics: Topics) -> None:
    write(topics, "a", 0)
    path = watch(topics, a={})
    reader = Reader(yard.address, path)
    seen = [record["$seq"] for record in reader.records(1)]
    for _ in range(5):
        last_id = reader.last_id
        reader.close()
        write(topics, "a", 1, 2, 3)
        reader = Reader(yard.address, path, last_id)
        seen += [record["$seq"] for record in reader.records(3)]
    reader.close()
    assert seen == list(range(1, 17))


def test_a_reader_that_is_slow_gets_it_all_and_holds_nobody_up(
    yard: HttpYard, topics: Topics
) -> None:
    write(topics, "a", 0)
    slow = Reader(yard.address, watch(topics, a={"from_seq": 1}))
    quick = Reader(yard.address, watch(topics, a={"from_seq": 1}))
    for _ in range(20):
        write(topics, "a", *["x" * 20_000] * 50)
        assert len(quick.records(50)) == 50
    assert [record["$seq"] for record in slow.records(1000)] == list(range(2, 1002))
    quick.close()
    slow.close()


def test_a_server_that_stops_says_so_to_its_readers(yard: HttpYard, topics: Topics) -> None:
    write(topics, "a", 0)
    reader = Reader(yard.address, watch(topics, a={"tail": True}))
    assert next(reader.events())[0] == "caught-up"
    yard.process.signal(SIGTERM)
    assert [name for name, _ in reader.events()] == ["error"]
    reader.close()
