from jobyard.engine.jobs.finish import KEEP_AS_ASKED, complete, fail
from jobyard.engine.jobs.move import erase, promote, revive
from jobyard.engine.jobs.queues import copy_settings, set_settings
from jobyard.engine.state import bus
from jobyard.engine.state.bus import Event, OpenListener
from jobyard.model.job import MSGPACK
from tests.support.site.site import NOW_MS
from tests.support.site.yard import OpenYard


class Ear(OpenListener):
    """A listener that remembers every event."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def happened(self, event: Event) -> None:
        """Remember it."""
        self.events.append(event)

    def kinds(self) -> list[str]:
        """Return what happened since the last time."""
        kinds = [event.kind for event in self.events]
        self.events.clear()
        return kinds


def is_on(site: OpenYard) -> bool:
    return site.yard.bus.is_on


def test_a_bus_is_on_while_someone_listens() -> None:
    site = OpenYard()
    first, second = Ear(), Ear()
    assert not is_on(site)
    site.yard.bus.add(first)
    site.yard.bus.add(second)
    site.enter()
    site.yard.bus.remove(first)
    assert is_on(site)
    site.enter()
    site.yard.bus.remove(second)
    assert not is_on(site)
    site.enter()
    assert [len(ear.events) for ear in (first, second)] == [1, 2]


def test_the_life_of_a_job_is_reported_in_order() -> None:
    site = OpenYard()
    ear = Ear()
    site.yard.bus.add(ear)
    job = site.enter(delay_ms=1000)
    promote(site.yard, job, site.now_ms)
    site.run(job)
    fail(site.yard, job, "no", site.now_ms, delay_ms=0)
    assert ear.kinds() == [
        bus.EventName.PUSHED,
        bus.EventName.WAITING,
        bus.EventName.PULLED,
        bus.EventName.FAILED,
        bus.EventName.RETRIED,
    ]
    site.run(job)
    site.jump(3000)
    assert ear.kinds() == [bus.EventName.PULLED, bus.EventName.STALLED, bus.EventName.RETRIED]
    complete(site.yard, site.run(job), b"r", MSGPACK, KEEP_AS_ASKED, site.now_ms)
    assert ear.events[-1].result == b"r"
    revive(site.yard, job, site.now_ms)
    erase(site.yard, job, site.now_ms)
    assert ear.kinds() == [
        bus.EventName.PULLED,
        bus.EventName.COMPLETED,
        bus.EventName.RETRIED,
        bus.EventName.REMOVED,
    ]


def test_the_last_failure_says_that_it_is() -> None:
    site = OpenYard()
    ear = Ear()
    site.yard.bus.add(ear)
    job = site.run(site.enter())
    fail(site.yard, job, "no", site.now_ms, is_final=True)
    event = ear.events[-1]
    assert (event.kind, event.error, event.is_final) == (bus.EventName.FAILED, "no", True)
    assert (event.job, event.queue, event.at_ms) == (job, site.queue(), NOW_MS)


def test_a_pause_is_reported_once() -> None:
    site = OpenYard()
    ear = Ear()
    site.yard.bus.add(ear)
    for is_paused in (True, True, False):
        settings = copy_settings(site.queue())
        settings.is_paused = is_paused
        set_settings(site.yard, site.queue(), settings, site.now_ms)
    assert ear.kinds() == [bus.EventName.PAUSED, bus.EventName.RESUMED]
