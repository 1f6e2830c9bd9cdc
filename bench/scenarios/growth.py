"""Growth: a yard with much data in it compared with a nearly empty one, doing the same work.

Jobs: a thousand waiting, a million of another priority (never taken), a million of the same
priority (the oldest is taken each time, so the whole queue moves). Tubes: each job goes through
the next of ten or of a hundred thousand tubes, all kept alive by a waiting job in each.
The servers of one comparison run at the same time, so each is filled once; those not under load
are idle.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from bench.load import LoadResult, Shape
from bench.run import STANDING_PRIORITY, Run, say
from bench.servers import Kind, Running

__all__ = ["SERVERS", "SHAPES", "measure_growth"]

SHAPES = (Shape(64, 1), Shape(4, 64))
SERVERS = ("jobyard-memory", "jobyard-durable")
CYCLE_PRIORITY = 1024  # the priority of the load generator's own jobs


@dataclass(frozen=True)
class Arm:
    """One side of a comparison: how a server is filled, and the name of its figures."""

    name: str
    jobs: int
    priority: int = STANDING_PRIORITY
    tubes: int = 0


def measure_growth(run: Run) -> None:
    """Compare full with nearly empty, for each kind of content."""
    scale = run.settings
    by_jobs = (
        Arm("few", scale.jobs_few),
        Arm("other", scale.jobs),
        Arm("same", scale.jobs, CYCLE_PRIORITY),
    )
    by_tubes = (
        Arm("tubes-few", scale.tubes_few, tubes=scale.tubes_few),
        Arm("tubes-many", scale.tubes, tubes=scale.tubes),
    )
    for kind in run.kinds(SERVERS):
        say(f"growth {kind.name}, {scale.jobs:,} jobs")
        _compare(
            run, kind, by_jobs, lambda server, shape, _arm, name: run.cycle(server, shape, name)
        )
        say(f"growth {kind.name}, {scale.tubes:,} tubes")
        _compare(
            run, kind, by_tubes,
            lambda server, shape, arm, name: run.hop(server, shape, arm.tubes, name),
        )  # fmt: skip


def _compare(
    run: Run,
    kind: Kind,
    arms: tuple[Arm, ...],
    measure: Callable[[Running, Shape, Arm, str], LoadResult],
) -> None:
    with ExitStack() as servers:
        filled: list[tuple[Arm, Running]] = []
        for arm in arms:
            server = servers.enter_context(run.stable.serving(kind))
            run.fill(server, arm.jobs, arm.priority, arm.tubes)
            filled.append((arm, server))
        for shape in SHAPES:
            for _ in range(run.settings.rounds):
                for arm, server in filled:
                    measure(server, shape, arm, f"growth.{kind.name}.{arm.name}.{shape}")
