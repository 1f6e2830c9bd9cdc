"""What a door needs from the process: memory, CPU time, disk errors, and sending webhooks.

The server provides the real one; tests provide one with fixed values.
"""

from mypy_extensions import i64, mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Environment:
    """The process and the disk as sessions see them."""

    def memory_mb(self) -> float:
        """Return the resident memory of the process."""
        raise NotImplementedError

    def cpu_s(self) -> float:
        """Return the processor time of the process so far."""
        raise NotImplementedError

    def disk_error(self) -> str:
        """Return the current disk error, or an empty string."""
        raise NotImplementedError

    def disk_error_since_ms(self) -> i64:
        """Return the steady time at which the disk error began."""
        raise NotImplementedError

    def post(self, webhook_id: str, url: str, secret: str, event: str, body: bytes) -> None:
        """Queue a webhook notice for sending, without blocking."""
        raise NotImplementedError

    def forget(self, webhook_id: str) -> None:
        """Drop the notices that still wait to be sent to a webhook."""
        raise NotImplementedError

    def take_outcomes(self) -> list[tuple[str, bool, int]]:
        """Return the deliveries since the last call: webhook id, success, and time (wall ms)."""
        raise NotImplementedError
