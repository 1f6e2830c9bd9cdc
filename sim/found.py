"""The seed that last found each planted bug: the first place to search for it again.

A bug stays at its seed for as long as that run stays the same. A change of the yard or of the
models may move it; then the search continues from the first seed, and `--note` stores the new one.
"""

from pathlib import Path
from typing import Final

_FILE: Final = Path(__file__).with_name("found.txt")


def noted() -> dict[str, int]:
    """Return the seeds by the names of bugs."""
    pairs = [line.split() for line in _FILE.read_text(encoding="utf-8").splitlines()]
    return {name: int(seed) for name, seed in pairs}


def note(name: str, seed: int) -> None:
    """Store the seed that found a bug."""
    seeds = {**noted(), name: seed}
    lines = [f"{one} {seeds[one]}\n" for one in sorted(seeds)]
    _FILE.write_text("".join(lines), encoding="utf-8")


def places(name: str, seeds: range) -> list[int]:
    """Return the seeds to search for a bug: its own, then some others."""
    first = noted().get(name)
    return list(seeds) if first is None else [first, *seeds]
