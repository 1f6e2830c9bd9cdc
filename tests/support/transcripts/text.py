r"""The one-line language of transcripts: text with escapes and braces, to send and to match.

Escapes: ``\r \n \t \0 \s \\ \xNN`` (``\s`` is a space, so that one at a line's end is visible).
Braces, where text is sent or matched:

    {a*200}       the character a, 200 times
    {id}          a number: the first match stores it under that name, later ones must be equal
    {id+1}        the stored number plus one
    {later>id}    a number above the stored one, itself stored
    {58..60}      any whole number in that range
    {name:kind}   stores text of a kind (int, word, hex, hexword, seconds, any)
    {:kind}       matches text of a kind and stores nothing
    {"name"}      a value that the layout of 1.13 quotes and that of 1.12 does not
    {"n"*200}     the same for n, 200 times

Knows nothing of connections or servers. Invalid text raises `TranscriptError`.
"""

import re
from dataclasses import dataclass, field
from typing import Final

KINDS: Final = {
    "int": rb"[0-9]+",
    "word": rb"[^ \r\n]+",
    "hex": rb"[0-9a-f]{16}",
    # Digits alone, or digits with one `e`, would be a number to YAML parsers.
    "hexword": rb"(?=[0-9e]*[a-df])[0-9a-f]{16}",
    "seconds": rb"[0-9]+\.[0-9]{6}",
    "any": rb"[^\r\n]*",
}
ESCAPES: Final = {"r": "\r", "n": "\n", "t": "\t", "0": "\0", "s": " ", "\\": "\\"}

TOKEN: Final = re.compile(r"\\x[0-9a-fA-F]{2}|\\.|\{[^}]*\}|[^\\{]+", re.DOTALL)
QUOTED: Final = re.compile(r'"(?P<value>[^"]*)"(?:\*(?P<times>\d+))?')
REPEAT: Final = re.compile(r"(?P<what>.+)\*(?P<times>\d+)", re.DOTALL)
RANGE: Final = re.compile(r"(?P<low>\d+)\.\.(?P<high>\d+)")
PLUS: Final = re.compile(r"(?P<name>[a-z][a-z0-9]*)\+(?P<more>\d+)")
ABOVE: Final = re.compile(r"(?P<name>[a-z][a-z0-9]*)>(?P<base>[a-z][a-z0-9]*)")
KEPT: Final = re.compile(r"(?P<name>[a-z][a-z0-9]*)?(?::(?P<kind>[a-z]+))?")


class TranscriptError(Exception):
    """The transcript itself is wrong: invalid, or it uses a value that is not set yet."""


@dataclass
class Values:
    """The values a case has stored so far, and whether the server quotes as 1.13 does."""

    kept: dict[str, bytes] = field(default_factory=dict)
    is_quoting: bool = True

    def number(self, name: str) -> int:
        """Return a stored number; it must have been matched before."""
        if name not in self.kept:
            raise TranscriptError(f"{{{name}}} is used before it has a value")
        return int(self.kept[name])


def unescape(token: str) -> bytes:
    """Return the bytes of one escape or of plain text."""
    if not token.startswith("\\"):
        return token.encode("utf-8")
    if token[1] == "x":
        return bytes([int(token[2:4], base=16)])
    if token[1] not in ESCAPES:
        raise TranscriptError(f"unknown escape {token}")
    return ESCAPES[token[1]].encode("ascii")


def tokens_of(text: str) -> list[str]:
    """Split a text into escapes, braces and plain runs; nothing may be left over."""
    tokens = TOKEN.findall(text)
    if "".join(tokens) != text:
        raise TranscriptError(f"cannot read {text!r}")
    return tokens


def plain_brace(inside: str, values: Values) -> bytes | None:
    """Return the bytes a brace stands for, None for a brace that must be matched."""
    if quoted := QUOTED.fullmatch(inside):
        value = quoted["value"] * int(quoted["times"] or 1)
        return (f'"{value}"' if values.is_quoting else value).encode("ascii")
    if repeat := REPEAT.fullmatch(inside):
        what = b"".join(unescape(token) for token in tokens_of(repeat["what"]))
        return what * int(repeat["times"])
    if plus := PLUS.fullmatch(inside):
        return b"%d" % (values.number(plus["name"]) + int(plus["more"]))
    return values.kept.get(inside)


def to_send(text: str, values: Values) -> bytes:
    """Return the bytes a text stands for; every name in it must have a value."""
    out = bytearray()
    for token in tokens_of(text):
        if not token.startswith("{"):
            out += unescape(token)
            continue
        known = plain_brace(token[1:-1], values)
        if known is None:
            raise TranscriptError(f"{token} has no value to send")
        out += known
    return bytes(out)


class Pattern:
    """A text to match, with the names and ranges of its braces."""

    def __init__(self, text: str, values: Values) -> None:
        self._values = values
        self._regex = bytearray()
        self._names: list[str | None] = []
        self._bounds: list[tuple[int, int | None]] = []
        for token in tokens_of(text):
            if token.startswith("{"):
                self._add_brace(token[1:-1])
            else:
                self._regex += re.escape(unescape(token))

    def _add_brace(self, inside: str) -> None:
        known = plain_brace(inside, self._values)
        if known is not None:
            self._regex += re.escape(known)
        elif within := RANGE.fullmatch(inside):
            self._add_group("int", None, (int(within["low"]), int(within["high"])))
        elif above := ABOVE.fullmatch(inside):
            self._add_group("int", above["name"], (self._values.number(above["base"]) + 1, None))
        elif (kept := KEPT.fullmatch(inside)) and inside:
            self._add_group(kept["kind"] or "int", kept["name"], (0, None))
        else:
            raise TranscriptError(f"cannot read {{{inside}}}")

    def _add_group(self, kind: str, name: str | None, bounds: tuple[int, int | None]) -> None:
        if kind not in KINDS:
            raise TranscriptError(f"unknown kind {kind}")
        self._regex += b"(" + KINDS[kind] + b")"
        self._names.append(name)
        self._bounds.append(bounds)

    def matches(self, data: bytes) -> bool:
        """Match the whole of `data`; store named values only if all of it fits."""
        found = re.fullmatch(bytes(self._regex), data, re.DOTALL)
        if found is None:
            return False
        for word, (low, high) in zip(found.groups(), self._bounds, strict=True):
            is_bounded = low > 0 or high is not None
            if is_bounded and not (low <= int(word) and (high is None or int(word) <= high)):
                return False
        for name, word in zip(self._names, found.groups(), strict=True):
            if name is not None:
                self._values.kept[name] = word
        return True
