"""The text of an error, as expressions of SQL: its class, its message and its fingerprint.

Errors that differ only in numbers, ids and quoted parts have one fingerprint. The patterns mean
the same in Java and in Python, which the tests rely on: ASCII only, and no classes of words or
spaces.
"""

from typing import Final

# `ValueError: ...` and `java.io.IOException: ...`, but neither a url nor a sentence.
CLASS: Final = r"^[A-Za-z_][A-Za-z0-9_.$]{0,199}(?=:(?!//))"
# What a fingerprint leaves out, in this order.
LEFT_OUT: Final = (
    r'"[^"]*"',
    r"(?<![A-Za-z0-9])'[^']*'",
    r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    r"0x[0-9a-fA-F]+",
    r"(?<![A-Za-z0-9_])(?=[a-fA-F]*[0-9])[0-9a-fA-F]{8,}(?![A-Za-z0-9_])",
    r"[0-9]+",
)
# Of an error; what comes later rarely tells kinds apart, and every pattern reads all of it.
FINGERPRINTED_MAX: Final = 1000
FINGERPRINT_SIZE: Final = 16


def _quoted(pattern: str) -> str:
    # A raw literal has no escapes, so it cannot contain the quotes around it.
    return "concat({})".format(
        ', "\'", '.join(f"r'{part}'" if part else "''" for part in pattern.split("'"))
    )


def class_of(error: str) -> str:
    """Return the expression of the class; null if the error does not begin with a name."""
    return f"nullif(regexp_extract({error}, {_quoted(CLASS)}, 0), '')"


def message_of(error: str, found: str) -> str:
    """Return the expression of the message: the error without its class `found`."""
    return f"trim(substr({error}, coalesce(length({found}) + 2, 1)))"


def fingerprint_of(found: str, message: str) -> str:
    """Return the expression of the fingerprint of class and message; null without a message."""
    text = f"substr(concat(coalesce({found}, ''), ':', {message}), 1, {FINGERPRINTED_MAX})"
    for pattern in LEFT_OUT:
        text = f"regexp_replace({text}, {_quoted(pattern)}, '?')"
    return f"substr(sha2({text}, 256), 1, {FINGERPRINT_SIZE})"
