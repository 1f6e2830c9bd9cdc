"""HTTP/1.x requests: bytes to requests. No I/O, no routes.

httptools (llhttp, with none of its leniencies) checks and splits the head. Everything that decides
where a request ends is done here: finding the end of the head, counting the body, reading chunks.
So every limit is exact, and any split of the input into pieces gives the same requests and the same
refusal. A request whose end two servers could see in two places is refused, and after a refusal
nothing more is read.

An announced length costs nothing; memory grows with the bytes received. At most one head (16 KiB)
and one body (`body_max`) of an unfinished request are held.
"""

import re
from typing import Final, final

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from mypy_extensions import i64

from jobyard.errors import Refused
from jobyard.wire.http.head import HeadLines
from jobyard.wire.http.response import (
    CONTINUE,
    chunk,
    last_chunk,
    response,
    response_head,
    stream_head,
)
from jobyard.wire.http.target import parse_query, path_in, split_path
from jobyard.wire.long_input import LongInput

# All of HTTP/1 that sessions need, wherever it is defined.
__all__ = [
    "CONTINUE",
    "BadHttp",
    "HttpReader",
    "HttpRequest",
    "chunk",
    "last_chunk",
    "parse_query",
    "response",
    "response_head",
    "split_path",
    "stream_head",
]

HEADERS_MAX: Final = 100
HEAD_SIZE_MAX: Final = 16384
TARGET_SIZE_MAX: Final = 8192
# Size and extensions of one chunk with its line end; 16 digits are enough for any body.
CHUNK_LINE_SIZE_MAX: Final = 256
# Extensions of all chunks of a body: nothing uses them, so they must not be most of the work.
EXTENSIONS_SIZE_MAX: Final = 16384
TRAILERS_SIZE_MAX: Final = 8192
# Empty lines that old clients send after a body; more than these are not a mistake.
BLANKS_SIZE_MAX: Final = 16

# The longest method, the target, the version, two spaces and the line end.
_LINE_SIZE_MAX: Final = 7 + TARGET_SIZE_MAX + 8 + 4

_METHODS: Final = {
    b"GET": "GET",
    b"POST": "POST",
    b"PUT": "PUT",
    b"DELETE": "DELETE",
    b"HEAD": "HEAD",
    b"PATCH": "PATCH",
    b"OPTIONS": "OPTIONS",
}

_TOKEN: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VERSION: Final = re.compile(rb"HTTP/[0-9]\.[0-9]")
_HOST: Final = re.compile(r"[!$&'()*+;=\-._~%0-9A-Za-z]*(:[0-9]*)?|\[[0-9A-Fa-f:.]+\](:[0-9]*)?")
_CHUNK_LINE: Final = re.compile(rb"[0-9A-Fa-f]{1,16}(;[\t\x20-\x7e\x80-\xff]*)?")
_TRAILER_LINE: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*\r\n")

# What the next byte belongs to.
_HEAD: Final = 0
_BODY: Final = 1
_CHUNK_SIZE: Final = 2
_CHUNK: Final = 3
_CHUNK_END: Final = 4
_TRAILER: Final = 5
_OVER: Final = 6
_UPGRADED: Final = 7


