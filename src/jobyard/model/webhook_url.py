"""Where a webhook may point: the form of its URL, and which addresses are the public internet.

Pure text and numbers: no name is resolved here. A URL is checked twice by the same rules: when it
is registered (`check_url`: its form, and its host if that is an address or a name known to be
local), and before each attempt (`is_public`, for every address its name has at that moment).

One parser serves both, so no URL can mean one host to the check and another to the connection.
Anything that parsers disagree about (user info, backslashes, escapes in the host, numbers as hosts)
is refused instead of guessed at.
"""

import re
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final, final

from jobyard.errors import Refused
from jobyard.model.limits import PORT_MAX

URL_SIZE_MAX: Final = 2048
# The longest name DNS can carry.
HOST_SIZE_MAX: Final = 253

PORTS: Final[dict[str, int]] = {"http": 80, "https": 443}

# The underscore is not valid in host names, but private zones and container networks use it.
_NAME: Final = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")
# What the C library would read as a number: 127.1, 0x7f.1, 2130706433, 017700000001.
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_LOCAL_NAMES: Final = ("localhost", "internal")

# Written out, since the properties of `ipaddress` differ between releases of Python.
_CLOSED_V4: Final = (
    IPv4Network("0.0.0.0/8"),  # this network; 0.0.0.0 reaches the machine itself
    IPv4Network("10.0.0.0/8"),  # private
    IPv4Network("100.64.0.0/10"),  # shared behind a carrier's NAT; some clouds' metadata
    IPv4Network("127.0.0.0/8"),  # loopback
    IPv4Network("169.254.0.0/16"),  # link-local; 169.254.169.254 hands out cloud credentials
    IPv4Network("172.16.0.0/12"),  # private
    IPv4Network("192.0.0.0/24"),  # protocol assignments
    IPv4Network("192.0.2.0/24"),  # documentation
    IPv4Network("192.88.99.0/24"),  # relays from IPv6, deprecated
    IPv4Network("192.168.0.0/16"),  # private
    IPv4Network("198.18.0.0/15"),  # benchmarks
    IPv4Network("198.51.100.0/24"),  # documentation
    IPv4Network("203.0.113.0/24"),  # documentation
    IPv4Network("224.0.0.0/4"),  # multicast
    IPv4Network("240.0.0.0/4"),  # reserved, and broadcast
)
# All of IPv6 that is allocated for public use. Not included: ::, ::1, IPv4 written as ::a.b.c.d and
# ::ffff:a.b.c.d, fc00::/7, fe80::/10 and multicast.
_OPEN_V6: Final = IPv6Network("2000::/3")
_CLOSED_V6: Final = (
    IPv6Network("2001::/23"),  # protocol assignments; Teredo carries an IPv4 address inside
    IPv6Network("2001:db8::/32"),  # documentation
    IPv6Network("2002::/16"),  # 6to4 carries an IPv4 address inside
    IPv6Network("3fff::/20"),  # documentation
)
# In a network without IPv4 every IPv4 host has such an address: the embedded one decides.
_NAT64: Final = IPv6Network("64:ff9b::/96")


@final
class WebhookUrl:
    """The parts of a URL, host in lower case and without brackets or a final dot."""

    def __init__(self, scheme: str, host: str, port: int, path: str) -> None:
        self.scheme: Final = scheme
        self.host: Final = host
        self.port: Final = port
        # With the query, without the fragment: the target of the request line.
        self.path: Final = path

    def authority(self) -> str:
        """Return the value of the Host field."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"


def check_url(url: str, *, allow_private: bool = False) -> None:
    """Refuse a URL that no webhook may have, with an error message for the client.

    A host name is checked only by its form here; its addresses are checked at each attempt.
    """
    target = parse_url(url)
    if allow_private:
        return
    if target.host.rpartition(".")[2] in _LOCAL_NAMES:
        raise Refused(f"Webhook URL must not point to a local host: {target.host}")
    if is_address(target.host) and not is_public(target.host):
        raise Refused(f"Webhook URL must not point to a private or reserved address: {target.host}")


def parse_url(url: str) -> WebhookUrl:
    """Split a URL into its parts; refuse one that a webhook cannot use."""
    if len(url) > URL_SIZE_MAX:
        raise Refused(f"Webhook URL too long (max {URL_SIZE_MAX} characters)")
    # A line end would start a header of its own; some parsers read a backslash as a slash.
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise Refused(
            "Webhook URL must be printable ASCII without spaces or backslashes: "
            "write other characters as %XX, and other host names in their xn-- form"
        )
    scheme, mark, rest = url.partition("://")
    scheme = scheme.lower()
    if not mark or scheme not in PORTS:
        raise Refused("Webhook URL must start with http:// or https://")
    rest = rest.partition("#")[0]
    authority = re.split("[/?]", rest, maxsplit=1)[0]
    path = rest[len(authority) :]
    if "@" in authority:
        raise Refused("Webhook URL must not contain a user name or password")
    host, port = _split_port(authority)
    return WebhookUrl(
        scheme,
        _parse_host(host),
        _parse_port(port) if port else PORTS[scheme],
        path if path.startswith("/") else f"/{path}",
    )


def is_address(host: str) -> bool:
    """Return whether a host that `parse_url` returned is an address, not a name."""
    return _parse_v4(host) is not None or _parse_v6(host) is not None


def is_public(address: str) -> bool:
    """Return whether an IPv4 or IPv6 address belongs to the public internet.

    Anything but a plain address, or one bound to an interface (`%eth0`), does not.
    """
    v4 = _parse_v4(address)
    if v4 is not None:
        return _is_public_v4(v4)
    v6 = _parse_v6(address)
    if v6 is None:
        return False
    if v6 in _NAT64:
        return _is_public_v4(IPv4Address(int(v6) & 0xFFFFFFFF))
    return v6 in _OPEN_V6 and not any(v6 in network for network in _CLOSED_V6)


def _is_public_v4(v4: IPv4Address) -> bool:
    return not any(v4 in network for network in _CLOSED_V4)


def _split_port(authority: str) -> tuple[str, str]:
    """Split host and port; the port is empty if there is none."""
    if authority.startswith("["):
        inside, mark, after = authority.partition("]")
        if not mark or (after and not after.startswith(":")):
            raise Refused("Webhook URL has an invalid host")
        return f"{inside}]", after[1:]
    host, _, port = authority.partition(":")
    return host, port


def _parse_port(text: str) -> int:
    if not text.isdigit() or len(text) > 5 or not 0 < int(text) <= PORT_MAX:
        raise Refused(f"Webhook URL has an invalid port (1 to {PORT_MAX})")
    return int(text)


def _parse_host(text: str) -> str:
    if text.startswith("["):
        v6 = _parse_v6(text[1:-1])
        if v6 is None:
            raise Refused("Webhook URL has an invalid IPv6 address")
        return str(v6)
    host = text.lower().removesuffix(".")
    if not host:
        raise Refused("Webhook URL has no host")
    if len(host) > HOST_SIZE_MAX or _NAME.fullmatch(host) is None:
        raise Refused("Webhook URL has an invalid host")
    if _NUMBER.fullmatch(host.rpartition(".")[2]) is not None and _parse_v4(host) is None:
        raise Refused("Webhook URL must write an IPv4 address as four decimal numbers")
    return host


def _parse_v4(text: str) -> IPv4Address | None:
    try:
        return IPv4Address(text)
    except AddressValueError:
        return None


def _parse_v6(text: str) -> IPv6Address | None:
    try:
        v6 = IPv6Address(text)
    except AddressValueError:
        return None
    return v6 if v6.scope_id is None else None
