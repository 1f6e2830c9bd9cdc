"""One POST to a webhook receiver: resolve, connect, send, read the status.

Blocks, so it runs only in delivery threads. It guarantees where it connects: the name is resolved
once, all of its addresses must be public, and the connection goes to one of them, with the name in
SNI, certificate check and Host. So changing the address of a name after the check has no effect
(DNS rebinding). Redirects are never followed; proxies from the environment are not used.

An attempt ends at its deadline however slowly the peer sends, and reads at most RESPONSE_SIZE_MAX
bytes. Only name resolution is not bounded by it: the C library's resolver has its own timeouts, and
the deadline is checked when it returns.
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
# Head and body together. Only the status of the response is used.
RESPONSE_SIZE_MAX: Final = 64 * 1024
# Maximum size of one send, so that the deadline is checked in between.
REQUEST_SIZE_MAX: Final = 256 * 1024

Resolve = Callable[[str, int], list[str]]
Connect = Callable[[str, int, float], socket.socket]


class Undelivered(Exception):
    """A failed delivery; the text gives the reason."""


def resolve_name(name: str, port: int) -> list[str]:
    """Return every address of a name once, in the order the system prefers."""
    found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def connect_address(address: str, port: int, timeout_s: float) -> socket.socket:
    """Connect to a numeric address, without a resolver."""
    return socket.create_connection((address, port), timeout_s)


@final
class Outbound:
    """Sends POST requests under fixed rules; shared by all delivery threads."""

    def __init__(
        self,
        *,
        allow_private: bool = False,
        timeout_s: float = TIMEOUT_S,
        resolve: Resolve = resolve_name,
        connect: Connect = connect_address,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Set the rules; `allow_private` is for tests and trusted networks."""
        self._allow_private = allow_private
        self._timeout_s = timeout_s
        self._resolve = resolve
        self._connect = connect
        self._tls = tls

    def post(self, url: str, headers: dict[str, str], body: bytes) -> None:
        """Send one POST; raise Undelivered unless the status is 2xx."""
        deadline = _Deadline(self._timeout_s)
        try:
            target = parse_url(url)
            sock = self._reach(target, self._addresses(target), deadline)
            with sock:
                status = self._exchange(sock, target, _request(target, headers, body), deadline)
        except (OSError, http.client.HTTPException, Refused) as error:
            raise Undelivered(f"{type(error).__name__}: {error}") from error
        if 300 <= status < 400:
            raise Undelivered(f"status {status}; redirects are not followed")
        if not 200 <= status < 300:
            raise Undelivered(f"status {status}")

    def _addresses(self, target: WebhookUrl) -> list[str]:
        """Resolve the host; refuse it if any of its addresses is not public."""
        is_literal = is_address(target.host)
        addresses = [target.host] if is_literal else self._resolve(target.host, target.port)
        if not addresses:
            raise Refused(f"{target.host} has no address")
        if not self._allow_private:
            for address in addresses:
                if not is_public(address):
                    raise Refused(f"{target.host} resolves to {address}, which is not public")
        return addresses

    def _reach(
        self, target: WebhookUrl, addresses: list[str], deadline: "_Deadline"
    ) -> socket.socket:
        """Connect to the first address that accepts."""
        for left_count in range(len(addresses), 1, -1):
            address = addresses[-left_count]
            try:
                # An equal share of the time: an address that drops packets must not use it all.
                return self._connect(address, target.port, deadline.left_s() / left_count)
            except OSError:
                continue
        return self._connect(addresses[-1], target.port, deadline.left_s())

    def _exchange(
        self, sock: socket.socket, target: WebhookUrl, request: bytes, deadline: "_Deadline"
    ) -> int:
        """Send the request, over TLS for https; return the status."""
        if target.scheme == "http":
            return _ask(sock, request, deadline)
        sock.settimeout(deadline.left_s())
        with self._context().wrap_socket(sock, server_hostname=target.host) as sealed:
            return _ask(sealed, request, deadline)

    def _context(self) -> ssl.SSLContext:
        # Created on first use: it reads every certificate of the system. If two threads both
        # create one, either works.
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls


@final
class _Deadline:
    """The end of the time for one attempt."""

    def __init__(self, timeout_s: float) -> None:
        self._at_s = time.monotonic() + timeout_s

    def left_s(self) -> float:
        """Return the remaining time; raise TimeoutError if there is none."""
        left_s = self._at_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        return left_s


@final
class _Answer(io.RawIOBase):
    """The response as a stream that ends at the deadline or the size limit."""

    def __init__(self, sock: socket.socket, deadline: _Deadline) -> None:
        super().__init__()
        self._sock = sock
        self._deadline = deadline
        self._left = RESPONSE_SIZE_MAX

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        view = memoryview(buffer)[: self._left]
        if not view:
            return 0
        # Set before each read: the socket's own timeout restarts with every byte.
        self._sock.settimeout(self._deadline.left_s())
        count = self._sock.recv_into(view)
        self._left -= count
        return count

    def makefile(self, _mode: str) -> io.BufferedReader:
        """Act as the socket: http.client calls only this method."""
        return io.BufferedReader(self)


def _request(target: WebhookUrl, headers: dict[str, str], body: bytes) -> bytes:
    lines = [
        f"POST {target.path} HTTP/1.1",
        f"Host: {target.authority()}",
        "Connection: close",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    # Printable ASCII has no newlines, so no value can inject a header.
    assert all(line.isascii() and line.isprintable() for line in lines), lines
    # In one piece: a small body sent after its head would wait for the peer's ACK.
    return "\r\n".join([*lines, "", ""]).encode() + body


def _ask(sock: socket.socket, request: bytes, deadline: _Deadline) -> int:
    """Send the request, return the status of the response, and discard the rest."""
    view = memoryview(request)
    while view:
        sock.settimeout(deadline.left_s())
        view = view[sock.send(view[:REQUEST_SIZE_MAX]) :]
    stream = cast("socket.socket", _Answer(sock, deadline))
    with http.client.HTTPResponse(stream, method="POST") as response:
        response.begin()
        try:
            # Read to the end, so that the peer's send does not fail.
            response.read(RESPONSE_SIZE_MAX)
        except (OSError, http.client.HTTPException):
            return response.status  # the status line was complete, and only that counts
        return response.status
