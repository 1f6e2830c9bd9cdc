"""No client sees what is appended but not on disk yet, not even by a refusal.

One client's change is not committed. Any answer that discloses it to another client, "not found"
included, must wait for the batch that holds it: after a power cut it may not have happened.
"""

from collections.abc import Callable

import pytest

from jobyard.protocols.session import Session
from tests.support.doors.doors import BareDoors
from tests.support.site.storage import MemoryStorage

# Makes an uncommitted change; returns the session of another client that got to know it.
Scene = Callable[[BareDoors], Session]


def commit(site: BareDoors) -> None:
    """Make everything so far durable."""
    site.commit()


def topic_deleted(site: BareDoors) -> Session:
    site.api.put("t")
    commit(site)
    assert site.api.ask("DELETE", "/v0/topics/t").status == 200
    other = site.connect()
    assert other.ask("GET", "/v0/topics/t").status == 404
    return other.session


def topic_deleted_before_a_write(site: BareDoors) -> Session:
    site.api.put("t")
    commit(site)
    assert site.api.ask("DELETE", "/v0/topics/t").status == 200
    other = site.connect()
    assert other.post("t/diff", {}).status == 404
    return other.session


def router_made(site: BareDoors) -> Session:
    site.api.put("a")
    site.api.put("b")
    commit(site)
    router = {"source": "a", "dest": "b"}
    assert site.api.ask("PUT", "/v0/routers/r", router).status == 201
    other = site.connect()
    assert other.ask("PUT", "/v0/routers/s", {"source": "b", "dest": "a"}).status >= 400
    return other.session


def queue_claimed_empty(site: BareDoors) -> Session:
    site.api.put("q", type="queue")
    site.api.write("q", 1)
    commit(site)
    seqs = [one["$seq"] for one in site.api.claim("q", node="n")["claimed"]]
    assert site.api.post("q/ack", {"node": "n", "seqs": seqs}).status == 200
    other = site.connect()
    assert other.claim("q", node="n")["count"] == 0
    return other.session


def lease_gone(site: BareDoors) -> Session:
    site.api.put("q", type="queue")
    site.api.write("q", 1)
    seqs = [one["$seq"] for one in site.api.claim("q", node="n")["claimed"]]
    commit(site)
    assert site.api.post("q/ack", {"node": "n", "seqs": seqs}).status == 200
    other = site.connect()
    assert other.post("q/extend", {"node": "n", "seqs": seqs, "lease_ms": 1000}).status == 200
    return other.session


def job_cancelled_over_http(site: BareDoors) -> Session:
    job_id = site.bunqueue().push("q")
    commit(site)
    assert site.api.ask("DELETE", f"/jobs/{job_id}").status == 200
    other = site.connect()
    assert other.ask("GET", f"/jobs/{job_id}").status == 404
    return other.session


def job_cancelled(site: BareDoors) -> Session:
    job_id = site.bunqueue().push("q")
    commit(site)
    site.bunqueue().ok("Cancel", id=job_id)
    other = site.bunqueue()
    other.refused("GetJob", id=job_id)
    return other.session


def queue_drained(site: BareDoors) -> Session:
    site.bunqueue().push("q")
    commit(site)
    site.bunqueue().ok("Drain", queue="q")
    other = site.bunqueue()
    assert other.ok("PULL", queue="q")["job"] is None
    return other.session


def batch_pulled_empty(site: BareDoors) -> Session:
    site.bunqueue().push("q")
    commit(site)
    site.bunqueue().ok("Drain", queue="q")
    other = site.bunqueue()
    assert other.ok("PULLB", queue="q", count=5)["jobs"] == []
    return other.session


def job_removed_over_resp(site: BareDoors) -> Session:
    """An answer that discloses nothing is sent together with one that does."""
    library = site.library()
    job_id = library.add().decode()
    commit(site)
    parts = f"job:{job_id} stream scheduled completed failed events log:{job_id}"
    library.call("removeJob", parts.split(), job_id)
    other = site.library()
    other.client.feed(b"PING\r\nHGETALL %s\r\nPING\r\n" % library.key(f"job:{job_id}").encode())
    assert other.client.hear() == [b"PONG", [], b"PONG"]
    return other.client.session


def job_deleted(site: BareDoors) -> Session:
    site.beanstalk().say(b"put 0 0 60 1\r\nx\r\n")
    commit(site)
    site.beanstalk().say(b"delete 1\r\n")
    other = site.beanstalk()
    other.say(b"peek 1\r\n")
    return other.session


SCENES: tuple[Scene, ...] = (
    topic_deleted,
    topic_deleted_before_a_write,
    router_made,
    queue_claimed_empty,
    lease_gone,
    job_cancelled_over_http,
    job_cancelled,
    queue_drained,
    batch_pulled_empty,
    job_removed_over_resp,
    job_deleted,
)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_answers_wait_for_what_is_not_on_disk(scene: Scene) -> None:
    site = BareDoors(MemoryStorage())
    session = scene(site)
    journal = site.yard.journal
    assert session.awaits > journal.durable
