"""Records that are bytes: checked, kept, and shown as such wherever a record is shown."""

import json
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobyard.protocols.topics.records.data import RECORD_MAX
from tests.support.clients.exports import exported
from tests.support.clients.topics import TopicsClient
from tests.support.doors.topics import BareTopics
from tests.support.site.storage import MemoryStorage

PIECES = (b"", b"\xff\x00", b"text", b'{"a": 1}', bytes(range(256)) * 20)


def encoded(data: bytes) -> str:
    return b64encode(data).decode()


def write(api: TopicsClient, name: str, *pieces: bytes, **fields: object) -> Any:
    """Write bytes as records."""
    return api.ok(name, {"records": [{"data_b64": encoded(one), **fields} for one in pieces]})


def shown(records: list[Any]) -> list[str]:
    """Return the base64 of records that must be bytes."""
    assert all("data" not in record for record in records)
    return [record["data_b64"] for record in records]


# -- what is accepted ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["log", "queue"])
def test_they_are_read_as_they_were_written(api: TopicsClient, kind: str) -> None:
    api.put("t", type=kind)
    write(api, "t", *PIECES, meta={"k": [1]}, tag="t", node="n")
    records = api.diff("t", include_tags=True)["records"]
    assert shown(records) == [encoded(one) for one in PIECES]
    assert all(
        (one["$tag"], one["$node"], one["meta"]) == ("t", "n", {"k": [1]}) for one in records
    )
    assert shown(api.diff("t", include_meta=False)["records"]) == shown(records)
    api.write("t", {"data_b64": "plain"})
    assert api.diff("t", from_seq=len(PIECES))["records"][0]["data"] == {"data_b64": "plain"}


@pytest.mark.parametrize("kind", ["log", "queue"])
@pytest.mark.parametrize(
    "record",
    [
        {"data_b64": "QQ"},
        {"data_b64": "QQ="},
        {"data_b64": "QQ==QQ=="},
        {"data_b64": "Q Q="},
        {"data_b64": "_-8="},
        {"data_b64": "\u00e4\ud800=="},
        {"data_b64": 1},
        {"data_b64": ["QQ=="]},
        {"data_b64": "QQ==", "data": None},
        {"data_b64": None},
    ],
)
def test_what_is_not_base64_is_refused(api: TopicsClient, kind: str, record: object) -> None:
    api.put("t", type=kind)
    answer = api.post("t", {"records": [{"data": 1}, record]})
    assert answer.refusal == (400, "invalid_request")
    assert api.diff("t")["records"] == []


@pytest.mark.parametrize("kind", ["log", "queue"])
def test_their_size_is_that_of_the_bytes(api: TopicsClient, kind: str) -> None:
    api.put("t", type=kind)
    write(api, "t", bytes(RECORD_MAX))
    for size in (RECORD_MAX + 1, 2 * RECORD_MAX):
        answer = api.post("t", {"records": [{"data_b64": encoded(bytes(size))}]})
        assert answer.refusal == (400, "record_too_large")
    assert shown(api.diff("t")["records"]) == [encoded(bytes(RECORD_MAX))]


def test_data_may_come_with_a_null_in_the_place_of_bytes(api: TopicsClient) -> None:
    api.put("t")
    api.ok("t", {"records": [{"data": 1, "data_b64": None}]})
    assert api.diff("t")["records"][0]["data"] == 1


# -- logs ------------------------------------------------------------------------------------------


