"""Commands whose work or reply does not fit into one turn.

The work is a task of the yard. A reply of many parts is written in portions: the next one once the
peer has read the one before. Meanwhile the connection runs nothing else, so replies keep their
order. Commands in a transaction must complete at once: what is too much for that is refused before
anything has changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr

from jobyard.engine.state.tasks import Task, TaskOwner
from jobyard.model.limits import NEVER_MS
from jobyard.protocols.glidemq.client import Blocked
from jobyard.protocols.glidemq.errors import TRANSACTION_TOO_LONG, Wrong

if TYPE_CHECKING:
    from librt.strings import BytesWriter

    from jobyard.protocols.glidemq.call import Call
    from jobyard.protocols.glidemq.client import Client
    from jobyard.protocols.glidemq.keyspace.key import RedisKey

# Replies with at most this number of parts are written at once.
SHORT_ANSWER_ITEMS: Final = 128
# Approximate size of a portion in bytes.
PORTION_SIZE: Final = 256 << 10


@mypyc_attr(allow_interpreted_subclasses=True)
class Pieces:
    """A reply of many parts; subclasses write one part."""

    def __init__(self, count: i64) -> None:
        self.count: i64 = count
        self.at: i64 = 0

    def write_head(self, out: BytesWriter) -> None:
        """Write what comes before the parts."""
        raise NotImplementedError

    def write_part(self, out: BytesWriter, at: i64) -> None:
        """Write one part."""
        raise NotImplementedError

    def write_some(self, out: BytesWriter, most: i64) -> i64:
        """Write up to `most` parts, fewer if they are long; return how many."""
        if self.at == 0:
            self.write_head(out)
        start: i64 = len(out)
        done: i64 = 0
        while self.at < self.count and done < most and len(out) - start < PORTION_SIZE:
            self.write_part(out, self.at)
            self.at += 1
            done += 1
        return done

    def forget(self) -> Task | None:
        """Return a task that frees parts that will not be written, if there are many."""
        return None

    def write_all(self, out: BytesWriter) -> None:
        """Write all parts."""
        self.write_head(out)
        for at in range(self.count):
            self.write_part(out, at)


@final
class PieceTask(Task):
    """Writes the next portion of a reply."""

    def __init__(self, session: Client, pieces: Pieces) -> None:
        super().__init__()
        self.is_reading = True
        self._session = session
        self._pieces = pieces
        self._start: i64 = len(session.out)

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  the task's
        """Write parts until all are written or the portion is large enough."""
        done = self._pieces.write_some(self._session.out, most)
        if len(self._session.out) - self._start >= PORTION_SIZE:
            # The portion must be sent first.
            return min(done, most - 1)
        return done


AnswerWriter = Callable[[], Pieces | None]


@final
class LongAnswer(Blocked, TaskOwner):
    """A command whose work or reply continues over several turns."""

    def __init__(self, call: Call, task: Task | None, answer: AnswerWriter | None) -> None:
        self._session = call.session
        self._task = task
        self._answer = answer
        self.pieces: Pieces | None = None
        self._refusal: Exception | None = None
        self._is_muted: bool = False

    def task_ended(self, task: Task, refusal: Exception | None, now_ms: i64) -> None:  # noqa: ARG002
        """Handle the end of its work, or of a portion of its reply."""
        session = self._session
        self._task = None
        self._refusal = refusal
        session.await_synced(task.reply_sync_batch)
        if self.pieces is not None:
            self._portion_written()
        session.peer.wake()

    def try_again(self, now_ms: i64) -> bool:
        """Answer once the work is done; return whether the whole reply is written."""
        if self._task is not None:
            return False
        if self._refusal is not None:
            refusal = self._refusal
            self._refusal = None
            raise refusal
        answer = self._answer
        if answer is not None:
            self._answer = None
            self.pieces = answer()
            self._written()
        pieces = self.pieces
        if pieces is None or pieces.at >= pieces.count > 0 or self._is_muted:
            self._session.is_stalled = False
            return True
        portion = PieceTask(self._session, pieces)
        # The previous portion has been sent; this one waits for its turn.
        self._session.is_stalled = False
        if not self._session.door.yard.tasks.begin(portion, self, now_ms):
            self._task = portion
            return False
        self._portion_written()
        return pieces.at >= pieces.count

    def _portion_written(self) -> None:
        pieces = self.pieces
        assert pieces is not None
        self._written()
        # The next portion follows once this one has been sent.
        self._session.is_stalled = pieces.at < pieces.count

    def _written(self) -> None:
        if self._is_muted:
            self._session.unwrite(0)

    def give_up(self) -> None:
        """Keep waiting: the reply comes when the work is done."""

    def may_give_up(self) -> bool:
        """Return False: it does not wait for anything that may never come."""
        return False

    def mute(self) -> None:
        """Suppress the reply."""
        self._is_muted = True

    def leave(self) -> None:
        """Detach from the task and free what was not sent."""
        tasks = self._session.door.yard.tasks
        if self._task is not None:
            tasks.leave(self._task)
            self._task = None
        freeing = None if self.pieces is None else self.pieces.forget()
        if freeing is not None:
            self.pieces = None
            tasks.follow(freeing)


def begin(call: Call, task: Task, answer: AnswerWriter, units: i64 = 0) -> None:
    """Do the work of a command, then answer; `units` is the approximate cost of its changes."""
    session = call.session
    left = session.units_left
    if left >= 0:
        session.units_left = left - _do_at_once(task, units, left, call.now_ms)
        pieces = answer()
        if pieces is not None:
            pour(call, pieces)
        return
    long = LongAnswer(call, task, answer)
    if not call.yard.tasks.begin(task, long, call.now_ms):
        session.block(long, NEVER_MS)
        return
    pieces = answer()
    if pieces is not None:
        pour(call, pieces)


def when_up_to_date(call: Call, keys: list[RedisKey], run: Callable[[], None]) -> None:
    """Run a function that looks entries up, once they are sorted."""
    for key in keys:
        work = key.upkeep()
        if work is not None:
            begin(call, work, lambda: when_up_to_date(call, keys, run))
            return
    run()


def _do_at_once(task: Task, units: i64, left: i64, now_ms: i64) -> i64:
    """Run a whole task; refuse one that is too long while nothing has changed."""
    if units > left:
        raise Wrong(TRANSACTION_TOO_LONG)
    most: i64 = left + 1
    done = task.step(most, now_ms)
    is_over = done < most
    if task.is_reading and not is_over:
        task.abandon()
        raise Wrong(TRANSACTION_TOO_LONG)
    while not is_over:
        is_over = task.step(most, now_ms) < most
    return min(max(done, units), left)


def pour(call: Call, pieces: Pieces) -> None:
    """Answer with parts, of which there may be many."""
    session = call.session
    if 0 <= session.units_left < pieces.count:
        raise Wrong(TRANSACTION_TOO_LONG)
    if session.units_left >= 0 or pieces.count <= SHORT_ANSWER_ITEMS:
        session.units_left -= pieces.count if session.units_left >= 0 else 0
        pieces.write_all(call.out)
        return
    long = LongAnswer(call, None, None)
    long.pieces = pieces
    if not long.try_again(call.now_ms):
        session.block(long, NEVER_MS)
