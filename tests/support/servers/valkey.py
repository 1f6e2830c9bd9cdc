"""A server with the glide-mq door open, and a Valkey for comparison."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

from bench.rivals import await_port, free_port
from bench.valkey import Valkey, find_valkey
from tests.support.servers.processes import JOBYARD, START_S, Process, ServerFailed, start_doors

__all__ = ["MISSING", "NO_DOOR", "Valkey", "find_valkey", "has_door", "running_valkey", "serving"]

MISSING: Final = "valkey-server is not installed: run tools/bootstrap.sh valkey"
NO_DOOR: Final = "this build does not speak glide-mq"


@cache
def has_door() -> bool:
    """Return whether the server under test has the door at all."""
    done = subprocess.run(
        [*JOBYARD, "serve", "--help"], capture_output=True, text=True, check=True, timeout=START_S
    )
    return "--glidemq " in done.stdout


@contextmanager
def serving(*flags: str) -> Iterator[tuple[str, int]]:
    """Run a server and yield its RESP address; without flags it is in memory."""
    process, addresses = start_doors(("glidemq",), "--beanstalk", "off", *(flags or ("--memory",)))
    try:
        yield addresses["glidemq"]
    finally:
        process.close()


@contextmanager
def running_valkey(found: Valkey) -> Iterator[tuple[str, int]]:
    """Run a Valkey in memory, without any functions, and yield its address."""
    with tempfile.TemporaryDirectory(prefix="jobyard-test-") as name:
        port = free_port()
        process = Process(found.serve_command(port, Path(name), is_durable=False), cwd=Path(name))
        try:
            if not await_port(port, lambda: process.child.poll() is not None, START_S):
                raise ServerFailed(f"valkey-server does not accept; stderr: {process.errors()}")
            yield "127.0.0.1", port
        finally:
            process.close()
