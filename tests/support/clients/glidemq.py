"""A client of the glide-mq door without a socket.

redis-py parses the answers; errors are its exceptions.
"""

from typing import TYPE_CHECKING, Any

from jobyard.protocols.session import Entrance
from tests.support.clients.resp import pack, unpack
from tests.support.site.connection import Connection

if TYPE_CHECKING:
    from tests.support.site.site import Site


class GlideClient(Connection):
    """One connection."""

    def __init__(self, site: "Site", entrance: Entrance) -> None:
        super().__init__(site, entrance)
        self.proto = 2

    def another(self) -> "GlideClient":
        """Open another connection to the same door."""
        return GlideClient(self.site, self.entrance)

    def send(self, *arguments: object) -> None:
        """Send a command."""
        self.feed(pack(*arguments))

    def hear(self) -> list[Any]:
        """Return all answers that have come, once."""
        return unpack(self.take_unread(), self.proto)

    def ask(self, *arguments: object) -> Any:
        """Send a command that is answered at once; return the answer."""
        self.send(*arguments)
        answers = self.hear()
        assert len(answers) == 1, f"{arguments}: {answers}"
        return answers[0]

    def refused(self, *arguments: object) -> str:
        """Send a command that must be refused; return the error as it was sent."""
        self.send(*arguments)
        raw = self.take_unread()
        assert raw.startswith(b"-"), f"{arguments}: {raw!r}"
        assert raw.count(b"\r\n") == 1
        return raw[1:-2].decode()

    def speak(self, proto: int) -> None:
        """Change the protocol version."""
        self.send("HELLO", proto)
        self.proto = proto
        self.hear()
