from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobyard.errors import Refused
from jobyard.wire.http.request import (
    BLANKS_SIZE_MAX,
    CHUNK_LINE_SIZE_MAX,
    EXTENSIONS_SIZE_MAX,
    HEAD_SIZE_MAX,
    HEADERS_MAX,
    TARGET_SIZE_MAX,
    TRAILERS_SIZE_MAX,
    BadHttp,
    HttpReader,
    HttpRequest,
)
from tests.support.values.http import SMUGGLING, Vector

BODY_MAX = 1000
GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"

# One connection with everything that may be in it.
LONG = (
    b"\r\nGET /a/b?c=d&e HTTP/1.1\r\nHost: example.org:80\r\nX-Empty:\r\n"
    b"X-A: one \r\nx-a:\ttwo\r\n\r\n"
    b"POST /p HTTP/1.1\r\nhost: example.org\r\nContent-Length: 11\r\nExpect: 100-continue\r\n\r\n"
    b"hello\r\n\r\nGE"
    b"PUT http://example.org?q HTTP/1.1\r\nHOST: example.org\r\nTRANSFER-ENCODING: Chunked\r\n\r\n"
    b'4;a="b"\r\nGET \r\n0A\r\n0\r\n\r\nabcde\r\n000\r\nHost: no\r\nX-A: no\r\n\r\n\r\n'
    b"OPTIONS * HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"
    b"GET /h2 HTTP/1.1\r\nHost:\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    b"Content-Length: 4\r\n\r\nGET "
    b"GET /ws HTTP/1.1\r\nHost: [::1]:80\r\nConnection: keep-alive, Upgrade\r\n"
    b"Upgrade: WebSocket\r\n\r\n\x81\x85GET / HTTP/1.1\r\n\r\n"
)


def read(*pieces: bytes) -> HttpReader:
    reader = HttpReader(BODY_MAX)
    for piece in pieces:
        reader.feed(piece)
    return reader


def facts(request: HttpRequest) -> tuple[object, ...]:
    return (
        request.method,
        request.path,
        request.query,
        request.headers,
        request.body,
        request.is_1_0,
        request.keep_alive,
        request.is_upgrade,
    )


def outcome(reader: HttpReader) -> tuple[object, ...]:
    """All that a session can see, however the bytes were cut."""
    refusal = reader.refusal
    return (
        [facts(request) for request in reader.requests],
        None if refusal is None else (refusal.status, str(refusal)),
        reader.wants_continue,
        reader.is_in_head,
        reader.is_in_body,
        reader.held_bytes,
        reader.rest,
    )


def status_of(data: bytes) -> int:
    refusal = read(data).refusal
    assert refusal is not None
    return refusal.status


def one(data: bytes) -> HttpRequest:
    reader = read(data)
    assert reader.refusal is None
    (request,) = reader.requests
    return request


def test_everything_in_one_connection() -> None:
    reader = read(LONG)
    assert reader.refusal is None
    assert [(each.method, each.path, each.query, each.body) for each in reader.requests] == [
        ("GET", "/a/b", "c=d&e", b""),
        ("POST", "/p", "", b"hello\r\n\r\nGE"),
        ("PUT", "/", "q", b"GET 0\r\n\r\nabcde"),
        ("OPTIONS", "/", "", b""),
        ("GET", "/h2", "", b"GET "),
        ("GET", "/ws", "", b""),
    ]
    headers = reader.requests[0].headers
    assert headers == {"host": "example.org:80", "x-empty": "", "x-a": "one, two"}
    assert "x-a" not in reader.requests[2].headers
    assert [each.is_1_0 for each in reader.requests] == [False] * 3 + [True] + [False] * 2
    assert all(each.keep_alive for each in reader.requests)
    assert [each.is_upgrade for each in reader.requests] == [False] * 5 + [True]
    assert reader.rest == b"\x81\x85GET / HTTP/1.1\r\n\r\n"


