"""The keys of the topics API: who may do what, on which names.

A key is `text`, `text:scopes` or `text:scopes:prefixes`. Only its hash is kept, and every known key
is compared with what a caller shows, so the time taken tells nothing.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.errors import StartRefused
from jobyard.model.secrets import digest_of, is_digest_of

READ: Final = "read"
WRITE: Final = "write"
DELETE: Final = "delete"
ADMIN: Final = "admin"
SCOPES: Final = (READ, WRITE, DELETE, ADMIN)

_LETTERS: Final = {"r": READ, "w": WRITE, "d": DELETE, "a": ADMIN}


@final
class Key:
    """What one key opens."""

    def __init__(self, text: str, scopes: frozenset[str], prefixes: tuple[str, ...]) -> None:
        self.digest: bytes = digest_of(text.encode())
        self.scopes = scopes
        self.prefixes = prefixes
        # Of those who show it: streams that are open, and calls that are not answered yet.
        self.streams_count: i64 = 0
        self.waiting_count: i64 = 0

    def may(self, scope: str) -> bool:
        """Tell whether it opens all that a scope, or several joined by +, stands for."""
        return all(one in self.scopes for one in scope.split("+"))

    def covers(self, name: str) -> bool:
        """Tell whether a name is one of its own."""
        return not self.prefixes or name.startswith(self.prefixes)


def read_keys(text: str) -> list[Key]:
    """Return the keys in a list separated by commas; a scope nobody knows refuses the start."""
    return [_key(entry.strip()) for entry in text.split(",") if entry.strip()]


def _key(entry: str) -> Key:
    text, _, rest = entry.partition(":")
    scopes_text, _, prefixes_text = rest.partition(":")
    if not text:
        raise StartRefused("a topics key has no text before its scopes")
    scopes: set[str] = set()
    for word in scopes_text.split("+") if scopes_text else SCOPES:
        if word in SCOPES:
            scopes.add(word)
        elif word and all(letter in _LETTERS for letter in word):
            scopes.update(_LETTERS[letter] for letter in word)
        else:
            known = ", ".join(SCOPES)
            raise StartRefused(f"a topics key has the scope {word!r}, which is not one of {known}")
    prefixes = tuple(one for one in prefixes_text.split("|") if one)
    return Key(text, frozenset(scopes), prefixes)


def find_key(keys: list[Key], shown: str) -> Key | None:
    """Return the key a caller shows, comparing with all of them."""
    found: Key | None = None
    for key in keys:
        if is_digest_of(shown.encode(), key.digest):
            found = key
    return found
