"""Authentication over HTTP, waiting calls, health, and the headers for browsers."""

import pytest

from jobyard.errors import StartRefused
from jobyard.model.secrets import digest_of
from jobyard.protocols.bunqueue.http.api import CALLERS_MAX
from tests.support.clients.bunqueue import BunqueueClient
from tests.support.clients.http import BunqueueHttpClient
from tests.support.doors.http import BareHttp
from tests.support.site.storage import MemoryStorage


@pytest.fixture
def site() -> BareHttp:
    return BareHttp()


@pytest.fixture
def http(site: BareHttp) -> BunqueueHttpClient:
    return site.call()


@pytest.fixture
def tcp(site: BareHttp) -> BunqueueClient:
    return site.connect()


# -- health ------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/healthz", "/live"])
def test_a_live_server_says_ok(http: BunqueueHttpClient, path: str) -> None:
    reply = http.ask("GET", path)
    assert (reply.status, reply.body) == (200, b"OK")
    assert reply.headers["content-type"].startswith("text/plain")


def test_health_tells_queues_connections_and_memory(
    site: BareHttp, http: BunqueueHttpClient, tcp: BunqueueClient
) -> None:
    tcp.push()
    site.tick(2500)
    said = http.ok("GET", "/health")
    assert said == {
        "status": "healthy",
        "uptime": 2,
        "version": "2.9.5",
        "queues": {"waiting": 1, "active": 0, "delayed": 0, "completed": 0, "dlq": 0},
        "connections": {"tcp": 1, "ws": 0, "sse": 0},
        "memory": {"heapUsed": 12, "heapTotal": 12, "rss": 12},
    }


@pytest.mark.parametrize("path", ["/health", "/ready"])
def test_a_server_whose_disk_fails_is_not_well(
    site: BareHttp, http: BunqueueHttpClient, path: str
) -> None:
    site.life.error = "no space left"
    site.life.error_since_ms = site.now_ms
    reply = http.ask("GET", path)
    assert (reply.status, reply.json["ok"]) == (503, False)
    assert reply.json["storage"]["error"] == "no space left"


def test_damage_on_the_disk_is_reported_and_stops_nobody(
    site: BareHttp, http: BunqueueHttpClient
) -> None:
    damages = site.yard.journal.damages
    damages.note_body(7, "0000000001.journal at offset 99")
    damages.note_body(7, "0000000001.journal at offset 99")
    damages.note_segment(1, "0000000001.journal at offset 64: a batch cannot be read")
    assert len(damages.take_stories()) == 2
    health = http.ask("GET", "/health")
    assert (health.status, health.json["ok"], health.json["status"]) == (200, True, "degraded")
    assert health.json["problems"] == ["damaged"]
    assert health.json["storage"]["damage"] == {"jobs": 1, "records": 0, "segments": 1}
    assert http.ask("GET", "/ready").status == 200
    lines = http.ask("GET", "/prometheus").body.decode().splitlines()
    assert "jobyard_damaged_jobs 1" in lines
    assert "jobyard_damaged_segments 1" in lines
    assert "jobyard_corrupt_reads_total 3" in lines
    assert "bunqueue_storage_degraded 1" in lines
    damages.forget_body(7)
    damages.forget_segment(1)
    assert http.ok("GET", "/health")["status"] == "healthy"


def test_a_full_disk_is_reported_as_a_fault_of_the_server() -> None:
    storage = MemoryStorage()
    site = BareHttp(storage)
    http = site.call()
    job_id = http.ok("POST", "/queues/q/jobs", {"data": 1})["id"]
    assert http.ok("GET", "/queues/q/jobs")["job"]["id"] == job_id
    site.commit()
    storage.capacity = storage.used()
    site.yard.journal.spares.clear()
    big = {"data": "x" * 3000}
    while (reply := http.ask("POST", "/queues/q/jobs", big)).status == 200:
        pass
    assert (reply.status, reply.error) == (507, "Storage full")
    health = http.ask("GET", "/health")
    assert (health.status, health.json["status"]) == (503, "degraded")
    assert (health.json["storage"]["diskFull"], health.json["problems"]) == (True, ["disk_full"])
    assert http.ask("GET", "/ready").status == 503
    # What ends a job finds room all the same.
    assert http.ok("POST", f"/jobs/{job_id}/ack") == {}


