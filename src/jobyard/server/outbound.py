"""One POST to somebody else's server: name, address, connection, answer.

Blocks, so it runs only in threads beside the loop. The promise is about where it connects: the name
is resolved once, every address it has must be public, and the connection goes to one of those very
addresses, with the name in SNI, certificate check and Host. A name that changes its address after
the check is thereby of no use. Redirects are answers like any other, never followed; proxies from
the environment are not used.

A try ends at its deadline however slowly the peer drips, and reads at most ANSWER_SIZE_MAX bytes
however much it sends. Only the look-up of a name has no end of its own: the C library's resolver
keeps its own time, and the deadline is looked at when it returns.
"""

import http.client
import io
import socket
import ssl
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast, final

from jobyard.errors import Refused
from jobyard.model.webhook_url import WebhookUrl, is_address, is_public, parse_url

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

TIMEOUT_S: Final = 10.0
# Head and body together. Nobody reads what a webhook answers; only the status counts.
ANSWER_SIZE_MAX: Final = 64 * 1024
# One send at most, so that the deadline is looked at in between.
SEND_MAX: Final = 256 * 1024

Resolve = Callable[[str, int], list[str]]
Connect = Callable[[str, int, float], socket.socket]


class Undelivered(Exception):
    """A try that came to nothing; the text says why."""


def resolve_name(name: str, port: int) -> list[str]:
    """Every address of a name, each once, in the order the system prefers."""
    found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def connect_address(address: str, port: int, timeout_s: float) -> socket.socket:
    """Connect to an address in numbers, which no resolver sees."""
    return socket.create_connection((address, port), timeout_s)


@final
class Outbound:
    """How this process speaks to the outside; shared by all threads that do."""

    def __init__(
        self,
        *,
        allow_private: bool = False,
        timeout_s: float = TIMEOUT_S,
        resolve: Resolve = resolve_name,
        connect: Connect = connect_address,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Set the rules; `allow_private` is for tests and networks where everybody is trusted."""
        self._allow_private = allow_private
        self._timeout_s = timeout_s
        self._resolve = resolve
        self._connect = connect
        self._tls = tls

    def post(self, url: str, headers: dict[str, str], body: bytes) -> None:
        """Send one POST; raise Undelivered unless the answer is a success (2xx)."""
        deadline = _Deadline(self._timeout_s)
        try:
            target = parse_url(url)
            sock = self._reach(target, self._addresses(target), deadline)
            with sock:
                status = self._exchange(sock, target, _request(target, headers, body), deadline)
        except (OSError, http.client.HTTPException, Refused) as error:
            raise Undelivered(f"{type(error).__name__}: {error}") from error
        if 300 <= status < 400:
            raise Undelivered(f"answered {status}; redirects are not followed")
        if not 200 <= status < 300:
            raise Undelivered(f"answered {status}")

    def _addresses(self, target: WebhookUrl) -> list[str]:
        """Find where the host is, and refuse it whole if any of it is not public."""
        is_literal = is_address(target.host)
        addresses = [target.host] if is_literal else self._resolve(target.host, target.port)
        if not addresses:
            raise Refused(f"{target.host} has no address")
        if not self._allow_private:
            for address in addresses:
                if not is_public(address):
                    raise Refused(f"{target.host} is at {address}, which is not a public address")
        return addresses

    def _reach(
        self, target: WebhookUrl, addresses: list[str], deadline: "_Deadline"
    ) -> socket.socket:
        """Connect to the first address that answers."""
        for left_count in range(len(addresses), 1, -1):
            address = addresses[-left_count]
            try:
                # A share of the time each: one address that swallows packets must not use it all.
                return self._connect(address, target.port, deadline.left_s() / left_count)
            except OSError:
                continue
        return self._connect(addresses[-1], target.port, deadline.left_s())

    def _exchange(
        self, sock: socket.socket, target: WebhookUrl, request: bytes, deadline: "_Deadline"
    ) -> int:
        """Send the request over a connection, sealed first for https; return the status."""
        if target.scheme == "http":
            return _ask(sock, request, deadline)
        sock.settimeout(deadline.left_s())
        with self._context().wrap_socket(sock, server_hostname=target.host) as sealed:
            return _ask(sealed, request, deadline)

    def _context(self) -> ssl.SSLContext:
        # Made when first needed: it reads every certificate of the system. Two threads may both
        # make one; either will do.
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls


@final
class _Deadline:
    """The moment at which a try is over."""

    def __init__(self, timeout_s: float) -> None:
        self._at_s = time.monotonic() + timeout_s

    def left_s(self) -> float:
        """Return what is left; raise TimeoutError when nothing is."""
        left_s = self._at_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        return left_s


@final
class _Answer(io.RawIOBase):
    """The bytes that come back, up to the deadline and the size limit; then the stream ends."""

    def __init__(self, sock: socket.socket, deadline: _Deadline) -> None:
        super().__init__()
        self._sock = sock
        self._deadline = deadline
        self._left = ANSWER_SIZE_MAX

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        view = memoryview(buffer)[: self._left]
        if not view:
            return 0
        # Again before each read: a timeout of the socket alone starts anew with every byte.
        self._sock.settimeout(self._deadline.left_s())
        count = self._sock.recv_into(view)
        self._left -= count
        return count

    def makefile(self, _mode: str) -> io.BufferedReader:
        """Stand in for the socket: the one thing http.client asks of it."""
        return io.BufferedReader(self)


def _request(target: WebhookUrl, headers: dict[str, str], body: bytes) -> bytes:
    lines = [
        f"POST {target.path} HTTP/1.1",
        f"Host: {target.authority()}",
        "Connection: close",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    # Printable ASCII has no line ends: no value can start a header of its own.
    assert all(line.isascii() and line.isprintable() for line in lines), lines
    # In one piece: a small body sent after its head would wait for the peer's acknowledgement.
    return "\r\n".join([*lines, "", ""]).encode() + body


def _ask(sock: socket.socket, request: bytes, deadline: _Deadline) -> int:
    """Send the request, return the status of the answer, and throw the rest away."""
    view = memoryview(request)
    while view:
        sock.settimeout(deadline.left_s())
        view = view[sock.send(view[:SEND_MAX]) :]
    stream = cast("socket.socket", _Answer(sock, deadline))
    with http.client.HTTPResponse(stream, method="POST") as response:
        response.begin()
        try:
            # Read out, so that the peer is not cut off in mid-sentence.
            response.read(ANSWER_SIZE_MAX)
        except (OSError, http.client.HTTPException):
            return response.status  # the status was whole, and it is what counts
        return response.status
