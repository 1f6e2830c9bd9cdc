"""bunqueue's HTTP API, event streams and WebSockets against a server process."""

import contextlib
import signal
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers.bunqueue import ORIGINAL, REPLY_S, Client, Yard, durable, running
from tests.support.servers.bunqueue_http import CLOSE, PING, Http, Socket

pytestmark = pytest.mark.skipif(bool(ORIGINAL), reason="where its HTTP is, is not known")

HTTP = ("--http", "127.0.0.1:0")


@pytest.fixture(scope="module", params=["epoll", "asyncio"])
def yard(request: pytest.FixtureRequest) -> Iterator[Yard]:
    """A server in memory, on one loop and on the other."""
    with running("--memory", "--loop", request.param, *HTTP) as made:
        yield made


@pytest.fixture
def http(yard: Yard) -> Iterator[Http]:
    with contextlib.closing(Http(yard.http)) as made:
        yield made


@pytest.fixture
def tcp(yard: Yard) -> Iterator[Client]:
    with Client(yard.bunqueue) as made:
        yield made


@pytest.fixture
def socket(yard: Yard) -> Iterator[Socket]:
    with contextlib.closing(Socket(yard.http)) as made:
        yield made


def fetch(yard: Yard, path: str) -> tuple[int, str, bytes]:
    """Ask as a stranger would: one connection, no keeping it."""
    host, port = yard.http
    with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=REPLY_S) as response:
        return response.status, response.headers["Content-Type"], response.read()


# -- the table of the protocol's document ------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "kind", "start"),
    [
        ("/health", "application/json", b'{"ok":true,"status":"healthy"'),
        ("/healthz", "text/plain; charset=utf-8", b"OK"),
        ("/ready", "application/json", b'{"ok":true,"ready":true}'),
        ("/prometheus", "text/plain; version=0.0.4; charset=utf-8", b"# HELP bunqueue_jobs_"),
        ("/stats", "application/json", b'{"ok":true,"stats":{"queued":'),
    ],
)
def test_the_server_tells_how_it_is(yard: Yard, path: str, kind: str, start: bytes) -> None:
    status, content_type, body = fetch(yard, path)
    assert (status, content_type) == (200, kind)
    assert body.startswith(start)


def test_a_job_lives_over_http(http: Http, queue: str) -> None:
    job_id = http.ok("POST", f"/queues/{queue}/jobs", {"data": {"a": "ü"}, "priority": 5})["id"]
    job = http.ok("GET", f"/queues/{queue}/jobs")["job"]
    assert (job["id"], job["data"], job["priority"]) == (job_id, {"a": "ü"}, 5)
    assert http.ok("POST", f"/jobs/{job_id}/ack", {"result": [1, None, 2.5]}) == {}
    shown = http.ok("GET", f"/jobs/{job_id}")["job"]
    assert (shown["state"], shown["returnvalue"]) == ("completed", [1, None, 2.5])


def test_a_job_fails_over_http(http: Http, queue: str) -> None:
    job_id = http.ok("POST", f"/queues/{queue}/jobs", {"data": 1, "maxAttempts": 1})["id"]
    http.ok("GET", f"/queues/{queue}/jobs")
    assert http.ok("POST", f"/jobs/{job_id}/fail", {"error": "boom"}) == {}
    assert http.ok("GET", f"/jobs/{job_id}")["job"]["failedReason"] == "boom"
    assert http.ok("GET", f"/queues/{queue}/dlq")["total"] == 1


# -- calls -------------------------------------------------------------------------------------


def test_a_call_sees_what_the_other_door_did(http: Http, tcp: Client, queue: str) -> None:
    job_id = tcp.push(queue, {"n": 1})
    assert http.ok("GET", f"/jobs/{job_id}/state")["state"] == "waiting"
    job = http.ok("GET", f"/queues/{queue}/jobs")["job"]
    assert job["id"] == job_id
    assert tcp.ok("ACK", id=job_id) == {}


