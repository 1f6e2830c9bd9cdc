"""What a run shows: one line that changes on a terminal, one line of JSON a batch elsewhere."""

import json
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final, Protocol, TextIO

_BAR: Final = 24
_CLEAR: Final = "\r\x1b[K"


class Told(Protocol):
    """An event or a result of the pipeline: a named tuple, known by the name of its class."""

    def _asdict(self) -> dict[str, Any]: ...


class Shown:
    """The progress of runs on one stream."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._is_terminal = out.isatty()

    def tell(self, event: Told) -> None:
        """Show an event of a run."""
        kind = type(event).__name__
        if not self._is_terminal:
            self._line({"event": _WORDS[kind], **event._asdict()})
            return
        fields = event._asdict()
        if kind == "Started":
            self._show(f"taking in events after {fields['from_seq']} up to {fields['to_seq']}")
        elif kind == "Lost":
            gap = f"events {fields['from_seq']} to {fields['to_seq']}"
            self._out.write(f"{_CLEAR}{gap} are gone; going on without them\n")
        else:
            part = fields["number"] / fields["batches"]
            bar = "=" * round(part * _BAR)
            self._show(
                f"[{bar:<{_BAR}}] batch {fields['number']} of {fields['batches']}, "
                f"{fields['rows_per_s']:,.0f} events/s, {fields['left']:,} left"
            )

    def end(self, result: Told) -> None:
        """Show what a run has done."""
        fields = result._asdict()
        if not self._is_terminal:
            self._line({"event": "done", **fields})
        elif fields["batches"]:
            self._out.write(
                f"{_CLEAR}{fields['rows']:,} events in {fields['elapsed_s']:.1f} s, "
                f"up to {fields['to_seq']}\n"
            )
        else:
            self._out.write(f"{_CLEAR}nothing new after {fields['to_seq']}\n")
        self._out.flush()

    def pause(self) -> None:
        """Leave the line that changes, for a message below it."""
        if self._is_terminal:
            self._out.write("\n")
            self._out.flush()

    def _show(self, text: str) -> None:
        self._out.write(_CLEAR + text)
        self._out.flush()

    def _line(self, fields: dict[str, object]) -> None:
        self._out.write(as_json(fields) + "\n")
        self._out.flush()


_WORDS: Final = {"Started": "started", "BatchDone": "batch", "Lost": "lost"}


def as_json(value: object) -> str:
    """Return a value of named tuples, times and paths as one line of JSON."""
    return json.dumps(_plain(value), separators=(", ", ": "))


def _plain(value: object) -> object:
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _plain(item) for name, item in value._asdict().items()}
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, datetime | date):
        return value.isoformat()
    return str(value) if isinstance(value, Path) else value
