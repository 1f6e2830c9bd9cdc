import re

import pytest

from jobyard.protocols.beanstalk.statistics import list_of, of_job, of_server, of_tube
from tests.support.site.storage import MemoryStorage
from tests.support.site.yard import OpenYard


def words_of(text: str) -> list[str]:
    return text.split()


STATS = words_of("""
current-jobs-urgent current-jobs-ready current-jobs-reserved current-jobs-delayed
current-jobs-buried cmd-put cmd-peek cmd-peek-ready cmd-peek-delayed cmd-peek-buried cmd-reserve
cmd-reserve-with-timeout cmd-delete cmd-release cmd-use cmd-watch cmd-ignore cmd-bury cmd-kick
cmd-touch cmd-stats cmd-stats-job cmd-stats-tube cmd-list-tubes cmd-list-tube-used
cmd-list-tubes-watched cmd-pause-tube job-timeouts total-jobs max-job-size current-tubes
current-connections current-producers current-workers current-waiting total-connections pid version
rusage-utime rusage-stime uptime binlog-oldest-index binlog-current-index binlog-records-migrated
binlog-records-written binlog-max-size draining id hostname os platform""")
STATS_TUBE = words_of("""
name current-jobs-urgent current-jobs-ready current-jobs-reserved
current-jobs-delayed current-jobs-buried total-jobs current-using current-watching current-waiting
cmd-delete cmd-pause-tube pause pause-time-left""")
STATS_JOB = words_of("""
id tube state pri age delay ttr time-left file reserves timeouts releases buries
kicks""")


def read(text: str) -> dict[str, str]:
    """Read the YAML as the simplest client does."""
    first, *lines = text.split("\n")
    assert first == "---"
    assert lines.pop() == ""
    return dict(line.split(": ", 1) for line in lines)


@pytest.mark.parametrize("storage", [None, MemoryStorage()])
def test_stats_has_the_51_keys_of_beanstalkd_in_its_order(storage: MemoryStorage | None) -> None:
    site = OpenYard(storage)
    found = read(of_server(site.door, site.now_ms + 2500))
    assert list(found) == STATS
    assert len(STATS) == 51
    assert found["uptime"] == "2"
    assert found["rusage-utime"] == "1.250000"
    assert found["binlog-current-index"] == ("0" if storage is None else "2")
    assert [found[key] for key in ("version", "hostname", "os", "platform")] == [
        *('"1.13"', '"yard"', '"#1 SMP"', '"x86_64"'),
    ]
    site.door.is_draining = True
    assert read(of_server(site.door, site.now_ms))["draining"] == "true"


def test_stats_tube_has_its_14_keys() -> None:
    site = OpenYard()
    client = site.connect()
    client.say(b"pause-tube default 3\r\n")
    found = read(of_tube(site.queue(), site.now_ms + 1500))
    assert list(found) == STATS_TUBE
    assert (found["name"], found["pause"], found["pause-time-left"]) == ('"default"', "3", "1")
    site.jump(3000)
    found = read(of_tube(site.queue(), site.now_ms))
    assert (found["pause"], found["pause-time-left"], found["cmd-pause-tube"]) == ("0", "0", "1")


def test_stats_job_has_its_14_keys_in_every_state() -> None:
    site = OpenYard()
    client = site.connect()
    client.say(b"put 7 10 60 1\r\nx\r\n")
    job = site.yard.jobs.all()[0]
    site.jump(1500)
    found = read(of_job(job, site.now_ms))
    assert list(found) == STATS_JOB
    shown = "1 default delayed 7 1 10 60 8 0 0 0 0 0 0"
    assert [value.strip('"') for value in found.values()] == shown.split()
    client.say(b"kick-job 1\r\n")
    found = read(of_job(job, site.now_ms))
    assert (found["state"], found["time-left"], found["kicks"]) == ("ready", "0", "1")
    client.say(b"reserve\r\n")
    site.jump(1500)
    found = read(of_job(job, site.now_ms))
    assert (found["state"], found["time-left"], found["reserves"]) == ("reserved", "58", "1")
    client.say(b"bury 1 9\r\n")
    found = read(of_job(job, site.now_ms))
    assert (found["state"], found["pri"], found["buries"]) == ("buried", "9", "1")


def test_no_number_is_ever_negative() -> None:
    site = OpenYard()
    client = site.connect()
    client.say(b"put 0 0 1 1\r\nx\r\nput 0 1 1 1\r\nx\r\nreserve\r\npause-tube default 1\r\n")
    late = site.now_ms + 100_000
    early = site.now_ms - 100_000
    for now_ms in (late, early):
        texts = [of_server(site.door, now_ms), of_tube(site.queue(), now_ms)]
        texts += [of_job(job, now_ms) for job in site.yard.jobs.all()]
        assert not any(re.search(r": -\d", text) for text in texts)


def test_lists_are_never_quoted() -> None:
    site = OpenYard()
    assert list_of([site.queue(), site.queue("123"), site.queue("true")]) == (
        "---\n- default\n- 123\n- true\n"
    )
    assert list_of([]) == "---\n"
