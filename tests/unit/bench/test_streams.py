"""The generator of pushed jobs: every job is delivered and acked once, or there is no result."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.clients.topics import Topic
from bench.load import BenchError
from bench.servers import KINDS, Running, Stable
from bench.streams import Streams, compile_streams, parse_streams

LINE = {
    "streams": 10, "rate": 100.0, "seconds": 0.5, "operations": 50, "errors": 0,
    "jobs_finished": 70, "ops_per_s": 100.0, "p50_us": 900.0, "p99_us": 2000.0, "max_us": 2500.0,
    "late_max_us": 80.0, "server_cpu_s": 0.2, "load_cpu_s": 0.01,
}  # fmt: skip

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def test_a_line_is_read_with_its_lateness() -> None:
    result = parse_streams(json.dumps(LINE))
    assert (result.load.operations, result.load.jobs_finished) == (50, 70)
    assert result.load.p99_us == 2000.0
    assert result.late_max_us == 80.0


@pytest.mark.parametrize(
    "line", ["", "{}", json.dumps(LINE | {"late_max_us": None}), json.dumps(LINE)[:-2]]
)
def test_a_line_that_is_not_a_result_is_refused(line: str) -> None:
    with pytest.raises(BenchError, match="unexpected output"):
        parse_streams(line)


@pytest.fixture(scope="module")
def streams(tmp_path_factory: pytest.TempPathFactory) -> Streams:
    return Streams(compile_streams(tmp_path_factory.mktemp("streams")))


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Running]:
    doors = ("beanstalk", "bunqueue", "glidemq", "http")
    stable = Stable(tmp_path / "servers", python_path=os.environ["PYTHONPATH"], doors=doors)
    with stable.serving(KINDS["jobyard-http-durable"]) as server:
        yield server


@needs_compiler
def test_every_job_comes_over_one_of_the_streams(streams: Streams, yard: Running) -> None:
    topic = Topic(yard.port, "q")
    topic.make(is_queue=True, is_durable=True)
    result = streams.run(yard.port, yard.pid, "q", 20, 200, (0.2, 0.1))
    assert (result.load.operations, result.load.jobs_finished) == (40, 60)
    assert 0 < result.load.p50_us <= result.load.p99_us <= result.load.max_us
    assert result.load.server_cpu_s is not None
    state = topic.state()
    assert (state.head_seq, state.count) == (60, 0)


@needs_compiler
def test_a_topic_that_is_no_queue_is_reported(streams: Streams, yard: Running) -> None:
    Topic(yard.port, "log").make()
    with pytest.raises(BenchError, match=r"refused: HTTP/1\.1 409"):
        streams.run(yard.port, yard.pid, "log", 2, 100, (0.1, 0.0))


@needs_compiler
def test_a_job_of_somebody_else_is_no_result(streams: Streams, yard: Running) -> None:
    topic = Topic(yard.port, "q")
    topic.make(is_queue=True)
    topic.fill(1)
    with pytest.raises(BenchError, match="a job that was not written"):
        streams.run(yard.port, yard.pid, "q", 2, 100, (0.1, 0.0))
