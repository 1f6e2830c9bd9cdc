"""Scenarios: one file each, and the list of them in the order they run.

A scenario gets a run, starts servers, and adds figures under its own name. Servers are measured in
turn, round by round (A B C A B C), so that a machine that slows down affects all of them.
"""

from collections.abc import Callable

from bench.run import Run
from bench.scenarios.bunqueue import measure_bunqueue
from bench.scenarios.floor import measure_floor
from bench.scenarios.glidemq import measure_glidemq
from bench.scenarios.growth import measure_growth
from bench.scenarios.http import measure_http
from bench.scenarios.memory import measure_memory
from bench.scenarios.recovery import measure_recovery
from bench.scenarios.spark import measure_spark
from bench.scenarios.stalls import measure_stalls
from bench.scenarios.throughput import measure_throughput

__all__ = ["SCENARIOS"]

SCENARIOS: dict[str, Callable[[Run], None]] = {
    "throughput": measure_throughput,
    "bunqueue": measure_bunqueue,
    "glidemq": measure_glidemq,
    "http": measure_http,
    "floor": measure_floor,
    "memory": measure_memory,
    "recovery": measure_recovery,
    "growth": measure_growth,
    "stalls": measure_stalls,
    "spark": measure_spark,
}
