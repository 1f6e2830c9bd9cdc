"""HTTP/1.x responses: heads, whole responses, chunks. Knows no routes and no bodies.

Every head is made here, so that a response has exactly one length, or is chunked, or is marked to
end with the connection. Nothing is checked for line ends: types and additional header lines come
from sessions, never from a peer.
"""

from typing import Final

from librt.strings import BytesWriter

from jobyard.wire.numbers import write_number

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"

PHRASES: Final = {
    100: "Continue",
    101: "Switching Protocols",
    200: "OK",
    201: "Created",
    202: "Accepted",
    204: "No Content",
    206: "Partial Content",
    301: "Moved Permanently",
    302: "Found",
    304: "Not Modified",
    307: "Temporary Redirect",
    308: "Permanent Redirect",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    406: "Not Acceptable",
    408: "Request Timeout",
    409: "Conflict",
    410: "Gone",
    411: "Length Required",
    412: "Precondition Failed",
    413: "Content Too Large",
    414: "URI Too Long",
    415: "Unsupported Media Type",
    416: "Range Not Satisfiable",
    417: "Expectation Failed",
    421: "Misdirected Request",
    422: "Unprocessable Content",
    426: "Upgrade Required",
    428: "Precondition Required",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
    505: "HTTP Version Not Supported",
    507: "Insufficient Storage",
}
_STATUS_LINES: Final = {
    status: f"HTTP/1.1 {status} {phrase}\r\n".encode() for status, phrase in PHRASES.items()
}
_USUAL_TYPES: Final = {
    name: f"Content-Type: {name}\r\n".encode()
    for name in (
        "application/json",
        "application/octet-stream",
        "text/event-stream",
        "text/html; charset=utf-8",
        "text/plain; charset=utf-8",
    )
}


def response(  # noqa: PLR0913  everything that differs between responses
    status: int,
    body: bytes,
    content_type: str,
    details: bytes,
    *,
    keep_alive: bool,
    is_head: bool,
    is_1_0: bool,
    common: bytes = b"",
) -> bytes:
    """Return a whole response; the one to HEAD has the head that GET would have.

    `details` and `common` (lines of every response) are additional header lines, each with its
    line end; an empty type is left out.
    """
    out = BytesWriter()
    _write_head(
        out,
        status,
        len(body),
        content_type,
        details,
        keep_alive=keep_alive,
        is_1_0=is_1_0,
        common=common,
    )
    if not is_head and status != 204:
        out.write(body)
    return out.getvalue()


def response_head(
    length: int, content_type: str, details: bytes, *, keep_alive: bool, is_1_0: bool, common: bytes
) -> bytes:
    """Return the head of a response with status 200 whose body is sent in pieces."""
    out = BytesWriter()
    _write_head(
        out, 200, length, content_type, details, keep_alive=keep_alive, is_1_0=is_1_0, common=common
    )
    return out.getvalue()


def _write_head(  # noqa: PLR0913  as above
    out: BytesWriter,
    status: int,
    length: int,
    content_type: str,
    details: bytes,
    *,
    keep_alive: bool,
    is_1_0: bool,
    common: bytes,
) -> None:
    _write_start(out, status, content_type)
    if status != 204:  # must not have one
        out.write(b"Content-Length: ")
        write_number(out, length)
        out.write(b"\r\n")
    if not keep_alive:
        out.write(b"Connection: close\r\n")
    elif is_1_0:
        out.write(b"Connection: keep-alive\r\n")
    if len(common) > 0:
        out.write(common)
    if len(details) > 0:
        out.write(details)
    out.write(b"\r\n")


def stream_head(status: int, content_type: str, details: bytes, *, is_1_0: bool) -> bytes:
    """Return the head of a response of unknown length.

    It continues in chunks; for HTTP/1.0, which has none, it continues unframed and ends with the
    connection.
    """
    out = BytesWriter()
    _write_start(out, status, content_type)
    out.write(b"Connection: close\r\n" if is_1_0 else b"Transfer-Encoding: chunked\r\n")
    out.write(details)
    out.write(b"\r\n")
    return out.getvalue()


def chunk(data: bytes) -> bytes:
    """Return the next chunk of a chunked response; an empty one would end the response."""
    assert len(data) > 0
    return b"".join((b"%x\r\n" % len(data), data, b"\r\n"))


def last_chunk(trailers: bytes) -> bytes:
    """Return the end of a chunked response; `trailers` are header lines, each with its line end."""
    return b"".join((b"0\r\n", trailers, b"\r\n"))


def _write_start(out: BytesWriter, status: int, content_type: str) -> None:
    line = _STATUS_LINES.get(status)
    out.write(line if line is not None else b"HTTP/1.1 %d \r\n" % status)
    type_line = _USUAL_TYPES.get(content_type)
    if type_line is not None:
        out.write(type_line)
    elif content_type != "":
        out.write(f"Content-Type: {content_type}\r\n".encode("latin-1"))


_DAYS: Final = ("Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed")
_MONTHS: Final = (
    *("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
    *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
)


def http_date(wall_ms: int) -> str:
    """Format a wall time as in the Date header."""
    seconds = wall_ms // 1000
    days, left = divmod(seconds, 86400)
    # Years begin in March here, so that a leap day is the last day of its year.
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (
        day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096
    ) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    place = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * place + 2) // 5 + 1
    month = place + 3 if place < 10 else place - 9
    year = year_of_era + 400 * era + (1 if month <= 2 else 0)
    clock = f"{left // 3600:02}:{left // 60 % 60:02}:{left % 60:02}"
    return f"{_DAYS[days % 7]}, {day:02} {_MONTHS[month - 1]} {year:04} {clock} GMT"
