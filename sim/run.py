"""Runs seeds, one by one or many on several cores, and reports the result of each.

A seed that breaks an invariant, trips an assert or lets an unexpected exception escape is a
failure with a story: the invariant, the last lines of the trace, and where in the code it was.
"""

from __future__ import annotations

import traceback
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final

from jobyard.errors import JournalDamaged, Refused, StorageFull
from sim.bunqueue.world import BunWorld
from sim.faulty.world import FaultyWorld
from sim.glidemq.world import GlideWorld
from sim.state import Violation
from sim.topics.world import TopicsWorld
from sim.world import World

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Every form our own bugs can take. StorageFailed and a stop are part of a run.
WRONG: Final = (
    Violation,
    AssertionError,
    JournalDamaged,
    StorageFull,
    Refused,
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)
SEEDS_AT_ONCE: Final = 20
BUNQUEUE_EVERY: Final = 4
# Chosen so that existing seeds keep their meaning.
TOPICS_EVERY: Final = 7
TOPICS_FIRST: Final = 4
GLIDE_EVERY: Final = 9
GLIDE_FIRST: Final = 7
FAULTY_EVERY: Final = 14
FAULTY_FIRST: Final = 0
STORY_LINES_MAX: Final = 25


class Outcome:
    """The result of one seed; `invariant` is empty if it passed."""

    def __init__(self, seed: int, world: World) -> None:
        self.seed = seed
        self.digest = world.digest
        self.reached = world.reached
        self.swarm = world.swarm.describe()
        self.invariant = ""
        self.story: list[str] = []


def world_of(seed: int, kind: type[World] = World) -> World:
    """Return the world of a seed: some have topics, glide-mq or bunqueue clients, or a bad disk."""
    if kind is World and seed % FAULTY_EVERY == FAULTY_FIRST:
        return FaultyWorld(seed)
    if kind is World and seed % TOPICS_EVERY == TOPICS_FIRST:
        return TopicsWorld(seed)
    if kind is World and seed % GLIDE_EVERY == GLIDE_FIRST:
        return GlideWorld(seed)
    if kind is World and seed % BUNQUEUE_EVERY == BUNQUEUE_EVERY - 1:
        return BunWorld(seed)
    return kind(seed)


def run_seed(seed: int, kind: type[World] = World) -> Outcome:
    """Run one seed to its end or to its first failure."""
    world = world_of(seed, kind)
    try:
        world.run()
    except WRONG as error:
        outcome = Outcome(seed, world)
        outcome.invariant = error.invariant if isinstance(error, Violation) else repr(error)[:80]
        frames = traceback.format_tb(error.__traceback__)[-4:]
        outcome.story = [
            f"seed {seed}: {outcome.swarm}",
            *list(world.trace)[-STORY_LINES_MAX:],
            *("".join(frames).rstrip().splitlines()),
            f"{type(error).__name__}: {error}",
        ]
        return outcome
    return Outcome(seed, world)


def _run_some(seeds: list[int], kind: type[World]) -> list[Outcome]:
    return [run_seed(seed, kind) for seed in seeds]


def run_seeds(
    seeds: Iterable[int], jobs_count: int = 1, kind: type[World] = World
) -> Iterator[Outcome]:
    """Run many seeds, in order, on this many cores."""
    if jobs_count == 1:
        for seed in seeds:
            yield run_seed(seed, kind)
        return
    wanted = list(seeds)
    slices = [wanted[at : at + SEEDS_AT_ONCE] for at in range(0, len(wanted), SEEDS_AT_ONCE)]
    with ProcessPoolExecutor(jobs_count) as pool:
        for outcomes in pool.map(partial(_run_some, kind=kind), slices):
            yield from outcomes


def find_failure(
    seeds: Iterable[int], kind: type[World] = World, invariants: tuple[str, ...] = ("",)
) -> Outcome | None:
    """Return the first failure among some seeds that broke one of these invariants."""
    for outcome in run_seeds(seeds, kind=kind):
        if outcome.invariant and outcome.invariant.startswith(invariants):
            return outcome
    return None
