"""A server with the HTTP door open, and a caller of the topics API."""

import json
import signal
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

from tests.support.servers.processes import start_doors

SMALL_SEGMENTS: Final = ("--segment-size", "64KiB")


class HttpYard:
    """`jobyard serve` with its HTTP door on a free port."""

    def __init__(self, *flags: str, env: dict[str, str] | None = None) -> None:
        doors = ("beanstalk", "bunqueue", "http")
        self.process, self.addresses = start_doors(doors, *flags, env=env)

    @property
    def address(self) -> tuple[str, int]:
        """Return the address of the HTTP port."""
        return self.addresses["http"]

    @property
    def url(self) -> str:
        """Return the base URL."""
        host, port = self.address
        return f"http://{host}:{port}"

    def close(self) -> None:
        """End the server."""
        self.process.close()


class Topics:
    """One connection of a topics client."""

    def __init__(self, address: tuple[str, int], key: str = "") -> None:
        self._connection = HTTPConnection(*address, timeout=60)
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Send one request; return status and answer."""
        headers = dict(self._headers)
        data: bytes | None = None
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        self._connection.request(method, path, data, headers)
        answer = self._connection.getresponse()
        content = answer.read()
        is_json = (answer.getheader("content-type") or "").startswith("application/json")
        return answer.status, json.loads(content) if is_json and content else content

    def send(self, method: str, path: str, body: object) -> None:
        """Send one request, and do not wait for its answer."""
        data = json.dumps(body).encode()
        headers = {**self._headers, "Content-Type": "application/json"}
        self._connection.request(method, path, data, headers)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class Boot:
    """A data directory, and the server that runs on it now."""

    def __init__(self, folder: Path) -> None:
        self._flags = ("--data", str(folder), *SMALL_SEGMENTS)
        self.yard = HttpYard(*self._flags)

    def connect(self) -> Topics:
        """Open a connection."""
        return Topics(self.yard.address)

    def kill(self) -> None:
        """Send SIGKILL, and start again."""
        self.yard.process.signal(signal.SIGKILL)
        self.yard.process.wait()
        self.yard.close()
        self.yard = HttpYard(*self._flags)

    def close(self) -> None:
        """End it."""
        self.yard.close()
