"""Which web pages may use this server: the names it is reached by, and the origins it trusts.

A page of any site can make the browser of its visitor send requests to this machine. What the page
cannot do is lie about itself: the browser adds `Origin` and `Sec-Fetch-Site`, and `Host` is the
name the page has for this server. So a request that a page of another origin sent may change
nothing, unless that origin was named; and a request under an unknown name is refused, because a
name that anybody may register can be made to point here (DNS rebinding). Programs that are no
browsers send no `Origin` and are not concerned.
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
# What a browser sends for pages that have no origin to tell, as those from a file.
NO_ORIGIN: Final = "null"

PREFLIGHT: Final = (
    b"Access-Control-Allow-Methods: GET, POST, PUT, DELETE, OPTIONS\r\n"
    b"Access-Control-Allow-Headers: "
    b"Content-Type, Authorization, Idempotency-Key, Last-Event-ID\r\n"
    b"Access-Control-Max-Age: 86400\r\n"
)

_READS: Final = ("GET", "HEAD", "OPTIONS")
# Of `Sec-Fetch-Site`: this very server, or nobody but whoever sits before the browser.
_OWN_SITES: Final = ("same-origin", "none")
_VARY: Final = b"Vary: Origin\r\n"


@final
class Pages:
    """Names and origins as they were set."""

    def __init__(self) -> None:
        # None: any name will do.
        self._hosts: frozenset[str] | None = None
        self._takes_any_address: bool = False
        # The host found good last: nearly everybody uses the same.
        self._good_host: str = ""
        self._is_open: bool = False
        # The lines that allow an origin to read an answer.
        self._origins: dict[str, bytes] = {}

    def name_origins(self, text: str) -> None:
        """Trust the pages of these origins, in a list separated by commas; `*` for all."""
        for word in text.split(","):
            origin = word.strip().lower()
            if origin == ANY:
                self._is_open = True
            elif origin:
                _check_origin(origin)
                line = f"Access-Control-Allow-Origin: {origin}\r\n".encode("ascii", "replace")
                self._origins[origin] = line + _VARY

    def name_hosts(self, bound: str, public: str) -> None:
        """Know the server by the address it listens on (empty for all) and by these names."""
        names = [word.strip() for word in public.split(",")]
        if ANY in names:
            return
        self._takes_any_address = not bound or bound in ("0.0.0.0", "::")  # noqa: S104
        known = ("localhost", bound, *names)
        self._hosts = frozenset(_host_name(_bracketed(one)) for one in known if one)

    # -- what is asked of every request ---------------------------------------------------------

    def check_host(self, host: str) -> None:
        """Refuse a request for a name this server does not go by."""
        if host == self._good_host or self._hosts is None:
            return
        name = _host_name(host)
        if name not in self._hosts and not self._is_own_address(name):
            message = f"this server is not known as {name}; --public-host {name} allows that name"
            raise HttpRefused(421, "unknown_host", message)
        self._good_host = host

    def _is_own_address(self, name: str) -> bool:
        try:
            address = ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or self._takes_any_address

    def stranger(self, request: HttpRequest) -> str:
        """Return the origin of a page that is not trusted; empty for anybody else."""
        headers = request.headers
        origin = headers.get("origin", "")
        site = headers.get("sec-fetch-site", "")
        if (not origin and not site) or self._is_open or site in _OWN_SITES:
            return ""
        if not site and origin.partition("://")[2] == headers.get("host", ""):
            return ""
        return "" if origin in self._origins else origin or f"{site} page"

    def lines(self, request: HttpRequest) -> bytes:
        """Return the lines of an answer that tell a browser who may read it."""
        if self._is_open:
            return b"Access-Control-Allow-Origin: *\r\n"
        if not self._origins:
            return b""
        return self._origins.get(request.headers.get("origin", ""), _VARY)

    def may_preflight(self, request: HttpRequest) -> bool:
        """Tell whether a page asks for leave that gets it."""
        origin = request.headers.get("origin", "")
        return origin in self._origins or (self._is_open and origin != "")


def check_page(stranger: str, request: HttpRequest, route: Route) -> None:
    """Refuse what a page of another origin must not do: change anything, or listen in."""
    is_read = request.method in _READS and not (
        route.is_stream or route.is_change or request.is_upgrade
    )
    if not is_read:
        raise foreign(stranger)


def foreign(stranger: str) -> HttpRefused:
    """Return the refusal of a request that a page of another origin sent."""
    message = (
        f"a page of another origin ({stranger}) may not do this; "
        f"--cors-origin ORIGIN allows the pages of an origin"
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
            f"--cors-origin: {origin!r} is no origin; write https://example.org, or * for any"
        )
