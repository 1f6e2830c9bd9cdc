"""Throughput: put, reserve, delete of 100-byte jobs, the yard against beanstalkd, five shapes.

Every measurement has a fresh server on empty data. Durable servers answer after the sync.
"""

from bench.load import Shape
from bench.run import Run, say

__all__ = ["SERVERS", "SHAPES", "measure_throughput"]

SHAPES = (Shape(1, 1), Shape(16, 1), Shape(64, 1), Shape(256, 1), Shape(4, 64))
SERVERS = ("beanstalkd", "jobyard-memory", "beanstalkd-f0", "jobyard-durable")


def measure_throughput(run: Run) -> None:
    """Measure every server at every shape."""
    for shape in SHAPES:
        say(f"throughput {shape}")
        for _ in range(run.settings.rounds):
            for kind in run.kinds(SERVERS):
                with run.stable.serving(kind) as server:
                    run.cycle(server, shape, f"throughput.{kind.name}.{shape}")
