"""Facts about the machine that readers of the figures need, and how quiet it was during the run.

Facts only, no judgement. Nothing here names a person or a host: results are published.
"""

import json
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

__all__ = ["Quiet", "YardBuild", "core_split", "machine_facts", "machine_slug", "probe_yard"]

SYNCS_COUNT = 200
SYNC_SIZE = 4096
# Older versions have fewer doors; a server is started with all but one closed.
DOORS = ("beanstalk", "bunqueue", "glidemq", "http")
# The package reports which build runs; for older versions the hottest module decides.
PROBE = """
import json, jobyard
try:
    from jobyard.build import kind
    build = kind()
except ImportError:
    import jobyard.engine.state.yard as yard
    build = "compiled" if yard.__file__.endswith(".so") else "plain"
print(json.dumps({"version": getattr(jobyard, "__version__", "?"), "build": build}))
"""


@dataclass(frozen=True)
class YardBuild:
    """The yard that will be measured."""

    version: str
    build: str
    python_path: str | None
    doors: tuple[str, ...]

    @property
    def is_compiled(self) -> bool:
        """Return whether all hot packages run as machine code."""
        return self.build == "compiled"


def probe_yard(root: Path) -> YardBuild | None:
    """Find the yard that the servers will run: PYTHONPATH decides, else the installed or built."""
    asked = os.environ.get("PYTHONPATH")
    if asked:
        # Absolute, because every server runs in its own folder.
        folders = [str(Path(folder).absolute()) for folder in asked.split(os.pathsep) if folder]
        places: list[str | None] = [os.pathsep.join(folders)]
    else:
        places = [None, str(root / "build" / "compiled"), str(root / "src")]
    return next((yard for yard in map(_probe, places) if yard is not None), None)


def _probe(python_path: str | None) -> YardBuild | None:
    said = _python(python_path, "-c", PROBE)
    if said is None:
        return None
    seen = json.loads(said)
    flags = _python(python_path, "-m", "jobyard", "serve", "--help") or ""
    doors = tuple(door for door in DOORS if f"--{door} " in flags)
    return YardBuild(str(seen["version"]), str(seen["build"]), python_path, doors)


def _python(python_path: str | None, *words: str) -> str | None:
    """Return the output of Python with this path, None if it fails."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if python_path is not None:
        environment["PYTHONPATH"] = python_path
    done = subprocess.run(
        [sys.executable, "-P", *words],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    return done.stdout if done.returncode == 0 else None


def core_split() -> tuple[set[int], set[int]] | None:
    """Split the cores: the last one for the load, the rest for servers; None with one core."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        return None
    return set(cores[:-1]), {cores[-1]}


def machine_facts(root: Path, data_folder: Path) -> dict[str, object]:
    """Collect the facts a reader needs to judge the figures."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "filesystem": filesystem_of(data_folder),
        "fdatasync_us": round(measure_sync_us(data_folder), 1),
        "beanstalkd": _first_line(["beanstalkd", "-v"]),
        "cc": _first_line(["cc", "--version"]),
        "commit": commit_of(root),
        "load_average": os.getloadavg()[0],
    }


def machine_slug(facts: dict[str, object]) -> str:
    """Return a short name of the machine for file names."""
    words = re.sub(r"[^a-z0-9]+", "-", str(facts["cpu"]).lower()).strip("-")
    return f"{words or 'unknown'}-{facts['cores']}c"


def filesystem_of(folder: Path) -> str:
    """Return the type of the file system that holds `folder`."""
    best, kind = "", "unknown"
    target = str(folder.resolve())
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount, found, *_ = line.split()
        inside = target == mount or target.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, found
    return kind


def measure_sync_us(folder: Path) -> float:
    """Return the median time of writing one page over existing content and syncing it."""
    path = folder / "sync-probe"
    page = b"x" * SYNC_SIZE
    times: list[float] = []
    try:
        with path.open("wb", buffering=0) as file:
            file.write(page * SYNCS_COUNT)
            os.fsync(file.fileno())
            for number in range(SYNCS_COUNT):
                begin = time.perf_counter()
                os.pwrite(file.fileno(), page, number * SYNC_SIZE)
                os.fdatasync(file.fileno())
                times.append(time.perf_counter() - begin)
    finally:
        path.unlink(missing_ok=True)
    return median(times) * 1e6


def commit_of(root: Path) -> str:
    """Return the short commit id, marked if the tree differs from it."""
    commit = _first_line(["git", "-C", str(root), "rev-parse", "--short", "HEAD"])
    if commit is None:
        return "uncommitted"
    changes = _first_line(["git", "-C", str(root), "status", "--porcelain", "-uno"])
    return f"{commit}-changed" if changes else commit


class Meters(NamedTuple):
    """Seconds of wall time, of busy time of all processors, and of this run and its children."""

    elapsed_s: float
    busy_s: float
    own_s: float


def read_meters() -> Meters:
    """Read all three values now; a child's time counts once it has been waited for."""
    # user nice system idle iowait irq softirq steal ...: all but idle and iowait.
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    busy = (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    own = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    return Meters(time.monotonic(), busy, own)


class Quiet:
    """Measures how much processor time other programs use during the run."""

    def __init__(self, minute_counters: Callable[[], Meters] = read_meters) -> None:
        self._read = minute_counters
        self._began = self._read()

    def others_cores(self) -> float:
        """Return how many cores' worth of time other programs have used so far."""
        now, began = self._read(), self._began
        elapsed = now.elapsed_s - began.elapsed_s
        others = (now.busy_s - began.busy_s) - (now.own_s - began.own_s)
        return max(0.0, others / elapsed) if elapsed > 0 else 0.0


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.lower().startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _first_line(command: list[str]) -> str | None:
    program = shutil.which(command[0])
    if program is None:
        return None
    done = subprocess.run(
        [program, *command[1:]], capture_output=True, text=True, check=False, timeout=30
    )
    lines = done.stdout.splitlines()
    return lines[0].strip() if done.returncode == 0 and lines else None