class BadHttp(Refused):
    """A request after which the input cannot be parsed; answered with `status`, then closed."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@final
class HttpRequest:
    """One whole request. The path starts with a slash; neither it nor the query is decoded."""

    def __init__(self, method: str, path: str, query: str, *, is_1_0: bool) -> None:
        self.method = method
        self.path = path
        self.query = query
        # By lower-case name; repeated headers are joined with ", ".
        self.headers: dict[str, str] = {}
        self.body = b""
        self.is_1_0 = is_1_0
        self.keep_alive = not is_1_0
        self.is_upgrade = False

    def without_body(self) -> "HttpRequest":
        """Return a request with the same head."""
        request = HttpRequest(self.method, self.path, self.query, is_1_0=self.is_1_0)
        request.headers = self.headers
        request.keep_alive = self.keep_alive
        return request


@final
class HttpReader:
    """The requests in the bytes of one connection.

    `requests` are complete, oldest first, for the session to take out. Nothing is read after a
    `refusal`, after a request that ends the connection, or after an upgrade; all bytes after an
    upgrade go to `rest`.
    """

    def __init__(self, body_max: i64) -> None:
        self.requests: list[HttpRequest] = []
        self.refusal: BadHttp | None = None
        # A head with `Expect: 100-continue` is complete; the session resets it.
        self.wants_continue = False
        self.is_in_head = False
        self.is_in_body = False
        self.held_bytes: i64 = 0
        self.rest = b""
        self._body_max: i64 = body_max
        # Of the current body, if its length is not known.
        self._chunks_max: i64 = body_max
        self._state: i64 = _HEAD
        self._lines = HeadLines()
        self._parser = HttpRequestParser(self._lines)
        # Bytes that could not be parsed yet, and the position in the bytes fed last.
        self._data = b""
        self._at: i64 = 0
        # Of the current head: its request line, and how much of it httptools has seen.
        self._request: HttpRequest | None = None
        self._parsed_size: i64 = 0
        self._blanks_size: i64 = 0
        # Of the body: bytes of it, or of the current chunk, that have not arrived.
        self._left: i64 = 0
        self._is_body_parsed = False
        self._body = LongInput()
        self._extensions_size: i64 = 0
        self._trailers_size: i64 = 0
        # The last valid host and request line: a connection names the same host in every request,
        # and most repeat the line; not checking them again saves a third of the work.
        self._host = ""
        self._refused_path = ""
        self._line = b""
        self._pattern = HttpRequest("", "", "", is_1_0=False)
        # The last head that was followed by a plain body or none, and its request: identical bytes
        # are not parsed again.
        self._head = b""
        self._head_request = self._pattern
        self._head_left: i64 = 0

    def bound_body(self, most: i64) -> bool:
        """Limit the body that is being received; return False if it is announced to be longer."""
        self._chunks_max = min(most, self._body_max)
        return self._state != _BODY or self._body.size + self._left <= most

    def unfinished(self) -> HttpRequest | None:
        """Return the request whose body is being received; its body is still empty."""
        return self._request if self.is_in_body else None

    def path(self) -> str:
        """Return the path of the request that is being read or was refused, if it is known yet."""
        request = self._request
        return self._refused_path if request is None else request.path

    def feed(self, data: bytes) -> None:
        """Parse more bytes; every complete request is then in `requests`."""
        if self._state == _UPGRADED:
            self.rest += data
            return
        if self._state == _OVER:
            return
        self._data = self._data + data if len(self._data) > 0 else data
        self._at = 0
        try:
            while self._at < len(self._data) and self._read_part():
                pass
        except BadHttp as refusal:
            self.refusal = refusal
            self._refused_path = self.path()
            self._end(_OVER)
        self._data = self._data[self._at :]
        is_head = self._state == _HEAD
        self.is_in_head = is_head and (self._request is not None or len(self._data) > 0)
        self.is_in_body = _BODY <= self._state <= _TRAILER
        self.held_bytes = len(self._data) + self._body.size

    def forget(self) -> None:
        """Drop everything received: none of it will be served."""
        self._end(_OVER)
        self._data, self.rest = b"", b""
        self.requests, self.refusal = [], None
        self.held_bytes = 0

    def _end(self, state: i64) -> None:
        """Stop reading requests and drop the current one."""
        self._state = state
        self._at = len(self._data)
        self._request = None
        self._body.clear()
        self.wants_continue = False

    def _read_part(self) -> bool:
        """Read the next part of a request; return False if too little of it is there."""
        state = self._state
        if state == _HEAD:
            return self._read_head()
        if state == _BODY:
            return self._read_body()
        return state <= _TRAILER and self._read_chunked(state)

    def _read_chunked(self, state: i64) -> bool:
        if state == _CHUNK:
            return self._read_chunk()
        if state == _CHUNK_END:
            return self._read_chunk_end()
        if state == _CHUNK_SIZE:
            return self._read_chunk_size()
        return self._read_trailer()

    # --- the head

    def _read_head(self) -> bool:
        if self._request is None:
            head = self._head
            if len(head) > 0 and self._data.startswith(head, self._at):
                self._repeat_head(len(head))
                return True
            if not self._read_line():
                return False
        data = self._data
        at = self._at
        # The whole head must fit, including the empty line. The last three bytes that httptools has
        # seen may be the start of the final line ends.
        start = at + self._parsed_size
        stop: i64 = data.find(b"\r\n\r\n", max(start - 3, at), at + HEAD_SIZE_MAX)
        is_whole = stop >= 0
        stop = stop + 4 if is_whole else min(len(data), at + HEAD_SIZE_MAX)
        is_parser_spent = False
        try:
            self._parser.feed_data(data[start:stop])
        except HttpParserUpgrade:
            # It treats everything after such a head as another protocol. We must not.
            is_parser_spent = True
        except HttpParserError as error:
            raise BadHttp(400, f"malformed: {error}") from error
        if not is_whole:
            if stop - at == HEAD_SIZE_MAX:
                raise BadHttp(431, "request head too large")
            self._parsed_size = stop - at
            return False
        self._at, self._parsed_size = stop, 0
        request = self._request
        self._judge_head(is_parser_spent=is_parser_spent)
        if not is_parser_spent and self._state in (_HEAD, _BODY) and not self.wants_continue:
            assert request is not None
            self._head = data[at:stop]
            # Without the body, which arrives later and belongs to the request.
            self._head_request = request.without_body()
            self._head_left = self._left if self._state == _BODY else 0
        return True

    def _repeat_head(self, size: i64) -> None:
        """Accept a head that was checked before; httptools sees neither it nor its body."""
        self._request = self._head_request.without_body()
        self._at += size
        self._blanks_size = 0
        if self._head_left == 0:
            self._finish(b"")
            return
        self._left = self._head_left
        self._state = _BODY
        self._is_body_parsed = False

    def _read_line(self) -> bool:
        """Read the request line; httptools gets it only after it was checked here."""
        if not self._skip_blanks():
            return False
        data = self._data
        at = self._at
        # Checked before the line is complete: a TLS client may never send a line end.
        if not 32 < data[at] < 127:
            raise BadHttp(400, "not an HTTP request")
        end: i64 = data.find(b"\n", at, at + _LINE_SIZE_MAX)
        if end < 0:
            if len(data) - at >= _LINE_SIZE_MAX:
                self._refused_path = path_in(data[at : at + _LINE_SIZE_MAX])
                raise BadHttp(414, "request target too long")
            return False
        if data[end - 1] != 13:
            raise BadHttp(400, "request line does not end in CR LF")
        line = data[at : end - 1]
        if line != self._line:
            self._refused_path = path_in(line)
            self._pattern = _request_of(line)
            self._line = line
        pattern = self._pattern
        is_1_0 = pattern.is_1_0
        self._request = HttpRequest(pattern.method, pattern.path, pattern.query, is_1_0=is_1_0)
        self._blanks_size = 0
        return True

    def _skip_blanks(self) -> bool:
        """Skip empty lines before a request; return False if no request has begun."""
        data = self._data
        size: i64 = len(data)
        while self._at < size and data[self._at] == 13:
            if self._at + 1 == size:
                return False
            if data[self._at + 1] != 10:
                raise BadHttp(400, "CR without LF before the request")
            self._blanks_size += 2
            if self._blanks_size > BLANKS_SIZE_MAX:
                raise BadHttp(400, "too many empty lines before the request")
            self._at += 2
        return self._at < size

    def _judge_head(self, *, is_parser_spent: bool) -> None:
        """Check a complete head and decide how its request continues."""
        request = self._request
        assert request is not None
        lines = self._lines
        if not lines.is_complete:
            raise BadHttp(400, "malformed request head")
        if lines.headers_count > HEADERS_MAX:
            raise BadHttp(431, "too many headers")
        headers = lines.headers
        request.headers = headers
        self._judge_host(request)
        is_chunked = False
        if "transfer-encoding" in headers:
            _judge_encoding(request)
            is_chunked = True
        size = _content_length(headers)
        if size > self._body_max:
            raise BadHttp(413, f"request body exceeds {self._body_max} bytes")
        has_body = is_chunked or size > 0
        if "connection" in headers:
            _judge_connection(request, has_body=has_body)
        if "expect" in headers and not request.is_1_0:
            if headers["expect"].lower() != "100-continue":
                raise BadHttp(417, "unsupported Expect header")
            self.wants_continue = has_body
        # httptools would read chunks itself; from here on it sees only heads and plain bodies.
        if is_chunked or is_parser_spent:
            self._lines = HeadLines()
            self._parser = HttpRequestParser(self._lines)
        else:
            lines.headers = {}
            lines.headers_count = 0
            lines.is_complete = False
        if not has_body:
            self._finish(b"")
            return
        self._left = size
        self._state = _CHUNK_SIZE if is_chunked else _BODY
        self._is_body_parsed = not is_parser_spent

    def _judge_host(self, request: HttpRequest) -> None:
        if self._lines.is_host_repeated:
            raise BadHttp(400, "more than one Host header")
        host = request.headers.get("host")
        if host is None:
            if not request.is_1_0:
                raise BadHttp(400, "missing Host header")
        elif host != self._host:
            if not _HOST.fullmatch(host):
                raise BadHttp(400, "invalid Host header")
            self._host = host

    # --- the body

    def _read_body(self) -> bool:
        at = self._at
        size = min(self._left, len(self._data) - at)
        piece = self._data[at : at + size]
        if self._is_body_parsed:
            try:
                self._parser.feed_data(piece)
            except HttpParserError as error:
                # Never observed: it would mean that httptools counts the body differently.
                raise BadHttp(400, f"malformed: {error}") from error
        self._at = at + size
        self._left -= size
        if self._left > 0:
            self._body.append(piece)
            return False
        if self._body.size == 0:
            self._finish(piece)
        else:
            self._body.append(piece)
            self._finish_body()
        return True

    def _read_chunk_size(self) -> bool:
        at = self._at
        end: i64 = self._data.find(b"\n", at, at + CHUNK_LINE_SIZE_MAX)
        if end < 0:
            if len(self._data) - at >= CHUNK_LINE_SIZE_MAX:
                raise BadHttp(400, "chunk size does not end in CR LF")
            return False
        line = self._data[at : end + 1]
        if not line.endswith(b"\r\n") or not _CHUNK_LINE.fullmatch(line, 0, len(line) - 2):
            raise BadHttp(400, "invalid chunk size")
        digits = line[:-2]
        extension: i64 = digits.find(b";")
        if extension >= 0:
            self._extensions_size += len(digits) - extension
            if self._extensions_size > EXTENSIONS_SIZE_MAX:
                raise BadHttp(400, "too many chunk extensions")
            digits = digits[:extension]
        # Sixteen hexadecimal digits do not fit in an i64.
        if len(digits.lstrip(b"0")) > 15:
            raise BadHttp(413, f"request body exceeds {self._body_max} bytes")
        size: i64 = int(digits, 16)
        if size > self._chunks_max - self._body.size:
            raise BadHttp(413, f"request body exceeds {self._chunks_max} bytes")
        self._at = end + 1
        self._left = size
        self._state = _CHUNK if size > 0 else _TRAILER
        return True

    def _read_chunk(self) -> bool:
        at = self._at
        size = min(self._left, len(self._data) - at)
        self._body.append(self._data[at : at + size])
        self._at = at + size
        self._left -= size
        if self._left > 0:
            return False
        self._state = _CHUNK_END
        return True

    def _read_chunk_end(self) -> bool:
        at = self._at
        if self._data[at] != 13:
            raise BadHttp(400, "chunk is longer than its size")
        if len(self._data) - at < 2:
            return False
        if self._data[at + 1] != 10:
            raise BadHttp(400, "chunk does not end in CR LF")
        self._at = at + 2
        self._state = _CHUNK_SIZE
        return True

    def _read_trailer(self) -> bool:
        """Check a line after the last chunk and drop it: trailers never become headers."""
        at = self._at
        limit = TRAILERS_SIZE_MAX - self._trailers_size
        end: i64 = self._data.find(b"\n", at, at + limit)
        if end < 0:
            if len(self._data) - at >= limit:
                raise BadHttp(431, "trailers too large")
            return False
        line = self._data[at : end + 1]
        self._at = end + 1
        if line == b"\r\n":
            self._finish_body()
            return True
        if not _TRAILER_LINE.fullmatch(line):
            raise BadHttp(400, "malformed trailer")
        self._trailers_size += len(line)
        return True

    def _finish_body(self) -> None:
        body = self._body.take()
        self._extensions_size, self._trailers_size = 0, 0
        self._chunks_max = self._body_max
        self._finish(body)

    def _finish(self, body: bytes) -> None:
        """Add the complete request to `requests`, and prepare for the next one, if any."""
        request = self._request
        assert request is not None
        request.body = body
        self.requests.append(request)
        self._request = None
        self._state = _HEAD
        self.wants_continue = False
        if request.is_upgrade:
            self.rest = self._data[self._at :]
            self._end(_UPGRADED)
        elif not request.keep_alive:
            self._end(_OVER)


def _request_of(line: bytes) -> HttpRequest:
    """Return the request that a request line begins."""
    words = line.split(b" ")
    if len(words) != 3:
        raise BadHttp(400, "malformed request line")
    version = words[2]
    is_1_0 = version == b"HTTP/1.0"
    if not is_1_0 and version != b"HTTP/1.1":
        if _VERSION.fullmatch(version):
            raise BadHttp(505, "unsupported HTTP version: use HTTP/1.1 or HTTP/1.0")
        raise BadHttp(400, "request line without an HTTP version")
    method = _METHODS.get(words[0])
    if method is None:
        if _TOKEN.fullmatch(words[0]):
            raise BadHttp(501, "unsupported method")
        raise BadHttp(400, "invalid method")
    if len(words[1]) > TARGET_SIZE_MAX:
        raise BadHttp(414, "request target too long")
    target = words[1].decode("latin-1")
    # Printable ASCII is 20 to 7e, and the spaces were split off.
    if not target.isascii() or not target.isprintable() or "#" in target:
        raise BadHttp(400, "invalid character in the request target")
    if not target.startswith("/"):
        target = _origin_form(method, target)
    mark = target.find("?")
    if mark < 0:
        return HttpRequest(method, target, "", is_1_0=is_1_0)
    return HttpRequest(method, target[:mark], target[mark + 1 :], is_1_0=is_1_0)


def _origin_form(method: str, target: str) -> str:
    """Return path and query of a target that is a full URL, or `/` for the `*` of OPTIONS."""
    if target == "*" and method == "OPTIONS":
        return "/"
    scheme, mark, rest = target.partition("://")
    if mark == "" or scheme.lower() not in ("http", "https"):
        raise BadHttp(400, "request target is neither a path nor a URL")
    authority = rest.partition("?")[0].partition("/")[0]
    if authority == "" or not _HOST.fullmatch(authority):
        raise BadHttp(400, "request target without a host")
    target = rest[len(authority) :]
    return target if target.startswith("/") else "/" + target


def _judge_encoding(request: HttpRequest) -> None:
    # httptools checks some of this too; rules that keep requests apart must not depend on it.
    if request.is_1_0:
        raise BadHttp(400, "Transfer-Encoding in HTTP/1.0")
    if "content-length" in request.headers:
        raise BadHttp(400, "both Transfer-Encoding and Content-Length")
    if request.headers["transfer-encoding"].lower() != "chunked":
        raise BadHttp(501, "unsupported Transfer-Encoding")


def _content_length(headers: dict[str, str]) -> i64:
    text = headers.get("content-length")
    if text is None:
        return 0
    # A repeated header was joined with a comma and is not a number.
    if len(text) > 18 or not text.isascii() or not text.isdigit():
        raise BadHttp(400, "invalid Content-Length")
    return int(text)


def _judge_connection(request: HttpRequest, *, has_body: bool) -> None:
    """Set whether the connection is kept alive, and whether it is upgraded."""
    options = _tokens(request.headers["connection"])
    if request.is_1_0:
        request.keep_alive = "keep-alive" in options and "close" not in options
        return
    request.keep_alive = "close" not in options
    if "upgrade" in options and "websocket" in _tokens(request.headers.get("upgrade", "")):
        # A body would be where frames are expected.
        request.is_upgrade = request.method == "GET" and not has_body


def _tokens(value: str) -> list[str]:
    return [word.strip(" \t") for word in value.lower().split(",")]
