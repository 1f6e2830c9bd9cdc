"""Claims with an id: the same jobs again, whoever dies in between; extended together; fenced."""

import io
from typing import Any

import pyarrow as pa
import pytest

from jobyard.protocols.topics.export.jobs import JOB_FIELDS
from tests.support.clients.exports import exported
from tests.support.clients.http import Reply
from tests.support.clients.topics import TopicsClient, said
from tests.support.doors.topics import BareTopics
from tests.support.site.storage import MemoryStorage

ARROW = {"Accept": "application/vnd.apache.arrow.stream"}


@pytest.fixture
def queue(api: TopicsClient) -> str:
    """A queue with five jobs."""
    api.put("q", type="queue")
    api.write("q", *"abcde")
    return "q"


def claim_set(api: TopicsClient, claim_id: str = "c", **fields: object) -> Any:
    return api.claim("q", claim_id=claim_id, **fields)


def again(api: TopicsClient, claim_id: str = "c") -> Any:
    return said(api.ask("GET", f"/v0/topics/q/claims/{claim_id}"))


def extend(api: TopicsClient, claim_id: str = "c", **fields: object) -> Reply:
    return api.ask("POST", f"/v0/topics/q/claims/{claim_id}/extend", fields)


def seqs(answer: Any) -> list[int]:
    return [one["$seq"] for one in answer["claimed"]]


@pytest.mark.usefixtures("queue")
def test_the_same_id_gives_the_same_jobs(site: BareTopics, api: TopicsClient) -> None:
    first = claim_set(api, max=3)
    assert seqs(first) == [1, 2, 3]
    counts = (first["count"], first["ready"], first["left_out"])
    assert (*counts, first["claim_id"], first["duplicate"]) == (3, 2, 0, "c", False)
    site.tick(100)
    assert claim_set(api, max=99) == {**first, "duplicate": True}
    assert again(api) == {**first, "duplicate": True}
    assert seqs(claim_set(api, "d", max=9)) == [4, 5]
    answer = api.post("q/claim", {"node": "x", "claim_id": "c"})
    assert answer.refusal == (409, "claim_differs")


@pytest.mark.usefixtures("queue")
def test_jobs_that_ended_or_were_lost_are_left_out(site: BareTopics, api: TopicsClient) -> None:
    claim_set(api, max=4, lease_ms=1000)
    api.ok("q/ack", {"node": "w", "seqs": [1]})
    api.ok("q/nack", {"node": "w", "seqs": [2]})
    assert seqs(api.claim("q")) == [2]
    seen = claim_set(api)
    assert (seqs(seen), seen["left_out"]) == ([3, 4], 2)
    site.tick(1001)
    assert seqs(api.claim("q", max=9)) == [3, 4, 5]
    seen = claim_set(api, max=9)
    assert (seqs(seen), seen["left_out"], seen["duplicate"]) == ([], 4, True)
    assert site.yard.txns.claim_sets.values()[0].seqs == []


def test_a_set_without_jobs_is_not_remembered(api: TopicsClient) -> None:
    api.put("q", type="queue")
    assert claim_set(api)["count"] == 0
    assert api.ask("GET", "/v0/topics/q/claims/c").refusal == (404, "claim_not_found")
    api.write("q", "a")
    seen = claim_set(api)
    assert (seqs(seen), seen["duplicate"]) == ([1], False)


def test_a_set_may_be_large() -> None:
    # Recounting so many leases takes minutes.
    site = BareTopics()
    api = site.api
    api.put("q", type="queue")
    for _ in range(2):
        api.write("q", *range(6000))
    first = claim_set(api, max=20_000)
    assert (first["count"], first["ready"]) == (10_000, 2000)
    assert seqs(first) == list(range(1, 10_001))
    answer = extend(api, lease_ms=90_000)
    deadline = site.now_ms + 90_000
    found = {"topic": "q", "claim_id": "c", "extended": 10_000, "left_out": 0}
    assert said(answer) == {**found, "deadline": deadline}
    assert {one["deadline"] for one in again(api)["claimed"]} == {deadline}


@pytest.mark.usefixtures("queue")
def test_a_claim_with_an_id_waits_for_a_job(site: BareTopics, api: TopicsClient) -> None:
    assert api.claim("q", max=5)["count"] == 5
    waiting = site.connect()
    body = {"node": "w", "claim_id": "c", "max": 9, "wait_ms": 5000}
    waiting.send("POST", "/v0/topics/q/claim", body)
    assert waiting.hear() is None
    api.write("q", "f", "g")
    site.tick(1)
    answer = waiting.hear()
    assert answer is not None
    assert seqs(said(answer)) == [6, 7]
    waiting.send("POST", "/v0/topics/q/claim", {**body, "claim_id": "d"})
    site.tick(5001)
    answer = waiting.hear()
    assert answer is not None
    assert said(answer)["count"] == 0
    waiting.send("POST", "/v0/topics/q/claim", {**body, "claim_id": "d"})
    api.ask("DELETE", "/v0/topics/q")
    answer = waiting.hear()
    assert answer is not None
    assert answer.refusal == (404, "topic_not_found")
    waiting.close()


