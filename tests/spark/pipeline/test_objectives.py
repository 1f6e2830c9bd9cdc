"""The file of objectives: what it means, and what it says to what is wrong."""

import re
from pathlib import Path

import pytest

from jobyard.client import JobyardError
from jobyard.lake import open_lake
from jobyard.spark.pipeline.objectives import Objectives, read_objectives
from jobyard.spark.pipeline.run import objectives_of

GOOD = """
window_days = 7
[objectives.fast]
queues = ["mails", "a.b-*", "*-eu"]
wait_ms = 500
target = 0.99
[objectives."all done"]
queues = ["*"]
total_ms = 3600000
target = 0.5
"""


def read(folder: Path, text: str) -> Objectives:
    path = folder / "slo.toml"
    path.write_text(text)
    return read_objectives(path)


def test_objectives_are_read(tmp_path: Path) -> None:
    found = read(tmp_path, GOOD)
    assert found.window_days == 7
    fast, done = found.all
    assert (fast.name, fast.is_wait, fast.limit_ms, fast.target) == ("fast", True, 500, 0.99)
    assert (done.name, done.is_wait, done.limit_ms) == ("all done", False, 3_600_000)
    assert objectives_of(tmp_path, None) == found
    assert objectives_of(tmp_path / "none", None) == Objectives()


def test_a_star_stands_for_any_letters_and_all_else_for_itself(tmp_path: Path) -> None:
    pattern = read(tmp_path, GOOD).all[0].queues
    for queue, is_meant in {
        "mails": True, "mails2": False, "a.b-": True, "a.b-c": True, "axb-c": False,
        "orders-eu": True, "orders-eu2": False, "": False,
    }.items():  # fmt: skip
        assert bool(re.search(pattern, queue)) == is_meant, queue


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("window_dais = 3", "did you mean window_days?"),
        ("window_days = 0", "from 1 to 366"),
        ("window_days = true", "must be a whole number"),
        ("[objectives.a]\nqueue = []", "did you mean queues?"),
        ("[objectives.a]\nzzz = 1", "keys are queues, wait_ms, total_ms, target"),
        ('[objectives.a]\nqueues = ["q"]\ntarget = 0.9', "exactly one of wait_ms and total_ms"),
        ('[objectives.a]\nqueues = ["q"]\nwait_ms = 1\ntarget = 1.0', "between 0 and 1"),
        ('[objectives.a]\nqueues = ["q"]\nwait_ms = -1\ntarget = 0.9', "positive whole number"),
        ("[objectives.a]\nqueues = []\nwait_ms = 1\ntarget = 0.9", "must be names"),
        ("objectives = 3", "at most 200 tables"),
        ("a = [", "it is not TOML"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(JobyardError) as caught:
        read(tmp_path, text)
    assert said in str(caught.value)
    assert "slo.toml" in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 3


def test_a_file_that_is_asked_for_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(JobyardError, match="cannot be read"):
        objectives_of(tmp_path, tmp_path / "other.toml")


def test_a_lake_may_begin_with_its_objectives(tmp_path: Path) -> None:
    (tmp_path / "slo.toml").write_text(GOOD)
    assert open_lake(tmp_path).table_format == "parquet"
