"""Parses the addresses in settings: `host:port`, `[::1]:port`, `:port`, `unix:PATH`.

Pure text: nothing here resolves a name or opens a socket (sockets.py does). A door that is "off"
has no address and never reaches this module. The invariant: `parse_address(a.text) == a`.

    127.0.0.1:11300   one IPv4 address             [::1]:11300   one IPv6 address
    localhost:0       every address of that name, on one free port
    :11300  *:11300   every interface, IPv4 and IPv6
    unix:/run/x.sock  a socket file; a relative path starts at the working directory
"""

import os
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final

from jobyard.model.limits import PORT_MAX

# sun_path holds 108 bytes with its closing NUL; bind() would cut or refuse anything longer.
PATH_SIZE_MAX: Final = 107

UNIX_PREFIX: Final = "unix:"


class BadAddress(ValueError):
    """The text is not an address; the message says what is wrong and what is valid."""


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """A host and a port. The empty host is every interface; port 0 is any free port."""

    host: str
    port: int

    @property
    def text(self) -> str:
        """The address as written in settings and in the ready line."""
        if ":" in self.host:
            return f"[{self.host}]:{self.port}"
        return f"{self.host or '*'}:{self.port}"

    @property
    def is_public(self) -> bool:
        """Whether another machine might reach it.

        A name counts as public unless it is `localhost`: what it resolves to is not known here
        and may change, so the safe assumption is made.
        """
        if self.host.lower() == "localhost":
            return False
        ip = _parse_ip(self.host)
        if isinstance(ip, IPv6Address) and ip.ipv4_mapped is not None:
            return not ip.ipv4_mapped.is_loopback
        return ip is None or not ip.is_loopback


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """A socket file."""

    path: str

    @property
    def text(self) -> str:
        """The address as written in settings and in the ready line."""
        return f"{UNIX_PREFIX}{self.path}"

    @property
    def is_public(self) -> bool:
        """Never: the file system decides who may connect."""
        return False


Address = TcpAddress | UnixAddress


def parse_address(text: str) -> Address:
    """Parse an address, or raise BadAddress with a message for the user."""
    if text.startswith(UNIX_PREFIX):
        return parse_path(text.removeprefix(UNIX_PREFIX))
    if "://" in text:
        raise BadAddress(f"{text!r} is a URL; an address is host:port or unix:PATH")
    host, colon, port = text.rpartition(":")
    if not colon:
        raise BadAddress(_without_port(text))
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if not isinstance(_parse_ip(host), IPv6Address):
            raise BadAddress(f"[{host}] is not an IPv6 address")
    elif ":" in host:
        raise BadAddress(f"{text!r}: write an IPv6 address in brackets, as in [::1]:11300")
    return TcpAddress(_parse_host(host), parse_port(port))


def end_text(name: object) -> str:
    """Return one end of a connection as text; `name` is its socket's peer or own name."""
    if isinstance(name, tuple):
        return TcpAddress(str(name[0]), int(name[1])).text
    # A socket file; that of a client usually has no name.
    path = name.decode("utf-8", "replace").replace("\0", "@") if isinstance(name, bytes) else name
    return f"{path or '?'}:0"


def host_of(end: object) -> str:
    """Return the key of a peer for limits by address: its host, its IPv6 network, or `unix`."""
    if not isinstance(end, tuple):
        return "unix"
    host = str(end[0])
    ip = _parse_ip(host) if ":" in host else None
    if not isinstance(ip, IPv6Address):
        return host
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    # A client with one IPv6 address usually has 2^64 of them.
    return str(IPv6Network((int(ip) >> 64 << 64, 64)))


def parse_port(text: str) -> int:
    """Parse a port number; 0 means any free port."""
    # int() alone would also take "+1", " 1", "1_0" and digits of other scripts.
    if not (text.isascii() and text.isdigit()) or len(text) > 5 or int(text) > PORT_MAX:
        raise BadAddress(f"{text!r} is not a port (0 to {PORT_MAX})")
    return int(text)


def parse_path(path: str) -> UnixAddress:
    """Parse what follows `unix:`."""
    if not path:
        raise BadAddress("unix: needs the path of a socket file, as in unix:/run/jobyard.sock")
    if "\0" in path:
        raise BadAddress("the path of a socket file may not contain a NUL")
    size = len(os.fsencode(path))
    if size > PATH_SIZE_MAX:
        raise BadAddress(
            f"the path of a socket file is {size} bytes long; the limit is {PATH_SIZE_MAX}"
        )
    return UnixAddress(path)


def _parse_host(host: str) -> str:
    if host in {"", "*"}:
        return ""
    if not host.isprintable() or any(char in " /[]@" for char in host):
        raise BadAddress(f"{host!r} is not a host name or IP address")
    # A name of digits and dots would be resolved, and some resolvers accept 127.1 as an address.
    if all(part.isdigit() for part in host.split(".")) and _parse_ip(host) is None:
        raise BadAddress(f"{host!r} is not an IPv4 address")
    return host


def _parse_ip(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _without_port(text: str) -> str:
    if text.isascii() and text.isdigit():
        return f"{text!r} has no host; write 127.0.0.1:{text}, or :{text} for every interface"
    return f"{text!r} has no port; an address is host:port or unix:PATH"
