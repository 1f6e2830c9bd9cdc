"""The generator of pushed jobs (streams.c): compiled, run, and its one line parsed.

Knows its flags and its JSON. It measures from the time a job is due, so its own delay is
part of every latency; its worst delay is part of the result.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from bench.load import HERE, BenchError, LoadResult, compile_program, parse_result, run_generator

__all__ = ["Streams", "StreamsResult", "compile_streams", "parse_streams"]


@dataclass(frozen=True)
class StreamsResult:
    """Deliveries over the streams; an operation is a delivered job."""

    load: LoadResult
    late_max_us: float


def parse_streams(line: str) -> StreamsResult:
    """Parse the generator's JSON line; BenchError if it is invalid."""
    load = parse_result(line)
    try:
        return StreamsResult(load, float(json.loads(line)["late_max_us"]))
    except (ValueError, KeyError, TypeError) as error:
        raise BenchError(f"unexpected output of streams: {line!r}: {error!r}") from error


def compile_streams(folder: Path) -> Path:
    """Return the generator's program in `folder`, recompiled if its source changed."""
    return compile_program(folder / "streams", (HERE / "streams.c",))


@dataclass(frozen=True)
class Streams:
    """The generator, ready to run against a server."""

    program: Path
    cores: Collection[int] | None = None

    def run(
        self, port: int, pid: int, topic: str, streams: int, rate: int, window: tuple[float, float]
    ) -> StreamsResult:
        """Open the streams, then write `rate` jobs a second; `window`: seconds, warm seconds."""
        seconds, warm_seconds = window
        command = [str(self.program), "--port", str(port), "--server-pid", str(pid)]
        command += ["--topic", topic, "--streams", str(streams), "--rate", str(rate)]
        command += ["--seconds", str(seconds), "--warm", str(warm_seconds)]
        return parse_streams(run_generator(command, self.cores))