def test_a_cut_anywhere_changes_nothing() -> None:
    whole = outcome(read(LONG))
    for at in range(len(LONG) + 1):
        assert outcome(read(LONG[:at], LONG[at:])) == whole


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 13])
def test_drops_of_any_size_change_nothing(step: int) -> None:
    assert outcome(read(*steps(LONG, step))) == outcome(read(LONG))


@given(st.lists(st.integers(0, len(LONG)), max_size=8))
def test_many_cuts_change_nothing(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(LONG)]
    pieces = [LONG[a:b] for a, b in pairwise(edges)]
    assert outcome(read(*pieces)) == outcome(read(LONG))


def steps(data: bytes, step: int) -> list[bytes]:
    return [data[at : at + step] for at in range(0, len(data), step)]


def test_there_are_enough_vectors() -> None:
    assert len(SMUGGLING) >= 24
    assert len({vector.name for vector in SMUGGLING}) == len(SMUGGLING)


@pytest.mark.parametrize("vector", SMUGGLING, ids=lambda vector: vector.name)
def test_what_could_end_in_two_places_is_refused(vector: Vector) -> None:
    whole = read(vector.data)
    assert whole.refusal is not None
    assert whole.refusal.status == vector.status
    assert len(whole.requests) == vector.requests_count
    assert whole.held_bytes == 0
    for at in range(1, len(vector.data)):
        assert outcome(read(vector.data[:at], vector.data[at:])) == outcome(whole)
    assert outcome(read(*steps(vector.data, 1))) == outcome(whole)


@given(st.sampled_from(SMUGGLING), st.binary(max_size=40))
def test_nothing_is_read_after_a_refusal(vector: Vector, more: bytes) -> None:
    assert outcome(read(vector.data, more, GET)) == outcome(read(vector.data))


@given(st.binary(max_size=200), st.integers(1, 20))
def test_noise_never_raises_and_never_depends_on_cuts(noise: bytes, step: int) -> None:
    for start in (b"", b"GET / HTTP/1.1\r\n", GET[:-2], CHUNKED, CHUNKED + b"0\r\n"):
        data = start + noise
        assert outcome(read(*steps(data, step))) == outcome(read(data))


SPOILING = [
    b"\r",
    b"\n",
    b"\r\n",
    b" ",
    b":",
    b",",
    b"0",
    b"\0",
    b"\xff",
    b"Host: i\r\n",
    b"chunked",
]


@settings(max_examples=200)
@given(st.integers(0, len(LONG)), st.sampled_from(SPOILING), st.integers(0, 3), st.integers(1, 40))
def test_what_is_spoilt_does_not_depend_on_cuts(
    at: int, piece: bytes, gone: int, step: int
) -> None:
    data = LONG[:at] + piece + LONG[at + gone :]
    assert outcome(read(*steps(data, step))) == outcome(read(data))


def test_a_refusal_is_one_of_ours() -> None:
    refusal = read(b"BREW / HTTP/1.1\r\n").refusal
    assert isinstance(refusal, BadHttp)
    assert isinstance(refusal, Refused)
    assert str(refusal) == "unsupported method"


# --- limits, one below, at, and one above


def sized_head(size: int) -> bytes:
    start, end = b"GET / HTTP/1.1\r\nHost: h\r\nX-A: ", b"\r\n\r\n"
    return start + b"a" * (size - len(start) - len(end)) + end


def test_the_size_of_a_head() -> None:
    assert len(one(sized_head(HEAD_SIZE_MAX - 1)).headers["x-a"]) == HEAD_SIZE_MAX - 35
    assert one(sized_head(HEAD_SIZE_MAX)).path == "/"
    assert status_of(sized_head(HEAD_SIZE_MAX + 1)) == 431
    assert status_of(GET + sized_head(HEAD_SIZE_MAX + 1)) == 431
    # Refused with the last byte that could have ended it, whole or not.
    long = sized_head(HEAD_SIZE_MAX + 1)
    assert read(long[: HEAD_SIZE_MAX - 1]).refusal is None
    assert status_of(long[:HEAD_SIZE_MAX]) == 431
    assert outcome(read(*steps(long, 1000))) == outcome(read(long))


