"""SIGKILL under load, again and again: nothing answered is lost, nothing deleted comes back."""

import contextlib
import random
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.process.ledger import Crew, Ledger
from tests.acceptance.process.yards import SMALL_SEGMENTS, Yard, times
from tests.support.servers.sockets import stat

# Most servers die young; every fifth lives long enough to compact what the others left.
SHORT_LIFE_S = 0.25
LONG_LIFE_S = 0.8
LONG_SIZE = 1_500_000


def kill_while_starting(yard: Yard, after_s: float) -> None:
    """Start a server and kill it in the middle of its recovery, or wherever it is by then."""
    process = yard.launch()
    with contextlib.closing(process), contextlib.suppress(subprocess.TimeoutExpired):
        process.child.wait(after_s)


def run_cycles(yard: Yard, ledger: Ledger, count: int) -> int:
    """Load, kill and check, over and over; return how many records compaction has moved."""
    moved = 0
    for cycle in range(count):
        crew = Crew(ledger, yard.address)
        is_long = cycle % 5 == 4
        crew.work_for(LONG_LIFE_S if is_long else ledger.rng.uniform(0.01, SHORT_LIFE_S))
        with contextlib.closing(yard.connect()) as peer:
            moved += int(stat(peer.ask(b"stats"), "binlog-records-migrated"))
        yard.kill()
        crew.finish()
        if cycle % 5 == 0:
            kill_while_starting(yard, ledger.rng.uniform(0.1, 0.3))
        yard.restart()
        ledger.check(yard.address)
    return moved


@pytest.mark.parametrize(("durability", "cycles"), [("sync", 20), ("os", 8)])
def test_nothing_answered_is_lost_over_sigkill(
    tmp_path: Path, durability: str, cycles: int
) -> None:
    ledger = Ledger(random.randrange(1 << 32))
    flags = (*SMALL_SEGMENTS, "--durability", durability)
    with contextlib.closing(Yard(tmp_path / "data", *flags)) as yard:
        yard.start()
        moved = run_cycles(yard, ledger, times(cycles))
        ledger.check_all(yard.address)
        assert ledger.answers_count > 50 * cycles, "there was hardly any load"
        assert moved > 0, "nothing was compacted"
        assert yard.segment_numbers()[-1] > cycles, "no segment was rolled"


def test_no_long_body_is_lost_over_sigkill(tmp_path: Path) -> None:
    """Batches of more than a megabyte are written by the thread that syncs."""
    ledger = Ledger(random.randrange(1 << 32), big_size=LONG_SIZE, big_every=5)
    flags = ("--segment-size", "8MiB", "--events-bytes", "0", "--max-job-size", "2MiB")
    with contextlib.closing(Yard(tmp_path / "data", *flags)) as yard:
        yard.start()
        run_cycles(yard, ledger, times(8))
        ledger.check_all(yard.address)
        assert yard.segment_numbers()[-1] > 8, "no segment was rolled"
