"""The HTTP scenario: figures for everything it measures, none if the topic disagrees."""

import os
from pathlib import Path

import pytest

from bench.load import BenchError, Load
from bench.run import Run, Settings
from bench.scenarios.http import LOADS, check_growth, measure_http
from bench.servers import Stable
from bench.streams import Streams, compile_streams
from bench.wrk import CONNECTIONS, Wrk, find_wrk

PROGRAM = find_wrk()
MEMORY = "jobyard-http-memory"
SMALL = Settings(
    rounds=1, seconds=0.1, warm_seconds=0.0, jobs=2000, topic_records=1200, streams=20,
    stream_rate=100, stream_seconds=0.2,
)  # fmt: skip


@pytest.mark.parametrize("found", [1000, 1010, 1000 + 10 * CONNECTIONS])
def test_what_was_on_the_wire_at_the_end_may_have_been_done(found: int) -> None:
    check_growth("records", 1000, found, 10)


@pytest.mark.parametrize("found", [999, 0, 1000 + 10 * CONNECTIONS + 1])
def test_fewer_or_many_more_than_answered_for_are_no_result(found: int) -> None:
    with pytest.raises(BenchError, match=f"1000 acks were acknowledged, the topic shows {found}"):
        check_growth("acks", 1000, found, 10)


@pytest.mark.skipif(PROGRAM is None, reason="needs wrk")
def test_a_small_run_has_every_figure(tmp_path: Path) -> None:
    assert PROGRAM is not None
    doors = ("beanstalk", "bunqueue", "glidemq", "http")
    run = Run(
        SMALL,
        Stable(tmp_path / "servers", python_path=os.environ["PYTHONPATH"], doors=doors),
        Load(tmp_path / "load"),
        available=frozenset({MEMORY}),
        wrk=Wrk(PROGRAM),
        streams=Streams(compile_streams(tmp_path)),
    )
    measure_http(run)
    for load in LOADS:
        assert (run.figures.median(f"http.{MEMORY}.{load}.records_per_s") or 0) > 0
        assert (run.figures.median(f"http.{MEMORY}.{load}.server_us_per_record") or 0) > 0
    per_request = run.figures.ratio(
        f"http.{MEMORY}.write100.records_per_s", f"http.{MEMORY}.write100.ops_per_s"
    )
    assert per_request == pytest.approx(100)
    assert (run.figures.median(f"http.{MEMORY}.streams.p99_us") or 0) > 0
    assert (run.figures.median(f"http.{MEMORY}.export.records_per_s") or 0) > 0
    assert (run.figures.median(f"http.{MEMORY}.log.bytes_per_record") or 0) > 0
    assert list((tmp_path / "servers").iterdir()) == []
