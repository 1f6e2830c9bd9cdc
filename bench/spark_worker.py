"""Spark, in an environment and a process of its own: found, started, asked, and ended.

One session serves all measurements, because a session takes longer to start than most of them
take. It knows no server and no figures; what it is asked is in `bench/spark_jobs`.
"""

import json
import os
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.load import BenchError

__all__ = ["Spark", "SparkWorker", "find_spark", "parse_seen"]

ROOT: Final = Path(__file__).parent.parent
ANSWER_SECONDS_MAX: Final = 600.0
END_SECONDS_MAX: Final = 60.0
LOG_TAIL_SIZE: Final = 3000


@dataclass(frozen=True)
class Spark:
    """The environment that Spark is installed in."""

    folder: Path
    # The package that Spark reads and writes with.
    python_path: str

    def version(self) -> str | None:
        """Return the version of Spark."""
        found = self.folder.glob("lib/python*/site-packages/pyspark-*.dist-info")
        names = [path.name.removesuffix(".dist-info") for path in found]
        return names[0].removeprefix("pyspark-") if names else None

    @contextmanager
    def working(self, folder: Path) -> Iterator["SparkWorker"]:
        """Run a session that writes its own files below `folder`."""
        log = folder / "spark.log"
        with log.open("w") as stderr:
            process = subprocess.Popen(
                [str(self.folder / "bin" / "python"), "-m", "bench.spark_jobs"],
                cwd=folder,
                env=self._environment(folder),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                start_new_session=True,
            )
        worker = SparkWorker(process, log)
        try:
            worker.await_answer("start")
            yield worker
            worker.end()
        finally:
            worker.kill()

    def _environment(self, folder: Path) -> dict[str, str]:
        # No setting may come from the environment of the benchmark.
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("JOBYARD_", "SPARK_", "PYSPARK_"))
        }
        clean["PYTHONPATH"] = os.pathsep.join([self.python_path, str(ROOT)])
        clean["SPARK_LOCAL_DIRS"] = str(folder / "spark-local")
        return clean


def find_spark(root: Path, python_path: str | None) -> Spark | None:
    """Return the environment that `make build/spark/ready` makes, or None."""
    folder = root / "build" / "spark"
    if not (folder / "ready").exists() or not os.access(folder / "bin" / "python", os.X_OK):
        return None
    return Spark(folder, python_path or str(root / "src"))


class SparkWorker:
    """A session that is ready."""

    def __init__(self, process: "subprocess.Popen[str]", log: Path) -> None:
        self._process = process
        self._log = log

    def ask(self, job: str, **given: object) -> dict[str, float]:
        """Run one measurement and return its figures."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"job": job, **given}) + "\n")
        self._process.stdin.flush()
        return self.await_answer(job)

    def await_answer(self, what: str) -> dict[str, float]:
        """Return the next answer; BenchError if there is none."""
        stdout = self._process.stdout
        assert stdout is not None
        readable, _, _ = select.select([stdout], [], [], ANSWER_SECONDS_MAX)
        line = stdout.readline() if readable else ""
        if not line:
            tail = self._log.read_text(errors="replace")[-LOG_TAIL_SIZE:].strip()
            raise BenchError(f"Spark did not answer {what}\n{tail}")
        return parse_seen(line)

    def end(self) -> None:
        """Let it end by itself: only then is its processor time counted as this run's own."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_SECONDS_MAX)
        except subprocess.TimeoutExpired as error:
            raise BenchError("Spark did not end") from error

    def kill(self) -> None:
        """Kill it and everything that it started, if it has not ended."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def parse_seen(line: str) -> dict[str, float]:
    """Parse an answer; BenchError if it is invalid."""
    try:
        return {str(name): float(value) for name, value in json.loads(line).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise BenchError(f"unexpected output of Spark: {line!r}: {error!r}") from error
