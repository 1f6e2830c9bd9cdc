"""Unique keys in all their modes, and ids the client chooses."""

import pytest

from tests.support.servers.bunqueue import Client, ours


def owner(client: Client, queue: str, key: str) -> str | None:
    found = client.ok("GetDeduplicationJobId", queue=queue, deduplicationId=key)["data"]["jobId"]
    assert found is None or isinstance(found, str)
    return found


def pass_time(client: Client, queue: str, ms: int) -> None:
    """Let real time pass by polling an empty queue."""
    assert client.ok("PULL", queue=f"{queue}-none", timeout=ms)["job"] is None


def test_a_second_push_returns_the_first_job(client: Client, queue: str) -> None:
    first = client.push(queue, 1, uniqueKey="k")
    assert client.push(queue, 2, uniqueKey="k") == first
    ids = client.ok("PUSHB", queue=queue, jobs=[{"data": 3, "uniqueKey": "k"}])["ids"]
    assert ids == [first]
    assert client.pull(queue)["data"] == 1
    assert client.push(queue, 4, uniqueKey="k") == first
    assert client.is_empty(queue)


def test_a_batch_knows_its_own_keys(client: Client, queue: str) -> None:
    jobs = [{"data": n, "uniqueKey": key} for n, key in enumerate("abab")]
    ids = client.ok("PUSHB", queue=queue, jobs=jobs)["ids"]
    assert ids == [ids[0], ids[1], ids[0], ids[1]]
    assert client.ok("Count", queue=queue)["count"] == 2


def test_a_key_belongs_to_its_queue(client: Client, queue: str) -> None:
    first = client.push(queue, 1, uniqueKey="k")
    assert client.push(queue + "-2", 1, uniqueKey="k") != first


DRAIN = pytest.param("Drain", marks=ours("a drained job keeps its key"))


@pytest.mark.parametrize("end", ["ACK", "FAIL", "Cancel", "Discard", DRAIN, "Obliterate"])
def test_a_key_is_free_when_its_job_has_ended(client: Client, queue: str, end: str) -> None:
    job_id = client.push(queue, 1, uniqueKey="k")
    assert owner(client, queue, "k") == job_id
    if end in ("ACK", "FAIL"):
        client.pull(queue)
    client.ok(end, id=job_id, queue=queue, unrecoverable=True)
    assert owner(client, queue, "k") is None
    assert client.push(queue, 2, uniqueKey="k") != job_id


@ours("it frees the key at every retry")
def test_a_key_is_kept_through_a_retry(client: Client, queue: str) -> None:
    job_id = client.push(queue, 1, uniqueKey="k", backoff=600_000)
    client.pull(queue)
    client.ok("FAIL", id=job_id)
    assert client.push(queue, 2, uniqueKey="k") == job_id


@ours("it frees the key when the worker disconnects")
def test_a_key_is_kept_through_a_disconnect(
    client: Client, address: tuple[str, int], queue: str
) -> None:
    job_id = client.push(queue, 1, uniqueKey="k")
    with Client(address) as gone:
        gone.pull(queue)
    assert client.pull(queue)["id"] == job_id
    assert client.push(queue, 2, uniqueKey="k") == job_id


def test_a_key_may_end_before_its_job(client: Client, queue: str) -> None:
    options = {"uniqueKey": "k", "dedup": {"ttl": 120}}
    first = client.push(queue, 1, **options)
    assert client.push(queue, 2, **options) == first
    assert client.job(first)["deduplicationTtl"] == 120
    pass_time(client, queue, 200)
    assert client.push(queue, 3, **options) != first
    assert client.state(first) == "waiting"


def test_a_key_may_be_extended_by_every_push(client: Client, queue: str) -> None:
    options = {"uniqueKey": "k", "dedup": {"ttl": 300, "extend": True}}
    first = client.push(queue, 1, **options)
    for _ in range(3):
        pass_time(client, queue, 150)
        assert client.push(queue, 2, **options) == first
    client.pull(queue)
    error = client.refused("PUSH", queue=queue, data=3, **options)
    assert error == "Duplicate unique_key (extended TTL)"


