"""Finds the address of the client behind a proxy.

Forwarding headers count only from trusted proxies (--trusted-proxy): any other client could set
them to a new address with every request.
"""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Final, final

from jobyard.errors import StartRefused

if TYPE_CHECKING:
    from jobyard.protocols.http.call import HttpCall

# Connections over a socket file, which come from a proxy on this machine.
UNIX: Final = "unix"


@final
class Proxies:
    """The trusted proxies."""

    def __init__(self) -> None:
        self._networks: list[IPv4Network | IPv6Network] = []
        self._has_unix: bool = False

    def trust(self, text: str) -> None:
        """Trust a comma-separated list of addresses and networks."""
        for word in text.split(","):
            name = word.strip()
            if name == UNIX:
                self._has_unix = True
            elif name:
                self._networks.append(_network(name))

    def client_of(self, call: HttpCall) -> str:
        """Return the address of the client; empty if it is unknown."""
        host = call.session.peer.host()
        if (not self._networks and not self._has_unix) or not self._is_trusted(host):
            return host
        # Each proxy appends the address it was called from; the last untrusted one is the client.
        hops = [one.strip() for one in call.header("x-forwarded-for").split(",")]
        for name in reversed(hops):
            if name and not self._is_trusted(name):
                return name
        return hops[0] or call.header("x-real-ip") or host

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
            f"--trusted-proxy: {name!r} is not an address or network; write 10.0.0.5, 10.0.0.0/8, "
            f"or unix for connections over a socket file"
        ) from None
