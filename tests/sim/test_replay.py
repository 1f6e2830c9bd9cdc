"""A seed is a run: the same again in this process, in another, and on the other build."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sim.run import run_seed
from tools.compiled_build import ROOT, CompiledCopy

# The first and the last have bunqueue clients, the second has topics clients, 16 glide-mq clients.
SEEDS = (3, 4, 16, 17, 40, 47)


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


@pytest.mark.parametrize("seed", SEEDS)
def test_a_run_is_the_same_under_another_hash_seed(seed: int) -> None:
    expected = f"seed {seed} trace {run_seed(seed).digest:08x}\n"
    assert run_seed(seed).digest == run_seed(seed).digest
    assert trace_of(seed, ROOT / "src", "1") == expected
    assert trace_of(seed, ROOT / "src", "2") == expected


@pytest.mark.skipif(
    not CompiledCopy(ROOT).is_fresh(), reason="build/compiled is not made from these sources"
)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_run_is_the_same_on_both_builds(seed: int) -> None:
    plain = trace_of(seed, ROOT / "src", "0")
    assert plain.startswith(f"seed {seed} trace ")
    assert trace_of(seed, ROOT / "build" / "compiled", "0") == plain


def test_different_seeds_are_different_runs() -> None:
    assert len({run_seed(seed).digest for seed in SEEDS}) == len(SEEDS)
