"""An unhealthy server reports it at every door, and nothing while it is healthy."""

import pytest

from tests.support.doors.doors import BareDoors


@pytest.fixture
def site() -> BareDoors:
    return BareDoors()


def test_a_full_disk_is_reported_at_every_door(site: BareDoors) -> None:
    well = site.beanstalk().say(b"stats\r\n")
    assert b"disk-full" not in well
    assert well.count(b"\n") == 1 + 1 + 51 + 1
    assert site.api.ask("GET", "/v0/health").json["status"] == "ok"
    site.yard.journal.is_full = True
    assert b"\ndisk-full: true\n" in site.beanstalk().say(b"stats\r\n")
    told = site.api.ask("GET", "/v0/health")
    assert (told.status, told.json["status"], told.json["problems"]) == (
        200,
        "degraded",
        ["disk_full"],
    )
    assert "topics_disk_full 1" in site.api.ask("GET", "/v0/metrics").body.decode().splitlines()
    info = site.library().client.ask("INFO", "persistence").splitlines()
    assert {b"aof_last_write_status:err", b"jobyard_problems:disk_full"} <= set(info)
    assert site.bunqueue().ok("StorageStatus")["data"]["diskFull"] is True


def test_damage_is_told_beside_it(site: BareDoors) -> None:
    site.yard.journal.damages.note_body(7, "somewhere")
    assert b"\ndamaged: true\n" in site.beanstalk().say(b"stats\r\n")
    told = site.api.ask("GET", "/v0/health").json
    assert (told["status"], told["problems"]) == ("degraded", ["damaged"])
    assert told["damage"] == "1 jobs with a damaged body"
    info = site.library().client.ask("INFO", "persistence").splitlines()
    assert {b"aof_last_write_status:ok", b"jobyard_problems:damaged"} <= set(info)


def test_errors_that_cost_a_connection_are_counted_at_every_door(site: BareDoors) -> None:
    assert b"unexpected-errors" not in site.beanstalk().say(b"stats\r\n")
    site.yard.errors.survived_count = 3
    assert site.beanstalk().say(b"stats\r\n").endswith(b"\nunexpected-errors: 3\n\r\n")
    assert site.bunqueue().ok("Metrics")["metrics"]["unexpectedErrors"] == 3
    metrics = site.api.ask("GET", "/v0/metrics").body.decode().splitlines()
    assert "topics_unexpected_errors 3" in metrics
    info = site.library().client.ask("INFO", "stats").splitlines()
    assert b"jobyard_unexpected_errors:3" in info
