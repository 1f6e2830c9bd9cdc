"""Log lines on stderr, as text or as JSON, one line each whatever they contain.

    12:01:02 info  recovered 3 jobs in 0.01 s  files=2
    {"time":"2025-03-01T12:01:02.345Z","level":"info","message":"recovered 3 jobs","files":2}

For rare events: start, stop, refused connections. Hot code never logs, and job bodies and passwords
are never logged. Data from a peer may appear in a field; it can neither start a new line nor reach
a terminal as a control sequence. If the log cannot be written (the reader of the pipe is gone),
lines are dropped: logging must never stop the server.
"""

import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, TextIO, final

LOG_LEVELS: Final = ("debug", "info", "warning", "error")
# Five letters each, so that messages are aligned.
_COLUMN: Final = {"debug": "debug", "info": "info ", "warning": "warn ", "error": "error"}

# One line a second says as much as ten thousand, and spares the disk.
REPEAT_INTERVAL_S: Final = 1.0
# Keys are a few fixed words; the limit bounds memory should a caller break that rule.
REPEAT_KEYS_MAX: Final = 256

Value = str | int | float | bool | None


@final
class Log:
    """Writes the server's log lines."""

    def __init__(
        self,
        level: str = "info",
        form: str = "text",
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Log lines of `level` and above; `clock` returns wall seconds."""
        assert form in {"text", "json"}, form
        assert level in LOG_LEVELS, level
        self._least = LOG_LEVELS.index(level)
        self._as_json = form == "json"
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._repeats: dict[str, _Repeat] = {}

    def debug(self, message: str, **fields: Value) -> None:
        """Log what is needed only for debugging."""
        self._log(0, message, fields)

    def info(self, message: str, **fields: Value) -> None:
        """Log a normal event of the server."""
        self._log(1, message, fields)

    def warning(self, message: str, **fields: Value) -> None:
        """Log what an operator should fix."""
        self._log(2, message, fields)

    def error(self, message: str, **fields: Value) -> None:
        """Log what stops the server or loses data."""
        self._log(3, message, fields)

    def warn_repeated(self, key: str, message: str, **fields: Value) -> None:
        """Warn at most once a second per `key`; the next line reports how many were left out.

        `key` is a fixed word of the caller, never data from a peer.
        """
        self._log_repeated(2, key, message, fields)

    def error_repeated(self, key: str, message: str, **fields: Value) -> None:
        """Log an error, limited like `warn_repeated`."""
        self._log_repeated(3, key, message, fields)

    def _log_repeated(self, level: int, key: str, message: str, fields: dict[str, Value]) -> None:
        now_s = self._clock()
        repeat = self._repeats.get(key)
        if repeat is None:
            if len(self._repeats) >= REPEAT_KEYS_MAX:
                self._repeats.clear()
            repeat = self._repeats[key] = _Repeat()
        # A wall clock set back must not silence the key until it catches up.
        if 0 <= now_s - repeat.last_s < REPEAT_INTERVAL_S:
            repeat.left_out_count += 1
            return
        if repeat.left_out_count:
            fields["left_out"] = repeat.left_out_count
        repeat.last_s = now_s
        repeat.left_out_count = 0
        self._log(level, message, fields)

    def _log(self, level: int, message: str, fields: dict[str, Value]) -> None:
        if level < self._least:
            return
        line = (
            json_line(self._clock(), LOG_LEVELS[level], message, fields)
            if self._as_json
            else text_line(self._clock(), LOG_LEVELS[level], message, fields)
        )
        try:
            self._stream.write(line)
            self._stream.flush()
        except (OSError, ValueError):
            # ValueError: the stream is closed. There is nowhere else to report it.
            return


class _Repeat:
    """The state of one key of repeated lines."""

    def __init__(self) -> None:
        self.last_s = float("-inf")
        self.left_out_count = 0


def text_line(now_s: float, level: str, message: str, fields: dict[str, Value]) -> str:
    """Return one line for people, in local time."""
    # Readers compare it with the local time of the machine.
    stamp = time.strftime("%H:%M:%S", time.localtime(now_s))
    parts = [f"{stamp} {_COLUMN[level]} {printable(message)}"]
    parts += [f"{name}={_field_text(value)}" for name, value in fields.items()]
    # Two spaces separate the fields from the message.
    return "  ".join(parts) + "\n"


def json_line(now_s: float, level: str, message: str, fields: dict[str, Value]) -> str:
    """Return one line for programs: a JSON object, time in UTC."""
    stamp = datetime.fromtimestamp(now_s, UTC).isoformat(timespec="milliseconds")
    entry: dict[str, Value] = {
        "time": stamp.replace("+00:00", "Z"),
        "level": level,
        "message": message,
    }
    assert entry.keys().isdisjoint(fields), "a field may not hide time, level or message"
    entry.update(fields)
    # ASCII output escapes every control character but DEL.
    return json.dumps(entry, separators=(",", ":")).replace("\x7f", "\\u007f") + "\n"


def printable(text: str) -> str:
    """Return the text with unprintable characters escaped."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    return ascii(char)[1:-1]


def _field_text(value: Value) -> str:
    if not isinstance(value, str):
        return str(value)
    if value and value.isprintable() and not any(char in ' ="' for char in value):
        return value
    return '"' + printable(value).replace('"', '\\"') + '"'
