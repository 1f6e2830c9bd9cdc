r"""Requests of the RESP protocol, versions 2 and 3: commands found in place as their bytes arrive.

    *2\r\n $4\r\n ECHO\r\n $2\r\n hi\r\n        an array of bulk strings (without the spaces)
    ECHO "h\x69"\r\n                             an inline command, as typed by a person

No memory is allocated from a length alone: a length is checked against the limits as soon as its
line is read, and input is not parsed until at least as much is there as the lengths read so far
require. The complete arguments of a long incomplete command are set aside, so that no byte is
copied more than a few times, however the input is split. Otherwise arguments are spans of the
input; bytes are made of one when it is read.

Must not know what a command means. After BadResp the rest of the input has no meaning.
"""

from typing import Final, final

from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i64, mypyc_attr

from jobyard.wire.long_input import LongInput

# The longest line that holds a length, with sign and digits.
LENGTH_LINE_MAX: Final = 32
# The smallest argument: `$0`, nothing, and two line ends.
ARGUMENT_SIZE_MIN: Final = 6
# Joining this much again with every new piece is cheap enough.
SHORT_MAX: Final = 16 << 10
# Longer text is not a 64-bit number.
INTEGER_SIZE_MAX: Final = 20
INTEGER_MIN: Final = -(1 << 63)
INTEGER_MAX: Final = (1 << 63) - 1

_LENGTH_MAX: Final = 1 << 40
# In place of a length: more bytes are needed, or it is invalid.
_MISSING: Final = -2
_WRONG: Final = -3
_LOW: Final = 0xFFFFFFFF
_ESCAPES: Final = {110: 10, 114: 13, 116: 9, 98: 8, 97: 7}


class BadResp(Exception):
    """Bytes that are not a request; the connection must be closed."""


@final
class RespLimits:
    """Limits of a request: argument count, longest argument, total size, inline size."""

    def __init__(self, args: i64, bulk: i64, whole: i64, inline: i64) -> None:
        self.args: i64 = args
        self.bulk: i64 = bulk
        self.whole: i64 = whole
        self.inline: i64 = inline


LIMITS: Final = RespLimits(100_000, 64 << 20, 256 << 20, 64 << 10)
# Before the password: Valkey's limits for it, and a little for the rest of the command.
STRANGER_LIMITS: Final = RespLimits(10, 16 << 10, 17 << 10, 16 << 10)


@final
@mypyc_attr(free_list_len=1, acyclic=True)
class Command:
    """The positions of the arguments of one request; the first is its name."""

    def __init__(self, data: bytes, base: i64, index: bytes, count: i64) -> None:
        self._data = data
        # Spans are relative to this.
        self._base: i64 = base
        # For every argument its start, with its end in the upper 32 bits.
        self._index: bytes = index
        self._count: i64 = count

    def count(self) -> i64:
        """Return the number of arguments, the name included."""
        return self._count

    def arg(self, at: i64) -> bytes:
        """Return an argument."""
        span = read_i64_le(self._index, at * 8)
        base = self._base
        return self._data[base + (span & _LOW) : base + (span >> 32)]

    def size(self, at: i64) -> i64:
        """Return the size of an argument."""
        span = read_i64_le(self._index, at * 8)
        return (span >> 32) - (span & _LOW)

    def end(self, at: i64) -> i64:
        """Return where an argument ends, from the start of the request."""
        return read_i64_le(self._index, at * 8) >> 32

    def raw(self, start: i64, end: i64) -> bytes:
        """Return a part of the request as sent."""
        return self._data[self._base + start : self._base + end]

    def weight(self) -> i64:
        """Return its approximate size in bytes."""
        return self.end(self._count - 1)

    def text(self, at: i64) -> str:
        """Return an argument as text; invalid UTF-8 becomes surrogates."""
        return self.arg(at).decode("utf-8", "surrogateescape")

    def integer(self, at: i64) -> int | None:
        """Return the value of an argument that is a 64-bit number; None for all others."""
        return parse_integer(self.arg(at))

    def word(self, at: i64) -> bytes:
        """Return an argument in capitals."""
        return self.arg(at).upper()

    def is_word(self, at: i64, word: bytes) -> bool:
        """Return whether an argument is this word, given in capitals, in any case."""
        span = read_i64_le(self._index, at * 8)
        start: i64 = self._base + (span & _LOW)
        size: i64 = (span >> 32) - (span & _LOW)
        if size != len(word):
            return False
        data = self._data
        done: i64 = 0
        while done < size:
            letter: i64 = data[start + done]
            if 97 <= letter <= 122:
                letter -= 32
            if letter != i64(word[done]):
                return False
            done += 1
        return True


def parse_integer(text: bytes) -> int | None:
    """Parse a number as Valkey does: no spaces, no plus, no leading zeros, 64 bits."""
    size: i64 = len(text)
    if size == 0 or size > INTEGER_SIZE_MAX:
        return None
    at: i64 = 1 if text[0] == 45 else 0
    if at == size or (text[at] == 48 and size > 1):
        return None
    while at < size:
        if text[at] < 48 or text[at] > 57:
            return None
        at += 1
    value = int(text)
    return value if INTEGER_MIN <= value <= INTEGER_MAX else None


