"""A body that is damaged on disk is never shown as if it were empty, whichever door asks."""

import json
from typing import Any

import pytest

from jobyard.engine.jobs.take import take
from jobyard.journal.damage import CORRUPT_TEXT
from jobyard.protocols.beanstalk.door import TERMS
from tests.support.doors.doors import BareDoors
from tests.support.site.storage import MemoryStorage

SIZE = 9000


@pytest.fixture
def site() -> BareDoors:
    """A port whose bodies are on disk only."""
    found = BareDoors(MemoryStorage())
    found.yard.bodies._budget = 0
    return found


def damage(site: BareDoors) -> None:
    """Damage the first body there is."""
    site.commit()
    site.yard.bodies.cool()
    heal(site)


def heal(site: BareDoors) -> None:
    """Flip the bit that is damaged, or will be."""
    job = site.yard.jobs.all()[0]
    assert job.body is None
    assert isinstance(site.storage, MemoryStorage)
    name = site.journal.segments[job.place >> 32].name
    site.storage.flip(name, (job.place & 0xFFFFFFFF) + 100, 3)


def metric(site: BareDoors, name: str) -> int:
    answer = site.api.ask("GET", "/v0/metrics", None, {"Accept": "application/json"})
    return int(answer.json[name])


def dead(site: BareDoors, queue: str = "q") -> Any:
    (entry,) = site.bunqueue().ok("Dlq", queue=queue)["entries"]
    return entry


def check_told(site: BareDoors) -> None:
    """Check that the damage is shown to operators."""
    (story,) = site.journal.damages.take_stories()
    assert story.startswith("the body of job 1 is damaged: 00")
    assert " at offset " in story
    assert site.journal.damages.summary() == "1 jobs with a damaged body"
    assert metric(site, "topics_corrupt_reads") > 0
    assert site.api.ask("GET", "/v0/health").json["status"] == "degraded"


def test_bunqueue_shows_a_reason_instead_of_data(site: BareDoors) -> None:
    client = site.bunqueue()
    job_id = client.push(data="x" * SIZE)
    client.push(data="whole")
    damage(site)
    for shown in (
        client.ok("GetJob", id=job_id)["job"],
        client.ok("GetJobs", queue="q", state="waiting")["jobs"][0],
    ):
        assert (shown["data"], shown["corrupt"], shown["failedReason"]) == (
            None,
            True,
            CORRUPT_TEXT,
        )
    check_told(site)
    client.ok("SubscribeEvents", queue="q")
    assert client.pull()["data"] == "whole"
    assert client.state(job_id) == "failed"
    assert [one["error"] for one in client.events if one["eventType"] == "failed"] == [CORRUPT_TEXT]
    assert dead(site)["job"]["corrupt"] is True
    heal(site)
    for place in (site, site.after_a_crash()):
        entry = dead(place)
        assert (entry["reason"], entry["error"]) == ("corrupt", CORRUPT_TEXT)
        stats = place.bunqueue().ok("GetDlqStats", queue="q")["data"]["stats"]
        assert stats["byReason"]["corrupt"] == 1


def test_glide_mq_refuses_to_read_the_data_and_tells_why_a_job_failed(site: BareDoors) -> None:
    library = site.library()
    library.add(data=json.dumps("x" * SIZE))
    damage(site)
    key = library.key("job:1")
    for command in (("HGET", key, "data"), ("HMGET", key, "id", "data"), ("HGETALL", key)):
        assert library.client.refused(*command) == f"ERR {CORRUPT_TEXT}"
    check_told(site)
    assert library.client.ask("HMGET", key, "id", "state") == [b"1", b"waiting"]
    info = library.client.ask("INFO", "persistence").decode()
    assert "jobyard_damaged_jobs:1" in info.splitlines()
    assert library.read() == []
    assert library.client.ask("HMGET", key, "state", "failedReason") == [
        b"failed",
        CORRUPT_TEXT.encode(),
    ]
    assert dead(site)["reason"] == "corrupt"
    assert [kind for kind, _ in library.events()][-1] == "failed"


