import socket
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from jobyard.client import JobyardError, Token, YardClient
from jobyard.client.errors import Code
from tests.support.servers.scripted import Reply, ScriptedHttp, chunked, refused, said
from tests.support.values.pickled import packed

SECRET = "tok-51ab-very-secret"
KIND = "application/vnd.apache.arrow.stream"


class Pauses:
    def __init__(self) -> None:
        self.seconds: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest.fixture
def play(pauses: Pauses, request: pytest.FixtureRequest) -> Callable[..., Any]:
    def start(*replies: Reply, retries_max: int = 3) -> tuple[ScriptedHttp, YardClient]:
        server = ScriptedHttp(list(replies))
        client = YardClient(server.url, Token(SECRET), retries_max=retries_max, pause=pauses)
        request.addfinalizer(server.close)
        request.addfinalizer(client.close)
        return server, client

    return start


def fails(call: Callable[[], object]) -> JobyardError:
    with pytest.raises(JobyardError) as caught:
        call()
    shown = "".join(
        traceback.TracebackException.from_exception(caught.value, capture_locals=True).format()
    )
    assert SECRET not in shown
    assert SECRET.encode() not in packed(caught.value)
    assert len(str(caught.value).splitlines()) <= 3
    return caught.value


def test_calls_share_one_connection(play: Any) -> None:
    server, client = play(said(b'{"a":1}'), said(b'{"a":2}'))
    assert client.get("/v0/a").number("a") == 1
    assert client.ask("POST", "/v0/b", {"x": [1]}, is_repeatable=False).number("a") == 2
    assert server.connections == 1
    first, second = server.heard
    assert first.headers["authorization"] == f"Bearer {SECRET}"
    assert (second.method, second.body) == ("POST", b'{"x":[1]}')
    assert second.headers["content-type"] == "application/json"


@pytest.mark.parametrize("cut", [3, 12, 17, 25, 40, 50, 60, 65])
def test_a_head_that_was_cut_off_is_no_answer(play: Any, cut: int) -> None:
    # Half the name of a type, or no length, must not count as what the server said.
    whole = said(b'{"a":1}')
    assert whole.index(b"\r\n\r\n") > cut
    server, client = play(whole[:cut], whole)
    assert client.get("/v0/a").number("a") == 1
    assert len(server.heard) == 2


def test_a_connection_that_the_server_closed_is_opened_again(play: Any, pauses: Pauses) -> None:
    closing = said(b"{}", "200 OK", "Connection: close")
    server, client = play(closing, said(b'{"a":2}'))
    client.get("/v0/a")
    assert client.ask("POST", "/v0/b", {}, is_repeatable=False).number("a") == 2
    assert server.connections == 2
    assert pauses.seconds == []


def test_only_what_may_be_repeated_is_repeated(play: Any, pauses: Pauses) -> None:
    # An empty answer closes the connection.
    server, client = play(b"", said(b'{"a":1}'), b"")
    assert client.get("/v0/a").number("a") == 1
    assert len(server.heard) == 2
    error = fails(lambda: client.ask("POST", "/v0/b", {}, is_repeatable=False))
    assert (error.code, error.url) == (Code.UNREACHABLE, f"{server.url}/v0/b")
    assert len(server.heard) == 3
    assert len(pauses.seconds) == 1


def test_a_call_that_was_not_made_may_be_repeated(play: Any, pauses: Pauses) -> None:
    busy = said(
        b'{"error":{"code":"throttled","message":"x"}}', "429 Too Many Requests", "Retry-After: 1"
    )
    server, client = play(busy, said(b'{"a":1}'))
    assert client.ask("POST", "/v0/b", {}, is_repeatable=False).number("a") == 1
    assert len(server.heard) == 2
    assert pauses.seconds[0] >= 1


def test_a_server_that_drains_is_asked_again_only_for_what_may_be_repeated(play: Any) -> None:
    down = refused("503 Service Unavailable", "shutting_down")
    server, client = play(down, said(b'{"a":1}'), down)
    assert client.get("/v0/a").number("a") == 1
    error = fails(lambda: client.ask("POST", "/v0/b", {}, is_repeatable=False))
    assert (error.code, error.status) == ("shutting_down", 503)
    assert len(server.heard) == 3


