"""The simulator on the command line: fresh seeds on all cores, or one seed in detail.

    python -m sim --seeds 2000              that many seeds, from a start drawn from the clock
    python -m sim --seeds 2000 --start 1    always the same ones
    python -m sim --seed 42                 one seed; its trace hash, and its trace if it failed
    python -m sim --bug NAME                plant a bug (see `sim.bugs`) and search for it, first
                                            at its last known seed; --note stores the new seed

Exit code 1 if any seed failed, or if none found the bug. A bug must be planted before the yard is
imported, hence the imports inside functions.
"""

import argparse
import os
import sys
import time
from typing import TYPE_CHECKING, Final

from sim import bugs, found

if TYPE_CHECKING:
    from sim.run import Outcome
    from sim.world import World

FAILURES_SHOWN_MAX: Final = 3


def main() -> int:
    """Run what the arguments request."""
    parser = argparse.ArgumentParser(prog="sim", description="seeded runs of a whole yard")
    parser.add_argument("--seeds", type=int, default=2000, help="number of seeds to run")
    parser.add_argument("--start", type=int, help="first seed (default: a fresh one)")
    parser.add_argument("--seed", type=int, help="run this one seed and print its trace hash")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="number of processes")
    parser.add_argument("--bug", choices=sorted(bugs.BUGS), help="plant a bug first")
    parser.add_argument("--note", action="store_true", help="store the seed that found the bug")
    parser.add_argument("--verbose", action="store_true", help="print one line per seed")
    arguments = parser.parse_args()
    kind = bugs.plant(arguments.bug)
    if arguments.seed is not None:
        return _replay_one(arguments.seed, kind)
    first: int | None = arguments.start
    if arguments.bug is not None:
        seeds = range(first or 1, (first or 1) + arguments.seeds)
        places = found.places(arguments.bug, seeds) if first is None else list(seeds)
        return _look_for(arguments.bug, places, kind, is_noted=arguments.note)
    if first is None:
        first = time.time_ns() // 1_000_000 % 1_000_000_000
    seeds = range(first, first + arguments.seeds)
    report = Report(is_verbose=arguments.verbose)
    return report.run(seeds, arguments.jobs, kind)


def _replay_one(seed: int, kind: "type[World]") -> int:
    from sim.run import run_seed  # noqa: PLC0415

    outcome = run_seed(seed, kind)
    if outcome.invariant:
        print("\n".join(outcome.story))
        print(f"failed: {outcome.invariant}")
    print(f"seed {seed} trace {outcome.digest:08x}")
    return 1 if outcome.invariant else 0


def _look_for(name: str, seeds: list[int], kind: "type[World]", *, is_noted: bool) -> int:
    from sim.run import find_failure  # noqa: PLC0415

    bug = bugs.BUGS[name]
    failure = find_failure(seeds, kind, tuple(sorted(bug.found_by)))
    if failure is None:
        print(f"{name} ({bug.story}) was not found in {len(seeds)} seeds")
        return 1
    print(f"{name} ({bug.story}) was found by seed {failure.seed}: {failure.invariant}")
    if is_noted:
        found.note(name, failure.seed)
    return 0


class Report:
    """The summary of many seeds."""

    def __init__(self, *, is_verbose: bool) -> None:
        self._is_verbose = is_verbose
        self._reached: dict[str, int] = {}
        self._failures: list[Outcome] = []

    def run(self, seeds: range, jobs_count: int, kind: "type[World]") -> int:
        """Run the seeds, print a summary, and return the exit code."""
        from jobyard import build  # noqa: PLC0415
        from sim.run import run_seeds  # noqa: PLC0415

        print(f"seeds {seeds[0]} to {seeds[-1]}, {build.kind()} build, {jobs_count} processes")
        started = time.monotonic()
        for outcome in run_seeds(seeds, jobs_count, kind):
            self._add(outcome)
        took_s = time.monotonic() - started
        print("reached:")
        for point in sorted(self._reached):
            print(f"  {self._reached[point]:>9} {point}")
        rate = len(seeds) / took_s
        failed = len(self._failures)
        print(f"{len(seeds)} seeds in {took_s:.1f} s, {rate:.0f} seeds/s, {failed} failed")
        for each in self._failures:
            print(f"  seed {each.seed}: {each.invariant}   (python -m sim --seed {each.seed})")
        return 1 if self._failures else 0

    def _add(self, outcome: "Outcome") -> None:
        for point, times in outcome.reached.items():
            self._reached[point] = self._reached.get(point, 0) + times
        if self._is_verbose:
            print(f"seed {outcome.seed} trace {outcome.digest:08x}: {outcome.swarm}")
        if outcome.invariant:
            self._failures.append(outcome)
            if len(self._failures) <= FAILURES_SHOWN_MAX:
                print("\n".join(outcome.story), end="\n\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
