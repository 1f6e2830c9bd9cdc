"""The stream of claims and its sink: what a batch is, when drivers die, and who is fenced."""

import logging
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from jobyard.client import JobyardError
from jobyard.spark.fleet import outcomes
from jobyard.spark.fleet.claims import WorkerClaims, read_set
from jobyard.spark.fleet.jobs import Bury, Job, Retry
from jobyard.spark.fleet.offsets import parse_offset
from jobyard.spark.fleet.options import claim_options
from jobyard.spark.fleet.sink import abort_ends, commit_ends
from tests.support.clients.spark import read_batch
from tests.support.clients.spark_fleet import (
    CLAIMED,
    COMMITTED,
    LOGGED,
    POINTS,
    WORKED,
    Checkpoint,
    DriverDied,
    FleetQuery,
    all_done_once,
    counts,
    ledger,
    make_queue,
    put,
)
from tests.support.servers.http import HttpYard, Topics

LONG_MS = 10 * 60_000


def refusal(call: object, *given: object) -> JobyardError:
    assert callable(call)
    with pytest.raises(JobyardError) as refused:
        call(*given)
    assert len(str(refused.value).splitlines()) <= 3
    return refused.value


def claim_elsewhere(topics: Topics, queue: str, most: int = 1000) -> list[int]:
    """Claim as another worker does, and wait for the first job."""
    body = {"node": "other", "max": most, "wait_ms": 30_000, "lease_ms": LONG_MS}
    found = topics.ask("POST", f"/v0/topics/{queue}/claim", body)[1]
    return [each["$seq"] for each in found["claimed"]]


def test_each_batch_is_a_claim_set_and_each_job_is_done_once(
    yard: HttpYard, topics: Topics
) -> None:
    make_queue(topics, "f-once", 250)
    query = FleetQuery(yard.url, "f-once")
    query.run()
    assert [len(each) for each in query.read] == [0, 100, 100, 50]
    offsets = query.checkpoint.offsets
    assert [each["n"] for each in offsets] == [0, 1, 2, 3]
    assert [each["jobs"] for each in offsets] == [0, 100, 100, 50]
    assert counts(topics, "f-once") == (0, 0, 0)
    all_done_once(yard, "f-once", 250)
    report = query.report()
    assert (report["claimed"], report["acked"], report["skipped"]) == (250, 250, 0)
    query.stop()


def test_a_job_has_all_that_was_written(yard: HttpYard, topics: Topics) -> None:
    topics.ask("PUT", "/v0/topics/f-job", {"type": "queue"})
    records = [
        {"data": {"é": [1]}, "tag": "a", "meta": {"x": "y", "n": "1"}},
        {"data_b64": "AAH/"},
        {"data_b64": ""},
        {"data": {"$base64": "not"}},
    ]
    assert topics.ask("POST", "/v0/topics/f-job", {"records": records})[0] == 200
    seen: list[Job] = []
    query = FleetQuery(yard.url, "f-job", seen.append)
    query.run()
    query.stop()
    values = sorted((job.seq, job.value) for job in seen)
    expected = [b'{"\\u00e9": [1]}', b"\x00\x01\xff", b"", b'{"$base64": "not"}']
    assert [value for _, value in values] == expected
    first = next(job for job in seen if job.seq == 1)
    assert (first.json(), first.tag, first.headers) == ({"é": [1]}, "a", {"x": "y", "n": "1"})
    assert (first.queue, first.worker, first.deliveries) == ("f-job", "w", 1)
    assert abs(first.ts.timestamp() - time.time()) < 3600
    assert next(job for job in seen if job.seq == 2).headers == {}


