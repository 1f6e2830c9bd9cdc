"""Those who wait for more history, told after the commit that brought it.

Nobody waiting costs one test a turn.
"""

from typing import final

from mypy_extensions import i64, mypyc_attr, trait


@mypyc_attr(allow_interpreted_subclasses=True)
@trait
class Onlooker:
    """Somebody who wants to know that there is more history to be read."""

    def events_came(self) -> None:
        """Look again."""


@mypyc_attr(allow_interpreted_subclasses=True)
class OpenOnlooker(Onlooker):
    """An onlooker that need not be compiled: an interpreted class cannot have a compiled trait."""


@final
class Onlookers:
    """All of them."""

    def __init__(self) -> None:
        self._all: dict[Onlooker, None] = {}
        # What was durable when they were told last.
        self._told: i64 = 0

    def hold(self, onlooker: Onlooker, next_durable: i64) -> None:
        """Tell `onlooker` of what comes from now on."""
        if not self._all:
            self._told = next_durable
        self._all[onlooker] = None

    def drop(self, onlooker: Onlooker) -> None:
        """Tell it no more."""
        self._all.pop(onlooker, None)

    def tell_again(self) -> None:
        """Tell all of them in the next turn: one has looked at much and found nothing yet."""
        self._told = -1

    def look(self, next_durable: i64) -> bool:
        """Tell all of them if more is durable than before; True if they must be told again."""
        if not self._all or self._told == next_durable:
            return False
        self._told = next_durable
        for onlooker in list(self._all):
            onlooker.events_came()
        return self._told != next_durable
