"""The original bunqueue: where its npm package is, how to start a server, and when it is ready.

`tools/bootstrap.sh bunqueue` puts the package and the runtime it needs below build/npm. Holds
the command of a server and the wait for its port; starting and ending the process is up to the
caller. Knows nothing of load, figures or tests. No setting comes from the environment:
the original reads dozens of variables, some with common names.
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
# Its default limit per connection, 10 000 a minute, would be all that is measured.
REQUESTS_MAX: Final = 1_000_000_000
PASSED_ON: Final = ("HOME", "LANG", "PATH", "TMPDIR")
POLL_S: Final = 0.002


@dataclass(frozen=True)
class Bunqueue:
    """An installed bunqueue: its runtime and its package."""

    bun: Path
    package: Path

    def version(self) -> str:
        """Return the version of bunqueue and of its runtime."""
        own, runtime = (
            json.loads((folder / "package.json").read_text())["version"]
            for folder in (self.package, self.package.parent / "bun")
        )
        return f"{own} on bun {runtime}"

    def serve_command(self, port: int, data: Path | None, tokens: str = "") -> list[str]:
        """Return the command of a server: on SQLite in the folder `data`, or in memory.

        Start it in an empty folder, because it reads settings from a file in the working
        directory. Its HTTP door gets some free port, as it cannot be disabled.
        """
        kept = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        set_here = {"RATE_LIMIT_MAX_REQUESTS": str(REQUESTS_MAX), "LOG_LEVEL": "warn"}
        # `env` execs the server, so the process stays the caller's own child.
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
    """Return the bunqueue installed by the bootstrap script, or None."""
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
