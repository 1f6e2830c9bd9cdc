"""Periodic checks of queues for dashboards, also with very many queues."""

from jobyard.protocols.bunqueue.http.watchdog import Watchdog
from tests.support.doors.bunqueue import BareBunqueue


def surveying(count: int = 50) -> tuple[BareBunqueue, Watchdog]:
    site = BareBunqueue()
    client = site.connect()
    for at in range(count):
        client.push(f"q{at}")
    site.yard.tasks.units_per_turn = 4
    site.yard.tasks.first_units = 1
    site.is_slow = True
    site.slice()
    watchdog = Watchdog(site.door)
    watchdog.begin(site.now_ms)
    return site, watchdog


def test_nothing_is_new_before_all_is_known_that_was_there() -> None:
    site, watchdog = surveying()
    assert site.yard.tasks.count() == 1
    assert not watchdog.is_new("q1")
    assert not watchdog.is_new("came meanwhile")
    assert watchdog.was_known("q2"), "nobody can tell yet"
    while site.slice():
        pass
    assert not watchdog.is_new("q49")
    assert not watchdog.is_new("came meanwhile")
    assert watchdog.is_new("new")
    assert not watchdog.was_known("unknown")
    assert watchdog.was_known("q3")
    assert watchdog.is_new("q3")


def test_a_survey_that_begins_anew_is_the_only_one() -> None:
    site, watchdog = surveying()
    watchdog.begin(site.now_ms)
    assert site.yard.tasks.count() == 1
    while site.slice():
        pass
    assert watchdog.is_new("new")


def test_a_glance_finds_what_has_gone_and_what_rests() -> None:
    site, watchdog = surveying()
    while site.slice():
        pass
    del site.yard.queues["q7"]
    begin_check = watchdog.begin_check(site.now_ms)
    turns = 0
    while begin_check.step(10, site.now_ms) >= 10:
        turns += 1
    assert turns > 8
    assert begin_check.events() == [("queue:removed", {"queue": "q7"})]
    assert not watchdog.was_known("q7")
