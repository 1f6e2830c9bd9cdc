"""Turns of the glide-mq door with room for little work, so that even small work takes several."""

from typing import Any

from jobyard.protocols.glidemq.session import GlidemqSession
from tests.support.clients.library import Library

UNITS = 40


def slow(library: Library, units: int = UNITS) -> Library:
    """Limit the units of every turn from now on."""
    site = library.site
    site.yard.tasks.units_per_turn = units
    site.yard.tasks.first_units = 4
    site.is_slow = True
    site.slice()
    return library


def session_of(library: Library) -> GlidemqSession:
    """Return the session of its client."""
    session = library.client.session
    assert isinstance(session, GlidemqSession)
    return session


def answer(library: Library, *words: object) -> tuple[Any, int]:
    """Send a command; return the answer, and how many turns it took.

    Check that no turn exceeds its limit by more than one unfinished step.
    """
    client = library.client
    session = session_of(library)
    tasks = library.site.yard.tasks
    before = int(tasks.units_done)
    client.send(*words)
    turns = 0
    while session.is_blocked():
        done = int(tasks.units_done)
        assert done - before <= 3 * int(tasks.units_per_turn)
        before = done
        if not library.site.slice():
            # The output has been sent.
            client.resume()
        turns += 1
        assert turns < 10_000
    [told] = client.hear()
    return told, turns
