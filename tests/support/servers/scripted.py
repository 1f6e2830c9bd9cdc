"""An HTTP server whose answers a test writes down, byte for byte, one for each request."""

import socket
import threading
from collections.abc import Callable
from typing import NamedTuple

from tests.support.servers.patience import PATIENCE_S

# What is sent as the answer to a request; a function may see the request first. None of the
# bytes are changed, so a script can cut off, lie, and close.
Reply = bytes | Callable[["Heard"], bytes]
ANSWER_ENDS = b""


class Heard(NamedTuple):
    """A request."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


class ScriptedHttp:
    """Answers requests in the order of a script, and closes a connection where it says so."""

    def __init__(self, replies: list[Reply]) -> None:
        self._replies = list(replies)
        self.heard: list[Heard] = []
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(PATIENCE_S)
        self._lock = threading.Lock()
        self._is_closed = False
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Return the base url."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> "ScriptedHttp":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the server and its connections."""
        self._is_closed = True
        with socket.socket() as last:
            last.settimeout(PATIENCE_S)
            last.connect(self._listener.getsockname())
        self._thread.join(PATIENCE_S)
        self._listener.close()
        for connection in self._open:
            connection.close()

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            if self._is_closed:
                connection.close()
                return
            self.connections += 1
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as file:
            while (heard := _read(file.readline, file.read)) is not None:
                with self._lock:
                    self.heard.append(heard)
                    reply = self._replies.pop(0)
                data = reply if isinstance(reply, bytes) else reply(heard)
                try:
                    connection.sendall(data)
                except OSError:
                    return
                # Of a head that is not complete nothing more comes.
                if b"\r\n\r\n" not in data or b"Connection: close" in data:
                    return


def _read(line: Callable[[], bytes], read: Callable[[int], bytes]) -> Heard | None:
    try:
        first = line().decode()
        if not first:
            return None
        method, target, _ = first.split(" ")
        headers: dict[str, str] = {}
        while (text := line().decode().strip()) != "":
            name, _, value = text.partition(": ")
            headers[name.lower()] = value
        return Heard(method, target, headers, read(int(headers.get("content-length", 0))))
    except OSError:
        return None


def said(
    body: bytes, status: str = "200 OK", *headers: str, kind: str = "application/json"
) -> bytes:
    """Return a complete answer."""
    lines = [
        f"HTTP/1.1 {status}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def refused(status: str, code: str, message: str = "no", detail: str = "{}") -> bytes:
    """Return a refusal as a yard sends it."""
    body = f'{{"error":{{"code":"{code}","message":"{message}","detail":{detail}}}}}'
    return said(body.encode(), status)


def chunked(
    parts: list[bytes], trailers: str = "", *headers: str, kind: str, is_whole: bool = True
) -> bytes:
    """Return an answer in chunks; without its end if it is not whole."""
    lines = ["HTTP/1.1 200 OK", f"Content-Type: {kind}", "Transfer-Encoding: chunked", *headers]
    if not is_whole:
        lines.append("Connection: close")
    out = "\r\n".join(lines).encode() + b"\r\n\r\n"
    for part in parts:
        out += f"{len(part):x}\r\n".encode() + part + b"\r\n"
    return out + f"0\r\n{trailers}\r\n".encode() if is_whole else out
