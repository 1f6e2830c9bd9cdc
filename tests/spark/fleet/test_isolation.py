"""Functions that raise, end their process, or are killed: what becomes of which job."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from jobyard.spark.fleet.calls import BatchCalls, Calls, RowCalls
from jobyard.spark.fleet.child import Child
from jobyard.spark.fleet.columns import arrow_schema, job_rows, job_schema
from jobyard.spark.fleet.isolation import IsolatedWork
from jobyard.spark.fleet.jobs import Backoff, Bury, Job, OnError, Retry
from jobyard.spark.fleet.offsets import ClaimOffset
from jobyard.spark.fleet.work import FleetTask
from tests.support.servers.patience import PATIENCE_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes as on Linux")


def batch_of(count: int, deliveries: int = 1) -> pa.RecordBatch:
    """Return jobs with the numbers from 0 as seqs and values."""
    time_of = pa.array([1_700_000_000_000_000] * count, pa.timestamp("us", tz="UTC"))
    found = pa.RecordBatch.from_pydict(
        {
            "seq": pa.array(range(count), pa.int64()),
            "lease_id": pa.array([f"lease_{at}" for at in range(count)]),
            "ts": time_of,
            "tag": pa.nulls(count, pa.string()),
            "deliveries": pa.array([deliveries] * count, pa.int64()),
            "meta": pa.nulls(count, pa.string()),
            "data": pa.array([str(at) for at in range(count)]),
        }
    )
    return job_rows(found, ClaimOffset("q", "w", 1, 1, count), 7, arrow_schema(job_schema()))


def by_row(function: Callable[[Job], object], on_error: OnError | None = None) -> Calls:
    return RowCalls(function, on_error or Backoff(), has_results=True)


def by_batch(function: Callable[[pa.RecordBatch], object]) -> Calls:
    return BatchCalls(function, Backoff(), has_results=True)


def worked(calls: Calls, count: int, replays_max: int = 3) -> list[dict[str, object]]:
    """Return what is to become of each job."""
    found: list[dict[str, object]] = []
    for one in FleetTask(calls, replays_max)(iter([batch_of(count)])):
        found += one.to_pylist()
    assert [row["seq"] for row in found] == list(range(count))
    return found


def marks(folder: Path) -> list[int]:
    """Return which jobs were begun, each as often as it was."""
    file = folder / "begun"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def mark(folder: Path, job: Job) -> None:
    with (folder / "begun").open("a") as file:
        file.write(f"{job.seq}\n")


def test_each_job_has_the_end_that_its_function_says() -> None:
    def call(job: Job) -> object:
        said: list[object] = [None, {"a": 1}, b"raw", Retry(5, "soon"), Retry(), Bury("no"), "text"]
        if job.seq == 7:
            raise KeyError("seven")
        return said[job.seq]

    found = worked(by_row(call), 8)
    assert [row["_status"] for row in found] == [
        *("ack", "ack", "ack", "nack", "nack", "bury", "ack", "nack")
    ]  # fmt: skip
    assert [row["_result"] for row in found][:3] == [None, b'{"a": 1}', b"raw"]
    assert found[6]["_result"] == b'"text"'
    assert [row["_delay_ms"] for row in found][3:5] == [5, None]
    assert [row["_error"] for row in found][3:6] == ["soon", None, "no"]
    assert (found[7]["_error"], found[7]["_delay_ms"]) == ("KeyError: 'seven'", 1000)
    assert all(row["lease_id"] == f"lease_{row['seq']}" for row in found)


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (object(), "TypeError: Object of type object is not JSON serializable"),
        (float("nan"), "ValueError: Out of range float values are not JSON compliant"),
        ("x" * (1 << 20), "ValueError: the result is 1048578 bytes long"),
        (Retry(-1), "ValueError: Retry(-1)"),
    ],
    ids=("object", "nan", "long", "delay"),
)
def test_a_result_that_cannot_be_written_is_a_failure(said: object, error: str) -> None:
    (row,) = worked(by_row(lambda _: said), 1)
    assert row["_status"] == "nack"
    assert str(row["_error"]).startswith(error)


def test_what_becomes_of_a_job_that_raised_is_up_to_the_rule() -> None:
    def fail(job: Job) -> object:
        raise ValueError(f"job {job.seq}")

    def rule(error: Exception, job: Job) -> Retry | Bury:
        if job.seq == 2:
            raise OSError("the rule")
        return Bury(f"rule: {error}") if job.seq else Retry(77)

    found = worked(by_row(fail, rule), 3)
    assert [(row["_status"], row["_delay_ms"], row["_error"]) for row in found] == [
        ("nack", 77, "ValueError: job 0"),
        ("bury", None, "rule: job 1"),
        ("nack", None, "OSError: the rule"),
    ]
    (row,) = worked(by_row(fail, Bury()), 1)
    assert (row["_status"], row["_error"]) == ("bury", "ValueError: job 0")


def test_each_delivery_waits_longer() -> None:
    rule = Backoff(first_ms=100, factor=3, max_ms=1000, max_deliveries=5)
    jobs = [Job("q", "w", 1, "c", 1, "l", n, 0, None, {}, b"") for n in (1, 2, 3, 4, 5, 10**9)]
    found = [rule(ValueError("x"), job) for job in jobs]
    assert found[:4] == [Retry(100), Retry(300), Retry(900), Retry(1000)]
    assert found[4:] == [Bury("ValueError: x")] * 2
    assert Backoff()(ValueError("x"), jobs[-1]) == Retry(300_000)


def test_a_job_that_ends_its_process_is_given_up_and_the_others_are_done(tmp_path: Path) -> None:
    def call(job: Job) -> object:
        mark(tmp_path, job)
        if job.seq == 3:
            os._exit(7)
        return job.seq

    found = worked(by_row(call), 10)
    assert [row["_status"] for row in found] == ["ack"] * 3 + ["bury"] + ["ack"] * 6
    text = "ProcessCrashed: the process that ran the job ended with exit code 7; "
    assert found[3]["_error"] == text + "that happened 4 times"
    begun = marks(tmp_path)
    # Once, and three times again; what lost its outcome is begun again once at most.
    assert begun.count(3) == 4
    assert all(begun.count(seq) <= 2 for seq in range(3))
    assert all(begun.count(seq) == 1 for seq in range(4, 10))


@pytest.mark.parametrize(
    ("end", "how"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "was killed by SIGKILL"),
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "was killed by SIGSEGV"),
        (lambda: os.killpg(0, signal.SIGTERM), "was killed by SIGTERM"),
        (lambda: sys.exit(3), "ended with exit code 3"),
        (lambda: sys.exit("text"), "ended with exit code 1"),
    ],
    ids=["kill", "fault", "group", "exit", "exit text"],
)
def test_however_a_process_ends_it_is_told(end: Callable[[], None], how: str) -> None:
    def call(job: Job) -> None:
        if job.seq == 1:
            end()

    found = worked(by_row(call), 3, replays_max=0)
    assert [row["_status"] for row in found] == ["ack", "bury", "ack"]
    told = f"ProcessCrashed: the process that ran the job {how}; that happened once"
    assert found[1]["_error"] == told


def test_a_job_that_is_innocent_is_done_when_it_runs_again(tmp_path: Path) -> None:
    def call(job: Job) -> str:
        mark(tmp_path, job)
        if job.seq == 2 and marks(tmp_path).count(2) < 3:
            os._exit(1)
        return "done"

    found = worked(by_row(call), 5)
    assert [row["_status"] for row in found] == ["ack"] * 5
    assert marks(tmp_path).count(2) == 3


def test_two_jobs_that_end_their_process_are_both_found() -> None:
    def call(job: Job) -> None:
        if job.seq in (0, 4):
            os._exit(1)

    found = worked(by_row(call), 5, replays_max=1)
    assert [row["_status"] for row in found] == ["bury", "ack", "ack", "ack", "bury"]


@pytest.mark.parametrize("poison", [0, 5, 12])
def test_a_batch_that_ends_its_process_is_halved_down_to_one_job(
    tmp_path: Path, poison: int
) -> None:
    def call(batch: pa.RecordBatch) -> None:
        with (tmp_path / "sizes").open("a") as file:
            file.write(f"{batch.num_rows}\n")
        if poison in batch.column("seq").to_pylist():
            os._exit(9)

    found = worked(by_batch(call), 13)
    assert [row["_status"] for row in found] == [
        "bury" if seq == poison else "ack" for seq in range(13)
    ]
    assert str(found[poison]["_error"]).startswith("ProcessCrashed: ")
    sizes = [int(line) for line in (tmp_path / "sizes").read_text().split()]
    # As a whole once and three times again, and then halves only.
    assert sizes.count(13) == 4
    assert len(sizes) <= 4 + 2 * 4


def test_what_a_batch_function_returns() -> None:
    def listed(batch: pa.RecordBatch) -> object:
        return [None, 1, Retry(3), Bury("x")][: batch.num_rows]

    found = worked(by_batch(listed), 4)
    assert [row["_status"] for row in found] == ["ack", "ack", "nack", "bury"]
    assert found[1]["_result"] == b"1"

    def columns(_: pa.RecordBatch) -> object:
        return pa.table(
            {"_status": ["ack", "nack", "bury"], "_error": [None, "e", "f"], "seq": [9, 9, 9]}
        )

    found = worked(by_batch(columns), 3)
    assert [row["_status"] for row in found] == ["ack", "nack", "bury"]
    assert [row["_error"] for row in found] == [None, "e", "f"]
    for wrong in ([1], "text", pa.table({"_status": ["x", "ack"]}), pa.table({"_state": [1, 2]}),
                  pa.table({"_status": ["nack"] * 2, "_delay_ms": [-1, 0]}), {"a": 1}):  # fmt: skip
        found = worked(by_batch(lambda _, said=wrong: said), 2)  # type: ignore[misc]
        assert [row["_status"] for row in found] == ["nack", "nack"], wrong
        assert "the function returned" in str(found[0]["_error"])
    found = worked(by_batch(lambda _: Bury("all")), 2)
    assert [row["_error"] for row in found] == ["all", "all"]


def test_a_batch_that_raises_is_nacked_as_a_whole() -> None:
    def call(batch: pa.RecordBatch) -> None:
        raise OSError(f"{batch.num_rows} jobs")

    found = worked(by_batch(call), 3)
    assert [(row["_status"], row["_error"]) for row in found] == [("nack", "OSError: 3 jobs")] * 3


def test_a_large_batch_passes() -> None:
    jobs = batch_of(20_000)
    values = pa.array([b"x" * 500] * 20_000, pa.binary())
    jobs = jobs.set_column(jobs.schema.get_field_index("value"), "value", values)
    calls = by_row(lambda job: job.value)
    found = list(FleetTask(calls, 0)(iter([jobs, jobs])))
    assert sum(one.num_rows for one in found) == 40_000
    assert all(set(one.column("_result").to_pylist()) == {b"x" * 500} for one in found)


def test_a_process_that_is_killed_from_outside_is_begun_again(tmp_path: Path) -> None:
    children: list[Child] = []
    calls = by_row(lambda job: mark(tmp_path, job))

    def begin() -> Child:
        children.append(Child(calls))
        return children[-1]

    isolated = IsolatedWork(begin, 3)
    assert sum(one.num_rows for one in isolated.outcomes(batch_of(2))) == 2
    os.kill(children[0].pid, signal.SIGKILL)
    os.waitid(os.P_PID, children[0].pid, os.WEXITED | os.WNOWAIT)
    assert sum(one.num_rows for one in isolated.outcomes(batch_of(2))) == 2
    isolated.close()
    assert len(children) == 2
    assert marks(tmp_path) == [0, 1, 0, 1]


def test_a_process_that_leaves_another_one_behind_is_seen_to_end() -> None:
    def call(_: Job) -> None:
        # It has the pipe open as well, and lives on for longer than anybody looks.
        if os.fork() == 0:
            signal.alarm(20)
            signal.pause()
        os._exit(5)

    (row,) = worked(by_row(call), 1, replays_max=0)
    assert "exit code 5" in str(row["_error"])


def test_no_process_is_left_when_a_task_is_dropped(tmp_path: Path) -> None:
    def call(_: Job) -> None:
        (tmp_path / "pid").write_text(str(os.getpid()))

    task = FleetTask(by_row(call), 0)(iter([batch_of(1), batch_of(2)]))
    next(task)
    task.close()  # type: ignore[attr-defined]
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_process_ends_with_its_parent(tmp_path: Path) -> None:
    ready, told = os.pipe()
    middle = os.fork()
    if middle == 0:
        child = Child(by_row(lambda _: signal.pause()))
        os.write(told, str(child.pid).encode().ljust(10))
        for _ in child.run(batch_of(1)):
            pass
        os._exit(0)
    grandchild = int(os.read(ready, 10))
    os.kill(middle, signal.SIGKILL)
    os.waitpid(middle, 0)
    deadline = time.monotonic() + PATIENCE_S
    while Path(f"/proc/{grandchild}").exists():
        state = Path(f"/proc/{grandchild}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            break
        assert time.monotonic() < deadline
    os.close(ready)
    os.close(told)
    assert tmp_path.exists()