def test_bunqueue_shows_no_placeholder_for_a_job_of_glide_mq(site: BareDoors) -> None:
    library = site.library()
    library.add(data=json.dumps("x" * SIZE))
    [(job_id, entry)] = library.read()
    library.complete(job_id, entry)
    damage(site)
    (shown,) = site.bunqueue().ok("GetJobs", queue="q", state="completed")["jobs"]
    assert (shown["data"], shown["corrupt"], shown["returnvalue"]) == (None, True, "ok")


def test_beanstalk_says_that_there_is_a_job_that_cannot_be_shown(site: BareDoors) -> None:
    client = site.beanstalk()
    client.say(b"use q\r\nwatch q\r\nput 0 0 60 %d\r\n" % SIZE + b"x" * SIZE + b"\r\n")
    damage(site)
    for command in (b"peek 1\r\n", b"peek-ready\r\n"):
        assert client.say(command) == b"INTERNAL_ERROR\r\n"
    check_told(site)
    assert b"state: ready" in client.say(b"stats-job 1\r\n")
    assert client.say(b"peek 2\r\n") == b"NOT_FOUND\r\n"
    assert client.say(b"reserve-with-timeout 0\r\n") == b"TIMED_OUT\r\n"
    assert b"state: buried" in client.say(b"stats-job 1\r\n")
    assert client.say(b"peek-buried\r\n") == b"INTERNAL_ERROR\r\n"
    entry = dead(site)
    assert (entry["reason"], entry["error"]) == ("corrupt", CORRUPT_TEXT)
    client.say(b"delete 1\r\n")
    assert site.journal.damages.count() == 0


def test_a_topic_fails_where_the_damage_begins_and_nowhere_else(site: BareDoors) -> None:
    api = site.api
    api.put("t", type="queue", durable=True)
    api.write("t", "first")
    api.write("t", "x" * SIZE)
    api.write("t", "third")
    site.commit()
    jobs = site.yard.jobs.all()
    jobs[0].body = b'"first"'
    assert isinstance(site.storage, MemoryStorage)
    place = int(jobs[1].place)
    site.storage.flip(site.journal.segments[place >> 32].name, (place & 0xFFFFFFFF) + 7, 0)
    page = api.diff("t")
    assert [one["$seq"] for one in page["records"]] == [1]
    assert (page["next_from_seq"], page["caught_up"]) == (1, False)
    answer = api.post("t/diff", {"from_seq": 1})
    assert answer.refusal == (500, "corrupt")
    assert answer.json["error"]["detail"] == {"first_seq": 2, "last_seq": 2}
    assert [one["$seq"] for one in api.diff("t", from_seq=2)["records"]] == [3]
    assert api.ask("GET", "/v0/health").json["damage"] == "1 jobs with a damaged body"


def test_who_waits_for_the_next_job_of_a_topic_is_told_too(site: BareDoors) -> None:
    site.api.put("t", type="queue", durable=True)
    site.api.write("t", "x" * SIZE)
    damage(site)
    reader = site.connect()
    path = site.api.ask("POST", "/v0/watch", {"topics": {"t": {"from_seq": 0}}}).json["stream_url"]
    reader.listen(path)
    assert [one.json["code"] for one in reader.events() if one.name == "error"] == ["corrupt"]


def test_the_rest_of_a_queue_is_taken_past_many_damaged_jobs(site: BareDoors) -> None:
    client = site.bunqueue()
    ids = [client.push(data=f"{number}" * SIZE) for number in range(5)]
    site.commit()
    assert isinstance(site.storage, MemoryStorage)
    for job in site.yard.jobs.all()[:4]:
        place = int(job.place)
        site.storage.flip(site.journal.segments[place >> 32].name, (place & 0xFFFFFFFF) + 9, 1)
    lease_set = site.beanstalk().lease_set
    lease = take(site.yard, [site.yard.queues["q"]], lease_set, TERMS, site.now_ms)
    assert lease is not None
    assert [client.state(one) for one in ids] == ["failed"] * 4 + ["active"]
    assert len(site.journal.damages.take_stories()) == 4
    site.check()
