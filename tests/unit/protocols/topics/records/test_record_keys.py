"""Keys of records: what a write answers about duplicates, and when it is refused."""

import json

import pytest

from jobyard.protocols.topics.records.writes import BODY_AT_ONCE
from tests.support.doors.topics import BareTopics
from tests.support.site.storage import MemoryStorage


def keyed(*keys: str | None) -> list[dict[str, object]]:
    """Return a record for each key; without one for None."""
    records: list[dict[str, object]] = []
    for at, key in enumerate(keys):
        record: dict[str, object] = {"data": at}
        records.append(record if key is None else {**record, "key": key})
    return records


@pytest.mark.parametrize("kind", ["log", "queue"])
def test_a_record_whose_key_is_known_is_not_written(kind: str) -> None:
    site = BareTopics(MemoryStorage())
    site.api.put("t", type=kind)
    said = site.api.ok("t", {"records": keyed("a", None, "b", "a")})
    assert (said["first_seq"], said["last_seq"], said["seqs"]) == (1, 3, [1, 2, 3])
    assert (said["count"], said["written"], said["duplicates"]) == (3, 3, [[3, 1]])
    assert (said["head_seq"], said["deduped"], said["created"]) == (3, False, False)
    said = site.api.ok("t", {"records": keyed("c", "b", None, "c")})
    assert (said["seqs"], said["duplicates"]) == ([4, 5], [[1, 3], [3, 4]])
    site = site.again()
    said = site.api.ok("t", {"records": keyed("c", "a")})
    assert (said["first_seq"], said["last_seq"], said["head_seq"]) == (6, 5, 5)
    assert (said["seqs"], said["count"], said["written"]) == ([], 0, 0)
    assert said["duplicates"] == [[0, 4], [1, 1]]
    if kind == "queue":
        claimed = site.api.ok("t/claim", {"node": "n", "max": 9})["claimed"]
        assert [one["data"] for one in claimed] == [0, 1, 2, 0, 2]


def test_an_answer_without_keys_is_what_it_was() -> None:
    site = BareTopics()
    said = site.api.ok("t", {"records": [{"data": 1}, {"data": 2, "key": None}]}, 201)
    assert not {"written", "duplicates"} & said.keys()


def test_a_write_creates_its_topic_even_if_it_has_the_same_key_twice() -> None:
    site = BareTopics(MemoryStorage())
    said = site.api.ok("t", {"records": keyed("a", "a"), "config": {"type": "queue"}}, 201)
    assert (said["written"], said["duplicates"], said["created"]) == (1, [[1, 1]], True)


def test_a_job_that_is_done_still_has_its_key() -> None:
    site = BareTopics(MemoryStorage())
    site.api.put("t", type="queue")
    site.api.ok("t", {"records": keyed("a")})
    site.api.ok("t/claim", {"node": "n"})
    site.api.ok("t/ack", {"node": "n", "seqs": [1]})
    assert site.api.ok("t", {"records": keyed("a")})["duplicates"] == [[0, 1]]


def test_keys_are_those_of_one_topic() -> None:
    site = BareTopics()
    for name in ("one", "two"):
        assert site.api.ok(name, {"records": keyed("a")}, 201)["written"] == 1


def test_a_key_expires_by_the_window_of_its_topic() -> None:
    site = BareTopics(MemoryStorage())
    site.api.put("t", key_window_ms=5000)
    site.api.ok("t", {"records": keyed("a")})
    site.tick(4999)
    assert site.api.ok("t", {"records": keyed("a")})["written"] == 0
    site.tick(1)
    assert site.api.ok("t", {"records": keyed("a")})["seqs"] == [2]
    site.check()
    site.tick(20_000)
    site.check()
    assert site.yard.bodies.pinned == 0
    assert site.timers() == 0


def test_new_keys_beyond_the_limit_are_refused_and_nothing_is_forgotten() -> None:
    site = BareTopics(MemoryStorage())
    site.api.put("t", key_max=3, key_window_ms=5000)
    site.api.ok("t", {"records": keyed("a", "b")})
    refused = site.api.post("t", {"records": keyed("a", "c", "d")})
    assert refused.refusal == (422, "too_many_keys")
    assert refused.json["error"]["detail"] == {"key_max": 3, "keys": 2, "new": 2}
    assert site.api.ok("t", {"records": keyed("a", "b", "c")})["written"] == 1
    assert site.api.post("t", {"records": keyed("d")}).status == 422
    assert site.api.ok("t", {"records": [{"data": 1}]})["seqs"] == [4]
    # Keys that are no longer valid do not count, even those that are not forgotten yet.
    site.tick(5000)
    assert site.api.ok("t", {"records": keyed("a", "b", "c")})["written"] == 3