def test_a_pull_waits_for_the_other_door(http: Http, tcp: Client, queue: str) -> None:
    http.send("GET", f"/queues/{queue}/jobs?timeout=8000")
    tcp.ok("Ping")
    job_id = tcp.push(queue)
    status, body = http.receive()
    assert status == 200
    assert job_id.encode() in body
    assert http.ok("POST", f"/jobs/{job_id}/ack") == {}


def test_a_job_stays_with_a_caller_that_left(yard: Yard, tcp: Client, queue: str) -> None:
    job_id = tcp.push(queue)
    with contextlib.closing(Http(yard.http)) as caller:
        assert caller.ok("GET", f"/queues/{queue}/jobs")["job"]["id"] == job_id
    assert tcp.ok("Ping")
    assert tcp.state(job_id) == "active"


def test_a_job_is_waited_for(http: Http, tcp: Client, queue: str) -> None:
    job_id = tcp.push(queue)
    http.send("POST", f"/jobs/{job_id}/wait", {"timeout": 8000})
    tcp.pull(queue)
    tcp.ok("ACK", id=job_id, result="fine")
    status, body = http.receive()
    assert (status, body) == (200, b'{"ok":true,"completed":true,"result":"fine"}')


def test_a_great_batch_goes_in_and_comes_out(http: Http, queue: str) -> None:
    jobs = [{"data": {"n": n, "text": "x" * 1000}} for n in range(2000)]
    ids = http.ok("POST", f"/queues/{queue}/jobs/bulk", {"jobs": jobs})["ids"]
    assert len(ids) == 2000
    listed = http.ok("GET", f"/queues/{queue}/jobs/list?limit=2000")["jobs"]
    assert [job["id"] for job in listed] == ids
    assert http.ok("POST", f"/queues/{queue}/drain") == {"count": 2000}


def test_many_callers_share_a_queue(yard: Yard, http: Http, queue: str) -> None:
    jobs = [{"data": n} for n in range(200)]
    ids = http.ok("POST", f"/queues/{queue}/jobs/bulk", {"jobs": jobs})["ids"]
    taken: list[str] = []

    def work() -> None:
        with contextlib.closing(Http(yard.http)) as caller:
            while (job := caller.ok("GET", f"/queues/{queue}/jobs")["job"]) is not None:
                taken.append(job["id"])
                caller.ok("POST", f"/jobs/{job['id']}/ack")

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(REPLY_S)
    assert sorted(taken) == sorted(ids)
    assert http.ok("GET", f"/queues/{queue}/counts")["counts"]["completed"] == 200


# -- events ------------------------------------------------------------------------------------


def test_a_stream_tells_what_happens(yard: Yard, http: Http, tcp: Client, queue: str) -> None:
    events = http.open_events(f"/events/queues/{queue}")
    hello = events.next_block()
    assert hello is not None
    assert hello["retry"] == "3000"
    job_id = tcp.finish(queue)
    first, data = events.until("job:pushed")
    assert data["jobId"] == job_id
    assert events.until("job:completed")[1]["jobId"] == job_id
    assert events.until("queue:counts")[1]["completed"] == 1
    missed = tcp.push(queue)
    with contextlib.closing(Http(yard.http)) as other:
        again = other.open_events(f"/events/queues/{queue}", last=first)
        assert again.until("job:completed")[1]["jobId"] == job_id
        assert again.until("job:pushed")[1]["jobId"] == missed


def test_a_socket_takes_commands_and_tells_what_happens(
    socket: Socket, tcp: Client, queue: str
) -> None:
    assert socket.answer("Subscribe", events=["job:*"])["subscribed"] == ["job:*"]
    job_id = socket.answer("PUSH", queue=queue, data={"n": 1})["id"]
    assert tcp.pull(queue)["id"] == job_id
    while (told := socket.receive())["event"] != "job:active" or told["data"]["queue"] != queue:
        pass
    assert told["data"]["jobId"] == job_id
    socket.send_frame(PING, b"x")
    assert socket.receive_frame() == (10, b"x")
    socket.send_frame(CLOSE, b"\x03\xe8")
    assert socket.receive_frame() == (CLOSE, b"\x03\xe8")
    assert socket.has_ended()


