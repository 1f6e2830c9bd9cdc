"""Chooses the build the tests run on, for this process and for every server a test starts.

PYTHONPATH decides: `make test-compiled` sets it to `build/compiled`; without it the plain
sources are tested, whatever the environment would import otherwise. A run on a build that is
not what its folder says, or on a stale one, is refused. Tests for the plain sources only
are left out of the other run; ONLY_PLAIN lists them all.
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

# A run started in the background ignores SIGINT, and so would every server that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).parent
SOURCES = ROOT / "src"
COMPILED = ROOT / "build" / "compiled"

# Absolute, because tests start servers in other folders.
folders = [Path(each).absolute() for each in os.environ.get("PYTHONPATH", "").split(":") if each]
if COMPILED not in folders and SOURCES not in folders:
    folders.insert(0, SOURCES)
sys.path[:0] = [str(folder) for folder in folders]
os.environ["PYTHONPATH"] = ":".join(str(folder) for folder in folders)

from jobyard import __version__, build  # noqa: E402  # the path must be chosen first
from tools.compiled_build import CompiledCopy  # noqa: E402

# Tests that the run on the compiled build leaves out, by the beginning of their ids, and why.
ONLY_PLAIN: Final = {
    "tests/sim/test_bugs.py::test_a_planted_bug_is_found": "bugs are planted into plain sources",
    "tests/unit/tools/": "tools are never compiled, and read the sources",
    "tests/spark/": "the readers are never compiled, and the server has tests of its own",
    "tests/lake/": "it is never compiled either",
    "tests/unit/model/test_members.py::test_the_end_of_a_member_asks_about_few_others": (
        "it counts calls of a method, and compiled callers do not look it up"
    ),
}

# A busy machine is not a failure, and what CI finds must be reproducible.
settings.register_profile("jobyard", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("jobyard")


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    return int(Path("/proc/self/statm").read_bytes().split()[1]) * resource.getpagesize()


COLLECTED_AT = gc.get_threshold()
# What yards of tests may leave behind: few objects, some of which hold megabytes.
GARBAGE_MAX = 256 << 20
resident_at_least = resident_bytes()


def pytest_runtest_teardown() -> None:
    """Collect garbage, also after a server in this process reduced the collector's frequency."""
    global resident_at_least  # noqa: PLW0603  hooks have nothing else to remember by
    if gc.get_threshold() != COLLECTED_AT:
        gc.set_threshold(*COLLECTED_AT)
        gc.unfreeze()
    if resident_bytes() > resident_at_least + GARBAGE_MAX:
        gc.collect()
        resident_at_least = resident_bytes()


def pytest_configure() -> None:
    """Refuse to test anything but the requested build."""
    place = Path(build.__file__).parent.parent
    wanted = "compiled" if place == COMPILED else "plain"
    if place not in (COMPILED, SOURCES) or build.kind() != wanted:
        message = f"{place} holds a {build.kind()} build; expected a {wanted} one"
        raise pytest.UsageError(message)
    if wanted == "compiled" and not CompiledCopy(ROOT).is_fresh():
        message = "build/compiled is stale: run `make compile`"
        raise pytest.UsageError(message)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip tests that are for the plain sources only."""
    if build.kind() == "plain":
        return
    left_out = [item for item in items if item.nodeid.startswith(tuple(ONLY_PLAIN))]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def pytest_report_header() -> str:
    """Return the build that is being tested."""
    return f"jobyard: {__version__}, {build.kind()} build"
