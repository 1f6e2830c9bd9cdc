"""Dead letters and dead jobs that a call names are moved once under its key, whatever happens."""

from typing import Any

import pytest

from jobyard.engine.topics import topic_queue
from jobyard.model.job import DEAD, READY, Job
from jobyard.model.topic.log_chunk import LOG_CHUNK_ROWS
from tests.support.clients.topics import TopicsClient
from tests.support.doors.topics import BareTopics
from tests.support.site.recount import recount
from tests.support.site.storage import MemoryStorage

NODE = "w"


def give_up(api: TopicsClient, count: int = 9) -> None:
    """Take jobs and give them up: they become letters, or stay dead."""
    claimed = api.claim("q", max=count)["claimed"]
    seqs = [one["$seq"] for one in claimed]
    assert api.ok("q/dead-letter", {"node": NODE, "seqs": seqs})["dead_lettered"] == len(seqs)


def with_letters(api: TopicsClient, *data: object, **config: object) -> None:
    """Make a queue whose jobs are all letters, with seqs from 1."""
    api.put("q", type="queue", dead_letter="q.dlq", **config)
    api.write("q", *data)
    give_up(api, len(data))


def with_dead(api: TopicsClient, *data: object) -> None:
    """Make a queue whose jobs are all dead."""
    api.put("q", type="queue")
    api.write("q", *data)
    give_up(api, len(data))


def jobs(site: BareTopics, name: str = "q") -> list[Job]:
    """Return the jobs of a queue that are not done."""
    return topic_queue.peek(site.yard, site.yard.queues[name], 0, 100)


def redrive(api: TopicsClient, **fields: object) -> Any:
    return api.ok("q/redrive", {"strict": True, **fields})


def data_of(api: TopicsClient) -> list[object]:
    return [one["data"] for one in api.claim("q", max=9, lease_ms=60_000)["claimed"]]


def test_letters_are_moved_in_the_order_of_the_call(api: TopicsClient) -> None:
    with_letters(api, "a", "b", "c")
    assert redrive(api, seqs=[3, 1, 3]) == {
        "topic": "q", "redriven": 2, "duplicate": False, "dry_run": False,
        "moved": [[3, 4], [1, 5]], "already": [], "skipped": [], "left": 0,
    }  # fmt: skip
    assert data_of(api) == ["c", "a"]
    assert [one["$seq"] for one in api.diff("q.dlq")["records"]] == [2]
    assert redrive(api, seqs=[])["redriven"] == 0


def test_the_same_key_moves_nothing_twice() -> None:
    site = BareTopics(MemoryStorage())
    with_letters(site.api, "a", "b", "c")
    first = redrive(site.api, seqs=[1, 2], key="k")
    assert (first["moved"], first["duplicate"]) == ([[1, 4], [2, 5]], False)
    # They fail again, and are other letters now.
    give_up(site.api)
    day = 86_400_000
    for ms in (0, 6 * day):
        site = site.after_a_crash(ms=ms) if ms else site
        again = redrive(site.api, seqs=[1, 2], key="k")
        assert (again["redriven"], again["moved"], again["duplicate"]) == (0, [], True)
        assert (again["already"], again["skipped"]) == ([[1, 4], [2, 5]], [])
        recount(site.yard)
    more = redrive(site.api, seqs=[1, 3], key="k")
    assert (more["moved"], more["already"], more["duplicate"]) == ([[3, 6]], [[1, 4]], False)
    # Another key, or none, finds that they are not there any more.
    for key in ({"key": "l"}, {}):
        assert redrive(site.api, seqs=[1], **key)["skipped"] == [[1, "gone"]]


def test_a_key_of_a_redrive_is_no_key_of_a_record(api: TopicsClient) -> None:
    with_letters(api, "a")
    api.ok("q", {"records": [{"data": 1, "key": "k"}]})
    assert redrive(api, seqs=[1], key="k")["redriven"] == 1
    assert api.ok("q", {"records": [{"data": 1, "key": "1\u0000k"}]})["written"] == 1


