"""The report: columns that line up, the limiting side named, a document that holds everything."""

import json
from pathlib import Path

import pytest

from bench.figures import Figures
from bench.goals import judge
from bench.report import document, limit_of, render, table, write_document

FACTS: dict[str, object] = {"cpu": "Some CPU @ 3.0 GHz", "cores": 2, "commit": "abc1234"}


def measured() -> Figures:
    figures = Figures()
    for server, speed in (("beanstalkd", 100_000.0), ("jobyard-memory", 130_000.0)):
        prefix = f"throughput.{server}.64x1"
        for measure, value in {
            "ops_per_s": speed, "p50_us": 400.0, "p99_us": 600.0, "max_us": 900.0,
            "server_us_per_op": 1e6 / speed, "server_core_share": 0.99, "load_core_share": 0.7,
        }.items():  # fmt: skip
            figures.add(f"{prefix}.{measure}", value)
    figures.add("memory.jobyard-memory.bytes_per_job", 460.0)
    return figures


def test_columns_line_up() -> None:
    text = table(("name", "n"), [("a", "1"), ("longer", "1,000")])
    assert text.splitlines() == [
        "name        n",
        "------  -----",
        "a           1",
        "longer  1,000",
    ]


@pytest.mark.parametrize(
    ("server", "load", "limit"),
    [(0.99, 0.7, "server"), (0.8, 0.99, "LOAD"), (0.5, 0.4, "waiting"), (None, 0.99, "LOAD")],
)
def test_the_limiting_side_is_named(server: float | None, load: float, limit: str) -> None:
    assert limit_of(server, load) == limit


def test_goals_are_printed_with_measure_and_verdict() -> None:
    figures = measured()
    text = render(FACTS, figures, judge(figures), ["one note"])
    lines = {line.split("  ")[0]: line.split() for line in text.splitlines() if line}
    assert lines["memory 64x1 : beanstalkd memory"][-4:] == [
        "1.30", "1.30-1.30", "1.30", "met",
    ]  # fmt: skip
    assert lines["RSS per waiting 100-byte job, memory"][-1] == "short"
    assert lines["memory 16x1 : beanstalkd memory"][-2:] == ["not", "measured"]
    assert "note: one note" in text


def test_scenarios_that_were_not_run_are_not_printed() -> None:
    figures = measured()
    text = render(FACTS, figures, judge(figures), [])
    assert "throughput:" in text
    assert "recovery:" not in text
    assert "growth:" not in text


def test_bundles_are_told_in_jobs() -> None:
    figures = Figures()
    for measure, value in {"jobs_per_s": 1500.0, "server_us_per_job": 600.0}.items():
        figures.add(f"bunqueue.bunqueue.4x1x50.{measure}", value)
    lines = render(FACTS, figures, [], []).splitlines()
    (titles,) = (line for line in lines if "jobs/s" in line)
    assert "CPU us/job" in titles
    (row,) = (line for line in lines if "4x1x50" in line)
    assert row.split()[:5] == ["bunqueue", "4x1x50", "1,500", "1,500-1,500", "600.00"]


def test_the_http_door_is_told_in_records() -> None:
    figures = Figures()
    prefix = "http.jobyard-http-durable"
    for name, value in {
        "write100.records_per_s": 300_000.0, "write100.server_us_per_record": 2.5,
        "streams.records_per_s": 1000.0, "streams.p99_us": 4321.0, "streams.late_max_us": 55.0,
        "streams.load_core_share": 0.07, "log.bytes_per_record": 210.0, "log.ready_seconds": 0.7,
        "export.records_per_s": 2_000_000.0, "export.server_us_per_record": 0.45,
        "export.bytes_per_record": 130.0, "export.load_core_share": 0.5,
    }.items():  # fmt: skip
        figures.add(f"{prefix}.{name}", value)
    text = render(FACTS, figures, [], [])
    loads, streams, exports, logs = (
        part for part in text.split("\n\n") if part.startswith("http:")
    )
    assert "records/s" in loads
    row = loads.splitlines()[-1].split()
    assert row[1:5] == ["write100", "300,000", "300,000-300,000", "2.50"]
    row = streams.splitlines()[-1].split()
    assert row[1:7] == ["1,000", "-", "4,321", "-", "55", "-"]
    assert row[-2:] == ["7", "%"]
    row = exports.splitlines()[-1].split()
    assert row[1:] == ["export", "2,000,000", "130", "0.45", "-", "50", "%"]
    assert logs.splitlines()[-1].split()[1:3] == ["210", "0.700"]


def test_writes_over_http_are_told_beside_the_floor() -> None:
    figures = Figures()
    for server, speed in (("httpecho", 200_000.0), ("jobyard-http-memory", 150_000.0)):
        figures.add(f"http.{server}.write.records_per_s", speed)
        figures.add(f"http.{server}.write.server_us_per_record", 1e6 / speed)
    text = render(FACTS, figures, [], [])
    loads, floor = (part for part in text.split("\n\n") if part.startswith("http:"))
    assert [line.split()[0] for line in loads.splitlines()[3:]] == [
        "httpecho",
        "jobyard-http-memory",
    ]
    assert floor.splitlines()[-1].split() == ["jobyard-http-memory", "75", "%", "1.33"]


def test_the_document_is_named_for_date_commit_and_machine(tmp_path: Path) -> None:
    figures = measured()
    found = document(FACTS, {"rounds": 3}, figures, judge(figures), [])
    path = write_document(found, FACTS, tmp_path / "results", "2026-01-02")
    assert path.name == "2026-01-02-abc1234-some-cpu-3-0-ghz-2c.json"
    read = json.loads(path.read_text())
    assert read["figures"]["throughput.beanstalkd.64x1.ops_per_s"] == {
        "median": 100_000.0,
        "rounds": [100_000.0],
    }
    verdicts = {goal["goal"]: goal["verdict"] for goal in read["goals"]}
    assert verdicts["memory 64x1 : beanstalkd memory"] == "met"
