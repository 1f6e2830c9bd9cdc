"""Dead letters and dead jobs: as a table, as a report, and back into their queue, each once."""

import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobyard.spark import JobyardError
from jobyard.spark.letters import RedriveResult, dlq, dlq_report, redrive
from tests.support.servers.http import HttpYard, Topics
from tests.support.servers.sockets import connect

ERRORS = (
    "ValueError: no user 17",
    "ValueError: no user 4711",
    "TimeoutError: 'smtp.example.org' did not answer in 30 s",
)


@pytest.fixture
def topics(yard: HttpYard) -> Iterator[Topics]:
    """A caller of the server."""
    found = Topics(yard.address)
    yield found
    found.close()


def fill(topics: Topics, queue: str, count: int, *, has_log: bool = True) -> None:
    """Make a queue whose jobs are all given up, with errors in turn."""
    config: dict[str, object] = {"type": "queue"}
    if has_log:
        config |= {"dead_letter": f"{queue}.dlq", "max_deliveries": 5}
    assert topics.ask("PUT", f"/v0/topics/{queue}", config)[0] == 201
    records = [{"data": {"n": n}, "tag": f"t{n % 2}", "meta": {"h": str(n)}} for n in range(count)]
    assert topics.ask("POST", f"/v0/topics/{queue}", {"records": records})[0] == 200
    give_up_all(topics, queue)


def give_up_all(topics: Topics, queue: str) -> None:
    status, claimed = topics.ask("POST", f"/v0/topics/{queue}/claim", {"node": "w", "max": 1000})
    assert status == 200
    for number, job in enumerate(claimed["claimed"]):
        body = {"node": "w", "seqs": [job["$seq"]], "error": ERRORS[number % len(ERRORS)]}
        assert topics.ask("POST", f"/v0/topics/{queue}/dead-letter", body)[0] == 200


def data_of(topics: Topics, queue: str) -> list[object]:
    """Return the data of the jobs that wait in a queue."""
    _, page = topics.ask("POST", f"/v0/topics/{queue}/claim", {"node": "reader", "max": 1000})
    return [job["data"] for job in page["claimed"]]


@pytest.mark.parametrize("has_log", [True, False])
def test_letters_and_dead_jobs_are_rows(
    spark: SparkSession, yard: HttpYard, topics: Topics, *, has_log: bool
) -> None:
    queue = f"l.table.{has_log}"
    fill(topics, queue, 6, has_log=has_log)
    rows = sorted(dlq(spark, queue, url=yard.url).collect(), key=lambda row: row.queue_seq)
    assert [row.kind for row in rows] == ["letter" if has_log else "job"] * 6
    assert [json.loads(row.value)["n"] for row in rows] == list(range(6))
    assert [row.error for row in rows] == [*ERRORS, *ERRORS]
    assert [row.error_class for row in rows[:3]] == ["ValueError", "ValueError", "TimeoutError"]
    assert [row.error_message for row in rows[:2]] == ["no user 17", "no user 4711"]
    assert len({row.error_fingerprint for row in rows}) == 2
    assert {row.headers["h"] for row in rows} == {str(n) for n in range(6)}
    assert all(set(row.headers) == {"h"} for row in rows)
    assert {row.tag for row in rows} == {"t0", "t1"}
    assert {row.deliveries for row in rows} == {1}
    assert all(row.died_at is not None and row.job_id > 0 for row in rows)
    if has_log:
        assert {row.reason for row in rows} == {"given_up"}
        assert [row.seq for row in rows] == [1, 2, 3, 4, 5, 6]


def test_a_report_has_a_row_for_each_kind(
    spark: SparkSession, yard: HttpYard, topics: Topics
) -> None:
    fill(topics, "l.report", 9)
    first, second = dlq_report(spark, "l.report", url=yard.url).collect()
    assert (first["count"], first.error_class) == (6, "ValueError")
    assert first.error_message == "no user 4711"
    assert first.sample_seqs == [1, 2, 4, 5, 7]
    assert (second["count"], second.error_class) == (3, "TimeoutError")
    assert second.first_seen <= second.last_seen


