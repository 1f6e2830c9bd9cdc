"""The original bunqueue as a server under test: started on free ports, awaited and ended.

`bench.rivals`, which the benchmark uses too, has its location and its command.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.rivals import Bunqueue, await_port, find_bunqueue, free_port
from tests.support.servers.processes import START_S, Process, Server, ServerFailed

MISSING: Final = "bunqueue is not installed: run tools/bootstrap.sh bunqueue"

__all__ = ["MISSING", "Bunqueue", "find_bunqueue", "running_bunqueue"]


@contextmanager
def running_bunqueue(
    found: Bunqueue, *, tokens: str = "", is_durable: bool = True
) -> Iterator[Server]:
    """Run the original on SQLite in a temporary folder, or in memory."""
    with tempfile.TemporaryDirectory(prefix="jobyard-test-") as name:
        folder = Path(name)
        port = free_port()
        command = found.serve_command(port, folder if is_durable else None, tokens)
        process = Process(command, cwd=folder)
        try:
            if not await_port(port, lambda: process.child.poll() is not None, START_S):
                raise ServerFailed(f"bunqueue does not accept; stderr: {process.errors()}")
            yield Server(process, ("127.0.0.1", port))
        finally:
            process.close()
