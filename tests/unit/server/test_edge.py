"""The report of an unexpected error, and which errors the server survives."""

from jobyard.server.edge import FRAMES_LOGGED, ErrorBoundary, place_of
from tests.support.site.yard import OpenYard


def _fall(depth: int) -> None:
    if depth == 0:
        raise ValueError("what a client sent")
    _fall(depth - 1)


def caught(depth: int) -> ValueError:
    """Return an error that was raised so deep."""
    try:
        _fall(depth)
    except ValueError as error:
        return error
    raise AssertionError


def test_the_place_of_an_error_is_reported_and_not_its_text() -> None:
    place = place_of(caught(2))
    assert place.startswith("_fall ")
    assert place.count(" < ") == 3
    assert "client" not in place
    assert place_of(caught(100)).count(" < ") == FRAMES_LOGGED - 1


def test_an_error_is_survived_if_nothing_changed() -> None:
    site = OpenYard()
    boundary = ErrorBoundary(site.yard)
    told: list[str] = []
    boundary.log_error = lambda doing, _error: told.append(doing)
    before = site.yard.changes()
    assert boundary.survives(ValueError(), before, "a command")
    site.put(b"x")
    assert not boundary.survives(ValueError(), before, "another")
    assert told == ["a command"]
    assert site.yard.errors.survived_count == 1
