"""What bounds all connections of all doors together: memory, their number, failed attempts.

Held is input of which more is to come, or that waits to be run, and output that has not left. Every
connection has some of it for nothing; what it holds beyond that is charged to one account, and
given back to the last byte when it goes. While the account is overdrawn, whoever asks for more is
refused, and large input before small, so that a few who send a lot do not keep out all others.

The loops charge; sessions only say what they hold, and give it up when they are told to.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.protocols.login_attempts import Attempts

MEMORY_DEFAULT: Final = 512 << 20
# Of one connection; so that usual commands are charged nothing.
FREE_SIZE: Final = 64 << 10
# More than this is large.
LARGE_SIZE: Final = 1 << 20

# What a connection has to give up.
NOTHING: Final = 0
INPUT: Final = 1
OUTPUT: Final = 2


@final
class Guard:
    """The account, and how often somebody was refused."""

    def __init__(self, memory_max: i64) -> None:
        self.memory_max: i64 = memory_max
        # A quarter is left to those who do not ask for much.
        self._large_max: i64 = memory_max - memory_max // 4
        self.held: i64 = 0
        self.attempts = Attempts()
        self.inputs_refused: i64 = 0
        self.outputs_cut: i64 = 0
        # Connections of one address; 0 for no limit, and then they are not counted.
        self.address_max: i64 = 0
        self.connections: dict[str, int] = {}
        self.connections_refused: i64 = 0

    def charge(self, charged: i64, size: i64) -> i64:
        """Account for `size` bytes of one who was charged before; return what it is charged now."""
        now = size - FREE_SIZE if size > FREE_SIZE else 0
        self.held += now - charged
        return now

    def is_overdrawn(self, charged: i64) -> bool:
        """Tell whether one who is charged that much must give it up."""
        most = self._large_max if charged > LARGE_SIZE else self.memory_max
        return charged > 0 and self.held > most

    def decide(self, before: i64, charged: i64, held: i64, unsent: i64) -> i64:
        """Return what must be given up by one who was charged something `before`, and counts it.

        NOTHING unless more is charged now and all hold too much together; else INPUT, which is
        refused, or OUTPUT, with which the connection goes: whichever is more of what is held.
        """
        if charged <= before or not self.is_overdrawn(charged):
            return NOTHING
        if unsent > held:
            self.outputs_cut += 1
            return OUTPUT
        self.inputs_refused += 1
        return INPUT

    def arrive(self, address: str) -> bool:
        """Count a connection from an address; False if there are too many."""
        count = self.connections.get(address, 0)
        if count >= self.address_max:
            self.connections_refused += 1
            return False
        self.connections[address] = count + 1
        return True

    def leave(self, address: str) -> None:
        """Count a connection no more."""
        count = self.connections.pop(address, 0)
        if count > 1:
            self.connections[address] = count - 1
