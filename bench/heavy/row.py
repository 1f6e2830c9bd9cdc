"""A row of the table of heavy commands."""

from collections.abc import Callable
from dataclasses import dataclass

from bench.doors import Doors

Act = Callable[[Doors], object]


@dataclass(frozen=True)
class Heavy:
    """One command."""

    name: str
    prepare: Act
    act: Act
