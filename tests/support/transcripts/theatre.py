"""Stages for transcripts: one shared server per kind, and fresh ones for cases that need them.

The cases of a kind share a server because starting one takes far longer than a case.
After each case it is cleaned; a server that cannot be cleaned, or whose case failed, is
replaced, so that one failure never affects the next case.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.servers.processes import Server, original_version, start_jobyard, start_original
from tests.support.servers.sockets import SocketStage
from tests.support.transcripts.bare import BareStage
from tests.support.transcripts.play import Stage
from tests.support.transcripts.transcript import Case

BARE: Final = "bare"
BYTEWISE: Final = "bytewise"
MEMORY: Final = "memory"
DATA: Final = "data"
ORIGINAL: Final = "original"
OTHER_LOOPS: Final = ("uvloop", "asyncio")
PLAYERS: Final = (BARE, BYTEWISE, MEMORY, DATA, *OTHER_LOOPS, ORIGINAL)


class Theatre:
    """Opens a stage for a case; closes every server at the end."""

    def __init__(self) -> None:
        self._shared: dict[str, Server] = {}
        self._folders: list[Path] = []
        self.original_version: Final = original_version()

    def target(self, player: str) -> str:
        """Return the name by which transcripts call the server of a player."""
        if player == ORIGINAL:
            return self.original_version or "none"
        return "jobyard"

    @contextmanager
    def open(self, case: Case, player: str) -> Iterator[Stage]:
        """Yield the stage that the case needs."""
        if player in (BARE, BYTEWISE):
            yield BareStage(case.settings, is_bytewise=player == BYTEWISE)
        elif case.is_fresh:
            with self.start(player, case.settings) as stage:
                yield stage
        else:
            with self.borrow(player) as stage:
                yield stage

    @contextmanager
    def start(self, player: str, settings: dict[str, str]) -> Iterator[SocketStage]:
        """Start a server for one use, and end it."""
        server = self._start(player, settings)
        try:
            yield self._stage(server, player)
        finally:
            server.close()

    @contextmanager
    def borrow(self, player: str) -> Iterator[SocketStage]:
        """Yield the shared server of a player; then clean it, or replace it after a failure."""
        server = self._shared.pop(player, None) or self._start(player, {})
        is_clean = False
        try:
            stage = self._stage(server, player)
            yield stage
            stage.sweep()
            is_clean = True
        finally:
            if is_clean:
                self._shared[player] = server
            else:
                server.close()

    def _stage(self, server: Server, player: str) -> SocketStage:
        is_quoting = player != ORIGINAL or self.original_version != "1.12"
        return SocketStage(server, is_quoting=is_quoting)

    def _start(self, player: str, settings: dict[str, str]) -> Server:
        size = settings.get("max-job-size")
        if player == ORIGINAL:
            return start_original(*(["-z", size] if size else []))
        flags = ["--max-job-size", size] if size else []
        if player == MEMORY:
            return start_jobyard("--memory", *flags)
        if player in OTHER_LOOPS:
            return start_jobyard("--memory", "--loop", player, *flags)
        folder = Path(tempfile.mkdtemp(prefix="jobyard-test-"))
        self._folders.append(folder)
        return start_jobyard("--data", str(folder), *flags)

    def close(self) -> None:
        """End every server and remove what they wrote."""
        for server in self._shared.values():
            server.close()
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)
