"""Where a run begins, what it refuses, and what it does when there is nothing to do."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from jobyard.client import JobyardError
from jobyard.lake import open_lake
from jobyard.lake.tables import Batch
from jobyard.spark.pipeline import Lost, Started
from jobyard.spark.pipeline.events import History, ServerEvents
from jobyard.spark.pipeline.run import RunResult, run_from
from tests.support.servers.http import HttpYard


class Known:
    """A history of which only the bounds are known."""

    def __init__(self, earliest: int, head: int) -> None:
        self._history = History("yard-1", earliest, head)

    def history(self) -> History:
        return self._history

    def seq_at(self, ts_ms: int) -> int:
        return ts_ms

    def rows(self, *_: object, **__: object) -> DataFrame:
        raise AssertionError("nothing is read without a session")


class SparkIsAskedFor(Exception):
    """The run has something to do."""


def no_spark() -> SparkSession:
    raise SparkIsAskedFor


def begin(lake: Path, source: Known, **options: Any) -> list[object] | RunResult:
    """Return what a run tells until it needs Spark, or its result if it never does."""
    told: list[object] = []

    def listen(event: object) -> None:
        told.append(event)
        if isinstance(event, Started):
            raise SparkIsAskedFor

    try:
        return run_from(source, no_spark, lake=lake, progress=listen, **options)
    except SparkIsAskedFor:
        return told


def at(lake: Path, seq: int) -> Path:
    """Let a lake have a position."""
    opened = open_lake(lake)
    with opened.lock():
        batch = Batch("yard-1", 0, seq)
        opened.tables.staging(batch)
        opened.tables.commit(batch, [])
    return lake


def test_a_first_run_begins_with_what_there_is(tmp_path: Path) -> None:
    assert begin(tmp_path / "a", Known(1, 30)) == [Started("yard-1", 0, 30, 1)]
    # What left before the lake began is not missed.
    assert begin(tmp_path / "b", Known(11, 30), batch=8) == [Started("yard-1", 10, 30, 3)]


def test_since_bounds_the_first_run_only(tmp_path: Path) -> None:
    assert begin(tmp_path / "a", Known(1, 30), since="21") == [Started("yard-1", 20, 30, 1)]
    assert begin(tmp_path / "b", Known(11, 30), since="5") == [Started("yard-1", 10, 30, 1)]
    nothing = begin(tmp_path / "c", Known(1, 30), since="31")
    assert isinstance(nothing, RunResult)
    lake = at(tmp_path / "d", 7)
    assert begin(lake, Known(1, 30), since="21") == [Started("yard-1", 7, 30, 1)]


def test_a_gap_is_an_error_that_names_it(tmp_path: Path) -> None:
    lake = at(tmp_path / "lake", 7)
    with pytest.raises(JobyardError, match="events 8 to 10 of yard yard-1 are gone") as caught:
        begin(lake, Known(11, 30))
    assert caught.value.code == "data_loss"
    assert len(str(caught.value).splitlines()) <= 3
    found = begin(lake, Known(11, 30), allow_gap=True)
    assert found == [Lost("yard-1", 8, 10), Started("yard-1", 10, 30, 1)]
    # Right behind the position nothing is lost.
    assert begin(lake, Known(8, 30)) == [Started("yard-1", 7, 30, 1)]


def test_a_yard_that_went_back_is_an_error(tmp_path: Path) -> None:
    lake = at(tmp_path / "lake", 7)
    with pytest.raises(JobyardError, match="its history ends at 6"):
        begin(lake, Known(1, 6))


def test_a_run_without_news_does_nothing(tmp_path: Path) -> None:
    lake = at(tmp_path / "lake", 7)
    result = run_from(Known(1, 7), no_spark, lake=lake)
    assert result._replace(elapsed_s=0) == RunResult("yard-1", 7, 7, 0, 0, 0)
    with pytest.raises(SparkIsAskedFor):
        run_from(Known(1, 8), no_spark, lake=lake)


@pytest.mark.parametrize("options", [{"batch": 0}, {"batch": True}, {"since": "yesterday"}])
def test_options_that_cannot_be_right_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(JobyardError, match="bad_option"):
        begin(tmp_path / "lake", Known(1, 7), **options)
    assert not (tmp_path / "lake").exists()


def test_a_server_tells_how_far_its_history_goes(yard: HttpYard, unused_url: str) -> None:
    source = ServerEvents(yard.url)
    history = source.history()
    assert history.yard
    assert history.head_seq >= 0
    assert source.seq_at(0) >= 0
    with pytest.raises(JobyardError, match="unreachable"):
        ServerEvents(unused_url + "/x").history()
