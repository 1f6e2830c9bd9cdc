"""Decides which web pages may use this server: its host names, and the origins it trusts.

A page of any site can make a visitor's browser send requests to this machine. It cannot hide where
it comes from: the browser adds `Origin` and `Sec-Fetch-Site`, and `Host` is the name under which
the page reached this server. So a page of another origin may change nothing, unless that origin is
trusted; and a request under an unknown host name is refused, because anyone can register a name and
point it here (DNS rebinding). Programs other than browsers send no `Origin` and are not affected.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, final

from jobyard.errors import StartRefused
from jobyard.protocols.http.call import HttpRefused

if TYPE_CHECKING:
    from jobyard.protocols.http.routes import Route
    from jobyard.wire.http.request import HttpRequest

ANY: Final = "*"
# The `Origin` of pages without an origin, such as local files.
NO_ORIGIN: Final = "null"

PREFLIGHT: Final = (
    b"Access-Control-Allow-Methods: GET, POST, PUT, DELETE, OPTIONS\r\n"
    b"Access-Control-Allow-Headers: "
    b"Content-Type, Authorization, Idempotency-Key, Last-Event-ID\r\n"
    b"Access-Control-Max-Age: 86400\r\n"
)

_READS: Final = ("GET", "HEAD", "OPTIONS")
# Values of `Sec-Fetch-Site` for this server itself, and for requests of the browser's user.
_OWN_SITES: Final = ("same-origin", "none")
_VARY: Final = b"Vary: Origin\r\n"


@final
class AllowedOrigins:
    """The configured host names and origins."""

    def __init__(self) -> None:
        # None: any name is accepted.
        self._hosts: frozenset[str] | None = None
        self._takes_any_address: bool = False
        # The last accepted host: nearly all requests use the same one.
        self._good_host: str = ""
        self._is_open: bool = False
        # The header lines that allow an origin to read an answer.
        self._origins: dict[str, bytes] = {}

    def name_origins(self, text: str) -> None:
        """Trust a comma-separated list of origins; `*` for all."""
        for word in text.split(","):
            origin = word.strip().lower()
            if origin == ANY:
                self._is_open = True
            elif origin:
                _check_origin(origin)
                line = f"Access-Control-Allow-Origin: {origin}\r\n".encode("ascii", "replace")
                self._origins[origin] = line + _VARY

    def name_hosts(self, bound: str, public: str) -> None:
        """Accept the address that the server listens on (empty for all) and these host names."""
        names = [word.strip() for word in public.split(",")]
        if ANY in names:
            return
        self._takes_any_address = not bound or bound in ("0.0.0.0", "::")  # noqa: S104
        known = ("localhost", bound, *names)
        self._hosts = frozenset(_host_name(_bracketed(one)) for one in known if one)

    # -- checks of every request ----------------------------------------------------------------

    def check_host(self, host: str) -> None:
        """Refuse a request for an unknown host name."""
        if host == self._good_host or self._hosts is None:
            return
        name = _host_name(host)
        if name not in self._hosts and not self._is_own_address(name):
            message = f"unknown host name {name}; start the server with --public-host {name}"
            raise HttpRefused(421, "unknown_host", message)
        self._good_host = host

    def _is_own_address(self, name: str) -> bool:
        try:
            address = ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or self._takes_any_address

    def stranger(self, request: HttpRequest) -> str:
        """Return the origin of a page that is not trusted; empty for all other requests."""
        headers = request.headers
        origin = headers.get("origin", "")
        site = headers.get("sec-fetch-site", "")
        if (not origin and not site) or self._is_open or site in _OWN_SITES:
            return ""
        if not site and origin.partition("://")[2] == headers.get("host", ""):
            return ""
        return "" if origin in self._origins else origin or f"{site} page"

    def lines(self, request: HttpRequest) -> bytes:
        """Return the CORS header lines of the answer."""
        if self._is_open:
            return b"Access-Control-Allow-Origin: *\r\n"
        if not self._origins:
            return b""
        return self._origins.get(request.headers.get("origin", ""), _VARY)

    def may_preflight(self, request: HttpRequest) -> bool:
        """Return whether a request comes from a trusted origin, so that a preflight succeeds."""
        origin = request.headers.get("origin", "")
        return origin in self._origins or (self._is_open and origin != "")


def check_page(stranger: str, request: HttpRequest, route: Route) -> None:
    """Refuse changes, streams and upgrades to a page of another origin."""
    is_read = request.method in _READS and not (
        route.is_stream or route.is_change or request.is_upgrade
    )
    if not is_read:
        raise foreign(stranger)


def foreign(stranger: str) -> HttpRefused:
    """Return the refusal of a request that a page of another origin sent."""
    message = (
        f"pages of another origin ({stranger}) are not allowed to do this; "
        f"allow an origin with --cors-origin ORIGIN"
    )
    return HttpRefused(403, "foreign_origin", message)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _host_name(host: str) -> str:
    """Return a host without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower().removesuffix(".")


def _check_origin(origin: str) -> None:
    scheme, mark, host = origin.partition("://")
    is_one = mark and scheme.isalnum() and host and host.isascii() and host.isprintable()
    if origin != NO_ORIGIN and (not is_one or any(char in "/?#@ " for char in host)):
        raise StartRefused(
            f"--cors-origin: {origin!r} is not an origin; write https://example.org, or * for any"
        )
