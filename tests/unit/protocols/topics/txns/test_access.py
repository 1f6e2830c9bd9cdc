"""Keys that cover only some names: they cannot touch what others do under a name they know."""

from collections.abc import Iterator

import pytest

from jobyard.engine.topics.fences import SPACE_FENCES_MAX, fence_name, raise_fence
from tests.support.clients.http import Reply
from tests.support.clients.topics import TopicsClient, said
from tests.support.doors.topics import BareTopics
from tests.support.site.storage import MemoryStorage

KEYS = "all,a::a.,more:rw:a.,b::b.,both::b.|a.,again::a.|b."
FORBIDDEN = (403, "forbidden")


def guarded(storage: MemoryStorage | None = None) -> BareTopics:
    return BareTopics(storage, keys=KEYS)


@pytest.fixture
def site() -> Iterator[BareTopics]:
    """A port with keys, two logs and two queues."""
    site = guarded()
    boss = site.connect("all")
    for name in "ab":
        boss.put(f"{name}.log", type="log")
        boss.put(f"{name}.q", type="queue")
        boss.write(f"{name}.q", 1, 2, 3)
    yield site
    site.check()


def place_of(topic: str, chunk: int = 0) -> dict[str, object]:
    return {"topic": topic, "part": 0, "attempt": 0, "chunk": chunk}


def stage(caller: TopicsClient, topic: str, txn: str = "t", chunk: int = 0) -> Reply:
    body = {**place_of(topic, chunk), "records": [{"data": 1}]}
    return caller.ask("POST", f"/v0/txns/{txn}/stage", body)


def commit(caller: TopicsClient, txn: str = "t", **fields: object) -> Reply:
    return caller.ask("POST", f"/v0/txns/{txn}/commit", fields)


def parts(topic: str) -> list[object]:
    return [{"topic": topic, "part": 0, "attempt": 0, "chunks": 1, "rows": 1}]


# -- transactions -----------------------------------------------------------------------------


@pytest.mark.parametrize("txn", ["t", "u"])
def test_a_commit_needs_a_key_for_all_that_is_staged(site: BareTopics, txn: str) -> None:
    mine, other, boss = site.connect("a"), site.connect("b"), site.connect("all")
    assert stage(mine, "a.log", txn).status == 200
    assert commit(other, txn).refusal == FORBIDDEN
    assert commit(other, txn, parts=parts("a.log")).refusal == FORBIDDEN
    assert other.ask("GET", f"/v0/txns/{txn}").refusal == FORBIDDEN
    assert other.ask("DELETE", f"/v0/txns/{txn}").refusal == FORBIDDEN
    # Else the owner could no longer commit.
    assert stage(other, "b.log", txn).refusal == FORBIDDEN
    found = said(mine.ask("GET", f"/v0/txns/{txn}"))
    assert (found["state"], found["rows"]) == ("open", 1)
    assert said(commit(mine, txn, parts=parts("a.log")))["topics"]["a.log"]["written"] == 1
    assert boss.state("a.log")["count"] == 1


def test_a_commit_is_shown_again_to_keys_for_all_its_topics(site: BareTopics) -> None:
    boss, mine = site.connect("all"), site.connect("a")
    assert stage(boss, "b.log").status == 200
    acks = [{"queue": "a.q", "node": "w", "items": [[1]]}]
    answer = commit(boss, parts=parts("b.log"), acks=acks)
    assert said(answer)["skipped"] == [["a.q", 1, "expired"]]
    assert commit(mine).refusal == FORBIDDEN
    assert commit(mine, parts=parts("b.log"), acks=acks).refusal == FORBIDDEN
    assert stage(mine, "a.log").refusal == FORBIDDEN
    # The answer names a queue.
    assert site.connect("b").ask("GET", "/v0/txns/t").refusal == FORBIDDEN
    for key in ("both", "all"):
        again = commit(site.connect(key), parts=parts("b.log"), acks=acks)
        assert said(again)["duplicate"]


def test_a_wider_key_may_go_on_with_a_transaction(site: BareTopics) -> None:
    mine, wide = site.connect("a"), site.connect("both")
    assert stage(mine, "a.log").status == 200
    assert stage(wide, "b.log").status == 200
    assert commit(mine, parts=parts("a.log")).refusal == FORBIDDEN
    assert commit(wide, parts=[*parts("a.log"), *parts("b.log")]).status == 200


