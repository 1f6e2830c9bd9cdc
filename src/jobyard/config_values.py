"""Kinds of setting values: choices, sizes, switches, texts, paths, files with secrets.

Each kind parses a raw value from a flag, the environment or a file, and returns the value or raises
ValueError with a hint at what is valid. Must not know any setting by name.
"""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30

# Far more than any list of secrets needs.
SECRET_SIZE_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]

    @property
    def metavar(self) -> str:
        """The value as shown in the help."""
        return "|".join(self.words)

    def read(self, value: object) -> str:
        """Return the word; raise ValueError with the nearest valid one."""
        if isinstance(value, str) and value in self.words:
            return value
        hint = suggestion(value, self.words) if isinstance(value, str) else ""
        raise ValueError(f"{quoted(value)} is not one of {', '.join(self.words)}{hint}")


@dataclass(frozen=True, slots=True)
class Size:
    """A number of bytes, or of something else, within bounds."""

    least: int
    most: int
    metavar: str = "SIZE"

    def read(self, value: object) -> int:
        """Return the number, or raise ValueError."""
        # A number from a file is parsed like text: no sign, and True is not 1.
        size = parse_size(str(value) if isinstance(value, int) else value)
        if not self.least <= size <= self.most:
            raise ValueError(
                f"{quoted(value)} is out of range: {size_text(self.least)} to "
                f"{size_text(self.most)}"
            )
        return size


@dataclass(frozen=True, slots=True)
class Switch:
    """Yes or no."""

    metavar: str = field(default="", init=False)

    def read(self, value: object) -> bool:
        """Return the truth value, or raise ValueError."""
        if isinstance(value, bool):
            return value
        word = value.lower() if isinstance(value, str) else ""
        if word in {"1", "true", "yes", "on"}:
            return True
        if word in {"0", "false", "no", "off"}:
            return False
        raise ValueError(f"{quoted(value)} is neither true nor false")


@dataclass(frozen=True, slots=True)
class Words:
    """Free text that is checked where it is used."""

    metavar: str

    def read(self, value: object) -> str:
        """Return the text, or raise ValueError."""
        if not isinstance(value, str) or not value:
            raise ValueError(f"{quoted(value)} is not a non-empty string")
        return value


@dataclass(frozen=True, slots=True)
class Folder:
    """A directory."""

    metavar: str = field(default="DIR", init=False)

    def read(self, value: object) -> Path:
        """Return the path, or raise ValueError."""
        if not isinstance(value, str) or not value or "\0" in value:
            raise ValueError(f"{quoted(value)} is not a directory name")
        return Path(value)


@dataclass(frozen=True, slots=True)
class SecretFile:
    """A file with the value of another setting, to keep it out of process listings."""

    #: The setting whose value it holds.
    target: str
    #: Whether each line is a separate value.
    is_list: bool
    metavar: str = field(default="FILE", init=False)

    def read(self, value: object) -> str:
        """Return the contents of the file, or raise ValueError."""
        if not isinstance(value, str) or not value or "\0" in value:
            raise ValueError(f"{quoted(value)} is not a file name")
        try:
            with Path(value).open("rb") as file:
                data = file.read(SECRET_SIZE_MAX + 1)
        except OSError as error:
            raise ValueError(f"{quoted(value)} cannot be read: {error.strerror}") from error
        if len(data) > SECRET_SIZE_MAX:
            raise ValueError(f"{quoted(value)} is larger than {size_text(SECRET_SIZE_MAX)}")
        try:
            lines = [line.strip() for line in data.decode("utf-8").splitlines()]
        except UnicodeDecodeError as error:
            raise ValueError(f"{quoted(value)} is not UTF-8 text") from error
        found = [line for line in lines if line]
        if not found:
            raise ValueError(f"{quoted(value)} is empty")
        if len(found) > 1 and not self.is_list:
            raise ValueError(f"{quoted(value)} has more than one line")
        return ",".join(found)


SettingKind = Choice | Size | Switch | Words | Folder | SecretFile


_UNITS: Final = {
    "": 1, "b": 1,
    "k": KIB, "kib": KIB, "kb": 1000,
    "m": MIB, "mib": MIB, "mb": 1000**2,
    "g": GIB, "gib": GIB, "gb": 1000**3,
}  # fmt: skip


def parse_size(text: object) -> int:
    """Parse `65535`, `64KiB`, `10MB`: units of two letters are powers of 1000, others of 1024."""
    # No size needs more than 18 digits; int() and str() stay cheap.
    shape = r"([0-9]{1,18}) ?([A-Za-z]*)"
    match = re.fullmatch(shape, text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"{quoted(text)} is not a size; write 65535, 64KiB or 10MB")
    unit = _UNITS.get(match[2].lower())
    if unit is None:
        raise ValueError(
            f"{quoted(text)} is not a size: the unit is one of KiB, MiB, GiB, kB, MB, GB"
        )
    return int(match[1]) * unit


def size_text(size: int) -> str:
    """Return the shortest exact notation of a size."""
    for unit, letters in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size and size % unit == 0:
            return f"{size // unit}{letters}"
    return str(size)


_LEAD: Final = re.compile(r"--?|[A-Z]+_")


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean X?`, or an empty text when no known word is similar."""
    # A prefix that all names share must not make them similar.
    bare = {_LEAD.sub("", name): name for name in known}
    near = difflib.get_close_matches(_LEAD.sub("", word), list(bare), n=1)
    return f"; did you mean {bare[near[0]]}?" if near else ""


def quoted(value: object) -> str:
    """Return a value for an error message: one line, safe for a terminal, at most 80 characters."""
    text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
