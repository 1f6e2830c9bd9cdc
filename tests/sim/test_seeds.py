"""Whole runs: the same seeds each time, and every seed that ever found a bug.

The plain build runs a seventh as fast, and fewer of them; what is rare is looked for on the other.
"""

import os
from pathlib import Path

import pytest

from jobyard.build import kind
from sim.run import run_seed, run_seeds

IS_QUICK = kind() == "compiled"
SEEDS = range(1, 251 if IS_QUICK else 31)
KEPT = Path(__file__).parent.parent.parent / "sim" / "seeds.txt"

# What these seeds must come by, or the generator no longer makes the runs it was made for.
RARE = {
    "ack on a full disk",
    "batch closed before a whole",
    "body updated",
    "claim noted on a full disk",
    "claim served",
    "clean stop",
    "completed late",
    "create refused",
    "damage told to a RESP client",
    "damage told to a topics client",
    "damaged under load",
    "dead job",
    "dead letter",
    "deadline soon",
    "directory change lost",
    "duplicate put",
    "failed read",
    "failed sync",
    "failed write",
    "flip found in a body",
    "flip refused",
    "flip repaired",
    "freeze",
    "half-close while waiting",
    "history read",
    "job dead of damage under load",
    "job reclaimed",
    "kill in compaction phase 1",
    "kill in compaction phase 2",
    "kill in compaction phase 3",
    "late sync",
    "lease ran out",
    "letters driven back",
    "lock outlives its connection",
    "long segment",
    "many segments",
    "outlived its time",
    "parent released",
    "power cut in compaction phase 1",
    "power cut in compaction phase 2",
    "power cut in compaction phase 3",
    "promoted by the yard",
    "put refused",
    "reader served",
    "records lost",
    "records outlived their time",
    "refused by a full disk",
    "renamed",
    "repaired in the midst of a run",
    "reset in a command",
    "reset while waiting",
    "result lost on a full disk and told",
    "revived",
    "routed",
    "router caught up",
    "router late",
    "run timed out",
    "segment let go",
    "skipped by simple",
    "stalled",
    "starts interrupted in a row",
    "stop during a start",
    "superseded victim",
    "synced though others are only written",
    "taken at another door",
    "tombstone cap",
    "tombstone ttl",
    "topic dropped",
    "torn tail cut",
    "transaction",
    "unblocked",
    "unreadable repaired",
    "waiter served by time",
    "waiter served",
    "wall clock jump",
    "write known by its key",
}


def kept_seeds() -> list[int]:
    lines = KEPT.read_text(encoding="utf-8").splitlines()
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


def test_many_seeds_keep_every_promise_and_see_every_rare_point() -> None:
    reached: set[str] = set()
    for outcome in run_seeds(SEEDS, min(2, os.cpu_count() or 1)):
        assert not outcome.invariant, "\n".join(outcome.story)
        reached |= outcome.reached.keys()
    assert reached >= (RARE if IS_QUICK else {"power cut in compaction phase 3", "torn tail cut"})


@pytest.mark.parametrize("seed", kept_seeds())
def test_a_seed_that_once_found_a_bug_finds_none(seed: int) -> None:
    outcome = run_seed(seed)
    assert not outcome.invariant, "\n".join(outcome.story)
