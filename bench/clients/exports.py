"""A reader of exports that only counts: one request, then bytes, then the row count at the end.

Run as a program it reads one export and prints one line, as the other generators do. It
parses nothing but the head and the trailers: tests check the rows.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.load import BenchError, run_generator
from bench.wrk import server_cpu_s

__all__ = ["ExportResult", "Exports", "parse_export", "read_export"]

RECEIVE_SIZE = 1 << 20
ANSWER_SECONDS_MAX = 120.0
# Enough for the trailers.
TAIL_SIZE = 256
# Imported from the folder of the benchmark, whatever the working directory is.
SCRIPT = "import sys; sys.path.insert(0, sys.argv[1]); import bench.clients.exports as e; e.{}()"


@dataclass(frozen=True)
class ExportResult:
    """The result of one export."""

    rows: int
    size: int
    seconds: float
    load_cpu_s: float
    server_cpu_s: float = 0.0


def read_export(port: int, path: str) -> ExportResult:
    """Read an export to its end; BenchError if it is refused or aborted."""
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    buffer = bytearray(RECEIVE_SIZE)
    view = memoryview(buffer)
    tail = b""
    size = 0
    used, began = time.process_time(), time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS_MAX) as connection:
        connection.sendall(request)
        while count := connection.recv_into(buffer):
            if size == 0 and not buffer.startswith(b"HTTP/1.1 200 "):
                raise BenchError(f"GET {path} answered {bytes(view[: min(count, 300)])!r}")
            size += count
            tail = (tail + bytes(view[max(0, count - TAIL_SIZE) : count]))[-TAIL_SIZE:]
    seconds = time.monotonic() - began
    end, name, told = tail.partition(b"\r\n0\r\nTopics-Rows: ")
    if not name:
        raise BenchError(f"GET {path} was aborted after {size} bytes: {end[-80:]!r}")
    rows = int(told.split(b"\r\n")[0])
    return ExportResult(rows, size, seconds, time.process_time() - used)


def parse_export(line: str) -> ExportResult:
    """Parse the line that the program prints; BenchError if it is invalid."""
    try:
        seen = json.loads(line)
        rows, size = int(seen["rows"]), int(seen["size"])
        return ExportResult(rows, size, float(seen["seconds"]), float(seen["load_cpu_s"]))
    except (ValueError, KeyError, TypeError) as error:
        raise BenchError(f"unexpected output of exports: {line!r}: {error!r}") from error


@dataclass(frozen=True)
class Exports:
    """The reader, ready to run against a server."""

    cores: Collection[int] | None = None

    def run(self, port: int, pid: int, path: str) -> ExportResult:
        """Read one export; the server's processor time is that of the whole program's run."""
        command = _command("main", port, path)
        before = server_cpu_s(pid)
        seen = parse_export(run_generator(command, self.cores))
        used = server_cpu_s(pid) - before
        return ExportResult(seen.rows, seen.size, seen.seconds, seen.load_cpu_s, used)

    @contextmanager
    def reading(self, port: int, path: str, count: int) -> Iterator[list["subprocess.Popen[str]"]]:
        """Read an export again and again, `count` times at once, while something else runs."""
        readers = [
            subprocess.Popen(_command("repeat", port, path), stdout=subprocess.PIPE, text=True)
            for _ in range(count)
        ]
        try:
            for reader in readers:
                if self.cores:
                    os.sched_setaffinity(reader.pid, self.cores)
                assert reader.stdout is not None
                reader.stdout.readline()
            yield readers
            if any(reader.poll() is not None for reader in readers):
                raise BenchError(f"a reader of {path} ended while others were measured")
        finally:
            for reader in readers:
                reader.kill()
                reader.communicate()


def _command(function: str, port: int, path: str) -> list[str]:
    place = str(Path(__file__).parents[2])
    return [sys.executable, "-c", SCRIPT.format(function), place, str(port), path]


def repeat() -> None:
    """Read the export named on the command line until killed."""
    print("begun", flush=True)
    while True:
        read_export(int(sys.argv[2]), sys.argv[3])


def main() -> None:
    """Read the export named on the command line."""
    try:
        seen = read_export(int(sys.argv[2]), sys.argv[3])
    except BenchError as error:
        sys.exit(str(error))
    numbers = {"rows": seen.rows, "size": seen.size, "seconds": seen.seconds}
    print(json.dumps(numbers | {"load_cpu_s": seen.load_cpu_s}))
