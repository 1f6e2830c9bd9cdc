"""Jobs claimed, acked, given back and extended: the answers, and what is skipped."""

from typing import Any

import pytest

from tests.support.clients.topics import TopicsClient
from tests.support.doors.topics import BareTopics
from tests.support.site.storage import MemoryStorage

CALLS = ("claim", "ack", "nack", "dead-letter", "extend", "redrive", "purge")


@pytest.fixture
def queue(api: TopicsClient) -> str:
    """A queue with five jobs."""
    api.put("q", type="queue")
    api.write("q", *"abcde")
    return "q"


def seqs(answer: Any) -> list[int]:
    return [one["$seq"] for one in answer["claimed"]]


def lease_id(answer: Any, at: int = 0) -> str:
    return str(answer["claimed"][at]["lease_id"])


def end(seqs: list[int], node: str = "w", **fields: object) -> dict[str, object]:
    return {"node": node, "seqs": seqs, **fields}


# -- claiming --------------------------------------------------------------------------------------


def test_a_claim(site: BareTopics, api: TopicsClient) -> None:
    api.put("q", type="queue")
    api.ok("q", {"records": [{"data": {"a": 1}, "tag": "t", "node": "p", "meta": {"m": 1}}]})
    api.write("q", "b")
    site.tick(250)
    answer = api.claim("q", max=1, lease_ms=1000)
    (job,) = answer.pop("claimed")
    assert answer == {"topic": "q", "count": 1, "ready": 1}
    assert job.pop("lease_id").startswith("lease_")
    assert job == {
        "$seq": 1,
        "deadline": site.now_ms + 1000,
        "$ts": site.now_ms - 250,
        "$tag": "t",
        "deliveries": 1,
        "data": {"a": 1},
        "meta": {"m": 1},
    }
    plain = api.claim("q")["claimed"][0]
    assert set(plain) == {"$seq", "lease_id", "deadline", "$ts", "deliveries", "data"}
    assert plain["deadline"] == site.now_ms + 30_000
    assert api.claim("q") == {"topic": "q", "claimed": [], "count": 0, "ready": 0}


def test_a_claim_tells_that_nobody_held_it_back(api: TopicsClient, queue: str) -> None:
    found = api.post(f"{queue}/claim", {"node": "w"}).json
    assert found["performance"]["throttle_wait_ms"] == 0


def test_jobs_are_claimed_in_order_and_by_one_only(api: TopicsClient, queue: str) -> None:
    assert seqs(api.claim(queue, max=2)) == [1, 2]
    assert seqs(api.claim(queue, max=2, node="x")) == [3, 4]
    assert seqs(api.claim(queue, max=2)) == [5]
    assert api.claim(queue, max=2)["claimed"] == []


@pytest.mark.parametrize(
    ("most", "count"), [(None, 1), (0, 1), (1, 1), (1000, 1000), (1001, 1000), (1 << 64, 1000)]
)
def test_a_claim_takes_at_most_so_many(api: TopicsClient, most: int | None, count: int) -> None:
    api.put("q", type="queue")
    api.write("q", *range(1100))
    answer = api.claim("q", max=most)
    assert (answer["count"], answer["ready"]) == (count, 1100 - count)
    assert seqs(answer) == list(range(1, count + 1))


def test_a_claim_takes_no_more_than_an_answer_should_hold(api: TopicsClient) -> None:
    api.put("q", type="queue")
    for _ in range(7):
        api.write("q", *["x" * ((1 << 20) - 2)] * 10)
    answer = api.claim("q", max=100)
    assert (answer["count"], answer["ready"]) == (64, 6)
    assert api.claim("q", max=100)["count"] == 6


@pytest.mark.parametrize(
    ("lease_ms", "lasts"),
    [(None, 700), (0, 100), (99, 100), (86_400_001, 86_400_000), (1 << 64, 86_400_000)],
)
def test_a_lease_lasts_as_long_as_it_may(
    site: BareTopics, api: TopicsClient, lease_ms: int | None, lasts: int
) -> None:
    api.put("q", type="queue", lease_ms=700)
    api.write("q", 1)
    (job,) = api.claim("q", lease_ms=lease_ms)["claimed"]
    assert job["deadline"] == site.now_ms + lasts
    answer = api.ok("q/extend", end([1], lease_ms=200))
    assert answer["deadlines"] == {"1": site.now_ms + 200}


