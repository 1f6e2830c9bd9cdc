"""Limits on all connections of all doors together: memory, their number, failed logins.

Counted are incomplete or waiting input, and output that has not left. Every connection has a free
allowance; what it holds beyond that is charged to one account, and credited to the last byte when
the connection closes. While the account is overdrawn, connections that grow are refused, large ones
before small ones, so that a few large senders do not shut out all others.

The loops charge; sessions only report what they hold, and drop it on request.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.protocols.login_attempts import LoginAttempts

MEMORY_DEFAULT: Final = 512 << 20
# Free allowance of one connection, so that usual commands are charged nothing.
FREE_SIZE: Final = 64 << 10
# A connection charged more than this is large.
LARGE_SIZE: Final = 1 << 20

# What a connection must drop.
NOTHING: Final = 0
INPUT: Final = 1
OUTPUT: Final = 2


@final
class SharedLimits:
    """The account, and the numbers of refusals."""

    def __init__(self, memory_max: i64) -> None:
        self.memory_max: i64 = memory_max
        # A quarter is reserved for small connections.
        self._large_max: i64 = memory_max - memory_max // 4
        self.held: i64 = 0
        self.attempts = LoginAttempts()
        self.inputs_refused: i64 = 0
        self.outputs_cut: i64 = 0
        # Most connections of one address; 0: no limit, and they are not counted.
        self.address_max: i64 = 0
        self.connections: dict[str, int] = {}
        self.connections_refused: i64 = 0

    def charge(self, charged: i64, size: i64) -> i64:
        """Charge a connection for `size` bytes instead of `charged`; return its new charge."""
        now = size - FREE_SIZE if size > FREE_SIZE else 0
        self.held += now - charged
        return now

    def is_overdrawn(self, charged: i64) -> bool:
        """Return whether a connection with that charge is over the limit."""
        most = self._large_max if charged > LARGE_SIZE else self.memory_max
        return charged > 0 and self.held > most

    def decide(self, before: i64, charged: i64, held: i64, unsent: i64) -> i64:
        """Return what a connection must drop, and count the refusal.

        NOTHING unless its charge grew from `before` and the account is overdrawn; else the larger
        of INPUT, which is refused, and OUTPUT, for which the connection is closed.
        """
        if charged <= before or not self.is_overdrawn(charged):
            return NOTHING
        if unsent > held:
            self.outputs_cut += 1
            return OUTPUT
        self.inputs_refused += 1
        return INPUT

    def arrive(self, address: str) -> bool:
        """Count a connection from an address; return False if there are too many."""
        count = self.connections.get(address, 0)
        if count >= self.address_max:
            self.connections_refused += 1
            return False
        self.connections[address] = count + 1
        return True

    def leave(self, address: str) -> None:
        """Stop counting a connection."""
        count = self.connections.pop(address, 0)
        if count > 1:
            self.connections[address] = count - 1