def test_a_pending_job_may_be_replaced(client: Client, queue: str) -> None:
    options = {"uniqueKey": "k", "dedup": {"replace": True}}
    first = client.push(queue, 1, **options)
    second = client.push(queue, 2, **options)
    assert first != second
    assert (client.state(first), client.state(second)) == ("unknown", "waiting")
    assert client.pull(queue)["data"] == 2
    third = client.push(queue, 3, **options)
    assert (client.state(second), client.state(third)) == ("active", "waiting")
    assert owner(client, queue, "k") == third
    client.ok("ACK", id=second)
    assert owner(client, queue, "k") == third


def test_a_job_others_depend_on_is_not_replaced(client: Client, queue: str) -> None:
    options = {"uniqueKey": "k", "dedup": {"replace": True}}
    first = client.push(queue, 1, **options)
    client.push(queue, 2, dependsOn=[first])
    client.refused("PUSH", queue=queue, data=3, **options)
    assert client.state(first) == "waiting"


def test_a_key_can_be_taken_away(client: Client, queue: str) -> None:
    job_id = client.push(queue, 1, uniqueKey="k")
    answer = client.ok("RemoveDeduplicationKey", queue=queue, deduplicationId="k")
    assert answer == {"data": {"count": 1}}
    answer = client.ok("RemoveDeduplicationKey", queue=queue, deduplicationId="k")
    assert answer == {"data": {"count": 0}}
    second = client.push(queue, 2, uniqueKey="k")
    assert second != job_id
    answer = client.ok("RemoveJobDeduplicationKey", id=second)
    assert answer == {"data": {"removed": True}}
    answer = client.ok("RemoveJobDeduplicationKey", id=second)
    assert answer == {"data": {"removed": False}}
    answer = client.ok("RemoveJobDeduplicationKey", id="nobody")
    assert answer == {"data": {"removed": False}}
    assert owner(client, queue, "k") is None


def test_a_custom_id_is_pushed_once(client: Client, queue: str) -> None:
    name = f"{queue}-id"
    assert client.push(queue, 1, jobId=name) == name
    assert client.push(queue, 2, jobId=name) == name
    jobs = [{"data": 3, "customId": name}]
    assert client.ok("PUSHB", queue=queue, jobs=jobs) == {"ids": [name]}
    assert client.pull(queue)["data"] == 1
    assert client.push(queue, 4, jobId=name) == name
    assert client.is_empty(queue)


def test_custom_ids_are_one_name_space(client: Client, queue: str) -> None:
    name = client.push(queue, 1, jobId=f"{queue}-id")
    assert client.push(queue + "-2", 2, jobId=name) == name
    assert client.job(name)["queue"] == queue
    assert client.ok("Count", queue=queue + "-2")["count"] == 0


@pytest.mark.parametrize("is_failed", [False, True])
def test_after_its_end_a_custom_id_starts_anew(
    client: Client, queue: str, *, is_failed: bool
) -> None:
    name = f"{queue}-id"
    if is_failed:
        client.bury(queue, 1, jobId=name)
    else:
        client.finish(queue, 1, jobId=name, result="old")
    client.ok("AddLog", id=name, message="old")
    assert client.push(queue, 2, jobId=name) == name
    assert client.state(name) == "waiting"
    assert client.ok("GetResult", id=name).get("result") is None
    assert client.ok("GetLogs", id=name)["data"]["logs"] == []
    job = client.pull(queue)
    assert (job["id"], job["data"], job["attempts"]) == (name, 2, 0)
    assert client.ok("Dlq", queue=queue)["jobs"] == []


@pytest.mark.parametrize("name", ["a b", "ä", "x" * 500, "with:colon", "00000000-0000"])
def test_a_custom_id_may_be_any_text(client: Client, queue: str, name: str) -> None:
    full = f"{queue}/{name}"
    assert client.push(queue, 1, jobId=full) == full
    client.pull(queue)
    client.ok("ACK", id=full, result=1)
    assert client.ok("GetResult", id=full)["result"] == 1


def test_an_empty_custom_id_is_none(client: Client, queue: str) -> None:
    first = client.push(queue, 1, jobId="")
    assert first != client.push(queue, 2, jobId="")
    assert first
