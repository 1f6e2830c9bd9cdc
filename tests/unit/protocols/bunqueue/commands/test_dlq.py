"""The dead-letter queue and its settings, without a socket."""

import pytest

from jobyard.engine.jobs.finish import bury
from jobyard.engine.jobs.put import put
from jobyard.engine.jobs.queues import open_queue
from jobyard.engine.jobs.take import take
from jobyard.model.family import BEANSTALK
from jobyard.model.job import DEAD, RAW, Job
from jobyard.model.lease import Proof, Terms
from tests.support.clients.bunqueue import EMPTY, Answer, BunqueueClient
from tests.support.doors.bunqueue import BareBunqueue
from tests.support.site.storage import MemoryStorage

WEEK_MS = 604_800_000


def entries(client: BunqueueClient, **fields: object) -> list[Answer]:
    answer = client.ok("Dlq", queue="q", **fields)
    assert [job["id"] for job in answer["jobs"]] == [one["job"]["id"] for one in answer["entries"]]
    found: list[Answer] = answer["entries"]
    return found


def data_of(found: list[Answer]) -> list[object]:
    return [entry["job"]["data"] for entry in found]


def bury_foreign(site: BareBunqueue) -> Job:
    """Bury a job of beanstalk in the same queue."""
    queue = open_queue(site.yard, "q")
    job = put(site.yard, queue, BEANSTALK, RAW, 0, 0, 60_000, b"foreign", site.now_ms)
    terms = Terms(BEANSTALK, Proof.CONNECTION, 0, "")
    lease = take(site.yard, [queue], site.door.orphans, terms, site.now_ms)
    assert lease is not None
    bury(site.yard, job, 0, site.now_ms)
    return job


def test_an_entry_survives_a_restart() -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    job_id = client.push(maxAttempts=2, backoff=1)
    for error in ("first", "second"):
        client.pull()
        site.tick(7)
        client.ok("FAIL", id=job_id, error=error)
        site.tick(10)
    [before] = entries(client)
    again = site.reboot()
    [after] = entries(again.connect())
    assert after == before
    assert [one["duration"] for one in after["attempts"]] == [7, 7]
    assert [one["reason"] for one in after["attempts"]] == [
        "explicit_fail",
        "max_attempts_exceeded",
    ]
    assert after["expiresAt"] == after["enteredAt"] + WEEK_MS


def test_pages_and_counts() -> None:
    client = BareBunqueue().connect()
    for n in range(6):
        client.bury(data=n)
    assert data_of(entries(client, offset=4)) == [4, 5]
    assert data_of(entries(client, limit=2, offset=1)) == [1, 2]
    assert data_of(entries(client, count=3, filter={"offset": 2, "limit": 9})) == [2, 3, 4]
    assert entries(client, count=0) == []


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"count": -1}, "count must be at least 0"),
        ({"count": "x"}, "count must be a number"),
        ({"filter": 5}, "filter must be an object"),
        ({"filter": {"reason": 5}}, "filter.reason must be a string"),
        ({"filter": {"olderThan": "x"}}, "filter.olderThan must be a number"),
        ({"filter": {"newerThan": True}}, "filter.newerThan must be a number"),
        ({"filter": {"offset": 1.5}}, "filter.offset must be an integer"),
        ({"filter": {"limit": -1}}, "filter.limit must be at least 0"),
    ],
)
def test_a_bad_choice_is_refused(fields: dict[str, object], error: str) -> None:
    client = BareBunqueue().connect()
    assert client.refused("Dlq", queue="q", **fields) == error
    assert client.refused("RetryDlq", queue="q", **fields) == error


def test_an_answer_ends_before_it_is_too_long() -> None:
    client = BareBunqueue().connect()
    for n in range(4):
        client.bury(data=f"{n}" + "x" * (9 << 20))
    assert [str(one)[0] for one in data_of(entries(client))] == ["0", "1"]
    assert [str(one)[0] for one in data_of(entries(client, offset=2))] == ["2", "3"]


def test_what_is_expired_or_due_can_be_asked_for() -> None:
    site = BareBunqueue()
    client = site.connect()
    client.bury(data=1)
    config = {"autoRetry": True, "autoRetryInterval": 100, "maxAge": 50}
    assert entries(client, filter={"expired": True}) == []
    assert entries(client, filter={"retriable": True}) == []
    client.ok("SetDlqConfig", queue="q", config=config)
    site.now_ms += 60
    assert data_of(entries(client, filter={"expired": True})) == [1]
    assert entries(client, filter={"retriable": True}) == []
    stats = client.ok("GetDlqStats", queue="q")["data"]["stats"]
    assert (stats["expired"], stats["pendingRetry"]) == (1, 0)
    site.now_ms += 60
    assert data_of(entries(client, filter={"retriable": True})) == [1]
    stats = client.ok("GetDlqStats", queue="q")["data"]["stats"]
    assert (stats["expired"], stats["pendingRetry"]) == (1, 1)
    site.tick(0)
    assert entries(client) == []
    site.check()


def test_an_automatic_retry_reaches_a_waiting_client() -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    config = {"autoRetry": True, "autoRetryInterval": 1000, "maxAutoRetries": 2}
    client.ok("SetDlqConfig", queue="q", config=config)
    job_id = client.bury()
    [entry] = entries(client)
    assert entry["nextRetryAt"] == entry["enteredAt"] + 1000
    number = client.send("PULL", queue="q", timeout=5000)
    site.tick(999)
    assert client.hear(number) is None
    site.tick(1)
    answer = client.hear(number)
    assert answer is not None
    assert (answer["job"]["id"], answer["job"]["attempts"]) == (job_id, 0)
    client.ok("FAIL", id=job_id, error="again", unrecoverable=True)
    again = site.reboot()
    [entry] = entries(again.connect())
    assert (entry["retryCount"], entry["nextRetryAt"]) == (1, entry["enteredAt"] + 2000)
    again.tick(2000)
    assert again.connect().state(job_id) == "waiting"
    again.check()


