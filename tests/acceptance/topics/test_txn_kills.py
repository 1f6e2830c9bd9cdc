"""SIGKILL between the calls of a transaction, and in the middle of them: it happens once."""

import contextlib
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers.http import Boot, Topics

CYCLES = 4
ROWS = 300
JOBS = 10
WHY = "broken"
# When the server is killed after a call was sent; most are in the middle of it.
KILLED_AFTER_S = (0.0, 0.005, 0.03, 0.2)


@pytest.fixture
def boot(tmp_path: Path) -> Iterator[Boot]:
    """A server with a folder of its own."""
    found = Boot(tmp_path / "data")
    yield found
    found.close()


class Driver:
    """A client that repeats each call until it is answered, over any number of servers."""

    def __init__(self, boot: Boot) -> None:
        self._boot = boot

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Send a call, and return its answer."""
        with contextlib.closing(self._boot.connect()) as client:
            return client.ask(method, path, body)

    def told(self, method: str, path: str, body: object = None) -> Any:
        """Send a call that must be granted; return the answer without its duration."""
        status, answer = self.ask(method, path, body)
        assert status in {200, 201}, answer
        answer.pop("performance", None)
        return answer

    def cut(self, path: str, body: object, after_s: float) -> None:
        """Send a call, and kill the server soon after it."""
        client: Topics = self._boot.connect()
        with contextlib.closing(client):
            client.send("POST", path, body)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._boot.yard.process.child.wait(after_s)
            self._boot.kill()

    def kill(self) -> None:
        """Kill the server between two calls."""
        self._boot.kill()


def test_a_transaction_happens_once_over_sigkill(boot: Boot) -> None:
    driver = Driver(boot)
    rng = random.Random(str(boot.yard.address))
    driver.told("PUT", "/v0/topics/results", {"type": "log"})
    driver.told("PUT", "/v0/topics/source", {"type": "log"})
    queue = {"type": "queue", "dead_letter": "letters", "max_deliveries": 99}
    driver.told("PUT", "/v0/topics/work", queue)
    answers = []
    for cycle in range(CYCLES):
        after_s = KILLED_AFTER_S[cycle % len(KILLED_AFTER_S)]
        records = [{"data": [cycle, at], "key": f"{cycle}/{at}"} for at in range(JOBS)]
        # Direct writes with keys: again and again is once.
        driver.cut("/v0/topics/work", {"records": records}, after_s)
        driver.told("POST", "/v0/topics/work", {"records": records})
        assert driver.told("POST", "/v0/topics/work", {"records": records})["written"] == 0
        driver.told("POST", "/v0/topics/source", {"records": [{"data": cycle}]})
        answers.append(run_txn(driver, cycle, after_s, rng))
    check_all(driver, answers)


def run_txn(driver: Driver, cycle: int, after_s: float, rng: random.Random) -> Any:
    """Claim, stage and commit, with a kill at each step; return the answer to the commit."""
    path = f"/v0/txns/t{cycle}"
    worker = {"worker": "m", "epoch": cycle + 1, "strict": True}
    claim = {"node": "w", "claim_id": f"c{cycle}", "max": JOBS, "lease_ms": 600_000, **worker}
    driver.cut("/v0/topics/work/claim", claim, after_s)
    first = driver.told("POST", "/v0/topics/work/claim", claim)
    driver.kill()
    again = driver.told("POST", "/v0/topics/work/claim", claim)
    assert again == {**first, "duplicate": True}
    assert first["count"] == JOBS
    held = [[one["$seq"], one["lease_id"]] for one in first["claimed"]]
    stage = stage_of(cycle, held)
    driver.cut(f"{path}/stage", stage, after_s)
    staged = driver.told("POST", f"{path}/stage", stage)
    driver.kill()
    assert driver.told("POST", f"{path}/stage", stage) == {**staged, "duplicate": True}
    other = {**stage, "records": [*stage["records"][:-1], {"data": "another"}]}
    status, refused = driver.ask("POST", f"{path}/stage", other)
    assert (status, refused["error"]["code"]) == (409, "txn_differs")
    commit = {**commit_of(cycle, held), **worker}
    driver.cut(f"{path}/commit", commit, after_s + rng.random() / 100)
    state = driver.told("GET", path)["state"]
    assert state in {"open", "committed"}
    assert rows_of(driver, cycle) == (ROWS if state == "committed" else 0)
    answer = driver.told("POST", f"{path}/commit", commit)
    assert answer["duplicate"] == (state == "committed")
    driver.kill()
    repeated = driver.told("POST", f"{path}/commit", commit)
    assert repeated == {**answer, "duplicate": True}
    status, refused = driver.ask("POST", "/v0/topics/work/claim", {**claim, "epoch": cycle})
    assert (status, refused["error"]["code"]) == (409, "fenced")
    return repeated


def stage_of(cycle: int, held: list[list[Any]]) -> dict[str, Any]:
    rows = [{"data": [cycle, at], "with": ["work", held[at % JOBS][0]]} for at in range(ROWS)]
    return {"topic": "results", "part": 0, "attempt": 0, "chunk": 0, "records": rows}


def commit_of(cycle: int, held: list[list[Any]]) -> dict[str, object]:
    """Return a commit that gives one job back, and one up."""
    group = {"queue": "work", "node": "w"}
    return {
        "parts": [{"topic": "results", "part": 0, "attempt": 0, "chunks": 1, "rows": ROWS}],
        "acks": [{**group, "items": held[2:]}],
        "nacks": [{**group, "items": [[*held[0], 86_400_000, WHY]]}],
        "dead_letters": [{**group, "items": [[*held[1], WHY]]}],
        "cursors": [{"topic": "source", "cursor": "c", "seq": cycle + 1, "hold": True}],
    }


def rows_of(driver: Driver, cycle: int) -> int:
    """Return how many results there are of a transaction, without any twice."""
    page = driver.told("POST", "/v0/topics/results/diff", {"from_seq": cycle * ROWS, "limit": 1000})
    found = [tuple(one["data"]) for one in page["records"]]
    assert len(set(found)) == len(found)
    return sum(1 for number, _ in found if number == cycle)


def check_all(driver: Driver, answers: list[Any]) -> None:
    for answer in answers:
        counts = (answer["acked"], answer["nacked"], answer["dead_lettered"], answer["cursors"])
        assert counts == (JOBS - 2, 1, 1, 1)
        assert (answer["skipped"], answer["topics"]["results"]["written"]) == ([], ROWS)
    assert driver.told("GET", "/v0/topics/results")["count"] == CYCLES * ROWS
    letters = driver.told("POST", "/v0/topics/letters/diff", {"limit": 1000})["records"]
    assert [one["meta"]["$dead_letter_error"] for one in letters] == [WHY] * CYCLES
    state = driver.told("GET", "/v0/topics/work")
    assert (state["count"], state["queue"]["delayed"]) == (CYCLES, CYCLES)
    (cursor,) = driver.told("GET", "/v0/topics/source/cursors")["cursors"]
    assert (cursor["seq"], cursor["hold"]) == (CYCLES, True)
