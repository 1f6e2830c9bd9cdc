"""Jobs of glide-mq as a bunqueue client sees them, takes them and ends them."""

from jobyard.engine.glidemq.add import GlideJobSpec, add, state_of
from jobyard.engine.glidemq.take import take_stream
from jobyard.engine.jobs.queues import open_queue
from jobyard.model.job import Job
from tests.support.doors.bunqueue import BareBunqueue
from tests.support.site.recount import recount


def added(place: BareBunqueue, **fields: object) -> Job:
    spec = GlideJobSpec("mail", b'{"to":"me","n":[1,null]}')
    for field, value in fields.items():
        assert hasattr(spec, field)
        setattr(spec, field, value)
    return add(place.yard, open_queue(place.yard, "q"), spec, place.now_ms)


def test_a_job_is_shown_with_its_name_its_data_and_its_attempts() -> None:
    place = BareBunqueue()
    client = place.connect()
    added(place, custom_id="mine")
    added(place, priority=4, max_attempts=3)
    jobs = [client.pull() for _ in range(2)]
    assert [job["data"] for job in jobs] == [{"to": "me", "n": [1, None]}] * 2
    assert [job["name"] for job in jobs] == ["mail", "mail"]
    assert [job["maxAttempts"] for job in jobs] == [1, 3]
    assert [job["priority"] for job in jobs] == [0, -4]
    recount(place.yard)


def test_an_acknowledged_job_is_done_there_too() -> None:
    place = BareBunqueue()
    client = place.connect()
    job = added(place, ordering="a")
    behind = added(place, ordering="a")
    name = client.pull()["id"]
    assert client.ok("PULL", queue="q")["job"] is None
    client.ok("ACK", id=name, result=[7])
    assert state_of(job) == "completed"
    assert client.pull()["id"] != name
    assert state_of(behind) == "active"
    recount(place.yard)


def test_a_failed_job_has_the_attempts_and_waits_of_its_own() -> None:
    place = BareBunqueue()
    client = place.connect()
    job = added(place, max_attempts=2, backoff_kind=2, backoff_ms=300)
    name = client.pull()["id"]
    client.ok("FAIL", id=name, error="no")
    assert (state_of(job), client.state(name)) == ("delayed", "delayed")
    place.tick(300)
    assert client.pull()["id"] == name
    client.ok("FAIL", id=name, error="no more")
    assert state_of(job) == "failed"
    (entry,) = client.ok("Dlq", queue="q")["jobs"]
    assert entry["id"] == name
    client.ok("RetryDlq", queue="q", jobId=name)
    assert (state_of(job), job.attempts) == ("waiting", 0)
    recount(place.yard)


def test_what_a_worker_of_glide_mq_has_is_not_to_be_had() -> None:
    place = BareBunqueue()
    client = place.connect()
    job = added(place)
    take_stream(place.yard, job.queue, "w", 1, place.now_ms)
    assert client.ok("PULL", queue="q")["job"] is None
    assert client.ok("GetJobCounts", queue="q")["counts"]["active"] == 1


def test_a_waiting_pull_gets_a_job_from_any_ready_list() -> None:
    for fields in ({"priority": 1}, {"is_lifo": True}, {"ordering": "a"}, {"delay_ms": 50}):
        place = BareBunqueue()
        client = place.connect()
        number = client.send("PULL", queue="q", timeout=1000)
        added(place, **fields)
        place.tick(50)
        answer = client.hear(number)
        assert answer is not None
        assert answer["job"]["name"] == "mail"
        recount(place.yard)


def test_jobs_of_all_ready_lists_and_ordering_groups_are_counted_and_listed() -> None:
    place = BareBunqueue()
    client = place.connect()
    names = 0
    for fields in ({}, {"priority": 1}, {"is_lifo": True}, {"ordering": "a"}, {"ordering": "a"}):
        added(place, **fields)
        names += 1
    assert client.ok("GetJobCounts", queue="q")["counts"]["waiting"] == names
    assert len(client.ok("GetJobs", queue="q", state="waiting")["jobs"]) == names
    assert client.ok("Drain", queue="q")["count"] == names
    recount(place.yard)


def test_obliteration_gives_nobody_a_job_that_goes() -> None:
    place = BareBunqueue()
    worker, other = place.connect(), place.connect()
    for _ in range(3):
        added(place, ordering="a")
    worker.pull()
    number = other.send("PULL", queue="q", timeout=1000)
    worker.ok("Obliterate", queue="q")
    assert place.yard.jobs.count == 0
    place.tick(1000)
    answer = other.hear(number)
    assert answer is not None
    assert answer["job"] is None


def test_draining_serves_a_puller_with_nothing_that_went() -> None:
    place = BareBunqueue()
    worker, other = place.connect(), place.connect()
    running = added(place, ordering="a")
    added(place, ordering="a")
    worker.pull()
    number = other.send("PULL", queue="q", timeout=1000)
    assert worker.ok("Drain", queue="q")["count"] == 1
    assert state_of(running) == "active"
    place.tick(1000)
    answer = other.hear(number)
    assert answer is not None
    assert answer["job"] is None
    recount(place.yard)
