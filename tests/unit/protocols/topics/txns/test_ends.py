"""Runs that a commit ends: with its records, or not at all; and fences between two of a name."""

from typing import Any

import pytest

from tests.support.clients.http import Reply
from tests.support.clients.topics import TopicsClient, said
from tests.support.doors.topics import BareTopics
from tests.support.site.site import ALL_HISTORY
from tests.support.site.storage import MemoryStorage


@pytest.fixture
def queue(api: TopicsClient) -> str:
    """A queue with six jobs, a log for results, and one for dead letters."""
    api.put("q", type="queue", dead_letter="letters", max_deliveries=9)
    api.put("results", type="log")
    api.put("letters", type="log")
    api.write("q", *"abcdef")
    return "q"


def claimed(
    api: TopicsClient, most: int = 6, node: str = "w", **fields: object
) -> list[list[object]]:
    answer = api.claim("q", max=most, node=node, **fields)
    return [[one["$seq"], one["lease_id"]] for one in answer["claimed"]]


def group(items: list[list[object]], node: str = "w", queue: str = "q") -> list[object]:
    return [{"queue": queue, "node": node, "items": items}]


def commit(api: TopicsClient, txn: str = "t", **fields: object) -> Reply:
    return api.ask("POST", f"/v0/txns/{txn}/commit", fields)


def stage(api: TopicsClient, records: list[dict[str, object]], txn: str = "t") -> Any:
    place = {"topic": "results", "part": 0, "attempt": 0, "chunk": 0}
    return said(api.ask("POST", f"/v0/txns/{txn}/stage", {**place, "records": records}))


def parts(rows: int) -> list[object]:
    return [{"topic": "results", "part": 0, "attempt": 0, "chunks": 1, "rows": rows}]


def data_of(api: TopicsClient, topic: str) -> list[object]:
    return [one["data"] for one in api.diff(topic, limit=1000)["records"]]


def states(api: TopicsClient) -> tuple[int, int, int]:
    found = api.ok("q/ack", {"node": "nobody", "seqs": []})
    return found["ready"], found["in_flight"], api.state("q")["count"]


@pytest.mark.usefixtures("queue")
def test_runs_end_as_they_would_one_by_one(site: BareTopics, api: TopicsClient) -> None:
    held = claimed(api)
    nacks: list[list[object]] = [[*held[1], 700, "later"], held[2], [held[3][0], None, None, None]]
    letters: list[list[object]] = [[*held[4], "broken"]]
    answer = commit(api, acks=group([held[0]]), nacks=group(nacks), dead_letters=group(letters))
    found = said(answer)
    counts = (found["acked"], found["nacked"], found["dead_lettered"], found["skipped"])
    assert counts == (1, 3, 1, [])
    assert states(api) == (2, 1, 4)
    assert data_of(api, "letters") == ["e"]
    site.tick(700)
    assert states(api) == (3, 1, 4)


def test_every_lost_lease_is_skipped_with_its_reason(
    site: BareTopics, api: TopicsClient, queue: str
) -> None:
    held = claimed(api, 5, lease_ms=1000)
    api.ok(f"{queue}/ack", {"node": "w", "seqs": [1]})
    site.tick(1001)
    again = claimed(api, 1)
    other = claimed(api, 1, node="x")
    items: list[list[object]] = [held[0], held[2], held[3], [99], again[0]]
    found = said(commit(api, acks=group(items)))
    assert again[0][0] == 2
    assert other[0][0] == 3
    reasons = {1: "gone", 3: "other_holder", 4: "expired", 99: "gone"}
    assert {seq: why for _, seq, why in found["skipped"]} == reasons
    assert found["acked"] == 1
    stale = said(commit(api, "u", acks=group([held[2]], "x")))
    assert stale["skipped"] == [["q", 3, "expired"]]
    lost = said(commit(api, "v", acks=group([held[2]], queue="nowhere")))
    assert lost["skipped"] == [["nowhere", 3, "gone"]]


@pytest.mark.usefixtures("queue")
def test_no_result_without_its_ack(site: BareTopics, api: TopicsClient) -> None:
    held = claimed(api, 3, lease_ms=1000)
    rows: list[dict[str, object]] = [
        {"data": "A", "with": ["q", 1]},
        {"data": "free"},
        {"data": "B", "with": ["q", 2]},
        {"data": "of another", "with": ["q", 5]},
    ]
    stage(api, rows)
    api.ok("q/nack", {"node": "w", "seqs": [2]})
    found = said(commit(api, parts=parts(4), acks=group(held)))
    assert found["skipped"] == [["q", 2, "expired"]]
    assert found["topics"]["results"] == {
        "first_seq": 1,
        "last_seq": 2,
        "written": 2,
        "duplicates": 0,
        "left_out": 2,
    }
    assert data_of(api, "results") == ["A", "free"]
    site.tick(2000)
    again = said(commit(api, parts=parts(4), acks=group(held)))
    assert again == {**found, "duplicate": True}