def test_the_letters_of_another_log_are_others(api: TopicsClient) -> None:
    with_letters(api, "a")
    assert redrive(api, seqs=[1], key="k")["redriven"] == 1
    assert api.ask("DELETE", "/v0/topics/q.dlq").status == 200
    give_up(api)
    assert redrive(api, seqs=[1], key="k")["moved"] == [[1, 3]]


def test_dead_jobs_keep_their_numbers() -> None:
    site = BareTopics(MemoryStorage())
    with_dead(site.api, "a", "b", "c")
    ids = [int(job.id) for job in jobs(site)]
    first = redrive(site.api, job_ids=[ids[1], ids[0]], key="k")
    assert first["moved"] == [[ids[1], 2], [ids[0], 1]]
    give_up(site.api)
    for has_crashed in (False, True):
        site = site.after_a_crash() if has_crashed else site
        again = redrive(site.api, job_ids=ids[:2], key="k")
        assert (again["redriven"], again["duplicate"]) == (0, True)
        assert again["already"] == [[ids[0], 1], [ids[1], 2]]
        recount(site.yard)
    assert redrive(site.api, job_ids=ids[:1], key="l")["redriven"] == 1
    assert redrive(site.api, job_ids=ids)["moved"] == [[ids[1], 2], [ids[2], 3]]


def test_a_queue_of_another_door_outlives_the_keys_of_its_jobs() -> None:
    site = BareTopics(MemoryStorage())
    bunqueue = site.bunqueue()
    job_id = bunqueue.ok("PUSH", queue="q", data={"n": 1, "x": 0}, maxAttempts=1)["id"]
    assert bunqueue.ok("PULL", queue="q")["job"]["id"] == job_id
    bunqueue.ok("FAIL", id=job_id, error="boom")
    (job,) = jobs(site)
    assert job.state == DEAD
    patch = {"n": None, "é": "€"}
    assert redrive(site.api, job_ids=[int(job.id)], key="k", patch=patch)["redriven"] == 1
    assert bunqueue.ok("PULL", queue="q")["job"]["data"] == {"x": 0, "é": "€"}
    bunqueue.ok("ACK", id=job_id)
    site = site.after_a_crash()
    assert redrive(site.api, job_ids=[int(job.id)], key="k")["duplicate"] is True
    recount(site.yard)


def test_a_patch_changes_data_and_nothing_else(api: TopicsClient) -> None:
    api.put("q", type="queue", dead_letter="q.dlq")
    record = {"data": {"to": "x", "n": 1, "in": {"a": 1}}, "tag": "t", "meta": {"m": 1}}
    api.ok("q", {"records": [record, {"data": [1]}, {"data_b64": "e30="}]})
    give_up(api)
    patch = {"to": "y", "n": None, "in": {"b": [None]}}
    answer = redrive(api, seqs=[1, 2, 3], patch=patch)
    assert (answer["moved"], answer["skipped"]) == ([[1, 4], [2, 5]], [[3, "not_json"]])
    first, second = api.claim("q", max=9)["claimed"]
    assert first["data"] == {"to": "y", "in": {"a": 1, "b": [None]}}
    assert (first["$tag"], first["meta"]) == ("t", {"m": 1})
    assert second["data"] == {"to": "y", "in": {"b": [None]}}
    assert redrive(api, seqs=[3])["redriven"] == 1


def test_patches_of_dead_jobs() -> None:
    site = BareTopics(MemoryStorage())
    with_dead(site.api, {"a": 1}, 2)
    ids = [int(job.id) for job in jobs(site)]
    assert redrive(site.api, job_ids=ids, patch={"b": 2})["redriven"] == 2
    assert data_of(site.api) == [{"a": 1, "b": 2}, {"b": 2}]
    recount(site.yard)
    site = site.after_a_crash()
    assert [one["data"] for one in site.api.diff("q")["records"]] == [{"a": 1, "b": 2}, {"b": 2}]


def test_a_patched_record_is_not_larger_than_any_other(api: TopicsClient) -> None:
    with_letters(api, {"a": "x" * ((1 << 20) - 100)}, {"a": 1})
    answer = redrive(api, seqs=[1, 2], patch={"b": "y" * 200}, key="k")
    assert (answer["moved"], answer["skipped"]) == ([[2, 3]], [[1, "too_large"]])
    assert redrive(api, seqs=[1], key="k")["redriven"] == 1


