import io
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from jobyard.cli.pipeline_options import DURATION, SINCE
from jobyard.cli.pipeline_shown import Shown

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Terminal

COMMANDS = ("run", "backfill", "compact", "check", "report", "status", "archive", "dlq")


def test_help_lists_all_commands(terminal: "Terminal") -> None:
    outcome = terminal.type("pipeline", "--help")
    assert outcome.exit_code == 0
    for command in COMMANDS:
        assert f"  {command} " in outcome.out
        assert terminal.type("pipeline", command, "--help").exit_code == 0


def test_the_nearest_command_is_suggested(terminal: "Terminal") -> None:
    outcome = terminal.type("pipeline", "reporrt")
    assert outcome.exit_code == 2
    assert "did you mean report" in outcome.err


def test_help_needs_neither_spark_nor_pyarrow() -> None:
    program = (
        "import sys; from jobyard.cli.main import main; code = main(['pipeline', 'run', '--help']);"
        "sys.exit(code or any(name in sys.modules for name in ('pyspark', 'pyarrow')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 0, done


def test_a_lake_that_is_not_there_has_no_rows(terminal: "Terminal", tmp_path: Path) -> None:
    outcome = terminal.type("pipeline", "status", "--lake", str(tmp_path / "lake"), "--json")
    assert outcome.exit_code == 0
    assert {table["rows"] for table in json.loads(outcome.out)["tables"]} == {0}
    assert not (tmp_path / "lake").exists()
    shown = terminal.type("pipeline", "status", "--lake", str(tmp_path / "lake"))
    assert "events" in shown.out


def test_a_report_of_an_empty_lake_says_what_to_do(terminal: "Terminal", tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    outcome = terminal.type("pipeline", "report", "--lake", str(tmp_path), "--out", str(page))
    assert outcome.exit_code == 0, outcome
    assert "jobyard pipeline run" in page.read_text()
    assert outcome.out.endswith(f"report: {page}\n")


def test_an_error_is_three_lines_and_an_exit_code(terminal: "Terminal", tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    outcome = terminal.type("pipeline", "status", "--lake", str(tmp_path))
    assert outcome.exit_code == 1
    assert outcome.err.startswith("jobyard pipeline status: [bad_lake]")
    assert 1 < outcome.err.count("\n") <= 3


@pytest.mark.parametrize("command", ["run", "archive run", "dlq report", "dlq redrive"])
def test_a_token_is_not_taken_from_the_command_line(terminal: "Terminal", command: str) -> None:
    outcome = terminal.type("pipeline", *command.split(), "--token", "secret")
    assert outcome.exit_code == 2
    assert "no such option --token" in outcome.err


def test_only_one_way_of_running_can_be_chosen(terminal: "Terminal", tmp_path: Path) -> None:
    flags = ("--lake", str(tmp_path), "--once", "--every", "30s")
    outcome = terminal.type("pipeline", "run", *flags)
    assert outcome.exit_code == 2
    assert "only one of --once and --every" in outcome.err


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("5m", 300), ("2h", 7200), ("1d", 86400)]
)
def test_durations_have_a_unit(text: str, seconds: float) -> None:
    assert DURATION.convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["30", "0s", "-5m", "1.5h", "s", "5 m", "9" * 20 + "s"])
def test_other_durations_are_refused(terminal: "Terminal", tmp_path: Path, text: str) -> None:
    outcome = terminal.type("pipeline", "run", "--lake", str(tmp_path), f"--every={text}")
    assert outcome.exit_code == 2
    assert "is no duration: write 30s" in outcome.err


def test_a_time_without_a_zone_is_utc() -> None:
    assert SINCE.convert("2026-11-16", None, None) == datetime(2026, 11, 16, tzinfo=UTC)


class BatchDone(NamedTuple):
    """As the pipeline tells it; its own class needs pyspark."""

    yard: str
    number: int
    batches: int
    to_seq: int
    rows: int
    rows_per_s: float
    left: int
    elapsed_s: float


class RunResult(NamedTuple):
    """Likewise."""

    to_seq: int
    rows: int
    batches: int
    elapsed_s: float


DONE = BatchDone("y", 1, 4, 250, 200, 1234.5678, 750, 0.5)


def test_elsewhere_a_batch_is_one_line_of_json() -> None:
    out = io.StringIO()
    shown = Shown(out)
    shown.tell(DONE)
    shown.end(RunResult(1000, 800, 4, 2.0))
    batch, done = (json.loads(line) for line in out.getvalue().splitlines())
    assert (batch["event"], batch["rows_per_s"], batch["left"]) == ("batch", 1234.568, 750)
    assert (done["event"], done["rows"]) == ("done", 800)


def test_on_a_terminal_a_line_changes() -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Screen()
    shown = Shown(out)
    shown.tell(DONE)
    assert "batch 1 of 4, 1,235 events/s, 750 left" in out.getvalue()
    assert "\n" not in out.getvalue()
    shown.end(RunResult(1000, 800, 4, 2.0))
    assert out.getvalue().endswith("800 events in 2.0 s, up to 1000\n")
    shown.end(RunResult(1000, 0, 0, 0.1))
    assert out.getvalue().endswith("nothing new after 1000\n")
