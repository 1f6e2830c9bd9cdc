"""Parses a request target: segments of a path and parameters of a query, decoded.

Percent escapes are decoded here and only once, always after splitting.
"""

from librt.strings import BytesWriter
from mypy_extensions import i64, u8


def path_in(line: bytes) -> str:
    """Return the path that a request line seems to name, even if the line is malformed."""
    words = line.split(b" ", 2)
    path = words[1].partition(b"?")[0] if len(words) > 1 else b""
    return path.decode("latin-1") if path.startswith(b"/") else ""


def split_path(path: str) -> list[str] | None:
    """Return the decoded segments between the slashes; None if one is not UTF-8.

    Split before decoding: an escaped slash belongs to its segment. `/` is one empty segment.
    """
    segments = path[1:].split("/")
    if "%" not in path:
        return segments
    for at, segment in enumerate(segments):
        if "%" in segment:
            decoded = _unescaped(segment.encode(), is_strict=True)
            if decoded is None:
                return None
            try:
                segments[at] = decoded.decode()
            except UnicodeDecodeError:
                return None
    return segments


def parse_query(query: str) -> dict[str, str]:
    """Return the decoded parameters; of two with the same name the last counts.

    Nothing is refused: an invalid escape is kept unchanged, invalid UTF-8 is replaced, and a name
    without a value has an empty one.
    """
    parameters: dict[str, str] = {}
    if query == "":
        return parameters
    for part in query.split("&"):
        if part != "":
            name, _, value = part.partition("=")
            parameters[_query_text(name)] = _query_text(value)
    return parameters


def _query_text(text: str) -> str:
    if "+" in text:
        text = text.replace("+", " ")
    if "%" not in text:
        return text
    decoded = _unescaped(text.encode(), is_strict=False)
    assert decoded is not None  # only strict decoding fails
    return decoded.decode("utf-8", "replace")


def _unescaped(text: bytes, *, is_strict: bool) -> bytes | None:
    """Decode percent escapes; return None for an invalid one if strict."""
    out = BytesWriter()
    size: i64 = len(text)
    at: i64 = 0
    while at < size:
        if text[at] == 37:
            high: i64 = _hex_digit(text[at + 1]) if at + 2 < size else -1
            low: i64 = _hex_digit(text[at + 2]) if at + 2 < size else -1
            if high >= 0 and low >= 0:
                out.append(u8(high * 16 + low))
                at += 3
                continue
            if is_strict:
                return None
        out.append(u8(text[at]))
        at += 1
    return out.getvalue()


def _hex_digit(byte: i64) -> i64:
    if 48 <= byte <= 57:
        return byte - 48
    byte |= 32
    if 97 <= byte <= 102:
        return byte - 87
    return -1
