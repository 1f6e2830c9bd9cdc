"""Server-sent events: the bytes of a `text/event-stream`. Knows no topics and no clients.

Nothing in an event can end it or begin another: each line of the data is written as its own `data:`
line, whether CR, LF or CR LF ends it, and reaches the client with LF. Ids and names are single
lines; characters that would break them are removed.
"""

from typing import Final

from mypy_extensions import i64

# An id with a NUL would be ignored by the client.
_BREAKS: Final = b"\r\n\0"


def event(id: bytes, name: bytes, data: bytes) -> bytes:  # noqa: A002  the field's own name
    """Return one event; an empty id or name is left out, empty data is not."""
    parts: list[bytes] = []
    if len(id) > 0:
        parts += (b"id: ", _one_line(id), b"\n")
    if len(name) > 0:
        parts += (b"event: ", _one_line(name), b"\n")
    parts += (b"data: ", _lines(data), b"\n\n")
    return b"".join(parts)


def comment(text: bytes) -> bytes:
    """Return a line that clients ignore; keeps an idle stream alive."""
    return b": " + _one_line(text) + b"\n\n"


def retry(after_ms: i64) -> bytes:
    """Return the line that sets how long the client waits before it reconnects."""
    return b"retry: %d\n\n" % after_ms


def _one_line(text: bytes) -> bytes:
    return text.translate(None, _BREAKS)


def _lines(data: bytes) -> bytes:
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return data.replace(b"\n", b"\ndata: ") if b"\n" in data else data
