"""One set of counters for all doors: what each shows as a total, and the table behind it."""

import re

import pytest

from tests.support.doors.doors import BareDoors
from tests.support.site.storage import MemoryStorage

_TOTAL = re.compile(r"^((?:bunqueue_jobs_\w+|jobyard_jobs)_total(?:{.*})?) (\d+)$", re.MULTILINE)


@pytest.fixture
def site() -> BareDoors:
    return BareDoors(MemoryStorage())


def prometheus(site: BareDoors) -> dict[str, int]:
    text = site.bunqueue().ok("Prometheus")["data"]["metrics"]
    found = _TOTAL.findall(text)
    return {name: int(number) for name, number in found}


def everywhere(site: BareDoors, event: str, total: int) -> None:
    """Check that all doors show the same number."""
    assert site.yard.counters.totals()[event] == total
    lines = site.api.ask("GET", "/v0/metrics").body.decode().splitlines()
    assert f"topics_jobs_{event} {total}" in lines
    assert f"# TYPE topics_jobs_{event} counter" in lines
    told = site.library().client.ask("INFO", "stats")
    assert f"jobyard_jobs_{event}:{total}\r\n" in told.decode()


def test_jobs_of_beanstalk_are_counted_where_bunqueue_looks(site: BareDoors) -> None:
    client = site.beanstalk()
    for _ in range(10):
        client.say(b"put 0 0 60 1\r\nx\r\n")
    for number in range(1, 10):
        assert client.say(b"reserve\r\n").startswith(b"RESERVED %d " % number)
    for number in range(1, 7):
        client.say(b"delete %d\r\n" % number)
    for number in range(7, 10):
        client.say(b"bury %d 0\r\n" % number)
    client.say(b"delete 10\r\n")
    told = prometheus(site)
    assert told["bunqueue_jobs_pushed_total"] == 10
    assert told["bunqueue_jobs_pulled_total"] == 9
    assert told["bunqueue_jobs_completed_total"] == 6
    assert told["bunqueue_jobs_failed_total"] == 3
    totals = site.bunqueue().ok("Metrics")["metrics"]
    assert (totals["totalPushed"], totals["totalCompleted"], totals["totalFailed"]) == (10, 6, 3)
    both = 'family="beanstalk",door="beanstalk"'
    assert told[f'jobyard_jobs_total{{event="finished",{both}}}'] == 6
    assert told['jobyard_jobs_total{event="removed",family="beanstalk",door=""}'] == 1
    for event, total in (("put", 10), ("taken", 9), ("finished", 6), ("dead", 3), ("removed", 1)):
        everywhere(site, event, total)
    assert b"total-jobs: 10\n" in client.say(b"stats\r\n")


def test_a_completion_of_glide_mq_counts_as_its_failure_does(site: BareDoors) -> None:
    library = site.library()
    for _ in range(2):
        library.add(data="{}")
    [(job_id, entry)] = library.read()
    library.activate(job_id, entry)
    library.complete(job_id, entry)
    [(job_id, entry)] = library.read()
    library.activate(job_id, entry)
    library.fail(job_id, entry)
    told = prometheus(site)
    assert told["bunqueue_jobs_pushed_total"] == 2
    assert told["bunqueue_jobs_pulled_total"] == 2
    assert told["bunqueue_jobs_completed_total"] == 1
    assert told["bunqueue_jobs_failed_total"] == 1
    everywhere(site, "failed", 1)


def test_jobs_of_topics_count_and_show_by_which_door_they_went(site: BareDoors) -> None:
    site.api.put("q", type="queue")
    site.api.write("q", 1, 2)
    site.api.claim("q", max=1)
    assert site.api.ok("q/ack", {"node": "w", "seqs": [1]})["acked"] == 1
    worker = site.bunqueue()
    worker.ok("ACK", id=worker.pull()["id"])
    told = prometheus(site)
    assert told["bunqueue_jobs_pushed_total"] == 2
    assert told["bunqueue_jobs_completed_total"] == 2
    for door in ("topics", "bunqueue"):
        row = f'jobyard_jobs_total{{event="finished",family="topics",door="{door}"}}'
        assert told[row] == 1


def test_leases_that_time_out_and_jobs_that_stall_are_counted_apart(site: BareDoors) -> None:
    client = site.beanstalk()
    client.say(b"put 0 0 1 1\r\nx\r\n")
    client.say(b"reserve\r\n")
    site.tick(2000)
    assert b"job-timeouts: 1\n" in site.beanstalk().say(b"stats\r\n")
    everywhere(site, "timed_out", 1)
    everywhere(site, "stalled", 0)


def test_a_restart_begins_at_zero(site: BareDoors) -> None:
    client = site.beanstalk()
    client.say(b"put 0 0 60 1\r\nx\r\n")
    client.say(b"reserve\r\ndelete 1\r\n")
    after = site.after_a_crash()
    assert set(after.yard.counters.totals().values()) == {0}


def test_what_a_full_disk_puts_off_is_counted_once_when_it_happens(site: BareDoors) -> None:
    worker, library = site.bunqueue(), site.library()
    gone = worker.push("other", ttl=1000)
    dead = library.add(ttl=1000).decode()
    site.commit()
    assert isinstance(site.storage, MemoryStorage)
    site.storage.capacity = 0
    site.journal.spares.clear()
    before = -1
    while site.journal.records_count != before:
        before = site.journal.records_count
        site.journal.append_clean()
    for _ in range(5):
        site.tick(1000)
    assert (worker.state(gone), library.state(dead)) == ("waiting", "waiting")
    totals = site.yard.counters.totals()
    assert (totals["removed"], totals["dead"]) == (0, 0)
    site.storage.capacity = None
    site.tick(1000)
    assert library.state(dead) == "failed"
    totals = site.yard.counters.totals()
    assert (totals["removed"], totals["dead"]) == (1, 1)