def of_arguments(arguments: list[bytes]) -> Command:
    """Return a command with these arguments."""
    index = BytesWriter()
    end: i64 = 0
    for argument in arguments:
        start = end
        end = start + len(argument)
        write_i64_le(index, start | end << 32)
    return Command(b"".join(arguments), 0, index.getvalue(), len(arguments))


@final
class RespReader:
    """Splits the input into commands."""

    def __init__(self, limits: RespLimits) -> None:
        self.limits = limits
        self._data: bytes = b""
        # Used instead while too little of a command is there to parse; and the size of either
        # from `_start` on.
        self._more = LongInput()
        self._have: i64 = 0
        # With less than this, the next command cannot be complete.
        self._need: i64 = 1
        # Where the current command begins, and how far it was parsed.
        self._start: i64 = 0
        self._at: i64 = 0
        self._count: i64 = 0
        self._left: i64 = 0
        # Length of the next argument; -1 before its line was read.
        self._length: i64 = -1
        self._index = BytesWriter()
        # Earlier parts of a long command, and their size; their spans are in the index.
        self._aside = LongInput()
        self._aside_size: i64 = 0

    def feed(self, data: bytes) -> None:
        """Add input."""
        self._have += len(data)
        if self._more.size > 0:
            self._more.append(data)
            return
        start = self._start
        if start == len(self._data):
            self._data = data
            self._at = 0
        else:
            rest = self._data[start:] if start > 0 else self._data
            self._at -= start
            if self._have >= self._need:
                self._data = rest + data
            else:
                self._more.append(rest)
                self._more.append(data)
                self._data = b""
        self._start = 0

    def forget(self) -> None:
        """Drop all input: no more comes."""
        self._data = b""
        self._more.clear()
        self._have = 0
        self._need = 1
        self._start = 0
        self._at = 0
        self._left = 0
        self._length = -1
        self._index = BytesWriter()
        self._aside.clear()
        self._aside_size = 0

    def unread_size(self) -> i64:
        """Return the size of the input that is not part of a returned command."""
        return self._have + self._aside_size

    def ahead(self) -> bytes:
        """Return the input in which the next request begins at `place`; b"" if it began earlier."""
        return b"" if self._left > 0 else self._data

    def place(self) -> i64:
        """Return where the next request begins."""
        return self._at

    def pass_over(self, end: i64) -> None:
        """Continue after a request that was found ahead."""
        self._at = end
        self._end_command()

    def next(self) -> Command | None:
        """Return the next command, or None until more of it has arrived; raise BadResp."""
        while self._have >= self._need:
            if self._more.size > 0:
                self._data = self._more.take()
            if self._left > 0:
                return self._arguments()
            if self._data[self._at] == 42:
                self._begin_array()
                continue
            line = self._line()
            arguments = split_inline(line) if line is not None else []
            if arguments:
                return of_arguments(arguments)
        return None

    def _begin_array(self) -> None:
        """Read the argument count of the next command."""
        count, after = _read_length(self._data, self._at + 1, len(self._data))
        if count == _MISSING:
            self._need = self._have + 1
            return
        if count == _WRONG or count > self.limits.args:
            raise BadResp(self._refused(count, "multibulk"))
        self._at = after
        if count > 0:
            self._count = count
            self._left = count
        else:
            # An empty request gets no reply.
            self._end_command()

    def _refused(self, length: i64, what: str) -> str:
        known = "unauthenticated" if self.limits is STRANGER_LIMITS and length > 0 else "invalid"
        return f"{known} {what} length"

    def _end_command(self) -> None:
        self._have -= self._at - self._start
        self._start = self._at
        self._need = 1
        if self._start == len(self._data):
            # Only the last command decides how long the input is kept in memory.
            self._data = b""
            self._start = 0
            self._at = 0

    def _arguments(self) -> Command | None:
        """Read more arguments of an array."""
        data = self._data
        size: i64 = len(data)
        at = self._at
        start = self._start
        # Where the command would begin if all of it were in this input.
        first = start - self._aside_size
        length = self._length
        index = self._index
        while self._left > 0:
            if length < 0:
                if at == size:
                    break
                length, after = self._bulk_length(data, at, size)
                if length == _MISSING:
                    break
                at = after
            end = at + length
            if end + 2 > size:
                break
            if data[end] != 13 or data[end + 1] != 10:
                raise BadResp("expected CRLF after an argument")
            write_i64_le(index, at - first | (end - first) << 32)
            at = end + 2
            length = -1
            self._left -= 1
        self._at = at
        self._length = max(length, -1)
        if self._left > 0:
            self._wait_for_more()
            return None
        if self._aside_size > 0:
            self._set_aside()
            command = Command(self._aside.take(), 0, index.getvalue(), self._count)
            self._aside_size = 0
            self._index = BytesWriter()
        else:
            command = Command(data, start, index.getvalue(), self._count)
            index.truncate(0)
        self._end_command()
        return command

    def _wait_for_more(self) -> None:
        """Set how much input is needed before parsing can continue."""
        if self._at - self._start > SHORT_MAX:
            self._set_aside()
        need = self._at - self._start + (self._length + 2 if self._length >= 0 else 1)
        rest = (self._left - 1) * ARGUMENT_SIZE_MIN
        # Errors in a short command are reported at once, even if it is incomplete.
        if need + rest > SHORT_MAX:
            need += rest
        self._need = max(need, self._have + 1)

    def _set_aside(self) -> None:
        """Move the arguments found so far out of the input, so that the input can be freed."""
        self._aside.append(memoryview(self._data)[self._start : self._at])
        size = self._at - self._start
        self._aside_size += size
        self._have -= size
        self._start = self._at

    def _bulk_length(self, data: bytes, at: i64, size: i64) -> tuple[i64, i64]:
        """Read the line before an argument; return the argument's length and start."""
        if data[at] != 36:
            raise BadResp(f"expected '$', got '{_shown(data[at])}'")
        length, after = _read_length(data, at + 1, size)
        if length == _MISSING:
            return length, at
        limits = self.limits
        whole = self._aside_size + after - self._start + length
        if length < 0 or length > limits.bulk or whole > limits.whole:
            raise BadResp(self._refused(length, "bulk"))
        return length, after

    def _line(self) -> bytes | None:
        """Return the line at `_at`; None until it is complete."""
        data = self._data
        at = self._at
        end: i64 = data.find(b"\n", at)
        if (end if end >= 0 else len(data)) - at > self.limits.inline:
            raise BadResp("too big inline request")
        if end < 0:
            self._need = self._have + 1
            return None
        line = data[at : end - 1] if end > at and data[end - 1] == 13 else data[at:end]
        self._at = end + 1
        self._end_command()
        return line


