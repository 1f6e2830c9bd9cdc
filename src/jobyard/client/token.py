"""A bearer token that can be sent and cannot be shown.

No repr, message or pickle of it contains its text. A pickle carries the text masked, which keeps it
out of logs and searches but is no encryption; a token that is named by a variable or a file is
pickled as that name, and read where it is used.
"""

import os
import secrets
from pathlib import Path
from typing import Final, final

from jobyard.client.errors import Code, JobyardError

TOKEN_SIZE_MAX: Final = 4096


@final
class Token:
    """Where a token comes from: a text, a variable of the environment, or a file."""

    __slots__ = ("_file", "_masked", "_pad", "_variable")

    def __init__(self, text: str = "", *, variable: str = "", file: str = "") -> None:
        if text:
            _check(text, "")
        data = text.encode()
        self._pad = secrets.token_bytes(len(data))
        self._masked = _mixed(data, self._pad)
        self._variable = variable
        self._file = file

    def __repr__(self) -> str:
        source = self._variable or self._file or "text"
        return f"Token(from {source})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Token)
            and self.__getstate__()[2:] == other.__getstate__()[2:]
            and (_mixed(self._masked, self._pad) == _mixed(other._masked, other._pad))
        )

    def __hash__(self) -> int:
        return hash((self._variable, self._file))

    def __getstate__(self) -> tuple[bytes, bytes, str, str]:
        return self._masked, self._pad, self._variable, self._file

    def __setstate__(self, state: tuple[bytes, bytes, str, str]) -> None:
        self._masked, self._pad, self._variable, self._file = state

    def bearer(self) -> str:
        """Return the value of the Authorization header; read the variable or the file again."""
        if self._variable:
            found = os.environ.get(self._variable, "")
            return f"Bearer {_check(found, 'tokenEnv', self._variable)}"
        if self._file:
            return f"Bearer {_check(_read(self._file), 'tokenFile', self._file)}"
        return f"Bearer {_mixed(self._masked, self._pad).decode()}"


def _mixed(data: bytes, pad: bytes) -> bytes:
    return bytes(left ^ right for left, right in zip(data, pad, strict=True))


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="ascii", errors="replace").strip()
    except OSError as fault:
        raise JobyardError(
            Code.BAD_TOKEN,
            f"the token file {file} cannot be read: {fault.strerror}",
            option="tokenFile",
            remedy="The driver and every executor read it: put it on each machine.",
        ) from None


def _check(text: str, option: str, source: str = "") -> str:
    """Return a token that may be put into a header; the error must not contain it."""
    named = f"the token from {source}" if source else "the token"
    if not text:
        kind = "variable" if option == "tokenEnv" else "file"
        raise JobyardError(
            Code.BAD_TOKEN,
            f"{named} is empty",
            option=option,
            remedy=f"Set this {kind} on the driver and on every executor.",
        )
    if len(text) > TOKEN_SIZE_MAX or not text.isascii() or not text.isprintable() or " " in text:
        raise JobyardError(
            Code.BAD_TOKEN,
            f"{named} is not printable ASCII without blanks, of at most {TOKEN_SIZE_MAX} bytes",
            option=option or "token",
            remedy="Set it to a key of --topics-key of the server, as it is written there.",
        )
    return text
