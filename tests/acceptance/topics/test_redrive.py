"""SIGKILL in the middle of a redrive: the same call again moves the rest, and nothing twice."""

import signal
import threading
from pathlib import Path

from jobyard.client import JobyardError, YardClient
from jobyard.client.redrive import redrive
from tests.support.servers.http import HttpYard, Topics

JOBS = 4000
SEQS = list(range(1, JOBS + 1))


def with_letters(yard: HttpYard) -> None:
    """Make a queue all of whose jobs are letters."""
    client = Topics(yard.address)
    assert client.ask("PUT", "/v0/topics/q", {"type": "queue", "dead_letter": "dead"})[0] == 201
    for first in range(0, JOBS, 1000):
        records = [{"data": {"n": first + at}} for at in range(1000)]
        assert client.ask("POST", "/v0/topics/q", {"records": records})[0] == 200
        status, told = client.ask("POST", "/v0/topics/q/claim", {"node": "w", "max": 1000})
        assert status == 200
        seqs = [one["$seq"] for one in told["claimed"]]
        assert client.ask("POST", "/v0/topics/q/dead-letter", {"node": "w", "seqs": seqs})[0] == 200
    client.close()


def counts(yard: HttpYard) -> tuple[int, int]:
    """Return how many jobs and letters there are."""
    client = Topics(yard.address)
    found = [int(client.ask("GET", f"/v0/topics/{name}")[1]["count"]) for name in ("q", "dead")]
    client.close()
    return found[0], found[1]


def test_a_redrive_that_was_killed_half_way(tmp_path: Path) -> None:
    flags = ("--data", str(tmp_path / "data"))
    yard = HttpYard(*flags)
    with_letters(yard)
    lost: list[str] = []

    def ask() -> None:
        with YardClient(yard.url, retries_max=0) as client:
            try:
                redrive(client, "q", seqs=SEQS, key="k")
            except JobyardError as error:
                lost.append(error.code)

    caller = threading.Thread(target=ask)
    caller.start()
    while counts(yard)[0] == 0:
        assert caller.is_alive()
    yard.process.signal(signal.SIGKILL)
    yard.process.wait()
    caller.join(60)
    yard.close()
    assert lost == ["unreachable"]
    yard = HttpYard(*flags)
    try:
        moved, left = counts(yard)
        assert moved + left == JOBS
        assert moved > 0
        with YardClient(yard.url) as client:
            answer = redrive(client, "q", seqs=SEQS, key="k")
            assert (answer.number("redriven"), answer.fields["skipped"]) == (left, [])
            already = answer.fields["already"]
            assert isinstance(already, list)
            assert len(already) == moved
            assert counts(yard) == (JOBS, 0)
            again = redrive(client, "q", seqs=SEQS, key="k")
            assert (again.number("redriven"), again.is_set("duplicate")) == (0, True)
        assert counts(yard) == (JOBS, 0)
    finally:
        yard.close()