def _shown(byte: i64) -> str:
    return chr(byte) if 32 <= byte < 127 else f"\\x{int(byte):02x}"


def _read_length(data: bytes, at: i64, size: i64) -> tuple[i64, i64]:
    """Read a length and its line end; return it with the next position, or _MISSING or _WRONG."""
    start = at
    is_negative = at < size and data[at] == 45
    if is_negative:
        at += 1
    first = at
    value: i64 = 0
    while at < size:
        digit: i64 = data[at] - 48
        if digit < 0 or digit > 9:
            break
        value = value * 10 + digit
        if value > _LENGTH_MAX:
            return _WRONG, at
        at += 1
    if at == size:
        return (_MISSING if size - start < LENGTH_LINE_MAX else _WRONG), start
    if at == first or data[at] != 13 or (data[first] == 48 and at - first > 1):
        return _WRONG, at
    if at + 1 == size:
        return _MISSING, start
    if data[at + 1] != 10 or (is_negative and value != 1):
        return _WRONG, at
    return (-1 if is_negative else value), at + 2


def split_inline(line: bytes) -> list[bytes]:
    """Return the arguments of an inline command: words, or text in quotes; raise BadResp."""
    arguments: list[bytes] = []
    at: i64 = 0
    size: i64 = len(line)
    while True:
        while at < size and _is_space(line[at]):
            at += 1
        if at == size:
            return arguments
        word = BytesWriter()
        at = _read_word(line, at, size, word)
        arguments.append(word.getvalue())


def _is_space(byte: i64) -> bool:
    return byte == 32 or 9 <= byte <= 13 or byte == 0


def _read_word(line: bytes, at: i64, size: i64, word: BytesWriter) -> i64:
    """Read one argument at `at` into `word`; return where it ends."""
    while at < size:
        byte: i64 = line[at]
        if byte in (34, 39):
            at = _read_quoted(line, at + 1, size, byte, word)
            if at < size and not _is_space(line[at]):
                raise BadResp("unbalanced quotes in request")
            return at
        if _is_space(byte):
            return at
        word.append(line[at])
        at += 1
    return at


def _read_quoted(line: bytes, at: i64, size: i64, quote: i64, word: BytesWriter) -> i64:
    """Read up to the closing quote; return the position after it."""
    while at < size:
        byte: i64 = line[at]
        if byte == quote:
            return at + 1
        if byte == 92 and at + 1 < size:
            after: i64 = line[at + 1]
            if quote == 34:
                at = _read_escape(line, at + 1, size, word)
                continue
            if after == 39:
                word.append(39)
                at += 2
                continue
        word.append(line[at])
        at += 1
    raise BadResp("unbalanced quotes in request")


def _read_escape(line: bytes, at: i64, size: i64, word: BytesWriter) -> i64:
    """Read what follows a backslash; return the position after it."""
    if line[at] == 120 and at + 2 < size:
        high = _hex(line[at + 1])
        low = _hex(line[at + 2])
        if high >= 0 and low >= 0:
            word.append(high << 4 | low)
            return at + 3
    word.append(_ESCAPES.get(line[at], line[at]))
    return at + 1


def _hex(byte: int) -> int:
    if 48 <= byte <= 57:
        return byte - 48
    byte |= 32
    return byte - 87 if 97 <= byte <= 102 else -1
