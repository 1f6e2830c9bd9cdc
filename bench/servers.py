"""Servers: the yard, its rivals and the floors, each started fresh and stopped without leftovers.

Holds how each is started, how it reports that it is ready, and what can be read from its process.
It knows nothing of load or figures. Each start gets its own process group and log, so a
server that dies leaves its reason, and nothing it started outlives it.
"""

import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.clients.resp import Resp
from bench.load import BenchError
from bench.rivals import REQUESTS_MAX, Bunqueue, await_port, free_port
from bench.valkey import FUNCTIONS, Valkey

__all__ = ["KINDS", "Kind", "Rivals", "Running", "Stable", "ready_port"]

READY_SECONDS_MAX = 120.0
LOG_TAIL_SIZE = 2000
# Variables the yard reads; those without its name are from the originals.
SETTING = re.compile(r".*JOBYARD|RATE_LIMIT_|TOPICS_|AUTH_TOKENS$")


@dataclass(frozen=True)
class Kind:
    """One way to run one server."""

    name: str
    program: str
    is_durable: bool = False
    flags: tuple[str, ...] = ()
    door: str = "beanstalk"

    @property
    def is_rival(self) -> bool:
        """Return whether this is a server of another project, which prints no `ready` line."""
        return self.program in ("beanstalkd", "bunqueue", "valkey")

    @property
    def is_slow_to_warm(self) -> bool:
        """Return whether it is slower at first, for reasons that pass."""
        return self.is_durable or self.program == "bunqueue"


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("beanstalkd", "beanstalkd"),
        Kind("beanstalkd-f0", "beanstalkd", is_durable=True, flags=("-f0",)),
        # Only to fill its log fast for the recovery comparison.
        Kind("beanstalkd-unsynced", "beanstalkd", is_durable=True, flags=("-F",)),
        Kind("jobyard-memory", "jobyard"),
        Kind("jobyard-durable", "jobyard", is_durable=True),
        Kind("bunqueue", "bunqueue", door="bunqueue"),
        Kind("bunqueue-sqlite", "bunqueue", is_durable=True, door="bunqueue"),
        Kind("jobyard-bunqueue-memory", "jobyard", door="bunqueue"),
        Kind("jobyard-bunqueue-durable", "jobyard", is_durable=True, door="bunqueue"),
        Kind("jobyard-http-memory", "jobyard", door="http"),
        Kind("jobyard-http-durable", "jobyard", is_durable=True, door="http"),
        # A million rows in one commit, which is ten times the default.
        Kind(
            "jobyard-spark",
            "jobyard",
            is_durable=True,
            flags=("--txn-rows-max", "10000000", "--txn-bytes-max", "1GiB"),
            door="http",
        ),
        Kind("valkey", "valkey", door="glidemq"),
        Kind("valkey-always", "valkey", is_durable=True, door="glidemq"),
        Kind("jobyard-glidemq-memory", "jobyard", door="glidemq"),
        Kind("jobyard-glidemq-durable", "jobyard", is_durable=True, door="glidemq"),
        # With all doors open, for a heavy command at one while a client uses another.
        Kind("jobyard-all-memory", "jobyard", door="all"),
        Kind("jobyard-all-durable", "jobyard", is_durable=True, door="all"),
        Kind("bare", "floor"),
        Kind("echo", "floor"),
        Kind("httpecho", "floor", door="http"),
    )
}


@dataclass
class Running:
    """A server that is ready."""

    kind: Kind
    process: subprocess.Popen[str]
    port: int
    log: Path
    started_at: float
    ready_seconds: float = field(default=0.0)
    # By door, if all are open.
    ports: dict[str, int] = field(default_factory=dict)

    @property
    def pid(self) -> int:
        """Return the process id of the server."""
        return self.process.pid

    def rss_bytes(self) -> int:
        """Return the resident memory of the server."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise BenchError(f"{self.kind.name} has no resident memory: the process has ended")

    def stats(self) -> dict[str, str]:
        """Return the server's statistics."""
        with socket.create_connection(("127.0.0.1", self.port), READY_SECONDS_MAX) as peer:
            peer.sendall(b"stats\r\n")
            with peer.makefile("rb") as answer:
                word, _, size = answer.readline().decode().partition(" ")
                if word != "OK":
                    raise BenchError(f"{self.kind.name} answered stats with {word!r}")
                text = answer.read(int(size)).decode()
        pairs = (line.partition(": ") for line in text.splitlines() if ": " in line)
        return {name: value for name, _, value in pairs}

    def ready_jobs(self) -> int:
        """Return how many jobs are ready."""
        return int(self.stats()["current-jobs-ready"])

    def kill(self) -> None:
        """Kill the server, even if it has already ended."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def log_tail(self) -> str:
        """Return the end of the server's log, on lines of its own."""
        text = self.log.read_text(errors="replace")[-LOG_TAIL_SIZE:].strip()
        return f"\n{text}" if text else ""

    def log_line(self, word: str) -> str | None:
        """Return the last log line that contains `word`."""
        lines = self.log.read_text(errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if word in line.lower()), None)