def test_what_cannot_be_moved_is_skipped_with_a_reason() -> None:
    site = BareTopics(MemoryStorage())
    api = site.api
    api.put("p", type="queue", dead_letter="q.dlq")
    api.write("p", 1)
    api.ok("p/dead-letter", {"node": NODE, "seqs": [api.claim("p")["claimed"][0]["$seq"]]})
    api.write("q.dlq", {"$dead_letter_from": "q"})
    with_letters(api, 1)
    answer = redrive(api, seqs=[0, 1, 2, 3, 4, 1 << 61])
    assert answer["moved"] == [[3, 2]]
    gone = [[seq, "gone"] for seq in (0, 2, 4, 1 << 61)]
    assert sorted(answer["skipped"]) == sorted([*gone, [1, "other_queue"]])
    api.put("p", type="queue")
    api.write("p", 1)
    api.ok("p/dead-letter", {"node": NODE, "seqs": [api.claim("p")["claimed"][0]["$seq"]]})
    (dead,) = [int(job.id) for job in jobs(site, "p") if job.state == DEAD]
    (ready,) = [int(job.id) for job in jobs(site) if job.state == READY]
    answer = redrive(api, job_ids=[dead, ready, 0, 1 << 61], key="k")
    assert answer["skipped"] == [
        [dead, "other_queue"], [ready, "not_dead"], [0, "gone"], [1 << 61, "gone"],
    ]  # fmt: skip
    # What was skipped has not used up the key.
    assert api.ok("p/redrive", {"job_ids": [dead], "key": "k"})["redriven"] == 1


def test_a_dry_run_changes_nothing() -> None:
    site = BareTopics(MemoryStorage())
    with_letters(site.api, {"a": 1}, 2)
    before = site.yard.changes()
    answer = redrive(site.api, seqs=[1, 2, 9], patch={"b": 1}, key="k", dry_run=True)
    assert (answer["redriven"], answer["dry_run"], answer["duplicate"]) == (0, True, False)
    assert (answer["moved"], answer["skipped"]) == ([[1, None], [2, None]], [[9, "gone"]])
    assert site.yard.changes() == before
    assert redrive(site.api, seqs=[1], key="k")["redriven"] == 1
    answer = redrive(site.api, seqs=[1, 2], key="k", dry_run=True)
    assert (answer["moved"], answer["already"]) == ([[2, None]], [[1, 3]])
    assert answer["duplicate"] is False


def test_a_full_queue_stops_it_and_the_rest_follows_later(api: TopicsClient) -> None:
    api.put("q", type="queue", dead_letter="q.dlq")
    api.write("q", 1, 2, 3)
    give_up(api)
    api.put("q", type="queue", dead_letter="q.dlq", cap_records=2, discard="reject")
    answer = redrive(api, seqs=[1, 2, 3], key="k")
    assert (answer["moved"], answer["left"]) == ([[1, 4], [2, 5]], 1)
    assert answer["stopped"] == "topic_full"
    assert api.post("q/redrive", {"seqs": [1, 2, 3], "key": "k"}).refusal == (422, "topic_full")
    data_of(api)
    api.ok("q/ack", {"node": NODE, "seqs": [4, 5]})
    answer = redrive(api, seqs=[1, 2, 3], key="k")
    assert (answer["moved"], answer["already"]) == ([[3, 6]], [[1, 4], [2, 5]])


def test_a_letter_that_the_queue_can_never_hold_holds_up_no_other(api: TopicsClient) -> None:
    with_letters(api, "x" * 50, 1)
    api.put("q", type="queue", dead_letter="q.dlq", cap_bytes=10)
    answer = redrive(api, seqs=[1, 2])
    assert (answer["moved"], answer["skipped"]) == ([[2, 3]], [[1, "too_large"]])


def test_keys_have_the_limit_of_all_keys(api: TopicsClient) -> None:
    with_letters(api, 1, 2, key_max=1)
    answer = redrive(api, seqs=[1, 2], key="k")
    assert (answer["moved"], answer["left"]) == ([[1, 3]], 1)
    assert answer["stopped"] == "too_many_keys"
    assert api.post("q/redrive", {"seqs": [2], "key": "k"}).refusal == (422, "too_many_keys")
    assert redrive(api, seqs=[2])["redriven"] == 1