@pytest.mark.usefixtures("queue")
def test_records_of_skipped_jobs_only(api: TopicsClient) -> None:
    stage(api, [{"data": "A", "with": ["q", 1]}])
    found = said(commit(api, parts=parts(1), acks=group([[1, ""]])))
    results = found["topics"]["results"]
    assert (results["first_seq"], results["last_seq"], results["written"]) == (1, 0, 0)
    assert data_of(api, "results") == []


@pytest.mark.usefixtures("queue")
def test_jobs_of_other_doors_end_too(site: BareTopics, api: TopicsClient) -> None:
    client = site.bunqueue()
    client.ask("PUSH", queue="q", data={"x": 1}, maxAttempts=2, backoff=0)
    held = claimed(api, 7)
    assert len(held) == 7
    found = said(commit(api, nacks=group([[*held[6], 0, "why"]]), acks=group(held[:6])))
    assert (found["acked"], found["nacked"]) == (6, 1)
    again = claimed(api, 7)
    assert [seq for seq, _ in again] == [7]
    assert said(commit(api, "u", dead_letters=group(again)))["dead_lettered"] == 1


def test_a_commit_frees_a_queue_that_is_no_topic(site: BareTopics, api: TopicsClient) -> None:
    worker = site.beanstalk()
    worker.say(b"use tube\r\nput 0 0 60 1\r\nx\r\n")
    worker.leave()
    (job,) = api.claim("tube", node="w")["claimed"]
    items: list[list[object]] = [[job["$seq"], job["lease_id"]]]
    assert said(commit(api, acks=group(items, queue="tube")))["acked"] == 1
    assert "tube" not in site.yard.queues


@pytest.mark.usefixtures("queue")
def test_a_waiting_claim_gets_a_job_once_the_commit_is_complete(
    site: BareTopics, api: TopicsClient
) -> None:
    held = claimed(api)
    waiting = site.connect()
    waiting.send("POST", "/v0/topics/q/claim", {"node": "x", "max": 9, "wait_ms": 9000})
    stage(api, [{"data": "r"}])
    found = said(commit(api, parts=parts(1), nacks=group(held)))
    assert found["nacked"] == 6
    answer = waiting.hear()
    assert answer is not None
    assert len(answer.json["claimed"]) == 6


# -- errors -----------------------------------------------------------------------------------

LONG = "x" * 4093 + "\N{SNOWMAN}"


def kept_events(site: BareTopics, seen_seq: int) -> list[dict[str, Any]]:
    site.commit()
    rows = site.api.diff("_events", from_seq=seen_seq, limit=1000)["records"]
    return [one["data"] for one in rows]


@pytest.mark.parametrize("error", ["broken", '\x01"\N{SNOWMAN}', LONG, ""])
def test_errors_are_kept_as_those_of_single_calls_are(error: str) -> None:
    site = BareTopics(MemoryStorage(), window=ALL_HISTORY)
    api = site.api
    api.put("q", type="queue", dead_letter="letters", max_deliveries=9)
    api.put("plain", type="queue")
    api.write("q", "a", "b", "c", "d")
    api.write("plain", "e", "f")
    held = claimed(api, 4)
    others = [one["$seq"] for one in api.claim("plain", max=2, node="w")["claimed"]]
    site.commit()
    seen = api.diff("_events", limit=1000)["head_seq"]
    nacks = [*group([[*held[0], 0, error]])]
    letters = [*group([[*held[1], error]]), *group([[others[0], "", error]], queue="plain")]
    answer = said(commit(api, nacks=nacks, dead_letters=letters))
    assert (answer["nacked"], answer["dead_lettered"], answer["skipped"]) == (1, 2, [])
    in_commit = kept_events(site, seen)
    seen = api.diff("_events", limit=1000)["head_seq"]
    api.ok("q/nack", {"node": "w", "seqs": [held[2][0]], "delay_ms": 0, "error": error})
    api.ok("q/dead-letter", {"node": "w", "seqs": [held[3][0]], "error": error})
    api.ok("plain/dead-letter", {"node": "w", "seqs": [others[1]], "error": error})
    alone = kept_events(site, seen)
    shown = [(one["event"], one["queue"], one.get("error"), one.get("reason")) for one in alone]
    assert [
        (one["event"], one["queue"], one.get("error"), one.get("reason")) for one in in_commit
    ] == shown
    assert len(shown) == 3
    assert all(one[2] == (error or None) for one in shown)
    after = site.again()
    jobs = [after.yard.jobs.get(job_id) for job_id in (1, 3, 5, 6)]
    kept = ["" if job is None or job.details is None else job.details.last_error for job in jobs]
    assert kept == [error] * 4
    metas = [one["meta"] for one in after.api.diff("letters")["records"]]
    assert [one.get("$dead_letter_error") for one in metas] == [error or None] * 2
    assert [one["$dead_letter_reason"] for one in metas] == ["given_up"] * 2
    after.check()


