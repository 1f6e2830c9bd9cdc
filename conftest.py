"""Chooses the build the tests run on, for this process and for every server a test starts.

PYTHONPATH decides: `make test-compiled` sets it to `build/compiled`; without one the plain
sources are tested, whatever the environment would import by itself. A run on a build that is
not what its folder says, or on a stale one, is refused. What only the plain sources can be asked
is left out of the other run; ONLY_PLAIN is all of it.
"""

import gc
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Final

import pytest
from hypothesis import settings

# A run begun in the background ignores SIGINT, and so would every server that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).parent
SOURCES = ROOT / "src"
COMPILED = ROOT / "build" / "compiled"

# Absolute, because tests start servers in folders of their own.
folders = [Path(each).absolute() for each in os.environ.get("PYTHONPATH", "").split(":") if each]
if COMPILED not in folders and SOURCES not in folders:
    folders.insert(0, SOURCES)
sys.path[:0] = [str(folder) for folder in folders]
os.environ["PYTHONPATH"] = ":".join(str(folder) for folder in folders)

from jobyard import __version__, build  # noqa: E402  # the path had to be chosen first
from tools.compiled_build import CompiledCopy  # noqa: E402

# Tests that the run on the compiled build leaves out, by how their ids begin, and why.
ONLY_PLAIN: Final = {
    "tests/sim/test_bugs.py::test_a_planted_bug_is_found": "bugs are planted into plain sources",
    "tests/unit/tools/test_compiled_build.py": "what it compiles is its own, on both builds",
    "tests/unit/model/test_members.py::test_the_end_of_a_member_asks_about_few_others": (
        "it counts calls of a method, and compiled callers do not look it up"
    ),
}

# A busy machine is no failure, and what CI finds must be found again on the next run.
settings.register_profile("jobyard", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("jobyard")


def resident_bytes() -> int:
    """Return how much memory this process has."""
    return int(Path("/proc/self/statm").read_bytes().split()[1]) * resource.getpagesize()


COLLECTED_AT = gc.get_threshold()
# What yards of tests may leave behind: few objects, of which some hold megabytes.
GARBAGE_MAX = 256 << 20
resident_at_least = resident_bytes()


def pytest_runtest_teardown() -> None:
    """Have garbage collected, also after a server in this process asked for less."""
    global resident_at_least  # noqa: PLW0603  hooks have nothing else to remember by
    if gc.get_threshold() != COLLECTED_AT:
        gc.set_threshold(*COLLECTED_AT)
        gc.unfreeze()
    if resident_bytes() > resident_at_least + GARBAGE_MAX:
        gc.collect()
        resident_at_least = resident_bytes()


def pytest_configure() -> None:
    """Refuse to test anything but what was asked for."""
    place = Path(build.__file__).parent.parent
    wanted = "compiled" if place == COMPILED else "plain"
    if place not in (COMPILED, SOURCES) or build.kind() != wanted:
        message = f"{place} holds a {build.kind()} build; expected a {wanted} one"
        raise pytest.UsageError(message)
    if wanted == "compiled" and not CompiledCopy(ROOT).is_fresh():
        message = "build/compiled is stale: run `make compile`"
        raise pytest.UsageError(message)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is only for the plain sources."""
    if build.kind() == "plain":
        return
    left_out = [item for item in items if item.nodeid.startswith(tuple(ONLY_PLAIN))]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def pytest_report_header() -> str:
    """Say which build is being tested."""
    return f"jobyard: {__version__}, {build.kind()} build"
