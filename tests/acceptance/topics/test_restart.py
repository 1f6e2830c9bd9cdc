"""SIGKILL under load: everything acknowledged is there, once, and what was acked stays gone."""

import contextlib
import random
import threading
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers.http import Boot, Topics

CYCLES = 20
LOST = (OSError, HTTPException)


class Ledger:
    """The requests of clients to one topic, and their answers."""

    def __init__(self, name: str) -> None:
        self.name = name
        # Seqs of answered writes by key; how many records those have that were not answered.
        self.written: dict[str, list[int]] = {}
        self.doubtful: dict[str, int] = {}
        self.acked: set[int] = set()
        self.maybe_acked: set[int] = set()

    def body(self, key: str, count: int) -> dict[str, object]:
        """Return a write, the same for the same key."""
        records = [{"data": f"{key}/{at}", "tag": key} for at in range(count)]
        return {"records": records, "idempotency_key": key}

    def write(self, client: Topics, key: str, count: int) -> None:
        """Write, and note what is answered."""
        self.doubtful[key] = count
        status, answer = client.ask("POST", f"/v0/topics/{self.name}", self.body(key, count))
        assert status == 200, answer
        assert answer["count"] == count
        assert answer["seqs"] == list(range(answer["first_seq"], answer["last_seq"] + 1))
        self.written[key] = answer["seqs"]
        del self.doubtful[key]

    def work(self, client: Topics, node: str, rng: random.Random) -> None:
        """Claim some jobs, finish some of them, and give the others back."""
        path = f"/v0/topics/{self.name}"
        claim = {"node": node, "max": 8, "wait_ms": 20}
        claimed = ask(client, f"{path}/claim", claim)["claimed"]
        seqs = [job["$seq"] for job in claimed]
        assert not self.acked & set(seqs), "an acked job came back"
        ready = [seq for seq in seqs if rng.random() < 0.6]
        self.maybe_acked |= set(ready)
        answer = ask(client, f"{path}/ack", {"node": node, "seqs": ready})
        assert answer["skipped"] == []
        self.acked |= set(ready)
        rest = [seq for seq in seqs if seq not in ready]
        ask(client, f"{path}/nack", {"node": node, "seqs": rest})

    def check(self, client: Topics, rng: random.Random) -> None:
        """Compare the topic with what was answered; find out what happened to the rest."""
        found = contents(client, self.name)
        assert len(set(found.values())) == len(found), "something was written twice"
        for key, seqs in self.written.items():
            for at, seq in enumerate(seqs):
                if seq in self.acked:
                    assert seq not in found, "an acked job came back"
                elif seq not in self.maybe_acked:
                    assert found.get(seq) == f"{key}/{at}", "something answered was lost"
        head = max([0, *found, *(seqs[-1] for seqs in self.written.values())])
        for key, count in list(self.doubtful.items()):
            self._settle(client, key, count, found, head)
        for key in rng.sample(sorted(self.written), min(5, len(self.written))):
            seqs = self.written[key]
            answer = ask(client, f"/v0/topics/{self.name}", self.body(key, len(seqs)))
            assert (answer["deduped"], answer["seqs"]) == (True, seqs)

    def _settle(
        self, client: Topics, key: str, count: int, found: dict[int, str], head: int
    ) -> None:
        """Ask again for what was not answered: it is there wholly, or not at all."""
        there = [seq for seq, data in found.items() if data.startswith(f"{key}/")]
        there = [seq for seq in there if seq not in self.maybe_acked]
        self.write(client, key, count)
        seqs = self.written[key]
        if there:
            assert set(there) <= set(seqs), "a write with a known key was made again"
        elif not self.maybe_acked & set(seqs):
            assert seqs[0] > head, "a seq was given twice"


def ask(client: Topics, path: str, body: object) -> Any:
    """Post what must be granted."""
    status, answer = client.ask("POST", path, body)
    assert status == 200, answer
    return answer


