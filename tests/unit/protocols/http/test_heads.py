"""The headers of every answer, compression of large answers, and idle connections."""

import gzip
import json
from email.utils import parsedate_to_datetime

import pytest

from jobyard.protocols.http.compression import COMPRESSED_PIECE_SIZE, SIZE_MIN
from jobyard.wire.http.accept import names
from jobyard.wire.http.response import http_date
from tests.support.clients.http_text import dechunked
from tests.support.doors.topics import BareTopics


@pytest.fixture
def site() -> BareTopics:
    return BareTopics()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v0/health", 200),
        ("GET", "/ping", 200),
        ("GET", "/nowhere", 404),
        ("OPTIONS", "/queues", 204),
        ("HEAD", "/v0/topics", 200),
    ],
)
def test_every_answer_has_a_date_and_is_what_it_says(
    site: BareTopics, method: str, path: str, status: int
) -> None:
    site.yard.journal.wall_offset_ms = 5_000
    answer = site.api.ask(method, path)
    assert answer.status == status
    assert answer.headers["x-content-type-options"] == "nosniff"
    told = parsedate_to_datetime(answer.headers["date"]).timestamp()
    assert told == (site.now_ms + 5_000) // 1000
    site.tick(61_000)
    later = site.api.ask(method, path)
    assert parsedate_to_datetime(later.headers["date"]).timestamp() == told + 61


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
        (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
        (951_782_399, "Mon, 28 Feb 2000 23:59:59 GMT"),
        (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
        (1_709_164_800, "Thu, 29 Feb 2024 00:00:00 GMT"),
        (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
    ],
)
def test_dates_are_those_of_the_calendar(seconds: int, text: str) -> None:
    assert http_date(seconds * 1000 + 999) == text


# -- compression -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "is_so"),
    [
        ("gzip", True),
        ("br, GZIP;q=0.5", True),
        ("deflate, gzip;q=0", False),
        ("gzip;q=0.0", False),
        ("identity", False),
        ("", False),
    ],
)
def test_who_reads_gzip_says_so(header: str, is_so: bool) -> None:  # noqa: FBT001  a parameter
    assert names(header, "gzip") is is_so


def page(site: BareTopics, encoding: str) -> tuple[dict[str, str], bytes]:
    caller = site.connect()
    caller.send("POST", "/v0/topics/t/diff", {"limit": 1000}, {"Accept-Encoding": encoding})
    site.settle()
    caller.collect()
    head, _, rest = caller.unread.partition(b"\r\n\r\n")
    lines = dict(line.lower().split(": ", 1) for line in head.decode().split("\r\n")[1:])
    return lines, rest


@pytest.mark.parametrize("size", [SIZE_MIN, COMPRESSED_PIECE_SIZE // 2, COMPRESSED_PIECE_SIZE * 3])
def test_a_large_answer_is_compressed_for_clients_that_accept_it(
    site: BareTopics, size: int
) -> None:
    site.api.write("t", *("x" * 1000 for _ in range(size // 1000 + 1)))
    lines, plain = page(site, "identity")
    assert "content-encoding" not in lines
    assert lines["vary"] == "accept-encoding"
    lines, packed = page(site, "gzip, br")
    assert (lines["content-encoding"], lines["vary"]) == ("gzip", "accept-encoding")
    if "transfer-encoding" in lines:
        packed, is_over = dechunked(packed)
        assert is_over
    else:
        assert int(lines["content-length"]) == len(packed)
    assert len(packed) < len(plain) // 10
    for one in (json.loads(gzip.decompress(packed)), json.loads(plain)):
        assert len(one["records"]) == size // 1000 + 1


def test_what_is_still_to_be_compressed_is_held(site: BareTopics) -> None:
    site.api.write("t", *("x" * 1000 for _ in range(900)))
    caller = site.connect()
    body = b'{"limit": 1000}'
    head = f"POST /v0/topics/t/diff HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    lines = "Content-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
    caller.session.receive((head + lines).encode() + body, site.now_ms)
    assert caller.session.held_size() > 900_000
    site.settle()
    assert caller.session.held_size() == 0


def test_small_answers_and_heads_are_not_compressed(site: BareTopics) -> None:
    encoding = {"Accept-Encoding": "gzip"}
    answer = site.api.ask("GET", "/v0/health", None, encoding)
    assert "content-encoding" not in answer.headers
    assert "content-encoding" not in site.api.ask("HEAD", "/openapi.json", None, encoding).headers


# -- idle connections ------------------------------------------------------------------------------


def test_an_idle_connection_is_closed_and_one_that_waits_is_not(site: BareTopics) -> None:
    site.door.idle_ms = 1000
    site.api.put("q", type="queue")
    idle, busy, waiting, stream = (site.connect() for _ in range(4))
    idle.ask("GET", "/v0/health")
    busy.ask("GET", "/v0/health")
    waiting.send("POST", "/v0/topics/q/claim", {"node": "n", "wait_ms": 5000})
    stream.listen("/v0/topics/q/work?node=m")
    site.tick(900)
    busy.ask("GET", "/v0/health")
    site.tick(200)
    assert [one.session.is_finished for one in (idle, busy)] == [True, False]
    site.tick(2900)
    assert [one.session.is_finished for one in (idle, busy)] == [True, True]
    assert [one.session.is_finished for one in (waiting, stream)] == [False, False]
    site.tick(10_000)
    assert [one.session.is_finished for one in (waiting, stream)] == [True, False]


def test_a_connection_may_be_idle_for_ever(site: BareTopics) -> None:
    caller = site.connect()
    caller.ask("GET", "/v0/health")
    site.tick(10_000_000)
    assert not caller.session.is_finished
