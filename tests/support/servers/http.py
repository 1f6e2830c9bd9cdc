"""A server with the HTTP door open, and a caller of the topics API."""

import json
from http.client import HTTPConnection
from typing import Any

from tests.support.servers.processes import start_doors


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

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