def test_what_came_back_goes_before_what_was_never_delivered(
    site: BareTopics, api: TopicsClient, queue: str
) -> None:
    api.claim(queue, max=3)
    api.ok("q/nack", end([3, 1]))
    assert seqs(api.claim(queue)) == [1]
    assert seqs(api.claim(queue)) == [3]
    assert seqs(api.claim(queue)) == [4]
    api.claim(queue, node="brief", lease_ms=100)
    site.tick(30_001)
    assert [seqs(api.claim(queue)) for _ in range(5)] == [[1], [2], [3], [4], [5]]


def test_every_claim_is_counted_and_has_a_name_of_its_own(
    site: BareTopics, api: TopicsClient, queue: str
) -> None:
    first = api.claim(queue)
    api.ok("q/nack", end([1]))
    second = api.claim(queue)
    site.tick(30_001)
    third = api.claim(queue)
    found = [answer["claimed"][0] for answer in (first, second, third)]
    assert [one["deliveries"] for one in found] == [1, 2, 3]
    assert len({one["lease_id"] for one in found}) == 3


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"node": ""},
        {"node": None},
        {"node": 5},
        {"node": ["w"]},
        {"node": "x" * 129},
        {"node": "w", "max": -1},
        {"node": "w", "max": "all"},
        {"node": "w", "max": 1.5},
        {"node": "w", "lease_ms": -1},
        {"node": "w", "lease_ms": "1"},
        [],
        b"",
        b"{",
    ],
)
def test_an_invalid_claim_takes_nothing(api: TopicsClient, queue: str, body: object) -> None:
    answer = api.post(f"{queue}/claim", body, {"Content-Type": "application/json"})
    assert answer.refusal == (400, "invalid_request")
    assert api.state(queue)["queue"]["ready"] == 5


def test_a_node_may_be_any_short_text(api: TopicsClient, queue: str) -> None:
    node = "ä" * 64
    assert seqs(api.claim(queue, node=node)) == [1]
    assert api.ok("q/ack", end([1], node))["acked"] == 1


# -- the end of a lease ----------------------------------------------------------------------------


def test_an_ack_removes_jobs(api: TopicsClient, queue: str) -> None:
    api.claim(queue, max=3)
    assert api.ok("q/ack", end([2, 9, 1, 4])) == {
        "topic": "q",
        "acked": 2,
        "skipped": [9, 4],
        "ready": 2,
        "in_flight": 1,
    }
    assert [one["$seq"] for one in api.diff(queue)["records"]] == [3, 4, 5]
    again = api.ok("q/ack", end([2, 1]))
    assert (again["acked"], again["skipped"]) == (0, [2, 1])
    assert api.ok("q/ack", end([]))["acked"] == 0


def test_a_seq_that_is_said_twice_counts_once(api: TopicsClient, queue: str) -> None:
    api.claim(queue)
    answer = api.ok("q/ack", end([1, 1]))
    assert (answer["acked"], answer["skipped"]) == (1, [1])


@pytest.mark.parametrize("verb", ["nack", "dead-letter"])
def test_an_error_has_at_most_four_kilobytes(
    site: BareTopics, api: TopicsClient, queue: str, verb: str
) -> None:
    assert queue
    api.claim("q", node="w", max=2)
    for wrong in ("x" * 4097, "\N{SNOWMAN}" * 1366, 7, ["x"]):
        refused = api.post(f"q/{verb}", end([1], error=wrong))
        assert (refused.status, refused.json["error"]["code"]) == (400, "invalid_request")
    api.ok(f"q/{verb}", end([1], error="x" * 4096))
    job = site.yard.jobs.get(1)
    assert job is not None
    assert job.details is not None
    assert job.details.last_error == "x" * 4096
    api.ok(f"q/{verb}", end([2], error=None))


def test_a_nack_gives_jobs_back(site: BareTopics, api: TopicsClient, queue: str) -> None:
    api.claim(queue, max=4)
    assert api.ok("q/nack", end([1, 7])) == {
        "topic": "q",
        "nacked": 1,
        "skipped": [7],
        "ready": 2,
        "in_flight": 3,
    }
    answer = api.ok("q/nack", end([2], delay_ms=500))
    assert (answer["ready"], answer["in_flight"]) == (2, 2)
    assert seqs(api.claim(queue, max=9)) == [1, 5]
    site.tick(499)
    assert seqs(api.claim(queue, max=9)) == []
    site.tick(1)
    assert seqs(api.claim(queue, max=9)) == [2]


