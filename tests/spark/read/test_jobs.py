"""A snapshot of the jobs of a queue."""

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan

from jobyard.client import JobyardError
from tests.support.clients.spark import read_batch, rows_of, schema, source_of
from tests.support.servers.http import HttpYard, Topics


@pytest.fixture
def queue(topics: Topics) -> str:
    if topics.ask("PUT", "/v0/topics/mails", {"type": "queue"})[0] == 201:
        records = [{"data": {"to": at}, "tag": f"t{at}", "priority": at} for at in range(6)]
        assert topics.ask("POST", "/v0/topics/mails", {"records": records})[0] == 200
        late = [{"data": "late", "delay_ms": 3_600_000}]
        assert topics.ask("POST", "/v0/topics/mails", {"records": late})[0] == 200
        claim = {"node": "w1", "max": 2, "lease_ms": 600_000}
        assert topics.ask("POST", "/v0/topics/mails/claim", claim)[0] == 200
    return "mails"


def test_jobs_are_a_table(yard: HttpYard, queue: str) -> None:
    rows = read_batch(yard.url, "", jobs=queue)
    assert [row["queue_seq"] for row in rows] == [1, 2, 3, 4, 5, 6, 7]
    assert {row["queue"] for row in rows} == {queue}
    by_state = {state: sum(row["state"] == state for row in rows) for state in
                ("ready", "leased", "delayed")}  # fmt: skip
    assert by_state == {"ready": 4, "leased": 2, "delayed": 1}
    assert all((row["claimed_at"] is not None) == (row["state"] == "leased") for row in rows)
    assert rows[0]["value"] == b'{"to": 0}'
    assert rows[0]["tag"] == "t0"


def test_states_are_chosen_by_option_and_by_filter(yard: HttpYard, queue: str) -> None:
    states = [row["state"] for row in read_batch(yard.url, "state", jobs=queue, states="delayed")]
    assert states == ["delayed"]
    filters = [EqualTo(("state",), "ready")]
    found = read_batch(yard.url, "state queue_seq", jobs=queue, filters=filters)
    assert [row["state"] for row in found] == ["ready"] * 4
    later = [GreaterThan(("queue_seq",), 5)]
    found = read_batch(yard.url, "queue_seq", jobs=queue, filters=later)
    assert [row["queue_seq"] for row in found] == [6, 7]


def test_what_has_no_jobs_is_said(yard: HttpYard, topics: Topics) -> None:
    topics.ask("PUT", "/v0/topics/no-queue", {})
    with pytest.raises(JobyardError, match="is a log") as caught:
        read_batch(yard.url, "state", jobs="no-queue")
    assert caught.value.option == "jobs"
    with pytest.raises(JobyardError, match="nothing-here"):
        read_batch(yard.url, "state", jobs="nothing-here")


@pytest.mark.parametrize("jobs_then", [3, 30])
def test_a_queue_that_was_made_again_is_not_read_in_its_place(
    yard: HttpYard, topics: Topics, jobs_then: int
) -> None:
    name = f"remade-{jobs_then}"

    def make(count: int) -> None:
        assert topics.ask("PUT", f"/v0/topics/{name}", {"type": "queue"})[0] == 201
        records = {"records": [{"data": at} for at in range(count)]}
        assert topics.ask("POST", f"/v0/topics/{name}", records)[0] == 200

    make(10)
    for is_fatal in (True, False):
        source = source_of(yard.url, jobs=name, failOnDataLoss=str(is_fatal).lower())
        reader = source.reader(schema=schema(source, "state"))
        partitions = reader.partitions()
        assert topics.ask("DELETE", f"/v0/topics/{name}")[0] == 200
        make(jobs_then)
        if not is_fatal:
            assert rows_of(reader, partitions) == []
            continue
        with pytest.raises(JobyardError, match="made again") as caught:
            rows_of(reader, partitions)
        assert (caught.value.code, caught.value.topic) == ("data_loss", name)
        assert "checkpoint" not in caught.value.remedy