def test_what_a_function_says_becomes_of_the_job(yard: HttpYard, topics: Topics) -> None:
    make_queue(topics, "f-said", 6, dead_letter="f-said.dead")
    topics.ask("PUT", "/v0/topics/f-said.out", {})

    def call(job: Job) -> object:
        number = job.json()
        if number == 1:
            raise ValueError("one: 1")
        said = {2: Retry(60_000, "later"), 3: Bury("never"), 4: {"sum": 4}, 5: b"\x00raw"}
        return said.get(number) if isinstance(number, int) else None

    query = FleetQuery(yard.url, "f-said", call, results="f-said.out")
    query.run()
    query.stop()
    assert query.answers[1]["acked"] == 3
    assert query.answers[1]["nacked"] == 2
    assert query.answers[1]["dead_lettered"] == 1
    rows = read_batch(yard.url, "queue event error queue_seq", topic="_events")
    errors = {row["queue_seq"]: row["error"] for row in rows if row["queue"] == "f-said"}
    assert errors[2] == "ValueError: one: 1"
    assert errors[3] == "later"
    assert errors[4] == "never"
    found = read_batch(yard.url, "value", topic="f-said.out")
    assert [row["value"] for row in found] == [b'{"sum": 4}', b"\x00raw"]
    assert counts(topics, "f-said") == (0, 0, 2)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("batch", [1, 2])
def test_a_driver_that_dies_anywhere_loses_and_repeats_nothing(
    yard: HttpYard, topics: Topics, point: str, batch: int
) -> None:
    name = f"f-dies-{point}-{batch}"
    make_queue(topics, name, 150)
    topics.ask("PUT", f"/v0/topics/{name}.out", {})
    worked: list[int] = []

    def call(job: Job) -> object:
        worked.append(job.seq)
        assert job.deliveries == 1, "the same delivery"
        return job.seq

    checkpoint = Checkpoint()
    options = {"lease_ms": LONG_MS, "results": f"{name}.out"}
    first = FleetQuery(yard.url, name, call, checkpoint, **options)  # type: ignore[arg-type]
    with pytest.raises(DriverDied):
        first.run(point, batch)
    second = FleetQuery(yard.url, name, call, checkpoint, **options)  # type: ignore[arg-type]
    second.run()
    second.stop()
    # Only what was worked on and not committed is worked on again.
    again = {WORKED: 100 if batch == 1 else 50}.get(point, 0)
    assert len(worked) == 150 + again
    if point == COMMITTED:
        assert second.read[0] == []
    all_done_once(yard, name, 150)
    found = [int(row["value"]) for row in read_batch(yard.url, "value", topic=f"{name}.out")]
    assert sorted(found) == list(range(1, 151))


def test_a_checkpoint_that_is_lost_begins_a_series_of_its_own(
    yard: HttpYard, topics: Topics
) -> None:
    make_queue(topics, "f-series", 30)
    first = FleetQuery(yard.url, "f-series", batch="10")
    first.run()
    first.stop()
    put(topics, "f-series", 30)
    second = FleetQuery(yard.url, "f-series", batch="10")
    second.run()
    second.stop()
    assert sum(len(each) for each in second.read) == 30
    all_done_once(yard, "f-series", 60)