def test_attempts_end(play: Any, pauses: Pauses) -> None:
    server, client = play(*[b""] * 4)
    assert fails(lambda: client.get("/v0/a")).code == Code.UNREACHABLE
    assert len(server.heard) == 4
    assert len(pauses.seconds) == 3
    assert pauses.seconds == sorted(pauses.seconds) or max(pauses.seconds) < 2


def test_a_refusal_has_code_status_detail_and_place(play: Any) -> None:
    server, client = play(refused("410 Gone", "gone", "lost", '{"gap_to":7}'))
    error = fails(lambda: client.get("/v0/topics/a/export", {"from_seq": 1}))
    assert (error.code, error.status, error.detail) == ("gone", 410, {"gap_to": 7})
    assert str(error) == (
        f"[gone] lost\nat topic a, url {server.url}/v0/topics/a/export, status 410"
    )


@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden"])
def test_a_token_that_is_refused_is_named_by_its_option(play: Any, status: str) -> None:
    _, client = play(refused(status, "unauthorized"))
    error = fails(lambda: client.get("/v0/a"))
    assert error.option == "token"
    assert "tokenFile" in error.remedy


@pytest.mark.parametrize(
    "answer",
    [
        b"EHLO what is this\r\n",
        said(b"<html>", "404 Not Found", kind="text/html"),
        said(b'{"ok":false,"error":"Not found"}', "404 Not Found"),
        said(b"[1]"),
        said(b'{"b":1}'),
        said(b'{"a":"1"}'),
        said(b'{"a":true}'),
    ],
)
def test_another_program_is_recognised(play: Any, answer: bytes) -> None:
    _, client = play(answer)
    error = fails(lambda: client.get("/v0/a").number("a"))
    assert error.code == Code.NOT_JOBYARD
    assert "6790" in str(error)


def test_an_answer_that_is_cut_off_is_asked_for_again(play: Any) -> None:
    cut = said(b'{"a":1}', "200 OK", "Connection: close")[:-3]
    server, client = play(cut, said(b'{"a":1}'))
    assert client.get("/v0/a").number("a") == 1
    assert len(server.heard) == 2


def cut(reply: bytes) -> bytes:
    """Return an answer that lacks its last bytes, and the end of its connection."""
    return reply.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)[:-3]


@pytest.mark.parametrize("kind", ["ask", "send"])
def test_a_send_whose_answer_breaks_off_is_repeated_only_if_it_may_be(play: Any, kind: str) -> None:
    server, client = play(*[cut(said(b'{"a":1}'))] * 2, said(b'{"a":1}'), cut(said(b'{"a":1}')))

    def call(*, is_repeatable: bool) -> int:
        path = "/v0/topics/a%20b/ack"
        if kind == "ask":
            return int(client.ask("POST", path, {}, is_repeatable=is_repeatable).number("a"))
        return int(client.send("POST", path, b"{}", is_repeatable=is_repeatable).number("a"))

    assert call(is_repeatable=True) == 1
    assert len(server.heard) == 3
    error = fails(lambda: call(is_repeatable=False))
    assert len(server.heard) == 4
    assert (error.code, error.status, error.topic) == (Code.CUT_OFF, 200, "a b")
    assert error.url == f"{server.url}/v0/topics/a%20b/ack"


def test_an_answer_that_always_breaks_off_is_asked_for_no_more_often_than_allowed(
    play: Any, pauses: Pauses
) -> None:
    # What breaks off on its way counts together with what does not come at all.
    replies = [cut(said(b'{"a":1}')), b"", cut(said(b'{"a":1}')), b""]
    server, client = play(*replies, retries_max=3)
    assert fails(lambda: client.get("/v0/a")).code == Code.UNREACHABLE
    assert (len(server.heard), len(pauses.seconds)) == (4, 3)


@pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Service Unavailable"])
def test_a_refusal_that_breaks_off_is_repeated_as_one_that_does_not(play: Any, status: str) -> None:
    down = cut(refused(status, "busy"))
    server, client = play(down, said(b'{"a":1}'), down, said(b'{"a":2}'))
    assert client.get("/v0/a").number("a") == 1
    if status.startswith("429"):
        assert client.ask("POST", "/v0/b", {}, is_repeatable=False).number("a") == 2
    else:
        error = fails(lambda: client.ask("POST", "/v0/b", {}, is_repeatable=False))
        assert (error.code, error.status) == (Code.CUT_OFF, 503)
        assert len(server.heard) == 3


@pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Service Unavailable"])
@pytest.mark.parametrize(
    ("asked", "least", "most"),
    [("7", 7, 7), ("0", 0, 0.25), ("999999999999", 60, 60), ("soon", 0, 0.25)],
)
def test_a_server_that_names_a_pause_gets_it(
    play: Any, pauses: Pauses, status: str, asked: str, least: float, most: float
) -> None:
    _, client = play(
        said(b'{"error":{"code":"busy"}}', status, f"Retry-After: {asked}"), said(b'{"a":1}')
    )
    assert client.get("/v0/a").number("a") == 1
    assert least <= pauses.seconds[0] <= most


def test_an_unreachable_server_behind_a_proxy_has_a_status(play: Any) -> None:
    _, client = play(*[said(b"", "502 Bad Gateway")] * 4)
    error = fails(lambda: client.get("/v0/topics/a"))
    assert (error.code, error.status, error.topic) == (Code.UNREACHABLE, 502, "a")


def test_an_answer_without_a_length_is_no_yard(play: Any) -> None:
    _, client = play(b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\n{}")
    assert fails(lambda: client.get("/v0/a")).code == Code.NOT_JOBYARD


def test_a_stream_ends_with_its_trailers(play: Any) -> None:
    _, client = play(
        chunked([b"abc", b"", b"defgh"][::2], "Topics-Rows: 2\r\n", "Topics-To-Seq: 9", kind=KIND),
        said(b'{"a":1}'),
    )
    stream = client.stream("/v0/x", {})
    assert stream.headers["topics-to-seq"] == "9"
    assert (stream.read(4), stream.read(2), stream.read()) == (b"abcd", b"ef", b"gh")
    assert stream.finish() == {"topics-rows": "2"}
    assert client.get("/v0/a").number("a") == 1


@pytest.mark.parametrize("cut", [1, 3, 5, 6, 9, 14])
def test_a_stream_without_its_end_is_an_error(play: Any, cut: int) -> None:
    whole = chunked([b"abc", b"defgh"], kind=KIND)
    head, _, body = whole.partition(b"\r\n\r\n")
    _, client = play(head + b"\r\nConnection: close\r\n\r\n" + body[:cut])
    stream = client.stream("/v0/x", {})

    def read_all() -> None:
        stream.read()
        stream.finish()

    assert fails(read_all).code == Code.CUT_OFF
    assert stream.closed


def test_a_stream_that_is_left_costs_its_connection_alone(play: Any) -> None:
    server, client = play(chunked([b"abc", b"def"], kind=KIND), said(b'{"a":1}'))
    stream = client.stream("/v0/x", {})
    assert stream.read(1) == b"a"
    stream.close()
    stream.close()
    assert client.get("/v0/a").number("a") == 1
    assert server.connections == 2


def test_a_stream_of_another_kind_is_another_program(play: Any) -> None:
    _, client = play(said(b"{}"))
    assert fails(lambda: client.stream("/v0/x", {})).code == Code.NOT_JOBYARD


def test_the_head_of_an_answer_can_be_asked_for(play: Any) -> None:
    _, client = play(b"HTTP/1.1 200 OK\r\nTopics-To-Seq: 4\r\nContent-Length: 0\r\n\r\n")
    assert client.head("/v0/x", {})["topics-to-seq"] == "4"


def test_a_server_that_is_not_there_is_unreachable(pauses: Pauses) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    client = YardClient(f"http://127.0.0.1:{port}", retries_max=2, pause=pauses)
    error = fails(lambda: client.ask("POST", "/v0/a", {}, is_repeatable=False))
    assert (error.code, error.option) == (Code.UNREACHABLE, "url")
    # No call was made, so even this one was tried again.
    assert len(pauses.seconds) == 2


@pytest.mark.parametrize(
    "url",
    ["", "localhost:6790", "ftp://a", "http://", "http://a:b:c", "http://a?x=1", "http://a:99999"],
)
def test_a_bad_url_is_refused(url: str) -> None:
    assert fails(lambda: YardClient(url)).code == Code.BAD_URL


def test_a_password_in_a_url_is_not_repeated() -> None:
    with pytest.raises(JobyardError) as caught:
        YardClient(f"http://me:{SECRET}@host:1")
    assert caught.value.code == Code.BAD_URL
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://host", "http://host:6790"),
        ("https://host/yard/", "https://host:443/yard"),
        ("http://[::1]:7", "http://[::1]:7"),
    ],
)
def test_a_url_is_completed(url: str, shown: str) -> None:
    assert YardClient(url).url == shown
