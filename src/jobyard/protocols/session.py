"""The interface of a session to the server: bytes in, bytes out, and what the output waits for.

Knows no protocol, socket or clock. No output leaves before the batches it discloses are safe.
"""

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64, mypyc_attr

from jobyard.journal.journal import Journal
from jobyard.journal.reply_gate import Outbox, Sink

# An unknown address.
UNKNOWN_ADDRESS: Final = "?:0"


@mypyc_attr(allow_interpreted_subclasses=True)
class Peer(Sink):
    """The connection as a session sees it."""

    def wake(self) -> None:
        """Note that there is output, or input to continue with, outside of `receive`."""

    def unsent_size(self) -> i64:
        """Return the size of the session's output that has not left yet."""
        return 0

    def host(self) -> str:
        """Return the client address that limits per address use."""
        return ""

    def addresses(self) -> tuple[str, str]:
        """Return the client's address and the local one; computed only on request."""
        return UNKNOWN_ADDRESS, UNKNOWN_ADDRESS


# In place of a connection that is gone.
NO_PEER: Final = Peer()

# Longest command name in the log: an invalid name may be of any length.
DOING_MAX: Final = 40

# Largest output buffer that a session keeps for the next answer; larger ones are freed.
OUT_KEPT: Final = 64 << 10

# Output beyond this pauses a session until the peer has read it: small requests can ask for a large
# body over and over.
OUTPUT_MAX: Final = 1 << 20
# Parts of a long answer are joined into pieces of about this size.
PIECE_SIZE: Final = 256 << 10