def test_a_driver_that_comes_too_late_does_nothing_twice(
    yard: HttpYard, topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    make_queue(topics, "f-late", 20)
    topics.ask("PUT", "/v0/topics/f-late.out", {})
    worked: list[Job] = []
    checkpoint = Checkpoint()
    first = FleetQuery(
        yard.url, "f-late", worked.append, checkpoint, lease_ms=1000, results="f-late.out"
    )
    with pytest.raises(DriverDied):
        first.run(LOGGED, 1)
    # Nobody extends: after one lease the jobs are another's, who finishes half of them.
    taken: list[int] = []
    while len(taken) < 20:
        taken += claim_elsewhere(topics, "f-late")
    done = {"node": "other", "seqs": taken[:10]}
    assert topics.ask("POST", "/v0/topics/f-late/ack", done)[1]["acked"] == 10
    with caplog.at_level(logging.WARNING):
        second = FleetQuery(yard.url, "f-late", worked.append, checkpoint, results="f-late.out")
        assert second.step()
    assert worked == []
    assert second.report()["skipped_why"] == {"gone_before": 20}
    assert "20 jobs of claim" in caplog.text
    # The query goes on.
    put(topics, "f-late", 3)
    assert second.step()
    assert len(second.read[-1]) == 3
    second.stop()
    assert topics.ask("GET", "/v0/topics/f-late.out")[1]["count"] == 0


def test_runs_that_are_lost_before_the_commit_are_skipped(yard: HttpYard, topics: Topics) -> None:
    make_queue(topics, "f-skip", 20)
    topics.ask("PUT", "/v0/topics/f-skip.out", {})
    query = FleetQuery(yard.url, "f-skip", lambda job: job.seq, lease_ms=1000, results="f-skip.out")
    assert query.step()
    start = query.checkpoint.offsets[-1]
    end = query.reader.latestOffset(start, query.reader.getDefaultReadLimit())
    written = query.tasks(start, end)
    # As if the driver could not reach the server for longer than a lease.
    driver = query.reader._driver
    assert driver is not None
    assert driver._keeper is not None
    driver._keeper.stop()
    taken = claim_elsewhere(topics, "f-skip", 5)
    answer = commit_ends(query.ends, written)
    assert answer is not None
    skipped = answer.fields["skipped"]
    assert isinstance(skipped, list)
    assert {each[1] for each in skipped if each[2] == "other_holder"} == set(taken)
    assert answer.number("acked") + len(skipped) == 20
    results = read_batch(yard.url, "value", topic="f-skip.out")
    assert len(results) == answer.number("acked")
    assert {int(row["value"]) for row in results}.isdisjoint(taken)
    query.checkpoint.offsets.append(end)
    query.checkpoint.commits = 2
    query.step()
    report = query.report()
    assert report["skipped"] == len(skipped)
    assert report["skipped_why"]["other_holder"] == len(taken)
    query.stop()


def test_the_leases_of_a_batch_last_as_long_as_the_driver_lives(
    yard: HttpYard, topics: Topics
) -> None:
    make_queue(topics, "f-kept", 5)
    query = FleetQuery(yard.url, "f-kept", lease_ms=600)
    assert query.step()
    start = query.checkpoint.offsets[-1]
    end = query.reader.latestOffset(start, query.reader.getDefaultReadLimit())
    # Longer than several leases; the server itself waits.
    body = {"node": "other", "max": 5, "wait_ms": 2500}
    assert topics.ask("POST", "/v0/topics/f-kept/claim", body)[1]["count"] == 0
    assert commit_ends(query.ends, query.tasks(start, end)) is not None
    query.stop()
    all_done_once(yard, "f-kept", 5)


def test_of_two_drivers_the_later_wins(yard: HttpYard, topics: Topics) -> None:
    make_queue(topics, "f-two", 40)
    first = FleetQuery(yard.url, "f-two", batch="10")
    assert first.step()
    assert first.step()
    start = first.checkpoint.offsets[-1]
    end = first.reader.latestOffset(start, first.reader.getDefaultReadLimit())
    written = first.tasks(start, end)
    second = FleetQuery(yard.url, "f-two", batch="10")
    assert second.step()
    error = refusal(commit_ends, first.ends, written)
    assert (error.code, error.option) == ("fenced", "worker")
    assert "another driver has begun as worker w" in error.message
    abort_ends(first.ends, written)
    error = refusal(first.reader.latestOffset, end, first.reader.getDefaultReadLimit())
    assert error.code == "fenced"
    second.run()
    second.stop()
    first.stop()
    # The ten that the first one held come back after their lease.
    found = ledger(yard, "f-two")
    assert sorted(ends.count("completed") for ends in found.values()) == [1] * 30
    assert counts(topics, "f-two") == (0, 10, 0)


def test_a_driver_whose_clock_goes_behind_still_comes_later(
    yard: HttpYard, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_queue(topics, "f-clock", 1)
    options = claim_options({"url": yard.url, "queue": "f-clock", "worker": "clock"}, None, 1)
    with options.connecting.client() as client:
        early, late = (WorkerClaims(client, options) for _ in range(2))
        first = early.begin()
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda: 1000.0)
            assert late.begin() > first
        at = parse_offset(
            {"v": 1, "queue": "f-clock", "worker": "clock", "series": 1, "n": 1, "jobs": 0},
            "f-clock", "clock",
        )  # fmt: skip
        assert refusal(early.claim, at, 1, 0).code == "fenced"
        assert late.claim(at, 1, 0).seqs == [1]
        assert read_set(client, at, 0).num_rows == 1


def test_an_idle_stream_makes_no_batches_and_few_calls(yard: HttpYard, topics: Topics) -> None:
    make_queue(topics, "f-idle", 0)
    query = FleetQuery(yard.url, "f-idle")
    assert query.step()
    claims = query.reader._drive()._claims
    calls: list[float] = []
    claim = claims.claim

    def counted(*given: object) -> object:
        calls.append(time.monotonic())
        return claim(*given)  # type: ignore[arg-type]

    claims.claim = counted  # type: ignore[method-assign, assignment]
    begun = time.monotonic()
    for _ in range(3):
        assert not query.step()
    assert time.monotonic() - begun >= 2.9
    assert len(calls) == 3
    # A job ends the wait.
    put(topics, "f-idle", 1)
    assert query.step()
    query.stop()


def test_a_run_of_what_is_available_ends(yard: HttpYard, topics: Topics) -> None:
    make_queue(topics, "f-now", 25)
    query = FleetQuery(yard.url, "f-now", batch="10")
    query.reader.prepareForTriggerAvailableNow()
    put(topics, "f-now", 10)
    query.run()
    query.stop()
    assert [len(each) for each in query.read] == [0, 10, 10, 5]
    assert counts(topics, "f-now") == (10, 0, 0)


@pytest.mark.parametrize("count", [10, 25])
def test_a_run_of_what_is_available_takes_up_an_earlier_claim(
    yard: HttpYard, topics: Topics, count: int
) -> None:
    name = f"f-earlier-{count}"
    make_queue(topics, name, count)
    first = FleetQuery(yard.url, name, batch="10", lease_ms=LONG_MS)
    with pytest.raises(DriverDied):
        first.run(CLAIMED, 1)
    query = FleetQuery(yard.url, name, checkpoint=first.checkpoint, batch="10")
    query.reader.prepareForTriggerAvailableNow()
    query.run()
    query.stop()
    all_done_once(yard, name, count)


def test_nobody_starves_beside_the_fleet(yard: HttpYard, topics: Topics) -> None:
    make_queue(topics, "f-fair", 60)
    query = FleetQuery(yard.url, "f-fair", batch="10")
    assert query.step()
    others = []
    while query.step():
        body = {"node": "plain", "max": 10}
        found = topics.ask("POST", "/v0/topics/f-fair/claim", body)[1]["claimed"]
        others += [each["$seq"] for each in found]
        if found:
            done = {"node": "plain", "seqs": [each["$seq"] for each in found]}
            assert topics.ask("POST", "/v0/topics/f-fair/ack", done)[0] == 200
    query.stop()
    assert len(others) == 30
    all_done_once(yard, "f-fair", 60)


def test_priorities_hold(yard: HttpYard, topics: Topics) -> None:
    make_queue(topics, "f-first", 10)
    records = [{"data": "urgent", "priority": 9}] * 5
    assert topics.ask("POST", "/v0/topics/f-first", {"records": records})[0] == 200
    plain = topics.ask("POST", "/v0/topics/f-first/claim", {"node": "n", "max": 1})[1]["claimed"]
    query = FleetQuery(yard.url, "f-first", batch="4")
    query.step()
    query.step()
    query.stop()
    is_urgent_first = plain[0]["data"] == "urgent"
    assert all((seq > 10) == is_urgent_first for seq in query.read[-1])


def test_a_stream_of_a_log_or_of_nothing_is_refused(yard: HttpYard, topics: Topics) -> None:
    topics.ask("PUT", "/v0/topics/f-log", {})
    error = refusal(FleetQuery(yard.url, "f-log").step)
    assert (error.code, error.option) == ("bad_option", "queue")
    error = refusal(FleetQuery(yard.url, "f-nowhere").step)
    assert (error.code, error.topic) == ("topic_not_found", "f-nowhere")


def test_the_checkpoint_of_another_worker_is_refused(yard: HttpYard, topics: Topics) -> None:
    make_queue(topics, "f-mine", 1)
    query = FleetQuery(yard.url, "f-mine")
    query.run()
    query.stop()
    other = FleetQuery(yard.url, "f-mine", checkpoint=query.checkpoint, worker="v")
    error = refusal(other.step)
    assert (error.code, error.option) == ("bad_offsets", "checkpointLocation")
    other.checkpoint = Checkpoint(offsets=[{"v": 1, "t": {}}], commits=1)
    assert refusal(other.step).code == "bad_offsets"


def test_results_without_a_topic_are_refused(yard: HttpYard, topics: Topics) -> None:
    make_queue(topics, "f-none", 1)
    query = FleetQuery(yard.url, "f-none", lambda _: 1, results="f-none.out")
    query.ends = replace(query.ends, results="")
    error = refusal(query.run)
    assert (error.code, error.option) == ("bad_option", "results")
    query.stop()
    query = FleetQuery(yard.url, "f-none", lambda _: 1, query.checkpoint, results="f-none.out")
    error = refusal(query.run)
    assert (error.code, error.topic) == ("topic_not_found", "f-none.out")
    query.stop()


def test_a_queue_that_is_deleted_ends_the_query_with_its_name(
    yard: HttpYard, topics: Topics
) -> None:
    make_queue(topics, "f-gone", 5)
    query = FleetQuery(yard.url, "f-gone")
    with pytest.raises(DriverDied):
        query.run(LOGGED, 1)
    assert topics.ask("DELETE", "/v0/topics/f-gone")[0] == 200
    again = FleetQuery(yard.url, "f-gone", checkpoint=query.checkpoint)
    assert refusal(again.step).code == "topic_not_found"
    # Made again, it is another one: nothing of the old set is taken for the new.
    make_queue(topics, "f-gone", 5)
    again.run()
    again.stop()
    assert again.read[:2] == [[], []]
    assert len(again.read[2]) == 5


def test_what_is_left_for_the_progress_is_read_once_and_cleaned(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = outcomes.Outcome()
    found.ended["acked"] = 3
    found.skipped["expired"] = 1
    outcomes.leave("http://a", ["c-1"], found)
    assert outcomes.take("http://b", "c-1") is None
    taken = outcomes.take("http://a", "c-1")
    assert taken is not None
    assert taken.form()["acked"] == 3
    assert taken.form()["skipped"] == 1
    assert outcomes.take("http://a", "c-1") is None
    outcomes.leave("http://a", ["c-2"], found)
    monkeypatch.setattr(outcomes, "_KEPT_S", -1)
    outcomes.clean()
    assert outcomes.take("http://a", "c-2") is None


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpYard]:
    """A server whose commits hold little."""
    found = HttpYard("--data", str(tmp_path_factory.mktemp("narrow")), "--txn-rows-max", "400")
    yield found
    found.close()


def test_a_batch_that_no_commit_holds_is_refused_before_work(narrow: HttpYard) -> None:
    topics = Topics(narrow.address)
    make_queue(topics, "n-size", 30, dead_letter="n-size.dead")
    error = refusal(FleetQuery(narrow.url, "n-size", batch="21").step)
    assert (error.code, error.option) == ("bad_option", "batch")
    assert "at most 400" in error.message
    assert "at most 20" in error.remedy
    assert counts(topics, "n-size") == (30, 0, 0)
    # One that fits is committed, whatever becomes of its jobs: errors are cut.
    query = FleetQuery(narrow.url, "n-size", lambda _: Bury("é" * 5000), batch="20")
    query.run()
    query.stop()
    assert counts(topics, "n-size") == (0, 0, 0)
    names = "queue event error"
    rows = [row for row in read_batch(narrow.url, names, topic="_events") if row["error"]]
    assert len(rows) == 30
    assert all(set(row["error"]) == {"é"} for row in rows)
    topics.close()


def test_the_server_may_be_killed_in_between(tmp_path: object) -> None:
    flags = ("--data", f"{tmp_path}/data")
    server = HttpYard(*flags)
    topics = Topics(server.address)
    make_queue(topics, "k", 30)
    query = FleetQuery(server.url, "k", batch="10", lease_ms=LONG_MS)
    assert query.step()
    start = query.checkpoint.offsets[-1]
    end = query.reader.latestOffset(start, query.reader.getDefaultReadLimit())
    topics.close()
    server.process.signal(signal.SIGKILL)
    server.process.wait()
    server.close()
    server = HttpYard(*flags, "--http", f"127.0.0.1:{server.address[1]}")
    written = query.tasks(start, end)
    assert len(query.read[-1]) == 10, "leases of a claim set outlive the server"
    assert commit_ends(query.ends, written) is not None
    query.stop()
    again = FleetQuery(server.url, "k", batch="10")
    again.run()
    again.stop()
    all_done_once(server, "k", 30)
    server.close()