@pytest.mark.parametrize("start", [b"X-A: ", b"X-A:" + b" " * 8000, b"X" * 9000])
def test_a_head_without_end(start: bytes) -> None:
    assert status_of(GET[:-2] + start + b"a" * HEAD_SIZE_MAX) == 431


def test_the_count_of_headers() -> None:
    more = [b"X-%d: a\r\n" % each for each in range(HEADERS_MAX)]
    head = b"GET / HTTP/1.1\r\nHost: h\r\n"
    assert len(one(head + b"".join(more[:-1]) + b"\r\n").headers) == HEADERS_MAX
    assert status_of(head + b"".join(more) + b"\r\n") == 431
    # The same name each time is as much work.
    assert status_of(head + b"X: a\r\n" * HEADERS_MAX + b"\r\n") == 431
    # Counted separately for every request of a connection.
    twice = head + b"".join(more[:60]) + b"\r\n"
    assert len(read(twice * 2).requests) == 2


def test_the_size_of_a_target() -> None:
    for size, status in (
        (TARGET_SIZE_MAX - 1, 0),
        (TARGET_SIZE_MAX, 0),
        (TARGET_SIZE_MAX + 1, 414),
    ):
        for method in (b"GET", b"OPTIONS"):
            data = b"%s /%s HTTP/1.1\r\nHost: h\r\n\r\n" % (method, b"a" * (size - 1))
            if status == 0:
                assert len(one(data).path) == size
            else:
                assert status_of(data) == status
    assert status_of(b"GET /" + b"a" * 9000) == 414
    assert read(b"GET /" + b"a" * 8000).refusal is None


def test_the_size_of_a_body_that_is_announced() -> None:
    head = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n"
    for size in (0, 1, BODY_MAX - 1, BODY_MAX):
        assert one(head % size + b"a" * size).body == b"a" * size
    reader = read(head % (BODY_MAX + 1))
    assert reader.refusal is not None
    assert reader.refusal.status == 413
    assert status_of(head % (10**18 - 1)) == 413
    # Refused first, so never asked to continue.
    asked = head[:-2] % (BODY_MAX + 1) + b"Expect: 100-continue\r\n\r\n"
    assert not read(asked).wants_continue


def test_the_size_of_a_body_in_chunks() -> None:
    half = b"1f4\r\n" + b"a" * 500 + b"\r\n"
    assert len(one(CHUNKED + half * 2 + b"0\r\n\r\n").body) == BODY_MAX
    # Before a byte of the chunk that is too much has come.
    assert status_of(CHUNKED + half * 2 + b"1\r\n") == 413
    assert status_of(CHUNKED + b"3e9\r\n") == 413
    assert status_of(CHUNKED + half + b"1f5\r\n") == 413


