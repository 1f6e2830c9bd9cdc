"""The scenario of Spark: its session is found, asked and ended; files stand in for a server."""

import dataclasses
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition

from bench.__main__ import ROOT, main
from bench.clients.exports import Exports
from bench.clients.topics import Topic
from bench.figures import Figures
from bench.goals import GOALS
from bench.load import BenchError, Load
from bench.report import render
from bench.run import Run, Settings
from bench.scenarios import spark
from bench.servers import KINDS, Running, Stable
from bench.spark_jobs.saved import SavedSource, save_exports
from bench.spark_worker import Spark, find_spark, parse_seen
from jobyard.spark.read.batch import BatchReader
from jobyard.spark.source import JobyardSource
from tests.unit.bench.clients.test_exports import stable
from tests.unit.bench.test_main import only_document

# Answers as a session does: each line with its own arguments, until it is told to fall.
FAKE = """#!{python}
import json, sys
print(json.dumps({{"is_ready": 1}}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if asked.pop("job") == "fall":
        sys.exit("it fell")
    print(json.dumps(asked), flush=True)
"""


@pytest.fixture
def fake(tmp_path: Path) -> Spark:
    program = tmp_path / "environment" / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.write_text(FAKE.format(python=sys.executable))
    program.chmod(0o755)
    return Spark(program.parent.parent, "anywhere")


def test_an_environment_is_found_once_it_is_whole(tmp_path: Path) -> None:
    folder = tmp_path / "build" / "spark"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").touch(mode=0o755)
    assert find_spark(tmp_path, None) is None
    (folder / "ready").touch()
    found = find_spark(tmp_path, None)
    assert found == Spark(folder, str(tmp_path / "src"))
    assert find_spark(tmp_path, "compiled") == Spark(folder, "compiled")
    assert found.version() is None
    (folder / "lib" / "python3.11" / "site-packages" / "pyspark-4.3.0.dist-info").mkdir(
        parents=True
    )
    assert found.version() == "4.3.0"


def test_a_session_answers_line_by_line(fake: Spark, tmp_path: Path) -> None:
    with fake.working(tmp_path) as worker:
        assert worker.ask("read", seconds=1.5) == {"seconds": 1.5}
        assert worker.ask("read", seconds=2) == {"seconds": 2.0}


def test_a_session_that_falls_leaves_its_reason(fake: Spark, tmp_path: Path) -> None:
    with (
        pytest.raises(BenchError, match=r"did not answer fall\nit fell"),
        fake.working(tmp_path) as worker,
    ):
        worker.ask("fall")


@pytest.mark.parametrize("line", ["", "[]", '{"seconds": "soon"}', '{"seconds": null}'])
def test_an_unexpected_output_is_refused(line: str) -> None:
    with pytest.raises(BenchError, match="unexpected output of Spark"):
        parse_seen(line)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    kind = dataclasses.replace(KINDS[spark.YARD], is_durable=False)
    with stable(tmp_path_factory.mktemp("servers")).serving(kind) as running:
        yield running


def rows_of(reader: BatchReader, partitions: list[InputPartition]) -> list[pa.RecordBatch]:
    return [batch for partition in partitions for batch in reader.read(partition)]


def test_a_saved_export_gives_the_batches_that_the_server_gave(
    server: Running, tmp_path: Path
) -> None:
    topic = Topic(server.port, "log")
    topic.make()
    topic.fill(5000)
    url = f"http://127.0.0.1:{server.port}"
    # The session is not used.
    save_exports(None, url=url, topic="log", folder=str(tmp_path / "saved"))  # type: ignore[arg-type]
    there = JobyardSource({"url": url, "topic": "log"})
    here = SavedSource({"folder": str(tmp_path / "saved")})
    assert here.schema() == there.schema()
    readers = [source.reader(source.schema()) for source in (here, there)]
    parts = [list(reader.partitions()) for reader in readers]
    assert len(parts[0]) == len(parts[1]) > 1
    own, other = (rows_of(reader, each) for reader, each in zip(readers, parts, strict=True))
    assert own == other
    assert sum(batch.num_rows for batch in own) == 5000