@dataclass(frozen=True)
class Rivals:
    """Servers of other projects that are not on the PATH; None: not installed."""

    bunqueue: Bunqueue | None = None
    valkey: Valkey | None = None


NO_RIVALS = Rivals()


class Stable:
    """Starts servers below one folder on a real disk."""

    def __init__(
        self,
        folder: Path,
        python: str = sys.executable,
        python_path: str | None = None,
        cores: Collection[int] | None = None,
        floors: str | None = None,
        rivals: Rivals = NO_RIVALS,
        doors: Sequence[str] = ("beanstalk",),
    ) -> None:
        self._folder = folder
        self._python = python
        self._python_path = python_path
        self._cores = cores
        self._floors = floors
        self._rivals = rivals
        self._doors = doors
        self._starts = 0

    def new_folder(self) -> Path:
        """Create an empty folder for the data of one server."""
        self._starts += 1
        folder = self._folder / f"start-{self._starts}"
        folder.mkdir(parents=True)
        return folder

    @contextmanager
    def serving(self, kind: Kind) -> Iterator[Running]:
        """Run a server with no data; afterwards remove it and its data."""
        folder = self.new_folder()
        running = self.start(kind, folder)
        try:
            yield running
        except BenchError as error:
            raise BenchError(f"{kind.name}: {error}{running.log_tail()}") from error
        finally:
            running.kill()
            shutil.rmtree(folder)
            if kind.is_durable:
                os.sync()  # the next server must not wait for the unwritten pages of this one

    def start(self, kind: Kind, folder: Path) -> Running:
        """Start a server on the data in `folder`; return once it is ready."""
        if kind.program == "beanstalkd":
            return self._start_beanstalkd(kind, folder)
        if kind.program == "bunqueue":
            return self._start_bunqueue(kind, folder)
        if kind.program == "valkey":
            return self._start_valkey(kind, folder)
        return self._start_yard(kind, folder)

    def _start_beanstalkd(self, kind: Kind, folder: Path) -> Running:
        program = shutil.which("beanstalkd")
        if program is None:
            raise BenchError("beanstalkd is not installed")
        port = free_port()
        data = folder / "data"
        data.mkdir(exist_ok=True)
        command = [program, "-l", "127.0.0.1", "-p", str(port)]
        command += ["-b", str(data), *kind.flags] if kind.is_durable else []
        running = self._spawn(kind, command, folder)
        running.port = port
        return self._when(running, _answers)

    def _start_bunqueue(self, kind: Kind, folder: Path) -> Running:
        if self._rivals.bunqueue is None:
            raise BenchError("bunqueue is not installed")
        port = free_port()
        data = folder / "data"
        data.mkdir(exist_ok=True)
        command = self._rivals.bunqueue.serve_command(port, data if kind.is_durable else None)
        running = self._spawn(kind, command, folder)
        running.port = port
        return self._when(running, _listens)

    def _start_valkey(self, kind: Kind, folder: Path) -> Running:
        if self._rivals.valkey is None:
            raise BenchError("valkey-server is not installed")
        port = free_port()
        data = folder / "data"
        data.mkdir(exist_ok=True)
        command = self._rivals.valkey.serve_command(port, data, is_durable=kind.is_durable)
        running = self._spawn(kind, command, folder)
        running.port = port
        return self._when(running, _takes_functions)

    def _start_yard(self, kind: Kind, folder: Path) -> Running:
        if kind.program == "floor":
            # Imported from the folder it was compiled into.
            command = [self._python, "-c", f"from bench.{kind.name} import main; main()"]
        else:
            place = ["--data", str(folder / "data")] if kind.is_durable else ["--memory"]
            command = [self._python, "-m", "jobyard", "serve", *place]
            command += [*self._open(kind.door), *kind.flags]
        return self._when(self._spawn(kind, command, folder), _says_ready)

    def _open(self, wanted: str) -> list[str]:
        """Return the flags for one open door: concurrent servers would share the other ports."""
        if wanted == "all":
            return [word for door in self._doors for word in (f"--{door}", "127.0.0.1:0")]
        if wanted not in self._doors:
            raise BenchError(f"this yard has no {wanted} door")
        flags: list[str] = []
        for door in self._doors:
            flags += [f"--{door}", "127.0.0.1:0" if door == wanted else "off"]
        return flags

    def _spawn(self, kind: Kind, command: list[str], folder: Path) -> Running:
        log = folder / "log"
        with log.open("w") as stderr:
            started_at = time.monotonic()
            process = subprocess.Popen(
                command,
                cwd=folder,  # so that no settings file of the working directory is read
                env=self._environment(kind),
                stdin=subprocess.DEVNULL,
                # A pipe that is never read would fill up and block the rival.
                stdout=stderr if kind.is_rival else subprocess.PIPE,
                stderr=stderr,
                text=True,
                start_new_session=True,
            )
        if self._cores:
            os.sched_setaffinity(process.pid, self._cores)
        return Running(kind, process, 0, log, started_at)

    def _environment(self, kind: Kind) -> dict[str, str]:
        # No setting may come from the environment of the benchmark.
        clean = {name: value for name, value in os.environ.items() if not SETTING.match(name)}
        clean.pop("PYTHONPATH", None)
        if kind.door == "bunqueue":
            clean["RATE_LIMIT_MAX_REQUESTS"] = str(REQUESTS_MAX)  # as for the rival
        path = self._floors if kind.program == "floor" else self._python_path
        if path is not None:
            clean["PYTHONPATH"] = path
        return clean

    def _when(self, running: Running, serves: Callable[[Running], int]) -> Running:
        with ExitStack() as undo:
            undo.callback(running.kill)
            try:
                running.port = serves(running)
            except BenchError as error:
                raise BenchError(f"{error}{running.log_tail()}") from error
            undo.pop_all()
        running.ready_seconds = time.monotonic() - running.started_at
        return running