@pytest.mark.usefixtures("queue")
def test_a_client_that_leaves_waits_no_longer(site: BareTopics, api: TopicsClient) -> None:
    api.claim("q", max=5)
    waiting = site.connect()
    body = {"node": "x", "claim_id": "c", "wait_ms": 5000}
    waiting.send("POST", "/v0/topics/q/claim", body)
    waiting.close()
    api.write("q", "f")
    site.tick(10)
    assert api.state("q")["queue"]["ready"] == 1


@pytest.mark.usefixtures("queue")
def test_an_answer_in_columns(site: BareTopics, api: TopicsClient) -> None:
    api.ok("q", {"records": [{"data": {"x": 1}, "tag": "t", "meta": {"m": 1}}]})
    api.ok("q", {"records": [{"data_b64": "/wA="}]})
    first = claim_set(api, max=9)
    api.ok("q/ack", {"node": "w", "seqs": [2]})
    answer = api.ask("GET", "/v0/topics/q/claims/c", None, ARROW)
    assert answer.headers["content-type"] == ARROW["Accept"]
    table = pa.ipc.open_stream(io.BytesIO(answer.body)).read_all()
    assert table.schema.metadata == {b"claim_id": b"c", b"left_out": b"1"}
    rows = table.to_pylist()
    assert [row["seq"] for row in rows] == [1, 3, 4, 5, 6, 7]
    assert (rows.pop()["data"], first["claimed"].pop()["data_b64"]) == (
        '{"$base64":"/wA="}',
        "/wA=",
    )
    last = first["claimed"][-1]
    assert (rows[-1]["lease_id"], rows[-1]["data"]) == (last["lease_id"], '{"x": 1}')
    assert (rows[-1]["tag"], rows[-1]["meta"], rows[-1]["deliveries"]) == ("t", '{"m": 1}', 1)
    assert (rows[0]["tag"], rows[0]["meta"]) == (None, None)
    assert rows[0]["deadline"].timestamp() * 1000 == site.now_ms + 30_000
    api.ok("q/ack", {"node": "w", "seqs": [1, 3, 4, 5, 6, 7]})
    answer = api.ask("GET", "/v0/topics/q/claims/c", None, ARROW)
    assert pa.ipc.open_stream(io.BytesIO(answer.body)).read_all().num_rows == 0


def test_columns_are_those_of_an_export_of_jobs(site: BareTopics, api: TopicsClient) -> None:
    api.put("q", type="queue", max_deliveries=3, dead_letter="letters")
    first = {"data": {"x": 1}, "name": "bill", "job_id": "b-7", "max_attempts": 2, "priority": 4}
    api.ok("q", {"records": [{**first, "tag": "t", "meta": {"m": 1}}, {"data_b64": "/wA="}]})
    claim_set(api, max=9, node="n1")
    names = [field.name for field in JOB_FIELDS]
    chosen = f"columns=lease_id,deadline,{','.join(names)}&nullable=true"
    answer = api.ask("GET", f"/v0/topics/q/claims/c?{chosen}", None, ARROW)
    table = pa.ipc.open_stream(io.BytesIO(answer.body)).read_all()
    assert table.column_names == ["lease_id", "deadline", *names]
    assert all(field.nullable for field in table.schema)
    assert table.schema.field("value").type == pa.binary()
    rows = table.to_pylist()
    made = exported(site, f"q/export?jobs=leased&columns={','.join(names)}").rows
    assert [{name: row[name] for name in names} for row in rows] == made
    assert [row["value"] for row in rows] == [b'{"x": 1}', b"\xff\0"]
    told = {"client_id": "b-7", "name": "bill", "max_attempts": 2, "priority": 4, "worker": "n1"}
    assert told.items() <= rows[0].items()
    # All but `value`, which repeats `data`; and no data is read if none is wanted.
    answer = api.ask("GET", "/v0/topics/q/claims/c", None, ARROW)
    schema = pa.ipc.open_stream(io.BytesIO(answer.body)).schema
    assert schema.names == ["seq", "lease_id", "deadline", "ts", *names[:-1]]
    assert not schema.field("queue_seq").nullable
    answer = api.ask("GET", "/v0/topics/q/claims/c?columns=queue_seq,lease_id", None, ARROW)
    few = pa.ipc.open_stream(io.BytesIO(answer.body)).read_all()
    assert few["queue_seq"].to_pylist() == [1, 2]


