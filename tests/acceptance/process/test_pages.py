"""What a web page can make a browser send to a server without tokens, and the result.

Every request is written byte by byte, as a browser would send it, to a separate process.
"""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.clients.http_text import handshake
from tests.support.servers.processes import JOBYARD, Process, parse_address, parse_ready

ANSWER_S: Final = 20.0
ELSEWHERE: Final = "Origin: https://elsewhere.example"
FORM: Final = "Content-Type: text/plain"
SOCKET: Final = tuple(f"{name.replace('_', '-')}: {value}" for name, value in handshake().items())

# One route of each family that changes something, or shows what happens.
CHANGES: Final = (
    ("POST", "/queues/q/jobs", '{"data": 1}'),
    ("GET", "/queues/q/jobs", ""),
    ("POST", "/queues/q/obliterate", ""),
    ("PUT", "/queues/q/concurrency", '{"limit": 1}'),
    ("DELETE", "/jobs/1", ""),
    ("POST", "/webhooks", '{"url": "https://example.org/", "events": ["job.completed"]}'),
    ("POST", "/crons", '{"name": "c", "queue": "q", "repeatEvery": 60000}'),
    ("POST", "/gc", ""),
    ("GET", "/events", ""),
    ("GET", "/events/queues/q", ""),
    ("PUT", "/v0/topics/t", '{"type": "queue"}'),
    ("POST", "/v0/topics/t", '{"records": [{"data": 1}]}'),
    ("POST", "/v0/topics/t/claim", '{"node": "n"}'),
    ("DELETE", "/v0/topics/t", ""),
    ("PUT", "/v0/routers/r", '{"source": "t", "targets": []}'),
    ("POST", "/v0/watch", '{"topics": ["t"]}'),
    ("GET", "/v0/topics/t/work?node=n", ""),
)
READS: Final = ("/health", "/queues", "/stats", "/v0/topics", "/v0/health", "/openapi.json")


class Site:
    """A server in memory and the address of each of its doors."""

    def __init__(self, *flags: str) -> None:
        command = [*JOBYARD, "serve", "--memory"]
        for door in ("beanstalk", "bunqueue", "glidemq", "http"):
            command += [f"--{door}", "127.0.0.1:0"]
        self.process = Process([*command, *flags])
        self._ready = parse_ready(self.process.read_line())

    def say(self, door: str, data: bytes) -> bytes:
        """Send bytes to a door; return all that comes until the server closes."""
        address = parse_address(self._ready[door])
        assert isinstance(address, tuple)
        with socket.create_connection(address, timeout=ANSWER_S) as sock:
            sock.sendall(data)
            said = b""
            try:
                while piece := sock.recv(65536):
                    said += piece
            except ConnectionResetError:
                pass
            return said

    def status(self, method: str, path: str, *lines: str, body: str = "", host: str = "") -> int:
        """Send a request; return the status of its answer."""
        return int(self.ask(method, path, *lines, body=body, host=host)[9:12])

    def ask(self, method: str, path: str, *lines: str, body: str = "", host: str = "") -> str:
        """Send a request and read only the head and the first bytes of its answer."""
        address = parse_address(self._ready["http"])
        assert isinstance(address, tuple)
        head = [f"{method} {path} HTTP/1.1", f"Host: {host or f'localhost:{address[1]}'}"]
        head += [f"Content-Length: {len(body)}", *lines, "", ""]
        with socket.create_connection(address, timeout=ANSWER_S) as sock:
            sock.sendall(("\r\n".join(head) + body).encode())
            said = b""
            while b"\r\n\r\n" not in said or (said[9:12] == b"421" and b"}" not in said):
                piece = sock.recv(65536)
                assert piece, f"closed after {said!r}"
                said += piece
            return said.decode()

    def jobs(self) -> bytes:
        """Return what beanstalk's `stats` counts of jobs."""
        said = self.say("beanstalk", b"stats\r\nquit\r\n")
        return next(line for line in said.split(b"\n") if line.startswith(b"total-jobs"))


