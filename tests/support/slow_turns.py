"""Turns of the glide-mq door that have room for little work, so that little of it is long."""

from typing import Any

from jobyard.protocols.glidemq.session import GlidemqSession
from tests.support.glidemq_calls import Library

UNITS = 40


def slow(library: Library, units: int = UNITS) -> Library:
    """Let a turn have little room from now on."""
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
    """Ask for something; return the answer, and how many turns it took.

    No turn does more than it has room for, and one part of work that is begun.
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
            # What was written has left.
            client.resume()
        turns += 1
        assert turns < 10_000
    [told] = client.hear()
    return told, turns
