"""A server with the glide-mq door, and redis-py as its client."""

import signal
from typing import Any

import redis

from tests.support.servers.patience import PATIENCE_S
from tests.support.servers.processes import start_doors


class Yard:
    """A server that can be ended and started again on the same data."""

    def __init__(self, *flags: str) -> None:
        self._flags = flags
        self.start()

    def start(self) -> None:
        """Start, and wait until it is ready."""
        self.process, addresses = start_doors(("glidemq",), "--beanstalk", "off", *self._flags)
        self.address = addresses["glidemq"]

    def client(self, **options: Any) -> Any:
        """Return a redis-py client, whose answers have too many types to declare."""
        host, port = self.address
        return redis.Redis(host=host, port=port, socket_timeout=PATIENCE_S, **options)

    def kill(self) -> None:
        """Kill the server."""
        self.process.signal(signal.SIGKILL)
        self.process.wait()
        self.process.close()

    def close(self) -> None:
        """End the server."""
        self.process.close()
