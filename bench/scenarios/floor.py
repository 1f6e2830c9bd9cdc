"""Floor: the cost of one operation, compared with a server that only receives and answers.

The echo (bench/echo.py) answers every read with fixed bytes of the right length, on the yard's own
loop: the rest of the yard's cost is parsing and the yard itself. The bare floor (bench/bare.py)
does the same on the smallest possible loop: the rest of the echo's cost is the loop.
"""

from bench.load import Shape
from bench.run import Run, say

__all__ = ["SERVERS", "SHAPE", "measure_floor"]

SHAPE = Shape(64, 1)
SERVERS = ("bare", "echo", "jobyard-memory", "beanstalkd")


def measure_floor(run: Run) -> None:
    """Measure the processor time of one operation."""
    say(f"floor {SHAPE}")
    for _ in range(run.settings.rounds):
        for kind in run.kinds(SERVERS):
            with run.stable.serving(kind) as server:
                run.cycle(server, SHAPE, f"floor.{kind.name}.{SHAPE}")