def test_buried_jobs_of_beanstalk_are_in_the_same_line() -> None:
    site = BareBunqueue()
    client = site.connect()
    first = client.bury(data="ours")
    foreign = bury_foreign(site)
    found = entries(client)
    assert [(one["job"]["data"], one["reason"]) for one in found] == [
        ("ours", "explicit_fail"),
        ("foreign", "buried"),
    ]
    assert (found[1]["error"], found[1]["expiresAt"], found[1]["attempts"]) == (None, None, [])
    stats = client.ok("GetDlqStats", queue="q")["data"]["stats"]
    assert (stats["total"], stats["byReason"]["buried"]) == (2, 1)
    assert client.ok("RetryDlq", queue="q", filter={"reason": "buried"}) == {"count": 1}
    assert foreign.counters().kicks == 1
    bury_foreign(site)
    assert client.ok("PurgeDlq", queue="q") == {"count": 2}
    assert client.state(first) == "unknown"
    site.check()


def test_a_job_is_only_found_in_its_own_queue() -> None:
    client = BareBunqueue().connect()
    dead_id = client.bury()
    done_id = client.finish()
    assert client.ok("RetryDlq", queue="other", jobId=dead_id) == {"count": 0}
    assert client.ok("RetryCompleted", queue="other", id=done_id) == {"count": 0}
    assert client.ok("RemoveDlqJob", queue="other", jobId=dead_id)["data"] == {"removed": False}
    assert client.ok("RetryDlq", queue="q", jobId=done_id) == {"count": 0}
    assert client.ok("RetryCompleted", queue="q", id=dead_id) == {"count": 0}


def test_done_jobs_run_again() -> None:
    site = BareBunqueue()
    client = site.connect()
    ids = []
    for _ in range(4):
        ids.append(client.finish())
        site.tick(1000)
    assert client.ok("RetryCompleted", queue="q", id=ids[3]) == {"count": 1}
    assert client.pull()["id"] == ids[3]
    until = site.door.wall_ms(site.now_ms) - 3000
    assert client.ok("RetryCompleted", queue="q", timestamp=until, count=1) == {"count": 1}
    assert client.pull()["id"] == ids[0]
    assert client.ok("RetryCompleted", queue="q", timestamp=until) == {"count": 1}
    assert client.pull()["id"] == ids[1]
    assert client.ok("RetryCompleted", queue="q") == {"count": 1}
    assert client.ok("RetryCompleted", queue="q") == {"count": 0}
    site.check()


@pytest.mark.parametrize(
    ("cmd", "config", "error"),
    [
        ("SetDlqConfig", {"autoRetry": 1}, "autoRetry must be a boolean"),
        ("SetDlqConfig", {"autoRetryInterval": 0}, "autoRetryInterval must be at least 1"),
        ("SetDlqConfig", {"maxAge": -5}, "maxAge must be at least 0"),
        ("SetDlqConfig", {"maxEntries": "x"}, "maxEntries must be a number"),
        ("SetStallConfig", {"enabled": "yes"}, "enabled must be a boolean"),
        ("SetStallConfig", {"maxStalls": -1}, "maxStalls must be at least 0"),
        ("SetStallConfig", [], "config must be an object"),
    ],
)
def test_a_bad_setting_changes_nothing(cmd: str, config: object, error: str) -> None:
    site = BareBunqueue()
    client = site.connect()
    assert client.refused(cmd, queue="q", config=config) == error
    assert "q" not in site.yard.queues


def test_settings_survive_a_restart_and_a_default_is_none() -> None:
    site = BareBunqueue(MemoryStorage())
    client = site.connect()
    client.ok("SetDlqConfig", queue="q", config={"maxAge": None, "maxEntries": 5})
    client.ok("SetStallConfig", queue="q", config={"gracePeriod": 1})
    client.ok("SetStallConfig", queue="plain", config={"gracePeriod": 5000})
    assert "plain" not in site.yard.queues
    client = site.reboot().connect()
    config = client.ok("GetDlqConfig", queue="q")["config"]
    assert (config["maxAge"], config["maxEntries"]) == (None, 5)
    assert client.ok("GetStallConfig", queue="q")["config"]["gracePeriod"] == 1


def test_a_lower_number_counts_at_once() -> None:
    site = BareBunqueue()
    client = site.connect()
    for n in range(5):
        client.bury(data=n)
    assert client.ok("SetDlqConfig", queue="q", config={"maxEntries": 2}) == EMPTY
    site.tick(0)
    assert data_of(entries(client)) == [3, 4]
    site.check()


def test_a_full_disk_refuses_what_needs_room() -> None:
    storage = MemoryStorage()
    site = BareBunqueue(storage)
    client = site.connect()
    job_id = client.bury()
    site.commit()
    storage.capacity = storage.used()
    site.yard.journal.spares.clear()
    # No file of the journal has room for the whole of it any more.
    site.job(job_id).ensure_details().protocol_fields = (
        b"\x80" + b"x" * site.yard.journal.segment_size
    )
    assert client.refused("RetryDlq", queue="q") == "Storage full"
    assert site.job(job_id).state == DEAD