def test_a_server_that_drains_is_not_ready_and_takes_no_jobs(
    site: BareHttp, http: BunqueueHttpClient
) -> None:
    site.door.is_draining = True
    assert http.ask("GET", "/ready").status == 503
    reply = http.ask("POST", "/queues/q/jobs", {"data": 1})
    assert (reply.status, reply.error) == (503, "Server is shutting down")


def test_a_scraper_is_told_in_its_format(http: BunqueueHttpClient) -> None:
    reply = http.ask("GET", "/prometheus")
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert b'bunqueue_connections{transport="tcp"} 0\n' in reply.body


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("text/plain", "text/plain; version=0.0.4; charset=utf-8"),
        (
            "application/openmetrics-text;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1",
            "text/plain; version=0.0.4; charset=utf-8",
        ),
        ("text/plain;q=0", "application/json"),
        ("application/json, text/plain, */*", "application/json"),
        ("*/*", "application/json"),
        ("", "application/json"),
    ],
)
def test_metrics_are_text_for_clients_that_accept_it(
    http: BunqueueHttpClient, accept: str, kind: str
) -> None:
    reply = http.ask("GET", "/metrics", Accept=accept)
    assert (reply.status, reply.headers["content-type"]) == (200, kind)
    assert (b"# HELP bunqueue_jobs_waiting" in reply.body) == kind.startswith("text/")


# -- tokens ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("Bearer right", 200),
        ("bearer other", 200),
        ("Bearer wrong", 401),
        ("Bearer ", 401),
        ("right", 401),
        ("Bearer \xff", 401),
        ("", 401),
    ],
)
def test_only_clients_with_a_token_may_call(
    site: BareHttp, http: BunqueueHttpClient, header: str, status: int
) -> None:
    site.door.tokens = [digest_of(b"right"), digest_of(b"other")]
    reply = http.ask("GET", "/stats", Authorization=header)
    assert reply.status == status
    if status == 401:
        assert reply.error == "Unauthorized"
    assert reply.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("path", ["/health", "/healthz", "/live", "/ready", "/prometheus"])
def test_who_watches_over_the_server_needs_no_token(
    site: BareHttp, http: BunqueueHttpClient, path: str
) -> None:
    site.door.tokens = [digest_of(b"right")]
    assert http.ask("GET", path).status == 200


def test_scrapers_may_be_asked_for_a_token_too(site: BareHttp, http: BunqueueHttpClient) -> None:
    site.door.guards_metrics = True
    reply = http.ask("GET", "/prometheus")
    error = "Metrics authentication is enabled but no tokens are configured"
    assert (reply.status, reply.error) == (503, error)
    site.door.tokens = [digest_of(b"right")]
    assert http.ask("GET", "/prometheus").status == 401
    assert http.ask("GET", "/prometheus", Authorization="Bearer right").status == 200


def test_a_refused_caller_changes_nothing(site: BareHttp, http: BunqueueHttpClient) -> None:
    site.door.tokens = [digest_of(b"right")]
    assert http.ask("POST", "/queues/q/jobs", {"data": 1}).status == 401
    assert "q" not in site.yard.queues


# -- the limit ---------------------------------------------------------------------------------


def test_callers_without_a_name_share_one_count(site: BareHttp, http: BunqueueHttpClient) -> None:
    site.door.requests_max = 2
    other = site.call()
    assert http.ask("GET", "/ping").status == 200
    assert other.ask("GET", "/ping").status == 200
    reply = http.ask("GET", "/ping")
    assert (reply.status, reply.error) == (429, "Rate limit exceeded")
    assert reply.headers["retry-after"] == "60"
    assert reply.headers["access-control-allow-origin"] == "*"
    assert http.ask("GET", "/health").status == 200
    site.tick(60_000)
    assert http.ask("GET", "/ping").status == 200


def test_what_a_caller_says_of_itself_gives_it_no_more_requests(
    site: BareHttp, http: BunqueueHttpClient
) -> None:
    site.door.requests_max = 1
    assert http.ask("GET", "/ping", X_Forwarded_For="1.2.3.4").status == 200
    assert http.ask("GET", "/ping", X_Forwarded_For="5.6.7.8").status == 429
    assert http.ask("GET", "/ping", X_Real_IP="9.9.9.9").status == 429


