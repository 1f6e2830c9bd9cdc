"""API keys of the topics API: what each key allows, and on which topic names.

A key is `text`, `text:scopes` or `text:scopes:prefixes`. Only its hash is stored, and what a caller
sends is compared with every known key, so that timing reveals nothing.
"""

from hashlib import blake2b
from typing import Final, final

from mypy_extensions import i64

from jobyard.errors import StartRefused
from jobyard.model.secrets import digest_of, is_digest_of


@final
class Scope:
    """The scopes of an API key."""

    READ: Final = "read"
    WRITE: Final = "write"
    DELETE: Final = "delete"
    ADMIN: Final = "admin"


SCOPES: Final = (Scope.READ, Scope.WRITE, Scope.DELETE, Scope.ADMIN)

_LETTERS: Final = {"r": Scope.READ, "w": Scope.WRITE, "d": Scope.DELETE, "a": Scope.ADMIN}


@final
class ApiKey:
    """Hash, scopes and name prefixes of one key."""

    def __init__(self, text: str, scopes: frozenset[str], prefixes: tuple[str, ...]) -> None:
        self.digest: bytes = digest_of(text.encode())
        self.scopes = scopes
        self.prefixes = prefixes
        # Of the workers of its callers: keys with the same prefixes have the same one, and those
        # without prefixes none. Of fixed length, since it is part of what is stored.
        self.name_space: str = _name_space(prefixes) if prefixes else ""
        # Open streams and waiting calls of all clients with this key.
        self.streams_count: i64 = 0
        self.waiting_count: i64 = 0

    def may(self, scope: str) -> bool:
        """Return whether the key has a scope, or all of several scopes joined by +."""
        return all(one in self.scopes for one in scope.split("+"))

    def covers(self, name: str) -> bool:
        """Return whether the key covers a topic name."""
        return not self.prefixes or name.startswith(self.prefixes)


def _name_space(prefixes: tuple[str, ...]) -> str:
    text = "|".join(sorted(set(prefixes)))
    return blake2b(text.encode(), digest_size=16).hexdigest()


def read_keys(text: str) -> list[ApiKey]:
    """Return the keys in a comma-separated list; an unknown scope refuses the start."""
    return [_key(entry.strip()) for entry in text.split(",") if entry.strip()]


def _key(entry: str) -> ApiKey:
    text, _, rest = entry.partition(":")
    scopes_text, _, prefixes_text = rest.partition(":")
    if not text:
        raise StartRefused("a topics API key has no text before its scopes")
    scopes: set[str] = set()
    for word in scopes_text.split("+") if scopes_text else SCOPES:
        if word in SCOPES:
            scopes.add(word)
        elif word and all(letter in _LETTERS for letter in word):
            scopes.update(_LETTERS[letter] for letter in word)
        else:
            known = ", ".join(SCOPES)
            raise StartRefused(f"a topics API key has the unknown scope {word!r}; known: {known}")
    prefixes = tuple(one for one in prefixes_text.split("|") if one)
    return ApiKey(text, frozenset(scopes), prefixes)


def find_key(keys: list[ApiKey], shown: str) -> ApiKey | None:
    """Return the key that a caller sent, after a comparison with all of them."""
    found: ApiKey | None = None
    for key in keys:
        if is_digest_of(shown.encode(), key.digest):
            found = key
    return found
