"""The url of a yard, taken apart and checked."""

from typing import Final, NamedTuple
from urllib.parse import urlsplit

from jobyard.client.errors import Code, JobyardError

HTTP_PORT: Final = 6790
HTTPS_PORT: Final = 443


class Address(NamedTuple):
    """Where a yard is reached."""

    is_tls: bool
    host: str
    port: int
    # What precedes /v0, for a yard behind a proxy; empty or beginning with a slash.
    prefix: str

    @property
    def url(self) -> str:
        """Return the url without anything that must not be shown."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_tls else 'http'}://{host}:{self.port}{self.prefix}"


def parse_url(url: str) -> Address:
    """Return the parts of a url; raise JobyardError without repeating it if it holds a password."""
    if "@" in url:
        # Also where it cannot be taken apart: `admin:password@host:6790` has no scheme.
        raise _bad("the url must not contain a user or password; set the option token")
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:
        raise _bad("the url cannot be read") from None
    if parts.query or parts.fragment:
        raise _bad("the url must have no query and no fragment")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _bad(f"{url.strip()!r} is not the url of a yard")
    is_tls = parts.scheme == "https"
    return Address(
        is_tls, parts.hostname, port or (HTTPS_PORT if is_tls else HTTP_PORT),
        parts.path.rstrip("/"),
    )  # fmt: skip


def _bad(message: str) -> JobyardError:
    remedy = "A url looks like http://127.0.0.1:6790."
    return JobyardError(Code.BAD_URL, message, option="url", remedy=remedy)