@mypyc_attr(allow_interpreted_subclasses=True)
class Entrance:
    """Creates the sessions of one protocol."""

    def enter(self, peer: Peer) -> "Session":
        """Return the session of a new connection."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Session:
    """One client of one protocol."""

    def __init__(self, peer: Peer, journal: Journal) -> None:
        self.peer: Peer = peer
        self.journal: Journal = journal
        self.out = BytesWriter()
        self._is_out_large: bool = False
        # Pieces of long answers, and output written before them; they leave before `out`, which
        # holds the end of a long answer.
        self._ahead: list[bytes] = []
        # The newest batch that anything in `out` discloses, as far as it was narrowed.
        self.awaits: i64 = 0
        # How much of `out` was narrowed; the rest waits for everything appended until it leaves.
        self._narrowed: i64 = 0
        # The newest batch that must be synced to disk first, even if others need only be written.
        self.awaits_synced: i64 = 0
        # Ignore further input, and close once the output has left.
        self.is_finished: bool = False
        # There is input to continue with once the output has left.
        self.is_stalled: bool = False
        # `Yard.changes` when the current command began. An unexpected error ends the connection if
        # nothing has changed since, and the process if something has.
        self.changes_before: i64 = 0

    def receive(self, data: bytes, now_ms: i64) -> None:
        """Run every complete command in the input so far."""
        raise NotImplementedError

    def resume(self, now_ms: i64) -> None:
        """Continue with input that was held back while the session waited."""
        raise NotImplementedError

    def half_close(self, now_ms: i64) -> None:
        """Stop waiting: the peer has closed its side, but its input is not all read yet."""
        raise NotImplementedError

    def end_input(self, now_ms: i64) -> None:
        """Note that all input of the peer has been read; the peer may still read."""
        raise NotImplementedError

    def closed(self, now_ms: i64) -> None:
        """Release everything the session holds: the connection is gone.

        Ends with `forget_connection`.
        """
        raise NotImplementedError

    def forget_connection(self) -> None:
        """Forget the connection and the output for it.

        Session and connection refer to each other, and reference counts never free such a cycle or
        what it holds; garbage collections are rare.
        """
        self.peer = NO_PEER
        self.out = BytesWriter()
        self._ahead = []
        self._narrowed = 0

    def unread_size(self) -> i64:
        """Return the size of input that waits in the session; the server stops reading by it."""
        raise NotImplementedError

    def held_size(self) -> i64:
        """Return the size of stored input, complete or not."""
        return 0

    def refuse_input(self, now_ms: i64) -> None:  # noqa: ARG002  for subclasses
        """Drop stored input: all connections together hold too much."""
        self.is_finished = True

    def client_address(self) -> str:
        """Return the address of the client as history shows it, or an empty string."""
        address = self.peer.addresses()[0]
        return "" if address == UNKNOWN_ADDRESS else address

    def doing(self) -> str:
        """Return the protocol and the current or last command for the log, without arguments."""
        return "unknown"

    def write_long(self, pieces: list[bytes]) -> None:
        """Write an answer that is too long to be copied at once: its pieces leave unjoined.

        It must not be narrowed. Its last pieces go to `out`, enough that every check of `out` sees
        output, and more than OUTPUT_MAX of it.
        """
        size: i64 = 0
        at: i64 = len(pieces)
        while at > 0 and size <= OUTPUT_MAX:
            at -= 1
            size += len(pieces[at])
        if at > 0:
            if len(self.out) > 0:
                self._ahead.append(self._take_out())
            self._ahead += pieces[:at]
        for piece in pieces[at:]:
            self.out.write(piece)

    def has_long(self) -> bool:
        """Return whether there is more output than should be taken in one piece."""
        return len(self._ahead) > 0

    def take_pieces(self) -> list[bytes]:
        """Return the output of `take_output` in pieces."""
        pieces = self._ahead
        self._ahead = []
        pieces.append(self._take_out())
        return pieces

    def take_output(self) -> bytes:
        """Return the output; send it once `awaits` is safe and `awaits_synced` is on the disk."""
        return b"".join(self.take_pieces()) if self._ahead else self._take_out()

    def _take_out(self) -> bytes:
        if len(self.out) > self._narrowed:
            self.awaits = max(self.awaits, self.journal.newest())
        self._narrowed = 0
        data = self.out.getvalue()
        if self._is_out_large or len(data) > OUT_KEPT:
            self._shrink()
        else:
            self.out.truncate(0)
        return data

    def _shrink(self) -> None:
        """Empty the output and free its buffer, unless a waiting command will write to it."""
        self._is_out_large = self.keeps_out()
        if self._is_out_large:
            self.out.truncate(0)
        else:
            self.out = BytesWriter()

    def keeps_out(self) -> bool:
        """Return whether a command holds `out` and will write to it later."""
        return False

    def narrow(self, start: i64, number: i64) -> None:
        """Let an answer, all output from `start` on, wait only for batches up to `number`.

        An answer that is not narrowed waits for the newest batch, whatever it discloses. Narrow
        only answers whose content is fully known: those of frequent commands, and those that
        disclose nothing of the yard. If output before `start` was not narrowed, all of it waits
        for the newest batch, as it leaves together.
        """
        if start > self._narrowed:
            self.awaits = max(self.awaits, self.journal.newest())
        self.awaits = max(self.awaits, number)
        self._narrowed = len(self.out)

    def write_own(self, answer: bytes) -> None:
        """Write an answer that discloses nothing of the yard: it waits for no batch."""
        start: i64 = len(self.out)
        self.out.write(answer)
        self.narrow(start, 0)

    def unwrite(self, size: i64) -> None:
        """Cut the output to its first `size` bytes."""
        self.out.truncate(size)
        self._narrowed = min(self._narrowed, size)

    def await_synced(self, number: i64) -> None:
        """Hold all output until batch `number` is on the disk."""
        self.awaits_synced = max(self.awaits_synced, number)

    def take_synced(self) -> i64:
        """Return and reset the batch that must be on the disk before output is sent."""
        synced = self.awaits_synced
        self.awaits_synced = 0
        return synced

    def hand_output(self, outbox: Outbox) -> None:
        """Hand the output to an outbox, with the batches it waits for."""
        if self._ahead:
            pieces = self.take_pieces()
            outbox.hand_all(pieces, self.awaits, self.take_synced())
        elif self.awaits_synced == 0:
            outbox.hand(self._take_out(), self.awaits)
        else:
            # Later output waits behind it.
            synced = self.take_synced()
            outbox.hand_synced(self._take_out(), self.awaits, synced)
