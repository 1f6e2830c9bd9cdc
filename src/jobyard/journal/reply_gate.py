"""Holds replies until the records they disclose are safe.

A reply is bytes and the number of the batch it waits for. The replies of one connection leave in
the order they were written; connections do not wait for each other. There is no future, task or
callback per request: a release visits the connections that hold replies, once per commit.

The committer decides what is safe: written to the disk, or only to the kernel. Where the kernel is
enough for most replies, a single reply can still wait for the disk; the gate then records that a
sync is needed.
"""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Sink:
    """Where replies go once they are released."""

    def deliver(self, data: bytes) -> None:
        """Send bytes that are safe to send."""

    def deliver_all(self, pieces: list[bytes]) -> None:
        """Send pieces that are together too long to be joined."""
        for piece in pieces:
            self.deliver(piece)


_NOWHERE: Final = Sink()
# Replies that leave at the same time are joined up to this size, and not copied beyond.
JOINED_ANSWER_MAX: Final = 256 << 10


@final
class Outbox:
    """The replies of one connection that still wait."""

    def __init__(self, gate: "Gate", sink: Sink) -> None:
        self._gate = gate
        self._sink = sink
        # The batch each reply waits for; negative if it must be on the disk, not only safe.
        self._numbers: list[i64] = []
        self._chunks: list[bytes] = []
        self.held_bytes: i64 = 0

    def is_empty(self) -> bool:
        """Return whether nothing waits."""
        return not self._chunks

    def hand(self, data: bytes, number: i64) -> None:
        """Send `data` as soon as batch `number` is safe and everything before it has gone."""
        if not self._chunks:
            if number <= self._gate.safe:
                self._sink.deliver(data)
                return
            self._gate.held.append(self)
        self._numbers.append(number)
        self._chunks.append(data)
        self.held_bytes += len(data)

    def hand_synced(self, data: bytes, number: i64, synced: i64) -> None:
        """Send `data` when batch `number` is safe, `synced` on disk and all before it sent."""
        gate = self._gate
        if synced <= gate.durable:
            self.hand(data, number)
            return
        # One sync covers both.
        number = max(number, synced)
        gate.held_sync_batch = max(gate.held_sync_batch, number)
        if not self._chunks:
            gate.held.append(self)
        self._numbers.append(-number)
        self._chunks.append(data)
        self.held_bytes += len(data)

    def hand_all(self, pieces: list[bytes], number: i64, synced: i64) -> None:
        """Do the same for a long reply in pieces, which leave one after the other."""
        gate = self._gate
        waits_for = number
        if synced > gate.durable:
            number = max(number, synced)
            gate.held_sync_batch = max(gate.held_sync_batch, number)
            waits_for = -number
        elif not self._chunks and number <= gate.safe:
            self._sink.deliver_all(pieces)
            return
        if not self._chunks:
            gate.held.append(self)
        for piece in pieces:
            self._numbers.append(waits_for)
            self._chunks.append(piece)
            self.held_bytes += len(piece)

    def release(self, safe: i64, durable: i64) -> bool:
        """Send the replies that are released; return True if some still wait."""
        numbers = self._numbers
        if not numbers:
            return False
        if len(numbers) == 1:
            only = numbers[0]
            if only > safe or -only > durable:
                return True
            data = self._chunks.pop()
            numbers.pop()
            self.held_bytes = 0
            self._sink.deliver(data)
            return False
        count = 0
        for number in numbers:
            if number > safe or -number > durable:
                break
            count += 1
        if count > 0:
            pieces = self._chunks[:count]
            del numbers[:count]
            del self._chunks[:count]
            if self.held_bytes > JOINED_ANSWER_MAX:
                for piece in pieces:
                    self.held_bytes -= len(piece)
                self._sink.deliver_all(pieces)
            else:
                data = b"".join(pieces)
                self.held_bytes -= len(data)
                self._sink.deliver(data)
        return len(numbers) > 0

    def discard(self) -> None:
        """Drop everything: the connection is closed."""
        self._numbers.clear()
        self._chunks.clear()
        self.held_bytes = 0
        # The gate may refer to this outbox until its next release; do not keep the connection.
        self._sink = _NOWHERE


@final
class Gate:
    """The batches up to which replies are released, and the connections that hold some back."""

    def __init__(self) -> None:
        self.safe: i64 = 0
        # The newest batch on the disk. Below `safe` where replies may precede the sync.
        self.durable: i64 = 0
        # The newest batch that a reply needs on the disk.
        self.held_sync_batch: i64 = 0
        self.held: list[Outbox] = []

    def release(self, safe: i64) -> None:
        """Raise both marks and send what they release. Called once per commit."""
        self.release_up_to(safe, safe)

    def release_up_to(self, safe: i64, durable: i64) -> None:
        """Raise the marks, `durable` possibly less than `safe`, and send what they release."""
        self.safe = safe
        self.durable = durable
        held = self.held
        self.held = []
        for outbox in held:
            if outbox.release(safe, durable):
                self.held.append(outbox)
