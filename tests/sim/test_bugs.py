"""Planted bugs: each is found, by an invariant it breaks, in a bounded number of seeds.

What bounds the search is work: seeds, and the processor time of all, in case one never ends.
Seconds that pass say more of the machine than of the simulator. The search begins with the seed
that found the bug last (`sim/found.txt`); where that finds it no more, it takes longer.
"""

import os
import resource
import subprocess
import sys
import warnings

import pytest

from sim.bugs import BUGS
from sim.found import noted
from tools.compiled_build import ROOT

SEEDS_MAX = 600
CPU_S_MAX = 900


def test_there_are_bugs_enough() -> None:
    assert len(BUGS) >= 70


def test_a_seed_is_noted_for_each_bug() -> None:
    assert set(noted()) == set(BUGS)


def test_each_bug_can_be_planted() -> None:
    """The text of every change occurs exactly once, found in seconds and without a run."""
    for name, bug in BUGS.items():
        for change in bug.changes:
            path = ROOT.joinpath("src", *change.module.split(".")).with_suffix(".py")
            assert path.read_text(encoding="utf-8").count(change.right) == 1, (name, change)


@pytest.mark.timeout(0)
@pytest.mark.filterwarnings("default:.*note it")
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str) -> None:
    command = [sys.executable, "-m", "sim", "--bug", name]
    with subprocess.Popen(
        [*command, "--seeds", str(SEEDS_MAX)],
        cwd=ROOT,
        env=os.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as search:
        resource.prlimit(search.pid, resource.RLIMIT_CPU, (CPU_S_MAX, CPU_S_MAX))
        said, _ = search.communicate()
    assert search.returncode == 0, said
    if f"found by seed {noted()[name]}:" not in said:
        warnings.warn(f"{said.strip()}; note it: python -m sim --bug {name} --note", stacklevel=1)