def test_callers_are_distinguished_by_what_a_named_proxy_says(
    site: BareHttp, http: BunqueueHttpClient
) -> None:
    # Connections without a socket come from nowhere, as those by a socket file do.
    site.http.proxies.trust("unix, 10.0.0.0/8, fd00::1")
    site.door.requests_max = 1
    for first, again in (
        ({"X_Forwarded_For": "1.2.3.4"}, {"X_Forwarded_For": "6.6.6.6, 1.2.3.4, 10.1.1.1"}),
        ({"X_Forwarded_For": "2.2.2.2, ::ffff:10.9.9.9"}, {"X_Forwarded_For": "2.2.2.2, fd00::1"}),
        ({"X_Real_IP": "5.6.7.8"}, {"X_Real_IP": "5.6.7.8"}),
        ({}, {}),
    ):
        assert http.ask("GET", "/ping", **first).status == 200
        assert http.ask("GET", "/ping", **again).status == 429


@pytest.mark.parametrize("text", ["proxy.example", "10.0.0.0/99", "1.2.3"])
def test_a_proxy_is_named_by_its_address(site: BareHttp, text: str) -> None:
    with pytest.raises(StartRefused, match="--trusted-proxy"):
        site.http.proxies.trust(text)


def test_names_of_callers_take_no_more_than_so_much_memory(
    site: BareHttp, http: BunqueueHttpClient
) -> None:
    site.http.proxies.trust("unix")
    site.door.requests_max = 1
    for number in range(CALLERS_MAX):
        assert http.ask("GET", "/ping", X_Real_IP=f"caller {number}").status == 200
    assert http.ask("GET", "/ping", X_Real_IP="one more").status == 200
    assert http.ask("GET", "/ping", X_Real_IP="and another").status == 429


def test_commands_of_one_caller_are_not_held_against_another(
    site: BareHttp, http: BunqueueHttpClient
) -> None:
    site.http.proxies.trust("unix")
    site.door.requests_max = 5
    for number in range(20):
        assert http.ask("GET", "/ping", X_Real_IP=f"caller {number}").status == 200


# -- what is sent ------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate"])
def test_a_compressed_body_is_refused_as_such(
    site: BareHttp, http: BunqueueHttpClient, encoding: str
) -> None:
    reply = http.ask("POST", "/queues/q/jobs", b"\x1f\x8b", Content_Encoding=encoding)
    assert (reply.status, reply.error) == (415, "the body must not be compressed")
    assert "q" not in site.yard.queues
    http.ok("POST", "/queues/q/jobs", {"data": 1}, Content_Encoding="identity")


# -- browsers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/queues/q/jobs", "/health", "/nowhere"])
def test_a_browser_may_ask_from_any_page(
    site: BareHttp, http: BunqueueHttpClient, path: str
) -> None:
    site.door.tokens = [digest_of(b"right")]
    reply = http.ask("OPTIONS", path)
    assert reply.status == 204
    assert reply.headers["access-control-allow-origin"] == "*"
    assert reply.headers["access-control-allow-methods"] == "GET, POST, PUT, DELETE, OPTIONS"
    assert "Content-Type, Authorization" in reply.headers["access-control-allow-headers"]


def test_one_origin_may_be_let_in_alone() -> None:
    site = BareHttp(origin="https://example.com")
    reply = site.call().ask("GET", "/ping", Origin="https://example.com")
    assert reply.headers["access-control-allow-origin"] == "https://example.com"
    assert reply.headers["vary"] == "Origin"
    other = site.call().ask("GET", "/ping", Origin="https://example.org")
    assert "access-control-allow-origin" not in other.headers
    assert other.headers["vary"] == "Origin"


# -- waiting -----------------------------------------------------------------------------------


def test_a_pull_waits_for_a_job(
    site: BareHttp, http: BunqueueHttpClient, tcp: BunqueueClient
) -> None:
    http.send("GET", "/queues/q/jobs?timeout=5000")
    assert http.hear() is None
    job_id = tcp.push(data={"n": 1})
    reply = http.hear()
    assert reply is not None
    assert reply.json["job"]["id"] == job_id
    http.close()
    assert tcp.state(job_id) == "active"
    site.check()


