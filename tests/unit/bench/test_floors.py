"""The floors: a client that keeps one request on the wire sees no difference from real servers."""

import http.client
import json
import os
import shutil
from pathlib import Path

import pytest

from bench.clients.topics import records_body
from bench.load import Load, Shape, compile_load
from bench.servers import KINDS, Stable
from tests.support.servers.patience import PATIENCE_S

ROOT = Path(__file__).parents[3]


def plain_floors(tmp_path: Path) -> Stable:
    # From the sources: what is compiled is the same text.
    path = f"{ROOT}{os.pathsep}{ROOT / 'src'}"
    return Stable(tmp_path / "servers", floors=path)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize("name", ["bare", "echo"])
def test_the_load_generator_takes_its_answers(tmp_path: Path, name: str) -> None:
    load = Load(compile_load(tmp_path))
    with plain_floors(tmp_path).serving(KINDS[name]) as server:
        result = load.cycle(server.port, server.pid, Shape(3, 1), 0.02, 0.0)
    assert result.errors == 0
    assert result.operations > 0


def test_the_http_echo_answers_each_request_as_if_it_had_written(tmp_path: Path) -> None:
    with plain_floors(tmp_path).serving(KINDS["httpecho"]) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
        for _ in range(3):
            connection.request("POST", "/v0/topics/bench", records_body(1))
            answer = connection.getresponse()
            assert answer.status == 200
            assert json.loads(answer.read())["count"] == 1
        connection.close()


def test_the_http_echo_outlives_its_clients(tmp_path: Path) -> None:
    with plain_floors(tmp_path).serving(KINDS["httpecho"]) as server:
        for _ in range(2):
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
            connection.request("GET", "/")
            assert connection.getresponse().status == 200
            connection.close()
        assert server.process.poll() is None
