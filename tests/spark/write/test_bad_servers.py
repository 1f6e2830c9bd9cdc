"""Writes while a server drains or its disk is full: refused by name, and whole afterwards."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from jobyard.client import JobyardError
from jobyard.spark.write.committing import abort_tasks, commit_tasks
from jobyard.spark.write.sending import CHUNK_ROWS
from jobyard.spark.write.tasks import TaskWriter
from tests.support.clients.spark import read_batch
from tests.support.clients.spark_writes import batch_of, options_of, run_task
from tests.support.servers.faults import Faults, Unavailable, build_library
from tests.support.servers.http import SMALL_SEGMENTS, HttpYard, Topics
from tests.support.servers.patience import PATIENCE_S

AT_ONCE = {"maxRetries": "0", "timeoutMs": "20000"}
# Two chunks, so that one is staged when the next one is refused.
ROWS = CHUNK_ROWS + 10


def refusal(*given: object, call: object) -> JobyardError:
    assert callable(call)
    with pytest.raises(JobyardError) as caught:
        call(*given)
    assert len(str(caught.value).splitlines()) == 3
    return caught.value


def awaited(is_so: Callable[[], bool]) -> None:
    """Ask the server until something is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline


def count(address: tuple[str, int], topic: str) -> int:
    topics = Topics(address)
    found = int(topics.ask("GET", f"/v0/topics/{topic}")[1]["count"])
    topics.close()
    return found


def test_a_server_that_drains_takes_no_writes_and_is_read(tmp_path: Path) -> None:
    yard = HttpYard("--data", str(tmp_path / "data"))
    with contextlib.closing(yard):
        topics = Topics(yard.address)
        topics.ask("PUT", "/v0/topics/drained", {})
        options = options_of(yard.url, topic="drained", **AT_ONCE)
        rows = [batch_of(value=["1"] * ROWS)]
        kept = run_task(options, rows, "d:1")
        commit_tasks(options, [kept])
        staged = run_task(options, rows, "d:2")
        yard.process.signal(signal.SIGUSR1)
        # A signal is noticed when the server gets to it.
        body = {"records": [{"data": 1}]}
        awaited(lambda: topics.ask("POST", "/v0/topics/drained", body)[0] == 503)
        before = count(yard.address, "drained")
        error = refusal(options, rows, "d:3", call=run_task)
        assert (error.code, error.option) == ("shutting_down", "url")
        assert refusal(options, [staged], call=commit_tasks).code == "shutting_down"
        abort_tasks(options, [staged])
        assert len(read_batch(yard.url, "seq", topic="drained")) == before
        topics.close()


@pytest.fixture
def full(tmp_path: Path) -> Iterator[tuple[HttpYard, Faults]]:
    """A server whose disk is full on request."""
    try:
        library = build_library(tmp_path)
    except Unavailable as error:
        pytest.skip(str(error))
    with (
        contextlib.closing(Faults(library, tmp_path / "faults")) as faults,
        contextlib.closing(
            HttpYard("--data", str(tmp_path / "data"), *SMALL_SEGMENTS, env=faults.env)
        ) as yard,
    ):
        yield yard, faults


def test_a_full_disk_refuses_a_write_and_nothing_of_it_is_left(
    full: tuple[HttpYard, Faults],
) -> None:
    yard, faults = full
    topics = Topics(yard.address)
    topics.ask("PUT", "/v0/topics/filled", {})
    options = options_of(yard.url, topic="filled", **AT_ONCE)
    wide = [batch_of(value=[f'"{"x" * 900}"'] * 1000) for _ in range(12)]
    commit_tasks(options, [run_task(options, wide[:1], "f:1")])
    before = run_task(options, wide, "f:2")

    def filling() -> Iterator[pa.RecordBatch]:
        yield from wide[:6]
        faults.set("is_full", 1)
        yield from wide[6:]

    # In the middle of a stage, and in a commit of what was staged before.
    for error in (
        refusal(filling(), call=TaskWriter(options, "f:3", 0).write),
        refusal(options, [before], call=commit_tasks),
    ):
        assert (error.code, error.option) == ("storage_full", "url")
    abort_tasks(options, [], "f:3")
    abort_tasks(options, [before])
    assert count(yard.address, "filled") == 1000
    # Reads go on, and room that comes back is used.
    assert len(read_batch(yard.url, "seq", topic="filled")) == 1000
    faults.set("is_full", 0)
    awaited(lambda: topics.ask("POST", "/v0/topics/filled", {"records": [{"data": 1}]})[0] == 200)
    again = run_task(options, wide, "f:4")
    assert commit_tasks(options, [again]).written == 12_000
    assert count(yard.address, "filled") == 13_001
    topics.close()