@pytest.mark.usefixtures("queue")
@pytest.mark.parametrize(
    ("query", "headers"),
    [
        ("nosuch=1", ARROW),
        ("columns=nosuch", ARROW),
        ("columns=seq,seq", ARROW),
        ("nullable=1", ARROW),
        ("compress=zstd", ARROW),
        ("nosuch=1", {}),
        ("columns=nosuch", {}),
    ],
)
def test_parameters_that_a_claim_does_not_have(
    api: TopicsClient, query: str, headers: dict[str, str]
) -> None:
    claim_set(api)
    answer = api.ask("GET", f"/v0/topics/q/claims/c?{query}", None, headers)
    assert answer.refusal == (400, "invalid_request")


@pytest.mark.usefixtures("queue")
def test_columns_change_no_json(api: TopicsClient) -> None:
    claim_set(api)
    plain = api.ask("GET", "/v0/topics/q/claims/c").json["claimed"]
    chosen = api.ask("GET", "/v0/topics/q/claims/c?columns=seq&nullable=true").json["claimed"]
    assert chosen == plain


@pytest.mark.usefixtures("queue")
def test_an_older_driver_is_fenced(api: TopicsClient) -> None:
    claim_set(api, worker="m", epoch=2)
    for path, body in (
        ("claim", {"node": "w", "claim_id": "d"}),
        ("claim", {"node": "w"}),
        ("claims/c/extend", {"lease_ms": 1000}),
        ("extend", {"node": "w", "seqs": [1], "lease_ms": 1000}),
    ):
        answer = api.post(f"q/{path}", {**body, "worker": "m", "epoch": 1})
        assert answer.refusal == (409, "fenced")
        assert answer.json["error"]["detail"] == {"epoch": 2}
    assert extend(api, lease_ms=1000, worker="m", epoch=3).status == 200
    answer = api.post("q/claim", {"node": "w", "worker": "m", "epoch": 2})
    assert answer.refusal == (409, "fenced")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"claim_id": "a b"}, 400),
        ({"claim_id": ""}, 400),
        ({"claim_id": "x" * 257}, 400),
        ({"claim_id": 7}, 400),
        ({"claim_id": "c", "node": ""}, 400),
        ({"worker": 7}, 400),
        ({"epoch": 7}, 409),
    ],
)
@pytest.mark.usefixtures("queue")
def test_a_claim_that_makes_no_sense(
    api: TopicsClient, body: dict[str, object], status: int
) -> None:
    assert api.post("q/claim", {"node": "w", **body}).status == status
    assert extend(api, "none", lease_ms=1).refusal == (404, "claim_not_found")
    claim_set(api)
    assert extend(api).refusal == (400, "invalid_request")
    assert extend(api, lease_ms=1, strict=True, other=1).refusal == (400, "invalid_request")


@pytest.mark.usefixtures("queue")
def test_claim_sets_are_bounded(site: BareTopics, api: TopicsClient) -> None:
    site.yard.txns.txns_max = 1
    claim_set(api, lease_ms=100)
    answer = api.post("q/claim", {"node": "w", "claim_id": "d"})
    assert answer.refusal == (429, "throttled")
    site.tick(8 * 86_400_000)
    assert seqs(claim_set(api, "d", max=9)) == [1, 2, 3, 4, 5]


def test_claim_sets_and_their_leases_survive_a_restart() -> None:
    site = BareTopics(MemoryStorage())
    site.api.put("q", type="queue")
    site.api.write("q", *"abcde")
    first = claim_set(site.api, max=4)
    site.api.ok("q/ack", {"node": "w", "seqs": [2]})
    after = site.reboot(1000)
    seen = claim_set(after.api, max=9)
    kept = [one for one in first["claimed"] if one["$seq"] != 2]
    assert [one["lease_id"] for one in seen["claimed"]] == [one["lease_id"] for one in kept]
    assert [one["deliveries"] for one in seen["claimed"]] == [1, 1, 1]
    assert (seen["left_out"], seen["duplicate"]) == (1, True)
    items = [[one["$seq"], one["lease_id"]] for one in kept]
    body = {"acks": [{"queue": "q", "node": "w", "items": items}]}
    assert said(after.api.ask("POST", "/v0/txns/t/commit", body))["acked"] == 3
    last = after.reboot(60_000)
    assert seqs(claim_set(last.api, max=9)) == []
    assert seqs(claim_set(last.api, "d", max=9)) == [5]
    last.tick(60_000)
    last.again().check()
