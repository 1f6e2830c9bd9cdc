"""How one value of a setting is read: words, sizes, switches, paths, files with secrets.

Each kind takes what stood in a flag, in the environment or in a file, and returns the value or
raises ValueError with what would have been right. Knows no setting by name.
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

# More than all secrets anybody would write down.
SECRET_SIZE_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]

    @property
    def metavar(self) -> str:
        """How the help shows the value."""
        return "|".join(self.words)

    def read(self, value: object) -> str:
        """The word, or ValueError with what would have been right."""
        if isinstance(value, str) and value in self.words:
            return value
        hint = suggestion(value, self.words) if isinstance(value, str) else ""
        raise ValueError(f"{quoted(value)} is not one of {', '.join(self.words)}{hint}")


@dataclass(frozen=True, slots=True)
class Size:
    """A number of bytes within bounds."""

    least: int
    most: int
    metavar: str = field(default="SIZE", init=False)

    def read(self, value: object) -> int:
        """The number of bytes, or ValueError."""
        # A number from a file goes the same way as text: no sign, and True is not 1.
        size = parse_size(str(value) if isinstance(value, int) else value)
        if not self.least <= size <= self.most:
            raise ValueError(
                f"{quoted(value)} is out of bounds: {size_text(self.least)} to "
                f"{size_text(self.most)}"
            )
        return size


@dataclass(frozen=True, slots=True)
class Switch:
    """Yes or no."""

    metavar: str = field(default="", init=False)

    def read(self, value: object) -> bool:
        """The truth value, or ValueError."""
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
        """The text, or ValueError."""
        if not isinstance(value, str) or not value:
            raise ValueError(f"{quoted(value)} is not a text")
        return value


@dataclass(frozen=True, slots=True)
class Folder:
    """A directory."""

    metavar: str = field(default="DIR", init=False)

    def read(self, value: object) -> Path:
        """The path, or ValueError."""
        if not isinstance(value, str) or not value or "\0" in value:
            raise ValueError(f"{quoted(value)} is not a directory name")
        return Path(value)


@dataclass(frozen=True, slots=True)
class SecretFile:
    """A file that holds the value of another setting, so that it shows in no list of processes."""

    #: The setting whose value it holds.
    target: str
    #: Whether each of its lines is one of several values.
    is_list: bool
    metavar: str = field(default="FILE", init=False)

    def read(self, value: object) -> str:
        """What the file holds, or ValueError."""
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


Kind = Choice | Size | Switch | Words | Folder | SecretFile


_UNITS: Final = {
    "": 1, "b": 1,
    "k": KIB, "kib": KIB, "kb": 1000,
    "m": MIB, "mib": MIB, "mb": 1000**2,
    "g": GIB, "gib": GIB, "gb": 1000**3,
}  # fmt: skip


def parse_size(text: object) -> int:
    """Read `65535`, `64KiB`, `10MB`: two letters are powers of 1000, three or one of 1024."""
    # 18 digits and the largest unit stay printable and harmless; no size needs more.
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
    """The shortest exact spelling of a size."""
    for unit, letters in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size and size % unit == 0:
            return f"{size // unit}{letters}"
    return str(size)


_LEAD: Final = re.compile(r"--?|[A-Z]+_")


def suggestion(word: str, known: Iterable[str]) -> str:
    """`; did you mean X?`, or nothing when no known word is near."""
    # What all names of a kind begin with makes none of them nearer.
    bare = {_LEAD.sub("", name): name for name in known}
    near = difflib.get_close_matches(_LEAD.sub("", word), list(bare), n=1)
    return f"; did you mean {bare[near[0]]}?" if near else ""


def quoted(value: object) -> str:
    """A value inside a complaint: on one line, harmless to a terminal, not endless."""
    text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