def test_an_extend_sets_the_deadline(site: BareTopics, api: TopicsClient, queue: str) -> None:
    api.claim(queue, max=2, lease_ms=1000)
    site.tick(500)
    assert api.ok("q/extend", end([1, 3], lease_ms=2000)) == {
        "topic": "q",
        "extended": 1,
        "skipped": [3],
        "deadlines": {"1": site.now_ms + 2000},
    }
    site.tick(501)
    (back,) = api.claim(queue)["claimed"]
    assert (back["$seq"], back["deliveries"]) == (2, 2)
    api.ok("q/extend", end([1], lease_ms=100))
    site.tick(101)
    (back,) = api.claim(queue)["claimed"]
    assert (back["$seq"], back["deliveries"]) == (1, 2)


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
def test_leases_of_others_are_skipped(api: TopicsClient, queue: str, verb: str) -> None:
    api.claim(queue, max=2, node="me")
    answer = api.ok(f"q/{verb}", end([1, 2], "you", lease_ms=1000))
    assert answer["skipped"] == [1, 2]
    assert api.state(queue)["queue"]["in_flight"] == 2


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
def test_a_lease_that_is_over_is_skipped(
    site: BareTopics, api: TopicsClient, queue: str, verb: str
) -> None:
    api.claim(queue, lease_ms=1000)
    site.tick(999)
    assert api.ok("q/extend", end([1], lease_ms=1000))["skipped"] == []
    site.tick(1001)
    answer = api.ok(f"q/{verb}", end([1], lease_ms=1000))
    assert answer["skipped"] == [1]
    counts = api.state(queue)["queue"]
    assert (counts["ready"], counts["in_flight"]) == (5, 0)


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
def test_the_name_of_a_lease_fences_off_a_stale_worker(
    site: BareTopics, api: TopicsClient, queue: str, verb: str
) -> None:
    stale = lease_id(api.claim(queue, lease_ms=1000))
    site.tick(1001)
    fresh = lease_id(api.claim(queue))
    path = f"q/{verb}"
    for name in (stale, "nonsense", fresh.upper()):
        answer = api.ok(path, end([1], lease_ids=[name], lease_ms=1000))
        assert answer["skipped"] == [1]
    assert api.ok(path, end([1, 2], lease_ids=[fresh, fresh], lease_ms=1000))["skipped"] == [2]


def test_an_empty_name_is_no_name(api: TopicsClient, queue: str) -> None:
    api.claim(queue, max=2)
    answer = api.ok("q/ack", end([1, 2], lease_ids=["", "nonsense"]))
    assert (answer["acked"], answer["skipped"]) == (1, [2])
    assert api.ok("q/ack", end([2], lease_ids=None))["acked"] == 1


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
@pytest.mark.parametrize(
    "fields",
    [
        {"node": None},
        {"node": ""},
        {"node": 5},
        {"seqs": None},
        {"seqs": {}},
        {"seqs": "1"},
        {"seqs": ["1"]},
        {"seqs": [1.5]},
        {"seqs": [-1]},
        {"seqs": [None]},
        {"lease_ids": []},
        {"lease_ids": ["", ""]},
        {"lease_ids": [5]},
        {"lease_ids": "x"},
        {"lease_ids": {}},
    ],
)
def test_an_invalid_end_ends_nothing(
    api: TopicsClient, queue: str, verb: str, fields: dict[str, object]
) -> None:
    api.claim(queue)
    body = {**end([1], lease_ms=1000), **fields}
    assert api.post(f"q/{verb}", body).refusal == (400, "invalid_request")
    assert api.state(queue)["queue"]["in_flight"] == 1


