"""A seed is a run: the same again in this process, in another, and on the other build."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from sim.run import run_seed
from tools.compiled_build import ROOT, CompiledCopy

# 3 and 47 have bunqueue clients, 4 has topics clients, 16 glide-mq clients, 28 a faulty disk.
SEEDS = (3, 4, 16, 17, 28, 40, 47)


def trace_of(seed: int, package: Path, hash_seed: str) -> str:
    """Run a seed in a process of its own and return what it says of the trace."""
    environment = {**os.environ, "PYTHONPATH": str(package), "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-m", "sim", "--seed", str(seed)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


@cache
def digest_of(seed: int) -> int:
    """Run a seed in this process, once for all tests."""
    return run_seed(seed).digest


@pytest.mark.parametrize("seed", SEEDS)
def test_a_run_is_the_same_in_another_process_and_on_the_other_build(seed: int) -> None:
    expected = f"seed {seed} trace {digest_of(seed):08x}\n"
    assert trace_of(seed, ROOT / "src", "1") == expected
    if CompiledCopy(ROOT).is_fresh():
        assert trace_of(seed, ROOT / "build" / "compiled", "2") == expected


def test_different_seeds_are_different_runs_and_one_seed_is_always_the_same() -> None:
    assert len({digest_of(seed) for seed in SEEDS}) == len(SEEDS)
    assert run_seed(SEEDS[-1]).digest == digest_of(SEEDS[-1])