def test_announced_lengths_cost_nothing() -> None:
    reader = HttpReader(1 << 40)
    reader.feed(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000000\r\n\r\nabc")
    assert (reader.is_in_body, reader.held_bytes) == (True, 3)
    reader = HttpReader(1 << 40)
    reader.feed(CHUNKED + b"e8d4a51000\r\nabc")
    assert (reader.is_in_body, reader.held_bytes) == (True, 3)


def test_the_size_of_chunk_lines_and_extensions() -> None:
    line = b"1;" + b"a" * (CHUNK_LINE_SIZE_MAX - 4) + b"\r\n"
    assert one(CHUNKED + line + b"x\r\n0\r\n\r\n").body == b"x"
    assert status_of(CHUNKED + b"1;" + b"a" * (CHUNK_LINE_SIZE_MAX - 3) + b"\r\n") == 400
    assert status_of(CHUNKED + b"1;" + b"a" * (CHUNK_LINE_SIZE_MAX - 2)) == 400
    piece = b"1;" + b"a" * 127 + b"\r\nx\r\n"
    count = EXTENSIONS_SIZE_MAX // 128
    assert len(one(CHUNKED + piece * count + b"0\r\n\r\n").body) == count
    assert status_of(CHUNKED + piece * count + b"1;\r\n") == 400
    # Counted separately for every request.
    assert len(read((CHUNKED + piece * count + b"0\r\n\r\n") * 2).requests) == 2


def test_the_size_of_trailers() -> None:
    trailer = b"X: " + b"a" * (TRAILERS_SIZE_MAX - 7) + b"\r\n\r\n"
    assert len(trailer) == TRAILERS_SIZE_MAX
    assert one(CHUNKED + b"0\r\n" + trailer).body == b""
    assert status_of(CHUNKED + b"0\r\nX" + trailer) == 431
    assert read(CHUNKED + b"0\r\n" + b"X: a\r\n" * 1000).refusal is None
    assert status_of(CHUNKED + b"0\r\n" + b"X: a\r\n" * 2000) == 431


def test_empty_lines_before_a_request() -> None:
    most = b"\r\n" * (BLANKS_SIZE_MAX // 2)
    assert len(read((most + GET) * 3).requests) == 3
    assert status_of(most + b"\r\n") == 400


# --- what a session sees in between


def test_a_burst_of_requests_comes_out_in_order() -> None:
    post = b"POST /%d HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n%02d"
    get = b"GET /%d HTTP/1.1\r\nHost: h\r\n\r\n"
    burst = b"".join(post % (n, n % 100) if n % 2 else get % n for n in range(1000))
    reader = read(burst)
    assert [each.path for each in reader.requests] == [f"/{n}" for n in range(1000)]
    assert reader.requests[17].body == b"17"
    assert outcome(read(*steps(burst, 997))) == outcome(reader)


def test_requests_with_one_line_share_nothing_else() -> None:
    post = b"POST /a?b HTTP/1.1\r\nHost: h\r\n%sContent-Length: 1\r\n\r\n%s"
    data = post % (b"Connection: keep-alive\r\nX-A: b\r\n", b"1") + post % (b"", b"2")
    data += post % (b"Connection: close\r\n", b"3")
    first, second, third = read(data).requests
    assert [each.body for each in (first, second, third)] == [b"1", b"2", b"3"]
    assert [each.path + each.query for each in (first, second, third)] == ["/ab"] * 3
    assert ("x-a" in first.headers, "x-a" in second.headers) == (True, False)
    assert (second.keep_alive, third.keep_alive) == (True, False)


def test_the_session_takes_requests_out() -> None:
    reader = read(GET)
    assert reader.requests.pop(0).path == "/"
    reader.feed(GET)
    assert len(reader.requests) == 1


def test_where_in_a_request_the_bytes_end() -> None:
    data = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"
    head_size = len(data) - 3
    for size in range(len(data) + 1):
        reader = read(data[:size])
        assert reader.is_in_head == (0 < size < head_size)
        assert reader.is_in_body == (head_size <= size < len(data))
        assert len(reader.requests) == (size == len(data))
        held = size if size < head_size else size - head_size
        assert reader.held_bytes == (0 if size == len(data) else held)


def test_where_in_chunks_the_bytes_end() -> None:
    data = CHUNKED + b"3;a=b\r\nabc\r\n0\r\nX: y\r\n\r\n"
    for size in range(len(data) + 1):
        reader = read(data[:size])
        assert reader.is_in_head == (0 < size < len(CHUNKED))
        assert reader.is_in_body == (len(CHUNKED) <= size < len(data))


def test_leave_to_send_a_body_is_asked_for_once() -> None:
    head = b"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-Continue\r\nContent-Length: 3\r\n\r\n"
    assert not read(head[:-1]).wants_continue
    reader = read(head)
    assert reader.wants_continue
    reader.wants_continue = False
    reader.feed(b"a")
    assert not reader.wants_continue
    reader.feed(b"bc")
    assert reader.requests[0].body == b"abc"
    # A client that sent the body anyway, or has none, or uses HTTP/1.0, needs no 100 Continue.
    assert not read(head + b"abc").wants_continue
    assert not read(head.replace(b"Length: 3", b"Length: 0")).wants_continue
    assert not read(head.replace(b"HTTP/1.1", b"HTTP/1.0")).wants_continue
    assert read(CHUNKED[:-2] + b"Expect: 100-continue\r\n\r\n").wants_continue
    assert status_of(head.replace(b"100-Continue", b"cake")) == 417


@pytest.mark.parametrize(
    ("version", "connection", "lives"),
    [
        (b"1.1", b"", True),
        (b"1.1", b"Connection: close\r\n", False),
        (b"1.1", b"Connection: x, CLOSE\r\n", False),
        (b"1.1", b"Connection: x\r\nConnection: close\r\n", False),
        (b"1.1", b"Connection: closed\r\n", True),
        (b"1.1", b"Connection: keep-alive\r\n", True),
        (b"1.0", b"", False),
        (b"1.0", b"Connection: Keep-Alive\r\n", True),
        (b"1.0", b"Connection: keep-alive, close\r\n", False),
        (b"1.0", b"Connection: upgrade\r\n", False),
    ],
)
def test_whether_the_connection_lives_on(version: bytes, connection: bytes, *, lives: bool) -> None:
    data = b"GET / HTTP/%s\r\nHost: h\r\n%s\r\n" % (version, connection)
    assert one(data).keep_alive == lives
    reader = read(data + GET)
    assert reader.refusal is None
    assert len(reader.requests) == 1 + lives
    assert reader.held_bytes == 0


@pytest.mark.parametrize(
    "data",
    [
        b"POST / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"GET / HTTP/1.0\r\nConnection: upgrade, keep-alive\r\nUpgrade: websocket\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
        (
            b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n"
            b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\nGET "
        ),
    ],
)
def test_what_is_no_upgrade_is_a_request_like_others(data: bytes) -> None:
    reader = read(data + GET + GET)
    assert reader.refusal is None
    assert len(reader.requests) == 3
    assert not any(each.is_upgrade for each in reader.requests)


def test_bytes_behind_an_upgrade_are_kept_apart() -> None:
    data = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: foo, WebSocket\r\n\r\n"
    reader = read(data + b"ab", b"cd")
    assert reader.requests[0].is_upgrade
    assert reader.rest == b"abcd"
    assert (reader.is_in_head, reader.is_in_body, reader.held_bytes) == (False, False, 0)


def test_hosts_and_urls() -> None:
    for host in (b"a", b"a.b:80", b"127.0.0.1", b"[::1]", b"[::1]:80", b"", b"a_b", b"a%20"):
        assert one(b"GET / HTTP/1.1\r\nHost: %s\r\n\r\n" % host).headers["host"] == host.decode()
    # One that was good does not make the next good.
    assert status_of(GET + b"GET / HTTP/1.1\r\nHost: h,i\r\n\r\n") == 400
    for target, path, query in (
        (b"HTTP://a:80/b?c", "/b", "c"),
        (b"https://a", "/", ""),
        (b"http://a?b/c", "/", "b/c"),
        (b"//a/b", "//a/b", ""),
        (b"/a?b?c", "/a", "b?c"),
        (b"/?", "/", ""),
    ):
        request = one(b"GET %s HTTP/1.1\r\nHost: h\r\n\r\n" % target)
        assert (request.path, request.query) == (path, query)


def test_header_values_are_latin_1_and_stripped_of_blanks_alone() -> None:
    request = one(GET[:-2] + b"X-A: \t\xa0\xe9\x85 \t\r\nX-B:\r\nAuthorization: Bearer x\r\n\r\n")
    assert request.headers["x-a"] == "\xa0\xe9\x85"
    assert request.headers["x-b"] == ""
    assert request.headers["authorization"] == "Bearer x"