@pytest.mark.parametrize(
    ("verb", "fields"),
    [
        ("nack", {"delay_ms": -1}),
        ("nack", {"delay_ms": "x"}),
        ("nack", {"delay_ms": 86_400_001}),
        ("extend", {}),
        ("extend", {"lease_ms": None}),
        ("extend", {"lease_ms": -1}),
        ("extend", {"lease_ms": "x"}),
    ],
)
def test_times_that_are_none(
    api: TopicsClient, queue: str, verb: str, fields: dict[str, object]
) -> None:
    api.claim(queue)
    assert api.post(f"q/{verb}", {**end([1]), **fields}).refusal == (400, "invalid_request")
    assert api.state(queue)["queue"]["in_flight"] == 1


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
def test_a_call_names_a_thousand_seqs_at_most(api: TopicsClient, verb: str) -> None:
    api.put("q", type="queue")
    api.write("q", *range(1000))
    api.claim("q", max=1000)
    body = end(list(range(1, 1001)), lease_ms=1000)
    over = end(list(range(1, 1002)), lease_ms=1000)
    assert api.post(f"q/{verb}", over).refusal == (400, "batch_too_large")
    assert api.state("q")["queue"]["in_flight"] == 1000
    assert api.ok(f"q/{verb}", body)["skipped"] == []


def test_a_delay_may_last_a_day(api: TopicsClient, queue: str) -> None:
    api.claim(queue)
    assert api.ok("q/nack", end([1], delay_ms=86_400_000))["nacked"] == 1


@pytest.mark.parametrize("call", CALLS)
def test_a_log_has_no_jobs(api: TopicsClient, call: str) -> None:
    api.put("t")
    assert api.post(f"t/{call}", end([1], lease_ms=1000)).refusal == (409, "not_a_queue")
    assert api.ask("GET", "/v0/topics/t/work?node=w").refusal == (409, "not_a_queue")


# -- time, deletes, counts -------------------------------------------------------------------------


def test_counts_add_up(site: BareTopics, api: TopicsClient, queue: str) -> None:
    def counts() -> tuple[int, int, int, int]:
        state = api.state(queue)
        found = state["queue"]
        return found["ready"], found["in_flight"], found["delayed"], state["count"]

    assert counts() == (5, 0, 0, 5)
    api.claim(queue, max=3)
    assert counts() == (2, 3, 0, 5)
    api.ok("q/nack", end([1], delay_ms=1000))
    assert counts() == (2, 2, 1, 5)
    api.ok("q/ack", end([2]))
    assert counts() == (2, 1, 1, 4)
    site.tick(1000)
    assert counts() == (3, 1, 0, 4)
    site.tick(30_000)
    assert counts() == (4, 0, 0, 4)


def test_a_job_that_was_deleted_is_claimed_no_more(api: TopicsClient, queue: str) -> None:
    api.claim(queue, max=2)
    assert api.ok("q/delete", {"before_seq": 4})["deleted"] == 3
    assert api.ok("q/ack", end([1, 2]))["skipped"] == [1, 2]
    assert seqs(api.claim(queue, max=9)) == [4, 5]


def test_reading_a_queue_touches_no_lease(api: TopicsClient, queue: str) -> None:
    api.claim(queue, max=2)
    assert len(api.diff(queue)["records"]) == 5
    assert api.state(queue)["queue"]["in_flight"] == 2
    (job,) = api.claim(queue)["claimed"]
    assert (job["$seq"], job["deliveries"]) == (3, 1)


def test_an_ack_waits_for_its_batch_and_is_one_batch() -> None:
    site = BareTopics(MemoryStorage())
    site.api.put("q", type="queue", durable=True)
    site.api.write("q", *range(100))
    site.api.claim("q", max=100)
    site.commit()
    before = site.journal.open_number
    worker = site.connect()
    answer = worker.post("q/ack", end(list(range(1, 101))))
    assert answer.json["acked"] == 100
    assert answer.json["performance"]["fsync_ms"] > 0
    assert site.journal.open_number == before
    assert worker.session.awaits == before
    nothing = worker.post("q/ack", end([1])).json
    assert "fsync_ms" not in nothing["performance"]
    assert site.after_a_crash().api.state("q")["count"] == 0


def test_a_restart_makes_leased_jobs_claimable_and_keeps_their_deliveries() -> None:
    site = BareTopics(MemoryStorage())
    site.api.put("q", type="queue", durable=True)
    site.api.write("q", *"abc")
    name = lease_id(site.api.claim("q", max=2))
    site.api.ok("q/ack", end([2]))
    site = site.after_a_crash()
    first, second = site.api.claim("q", max=9)["claimed"]
    assert (first["$seq"], first["deliveries"]) == (1, 2)
    assert (second["$seq"], second["deliveries"]) == (3, 1)
    assert first["lease_id"] != name
    assert site.api.ok("q/ack", end([1], lease_ids=[name]))["skipped"] == [1]


