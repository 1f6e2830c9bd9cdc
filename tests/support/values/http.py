"""Requests whose end two servers could see in different places, and the required answer to each.

Every vector is a whole input for a connection, the status that must refuse it, and how many
requests before the refusal are valid.
"""

from typing import Final, NamedTuple

# The request an attacker would smuggle; no vector may let it through.
HIDDEN: Final = b"GET /hidden HTTP/1.1\r\nHost: h\r\n\r\n"


class Vector(NamedTuple):
    """One input that must be refused."""

    name: str
    data: bytes
    status: int
    requests_count: int = 0


def _post(headers: bytes, body: bytes = b"") -> bytes:
    return b"POST /a HTTP/1.1\r\nHost: h\r\n" + headers + b"\r\n" + body


def _chunked(body: bytes) -> bytes:
    return _post(b"Transfer-Encoding: chunked\r\n", body)


SMUGGLING: Final = [
    Vector(
        "length and encoding",
        _post(b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n" + HIDDEN),
        400,
    ),
    Vector(
        "encoding and length",
        _post(b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", b"0\r\n\r\n" + HIDDEN),
        400,
    ),
    Vector("two lengths", _post(b"Content-Length: 0\r\nContent-Length: 33\r\n", HIDDEN), 400),
    Vector(
        "the same length twice", _post(b"Content-Length: 3\r\nContent-Length: 3\r\n", b"abc"), 400
    ),
    Vector("lengths in a list", _post(b"Content-Length: 3, 3\r\n", b"abc"), 400),
    Vector("a length with a sign", _post(b"Content-Length: +3\r\n", b"abc"), 400),
    Vector("a negative length", _post(b"Content-Length: -3\r\n", b"abc"), 400),
    Vector("a hexadecimal length", _post(b"Content-Length: 0x3\r\n", b"abc"), 400),
    Vector("an empty length", _post(b"Content-Length: \r\n", HIDDEN), 400),
    Vector("a length in two words", _post(b"Content-Length: 1 2\r\n", b"a"), 400),
    Vector("a length with an underscore", _post(b"Content-Length: 1_0\r\n", b"a" * 10), 400),
    Vector(
        "a length of 2 ** 64 + 3", _post(b"Content-Length: 18446744073709551619\r\n", b"abc"), 400
    ),
    Vector("a length of 19 digits", _post(b"Content-Length: 1000000000000000000\r\n"), 400),
    Vector("a length with blanks before the colon", _post(b"Content-Length : 3\r\n", b"abc"), 400),
    Vector("a length with a tab before the colon", _post(b"Content-Length\t: 3\r\n", b"abc"), 400),
    Vector("a folded length", _post(b"Content-Length:\r\n 3\r\n", b"abc"), 400),
    Vector(
        "an encoding in HTTP/1.0",
        b"POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    Vector("encoded as identity", _post(b"Transfer-Encoding: identity\r\n", HIDDEN), 400),
    Vector("encoded as gzip", _post(b"Transfer-Encoding: gzip\r\n", HIDDEN), 400),
    Vector("encoded as xchunked", _post(b"Transfer-Encoding: xchunked\r\n", b"0\r\n\r\n"), 400),
    Vector("gzip in chunks", _post(b"Transfer-Encoding: gzip, chunked\r\n", b"0\r\n\r\n"), 501),
    Vector("chunks in gzip", _post(b"Transfer-Encoding: chunked, gzip\r\n", b"0\r\n\r\n"), 400),
    Vector("chunked twice", _post(b"Transfer-Encoding: chunked, chunked\r\n", b"0\r\n\r\n"), 400),
    Vector(
        "two encodings",
        _post(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", b"0\r\n\r\n"),
        400,
    ),
    Vector("a quoted encoding", _post(b'Transfer-Encoding: "chunked"\r\n', b"0\r\n\r\n"), 400),
    Vector(
        "an encoding with a vertical tab",
        _post(b"Transfer-Encoding: \x0bchunked\r\n", b"0\r\n\r\n"),
        400,
    ),
    Vector(
        "a blank before the name of the encoding",
        _post(b" Transfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
        400,
    ),
    Vector("a folded header", _post(b"X-A: b\r\n c\r\n"), 400),
    Vector("a header with a bare LF", _post(b"X-A: b\nX-B: c\r\n"), 400),
    Vector("a header with a bare CR", _post(b"X-A: b\rX-B: c\r\n"), 400),
    Vector("a header with a NUL", _post(b"X-A: b\x00c\r\n"), 400),
    Vector("a name with a NUL", _post(b"X-A\x00: b\r\n"), 400),
    Vector("a header without a name", _post(b": b\r\n"), 400),
    Vector("a header without a colon", _post(b"X-A\r\n"), 400),
    Vector("a head in bare LFs", b"GET / HTTP/1.1\nHost: h\n\n", 400),
    Vector("a head that ends in a bare LF", b"GET / HTTP/1.1\r\nHost: h\r\n\n" + HIDDEN, 400),
    Vector("no host", b"GET / HTTP/1.1\r\n\r\n", 400),
    Vector("two hosts", b"GET / HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n", 400),
    Vector("the same host twice", b"GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n", 400),
    Vector("two hosts in HTTP/1.0", b"GET / HTTP/1.0\r\nHost: h\r\nHost: i\r\n\r\n", 400),
    Vector("a host with a path", b"GET / HTTP/1.1\r\nHost: h/i\r\n\r\n", 400),
    Vector("a host with a user", b"GET / HTTP/1.1\r\nHost: h@i\r\n\r\n", 400),
    Vector("two blanks in the request line", b"GET  / HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    Vector("a tab in the request line", b"GET\t/ HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    Vector("a bare CR in the request line", b"GET /\r HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    Vector("a blank in the target", b"GET /a b HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    Vector("a blank behind the version", b"GET / HTTP/1.1 \r\nHost: h\r\n\r\n", 400),
    Vector("a fragment in the target", b"GET /a#b HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    Vector("a byte above ASCII in the target", b"GET /\xc3\xa9 HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    Vector("a target without a slash", b"GET a HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    Vector("a URL of another scheme", b"GET file:///a HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    Vector("a URL with a user", b"GET http://u@h/ HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    Vector("a star that is not for OPTIONS", b"GET * HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    Vector("HTTP/0.9", b"GET /\r\n", 400),
    Vector("HTTP/1.2", b"GET / HTTP/1.2\r\nHost: h\r\n\r\n", 505),
    Vector("HTTP/2 in words", b"GET / HTTP/2.0\r\nHost: h\r\n\r\n", 505),
    Vector("the preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    Vector("a version in small letters", b"GET / http/1.1\r\nHost: h\r\n\r\n", 400),
    Vector("a version of two digits", b"GET / HTTP/1.10\r\nHost: h\r\n\r\n", 400),
    Vector("a tunnel", b"CONNECT h:80 HTTP/1.1\r\nHost: h\r\n\r\n" + HIDDEN, 501),
    Vector("an echo", b"TRACE / HTTP/1.1\r\nHost: h\r\n\r\n", 501),
    Vector("an unknown method", b"BREW / HTTP/1.1\r\nHost: h\r\n\r\n", 501),
    Vector("a method in small letters", b"get / HTTP/1.1\r\nHost: h\r\n\r\n", 501),
    Vector("a method that is no word", b"G(T / HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    Vector("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    Vector("a chunk size with a prefix", _chunked(b"0x3\r\nabc\r\n0\r\n\r\n"), 400),
    Vector("a chunk size with a sign", _chunked(b"+3\r\nabc\r\n0\r\n\r\n"), 400),
    Vector("a chunk size with an underscore", _chunked(b"1_0\r\n" + b"a" * 16 + b"\r\n"), 400),
    Vector("a chunk size with a blank before it", _chunked(b" 3\r\nabc\r\n0\r\n\r\n"), 400),
    Vector("a chunk size with a blank behind it", _chunked(b"3 \r\nabc\r\n0\r\n\r\n"), 400),
    Vector("an empty chunk size", _chunked(b"\r\n\r\n"), 400),
    Vector("a chunk size in a bare LF", _chunked(b"3\nabc\r\n0\r\n\r\n"), 400),
    Vector("a chunk size of 17 digits", _chunked(b"1" + b"0" * 16 + b"\r\n"), 400),
    Vector("a chunk size of 2 ** 64 - 1", _chunked(b"f" * 16 + b"\r\nabc"), 413),
    Vector("a chunk that is longer than it says", _chunked(b"3\r\nabcd\r\n0\r\n\r\n"), 400),
    Vector("a chunk that ends in a bare LF", _chunked(b"3\r\nabc\n0\r\n\r\n"), 400),
    Vector("a chunk that ends in a bare CR", _chunked(b"3\r\nabc\rX0\r\n\r\n"), 400),
    Vector("an extension with a bare LF", _chunked(b"3;a\nabc\r\n0\r\n\r\n"), 400),
    Vector("an extension with a bare CR", _chunked(b"3;a\rb\r\nabc\r\n0\r\n\r\n"), 400),
    Vector("trailers in bare LFs", _chunked(b"0\r\nX: a\nY: b\r\n\r\n"), 400),
    Vector("trailers that end in a bare LF", _chunked(b"0\r\nX: a\r\n\n" + HIDDEN), 400),
    Vector("a folded trailer", _chunked(b"0\r\nX: a\r\n b\r\n\r\n"), 400),
    Vector("a trailer without a colon", _chunked(b"0\r\nX\r\n\r\n" + HIDDEN), 400),
    Vector("a request behind a request", HIDDEN + b"G\x00T / HTTP/1.1\r\n\r\n", 400, 1),
    Vector("a bare CR before a request", HIDDEN + b"\rGET / HTTP/1.1\r\n\r\n", 400, 1),
    Vector("a bare LF before a request", HIDDEN + b"\nGET / HTTP/1.1\r\n\r\n", 400, 1),
    Vector("empty lines without end", HIDDEN + b"\r\n" * 9, 400, 1),
]