def test_very_many_are_moved_over_turns() -> None:
    site = BareTopics(MemoryStorage())
    api, other = site.connect(), site.connect()
    with_letters(api, *range(300))
    site.yard.tasks.units_per_turn = 400
    site.yard.tasks.first_units = 8
    site.is_slow = True
    site.slice()
    api.send("POST", "/v0/topics/q/redrive", {"seqs": list(range(1, 301)), "key": "k"})
    turns = 0
    counts = set()
    while site.slice():
        turns += 1
        counts.add(other.state("q")["count"])
    answer = api.hear()
    assert answer is not None
    assert answer.json["redriven"] == 300
    assert turns > 10
    assert len(counts) > 10
    recount(site.yard)


@pytest.mark.parametrize("path", ["q", "q.dlq"])
def test_the_queue_or_the_log_is_removed_meanwhile(path: str) -> None:
    site = BareTopics(MemoryStorage())
    api, other = site.connect(), site.connect()
    with_letters(api, *range(100))
    site.yard.tasks.units_per_turn = 400
    site.is_slow = True
    site.slice()
    api.send("POST", "/v0/topics/q/redrive", {"seqs": list(range(1, 101)), "key": "k"})
    site.slice()
    assert other.ask("DELETE", f"/v0/topics/{path}").status == 200
    other.put(path, type="queue" if path == "q" else "log")
    while site.slice():
        pass
    answer = api.hear()
    assert answer is not None
    if path == "q":
        assert answer.refusal == (404, "topic_not_found")
        assert other.state("q")["head_seq"] == 0
    else:
        assert 0 < answer.json["redriven"] < 100
        assert {reason for _, reason in answer.json["skipped"]} == {"gone"}
    recount(site.yard)


@pytest.mark.parametrize(
    "body",
    [
        {"seqs": "1"},
        {"seqs": ["1"]},
        {"seqs": [-1]},
        {"seqs": [1.5]},
        {"seqs": [1 << 62]},
        {"seqs": [1], "job_ids": [1]},
        {"seqs": [1], "max": 1},
        {"seqs": [1], "key": ""},
        {"seqs": [1], "key": "x" * 257},
        {"seqs": [1], "key": 1},
        {"seqs": [1], "dry_run": 1},
        {"seqs": [1], "dry_run": None},
        {"seqs": [1], "patch": {"a": "x" * (64 << 10)}},
        b'{"seqs": [1], "patch": {"a": 1, "a": 2}}',
        {"key": "k"},
        {"patch": {}},
        {"dry_run": True},
    ],
)
def test_calls_that_are_refused(api: TopicsClient, body: object) -> None:
    with_letters(api, 1)
    assert api.post("q/redrive", body).refusal == (400, "invalid_request")
    assert redrive(api, seqs=[1])["redriven"] == 1


def test_a_call_names_at_most_ten_thousand(api: TopicsClient) -> None:
    with_letters(api, 1)
    refused = api.post("q/redrive", {"seqs": list(range(10_001))})
    assert refused.refusal == (400, "batch_too_large")
    assert redrive(api, seqs=list(range(10_000)))["redriven"] == 1


def test_a_letter_whose_text_is_damaged_is_skipped() -> None:
    storage = MemoryStorage()
    site = BareTopics(storage, budget=0)
    api = site.api
    api.put("q", type="queue", dead_letter="q.dlq")
    letter = {"data": 1, "meta": {"$dead_letter_from": "q"}}
    for at in range(3):
        api.ok("q.dlq", {"records": [letter] * (LOG_CHUNK_ROWS * 3 // 4)}, 201 if at == 0 else 200)
        site.commit()
    chunk = site.yard.logs["q.dlq"].chunks[0]
    assert chunk.is_cold
    segment = site.journal.segments[int(chunk.segments[5])].name
    storage.flip(segment, int(chunk.offsets[5]) + 10, 1)
    answer = redrive(api, seqs=[5, 6, 7])
    assert answer["skipped"] == [[6, "corrupt"]]
    assert [seq for seq, _ in answer["moved"]] == [5, 7]
