"""What is known of queues by those who listen, also while very many are surveyed."""

from jobyard.protocols.bunqueue.http.watchdog import Lookout
from tests.support.bare_bunqueue import BareBunqueue


def surveying(count: int = 50) -> tuple[BareBunqueue, Lookout]:
    site = BareBunqueue()
    client = site.connect()
    for at in range(count):
        client.push(f"q{at}")
    site.yard.tasks.units_per_turn = 4
    site.yard.tasks.first_units = 1
    site.is_slow = True
    site.slice()
    lookout = Lookout(site.door)
    lookout.begin(site.now_ms)
    return site, lookout


def test_nothing_is_new_before_all_is_known_that_was_there() -> None:
    site, lookout = surveying()
    assert site.yard.tasks.count() == 1
    assert not lookout.is_new("q1")
    assert not lookout.is_new("came meanwhile")
    assert lookout.was_known("q2"), "nobody can tell yet"
    while site.slice():
        pass
    assert not lookout.is_new("q49")
    assert not lookout.is_new("came meanwhile")
    assert lookout.is_new("new")
    assert not lookout.was_known("unknown")
    assert lookout.was_known("q3")
    assert lookout.is_new("q3")


def test_a_survey_that_begins_anew_is_the_only_one() -> None:
    site, lookout = surveying()
    lookout.begin(site.now_ms)
    assert site.yard.tasks.count() == 1
    while site.slice():
        pass
    assert lookout.is_new("new")


def test_a_glance_finds_what_has_gone_and_what_rests() -> None:
    site, lookout = surveying()
    while site.slice():
        pass
    del site.yard.queues["q7"]
    glance = lookout.glance(site.now_ms)
    turns = 0
    while glance.step(10, site.now_ms) >= 10:
        turns += 1
    assert turns > 8
    assert glance.tell() == [("queue:removed", {"queue": "q7"})]
    assert not lookout.was_known("q7")
