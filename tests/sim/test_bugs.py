"""Planted bugs: each is found, by an invariant it breaks, in a bounded number of seeds."""

import os
import subprocess
import sys

import pytest

from jobyard import build
from sim.bugs import BUGS
from tools.compiled_build import ROOT

SEEDS_MAX = 600


def test_there_are_bugs_enough() -> None:
    assert len(BUGS) >= 70


@pytest.mark.skipif(build.kind() != "plain", reason="bugs are planted into plain sources")
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sim", "--bug", name, "--start", "1", "--seeds", str(SEEDS_MAX)],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