def test_a_socket_that_goes_gives_its_jobs_back(yard: Yard, tcp: Client, queue: str) -> None:
    job_id = tcp.push(queue)
    with contextlib.closing(Socket(yard.http)) as socket:
        assert socket.answer("PULL", queue=queue)["job"]["id"] == job_id
        assert tcp.state(job_id) == "active"
    assert tcp.pull(queue)["id"] == job_id


# -- the server --------------------------------------------------------------------------------


def test_what_was_answered_survives_a_crash(tmp_path: Path) -> None:
    with durable(tmp_path / "data", *HTTP) as yard:
        with contextlib.closing(Http(yard.http)) as http:
            job_id = http.ok("POST", "/queues/q/jobs", {"data": {"n": 1}})["id"]
            with contextlib.closing(Http(yard.http)) as other:
                events = other.open_events()
                told = http.ok("POST", "/queues/q/jobs", {"data": {"n": 2}})["id"]
                assert events.until("job:pushed")[1]["jobId"] == told
        yard.restart()
        with contextlib.closing(Http(yard.http)) as http:
            listed = http.ok("GET", "/queues/q/jobs/list")["jobs"]
            assert [job["id"] for job in listed] == [job_id, told]


@pytest.mark.parametrize("loop", ["epoll", "asyncio"])
def test_a_stop_lets_nobody_hang(tmp_path: Path, loop: str) -> None:
    with durable(tmp_path / "data", "--loop", loop, *HTTP) as yard:
        with (
            contextlib.closing(Http(yard.http)) as puller,
            contextlib.closing(Http(yard.http)) as listener,
            contextlib.closing(Socket(yard.http)) as socket,
        ):
            events = listener.open_events()
            assert events.next_block() is not None
            assert socket.answer("Ping")["ok"] is True
            puller.send("GET", "/queues/q/jobs?timeout=60000")
            # Served after it on the same loop, so that it waits by now.
            with contextlib.closing(Http(yard.http)) as other:
                assert other.ok("GET", "/health")["connections"]["ws"] == 1
            yard.process.signal(signal.SIGTERM)
            assert puller.receive() == (200, b'{"ok":true,"job":null}')
            assert events.until("server:shutdown")[1] == {}
            while events.next_block() is not None:
                pass
            opcode, content = socket.receive_frame()
            assert (opcode, content[:2]) == (CLOSE, (1001).to_bytes(2, "big"))
            assert socket.has_ended()
        assert yard.process.wait() == 0


def test_tokens_of_the_door_count_over_http_too() -> None:
    with running("--memory", *HTTP, env={"AUTH_TOKENS": "one,two"}) as yard:
        assert fetch(yard, "/health")[0] == 200
        with contextlib.closing(Http(yard.http)) as stranger:
            assert stranger.ask("GET", "/stats") == (401, {"ok": False, "error": "Unauthorized"})
        with contextlib.closing(Http(yard.http, token="two")) as known:
            assert known.ok("GET", "/queues") == {"queues": []}
        with contextlib.closing(Socket(yard.http, "/ws?token=one")) as socket:
            assert socket.answer("ListQueues") == {"ok": True, "queues": []}


def test_the_limit_of_requests_counts_over_http_too() -> None:
    env = {"RATE_LIMIT_MAX_REQUESTS": "3", "RATE_LIMIT_WINDOW_MS": "60000"}
    with (
        running("--memory", *HTTP, env=env) as yard,
        contextlib.closing(Http(yard.http)) as http,
    ):
        statuses = [http.ask("GET", "/ping")[0] for _ in range(4)]
        assert statuses == [200, 200, 200, 429]
