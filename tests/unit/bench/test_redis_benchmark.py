"""redis-benchmark: its table is read or refused, and it is found only when it runs."""

from pathlib import Path

import pytest

from bench.load import BenchError
from bench.redis_benchmark import find_redis_benchmark, parse_table, redis_benchmark_version

TITLES = (
    '"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms",'
    '"p99_latency_ms","max_latency_ms"'
)
ROW = '"FCALL add {"data":"x"} ","2000.00","0.432","0.120","0.415","0.735","0.847","6.799"'
COMPLAINT = "WARNING: Could not fetch server CONFIG\n"


def test_the_row_below_the_titles_is_read_whatever_the_command_holds() -> None:
    result = parse_table(f"{COMPLAINT}{TITLES}\n{ROW}\n", 5000)
    assert (result.operations, result.ops_per_s, result.seconds) == (5000, 2000.0, 2.5)
    assert (result.p50_us, result.p99_us, result.max_us) == pytest.approx((415, 847, 6799))
    assert result.server_cpu_s is None


def test_a_run_below_its_clock_took_one_millisecond() -> None:
    result = parse_table(f"{TITLES}\n{ROW.replace('2000.00', 'inf')}\n", 5000)
    assert (result.seconds, result.ops_per_s) == (0.001, 5_000_000)


@pytest.mark.parametrize(
    "text",
    ["", TITLES, ROW, f"{TITLES}\n{ROW}\n{ROW}", f"{TITLES}\n{ROW.replace('2000.00', 'many')}"],
)
def test_what_is_no_table_is_refused(text: str) -> None:
    with pytest.raises(BenchError, match="unexpected output of redis-benchmark"):
        parse_table(text, 5000)


def test_a_program_that_is_not_redis_benchmark_is_not_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_redis_benchmark() is None
    program = tmp_path / "redis-benchmark"
    program.write_text("#!/bin/sh\necho 'error while loading shared libraries' >&2\nexit 127\n")
    program.chmod(0o755)
    assert find_redis_benchmark() is None
    program.write_text("#!/bin/sh\necho 'redis-benchmark 7.0.15'\n")
    assert find_redis_benchmark() == program
    assert redis_benchmark_version(program) == "7.0.15"
