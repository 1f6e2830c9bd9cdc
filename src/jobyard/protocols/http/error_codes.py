"""Error codes of requests that cannot be read."""

from typing import Final

__all__ = ["code_of"]

_CODES: Final = {
    413: "payload_too_large",
    414: "target_too_long",
    417: "expectation_failed",
    431: "head_too_large",
    501: "not_implemented",
    505: "version_not_supported",
}


def code_of(status: int) -> str:
    """Return the error code of a status."""
    return _CODES.get(status, "invalid_request")