def _says_ready(running: Running) -> int:
    """Wait for the one line on stdout; return the port it names."""
    stdout = running.process.stdout
    assert stdout is not None
    readable, _, _ = select.select([stdout], [], [], READY_SECONDS_MAX)
    line = stdout.readline() if readable else ""
    running.ports = {
        door: int(port) for door, port in re.findall(r"\b(\w+)=\S+?:(\d+)(?=\s|$)", line)
    }
    door = "beanstalk" if running.kind.door == "all" else running.kind.door
    port = ready_port(line, door)
    if port is None:
        raise BenchError(f"{running.kind.name} did not get ready; it printed {line!r}")
    return port


def ready_port(line: str, door: str) -> int | None:
    """Return the TCP port that a `ready` line names for `door`, None if it names none."""
    found = re.match(rf"ready\b.*\b{door}=\S+?:(\d+)(?:\s|$)", line)
    return None if found is None else int(found.group(1))


def _listens(running: Running) -> int:
    """Wait until a connection is accepted: bunqueue listens once it has read its data."""
    if not await_port(running.port, lambda: running.process.poll() is not None, READY_SECONDS_MAX):
        raise BenchError(f"{running.kind.name} does not listen")
    return running.port


def _takes_functions(running: Running) -> int:
    """Load the functions into Valkey that the yard has built in."""
    port = _listens(running)
    with Resp(port) as server:
        server.ask("FUNCTION", "LOAD", "REPLACE", FUNCTIONS.read_text())
    return port


def _answers(running: Running) -> int:
    """Wait until a command is answered: beanstalkd listens before it has read its log."""
    while time.monotonic() - running.started_at < READY_SECONDS_MAX:
        if running.process.poll() is not None:
            raise BenchError(f"{running.kind.name} ended with {running.process.returncode}")
        try:
            running.stats()
        except ConnectionRefusedError:
            time.sleep(0.002)
        else:
            return running.port
    raise BenchError(f"{running.kind.name} does not listen")