def test_what_is_staged_while_a_commit_is_prepared_is_checked_too(site: BareTopics) -> None:
    mine, wide = site.connect("a"), site.connect("both")
    for chunk in range(100):
        assert stage(mine, "a.log", chunk=chunk).status == 200
    site.yard.tasks.units_per_turn = 100
    site.is_slow = True
    site.slice()
    wanted = [{"topic": "a.log", "part": 0, "attempt": 0, "chunks": 100, "rows": 100}]
    mine.send("POST", "/v0/txns/t/commit", {"parts": wanted})
    assert site.slice()
    assert mine.hear() is None
    wide.send("POST", "/v0/txns/t/stage", {**place_of("b.log"), "records": [{"data": 1}]})
    while site.slice():
        pass
    answer, staged = mine.hear(), wide.hear()
    assert answer is not None
    assert staged is not None
    assert staged.status == 200
    assert answer.refusal == FORBIDDEN
    assert said(wide.ask("GET", "/v0/txns/t"))["chunks"] == 101


# -- fences -----------------------------------------------------------------------------------


def claim(caller: TopicsClient, queue: str, epoch: int, worker: str = "m") -> Reply:
    return caller.post(f"{queue}/claim", {"node": "w", "worker": worker, "epoch": epoch})


def test_a_key_fences_the_workers_of_its_prefixes_alone(site: BareTopics) -> None:
    mine, other, boss = site.connect("a"), site.connect("b"), site.connect("all")
    assert claim(mine, "a.q", 1 << 53).status == 200
    assert claim(other, "b.q", 1).status == 200
    assert claim(boss, "a.q", 2).status == 200
    assert commit(boss, worker="m", epoch=1).refusal == (409, "fenced")
    assert commit(other, "u", worker="m", epoch=1).status == 200
    assert commit(mine, "v", worker="m", epoch=1).refusal == (409, "fenced")
    # The name space is that of the prefixes, whatever else the key allows.
    assert claim(site.connect("more"), "a.q", 1).refusal == (409, "fenced")
    lease = {"node": "w", "seqs": [], "lease_ms": 1, "worker": "m", "epoch": 1}
    answer = mine.post("a.q/extend", lease)
    assert answer.refusal == (409, "fenced")
    told = answer.json["error"]
    assert told["detail"] == {"epoch": 1 << 53}
    assert told["message"] == f"worker m has called with epoch {1 << 53}"


def test_keys_with_the_same_prefixes_share_their_workers(site: BareTopics) -> None:
    assert claim(site.connect("both"), "a.q", 5).status == 200
    assert claim(site.connect("again"), "b.q", 4).refusal == (409, "fenced")
    assert claim(site.connect("a"), "a.q", 4).status == 200


def test_fences_of_a_name_space_survive_a_restart() -> None:
    storage = MemoryStorage()
    site = guarded(storage)
    site.connect("all").put("a.q", type="queue")
    assert claim(site.connect("a"), "a.q", 5).status == 200
    site.commit()
    after = guarded(storage)
    assert claim(after.connect("a"), "a.q", 4).refusal == (409, "fenced")
    assert claim(after.connect("all"), "a.q", 4).status == 200
    after.check()


def test_no_key_uses_up_the_room_for_workers_of_others(site: BareTopics) -> None:
    mine = site.connect("a")
    (space,) = {key.name_space for key in site.topics.keys if key.prefixes == ("a.",)}
    for number in range(SPACE_FENCES_MAX):
        raise_fence(site.yard, fence_name(space, f"w{number}"), 1, site.now_ms)
    answer = claim(mine, "a.q", 1, "m")
    assert answer.refusal == (429, "throttled")
    assert claim(mine, "a.q", 2, "w0").status == 200
    assert claim(site.connect("b"), "b.q", 1).status == 200
    assert claim(site.connect("all"), "b.q", 1).status == 200
    site.tick(8 * 86_400_000)
    assert claim(mine, "a.q", 1).status == 200


def test_a_worker_has_no_zero_in_its_name(site: BareTopics) -> None:
    assert claim(site.connect("all"), "a.q", 1, "m\0n").refusal == (400, "invalid_request")
