"""The original bunqueue: where its npm package lies, how a server of it starts, when it serves.

`tools/bootstrap.sh bunqueue` puts the package and the runtime it needs below build/npm. Holds
the command of a server and the wait for its port; who starts the process and ends it is the
caller's affair. Knows nothing of load, figures or tests. No setting comes from the terminal:
the original reads dozens of variables, some with everyday names.
"""

import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["REQUESTS_MAX", "Bunqueue", "await_port", "find_bunqueue", "free_port"]

ROOT: Final = Path(__file__).resolve().parent.parent
# Its limit per connection, 10 000 a minute, would be all that a measurement measures.
REQUESTS_MAX: Final = 1_000_000_000
PASSED_ON: Final = ("HOME", "LANG", "PATH", "TMPDIR")
POLL_S: Final = 0.002


@dataclass(frozen=True)
class Bunqueue:
    """An installed bunqueue: its runtime and its package."""

    bun: Path
    package: Path

    def version(self) -> str:
        """Return which bunqueue this is, and on what it runs."""
        own, runtime = (
            json.loads((folder / "package.json").read_text())["version"]
            for folder in (self.package, self.package.parent / "bun")
        )
        return f"{own} on bun {runtime}"

    def serve_command(self, port: int, data: Path | None, tokens: str = "") -> list[str]:
        """Return what starts a server: on SQLite in the folder `data`, or in memory.

        Start it in a folder of its own, for it reads settings from a file in the working
        directory. Its HTTP door gets some free port, as it cannot be shut.
        """
        kept = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        set_here = {"RATE_LIMIT_MAX_REQUESTS": str(REQUESTS_MAX), "LOG_LEVEL": "warn"}
        # `env` becomes the server it starts, so the process stays the caller's own child.
        command = [
            "env",
            "-i",
            *(f"{name}={value}" for name, value in {**kept, **set_here}.items()),
        ]
        command += [str(self.bun), "run", str(self.package / "dist" / "cli" / "index.js"), "start"]
        command += ["--host", "127.0.0.1", "--tcp-port", str(port)]
        command += ["--http-port", str(free_port())]
        command += ["--auth-tokens", tokens] if tokens else []
        return command if data is None else [*command, "--data-path", str(data / "bunqueue.db")]


def find_bunqueue(root: Path = ROOT) -> Bunqueue | None:
    """Return the bunqueue the bootstrap installed, or None."""
    folder = root / "build" / "npm"
    found = Bunqueue(folder / "bin" / "bun", folder / "node_modules" / "bunqueue")
    is_here = os.access(found.bun, os.X_OK) and found.package.is_dir()
    return found if is_here else None


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def await_port(port: int, has_ended: Callable[[], bool], seconds_max: float) -> bool:
    """Wait until the port accepts; return False if the server ended or took too long."""
    deadline = time.monotonic() + seconds_max
    while time.monotonic() < deadline and not has_ended():
        try:
            socket.create_connection(("127.0.0.1", port), timeout=seconds_max).close()
        except ConnectionRefusedError:
            time.sleep(POLL_S)
        else:
            return True
    return False