@settings(
    deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        st.tuples(
            st.one_of(st.binary(max_size=40), st.text(max_size=5)),
            st.sampled_from([None, {}, {"data": '","data":'}]),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_a_log_counts_the_same_before_and_after_a_restart(rows: list[tuple[Any, Any]]) -> None:
    site = BareTopics(MemoryStorage())
    api = site.api
    api.put("log", durability="fsync")
    records = []
    for data, meta in rows:
        one = {"data_b64": encoded(data)} if isinstance(data, bytes) else {"data": data}
        records.append(one if meta is None else {**one, "meta": meta})
    api.ok("log", {"records": records})
    before = api.state("log")
    log = site.yard.logs["log"]
    assert (
        sum(int(chunk.content_size(i)) for chunk in log.chunks for i in range(len(rows)))
        == (before["bytes"])
    )
    after = site.again().api
    state = after.state("log")
    assert (state["count"], state["bytes"]) == (before["count"], before["bytes"])
    found = after.diff("log")["records"]
    for record, one in zip(found, records, strict=True):
        assert {name: record[name] for name in one} == one
    after.ok("log/delete", {"before_seq": 100})
    assert after.state("log")["bytes"] == 0


def test_they_survive_compaction_and_leave_memory() -> None:
    site = BareTopics(MemoryStorage())
    site.yard.bodies._budget = 0
    api = site.api
    api.put("log", durability="fsync")
    for first in range(0, 2000, 100):
        write(api, "log", *[b"%d\xff" % at for at in range(first, first + 100)])
        site.commit()
    assert any(chunk.is_cold for chunk in site.yard.logs["log"].chunks)
    api.ok("log/delete", {"before_seq": 500})
    site.compact()
    for port in (site, site.again()):
        made = exported(port, "log/export?columns=seq,value")
        expected = [{"seq": at + 1, "value": b"%d\xff" % at} for at in range(499, 2000)]
        assert made.rows == expected


def test_a_large_write_over_turns_keeps_them() -> None:
    site = BareTopics(MemoryStorage())
    site.yard.tasks.units_per_turn = 100
    site.is_slow = True
    site.slice()
    client, other = site.connect(), site.connect()
    records = [
        {"data_b64": encoded(b"\xfe%d" % at), "meta": {"data": '"data":'}} for at in range(900)
    ]
    client.send("POST", "/v0/topics/t", {"records": [*records, {"data": "x" * 70_000}]})
    other.write("t", "first")
    while client.hear() is None:
        site.slice()
    page = other.diff("t", from_seq=1, limit=900)
    assert shown(page["records"]) == [one["data_b64"] for one in records]


def test_the_export_has_them_as_bytes(site: BareTopics, api: TopicsClient) -> None:
    api.put("log")
    write(api, "log", *PIECES)
    api.ok("log", b'{"records":[{"data":{"a" : 1},"meta":{"m":2}}]}')
    made = exported(site, "log/export?columns=value,meta,seq")
    assert [row["value"] for row in made.rows] == [*PIECES, b'{"a" : 1}']
    assert [row["meta"] for row in made.rows] == [None] * len(PIECES) + ['{"m":2}']
    assert str(made.schema.field("value").type) == "binary"
    assert not made.schema.field("value").nullable
    plain = exported(site, "log/export")
    assert "value" not in plain.schema.names
    assert [json.loads(row["data"]) for row in plain.rows] == [
        *[{"$base64": encoded(one)} for one in PIECES],
        {"a": 1},
    ]
    both = exported(site, "log/export?columns=data,value")
    assert [row["data"] for row in both.rows] == [row["data"] for row in plain.rows]
    assert [row["value"] for row in both.rows] == [row["value"] for row in made.rows]


def test_a_watch_shows_them(site: BareTopics, api: TopicsClient) -> None:
    api.put("log")
    write(api, "log", b"\xff")
    wid = api.ask("POST", "/v0/watch", {"topics": {"log": {}}}).json["wid"]
    reader = site.connect()
    reader.listen(f"/v0/watch/{wid}")
    (event,) = [event for event in reader.events() if "records" in event.data]
    assert shown(event.json["records"]) == ["/w=="]


# -- queues ----------------------------------------------------------------------------------------


def test_a_claim_and_a_stream_of_jobs_show_them(site: BareTopics, api: TopicsClient) -> None:
    api.put("q", type="queue")
    write(api, "q", b"\xff", b"[1]")
    assert shown(api.claim("q", max=1)["claimed"]) == ["/w=="]
    worker = site.connect()
    worker.listen("/v0/topics/q/work?node=w2&max=1")
    (event,) = [event for event in worker.events() if event.name == "job"]
    assert shown([event.json]) == [encoded(b"[1]")]


def test_a_restart_keeps_them() -> None:
    site = BareTopics(MemoryStorage())
    site.api.put("q", type="queue")
    write(site.api, "q", *PIECES, meta={"m": 1})
    assert shown(site.again().api.diff("q")["records"]) == [encoded(one) for one in PIECES]


def test_routers_copy_them(api: TopicsClient) -> None:
    for name, kind in (("a", "log"), ("b", "queue"), ("c", "log")):
        api.put(name, type=kind)
    for source, dest in (("a", "b"), ("b", "c")):
        assert api.ask("PUT", f"/v0/routers/{dest}", {"source": source, "dest": dest}).status == 201
    write(api, "a", *PIECES, meta={"m": 1})
    api.write("a", "plain")
    for name in ("b", "c"):
        records = api.diff(name)["records"]
        assert records.pop()["data"] == "plain"
        assert shown(records) == [encoded(one) for one in PIECES]


def test_they_become_dead_letters_and_come_back(api: TopicsClient) -> None:
    api.put("q", type="queue", max_deliveries=1, dead_letter="dead")
    write(api, "q", *PIECES, tag="t")
    seqs = [job["$seq"] for job in api.claim("q", max=10)["claimed"]]
    api.ok("q/dead-letter", {"node": "w", "seqs": seqs})
    assert shown(api.diff("dead")["records"]) == [encoded(one) for one in PIECES]
    assert api.ok("q/redrive", {})["redriven"] == len(PIECES)
    jobs = api.claim("q", max=10)["claimed"]
    assert shown(jobs) == [encoded(one) for one in PIECES]
    assert all(job["$tag"] == "t" for job in jobs)


# -- other doors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("piece", PIECES)
def test_beanstalk_gets_the_bytes(site: BareTopics, api: TopicsClient, piece: bytes) -> None:
    api.put("q", type="queue")
    write(api, "q", piece)
    worker = site.beanstalk()
    worker.say(b"watch q\r\n")
    said = worker.say(b"reserve-with-timeout 0\r\n")
    assert said.partition(b"\r\n")[2] == piece + b"\r\n"
    worker.leave()


@pytest.mark.parametrize("piece", PIECES)
def test_bunqueue_gets_the_bytes(site: BareTopics, api: TopicsClient, piece: bytes) -> None:
    api.put("q", type="queue")
    write(api, "q", piece)
    worker = site.bunqueue()
    assert worker.pull("q")["data"] == piece
    worker.close()


def test_data_that_another_door_set_are_data_again(site: BareTopics, api: TopicsClient) -> None:
    api.put("q", type="queue")
    write(api, "q", b"\xff")
    client = site.bunqueue()
    job = client.pull("q")
    client.ok("Update", id=job["id"], data={"a": 1})
    client.close()
    assert api.diff("q")["records"][0]["data"] == {"a": 1}
