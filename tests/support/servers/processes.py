"""Server processes: Jobyard and the original beanstalkd, started, awaited and ended.

A process started here is ended by its own handle. Standard error goes to a file, so that a
verbose server never blocks on a full pipe and a failed start can be explained.
"""

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Final

from tests.support.servers.patience import PATIENCE_S

START_S: Final = PATIENCE_S
END_S: Final = PATIENCE_S
JOBYARD: Final = (sys.executable, "-m", "jobyard")
DOORS: Final = ("beanstalk", "bunqueue", "glidemq", "http")
# Their default ports may be taken; a test that needs one of these doors sets its address.
OTHERS_OFF: Final = {
    "JOBYARD_BUNQUEUE": "off", "JOBYARD_HTTP": "off", "JOBYARD_GLIDEMQ": "off",
}  # fmt: skip

# The receiver checks its own process id in LISTEN_PID, which only the child itself has.
HAND_OVER: Final = """
import os, sys
os.dup2(int(sys.argv[1]), 3, inheritable=True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
os.execv(sys.argv[2], sys.argv[2:])
"""


class ServerFailed(AssertionError):
    """A server did not start, or did not end, as it should."""


class Process:
    """A child process whose output is read with deadlines."""

    def __init__(
        self,
        command: list[str],
        *,
        env: dict[str, str] | None = None,
        pass_fds: tuple[int, ...] = (),
        cwd: Path | None = None,
    ) -> None:
        self.stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as this
        self._out = bytearray()
        self.child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.stderr,
            # Only the beanstalk door, unless a flag opens another.
            env={**os.environ, **OTHERS_OFF, **(env or {})},
            pass_fds=pass_fds,
            cwd=cwd,
        )

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self.child.pid

    def read_line(self) -> str:
        """Return the next line of standard output; fail if the process ends or is too slow."""
        assert self.child.stdout is not None
        descriptor = self.child.stdout.fileno()
        deadline = time.monotonic() + START_S
        while b"\n" not in self._out:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not select.select([descriptor], [], [], left_s)[0]:
                raise ServerFailed(f"no line within {START_S} s; stderr: {self.errors()}")
            data = os.read(descriptor, 65536)
            if not data:
                code = self.child.wait(END_S)
                raise ServerFailed(f"ended with {code} and no line; stderr: {self.errors()}")
            self._out += data
        line, _, rest = bytes(self._out).partition(b"\n")
        self._out = bytearray(rest)
        return line.decode("utf-8")

    def errors(self) -> str:
        """Return everything written to standard error so far."""
        size = os.fstat(self.stderr.fileno()).st_size
        return os.pread(self.stderr.fileno(), size, 0).decode("utf-8", "replace")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.child.send_signal(number)

    def wait(self) -> int:
        """Wait for the end and return the exit code."""
        try:
            return self.child.wait(END_S)
        except subprocess.TimeoutExpired:
            raise ServerFailed(f"still runs after {END_S} s; stderr: {self.errors()}") from None

    def rest_of_output(self) -> str:
        """Return the rest of standard output, once the process has ended."""
        assert self.child.stdout is not None
        assert self.child.returncode is not None, "the process still runs"
        return (bytes(self._out) + self.child.stdout.read()).decode("utf-8")

    def close(self) -> None:
        """End the process if it still runs, and close its pipes."""
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait(END_S)
        if self.child.stdout is not None:
            self.child.stdout.close()
        self.stderr.close()


class Server:
    """A running server: its process and where it listens."""

    def __init__(self, process: Process, address: tuple[str, int] | str) -> None:
        self.process = process
        self.address = address

    def signal_drain(self) -> None:
        """Request drain mode."""
        self.process.signal(signal.SIGUSR1)

    def close(self) -> None:
        """End the server."""
        self.process.close()


def parse_ready(line: str) -> dict[str, str]:
    """Parse `ready name=value ...` into its parts."""
    word, _, rest = line.partition(" ")
    if word != "ready":
        raise ServerFailed(f"expected the ready line, got {line!r}")
    return dict(part.split("=", 1) for part in rest.split(" "))


def parse_address(text: str) -> tuple[str, int] | str:
    """Parse `host:port` or `unix:PATH`."""
    if text.startswith("unix:"):
        return text.removeprefix("unix:")
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def start_doors(
    doors: tuple[str, ...],
    *flags: str,
    env: dict[str, str] | None = None,
) -> tuple[Process, dict[str, tuple[str, int]]]:
    """Start `jobyard serve` with some doors on free ports; return once it is ready.

    Return its process, and the address of each door that it has, also of those a flag opened.
    """
    words = [word for door in doors for word in (f"--{door}", "127.0.0.1:0")]
    process = Process([*JOBYARD, "serve", *words, *flags], env=env)
    addresses: dict[str, tuple[str, int]] = {}
    for name, text in await_ready(process).items():
        address = parse_address(text) if name in DOORS else ""
        if isinstance(address, tuple):
            addresses[name] = address
    return process, addresses


def await_ready(process: Process) -> dict[str, str]:
    """Return the parts of the ready line; a process that does not write one is ended."""
    try:
        return parse_ready(process.read_line())
    except ServerFailed:
        process.close()
        raise


def start_jobyard(*flags: str, address: str = "127.0.0.1:0", cwd: Path | None = None) -> Server:
    """Start `jobyard serve` with the beanstalk door on a free port; return once it is ready."""
    process = Process([*JOBYARD, "serve", "--beanstalk", address, *flags], cwd=cwd)
    return Server(process, parse_address(await_ready(process)["beanstalk"]))


def find_original() -> str | None:
    """Return the path of the original beanstalkd, if it is installed."""
    return shutil.which("beanstalkd", path=os.environ.get("PATH", "") + ":/usr/bin:/usr/sbin")


def original_version() -> str | None:
    """Return the version of the installed original, or None."""
    path = find_original()
    if path is None:
        return None
    said = subprocess.run([path, "-v"], capture_output=True, text=True, timeout=END_S, check=True)
    return said.stdout.split()[-1]


def start_activated(command: list[str]) -> Server:
    """Start a server on a listening socket passed in as systemd does.

    Connections queue in the kernel from the start: no port to guess, nothing to poll.
    """
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    descriptor = listener.fileno()
    process = Process(
        [sys.executable, "-I", "-S", "-c", HAND_OVER, str(descriptor), *command],
        pass_fds=(descriptor,),
    )
    host, port = listener.getsockname()[:2]
    listener.close()
    return Server(process, (host, port))


def start_original(*flags: str) -> Server:
    """Start the original beanstalkd."""
    path = find_original()
    assert path is not None, "beanstalkd is not installed"
    return start_activated([path, *flags])


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listener:
        return int(listener.getsockname()[1])


def run_to_end(command: list[str], *, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command that should end on its own; return its exit code and output."""
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=END_S,
            check=False,
            cwd=cwd,
            env={**os.environ, **OTHERS_OFF},
        )
    except subprocess.TimeoutExpired as error:
        raise ServerFailed(f"{command} still runs; stdout: {error.stdout!r}") from error


def rss_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
