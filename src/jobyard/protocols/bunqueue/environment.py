"""What a door needs to know of the process around it, and its way out for webhooks.

The server gives its own; a test gives one that stands still.
"""

from mypy_extensions import i64, mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Surroundings:
    """The process and the disk as sessions see them."""

    def memory_mb(self) -> float:
        """Return the resident memory of the process."""
        raise NotImplementedError

    def cpu_s(self) -> float:
        """Return the processor time of the process so far."""
        raise NotImplementedError

    def disk_error(self) -> str:
        """Return what is wrong with the disk, or nothing."""
        raise NotImplementedError

    def disk_error_since_ms(self) -> i64:
        """Return the steady time since when the disk has been wrong."""
        raise NotImplementedError

    def post(self, webhook_id: str, url: str, secret: str, event: str, body: bytes) -> None:
        """Send a webhook, at once and without waiting."""
        raise NotImplementedError

    def forget(self, webhook_id: str) -> None:
        """Let fall what still waits to be sent to a webhook."""
        raise NotImplementedError

    def take_outcomes(self) -> list[tuple[str, bool, int]]:
        """Return what became of webhooks since the last call: id, success, and when (wall ms)."""
        raise NotImplementedError
