"""Holds answers until the records they disclose are safe.

An answer is bytes and the number of the batch it waits for. Answers of one connection leave in
the order they were written; connections do not wait for each other. There is no future, task or
callback per request: a release walks the connections that hold something, once per commit.

What is safe is for the committer to say: on the disk, or in the kernel. Where the second is enough
for most, an answer may still ask for the first, and the gate remembers that somebody does.
"""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Sink:
    """Where answers go once they may."""

    def deliver(self, data: bytes) -> None:
        """Send bytes that are safe to send."""

    def deliver_all(self, pieces: list[bytes]) -> None:
        """Send pieces that are too long together to be joined."""
        for piece in pieces:
            self.deliver(piece)


_NOWHERE: Final = Sink()
# Answers that leave at the same time are joined up to this size, and not copied beyond.
JOIN_MAX: Final = 256 << 10


@final
class Outbox:
    """The answers of one connection that still wait."""

    def __init__(self, gate: "Gate", sink: Sink) -> None:
        self._gate = gate
        self._sink = sink
        # The batch each answer waits for; below zero if that must be on the disk, safe or not.
        self._numbers: list[i64] = []
        self._chunks: list[bytes] = []
        self.held_bytes: i64 = 0

    def is_empty(self) -> bool:
        """Tell whether nothing waits."""
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
        """Send `data` when batch `number` is safe, `synced` on the disk, and all before it gone."""
        gate = self._gate
        if synced <= gate.durable:
            self.hand(data, number)
            return
        # One sync brings both there.
        number = max(number, synced)
        gate.sync_asked = max(gate.sync_asked, number)
        if not self._chunks:
            gate.held.append(self)
        self._numbers.append(-number)
        self._chunks.append(data)
        self.held_bytes += len(data)

    def hand_all(self, pieces: list[bytes], number: i64, synced: i64) -> None:
        """Do the same with a long answer in pieces, which leave one behind the other."""
        gate = self._gate
        waits_for = number
        if synced > gate.durable:
            number = max(number, synced)
            gate.sync_asked = max(gate.sync_asked, number)
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
        """Send what may go; True if something still waits."""
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
            if self.held_bytes > JOIN_MAX:
                for piece in pieces:
                    self.held_bytes -= len(piece)
                self._sink.deliver_all(pieces)
            else:
                data = b"".join(pieces)
                self.held_bytes -= len(data)
                self._sink.deliver(data)
        return len(numbers) > 0

    def discard(self) -> None:
        """Forget everything: the connection is gone."""
        self._numbers.clear()
        self._chunks.clear()
        self.held_bytes = 0
        # The gate may know this outbox until its next release, and need not keep the connection.
        self._sink = _NOWHERE


@final
class Gate:
    """The marks up to which answers may go, and the connections that hold some back."""

    def __init__(self) -> None:
        self.safe: i64 = 0
        # What is on the disk. Behind `safe` where answers may precede the sync.
        self.durable: i64 = 0
        # The newest batch that an answer waits for to be on the disk.
        self.sync_asked: i64 = 0
        self.held: list[Outbox] = []

    def release(self, safe: i64) -> None:
        """Raise both marks and send what they let through. Called once per commit."""
        self.release_up_to(safe, safe)

    def release_up_to(self, safe: i64, durable: i64) -> None:
        """Raise the marks where what is safe may not be on the disk yet, and send what may go."""
        self.safe = safe
        self.durable = durable
        held = self.held
        self.held = []
        for outbox in held:
            if outbox.release(safe, durable):
                self.held.append(outbox)
