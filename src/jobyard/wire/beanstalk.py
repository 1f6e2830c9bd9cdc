"""Numbers and names of the beanstalk protocol, parsed by hand from the bytes.

`split` and `int()` cost 40 times as much as a loop over native ints, and `int()` also accepts `+1`,
`1_0` and ` 1 `, which the protocol refuses.
"""

import re
from typing import Final

from mypy_extensions import i64

from jobyard.model.limits import ID_MAX, TUBE_NAME_SIZE_MAX, U64_MAX
from jobyard.wire.numbers import REFUSED, parse_number

CRLF: Final = b"\r\n"

_TUBE_BYTES = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-+/;.$_()")
_SPACES = b" \t\n\v\f\r"

# A method in capitals with a target, anything with a version after it, or the Host header.
_HTTP: Final = re.compile(rb"[A-Z]+ (?:/|\*|https?:)|[!-~]+ [!-~]+ HTTP/[0-9]|(?i:host:)")


def parse_id(data: bytes, at: i64, end: i64) -> tuple[i64, i64]:
    """Read an id of up to 64 bits. An id that was never issued is read as 0, which no job has."""
    value, after = parse_number(data, at, end, ID_MAX // 10 - 1)
    if value >= 0:
        return value, after
    while at < end and data[at] == 32:
        at += 1
    after = at
    while after < end and 48 <= data[after] <= 57:
        after += 1
    if after == at:
        return REFUSED, at
    wide = _u64(data[at:after])
    if wide < 0:
        return REFUSED, at
    return (wide if wide <= ID_MAX else 0), after


def _u64(digits: bytes) -> int:
    """Return the value of a run of digits, or REFUSED past 64 bits."""
    digits = digits.lstrip(b"0")
    # int() of many digits takes quadratic time, and Python refuses thousands of digits.
    value = int(digits or b"0") if len(digits) <= 20 else U64_MAX + 1
    return value if value <= U64_MAX else REFUSED


def parse_kick_bound(data: bytes) -> int:
    """Read the bound of a kick as C's strtoul does, cut to 32 bits; REFUSED without a number."""
    text = data.lstrip(_SPACES)
    is_negative = text.startswith(b"-")
    if text[:1] in (b"-", b"+"):
        text = text[1:]
    size = 0
    while size < len(text) and 48 <= text[size] <= 57:
        size += 1
    value = _u64(text[:size]) if size > 0 else REFUSED
    if value < 0:
        return REFUSED
    return (-value if is_negative else value) & 0xFFFFFFFF


def tube_name_end(data: bytes) -> int:
    """Return where the bytes that are allowed in a name end."""
    for at, byte in enumerate(data):
        if byte not in _TUBE_BYTES:
            return at
    return len(data)


def is_tube_name(name: bytes) -> bool:
    """Return whether the protocol allows this name."""
    if not 1 <= len(name) <= TUBE_NAME_SIZE_MAX or name[0] == 45:
        return False
    return _TUBE_BYTES.issuperset(name)


def is_http(line: bytes) -> bool:
    """Return whether a line belongs to an HTTP request.

    A web page can make a browser send one to any port, with commands of this protocol in its body:
    after such a line the server must not read on.
    """
    return _HTTP.match(line) is not None
