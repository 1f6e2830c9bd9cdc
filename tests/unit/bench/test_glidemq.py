"""The glide-mq scenario on a real Valkey: our functions, both loads, and what they leave behind."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.__main__ import ROOT, main
from bench.clients.resp import Resp
from bench.load import BenchError, LoadResult, compile_load, parse_result
from bench.redis_benchmark import find_redis_benchmark
from bench.scenarios import glidemq
from bench.servers import KINDS, Rivals, Running, Stable
from bench.valkey import Valkey, find_valkey
from tests.support.servers.valkey import NO_DOOR, has_door

VALKEY = find_valkey(ROOT)
NOW_MS = 1_709_750_400_000
QUEUE = "glide:{bench}"
STREAM = f"{QUEUE}:stream"
FINISHED = LoadResult(
    seconds=1.0, operations=21, errors=0, jobs_finished=7, ops_per_s=21.0, p50_us=1.0, p99_us=2.0,
    max_us=3.0, server_cpu_s=0.5, load_cpu_s=0.25,
)  # fmt: skip

needs_valkey = pytest.mark.skipif(VALKEY is None, reason="needs valkey-server")
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with Stable(tmp_path, rivals=Rivals(valkey=VALKEY)).serving(KINDS["valkey"]) as running:
        yield running


def load(folder: Path, port: int, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [str(compile_load(folder)), "--port", str(port), "--protocol", "glidemq", *flags]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_valkey_is_found_only_when_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_valkey(tmp_path) is None
    program = tmp_path / "build" / "valkey" / "valkey-server"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\nexit 127\n")
    program.chmod(0o755)
    assert find_valkey(tmp_path) is None
    program.write_text("#!/bin/sh\necho 'Valkey server v=9.1.2 sha=0'\n")
    found = find_valkey(tmp_path)
    assert found == Valkey(program)
    assert found.version() == "9.1.2"


def test_only_a_durable_valkey_keeps_a_log(tmp_path: Path) -> None:
    valkey = Valkey(Path("valkey-server"))
    assert "always" not in valkey.serve_command(7, tmp_path, is_durable=False)
    assert valkey.serve_command(7, tmp_path, is_durable=True)[-4:] == [
        "--appendonly", "yes", "--appendfsync", "always",
    ]  # fmt: skip


@needs_valkey
def test_our_functions_write_what_the_document_says(server: Running) -> None:
    with Resp(server.port) as valkey:
        assert valkey.ask("FCALL", "glidemq_version", "0") == "93"
        assert valkey.ask(*glidemq.add_words(NOW_MS)) == "1"
        job = valkey.ask("HGETALL", f"{QUEUE}:job:1")
        assert isinstance(job, list)
        assert dict(zip(job[::2], job[1::2], strict=True)) == {
            "id": "1", "name": "bench", "data": glidemq.DATA, "opts": "{}",
            "timestamp": str(NOW_MS), "attemptsMade": "0", "delay": "0", "priority": "0",
            "maxAttempts": "0", "state": "waiting",
        }  # fmt: skip
        events = valkey.ask("XRANGE", f"{QUEUE}:events", "-", "+")
        assert isinstance(events, list)
        (event,) = events
        assert isinstance(event, list)
        assert event[1] == ["event", "added", "jobId", "1", "name", "bench"]


@needs_valkey
@pytest.mark.parametrize(
    ("delay", "priority", "score"),
    [("500", "0", NOW_MS + 500), ("0", "3", 3 << 42), ("500", "2", (2 << 42) + NOW_MS + 500)],
)
def test_a_job_that_is_not_due_is_scheduled(
    server: Running, delay: str, priority: str, score: int
) -> None:
    words = glidemq.add_words(NOW_MS)
    words[11:13] = [delay, priority]
    with Resp(server.port) as valkey:
        assert valkey.ask(*words) == "1"
        found = valkey.ask("ZSCORE", f"{QUEUE}:scheduled", "1")
        assert float(str(found)) == score
        assert valkey.number("XLEN", STREAM) == 0


@needs_valkey
def test_a_name_of_its_own_is_taken_once(server: Running) -> None:
    words = [*glidemq.add_words(NOW_MS)[:-1], "mine"]
    with Resp(server.port) as valkey:
        assert valkey.ask(*words) == "mine"
        assert valkey.ask(*words) == "duplicate"
        assert valkey.number("XLEN", STREAM) == 1


@needs_valkey
def test_adds_that_are_not_there_are_no_result(server: Running) -> None:
    with Resp(server.port) as valkey:
        valkey.ask(*glidemq.add_words(NOW_MS))
        glidemq.check_adds(server.port, 1)
        with pytest.raises(BenchError, match="2 jobs were added, 1 are waiting"):
            glidemq.check_adds(server.port, 2)
        valkey.ask("HSET", f"{QUEUE}:job:1", "data", "{}")
        with pytest.raises(BenchError, match=r"job 1 holds '\{\}'"):
            glidemq.check_adds(server.port, 1)


@needs_valkey
@needs_cc
def test_a_cycle_leaves_nothing_and_one_that_does_is_no_result(
    server: Running, tmp_path: Path
) -> None:
    streams = [f"glide:{{bench-{number}}}:stream" for number in range(2)]
    with Resp(server.port) as valkey:
        for stream in streams:
            valkey.ask("XGROUP", "CREATE", stream, "workers", "0", "MKSTREAM")
        done = load(
            tmp_path, server.port, "--connections", "2", "--depth", "3", "--seconds", "0.05"
        )
        assert done.returncode == 0, done.stderr
        result = parse_result(done.stdout)
        assert result.jobs_finished % 3 == 0
        assert valkey.ask("GET", "glide:{bench-0}:id") != "0"
        assert valkey.ask("KEYS", "*:job:*") == []
        glidemq.check_cycles(server.port, streams, result)
        valkey.ask("XADD", streams[1], "*", "jobId", "7")
        with pytest.raises(BenchError, match=r"1 wait in glide:\{bench-1\}:stream"):
            glidemq.check_cycles(server.port, streams, FINISHED)


@needs_valkey
@needs_cc
def test_a_server_that_refuses_is_no_result(server: Running, tmp_path: Path) -> None:
    done = load(tmp_path, server.port, "--seconds", "0", "--warm", "0")  # without the group
    assert done.returncode == 3
    assert "first refusal: -NOGROUP" in done.stderr


@needs_valkey
@needs_cc
@pytest.mark.skipif(find_redis_benchmark() is None, reason="needs redis-benchmark")
def test_a_quick_run_measures_valkey(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.__main__.WORKSHOP", tmp_path / "workshop")
    arguments = ["--quick", "--seconds", "0.05", "--servers", "valkey,valkey-always"]
    results = tmp_path / "results"
    assert main([*arguments, "--scenarios", "glidemq", "--results", str(results)]) == 0
    (path,) = results.iterdir()
    found = json.loads(path.read_text())
    assert found["machine"]["valkey"] is not None
    for shape in ("1x1", "16x1", "64x1", "16x32"):
        for what in ("add", "cycle"):
            assert f"glidemq.valkey-always.{what}-{shape}.ops_per_s" in found["figures"]


@needs_cc
@pytest.mark.skipif(not has_door(), reason=NO_DOOR)
@pytest.mark.skipif(find_redis_benchmark() is None, reason="needs redis-benchmark")
def test_a_quick_run_measures_the_yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.__main__.WORKSHOP", tmp_path / "workshop")
    yards = "jobyard-glidemq-memory,jobyard-glidemq-durable"
    arguments = ["--quick", "--seconds", "0.05", "--servers", yards, "--scenarios", "glidemq"]
    results = tmp_path / "results"
    assert main([*arguments, "--results", str(results)]) == 0
    (path,) = results.iterdir()
    figures = json.loads(path.read_text())["figures"]
    for what in ("add", "cycle"):
        assert f"glidemq.jobyard-glidemq-durable.{what}-16x32.ops_per_s" in figures


def test_without_valkey_and_redis_benchmark_both_are_left_out_loudly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bench.__main__.WORKSHOP", tmp_path / "workshop")
    monkeypatch.setattr("bench.__main__.find_valkey", lambda _root: None)
    monkeypatch.setattr("bench.__main__.find_redis_benchmark", lambda: None)
    arguments = ["--quick", "--servers", "valkey", "--scenarios", "glidemq"]
    assert main([*arguments, "--results", str(tmp_path / "results")]) == 0
    said = capsys.readouterr().out
    assert "NO RIVAL: valkey is not installed" in said
    assert "NO REDIS-BENCHMARK" in said
