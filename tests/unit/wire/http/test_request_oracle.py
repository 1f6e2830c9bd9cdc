"""h11 reads the same bytes: what we accept as a request, it must accept as the same request.

We refuse more than h11 does, and each case is listed with its reason. Conversely
there are two differences: h11 refuses empty lines before a request, and reads nothing behind one of
HTTP/1.0, even if it requests keep-alive.
"""

import h11
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jobyard.wire.http.request import HttpReader, HttpRequest
from tests.support.values.http import SMUGGLING

Read = tuple[bytes, bytes, list[tuple[bytes, bytes]], bytes]

# The texts of refusals that h11 has no counterpart for.
STRICTER = {
    # Several readings are possible, and peers differ.
    "more than one Host header": "h11 counts them in HTTP/1.1 alone",
    "invalid Host header": "h11 does not look into it",
    "Transfer-Encoding in HTTP/1.0": "which has none; a peer may take the chunks for requests",
    "malformed: Duplicate Content-Length": "h11 takes equal ones, also in a list",
    "malformed: Invalid character in Content-Length": "the same",
    "malformed: Content-Length can't be present with Transfer-Encoding": "h11 takes the encoding",
    "malformed: Transfer-Encoding can't be present with Content-Length": "the same",
    "malformed: Missing expected CR after header value": "h11 takes a bare LF for a line end",
    "malformed: Missing expected LF after header value": "h11 takes CR for a blank of a kind",
    "malformed: Expected LF after headers": "the same",
    "malformed: Expected CRLF after version": "the same",
    "malformed: Invalid header field char": "h11 takes a bare LF for the end of the head",
    "malformed: Unexpected whitespace after header value": "h11 unfolds folded headers",
    "malformed: Invalid header value char": "h11 lets control characters pass, and unfolds",
    "request line does not end in CR LF": "h11 takes a bare LF for a line end",
    "invalid chunk size": "h11 takes blanks behind it and 20 digits",
    "malformed trailer": "h11 takes folded ones, control characters and bare LFs",
    # Not for this server.
    "unsupported method": "h11 has no list of methods",
    "unsupported HTTP version: use HTTP/1.1 or HTTP/1.0": "h11 takes HTTP/1.2",
    "request target is neither a path nor a URL": "h11 does not look into targets",
    "request target without a host": "the same",
    "invalid character in the request target": "h11 takes fragments",
    "unsupported Expect header": "h11 ignores it",
    "request body exceeds 100 bytes": "h11 has no limit",
}


def ours(data: bytes) -> tuple[list[Read], str | None]:
    reader = HttpReader(100)
    reader.feed(data)
    refusal = None if reader.refusal is None else str(reader.refusal)
    found: list[Read] = []
    for each in reader.requests:
        found.append(as_read(each))
        if each.is_1_0:  # h11 has no keep-alive for HTTP/1.0
            break
    return found, refusal


def as_read(request: HttpRequest) -> Read:
    target = request.path + ("?" + request.query if request.query else "")
    headers = [(name.encode(), text.encode("latin-1")) for name, text in request.headers.items()]
    return request.method.encode(), target.encode(), sorted(headers), request.body


