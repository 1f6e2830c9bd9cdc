"""What every session is to the server: bytes in, bytes out, and what the bytes wait for."""

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64, mypyc_attr

from jobyard.journal.journal import Journal
from jobyard.journal.reply_gate import Outbox, Sink

# An address nobody knows.
NOWHERE: Final = "?:0"


@mypyc_attr(allow_interpreted_subclasses=True)
class Peer(Sink):
    """The connection as a session sees it."""

    def stirred(self) -> None:
        """Note that output appeared, or input may go on, outside the session's own `receive`."""

    def unsent_size(self) -> i64:
        """Return how much of what the session wrote has not left yet."""
        return 0

    def host(self) -> str:
        """Return who the client is to limits by address."""
        return ""

    def addresses(self) -> tuple[str, str]:
        """Return where the client is, and where it came in; asked for when somebody wants them."""
        return NOWHERE, NOWHERE


# In place of a connection that is gone.
GONE: Final = Peer()

# Of a command's name, in the log: a name that is none may be of any length.
DOING_MAX: Final = 40

# Room for output that a session keeps for the next; a longer answer's goes back with it.
OUT_KEPT: Final = 64 << 10

# Output that makes a session pause until the peer has read it: one small request can ask for a
# body of any size, over and over.
OUTPUT_MAX: Final = 1 << 20


@mypyc_attr(allow_interpreted_subclasses=True)
class Entrance:
    """Where new connections of one protocol come in."""

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
        # The pieces of long answers, and what was written before them; they leave before `out`,
        # where the end of a long answer stands.
        self._ahead: list[bytes] = []
        # The newest batch that anything in `out` discloses, as far as it was narrowed.
        self.awaits: i64 = 0
        # How much of `out` was narrowed: the rest waits for all that was appended up to its going.
        self._narrowed: i64 = 0
        # The newest batch that must be on the disk first, though less is enough for others.
        self.awaits_synced: i64 = 0
        # No more input counts: close once the output has gone.
        self.is_finished: bool = False
        # There is input to go on with once the output has gone.
        self.is_stalled: bool = False
        # What `Yard.changes` said when the command that runs now began. An unexpected error costs
        # the connection if nothing has changed since, and the process if something has.
        self.changes_before: i64 = 0

    def receive(self, data: bytes, now_ms: i64) -> None:
        """Run every complete command in what has arrived so far."""
        raise NotImplementedError

    def resume(self, now_ms: i64) -> None:
        """Go on with input that was held back while the session waited."""
        raise NotImplementedError

    def half_close(self, now_ms: i64) -> None:
        """Wait for nothing any more: the peer has sent its last, though not all of it is here."""
        raise NotImplementedError

    def end_input(self, now_ms: i64) -> None:
        """Note that everything the peer sent is here; it may still read."""
        raise NotImplementedError

    def closed(self, now_ms: i64) -> None:
        """Give back everything the session holds: the connection is gone.

        Ends with `let_go`.
        """
        raise NotImplementedError

    def let_go(self) -> None:
        """Forget the connection, and what was written for it.

        A session that knows its connection is part of a cycle, and with it all that either holds:
        reference counts would never free them, and collections are rare.
        """
        self.peer = GONE
        self.out = BytesWriter()
        self._ahead = []
        self._narrowed = 0

    def unread_size(self) -> i64:
        """Return how much input waits in the session, for the server to stop reading in time."""
        raise NotImplementedError

    def held_size(self) -> i64:
        """Return how much input the session keeps, complete or not."""
        return 0

    def refuse_input(self, now_ms: i64) -> None:  # noqa: ARG002  for those who say more
        """Give up what is kept of the input: all connections together keep too much."""
        self.is_finished = True

    def doing(self) -> str:
        """Return the protocol and the command that runs, or ran last, for the log: no arguments."""
        return "unknown"

    def write_long(self, pieces: list[bytes]) -> None:
        """Write an answer that is too long to be copied at once: its pieces leave as they are.

        It is not to be narrowed. Its end goes to `out`, and enough of it, that everybody who looks
        there sees that there is output, and more than should be added to.
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
        """Tell whether there is more output than should be taken in one piece."""
        return len(self._ahead) > 0

    def take_pieces(self) -> list[bytes]:
        """Return what `take_output` does, in pieces."""
        pieces = self._ahead
        self._ahead = []
        pieces.append(self._take_out())
        return pieces

    def take_output(self) -> bytes:
        """Return what is to be sent once `awaits` is safe, and `awaits_synced` on the disk."""
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
        """Empty the output and give back its room, unless a command that waits writes to it."""
        self._is_out_large = self.keeps_out()
        if self._is_out_large:
            self.out.truncate(0)
        else:
            self.out = BytesWriter()

    def keeps_out(self) -> bool:
        """Tell whether a command knows `out` and will write to it later."""
        return False

    def narrow(self, start: i64, number: i64) -> None:
        """Let an answer, all of the output from `start` on, wait for batch `number` and no newer.

        An answer that nobody narrows waits for the newest batch there is, whatever it tells. To
        narrow is for those who know all that theirs tells: answers of every day's commands, and
        such as tell nothing of the yard. Where something before `start` was not narrowed, this is
        made up for now: both leave together.
        """
        if start > self._narrowed:
            self.awaits = max(self.awaits, self.journal.newest())
        self.awaits = max(self.awaits, number)
        self._narrowed = len(self.out)

    def write_own(self, answer: bytes) -> None:
        """Write an answer that tells nothing of the yard: it waits for no batch."""
        start: i64 = len(self.out)
        self.out.write(answer)
        self.narrow(start, 0)

    def unwrite(self, size: i64) -> None:
        """Forget what was written behind the first `size` bytes of the output."""
        self.out.truncate(size)
        self._narrowed = min(self._narrowed, size)

    def await_synced(self, number: i64) -> None:
        """Send nothing of the output before batch `number` is on the disk."""
        self.awaits_synced = max(self.awaits_synced, number)

    def take_synced(self) -> i64:
        """Return which batch must be on the disk first, for who sends the output in its stead."""
        synced = self.awaits_synced
        self.awaits_synced = 0
        return synced

    def hand_output(self, outbox: Outbox) -> None:
        """Hand what is to be sent to an outbox, with what it waits for."""
        if self._ahead:
            pieces = self.take_pieces()
            outbox.hand_all(pieces, self.awaits, self.take_synced())
        elif self.awaits_synced == 0:
            outbox.hand(self._take_out(), self.awaits)
        else:
            # What comes later waits behind it.
            synced = self.take_synced()
            outbox.hand_synced(self._take_out(), self.awaits, synced)
