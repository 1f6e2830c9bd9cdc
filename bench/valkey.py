"""Valkey as a rival at the glide-mq door: where it is installed, and how to start a server.

`tools/bootstrap.sh valkey` puts it below build/valkey; a system-wide one is preferred. It
gets two functions of ours (valkey.lua), which write what a plain job needs. Starting the process
and loading them is up to the caller.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.load import HERE

__all__ = ["FUNCTIONS", "Valkey", "find_valkey"]

FUNCTIONS: Final = HERE / "valkey.lua"


@dataclass(frozen=True)
class Valkey:
    """An installed valkey-server."""

    program: Path

    def version(self) -> str | None:
        """Return the version of Valkey, or None if it does not run."""
        done = subprocess.run(
            [self.program, "--version"], capture_output=True, text=True, check=False, timeout=30
        )
        words = dict(word.partition("=")[::2] for word in done.stdout.split())
        return words.get("v")

    def serve_command(self, port: int, data: Path, *, is_durable: bool) -> list[str]:
        """Return the command of a server: in memory, or with a log synced before each answer."""
        command = [str(self.program), "--bind", "127.0.0.1", "--port", str(port)]
        command += ["--save", "", "--dir", str(data), "--daemonize", "no"]
        if is_durable:
            command += ["--appendonly", "yes", "--appendfsync", "always"]
        return command


def find_valkey(root: Path) -> Valkey | None:
    """Return a valkey-server that runs here, or None."""
    for place in (shutil.which("valkey-server"), root / "build" / "valkey" / "valkey-server"):
        if place is not None and os.access(place, os.X_OK):
            found = Valkey(Path(place))
            if found.version() is not None:
                return found
    return None