def test_too_many_keys_for_a_topic_that_would_be_created_leave_no_topic() -> None:
    site = BareTopics(MemoryStorage())
    body = {"records": keyed("a", "b"), "config": {"key_max": 1}}
    assert site.api.post("t", body).refusal == (422, "too_many_keys")
    assert "t" not in site.yard.logs


def test_duplicates_of_a_full_topic_are_not_refused() -> None:
    site = BareTopics(MemoryStorage())
    site.api.put("t", cap_records=2, discard="reject")
    site.api.ok("t", {"records": keyed("a", "b")})
    assert site.api.ok("t", {"records": keyed("a", "b")})["written"] == 0
    assert site.api.post("t", {"records": keyed("a", "c")}).code == "topic_full"
    # A refused write leaves no key behind.
    site.api.put("t", cap_records=3, discard="reject")
    assert site.api.ok("t", {"records": keyed("c")})["written"] == 1


@pytest.mark.parametrize("key", [1, "", "x" * 257, ["a"], True])
def test_a_wrong_key_is_refused(key: object) -> None:
    site = BareTopics()
    refused = site.api.post("t", {"records": [{"data": 1, "key": key}]})
    assert refused.refusal == (400, "invalid_request")
    assert "key" in refused.json["error"]["message"]


def test_a_write_has_a_key_or_its_records_have() -> None:
    site = BareTopics()
    body = {"records": keyed("a"), "idempotency_key": "k"}
    assert site.api.post("t", body).refusal == (409, "two_kinds_of_keys")
    refused = site.api.post("t", {"records": keyed("a")}, {"Idempotency-Key": "k"})
    assert refused.refusal == (409, "two_kinds_of_keys")
    assert not site.yard.logs


def test_a_key_may_be_any_text() -> None:
    site = BareTopics()
    for key in ("ä", "\u0000", "x" * 256, "\\", "é" * 128):
        said = site.api.ok("t", {"records": keyed(key)}, 200 if site.yard.logs else 201)
        assert said["written"] == 1
        assert site.api.ok("t", {"records": keyed(key)})["written"] == 0


@pytest.mark.parametrize("kind", ["log", "queue"])
def test_a_long_write_is_compared_record_by_record_too(kind: str) -> None:
    site = BareTopics(MemoryStorage())
    site.api.put("t", type=kind)
    records = [{"data": [at, "x" * 100], "key": f"k{at}", "tag": "t"} for at in range(2000)]
    assert len(json.dumps(records)) > BODY_AT_ONCE
    site.api.ok("t", {"records": records[::3]})
    said = site.api.ok("t", {"records": records})
    assert said["written"] == 2000 - 667
    assert said["duplicates"] == [[at, at // 3 + 1] for at in range(0, 2000, 3)]
    site = site.again()
    again = site.api.ok("t", {"records": records})
    assert again["written"] == 0
    seqs = [seq for _, seq in again["duplicates"]]
    assert sorted(seqs) == list(range(1, 2001))
    if kind == "log":
        # Each record is where its key says.
        found: dict[int, int] = {}
        while len(found) < 2000:
            query = {"from_seq": max(found, default=0), "limit": 1000, "include_tags": True}
            page = site.api.ok("t/diff", query)["records"]
            assert {one["$tag"] for one in page} == {"t"}
            found |= {one["$seq"]: one["data"][0] for one in page}
        assert {found[seq]: seq for seq in found} == dict(again["duplicates"])


def test_copies_of_routers_and_dead_letters_have_no_key() -> None:
    site = BareTopics(MemoryStorage())
    for name in ("one", "two"):
        site.api.put(name)
    assert site.api.ask("PUT", "/v0/routers/r", {"source": "one", "dest": "two"}).status == 201
    site.api.ok("one", {"records": keyed("a")})
    assert site.yard.logs["two"].count == 1
    assert site.yard.logs["two"].record_keys is None
    said = site.api.ok("two", {"records": keyed("a")})
    assert (said["written"], said["seqs"]) == (1, [2])


def test_without_a_journal_keys_are_kept_in_memory() -> None:
    site = BareTopics()
    site.api.ok("t", {"records": keyed("a")}, 201)
    assert site.api.ok("t", {"records": keyed("a", "b")})["duplicates"] == [[0, 1]]
    site.check()
