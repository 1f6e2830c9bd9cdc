"""The files of `badRowsPath`: hidden until their write is committed, then named, or removed.

Readers of Parquet pass over names that begin with an underscore. Before a commit the driver writes
down which files belong to it, so that a later one that finds the transaction committed can finish
naming them, and knows how many rows were rejected. That note counts only if the server says that
its parts are the ones which were committed: drivers that run the same transaction each write one.
"""

import hashlib
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, final
from urllib.parse import unquote, urlsplit

from jobyard.client.errors import JobyardError, bad_option

_NAME_MAX: Final = 150
_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
PartFields = dict[str, object]


def local_folder(text: str, option: str = "badRowsPath") -> str:
    """Return the folder that a path or a `file:` URI names; refuse what is no folder here."""
    scheme = _URI.match(text)
    if scheme is None:
        path = text
    else:
        parts = urlsplit(text)
        if scheme[1].lower() != "file" or parts.netloc not in ("", "localhost"):
            raise bad_option(
                option,
                # What holds an @ may hold a password, and is not repeated.
                f"{'it' if '@' in text else repr(text)} is not a folder of the file system: "
                f"{scheme[1]} is not supported",
                "Set a folder that driver and executors share: /mnt/bad or file:///mnt/bad.",
            )
        path = unquote(parts.path)
    if not path:
        raise bad_option(option, "the path is empty", "Set it to a folder, or leave it out.")
    return str(Path(path).absolute())


def check_folder(folder: str) -> None:
    """Make the folder, and refuse one in which nothing can be written."""
    path = Path(folder)
    probe = path / f"_probe-{secrets.token_hex(8)}.new"
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as fault:
        raise unwritable_folder(folder, fault) from None


def unwritable_folder(folder: str, fault: OSError) -> JobyardError:
    """Return the error for a folder that this machine cannot write to."""
    return bad_option(
        "badRowsPath",
        f"{folder} cannot be written: {fault.strerror or str(fault) or type(fault).__name__}",
        "Set a folder that driver and executors share, and in which each of them may write.",
    )


def hidden_file(folder: str, txn: str, part: int, attempt: int) -> Path:
    """Return where one attempt of a task puts its rows."""
    return Path(folder) / f"_{_file_name(txn)}-{part}-{attempt}.parquet.new"


def _file_name(txn: str) -> str:
    """Return a name for files of a transaction, which no other one has."""
    name = txn.replace(":", "+")
    if len(name) <= _NAME_MAX:
        return name
    return f"{name[:_NAME_MAX]}+{hashlib.sha256(txn.encode()).hexdigest()[:16]}"


class Note(NamedTuple):
    """What a driver wrote down before its commit."""

    path: Path
    parts: list[PartFields]
    files: list[str]
    rejected: int


@final
class BadFiles:
    """The files of one transaction in one folder."""

    def __init__(self, folder: str, txn: str) -> None:
        self._folder = Path(folder)
        self._name = _file_name(txn)
        name = re.escape(self._name)
        self._hidden = re.compile(rf"_{name}-\d+-\d+\.parquet\.new")
        self._noted = re.compile(rf"_{name}\.[0-9a-f]+\.commit\.json")

    def note(self, parts: Sequence[PartFields], files: Sequence[str], rejected: int) -> Note:
        """Write down what is about to be committed."""
        path = self._folder / f"_{self._name}.{secrets.token_hex(8)}.commit.json"
        names = [Path(file).name for file in files]
        content = {"parts": list(parts), "files": names, "rejected": rejected}
        started = path.with_suffix(".json.new")
        try:
            with started.open("w") as out:
                json.dump(content, out)
                out.flush()
                os.fsync(out.fileno())
            started.rename(path)
        except OSError as fault:
            raise unwritable_folder(str(self._folder), fault) from None
        return Note(path, list(parts), names, rejected)

    def notes(self) -> Iterator[Note]:
        """Yield what drivers of this transaction wrote down."""
        for path in self._matching(self._noted):
            content = json.loads(path.read_text())
            yield Note(path, content["parts"], content["files"], content["rejected"])

    def keep(self, files: Sequence[str]) -> None:
        """Give files their names, those that have them already stay; remove all other hidden ones.

        These are of attempts that do not count, such as tasks that were killed.
        """
        for file in files:
            path = self._folder / Path(file).name
            if path.exists():
                path.rename(path.with_name(path.name.removeprefix("_").removesuffix(".new")))
        self.drop()

    def keep_committed(self, is_committed: Callable[[list[PartFields]], bool]) -> int:
        """Finish what a driver began that committed the transaction; return how many rows it had.

        Notes of drivers that came too late are removed.
        """
        rejected = 0
        files: list[str] = []
        for note in list(self.notes()):
            if is_committed(note.parts):
                rejected, files = note.rejected, note.files
            else:
                note.path.unlink(missing_ok=True)
        self.keep(files)
        return rejected

    def drop(self, files: Sequence[str] | None = None) -> None:
        """Remove hidden files and, if some are named, what was written down about them."""
        for path in self._matching(self._hidden):
            path.unlink(missing_ok=True)
        if files is None:
            return
        names = [Path(file).name for file in files]
        for note in list(self.notes()):
            if note.files == names:
                note.path.unlink(missing_ok=True)

    def _matching(self, pattern: re.Pattern[str]) -> list[Path]:
        if not self._folder.is_dir():
            return []
        return sorted(path for path in self._folder.iterdir() if pattern.fullmatch(path.name))