def contents(client: Topics, name: str) -> dict[int, Any]:
    """Return all that a topic holds."""
    found: dict[int, Any] = {}
    cursor = 0
    while True:
        query = {"from_seq": cursor, "limit": 1000}
        page = ask(client, f"/v0/topics/{name}/diff", query)
        assert page["tombstone"] is None
        for one in page["records"]:
            assert one["$seq"] > cursor
            cursor = one["$seq"]
            found[cursor] = one["data"]
        if page["caught_up"]:
            return found
        cursor = page["next_from_seq"]


class Crew:
    """Clients that write and work until the server is gone."""

    def __init__(self, boot: Boot, ledgers: list[Ledger], queue: Ledger, cycle: int) -> None:
        self._boot = boot
        self._failures: list[BaseException] = []
        self.is_busy = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(ledger, f"{ledger.name}-{cycle}-{number}"))
            for ledger in ledgers
            for number in range(2)
        ]
        self._threads += [
            threading.Thread(target=self._labour, args=(queue, f"node-{number}"))
            for number in range(2)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, ledger: Ledger, name: str) -> None:
        rng = random.Random(name)
        with self._client() as client:
            for number in range(1_000_000):
                ledger.write(client, f"{name}-{number}", rng.randint(1, 5))
                self.is_busy.set()

    def _labour(self, queue: Ledger, node: str) -> None:
        rng = random.Random(node)
        with self._client() as client:
            while True:
                queue.work(client, node, rng)

    @contextlib.contextmanager
    def _client(self) -> Iterator[Topics]:
        client = self._boot.connect()
        try:
            yield client
        except LOST:
            pass
        except BaseException as failure:
            self._failures.append(failure)
            raise
        finally:
            client.close()

    def finish(self) -> None:
        """Wait for all of them; fail if one saw what it should not."""
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()
        if self._failures:
            raise self._failures[0]


@pytest.fixture
def boot(tmp_path: Path) -> Iterator[Boot]:
    """A server with a folder of its own."""
    found = Boot(tmp_path / "data")
    yield found
    found.close()


def make(boot: Boot, name: str, **config: object) -> None:
    with contextlib.closing(boot.connect()) as client:
        status, answer = client.ask("PUT", f"/v0/topics/{name}", config)
        assert status == 201, answer


def test_nothing_answered_is_lost_over_sigkill(boot: Boot) -> None:
    rng = random.Random()
    make(boot, "log", durable=True)
    make(boot, "jobs", type="queue", durable=True, lease_ms=60_000)
    log, jobs = Ledger("log"), Ledger("jobs")
    for cycle in range(CYCLES):
        crew = Crew(boot, [log, jobs], jobs, cycle)
        assert crew.is_busy.wait(20)
        threading.Event().wait(rng.uniform(0.0, 0.2))
        boot.kill()
        crew.finish()
        with contextlib.closing(boot.connect()) as client:
            log.check(client, rng)
            jobs.check(client, rng)
            status, state = client.ask("GET", "/v0/topics/jobs")
            assert (status, state["queue"]["in_flight"]) == (200, 0)
    assert len(log.written) > CYCLES
    assert len(jobs.acked) > CYCLES
    assert len(jobs.doubtful) == len(log.doubtful) == 0


def test_a_log_that_promises_less_loses_its_end_at_most(boot: Boot) -> None:
    make(boot, "loose")
    ledger = Ledger("loose")
    for cycle in range(5):
        with contextlib.closing(boot.connect()) as client:
            for number in range(50):
                ledger.write(client, f"{cycle}-{number}", 3)
        answered = max(seqs[-1] for seqs in ledger.written.values())
        boot.kill()
        with contextlib.closing(boot.connect()) as client:
            found = contents(client, "loose")
            lost = [key for key, seqs in ledger.written.items() if seqs[0] not in found]
            for key in lost:
                assert found.keys().isdisjoint(ledger.written.pop(key)), "half of a write is there"
            whole = {
                seq: f"{key}/{at}"
                for key, seqs in ledger.written.items()
                for at, seq in enumerate(seqs)
            }
            assert found == whole
            assert all(key.startswith(f"{cycle}-") for key in lost)
            ledger.write(client, f"{cycle}-after", 1)
            assert ledger.written[f"{cycle}-after"][0] > answered, "a seq was given twice"


