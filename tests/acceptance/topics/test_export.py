"""An export over a real socket, read by the tools it is made for."""

import json
import socket
import urllib.request
from collections.abc import Iterator
from http.client import IncompleteRead
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.servers.http import HttpYard, Topics

ROWS = 30_000
BATCH = 10_000


@pytest.fixture(params=["epoll", "uvloop"])
def yard(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HttpYard]:
    """A server with a disk whose log texts do not all fit into memory."""
    found = HttpYard("--data", str(tmp_path), "--loop", request.param, "--body-memory", "1MiB")
    yield found
    found.close()


@pytest.fixture
def topics(yard: HttpYard) -> Iterator[Topics]:
    """A caller."""
    found = Topics(yard.address)
    yield found
    found.close()


def fill(topics: Topics) -> None:
    assert topics.ask("PUT", "/v0/topics/log", {})[0] == 201
    for start in range(0, ROWS, BATCH):
        records = [
            {"data": {"i": i, "pad": "x" * 60}, "tag": f"t{i % 7}"}
            for i in range(start, start + BATCH)
        ]
        assert (
            topics.ask("POST", "/v0/topics/log?return_seqs=false", {"records": records})[0] == 200
        )


def test_pyarrow_reads_a_range_straight_from_the_answer(yard: HttpYard, topics: Topics) -> None:
    fill(topics)
    url = f"{yard.url}/v0/topics/log/export?from_seq=100&to_seq={ROWS - 1}"
    with urllib.request.urlopen(url) as answer:
        assert answer.headers["topics-expected-rows"] == str(ROWS - 101)
        table = pa.ipc.open_stream(answer).read_all()
    table.validate(full=True)
    assert table.column("seq").to_pylist() == list(range(101, ROWS))
    assert [json.loads(text)["i"] for text in table.column("data").to_pylist()] == list(
        range(100, ROWS - 1)
    )
    assert table.column("tag").to_pylist() == [f"t{i % 7}" for i in range(100, ROWS - 1)]


def test_a_compressed_range_is_smaller_and_the_same(yard: HttpYard, topics: Topics) -> None:
    fill(topics)
    url = f"{yard.url}/v0/topics/log/export"
    found = []
    for query in ("", "?compress=zstd"):
        with urllib.request.urlopen(url + query) as answer:
            found.append(answer.read())
    plain, packed = found
    assert len(packed) * 3 < len(plain)
    tables = [pa.ipc.open_stream(data).read_all() for data in found]
    tables[1].validate(full=True)
    assert tables[0].equals(tables[1])
    # A server that stops does not wait for pages that nobody reads.
    with socket.create_connection(yard.address, timeout=60) as idle:
        idle.sendall(b"GET /v0/topics/log/export?compress=zstd HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle.recv(15) == b"HTTP/1.1 200 OK"


def test_others_are_served_while_one_reads(yard: HttpYard, topics: Topics) -> None:
    fill(topics)
    request = b"GET /v0/topics/log/export HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.create_connection(yard.address, timeout=60) as idle:
        # Asks and does not read.
        idle.sendall(request)
        assert topics.ask("GET", "/v0/topics/log")[1]["count"] == ROWS
        with urllib.request.urlopen(f"{yard.url}/v0/topics/log/export") as answer:
            assert pa.ipc.open_stream(answer).read_all().num_rows == ROWS


def test_a_stream_that_is_broken_off_is_an_error_to_its_reader(
    yard: HttpYard, topics: Topics
) -> None:
    assert topics.ask("PUT", "/v0/topics/log", {})[0] == 201
    # Larger than all buffers in between, so that most of it is not made yet.
    for _ in range(4):
        records = [{"data": "x" * 1_000_000}] * 10
        assert topics.ask("POST", "/v0/topics/log", {"records": records})[0] == 200
    with urllib.request.urlopen(f"{yard.url}/v0/topics/log/export") as answer:
        answer.read(1000)
        assert topics.ask("DELETE", "/v0/topics/log")[0] == 200
        with pytest.raises(IncompleteRead):
            answer.read()


def test_the_life_of_every_job_can_be_read(yard: HttpYard, topics: Topics) -> None:
    assert topics.ask("PUT", "/v0/topics/q", {"type": "queue"})[0] == 201
    records = [{"data": i} for i in range(500)]
    assert topics.ask("POST", "/v0/topics/q", {"records": records})[0] == 200
    claimed = topics.ask("POST", "/v0/topics/q/claim", {"node": "w", "max": 500})[1]["claimed"]
    seqs = [job["$seq"] for job in claimed]
    assert topics.ask("POST", "/v0/topics/q/ack", {"node": "w", "seqs": seqs})[1]["acked"] == 500
    with urllib.request.urlopen(f"{yard.url}/v0/topics/_events/export") as answer:
        table = pa.ipc.open_stream(answer).read_all()
    counts = table.group_by("event").aggregate([("seq", "count")]).to_pylist()
    assert {row["event"]: row["seq_count"] for row in counts} == {
        "enqueued": 500,
        "claimed": 500,
        "completed": 500,
    }
    assert set(table.column("queue").to_pylist()) == {"q"}