@pytest.mark.parametrize("how", ["at once", "later", "together"])
def test_a_lease_that_is_to_last_is_answered_for_and_outlives_a_restart(how: str) -> None:
    site = BareTopics(MemoryStorage())
    jitter_ms = 50 if how == "together" else 0
    site.api.put("q", type="queue", leases_durable=True, claim_jitter_ms=jitter_ms)
    worker = site.connect()
    if how == "later":
        worker.send("POST", "/v0/topics/q/claim", {"node": "w", "wait_ms": 1000})
    site.api.write("q", "a", "b")
    site.commit()
    if how != "later":
        worker.send("POST", "/v0/topics/q/claim", {"node": "w"})
        site.tick(jitter_ms)
    answer = worker.hear()
    assert answer is not None
    assert worker.session.awaits > 0
    (job,) = answer.json["claimed"]
    site = site.after_a_crash(ms=100)
    (other,) = site.api.claim("q", node="x", max=9, wait_ms=0)["claimed"] if not jitter_ms else [{}]
    assert other.get("$seq", 2) == 2
    assert site.api.ok("q/extend", end([1], lease_ids=[job["lease_id"]], lease_ms=5000))["extended"]
    assert site.api.ok("q/ack", end([1], lease_ids=[job["lease_id"]]))["acked"] == 1


# -- dead letters ----------------------------------------------------------------------------------


def kill(api: TopicsClient, *, deliveries: int = 2, **config: object) -> None:
    """Deliver all jobs of a queue as often as they may be."""
    api.put("q", type="queue", max_deliveries=deliveries, dead_letter="q.dlq", **config)
    for number in range(1, deliveries + 1):
        claimed = api.claim("q", max=9)["claimed"]
        assert {one["deliveries"] for one in claimed} == {number}
        api.ok("q/nack", end([one["$seq"] for one in claimed]))


def test_a_job_delivered_too_often_becomes_a_dead_letter(api: TopicsClient) -> None:
    api.put("q", type="queue")
    api.ok("q", {"records": [{"data": [1], "tag": "t", "node": "n", "meta": {"m": 1}}]})
    api.write("q", "b")
    kill(api)
    assert api.claim("q", max=9) == {"topic": "q", "claimed": [], "count": 0, "ready": 0}
    state = api.state("q")
    assert (state["count"], state["queue"]["dead_lettered"]) == (0, 2)
    page = api.diff("q.dlq", include_tags=True)
    first, second = page["records"]
    assert (first["data"], first["$tag"], first["$node"]) == ([1], "t", "n")
    stamps = {"$dead_letter_from", "$dead_letter_deliveries", "$dead_letter_src_seq"}
    stamps |= {"$dead_letter_job_id", "$dead_letter_reason"}
    assert set(first["meta"]) == {"m", *stamps}
    assert str(first["meta"]["$dead_letter_from"]) == "q"
    assert str(first["meta"]["$dead_letter_deliveries"]) == "2"
    assert str(second["meta"]["$dead_letter_src_seq"]) == "2"
    assert set(second["meta"]) == stamps
    assert api.state("q.dlq")["type"] == "log"


def test_dead_letters_are_not_driven_back_into_a_full_queue(api: TopicsClient) -> None:
    api.put("q", type="queue")
    api.ok("q", {"records": [{"data": [1]}, {"data": 2}]})
    kill(api)
    api.claim("q", max=9)
    capped = {"type": "queue", "discard": "reject", "max_deliveries": 2, "dead_letter": "q.dlq"}
    api.put("q", **capped, cap_records=1)
    assert api.ok("q/redrive", {})["redriven"] == 1
    answer = api.post("q/redrive", {})
    assert answer.refusal == (422, "topic_full")
    assert answer.json["error"]["detail"]["count"] == 1
    api.ok("q/delete", {"before_seq": 99})
    api.put("q", **capped, cap_bytes=0, cap_records=0)
    assert api.ok("q/redrive", {})["redriven"] == 1


