"""redis-cli and redis-benchmark, unmodified, against the glide-mq door."""

import shutil
import subprocess
from collections.abc import Iterator

import pytest

from bench.clients.resp import Resp
from bench.load import Shape
from bench.redis_benchmark import RedisBenchmark, find_redis_benchmark
from bench.scenarios import glidemq
from tests.support.servers.valkey import NO_DOOR, has_door, serving

NOW_MS = 1_709_750_400_000
CLI = shutil.which("redis-cli")
BENCHMARK = find_redis_benchmark()
JOBS = 12

pytestmark = pytest.mark.skipif(not has_door(), reason=NO_DOOR)
needs_cli = pytest.mark.skipif(CLI is None, reason="needs redis-cli")


@pytest.fixture
def port() -> Iterator[int]:
    with serving() as (_, port):
        yield port


@pytest.fixture
def full(port: int) -> int:
    """The port of a server with some jobs."""
    with Resp(port) as client:
        for _ in range(JOBS):
            client.ask(*glidemq.add_words(NOW_MS))
    return port


def cli(port: int, *words: str) -> str:
    """Type a command; return what was printed."""
    assert CLI is not None
    done = subprocess.run(
        [CLI, "-h", "127.0.0.1", "-p", str(port), *words],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return done.stdout


@needs_cli
def test_redis_cli_is_answered(full: int) -> None:
    assert cli(full, "PING") == "PONG\n"
    assert "role:master" in cli(full, "INFO", "replication")
    assert cli(full, "FCALL", "glidemq_version", "0") == "93\n"
    assert cli(full, "XLEN", f"{glidemq.QUEUE}:stream") == f"{JOBS}\n"
    assert cli(full, "NONSENSE").startswith("ERR unknown command")


@needs_cli
@pytest.mark.parametrize("protocol", ["-2", "-3"])
def test_redis_cli_reads_a_job_in_both_protocols(full: int, protocol: str) -> None:
    words = cli(full, protocol, "HGETALL", f"{glidemq.QUEUE}:job:1").split()
    fields = dict(zip(words[::2], words[1::2], strict=True))
    assert fields["data"] == glidemq.DATA
    assert (fields["id"], fields["name"], fields["state"]) == ("1", "bench", "waiting")


@needs_cli
def test_redis_cli_finds_all_keys_once(full: int) -> None:
    keys = cli(full, "--scan", "--pattern", "*:job:*").split()
    assert sorted(keys) == sorted(f"{glidemq.QUEUE}:job:{n}" for n in range(1, JOBS + 1))
    assert "hash" in cli(full, "TYPE", keys[0])


@needs_cli
def test_redis_cli_weighs_the_keys(full: int) -> None:
    found = cli(full, "--bigkeys")
    assert f"{JOBS} hash" in found
    assert "0 lists with 0 items" in found


@pytest.mark.skipif(BENCHMARK is None, reason="needs redis-benchmark")
@pytest.mark.parametrize("shape", [Shape(1, 1), Shape(16, 32)], ids=str)
def test_redis_benchmark_adds_jobs_that_are_all_there(port: int, shape: Shape) -> None:
    assert BENCHMARK is not None
    with Resp(port) as client:
        pid_line = next(
            line
            for line in str(client.ask("INFO", "server")).splitlines()
            if line.startswith("process_id:")
        )
    requests = 2 * shape.connections * shape.depth
    load = RedisBenchmark(BENCHMARK)
    words = glidemq.add_words(NOW_MS)
    result = load.run(port, int(pid_line.partition(":")[2]), shape, requests, words)
    assert result.operations == requests
    glidemq.check_adds(port, requests)