def test_deliveries_and_keys_outlive_sigkill(boot: Boot) -> None:
    make(boot, "other", durable=True)
    make(boot, "q", type="queue", durable=True, max_deliveries=4, dead_letter="q.dlq")
    body = {"records": [{"data": 1}, {"data": 2}], "idempotency_key": "k"}
    with contextlib.closing(boot.connect()) as client:
        first = ask(client, "/v0/topics/q", body)
    for number in range(1, 5):
        with contextlib.closing(boot.connect()) as client:
            claimed = ask(client, "/v0/topics/q/claim", {"node": "w", "max": 9})["claimed"]
            assert [job["deliveries"] for job in claimed] == [number, number]
            # Whatever is answered after it was written after it.
            ask(client, "/v0/topics/other", {"records": [{"data": number}]})
        boot.kill()
        with contextlib.closing(boot.connect()) as client:
            again = ask(client, "/v0/topics/q", body)
            assert (again["deduped"], again["seqs"]) == (True, first["seqs"])
    with contextlib.closing(boot.connect()) as client:
        assert ask(client, "/v0/topics/q/claim", {"node": "w", "max": 9})["claimed"] == []
        letters = contents(client, "q.dlq")
        assert sorted(letters.values()) == [1, 2]


def test_leases_that_are_to_last_survive_a_kill(boot: Boot) -> None:
    client = boot.connect()
    path = "/v0/topics/lasting"
    config = {"type": "queue", "durable": True, "leases_durable": True, "lease_ms": 600_000}
    client.ask("PUT", path, config)
    ask(client, path, {"records": [{"data": number} for number in range(4)]})
    claimed = ask(client, f"{path}/claim", {"node": "w", "max": 3})["claimed"]
    ask(client, f"{path}/ack", {"node": "w", "seqs": [1]})
    ask(client, f"{path}/extend", {"node": "w", "seqs": [3], "lease_ms": 900_000})
    client.close()
    boot.kill()
    client = boot.connect()
    state = client.ask("GET", path)[1]["queue"]
    assert (state["ready"], state["in_flight"]) == (1, 2)
    others = ask(client, f"{path}/claim", {"node": "other", "max": 9})["claimed"]
    assert [job["$seq"] for job in others] == [4]
    ids = [job["lease_id"] for job in claimed[1:]]
    body = {"node": "w", "seqs": [2, 3], "lease_ids": ids}
    assert ask(client, f"{path}/ack", body)["acked"] == 2
    client.close()
    boot.kill()
    client = boot.connect()
    state = client.ask("GET", path)[1]["queue"]
    assert (state["ready"], state["in_flight"]) == (0, 1)
    client.close()


def test_what_a_cursor_holds_survives_a_kill(boot: Boot) -> None:
    client = boot.connect()
    path = "/v0/topics/held"
    client.ask("PUT", path, {"cap_records": 3})
    client.ask("POST", path, {"records": [{"data": 0}]})
    for at in range(1, 4):
        status, cursor = client.ask("PUT", f"{path}/cursors/c", {"seq": at, "hold": True})
        assert (status in {200, 201}, cursor["seq"]) == (True, at)
        client.ask("POST", path, {"records": [{"data": number} for number in range(9)]})
        # In the same breath: nobody waits for a sync of what was answered already.
        client.close()
        boot.kill()
        client = boot.connect()
        state = client.ask("GET", path)[1]
        assert (state["earliest_seq"], state["head_seq"]) == (at + 1, 1 + 9 * at)
        (shown,) = state["cursors"]
        assert {key: shown[key] for key in ("seq", "hold", "is_broken", "lag")} == {
            "seq": at,
            "hold": True,
            "is_broken": False,
            "lag": 1 + 9 * at - at,
        }
    assert client.ask("PUT", f"{path}/cursors/c", {"seq": 1})[0] == 409
    client.ask("PUT", f"{path}/cursors/c", {"seq": 28})
    client.ask("POST", path, {"records": [{"data": 1}]})
    assert client.ask("GET", path)[1]["earliest_seq"] == 27
    client.close()