@pytest.mark.usefixtures("queue")
@pytest.mark.parametrize("wrong", ["x" * 4097, "\N{SNOWMAN}" * 1366, 7, ["x"]])
def test_an_error_has_at_most_four_kilobytes(api: TopicsClient, wrong: object) -> None:
    held = claimed(api)
    nack: list[object] = [*held[0], 0, wrong]
    assert commit(api, nacks=group([nack])).refusal == (400, "invalid_request")
    letter: list[object] = [*held[0], wrong]
    assert commit(api, dead_letters=group([letter])).refusal == (400, "invalid_request")
    assert states(api) == (0, 6, 6)


# -- fences -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("queue")
def test_a_greater_epoch_shuts_out_a_smaller_one(api: TopicsClient) -> None:
    held = claimed(api)
    assert commit(api, "a", worker="m", epoch=2, acks=group([held[0]])).status == 200
    answer = commit(api, "b", worker="m", epoch=1, acks=group([held[1]]))
    assert answer.refusal == (409, "fenced")
    assert answer.json["error"]["detail"] == {"epoch": 2}
    assert commit(api, "b", worker="other", epoch=1, acks=group([held[1]])).status == 200
    assert commit(api, "c", acks=group([held[2]])).status == 200
    assert commit(api, "d", worker="m", epoch=2, acks=group([held[3]])).status == 200
    assert commit(api, "e", worker="m", epoch=3).status == 200
    assert commit(api, "f", worker="m", epoch=2).refusal == (409, "fenced")


@pytest.mark.usefixtures("queue")
def test_a_repeated_commit_raises_and_heeds_the_fence(api: TopicsClient) -> None:
    held = claimed(api)
    acks = group([held[0]])
    assert commit(api, "a", worker="m", epoch=2, acks=acks).status == 200
    assert commit(api, "a", worker="m", epoch=1, acks=acks).refusal == (409, "fenced")
    assert said(commit(api, "a", worker="m", epoch=2, acks=acks))["duplicate"]
    # A driver that starts again replays its batch, and so shuts out the one before.
    assert said(commit(api, "a", worker="m", epoch=3, acks=acks))["duplicate"]
    assert commit(api, "b", worker="m", epoch=2, acks=group([held[1]])).refusal == (409, "fenced")
    assert api.post("q/claim", {"node": "w", "worker": "m", "epoch": 2}).refusal == (409, "fenced")
    # Also if it then finds that the batch was committed with other content.
    answer = commit(api, "a", worker="m", epoch=4)
    assert answer.refusal == (409, "txn_differs")
    assert answer.json["error"]["message"] == "transaction a was committed with other content"
    assert commit(api, "a", worker="m", epoch=3, acks=acks).refusal == (409, "fenced")
    assert said(commit(api, "a", acks=acks))["duplicate"]


def test_the_fence_of_a_repeated_commit_is_on_disk_with_its_answer() -> None:
    site = BareTopics(MemoryStorage())
    assert commit(site.api, "a", worker="m", epoch=1).status == 200
    site.commit()
    assert said(commit(site.api, "a", worker="m", epoch=2))["duplicate"]
    after = site.again()
    assert commit(after.api, "a", worker="m", epoch=1).refusal == (409, "fenced")


def test_fences_survive_a_restart() -> None:
    site = BareTopics(MemoryStorage())
    assert commit(site.api, "a", worker="m", epoch=5).status == 200
    after = site.again()
    assert commit(after.api, "b", worker="m", epoch=4).refusal == (409, "fenced")
    assert commit(after.api, "b", worker="m", epoch=5).status == 200
    after.tick(8 * 86_400_000)
    assert commit(after.api, "c", worker="n", epoch=1).status == 200
    assert commit(after.api, "d", worker="m", epoch=1).status == 200
    after.check()


@pytest.mark.usefixtures("queue")
@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        ("q/claim", {"max": 1}),
        ("q/claim", {"node": "w", "max": "x"}),
        ("q/claim", {"node": "w", "lease_ms": -1}),
        ("q/claim", {"node": "w", "wait_ms": "x"}),
        ("q/claim", {"node": "w", "claim_id": "a b"}),
        ("q/claim", {"claim_id": "c"}),
        ("q/claim", {"node": "w", "claim_id": "c", "max": "x"}),
        ("q/claims/known/extend", {}),
        ("q/claims/known/extend", {"lease_ms": "x"}),
        ("q/extend", {"node": "w", "seqs": []}),
        ("q/extend", {"node": "w", "seqs": [], "lease_ms": "x"}),
        ("q/extend", {"node": "w", "seqs": ["x"], "lease_ms": 1}),
    ],
)
def test_a_refused_call_raises_no_fence(
    api: TopicsClient, path: str, wrong: dict[str, object]
) -> None:
    api.claim("q", claim_id="known")
    answer = api.post(path, {**wrong, "worker": "m", "epoch": 9})
    assert answer.refusal == (400, "invalid_request")
    assert api.claim("q", worker="m", epoch=1)["count"] == 1