def test_a_saved_export_that_is_short_is_no_result(server: Running, tmp_path: Path) -> None:
    topic = Topic(server.port, "short")
    topic.make()
    topic.fill(100)
    folder = tmp_path / "saved"
    url = f"http://127.0.0.1:{server.port}"
    save_exports(None, url=url, topic="short", folder=str(folder))  # type: ignore[arg-type]
    for file in folder.glob("*.arrow"):
        file.write_bytes(file.read_bytes()[:-100])
    source = SavedSource({"folder": str(folder)})
    reader = source.reader(source.schema())
    with pytest.raises(OSError, match="message body"):
        rows_of(reader, list(reader.partitions()))


def test_a_reader_beside_must_last(server: Running) -> None:
    topic = Topic(server.port, "beside")
    topic.make()
    topic.fill(1000)
    with Exports().reading(server.port, f"{topic.path}/export", 2):
        pass
    with (
        pytest.raises(BenchError, match=r"a reader of .* ended"),
        Exports().reading(server.port, "/v0/topics/none/export", 1) as readers,
    ):
        readers[0].wait()


def run_of(folder: Path) -> Run:
    available = frozenset(spark.SERVERS)
    return Run(Settings(rounds=1), Stable(folder), Load(folder / "load"), available)


def test_without_spark_nothing_is_measured_and_the_report_says_so(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    spark.measure_spark(run)
    assert list(run.figures.names()) == []
    (note,) = run.notes
    assert note.startswith("NO SPARK: ")


def test_goals_are_about_figures_that_are_measured() -> None:
    made = {
        *(f"spark.{spark.YARD}.{name}.{measure}"
          for name in (*spark.READS, *spark.ENQUEUES) for measure in ("rows_per_s", "seconds")),
        *(f"spark.{spark.YARD}.{name}.ms" for name in spark.TRIGGERS),
        *(f"spark.{spark.BESIDE}.{name}.p99_us" for name in spark.PUTS),
    }  # fmt: skip
    goals = [goal for goal in GOALS if goal.figure.startswith("spark.")]
    assert len(goals) == 11
    assert {figure for goal in goals for figure in (goal.figure, goal.against)} <= made


def test_what_spark_did_is_reported() -> None:
    figures = Figures()
    for seconds in (1.0, 2.0, 4.0):
        figures.add(f"spark.{spark.YARD}.log.rows_per_s", 1e6 / seconds)
        figures.add(f"spark.{spark.YARD}.log.seconds", seconds)
    figures.add(f"spark.{spark.YARD}.trigger.ms", 380.0)
    figures.add(f"spark.{spark.BESIDE}.put.ops_per_s", 250.0)
    figures.add(f"spark.{spark.BESIDE}.put.p99_us", 5000.0)
    text = render({}, figures, [], [])
    rows, triggers, puts = (
        part.splitlines()[-1].split() for part in text.split("\n\n") if part.startswith("spark:")
    )
    assert rows == ["log", "500,000", "250,000-1,000,000", "2.00"]
    assert triggers == ["trigger", "380"]
    assert (puts[0], puts[2], puts[8]) == ("put", "250", "5,000")


@pytest.mark.skipif(
    find_spark(ROOT, None) is None or shutil.which("cc") is None, reason="needs build/spark and cc"
)
def test_a_quick_run_measures_every_goal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.__main__.WORKSHOP", tmp_path / "workshop")
    monkeypatch.setattr(spark, "QUEUES", 10)
    results = tmp_path / "results"
    arguments = ["--quick", "--scenarios", "spark", "--jobs", "3000"]
    assert main([*arguments, "--results", str(results)]) == 0
    found = only_document(results)
    goals = [goal for goal in json.loads(json.dumps(found["goals"])) if "Spark" in goal["goal"]]
    assert len(goals) == 10
    assert all(goal["verdict"] != "not measured" for goal in goals)
    assert not list((tmp_path / "workshop").glob("run-*"))