@contextlib.contextmanager
def serving(*flags: str) -> Iterator[Site]:
    """A server with these flags."""
    site = Site(*flags)
    try:
        yield site
    finally:
        site.process.close()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A server as it is by default."""
    with serving() as site:
        yield site


@pytest.mark.parametrize(("method", "path", "body"), CHANGES)
@pytest.mark.parametrize(
    "lines",
    [
        (ELSEWHERE, FORM),
        ("Origin: null", FORM),
        ("Origin: http://localhost:1", FORM),
        ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors", FORM),
        ("Sec-Fetch-Site: same-site", "Origin: http://localhost:3000", FORM),
    ],
)
def test_a_page_of_another_origin_changes_nothing_and_hears_nothing(
    site: Site, method: str, path: str, body: str, lines: tuple[str, ...]
) -> None:
    before = site.jobs()
    said = site.ask(method, path, *lines, body=body)
    assert said.startswith("HTTP/1.1 403 ")
    assert "Access-Control-Allow-Origin" not in said
    assert site.jobs() == before


@pytest.mark.parametrize("path", ["/ws", "/ws/queues/q", "/v0/ws"])
@pytest.mark.parametrize(
    ("line", "status"),
    [
        (ELSEWHERE, 403),
        ("Origin: null", 403),
        ("Sec-Fetch-Site: cross-site", 403),
        ("X-Other: 1", 101),
        ("Sec-Fetch-Site: same-origin", 101),
    ],
)
def test_only_pages_of_this_server_open_a_socket(
    site: Site, path: str, line: str, status: int
) -> None:
    assert site.status("GET", path, *SOCKET, line) == status


@pytest.mark.parametrize("path", ["/queues/q/jobs", "/v0/topics/t", "/nowhere"])
def test_a_page_that_asks_for_leave_is_told_how_to_get_it(site: Site, path: str) -> None:
    said = site.ask("OPTIONS", path, ELSEWHERE, "Access-Control-Request-Method: POST")
    assert said.startswith("HTTP/1.1 403 ")
    assert "Access-Control-Allow-Origin" not in said
    assert "--cors-origin" in site.ask("POST", path, ELSEWHERE) or path == "/nowhere"


@pytest.mark.parametrize("path", READS)
def test_links_from_other_pages_may_be_followed_but_not_read_by_them(site: Site, path: str) -> None:
    said = site.ask("GET", path, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate")
    assert said.startswith("HTTP/1.1 200 ")
    assert "Access-Control-Allow-Origin" not in said


@pytest.mark.parametrize("path", [*READS, "/nowhere", "/v0/nowhere", "/ws", "/events"])
@pytest.mark.parametrize(
    "host", ["elsewhere.example", "elsewhere.example:6790", "10.0.0.1", "[::2]"]
)
def test_a_name_that_points_here_is_not_enough(site: Site, path: str, host: str) -> None:
    said = site.ask("GET", path, host=host)
    assert said.startswith("HTTP/1.1 421 ")
    assert "--public-host" in said


@pytest.mark.parametrize("path", ["/ping", "/v0/topics"])
@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:1", "localhost.", "127.0.0.1", "127.0.0.1:80", "127.1.2.3", "[::1]:9"],
)
def test_programs_that_are_no_browsers_are_not_concerned(site: Site, path: str, host: str) -> None:
    assert site.status("GET", path, host=host) == 200
    assert site.status("POST", "/queues/free/jobs", body='{"data": 1}', host=host) == 200


def test_pages_of_this_server_may_do_everything(site: Site) -> None:
    body = '{"data": 1}'
    for lines in (("Origin: http://127.0.0.1:5",), ("Sec-Fetch-Site: same-origin", ELSEWHERE)):
        said = site.status("POST", "/queues/own/jobs", *lines, body=body, host="127.0.0.1:5")
        assert said == 200


def test_named_origins_and_hosts_are_let_in() -> None:
    origin = "https://dash.example"
    with serving(
        "--cors-origin", f"{origin},http://x.example:8", "--public-host", "jobs.example,b"
    ) as site:
        job = '{"data": 1}'
        records = '{"records": [{"data": 1}]}'
        json_type = "Content-Type: application/json"
        for path, body in (("/queues/q/jobs", job), ("/v0/topics/t", records)):
            said = site.ask("POST", path, f"Origin: {origin}", json_type, body=body)
            assert said.startswith("HTTP/1.1 20")
            assert f"Access-Control-Allow-Origin: {origin}\r\n" in said
            new_job = "Access-Control-Request-Method: POST"
            asked = site.ask("OPTIONS", path, f"Origin: {origin}", new_job)
            assert asked.startswith("HTTP/1.1 204 ")
            assert f"Access-Control-Allow-Origin: {origin}\r\n" in asked
            assert "Access-Control-Allow-Methods: " in asked
            assert site.status("POST", path, ELSEWHERE, json_type, body=body) == 403
        assert site.status("GET", "/ws", *SOCKET, f"Origin: {origin}") == 101
        assert site.status("GET", "/v0/topics", host="jobs.example:443") == 200
        assert site.status("GET", "/ping", host="B") == 200
        assert site.status("GET", "/ping", host="c") == 421


def test_whoever_asks_for_tokens_may_be_called_as_anybody_likes() -> None:
    with serving("--auth-token", "t", "--topics-key", "k") as site:
        for path, token in (("/ping", "t"), ("/v0/topics", "k")):
            assert site.status("GET", path, host="jobs.example") == 401
            assert (
                site.status("GET", path, f"Authorization: Bearer {token}", host="jobs.example")
                == 200
            )


@pytest.mark.parametrize(
    "flags", [("--cors-origin", "example.org"), ("--cors-origin", "https://a/b")]
)
def test_an_origin_that_is_none_is_told_at_the_start(flags: tuple[str, ...]) -> None:
    process = Process([*JOBYARD, "serve", "--memory", "--beanstalk", "127.0.0.1:0", *flags])
    assert process.wait() != 0
    assert "--cors-origin" in process.errors()
    process.close()


# -- other doors -----------------------------------------------------------------------------------

LINES: Final = b"HTTP/1.1\r\nHost: localhost:11300\r\nContent-Type: text/plain\r\n\r\n"


@pytest.mark.parametrize(
    "first",
    [
        b"POST / ",
        b"GET /?x ",
        b"OPTIONS * ",
        b"PUT http://localhost/ ",
        b"patch /x ",
        b"POST /" + b"a" * 500 + b" ",
        b"POST /" + b"a" * 300_000 + b" ",
    ],
)
def test_an_http_request_is_no_beanstalk_client(site: Site, first: bytes) -> None:
    before = site.jobs()
    said = site.say("beanstalk", first + LINES + b"put 0 0 60 4\r\nevil\r\n")
    assert b"INSERTED" not in said
    assert site.jobs() == before


@pytest.mark.parametrize("first", [b"POST / ", b"GET / ", b"PUT / ", b"PATCH /x ", b"OPTIONS * "])
def test_an_http_request_is_no_redis_client(site: Site, first: bytes) -> None:
    said = site.say("glidemq", first + LINES + b"SET glide:{evil}:x 1\r\nPING\r\n")
    assert b"+OK" not in said
    assert b"PONG" not in said
    assert site.say("glidemq", b"EXISTS glide:{evil}:x\r\nQUIT\r\n").startswith(b":0\r\n")


@pytest.mark.parametrize("first", [b"POST / ", b"GET / ", b"PUT / ", b"HEAD / ", b"DELETE / "])
def test_an_http_request_is_no_bunqueue_client(site: Site, first: bytes) -> None:
    before = site.jobs()
    push = bytes.fromhex("83a3636d64a450555348a57175657565a171a46461746101")
    said = site.say("bunqueue", first + LINES + len(push).to_bytes(4, "big") + push)
    assert b"Frame too large" in said
    assert site.jobs() == before


# -- secrets ---------------------------------------------------------------------------------------


def test_a_token_from_a_file_shows_nowhere_and_doors_left_open_are_named(tmp_path: Path) -> None:
    secret = tmp_path / "tokens"
    secret.write_text("hush-hush, third\nother\n")
    with serving("--auth-token-file", str(secret)) as site:
        assert site.status("GET", "/ping") == 401
        for token in ("hush-hush", "third", "other"):
            assert site.status("GET", "/ping", f"Authorization: Bearer {token}") == 200
        assert b"hush" not in Path(f"/proc/{site.process.pid}/cmdline").read_bytes()
        [warning] = [line for line in site.process.errors().splitlines() if "password" in line]
        assert all(f"{door}=127.0.0.1" in warning for door in ("beanstalk", "glidemq", "http"))
        assert "bunqueue=" not in warning
        assert "hush" not in site.process.errors()


def test_nobody_is_warned_who_set_no_secret(site: Site) -> None:
    assert "password" not in site.process.errors()
