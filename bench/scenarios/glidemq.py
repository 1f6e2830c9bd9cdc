"""Glide-mq: jobs over RESP, the yard's door against a Valkey with functions that write as much.

Adds are sent by redis-benchmark: FCALL glidemq_addJob of plain 100-byte jobs into one queue.
Cycles come from our generator: addJob, XREADGROUP, completeAndFetchNext that removes the job, each
connection in its own queue. Every measurement has a fresh server, and ends with a check of the
server itself: jobs that were acknowledged but are not there would be false speed.
"""

import math
import time
from typing import Final

from bench.clients.resp import Resp
from bench.load import BenchError, LoadResult, Shape
from bench.redis_benchmark import RedisBenchmark
from bench.run import Run, say
from bench.servers import Running

__all__ = ["SERVERS", "SHAPES", "add_words", "measure_glidemq"]

SHAPES: Final = (Shape(1, 1), Shape(16, 1), Shape(64, 1), Shape(16, 32))
SERVERS: Final = (
    "valkey",
    "jobyard-glidemq-memory",
    "valkey-always",
    "jobyard-glidemq-durable",
)
QUEUE: Final = "glide:{bench}"
DATA: Final = '{"data":"%s"}' % ("x" * 100)
# The first estimate of what a server does in the time of a run; the warm-up gives a better one.
GUESS_PER_S: Final = 2_000
# At least one full batch of requests on each connection: fewer would not have the named shape.
BATCHES_MIN: Final = 4


def measure_glidemq(run: Run) -> None:
    """Measure every server at every shape, adds and cycles."""
    load = run.redis_benchmark
    if load is None:
        run.note("NO REDIS-BENCHMARK: adds over RESP are not measured (Debian package redis-tools)")
    for shape in SHAPES:
        say(f"glidemq {shape}")
        for _ in range(run.settings.rounds):
            for kind in run.kinds(SERVERS):
                if load is not None:
                    with run.stable.serving(kind) as server:
                        _measure_adds(run, load, server, shape)
                with run.stable.serving(kind) as server:
                    _measure_cycles(run, server, shape)


def add_words(now_ms: int) -> list[str]:
    """Return the command that adds one plain job."""
    keys = [f"{QUEUE}:{name}" for name in ("id", "stream", "scheduled", "events")]
    plain = ["0", "0", "", "0", "", *["0"] * 7, ""]
    return ["FCALL", "glidemq_addJob", "4", *keys, "bench", DATA, "{}", str(now_ms), *plain]


def _measure_adds(run: Run, load: RedisBenchmark, server: Running, shape: Shape) -> None:
    prefix = f"glidemq.{server.kind.name}.add-{shape}"
    words = add_words(int(time.time() * 1000))
    speed, warmed = float(GUESS_PER_S), 0
    # Half of the time for the estimate, the other half to see how wrong it was.
    for seconds in (run.warm_seconds(server) / 2,) * 2:
        requests = _requests(shape, speed * seconds)
        speed = load.run(server.port, server.pid, shape, requests, words).ops_per_s
        warmed += requests
    requests = _requests(shape, speed * run.settings.seconds)
    result = load.run(server.port, server.pid, shape, requests, words)
    check_adds(server.port, warmed + requests)
    run.note_result(prefix, result)


def _requests(shape: Shape, wanted: float) -> int:
    """Round up to whole batches on every connection."""
    batch = shape.connections * shape.depth
    return batch * max(BATCHES_MIN, math.ceil(wanted / batch))


def check_adds(port: int, jobs: int) -> None:
    """Check that all jobs wait, and that the newest is the one that was sent."""
    with Resp(port) as server:
        waiting = server.number("XLEN", f"{QUEUE}:stream")
        if waiting != jobs:
            raise BenchError(f"{jobs} jobs were added, {waiting} are waiting")
        newest = server.ask("XREVRANGE", f"{QUEUE}:stream", "+", "-", "COUNT", "1")
        job = _job_of(newest)
        data = server.ask("HGET", f"{QUEUE}:job:{job}", "data")
        if data != DATA:
            raise BenchError(f"job {job} holds {data!r}")


def _job_of(entries: object) -> str:
    """Return the job that one stream entry names."""
    match entries:
        case [[str(), ["jobId", str(job), *_]]]:
            return job
    raise BenchError(f"no job in {entries!r}")


def _measure_cycles(run: Run, server: Running, shape: Shape) -> None:
    streams = [f"glide:{{bench-{number}}}:stream" for number in range(shape.connections)]
    with Resp(server.port) as peer:
        for stream in streams:
            peer.ask("XGROUP", "CREATE", stream, "workers", "0", "MKSTREAM")
    result = run.cycle(server, shape, f"glidemq.{server.kind.name}.cycle-{shape}")
    check_cycles(server.port, streams, result)


def check_cycles(port: int, streams: list[str], result: LoadResult) -> None:
    """Check that no job is waiting or held by a worker."""
    with Resp(port) as server:
        for stream in streams:
            waiting, pending = (
                server.number("XLEN", stream),
                server.ask("XPENDING", stream, "workers"),
            )
            if waiting or not isinstance(pending, list) or pending[0] != 0:
                raise BenchError(
                    f"{result.jobs_finished} jobs were finished, and {waiting} wait in {stream}, "
                    f"pending: {pending}"
                )