def test_a_dead_letter_that_no_queue_of_this_size_could_hold_is_too_large(
    api: TopicsClient,
) -> None:
    api.put("q", type="queue")
    api.ok("q", {"records": [{"data": "x" * 50}]})
    kill(api)
    api.claim("q", max=9)
    api.put("q", type="queue", cap_bytes=10, max_deliveries=2, dead_letter="q.dlq")
    assert api.post("q/redrive", {}).refusal == (400, "record_too_large")


def test_dead_letters_are_driven_back_as_they_came(api: TopicsClient) -> None:
    api.put("q", type="queue")
    api.ok("q", {"records": [{"data": [1], "tag": "t", "meta": {"m": 1}}, {"data": 2}]})
    kill(api)
    api.claim("q", max=9)
    answer = api.ok("q/redrive", {"max": 1})
    assert (answer["topic"], answer["redriven"]) == ("q", 1)
    assert api.ok("q/redrive", {})["redriven"] == 1
    assert api.ok("q/redrive", b"")["redriven"] == 0
    first, second = api.claim("q", max=9)["claimed"]
    assert (first["data"], first["$tag"], first["deliveries"]) == ([1], "t", 1)
    assert first["meta"] == {"m": 1}
    assert (second["data"], "meta" in second) == (2, False)
    assert api.diff("q.dlq")["records"] == []


@pytest.mark.parametrize("config", [{"max_deliveries": 0}, {"dead_letter": None}])
def test_without_a_bound_or_a_place_jobs_come_back_for_ever(
    api: TopicsClient, config: dict[str, object]
) -> None:
    full = {"type": "queue", "max_deliveries": 1, "dead_letter": "q.dlq", **config}
    api.put("q", **full)
    api.write("q", 1)
    for number in range(1, 9):
        assert api.claim("q")["claimed"][0]["deliveries"] == number
        api.ok("q/nack", end([1]))
    assert api.ask("GET", "/v0/topics/q.dlq").status == 404


def test_dead_letters_of_which_a_queue_would_have_to_be_made_are_refused(api: TopicsClient) -> None:
    api.put("letters", type="queue")
    answer = api.ask("PUT", "/v0/topics/q", {"type": "queue", "dead_letter": "letters"})
    assert answer.refusal == (409, "topic_exists_incompatible")
    assert answer.json["error"]["detail"] == {"reason": "dead_letter_queue"}
    written = api.post(
        "q", {"records": [{"data": 1}], "config": {"type": "queue", "dead_letter": "letters"}}
    )
    assert written.refusal == (409, "topic_exists_incompatible")
    assert api.ask("GET", "/v0/topics/q").status == 404
    # Of a queue that is there the configuration in a write changes nothing.
    api.put("q", type="queue")
    body = {"records": [{"data": 1}], "config": {"type": "queue", "dead_letter": "letters"}}
    assert api.post("q", body).status == 200


def test_a_claim_continues_past_dead_letters(
    site: BareTopics, api: TopicsClient, queue: str
) -> None:
    api.put(queue, type="queue", max_deliveries=1, dead_letter="q.dlq")
    api.claim(queue, max=3, lease_ms=100)
    site.tick(101)
    assert seqs(api.claim(queue, max=2)) == [4, 5]
    assert len(api.diff("q.dlq")["records"]) == 3


def test_a_purge_removes_dead_letters_and_nothing_else(
    site: BareTopics, api: TopicsClient, queue: str
) -> None:
    api.put(queue, type="queue", max_deliveries=1, dead_letter="q.dlq")
    api.claim(queue, max=3, lease_ms=100)
    site.tick(101)
    assert seqs(api.claim(queue, max=2)) == [4, 5]
    assert api.ok(f"{queue}/purge", {"max": 2})["purged"] == 2
    assert api.ok(f"{queue}/purge", b"") == {"topic": "q", "purged": 1}
    assert api.diff("q.dlq")["records"] == []
    assert api.state(queue)["count"] == 2
    assert api.ok(f"{queue}/purge", {})["purged"] == 0


@pytest.mark.parametrize("body", [[], {"max": -1}, {"max": "x"}, b"{"])
def test_an_invalid_redrive_is_refused(api: TopicsClient, queue: str, body: object) -> None:
    assert api.post(f"{queue}/redrive", body).refusal == (400, "invalid_request")