def theirs(data: bytes) -> tuple[list[Read], bool]:
    """Return what h11 reads, and whether it refuses what follows."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    connection.receive_data(data)
    found: list[Read] = []
    request: h11.Request | None = None
    body = b""
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError:
            return found, True
        if isinstance(event, h11.Request):
            request, body = event, b""
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            assert request is not None
            found.append((request.method, origin(request.target), joined(request), body))
            if request.method == b"CONNECT":  # anything may follow
                return found, False
            connection.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
            connection.send(h11.EndOfMessage())
            if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                return found, False
            connection.start_next_cycle()
        else:
            return found, False


def joined(request: h11.Request) -> list[tuple[bytes, bytes]]:
    headers: dict[bytes, bytes] = {}
    for name, value in request.headers:
        headers[name] = headers[name] + b", " + value if name in headers else value
    return sorted(headers.items())


def origin(target: bytes) -> bytes:
    """What we make of a target that h11 hands on as it is."""
    if target == b"*":
        return b"/"
    if b"://" in target and not target.startswith(b"/"):
        authority, mark, rest = target.partition(b"://")[2].partition(b"?")
        path = b"/" + authority.partition(b"/")[2]
        target = path + mark + rest
    return target.removesuffix(b"?") if target.count(b"?") == 1 else target


TOKEN = st.text("abcXYZ019-_.!#$%&'*+^`|~", min_size=1, max_size=8).map(lambda x: "x" + x)
VALUE = st.text(
    st.characters(codec="latin-1", exclude_categories=["Cc", "Zs"]) | st.just(" "), max_size=12
).map(lambda text: text.strip(" ").encode("latin-1"))
BLANKS = st.sampled_from([b"", b" ", b"\t", b" \t "])
TARGETS = st.one_of(
    st.text("abz019-_.~!$&'()*+,;=:@/%?", max_size=12).map(lambda text: "/" + text),
    st.sampled_from(["http://h", "http://h/", "http://h/a?b", "HTTPS://h:1?x"]),
)


@st.composite
def header_lines(draw: st.DrawFn) -> bytes:
    names = draw(st.lists(TOKEN, max_size=4))
    return b"".join(
        name.encode() + b":" + draw(BLANKS) + draw(VALUE) + draw(BLANKS) + b"\r\n" for name in names
    )


@st.composite
def chunks(draw: st.DrawFn) -> bytes:
    out = b""
    for piece in draw(st.lists(st.binary(min_size=1, max_size=20), max_size=4)):
        form = draw(st.sampled_from([b"%x", b"%X", b"%04x"]))
        extension = draw(st.sampled_from([b"", b";a", b";a=b", b';a="b c"']))
        out += form % len(piece) + extension + b"\r\n" + piece + b"\r\n"
    return out + draw(st.sampled_from([b"0", b"000"])) + b"\r\n" + draw(header_lines()) + b"\r\n"


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """One request that every parser must read alike."""
    method = draw(st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"]))
    version = draw(st.sampled_from([b"1.1", b"1.1", b"1.0"]))
    head = method.encode() + b" " + draw(TARGETS).encode() + b" HTTP/" + version + b"\r\n"
    head += draw(header_lines()) + draw(st.sampled_from([b"Host: h\r\n", b"host:h:80\r\n"]))
    head += draw(
        st.sampled_from([b"", b"", b"Connection: keep-alive\r\n", b"Connection: close\r\n"])
    )
    head += draw(header_lines())
    framing = draw(st.sampled_from(["none", "length", "chunks"]))
    if framing == "length":
        body = draw(st.binary(max_size=40))
        return head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    if framing == "chunks" and version == b"1.1":
        return head + b"Transfer-Encoding: chunked\r\n\r\n" + draw(chunks())
    return head + b"\r\n"


CONNECTIONS = st.lists(requests(), min_size=1, max_size=3).map(b"".join)
# What makes servers disagree, to be put anywhere.
TROUBLE = st.sampled_from(
    [
        *(b"\r", b"\n", b"\r\n", b"\r\n\r\n", b" ", b"\t", b"\0", b":", b";", b",", b"0", b"\x0b"),
        *(b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"Host: i\r\n"),
        *(b" HTTP/1.0", b"chunked", b"\x85", b"\xa0", b"#", b"Expect: x\r\n"),
    ]
)


@given(CONNECTIONS)
def test_what_is_well_formed_is_read_alike(data: bytes) -> None:
    found, refusal = ours(data)
    expected, is_refused = theirs(data)
    assert refusal is None
    assert not is_refused
    assert found == expected


@settings(max_examples=400)
@given(CONNECTIONS, st.data())
def test_what_is_spoilt_is_read_alike_or_refused(data: bytes, draw: st.DataObject) -> None:
    for _ in range(draw.draw(st.integers(1, 3))):
        at = draw.draw(st.integers(0, len(data)))
        gone = draw.draw(st.integers(0, 3))
        data = data[:at] + draw.draw(TROUBLE) + data[at + gone :]
    compare(data)


@given(st.sampled_from(SMUGGLING))
def test_the_vectors_are_refused_for_a_reason(vector: object) -> None:
    assert isinstance(vector, tuple)
    compare(vector[1])


@example(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n")
@given(st.binary(max_size=60))
def test_noise_is_read_alike_or_refused(noise: bytes) -> None:
    compare(noise)


def compare(data: bytes) -> None:
    """Compare our result with h11's: equal, or shorter with a refusal that has a reason."""
    found, refusal = ours(data)
    expected, is_refused = theirs(data)
    common = min(len(found), len(expected))
    assert found[:common] == expected[:common]
    if len(found) > common:
        assert is_refused
        assert data.startswith(b"\r\n") or b"\n\r\n\r\n" in data
    elif len(expected) > common:
        assert refusal in STRICTER
