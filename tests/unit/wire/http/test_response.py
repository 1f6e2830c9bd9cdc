import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobyard.wire.http.request import CONTINUE, chunk, last_chunk, response, stream_head

JSON = "application/json"


def plain(
    status: int = 200,
    body: bytes = b"{}",
    content_type: str = JSON,
    details: bytes = b"",
) -> bytes:
    return response(
        status, body, content_type, details, keep_alive=True, is_head=False, is_1_0=False
    )


def heard(*data: bytes, method: str = "GET") -> tuple[h11.Response, bytes]:
    """What a client makes of an answer."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=method, target="/", headers=[("host", "h")]))
    client.send(h11.EndOfMessage())
    for each in data:
        client.receive_data(each)
    client.receive_data(b"")
    answer: h11.Response | None = None
    body = b""
    while True:
        event = client.next_event()
        if isinstance(event, h11.Response):
            answer = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            assert answer is not None
            return answer, body


def test_a_usual_answer_byte_for_byte() -> None:
    assert plain() == (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    )


def test_further_headers_and_other_types() -> None:
    assert plain(404, b"", "image/png", b"X-A: b\r\nX-C: d\r\n") == (
        b"HTTP/1.1 404 Not Found\r\nContent-Type: image/png\r\nContent-Length: 0\r\n"
        b"X-A: b\r\nX-C: d\r\n\r\n"
    )
    assert b"Content-Type" not in plain(content_type="")


@pytest.mark.parametrize(
    ("keep_alive", "is_1_0", "line"),
    [
        (True, False, b""),
        (False, False, b"Connection: close\r\n"),
        (True, True, b"Connection: keep-alive\r\n"),
        (False, True, b"Connection: close\r\n"),
    ],
)
def test_the_connection_is_named_only_where_it_must_be(
    *, keep_alive: bool, is_1_0: bool, line: bytes
) -> None:
    data = response(200, b"", "", b"", keep_alive=keep_alive, is_head=False, is_1_0=is_1_0)
    assert data == b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + line + b"\r\n"


def test_an_answer_to_head_has_the_length_and_no_body() -> None:
    data = response(200, b"12345", JSON, b"", keep_alive=True, is_head=True, is_1_0=False)
    assert data.endswith(b"Content-Length: 5\r\n\r\n")
    answer, body = heard(data, method="HEAD")
    assert (dict(answer.headers)[b"content-length"], body) == (b"5", b"")


def test_no_content_has_no_length() -> None:
    assert plain(204, b"", "") == b"HTTP/1.1 204 No Content\r\n\r\n"
    assert plain(204, b"dropped", "") == b"HTTP/1.1 204 No Content\r\n\r\n"


def test_a_status_without_a_phrase() -> None:
    assert plain(299, b"", "").startswith(b"HTTP/1.1 299 \r\n")
    assert heard(plain(299))[0].status_code == 299


@given(st.integers(200, 599).filter(lambda status: status not in {204, 304}), st.binary())
def test_a_client_hears_what_was_said(status: int, body: bytes) -> None:
    answer, found = heard(plain(status, body, details=b"X-A: b\r\n"))
    assert (answer.status_code, found) == (status, body)
    assert (b"x-a", b"b") in answer.headers


@given(st.lists(st.binary(min_size=1)))
def test_a_client_hears_a_stream(pieces: list[bytes]) -> None:
    head = stream_head(200, "text/event-stream", b"X-A: b\r\n", is_1_0=False)
    assert b"Connection" not in head
    answer, body = heard(head, *(chunk(each) for each in pieces), last_chunk(b""))
    assert body == b"".join(pieces)
    assert (b"x-a", b"b") in answer.headers


def test_a_client_hears_what_is_told_at_the_end_of_a_stream() -> None:
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
    client.send(h11.EndOfMessage())
    head = stream_head(200, JSON, b"Trailer: Rows\r\n", is_1_0=False)
    client.receive_data(head + chunk(b"{}") + last_chunk(b"Rows: 7\r\n"))
    events = [client.next_event() for _ in range(3)]
    assert isinstance(events[-1], h11.EndOfMessage)
    assert list(events[-1].headers) == [(b"rows", b"7")]


def test_a_stream_to_an_old_client_ends_with_the_connection() -> None:
    head = stream_head(200, "text/plain", b"", is_1_0=True)
    assert b"chunked" not in head
    assert heard(head, b"abc", b"def")[1] == b"abcdef"


def test_an_empty_chunk_would_end_the_stream() -> None:
    with pytest.raises(AssertionError):
        chunk(b"")


def test_leave_to_go_on_is_no_answer_yet() -> None:
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="GET", target="/", headers=[("host", "h")]))
    client.receive_data(CONTINUE)
    assert isinstance(client.next_event(), h11.InformationalResponse)
