"""The bunqueue scenario: a server whose count differs from the load's gives no figure."""

import pytest

from bench.clients.ask import Ledger
from bench.load import BenchError, LoadResult
from bench.scenarios import bunqueue

RESULT = LoadResult(
    seconds=1.0, operations=21, errors=0, jobs_finished=7, ops_per_s=21.0, p50_us=1.0, p99_us=2.0,
    max_us=3.0, server_cpu_s=0.5, load_cpu_s=0.25,
)  # fmt: skip


PORT = 1  # never used


def say_on_demand(monkeypatch: pytest.MonkeyPatch, ledger: Ledger) -> None:
    monkeypatch.setattr(bunqueue, "read_ledger", lambda _port: ledger)


def test_a_server_that_counted_the_same_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    say_on_demand(monkeypatch, Ledger(pushed=7, pulled=7, completed=7, standing=0))
    bunqueue.check_ledger(PORT, RESULT)


@pytest.mark.parametrize(
    "ledger",
    [
        Ledger(pushed=8, pulled=7, completed=7, standing=1),
        Ledger(pushed=7, pulled=8, completed=7, standing=0),
        Ledger(pushed=7, pulled=7, completed=6, standing=0),
        Ledger(pushed=7, pulled=7, completed=7, standing=1),
    ],
)
def test_another_count_is_no_result(monkeypatch: pytest.MonkeyPatch, ledger: Ledger) -> None:
    say_on_demand(monkeypatch, ledger)
    with pytest.raises(BenchError, match="load finished 7 jobs, the server counts Ledger"):
        bunqueue.check_ledger(PORT, RESULT)
