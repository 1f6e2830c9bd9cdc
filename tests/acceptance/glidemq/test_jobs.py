"""Producers and workers of redis-py against a real server: its document's example, and a crash."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers.glidemq import Yard


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    yard = Yard("--data", str(tmp_path / "data"))
    try:
        yield yard
    finally:
        yard.close()


def add(client: Any, p: str, **given: Any) -> Any:
    """Add a job with the seventeen arguments of the document."""
    known: dict[str, Any] = {
        "name": "send-email", "data": "{}", "opts": "{}", "ts": int(time.time() * 1000),
        "delay": 0, "priority": 0, "parent": "", "attempts": 0, "key": "", "concurrency": 0,
        "rate_max": 0, "rate_ms": 0, "capacity": 0, "refill": 0, "cost": 0, "ttl": 0, "custom": "",
    }  # fmt: skip
    known.update(given)
    keys = [p + part for part in ("id", "stream", "scheduled", "events")]
    return client.fcall("glidemq_addJob", 4, *keys, *(str(value) for value in known.values()))


def read(client: Any, p: str, count: int = 1, block: int | None = None) -> list[tuple[str, str]]:
    """Take jobs; return id and entry of each."""
    answer = client.xreadgroup("workers", "w1", {p + "stream": ">"}, count=count, block=block)
    if not answer:
        return []
    # Version 3 of the protocol names streams in a map.
    entries = answer[0][1] if isinstance(answer, list) else next(iter(answer.values()))[0]
    return [(fields["jobId"], entry) for entry, fields in entries]


def complete(client: Any, p: str, job_id: str, entry: str, name: str = "complete") -> Any:
    keys = [p + part for part in ("stream", "completed", "events")]
    keys += [f"{p}job:{job_id}", p + "metrics:completed"]
    ts = str(int(time.time() * 1000))
    given = [job_id, entry, '"done"', ts, "workers"]
    if name == "completeAndFetchNext":
        given.append("w1")
    return client.fcall(f"glidemq_{name}", 5, *keys, *given, "0", "0", "0")


def test_the_example_of_the_document(shared: Yard, queue: str) -> None:
    with shared.client(decode_responses=True) as client:
        data = json.dumps({"to": "user@example.com", "subject": "Hello"})
        result = add(client, queue, data=data)
        assert result == "1"
        job = client.hgetall(f"{queue}job:{result}")
        assert (job["name"], job["data"], job["state"]) == ("send-email", data, "waiting")
        assert client.xlen(f"{queue}stream") == 1
        for part in ("completed", "failed", "scheduled"):
            assert client.zcard(f"{queue}{part}") == 0


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_worker_of_a_few_lines(shared: Yard, queue: str, protocol: int) -> None:
    with shared.client(decode_responses=True, protocol=protocol) as client:
        client.xgroup_create(queue + "stream", "workers", id="$", mkstream=True)
        taken: list[str] = []

        def work() -> None:
            with shared.client(decode_responses=True, protocol=protocol) as worker:
                for _ in range(3):
                    [(job_id, entry)] = read(worker, queue, block=10_000)
                    complete(worker, queue, job_id, entry)
                    taken.append(job_id)

        thread = threading.Thread(target=work)
        thread.start()
        for _ in range(3):
            add(client, queue)
        thread.join(20)
        assert taken == ["1", "2", "3"]
        assert client.zrange(queue + "completed", 0, -1) == ["1", "2", "3"]
        assert client.hget(queue + "job:3", "returnvalue") == '"done"'
        pending = client.xpending(queue + "stream", "workers")
        assert pending["pending"] == 0


def test_a_chain_of_jobs_in_one_round_trip_each(shared: Yard, queue: str) -> None:
    with shared.client(decode_responses=True) as client:
        with client.pipeline(transaction=False) as pipe:
            for _ in range(50):
                add(pipe, queue)
            assert pipe.execute() == [str(number) for number in range(1, 51)]
        [(job_id, entry)] = read(client, queue)
        seen = [job_id]
        while True:
            answer = complete(client, queue, job_id, entry, "completeAndFetchNext")
            if answer[0] == "NEXT_NONE":
                break
            assert answer[0] == "NEXT_HASH"
            job_id, entry = answer[2], answer[3]
            seen.append(job_id)
        assert seen == [str(number) for number in range(1, 51)]
        assert client.zcard(queue + "completed") == 50


def test_events_are_followed_while_jobs_come(shared: Yard, queue: str) -> None:
    answers: list[Any] = []

    def follow() -> None:
        with shared.client(decode_responses=True) as reader:
            answers.append(reader.xread({queue + "events": "0"}, block=10_000, count=100))

    thread = threading.Thread(target=follow)
    thread.start()
    with shared.client() as client:
        add(client, queue)
    thread.join(20)
    [answer] = answers
    entries = answer[0][1] if isinstance(answer, list) else next(iter(answer.values()))[0]
    assert entries[0][1]["event"] == "added"


def test_all_of_it_outlives_a_crash(yard: Yard) -> None:
    p = "glide:{crash}:"
    with yard.client(decode_responses=True) as client:
        add(client, p, custom="running")
        [(_, entry)] = read(client, p)
        add(client, p, delay=3_600_000, opts='{"delay":3600000}')
        add(client, p, priority=7)
        add(client, p, key="k")
        add(client, p, key="k")
        keys = [p + part for part in ("id", "stream", "scheduled", "events")]
        now = str(int(time.time() * 1000))
        parent = ["parent", "{}", "{}", now, "0", "0", "0", "1", "top"]
        child = ["child", "{}", "{}", "0", "0", "0", p[:-1], "crash", "", "0"]
        ids = client.fcall("glidemq_addFlow", 8, *keys, *keys, *parent, *child)
        assert json.loads(ids) == ["top", "7"]
        client.fcall("glidemq_pause", 2, p + "meta", p + "events")
        scores = client.zrange(p + "scheduled", 0, -1, withscores=True)
        hashes = {job: client.hgetall(f"{p}job:{job}") for job in ("2", "3", "5", "top", "7")}
    yard.kill()
    yard.start()
    with yard.client(decode_responses=True) as client:
        assert client.zrange(p + "scheduled", 0, -1, withscores=True) == scores
        for job, before in hashes.items():
            assert client.hgetall(f"{p}job:{job}") == before, job
        assert client.hget(p + "meta", "paused") == "1"
        assert client.smembers(p + "deps:top") == {f"{p}7"}
        # Its worker did not notice the crash.
        complete(client, p, "running", entry)
        assert client.hget(p + "job:running", "state") == "completed"
        client.fcall("glidemq_resume", 2, p + "meta", p + "events")
        taken = read(client, p, count=10)
        assert [job_id for job_id, _ in taken] == ["4", "7"]
        complete(client, p, *taken[1])
        assert client.hget(p + "job:top", "state") == "waiting"


def test_an_answer_of_many_portions_holds_up_nobody(shared: Yard, queue: str) -> None:
    # More than one turn reads, and more than one portion of an answer.
    count = 12_000
    with shared.client(decode_responses=True) as client:
        with client.pipeline(transaction=False) as many:
            for _ in range(count):
                add(many, queue)
            many.execute()
        entries = client.xrange(queue + "stream")
        assert [fields["jobId"] for _, fields in entries] == [str(n + 1) for n in range(count)]
        assert client.ping()