def test_a_pull_of_many_waits_and_takes_what_is_there(
    site: BareHttp, http: BunqueueHttpClient, tcp: BunqueueClient
) -> None:
    http.send("POST", "/queues/q/jobs/pull-batch", {"count": 5, "timeout": 5000})
    assert http.hear() is None
    tcp.ok("PUSHB", queue="q", jobs=[{"data": 1}, {"data": 2}])
    reply = http.hear()
    assert reply is not None
    assert [job["data"] for job in reply.json["jobs"]] == [1, 2]
    site.check()


def test_a_pull_that_waited_long_enough_is_answered(
    site: BareHttp, http: BunqueueHttpClient
) -> None:
    http.send("GET", "/queues/q/jobs?timeout=5000")
    site.tick(4999)
    assert http.hear() is None
    site.tick(1)
    reply = http.hear()
    assert reply is not None
    assert reply.json == {"ok": True, "job": None}
    assert "q" not in site.yard.queues


def test_a_caller_that_leaves_takes_no_job(
    site: BareHttp, http: BunqueueHttpClient, tcp: BunqueueClient
) -> None:
    http.send("GET", "/queues/q/jobs?timeout=5000")
    http.close()
    job_id = tcp.push()
    assert tcp.state(job_id) == "waiting"
    site.tick(6000)
    site.check()


def test_a_caller_that_has_sent_its_last_is_answered_at_once(
    site: BareHttp, http: BunqueueHttpClient
) -> None:
    http.send("GET", "/queues/q/jobs?timeout=5000")
    http.session.end_input(site.now_ms)
    http.collect()
    reply = http.hear()
    assert reply is not None
    assert reply.json == {"ok": True, "job": None}
    assert http.session.is_finished


def test_requests_sent_ahead_wait_behind_one_that_waits(
    site: BareHttp, http: BunqueueHttpClient, tcp: BunqueueClient
) -> None:
    http.send("GET", "/queues/q/jobs?timeout=5000")
    http.send("GET", "/queues/q/count")
    assert http.unread == b""
    tcp.push()
    first = http.hear()
    second = http.hear()
    assert first is not None
    assert first.json["job"] is not None
    assert second is not None
    assert second.json == {"ok": True, "count": 1}
    site.check()


def test_a_job_is_waited_for_until_it_is_done(
    site: BareHttp, http: BunqueueHttpClient, tcp: BunqueueClient
) -> None:
    job_id = tcp.push()
    http.send("POST", f"/jobs/{job_id}/wait", {"timeout": 5000})
    assert http.hear() is None
    tcp.pull()
    tcp.ok("ACK", id=job_id, result={"sum": 3})
    reply = http.hear()
    assert reply is not None
    assert reply.json == {"ok": True, "completed": True, "result": {"sum": 3}}
    late = site.call()
    assert late.ok("POST", f"/jobs/{job_id}/wait")["completed"] is True


def test_a_job_is_waited_for_no_longer_than_asked(
    site: BareHttp, http: BunqueueHttpClient, tcp: BunqueueClient
) -> None:
    job_id = tcp.push()
    http.send("POST", f"/jobs/{job_id}/wait", {"timeout": 5000})
    site.tick(5000)
    reply = http.hear()
    assert reply is not None
    assert reply.json == {"ok": True, "completed": False}


def test_many_may_wait_at_once(site: BareHttp, tcp: BunqueueClient) -> None:
    """More than one connection of the bunqueue door may."""
    callers = [site.call() for _ in range(120)]
    for caller in callers:
        caller.send("GET", "/queues/q/jobs?timeout=5000")
    ids = {tcp.push() for _ in callers}
    taken = set()
    for caller in callers:
        reply = caller.hear()
        assert reply is not None
        taken.add(reply.json["job"]["id"])
    assert taken == ids
    site.check()


# -- read-only calls ---------------------------------------------------------------------------


def test_a_head_takes_no_job(http: BunqueueHttpClient, tcp: BunqueueClient) -> None:
    job_id = tcp.push()
    assert http.ask("HEAD", "/queues/q/jobs").status == 405
    assert tcp.state(job_id) == "waiting"
