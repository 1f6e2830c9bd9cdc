"""The simulator on the command line: fresh seeds on all cores, or one seed told in full.

    python -m sim --seeds 2000              that many seeds, from a start drawn from the clock
    python -m sim --seeds 2000 --start 1    always the same ones
    python -m sim --seed 42                 one seed; its trace hash is printed
    python -m sim --bug NAME                plant a bug (see `sim.bugs`) and see it found

Exit code 1 if any seed failed. A planted bug must be planted before the yard is imported, hence the
imports inside.
"""

import argparse
import os
import sys
import time
from typing import TYPE_CHECKING, Final

from sim import bugs

if TYPE_CHECKING:
    from sim.run import Outcome
    from sim.world import World

FAILURES_SHOWN_MAX: Final = 3


def main() -> int:
    """Run what the arguments ask for."""
    parser = argparse.ArgumentParser(prog="sim", description="seeded runs of a whole yard")
    parser.add_argument("--seeds", type=int, default=2000, help="how many seeds to run")
    parser.add_argument("--start", type=int, help="the first of them (default: a fresh one)")
    parser.add_argument("--seed", type=int, help="run this one seed and print its trace hash")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many cores")
    parser.add_argument("--bug", choices=sorted(bugs.BUGS), help="plant a bug first")
    parser.add_argument("--verbose", action="store_true", help="print every trace")
    arguments = parser.parse_args()
    kind = bugs.plant(arguments.bug)
    if arguments.seed is not None:
        return _tell_one(arguments.seed, kind)
    start = time.time_ns() // 1_000_000 % 1_000_000_000 if arguments.start is None else None
    first: int = arguments.start if start is None else start
    return _run_many(first, arguments.seeds, arguments.jobs, kind)


def _tell_one(seed: int, kind: "type[World]") -> int:
    from sim.run import run_seed  # noqa: PLC0415

    outcome = run_seed(seed, kind)
    if outcome.invariant:
        print("\n".join(outcome.story))
        print(f"failed: {outcome.invariant}")
    print(f"seed {seed} trace {outcome.digest:08x}")
    return 1 if outcome.invariant else 0


def _run_many(first: int, count: int, jobs_count: int, kind: "type[World]") -> int:
    from jobyard import build  # noqa: PLC0415
    from sim.run import run_seeds  # noqa: PLC0415

    print(f"seeds {first} to {first + count - 1}, {build.kind()} build, {jobs_count} processes")
    started = time.monotonic()
    reached: dict[str, int] = {}
    failures: list[Outcome] = []
    for outcome in run_seeds(range(first, first + count), jobs_count, kind):
        for point, times in outcome.reached.items():
            reached[point] = reached.get(point, 0) + times
        if outcome.invariant:
            failures.append(outcome)
            if len(failures) <= FAILURES_SHOWN_MAX:
                print("\n".join(outcome.story), end="\n\n", flush=True)
    took_s = time.monotonic() - started
    _tell_coverage(reached)
    print(f"{count} seeds in {took_s:.1f} s, {count / took_s:.0f} seeds/s, {len(failures)} failed")
    for outcome in failures:
        print(f"  seed {outcome.seed}: {outcome.invariant}   (python -m sim --seed {outcome.seed})")
    return 1 if failures else 0


def _tell_coverage(reached: dict[str, int]) -> None:
    print("reached:")
    for point in sorted(reached):
        print(f"  {reached[point]:>9} {point}")


if __name__ == "__main__":
    sys.exit(main())
