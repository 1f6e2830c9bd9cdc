"""Who asks, where a proxy asks for others.

What a request says of where it comes from is believed only of proxies that were named: anybody else
could say anything, and be somebody else with every request.
"""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Final, final

from jobyard.errors import StartRefused

if TYPE_CHECKING:
    from jobyard.protocols.http.call import Call

# Whoever comes by a socket file, which only a proxy on this machine does.
UNIX: Final = "unix"


@final
class Proxies:
    """The proxies that were named."""

    def __init__(self) -> None:
        self._networks: list[IPv4Network | IPv6Network] = []
        self._has_unix: bool = False

    def trust(self, text: str) -> None:
        """Believe these addresses and networks, in a list separated by commas."""
        for word in text.split(","):
            name = word.strip()
            if name == UNIX:
                self._has_unix = True
            elif name:
                self._networks.append(_network(name))

    def client_of(self, call: Call) -> str:
        """Return the address of who asks, as far as it can be known; empty if it cannot."""
        host = call.session.peer.host()
        if (not self._networks and not self._has_unix) or not self._is_trusted(host):
            return host
        # Each proxy adds whom it heard; the last that is none of them is who asked.
        said = [one.strip() for one in call.header("x-forwarded-for").split(",")]
        for name in reversed(said):
            if name and not self._is_trusted(name):
                return name
        return said[0] or call.header("x-real-ip") or host

    def _is_trusted(self, host: str) -> bool:
        if not host:
            return self._has_unix
        try:
            address = ip_address(host)
        except ValueError:
            return False
        if address.version == 6 and address.ipv4_mapped is not None:
            return any(address.ipv4_mapped in network for network in self._networks)
        return any(address in network for network in self._networks)


def _network(name: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(name, strict=False)
    except ValueError:
        raise StartRefused(
            f"--trusted-proxy: {name!r} is no address and no network; write 10.0.0.5, 10.0.0.0/8, "
            f"or unix for those who come by a socket file"
        ) from None
