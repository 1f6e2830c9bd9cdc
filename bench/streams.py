"""The generator of pushed jobs (streams.c): compiled, run, and its one line read.

Knows its flags and its JSON. It counts from the moment a job is due, so what it is late itself is
in every latency; how late it was at worst is part of the result.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from bench.load import HERE, BenchError, LoadResult, compile_program, parse_result, run_generator

__all__ = ["Streams", "StreamsResult", "compile_streams", "parse_streams"]


@dataclass(frozen=True)
class StreamsResult:
    """What came over the streams; an operation is a job that was delivered."""

    load: LoadResult
    late_max_us: float


def parse_streams(line: str) -> StreamsResult:
    """Read the generator's JSON line; BenchError when it is not one."""
    load = parse_result(line)
    try:
        return StreamsResult(load, float(json.loads(line)["late_max_us"]))
    except (ValueError, KeyError, TypeError) as error:
        raise BenchError(f"streams said {line!r}: {error!r}") from error


def compile_streams(folder: Path) -> Path:
    """Return the generator's program in `folder`, compiled anew when its source changed."""
    return compile_program(folder / "streams", (HERE / "streams.c",))


@dataclass(frozen=True)
class Streams:
    """The generator, ready to be pointed at a server."""

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
