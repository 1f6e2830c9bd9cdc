"""The official npm client of bunqueue, unmodified: against Jobyard and against the original.

The cases are the TypeScript next to this file. One run of the script takes all requested ones,
in parallel; here each becomes a separate test. The original takes the same cases to
prove that they use nothing it does not support, except those that state why it cannot.
"""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.support.servers.bunqueue import durable
from tests.support.servers.originals import MISSING, Bunqueue, find_bunqueue, running_bunqueue

SCRIPT: Final = Path(__file__).with_name("cases.ts")
LIST_S: Final = 60.0
RUN_S: Final = 240.0
TOKEN: Final = "sesame"
ALL: Final = "all"

Report = dict[str, str]


class Stand(NamedTuple):
    """One server the cases are run against."""

    player: str
    is_guarded: bool

    def __str__(self) -> str:
        return f"{self.player}-guarded" if self.is_guarded else self.player

    @property
    def flags(self) -> list[str]:
        """Return what the script needs for it."""
        flags = ["--token", TOKEN] if self.is_guarded else []
        return [*flags, "--original"] if self.player == "original" else flags


STANDS: Final = [
    Stand(player, is_guarded) for player in ("jobyard", "original") for is_guarded in (False, True)
]


class Played(NamedTuple):
    """A run of the script: its exit code, or None if it had to be killed, and its output."""

    code: int | None
    output: str
    errors: str


def play(found: Bunqueue, *flags: str, seconds_max: float) -> Played:
    """Run the script; its output counts even if it ran out of time."""
    # No package may be fetched during the run: a missing one is a failure.
    command = [str(found.bun), "--no-install", str(SCRIPT), *flags]
    clean = {name: value for name, value in os.environ.items() if "BUNQUEUE" not in name}
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        code = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = subprocess.run(
                command, stdout=output, stderr=errors, timeout=seconds_max, check=False, env=clean
            ).returncode
        output.seek(0)
        errors.seek(0)
        return Played(code, output.read(), errors.read())


@cache
def names_of(found: Bunqueue, stand: Stand) -> list[str]:
    """List the cases for a server, those about tokens only for one that asks for them."""
    listed = play(found, "--list", *stand.flags, seconds_max=LIST_S)
    assert listed.code == 0, listed.errors
    names = listed.output.split()
    if stand.is_guarded:
        plain = set(names_of(found, Stand(stand.player, is_guarded=False)))
        names = [name for name in names if name not in plain]
    return names


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    found = find_bunqueue()
    if found is None:
        values = [pytest.param(STANDS[0], ALL, marks=pytest.mark.skip(reason=MISSING), id=ALL)]
    else:
        values = [
            pytest.param(stand, name, id=f"{stand}-{name}")
            for stand in STANDS
            for name in names_of(found, stand)
        ]
    metafunc.parametrize(("stand", "name"), values)


@contextlib.contextmanager
def serving(stand: Stand, found: Bunqueue, folder: Path) -> Iterator[tuple[str, int]]:
    """Run the server of a stand and yield its address."""
    tokens = TOKEN if stand.is_guarded else ""
    if stand.player == "original":
        with running_bunqueue(found, tokens=tokens) as server:
            assert isinstance(server.address, tuple)
            yield server.address
    else:
        with durable(folder / "data", env={"AUTH_TOKENS": tokens}) as yard:
            yield yard.bunqueue


def chosen(session: pytest.Session, stand: Stand) -> list[str]:
    """Return the cases this run of pytest asks for."""
    here = [each for each in session.items if each.path == Path(__file__)]
    calls = [each.callspec.params for each in here if isinstance(each, pytest.Function)]
    return [str(call["name"]) for call in calls if call["stand"] == stand]


class Reports:
    """The script's report on each case, one run for each server."""

    def __init__(self, session: pytest.Session, folder: Path) -> None:
        self._session = session
        self._folder = folder
        self._reports: dict[Stand, Report] = {}

    def of(self, stand: Stand) -> Report:
        """Return the report on a server, from its one run of all cases."""
        if stand not in self._reports:
            self._reports[stand] = self._run(stand)
        return self._reports[stand]

    def _run(self, stand: Stand) -> Report:
        found = find_bunqueue()
        assert found is not None
        only = ",".join(chosen(self._session, stand))
        with serving(stand, found, self._folder / str(stand)) as (host, port):
            place = ["--host", host, "--port", str(port), "--only", only]
            played = play(found, *place, *stand.flags, seconds_max=RUN_S)
        said: Report = {"": f"it ended with {played.code}; {played.errors[-2000:]}"}
        for line in played.output.splitlines():
            verdict, _, rest = line.partition(" ")
            name, _, why = rest.partition(": ")
            said[name] = "" if verdict == "pass" else why
        return said


@pytest.fixture(scope="module")
def reports(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Reports:
    """The reports on all servers."""
    return Reports(request.session, tmp_path_factory.mktemp("npm"))


def test_case(reports: Reports, stand: Stand, name: str) -> None:
    report = reports.of(stand)
    why = report.get(name, f"the script said nothing of it: {report['']}")
    assert not why, why
