"""ACKB: finish many jobs with one command.

A job that cannot be finished does not affect the others, so a long list is processed in slices.
Errors in the lists themselves are found before the first job is finished.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from jobyard.engine.jobs.finish import KEEP_AS_ASKED, KEEP_NOT
from jobyard.engine.state.tasks import Task
from jobyard.errors import Refused, ResultTooLarge, StorageFull, YardFull
from jobyard.model.job import DEAD, DONE
from jobyard.protocols.bunqueue.commands.jobs import check_lease, complete_run
from jobyard.protocols.bunqueue.ids import find_job
from jobyard.wire.msgpack.forms import (
    KIND_TEXT,
    array_header,
    content_start,
    kind_of,
    skip,
    text_of,
)

if TYPE_CHECKING:
    from jobyard.model.job import Job
    from jobyard.protocols.bunqueue.door import Answer
    from jobyard.protocols.bunqueue.request import Request
    from jobyard.protocols.bunqueue.session import BunqueueSession
    from jobyard.wire.msgpack.read import MapFields

# Limit of one ACKB; and how many jobs are finished in its turn, whatever the turn's load.
ACKS_MAX: Final = 100_000
ACKS_AT_ONCE: Final = 1000

# The cost of checking ids and of finishing a job, in units of work.
_CHECKED_PER_UNIT: Final = 16
_ACK_UNITS: Final = 2
_BYTES_PER_UNIT: Final = 1024

_TRUE: Final = 0xC3
# nil, or JavaScript's undefined.
_NOTHING: Final = (b"\xc0", b"\xd4\x00\x00")


def ack_batch(session: BunqueueSession, request: Request) -> None:
    """Finish many jobs."""
    acks = Acks(session, request.fields)
    if acks.count > ACKS_AT_ONCE:
        answer = session.begin(request, acks, acks.answer)
        if answer is not None:
            session.answer(request.req_id, answer)
        return
    acks.run(request.now_ms)
    if acks.ignored:
        session.answer(request.req_id, acks.answer())
        return
    frame = session.begin_ok(request.req_id, 0)
    session.end_ok(frame, request.req_id)
    session.narrow(frame, acks.newest)


@final
class _Items:
    """Iterates over an array field; its count is -1 if the field is missing."""

    def __init__(self, fields: MapFields, key: bytes) -> None:
        self._data = fields.data
        self._ends = fields.ends
        self.count: i64 = -1
        self._at: i64 = -1
        start, self._end = fields.find(key)
        if start >= 0:
            self.count, self._at = array_header(self._data, start, self._end)

    def next(self) -> tuple[i64, i64]:
        """Return the start and end of the next item, and advance."""
        start = self._at
        ends = self._ends
        if ends is None:
            self._at = skip(self._data, start, self._end)
        else:
            self._at = ends.after(self._data, start, self._end)
        return start, self._at

    def next_content(self) -> bytes | None:
        """Return the UTF-8 of the next item, or None if it is not text, and advance."""
        start, end = self.next()
        if kind_of(self._data, start) != KIND_TEXT:
            return None
        return self._data[content_start(self._data, start) : end]


@final
class Acks(Task):
    """Checks the ids of one ACKB and finishes the jobs."""

    def __init__(self, session: BunqueueSession, fields: MapFields) -> None:
        super().__init__()
        self._session = session
        self._yard = session.yard
        self._data = fields.data
        self._ids = _Items(fields, b"ids")
        self.count: i64 = self._ids.count
        if self.count < 0:
            raise Refused("ids must be an array of strings")
        if self.count > ACKS_MAX:
            raise Refused(f"ids must have at most {ACKS_MAX} entries")
        self._checked = _Items(fields, b"ids")
        self._tokens = _Items(fields, b"tokens")
        if self._tokens.count not in (-1, self.count):
            raise Refused("ACKB tokens length must match ids length")
        self._results = _Items(fields, b"results")
        if self._results.count not in (-1, self.count):
            raise Refused("ACKB results length must match ids length")
        self._removes = _Items(fields, b"removeOnCompletes")
        self._checked_count: i64 = 0
        self._done: i64 = 0
        self.ignored: list[object] = []
        self._ignored_ids: list[object] = []
        # The answer waits until this journal batch is durable.
        self.newest: i64 = 0

    def run(self, now_ms: i64) -> None:
        """Process the whole list at once."""
        while self._done < self.count:
            self._proceed(1 << 40, now_ms)

    def step(self, most: i64, now_ms: i64) -> i64:
        """Check some ids, or finish some jobs."""
        done: i64 = 0
        while done < most and self._done < self.count:
            done += self._proceed(most - done, now_ms)
        return done

    def _proceed(self, most: i64, now_ms: i64) -> i64:
        if self._checked_count < self.count:
            return self._check(most)
        done: i64 = 0
        while done < most and self._done < self.count:
            done += self._ack_one(now_ms)
            self._done += 1
        return done

    def _check(self, most: i64) -> i64:
        done: i64 = 0
        while done // _CHECKED_PER_UNIT < most and self._checked_count < self.count:
            if kind_of(self._data, self._checked.next()[0]) != KIND_TEXT:
                raise Refused("ids must be an array of strings")
            self._checked_count += 1
            done += 1
        return 1 + done // _CHECKED_PER_UNIT

    def _ack_one(self, now_ms: i64) -> i64:
        name = self._ids.next_content()
        assert name is not None
        token: bytes | None = None
        if self._tokens.count >= 0:
            token = self._tokens.next_content() or b""
        result = b""
        if self._results.count >= 0:
            start, end = self._results.next()
            result = self._data[start:end]
            if result in _NOTHING:
                result = b""
        keep: i64 = KEEP_AS_ASKED
        if self._done < self._removes.count and self._data[self._removes.next()[0]] == _TRUE:
            keep = KEEP_NOT
        job = find_job(self._yard, name)
        if job is None or not self._finish(job, name, token, result, keep, now_ms):
            self.ignored.append(int(self._done))
            self._ignored_ids.append(text_of(name))
        return _ACK_UNITS + len(result) // _BYTES_PER_UNIT

    def _finish(
        self, job: Job, name: bytes, token: bytes | None, result: bytes, keep: i64, now_ms: i64
    ) -> bool:
        if job.state in (DONE, DEAD):
            return False
        try:
            check_lease(self._session, job, name, token)
        except Refused:
            return False
        try:
            complete_run(self._yard, job, result, keep, now_ms)
        except (YardFull, StorageFull, ResultTooLarge):
            # Refusing all would make the client repeat jobs that have been finished.
            return False
        self.newest = max(self.newest, job.batch)
        return True

    def answer(self) -> Answer:
        """Return which jobs were ignored, if any."""
        if not self.ignored:
            return {}
        return {"data": {"ignoredIndices": self.ignored, "ignoredIds": self._ignored_ids}}
