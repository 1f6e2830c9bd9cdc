"""Errors leave the boundary to Spark short, and are found in what Spark makes of them."""

import traceback
from collections.abc import Iterator

import pytest

from jobyard.client import JobyardError
from jobyard.spark.raising import error_of, raised_short, rows_raised_short


def deep(depth: int) -> int:
    if depth > 0:
        return deep(depth - 1)
    error = JobyardError("unreachable", "no answer", url="http://h:1", option="url",
                         remedy="Start it.")  # fmt: skip
    raise error from KeyError("inside")


@raised_short
def call() -> int:
    return deep(5)


@rows_raised_short
def rows() -> Iterator[int]:
    yield 1
    yield deep(5)


@pytest.mark.parametrize("way", [call, lambda: list(rows())])
def test_only_the_boundary_is_shown(way: object) -> None:
    assert callable(way)
    with pytest.raises(JobyardError) as caught:
        way()
    shown = "".join(traceback.format_exception(caught.value))
    assert "deep" not in shown
    assert "KeyError" not in shown
    assert str(caught.value) in shown


def test_what_is_no_error_of_ours_keeps_its_traceback() -> None:
    @raised_short
    def broken() -> None:
        deep_down()

    def deep_down() -> None:
        raise ValueError("ours")

    with pytest.raises(ValueError, match="ours") as caught:
        broken()
    assert "deep_down" in "".join(traceback.format_exception(caught.value))


ERROR = JobyardError(
    "data_loss", "records 1 to 9 of a, b are gone (cap)", url="http://h:1/v0/topics/a", status=410,
    option="topic and queue", remedy="Set failOnDataLoss=false.",
).within(topic="a")  # fmt: skip
BARE = JobyardError("corrupt", "the text is damaged")
SHAPES = {
    "analysis": "[PYTHON_DATA_SOURCE_ERROR] Failed to x: Traceback (most recent call last):\n"
    '  File "y", line 1, in z\n    raise error\njobyard.client.errors.JobyardError: {}\n'
    " SQLSTATE: 38000",
    "worker": "An exception was thrown from the Python worker:\nTraceback ...\n"
    "jobyard.client.errors.JobyardError: {}\n\nJVM stacktrace:\norg.apache.spark.X\n\tat a.b",
    "stream": "[STREAM_FAILED] Query [id = 1] terminated: jobyard.client.errors.JobyardError: {}\n"
    "\tat org.apache.spark\n=== Streaming Query ===",
}


@pytest.mark.parametrize("shape", list(SHAPES))
@pytest.mark.parametrize("error", [ERROR, BARE], ids=["whole", "bare"])
def test_an_error_is_found_in_what_spark_raises(shape: str, error: JobyardError) -> None:
    found = error_of(RuntimeError(SHAPES[shape].format(error)))
    assert found is not None
    assert str(found) == str(error)
    assert (found.code, found.option, found.topic, found.url, found.status, found.remedy) == (
        error.code, error.option, error.topic, error.url, error.status, error.remedy,
    )  # fmt: skip


def test_an_error_may_be_the_cause_of_another() -> None:
    outer = RuntimeError("outer")
    outer.__cause__ = ValueError(SHAPES["worker"].format(ERROR))
    found = error_of(outer)
    assert found is not None
    assert found.code == "data_loss"
    assert error_of(ERROR) is ERROR
    assert error_of(RuntimeError("of somebody else")) is None
    assert error_of(None) is None
