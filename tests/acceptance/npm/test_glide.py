"""The Valkey client for Node, unmodified, and a worker of glide-mq's protocol written over it.

The cases are the TypeScript in the folder `glide`. One run of the script takes all requested ones,
in parallel; here each becomes a separate test. A Valkey without any functions takes those
of plain commands, to prove that they use nothing it does not support.
"""

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from bench.rivals import ROOT
from tests.support.servers.valkey import (
    MISSING,
    NO_DOOR,
    find_valkey,
    has_door,
    running_valkey,
    serving,
)

SCRIPT: Final = Path(__file__).parent / "glide" / "cases.ts"
BUN: Final = ROOT / "build" / "npm" / "bin" / "bun"
PACKAGE: Final = ROOT / "build" / "npm" / "node_modules" / "@valkey" / "valkey-glide"
NO_CLIENT: Final = "@valkey/valkey-glide is not installed: run tools/bootstrap.sh bunqueue"
LIST_S: Final = 60.0
RUN_S: Final = 240.0
ALL: Final = "all"
PASSWORD: Final = "sesame"
# What the script needs for each.
PLAYERS: Final[dict[str, list[str]]] = {
    "jobyard": [],
    "jobyard-resp2": ["--old"],
    "jobyard-guarded": ["--plain", "--password", PASSWORD],
    "valkey": ["--plain"],
}

Report = dict[str, str]


def why_not(player: str) -> str | None:
    """Return what a player lacks."""
    if not BUN.exists() or not PACKAGE.is_dir():
        return NO_CLIENT
    if player == "valkey":
        return MISSING if find_valkey(ROOT) is None else None
    return None if has_door() else NO_DOOR


def play(player: str, *flags: str, seconds_max: float) -> tuple[int | None, str, str]:
    """Run the script; return its exit code, None if it had to be killed, and its output."""
    # No package may be fetched during the run: a missing one is a failure.
    command = [str(BUN), "--no-install", str(SCRIPT), *PLAYERS[player], *flags]
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        code = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = subprocess.run(
                command, stdout=output, stderr=errors, timeout=seconds_max, check=False
            ).returncode
        output.seek(0)
        errors.seek(0)
        return code, output.read(), errors.read()


@cache
def names_of(player: str) -> list[str]:
    """List the cases for a player."""
    code, output, errors = play(player, "--list", seconds_max=LIST_S)
    assert code == 0, errors
    return output.split()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    values = []
    for player in PLAYERS:
        reason = why_not(player)
        if reason is not None:
            skip = pytest.mark.skip(reason=reason)
            values.append(pytest.param(player, ALL, marks=skip, id=f"{player}-{ALL}"))
        else:
            values += [
                pytest.param(player, name, id=f"{player}-{name}") for name in names_of(player)
            ]
    metafunc.parametrize(("player", "name"), values)


@contextlib.contextmanager
def running(player: str, folder: Path) -> Iterator[tuple[str, int]]:
    """Run the server of a player and yield its address."""
    if player == "valkey":
        found = find_valkey(ROOT)
        assert found is not None
        with running_valkey(found) as address:
            yield address
    else:
        shared_limits = ["--glidemq-password", PASSWORD] if player == "jobyard-guarded" else []
        with serving("--data", str(folder / player), *shared_limits) as address:
            yield address


class Reports:
    """The script's report on each case, one run for each player."""

    def __init__(self, session: pytest.Session, folder: Path) -> None:
        self._session = session
        self._folder = folder
        self._reports: dict[str, Report] = {}

    def of(self, player: str) -> Report:
        """Return the report on a player, from its one run of all cases."""
        if player not in self._reports:
            self._reports[player] = self._run(player)
        return self._reports[player]

    def _run(self, player: str) -> Report:
        here = [each for each in self._session.items if each.path == Path(__file__)]
        calls = [each.callspec.params for each in here if isinstance(each, pytest.Function)]
        only = ",".join(str(call["name"]) for call in calls if call["player"] == player)
        with running(player, self._folder) as (host, port):
            place = ["--host", host, "--port", str(port), "--only", only]
            code, output, errors = play(player, *place, seconds_max=RUN_S)
        said: Report = {"": f"it ended with {code}; {errors[-2000:]}"}
        for line in output.splitlines():
            verdict, _, rest = line.partition(" ")
            name, _, why = rest.partition(": ")
            said[name] = "" if verdict == "pass" else why
        return said


@pytest.fixture(scope="module")
def reports(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Reports:
    """The reports on all players."""
    return Reports(request.session, tmp_path_factory.mktemp("glide"))


def test_case(reports: Reports, player: str, name: str) -> None:
    report = reports.of(player)
    why = report.get(name, f"the script said nothing of it: {report['']}")
    assert not why, why