def test_a_redrive_moves_each_row_once(spark: SparkSession, yard: HttpYard, topics: Topics) -> None:
    fill(topics, "l.once", 9)
    letters = dlq(spark, "l.once", url=yard.url).cache()
    where = "error_class = 'ValueError'"
    shown = redrive(letters, where=where, dry_run=True, url=yard.url)
    assert shown == RedriveResult(moved=6, dry_run=True)
    patch: dict[str, object] = {"again": True}
    assert redrive(letters, where=where, patch=patch, url=yard.url).moved == 6
    assert redrive(letters, where=where, patch=patch, url=yard.url) == RedriveResult(already=6)
    # The same letters are among all of them.
    assert redrive(letters, url=yard.url) == RedriveResult(moved=3, already=6)
    moved = data_of(topics, "l.once")
    assert len(moved) == 9
    assert [one for one in moved if one == {"n": 0, "again": True}] == [{"n": 0, "again": True}]
    assert {"n": 2} in moved


def test_a_redrive_that_was_cut_off_is_run_again(
    spark: SparkSession, yard: HttpYard, topics: Topics
) -> None:
    fill(topics, "l.cut", 10)
    letters = dlq(spark, "l.cut", url=yard.url).cache()
    waited: list[float] = []

    def killed(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        redrive(letters, rate=3, pause=killed, url=yard.url)
    assert all(0 <= seconds <= 1 for seconds in waited)
    assert redrive(letters, url=yard.url) == RedriveResult(moved=4, already=6)
    assert len(data_of(topics, "l.cut")) == 10


def test_a_dead_job_can_be_moved_each_time_it_dies(
    spark: SparkSession, yard: HttpYard, topics: Topics
) -> None:
    fill(topics, "l.again", 2, has_log=False)
    for _ in range(2):
        dead = dlq(spark, "l.again", url=yard.url).cache()
        assert redrive(dead, url=yard.url).moved == 2
        assert redrive(dead, url=yard.url) == RedriveResult(already=2)
        give_up_all(topics, "l.again")


def test_a_job_that_was_buried_elsewhere_is_a_row(spark: SparkSession, yard: HttpYard) -> None:
    peer = connect(yard.addresses["beanstalk"])
    assert peer.ask(b"use l.tube") == b"USING l.tube\r\n"
    job_id = int(peer.ask(b"put 0 0 60 2\r\nhi").split()[1])
    assert peer.ask(b"reserve-job %d" % job_id).startswith(b"RESERVED")
    assert peer.ask(b"bury %d 0" % job_id) == b"BURIED\r\n"
    peer.close()
    (row,) = dlq(spark, "l.tube", url=yard.url).collect()
    assert (row.kind, row.job_id, row.error) == ("job", job_id, None)


def test_what_cannot_be_moved_is_told(spark: SparkSession, yard: HttpYard, topics: Topics) -> None:
    fill(topics, "l.gone", 3)
    letters = dlq(spark, "l.gone", url=yard.url).cache()
    assert letters.count() == 3
    assert topics.ask("POST", "/v0/topics/l.gone.dlq/delete", {"before_seq": 2})[0] == 200
    done = redrive(letters, url=yard.url)
    assert (done.moved, done.skipped) == (2, {"gone": 1})


def test_the_block_of_the_page_runs(
    yard: HttpYard, topics: Topics, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(topics, "l.page", 3)
    text = (Path(__file__).parents[3] / "docs" / "dead-letters.md").read_text()
    (block,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    block = block.replace('"mails"', '"l.page"')
    (tmp_path / "page.py").write_text(block.replace("http://127.0.0.1:6790", yard.url))
    runpy.run_path(str(tmp_path / "page.py"), run_name="__main__")
    shown = capsys.readouterr().out
    assert "TimeoutError" in shown
    assert "moved=1, already=0" in shown


def test_errors_name_option_and_remedy(spark: SparkSession, yard: HttpYard, topics: Topics) -> None:
    assert topics.ask("PUT", "/v0/topics/l.log", {})[0] == 201
    with pytest.raises(JobyardError, match="not_a_queue"):
        dlq(spark, "l.log", url=yard.url)
    with pytest.raises(JobyardError, match="topic_not_found"):
        dlq(spark, "l.nowhere", url=yard.url)
    with pytest.raises(JobyardError, match="there is no column kind"):
        redrive(spark.range(1), url=yard.url)
    fill(topics, "l.rate", 1)
    letters = dlq(spark, "l.rate", url=yard.url)
    with pytest.raises(JobyardError, match="0 is not from 1"):
        redrive(letters, rate=0, url=yard.url)
    with pytest.raises(JobyardError, match="there is no option topc"):
        redrive(letters, url=yard.url, topc="x")
