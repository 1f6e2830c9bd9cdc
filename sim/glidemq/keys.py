"""Keys as clients read and write them: views of jobs, counts, and stored values.

A read must return what the model holds. A write of a job's field is a change of that job; stored
values are held here as plain values, by key, with the time at which they expire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jobyard.model.glidemq.stored_values import ValueKind
from jobyard.model.job import DEAD, DELAYED, DONE, LEASED, READY
from jobyard.model.limits import NEVER_MS
from jobyard.model.throttle.ready_lists import ReadyList
from sim.glidemq.network import Answer, Error
from sim.glidemq.nouns import NEVER, Ask, GlideJob
from sim.glidemq.state import GlideState
from sim.state import Violation

if TYPE_CHECKING:
    from collections.abc import Callable

    from jobyard.engine.state.yard import Yard

PRIORITY_SHIFT: Final = 42
# Commands that may be refused because of the current state.
REFUSABLE: Final = frozenset({"refused", "group", "log"})
Value = bytes | dict[bytes, bytes] | list[bytes]


class Side:
    """One stored value."""

    def __init__(self, value: Value, until: int, batch: int) -> None:
        self.value = value
        self.until = until
        self.batch = batch


class GlideKeys(GlideState):
    """The answers of reads, and the effects of writes of single keys."""

    def __init__(self, reach: Callable[[str], None]) -> None:
        super().__init__(reach)
        self.side: dict[bytes, Side] = {}

    def answered(self, ask: Ask, answer: Answer) -> int:
        """Check the answer to one command, apply it; return the batch it depends on."""
        if isinstance(answer, Error) and ask.kind not in REFUSABLE:
            raise Violation("reply", f"{ask} was refused: {answer}")
        method: Callable[[Ask, Answer], int] = getattr(self, f"_{ask.kind}")
        return method(ask, answer)

    def expect(self, ask: Ask, answer: Answer, wanted: Answer) -> None:
        """Check that an answer is the expected one."""
        if answer != wanted:
            raise Violation("reply", f"{ask}: {answer!r}, not {wanted!r}"[:1500])

    def told(self, ask: Ask, answer: Answer, wanted: Answer, job: GlideJob) -> int:
        """Check that an answer is the expected one, which depends on the state of a job."""
        self.expect(ask, answer, wanted)
        return job.batch

    def same_fields(self, ask: Ask, answer: Answer, job: GlideJob) -> None:
        """Check that a job is shown as it is."""
        self._same_table(ask, answer, self.shown(job))

    def _same_table(self, ask: Ask, answer: Answer, wanted: dict[bytes, bytes]) -> None:
        if not isinstance(answer, list):
            raise Violation("reply", f"{ask}: {answer!r}")
        told: dict[object, object] = dict(zip(answer[::2], answer[1::2], strict=True))
        if told != wanted:
            pairs = {key: (told.get(key), wanted.get(key)) for key in (*told, *wanted)}  # type: ignore[call-overload]
            wrong = {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}
            raise Violation("reply", f"{ask} (found, wanted): {wrong}"[:1500])

    def _newest(self, jobs: list[GlideJob]) -> int:
        return max((job.batch for job in jobs), default=0)

    # -- fields of jobs ----------------------------------------------------------------------------

    def _hset(self, ask: Ask, answer: Answer) -> int:
        job = self.find(ask.queue, ask.id) if ask.id else None
        if job is None:
            side = self.open_side(ask.key, {})
            assert isinstance(side.value, dict)
            new = [name for name in ask.fields if name not in side.value]
            self.expect(ask, answer, len(new))
            side.value.update(ask.fields)
            side.batch = self.batch
            return self.batch
        known = self.shown(job)
        self.expect(ask, answer, sum(name not in known for name in ask.fields))
        for name, value in ask.fields.items():
            if name == b"data":
                job.data = value
            elif name == b"progress":
                job.progress = value
            elif name == b"lastActive":
                if job.held is not None:
                    job.held.beat = self.now
            else:
                job.notes[name] = value
        if list(ask.fields) == [b"lastActive"]:
            # A heartbeat is not recorded.
            return 0
        job.batch = self.batch
        return self.batch

    def _hgetall(self, ask: Ask, answer: Answer) -> int:
        job = self.find(ask.queue, ask.id) if ask.id else None
        if job is not None:
            self.same_fields(ask, answer, job)
            return job.batch
        side = self.living(ask.key)
        value = {} if side is None else side.value
        assert isinstance(value, dict)
        self._same_table(ask, answer, value)
        return 0 if side is None else side.batch

    def _hget(self, ask: Ask, answer: Answer) -> int:
        job = self.find(ask.queue, ask.id)
        if job is None:
            side = self.living(ask.key)
            value = {} if side is None else side.value
            assert isinstance(value, dict)
            self.expect(ask, answer, value.get(ask.value))
            return 0
        return self.told(ask, answer, self.shown(job).get(ask.value), job)

    def _log(self, ask: Ask, answer: Answer) -> int:
        job = self.find(ask.queue, ask.id)
        if job is None:
            if not isinstance(answer, Error):
                raise Violation("reply", f"{ask}: {answer!r}, and there is no such job")
            return 0
        job.logs.append(ask.value)
        job.batch = self.batch
        self.expect(ask, answer, len(job.logs))
        return self.batch

    def _logs(self, ask: Ask, answer: Answer) -> int:
        job = self.find(ask.queue, ask.id)
        if job is None:
            self.expect(ask, answer, [])
            return 0
        return self.told(ask, answer, list(job.logs), job)

    def _deps(self, ask: Ask, answer: Answer) -> int:
        job = self.find(ask.queue, ask.id)
        found = sorted(answer) if isinstance(answer, list) else None  # type: ignore[type-var]
        wanted = [] if job is None else sorted(job.members)
        if found != wanted:
            raise Violation("reply", f"{ask}: {answer!r}, not {wanted}")
        return 0 if job is None else job.batch

    # -- counts and lists --------------------------------------------------------------------------

    def _members(self, queue: str, part: bytes) -> list[GlideJob]:
        """Return the jobs that a key of a queue lists."""
        if part == b"stream":
            running = self.of_queue(queue, LEASED)
            taken = [job for job in running if job.held is not None and not job.held.is_list]
            return self.on_ready_list(queue, ReadyList.STREAM) + taken
        if part == b"scheduled":
            return [job for job in self.of_queue(queue, READY, DELAYED) if job.is_scheduled()]
        if part == b"completed":
            return self.of_queue(queue, DONE)
        if part == b"failed":
            return self.of_queue(queue, DEAD)
        # A job that waits behind others of its key counts in the list it will join.
        return self.on_ready_list(
            queue, ReadyList.PROMOTED if part == b"priority" else ReadyList.LIFO
        )

    def _count(self, ask: Ask, answer: Answer) -> int:
        jobs = self._members(ask.queue, ask.mode)
        self.expect(ask, answer, len(jobs))
        return self._newest(jobs)

    def _range(self, ask: Ask, answer: Answer) -> int:
        """Check a list of ids, the last of which is taken next."""
        jobs = self._members(ask.queue, ask.mode)
        jobs.sort(key=self._turn, reverse=True)
        self.expect(ask, answer, [job.id.encode() for job in jobs])
        return self._newest(jobs)

    def _turn(self, job: GlideJob) -> tuple[bool, bool, int, int]:
        if self.is_standing(job):
            return False, False, job.rank, self.place_of(job)
        return True, job.deliveries == 0, job.order, self.place_of(job)

    def _entries(self, ask: Ask, answer: Answer) -> int:
        """Check the entries of a stream."""
        jobs = sorted(self._members(ask.queue, b"stream"), key=lambda job: abs(self.place_of(job)))
        wanted: list[Answer] = [
            [job.entry().encode(), [b"jobId", job.id.encode(), b"name", job.new_job.name]]
            for job in jobs
        ]
        self.expect(ask, answer, wanted)
        return self._newest(jobs)

    def _scores(self, ask: Ask, answer: Answer) -> int:
        """Check a sorted set with its scores."""
        jobs = self._members(ask.queue, ask.mode)
        wanted = sorted((self._score(job), job.id.encode()) for job in jobs)
        flat: list[Answer] = []
        for one in answer if isinstance(answer, list) else []:
            flat += one if isinstance(one, list) else [one]
        found = [
            (float(score) if isinstance(score, bytes) else -1.0, member)
            for member, score in zip(flat[::2], flat[1::2], strict=True)
        ]
        scores = [score for score, _ in found]
        # Ended jobs are in the order in which they ended, whatever the clock said.
        is_ordered = ask.mode != b"scheduled" or scores == sorted(scores)
        if sorted(found) != wanted or not is_ordered:
            raise Violation("reply", f"{ask}: {found}, not {wanted}"[:1500])
        return self._newest(jobs)

    def _score(self, job: GlideJob) -> float:
        if job.is_open():
            return float((job.rank << PRIORITY_SHIFT) + job.due_label(self.wall_offset))
        return float(job.ended + self.wall_offset)

    def _pending(self, ask: Ask, answer: Answer) -> int:
        jobs = [job for job in self._members(ask.queue, b"stream") if job.held is not None]
        jobs.sort(key=lambda job: abs(self.place_of(job)))
        wanted: list[Answer] = []
        for job in jobs:
            held = job.held
            assert held is not None
            consumer = (held.consumer or "glide-mq").encode()
            wanted.append([job.entry().encode(), consumer, self.now - held.beat, job.deliveries])
        self.expect(ask, answer, wanted)
        return self._newest(jobs)

    def _scan(self, ask: Ask, answer: Answer) -> int:
        """Check which jobs a queue has, by a scan of all keys at once."""
        keys = answer[1] if isinstance(answer, list) and len(answer) == 2 else None
        jobs = [job for job in self.jobs.values() if job.queue == ask.queue]
        wanted = {f"glide:{{{ask.queue}}}:job:{job.id}".encode() for job in jobs}
        beside = {key for key in self.side if b":job:" in key and self.living(key) is not None}
        if not isinstance(keys, list) or not wanted <= set(keys) <= wanted | beside:
            raise Violation("reply", f"{ask}: {keys!r}, not {sorted(wanted)}"[:1500])
        return self._newest(jobs)

    # -- stored values -----------------------------------------------------------------------------

    def living(self, key: bytes) -> Side | None:
        """Return a stored value that has not expired."""
        side = self.side.get(key)
        if side is not None and side.until <= self.now:
            del self.side[key]
            return None
        return side

    def open_side(self, key: bytes, empty: Value) -> Side:
        """Return a stored value, created empty if needed."""
        side = self.living(key)
        if side is None:
            side = self.side[key] = Side(empty, NEVER, self.batch)
        return side

    def _set(self, ask: Ask, answer: Answer) -> int:
        self.expect(ask, answer, b"OK")
        until = self.now + ask.number if ask.number else NEVER
        self.side[ask.key] = Side(ask.value, until, self.batch)
        return self.batch if not 0 < ask.number <= 600_000 else 0

    def _get(self, ask: Ask, answer: Answer) -> int:
        side = self.living(ask.key)
        value = None if side is None else side.value
        assert not isinstance(value, (dict, list))
        self.expect(ask, answer, value)
        return 0 if side is None or side.until < NEVER else side.batch

    def _del(self, ask: Ask, answer: Answer) -> int:
        self.expect(ask, answer, 0 if self.living(ask.key) is None else 1)
        gone = self.side.pop(ask.key, None)
        return 0 if gone is None or gone.until < NEVER else self.batch

    def _hdel(self, ask: Ask, answer: Answer) -> int:
        side = self.living(ask.key)
        table = {} if side is None else side.value
        assert isinstance(table, dict)
        self.expect(ask, answer, 1 if table.pop(ask.value, None) is not None else 0)
        if not table:
            self.side.pop(ask.key, None)
        return self.batch if answer else 0

    def _push(self, ask: Ask, answer: Answer) -> int:
        side = self.open_side(ask.key, [])
        assert isinstance(side.value, list)
        side.value.append(ask.value)
        side.batch = self.batch
        self.expect(ask, answer, len(side.value))
        return self.batch

    def wipe(self, job: GlideJob) -> None:
        """Drop a job that a client removed, and the values clients stored for it."""
        self.remove(job)
        self.side.pop(f"glide:{{{job.queue}}}:signals:{job.id}".encode(), None)

    def _lpop(self, ask: Ask, answer: Answer) -> int:
        side = self.living(ask.key)
        items = [] if side is None else side.value
        assert isinstance(items, list)
        self.expect(ask, answer, items.pop(0) if items else None)
        if not items:
            self.side.pop(ask.key, None)
        return self.batch if answer is not None else 0

    def adopt(self, yard: Yard) -> None:
        """Continue from a yard that came back as it should."""
        super().adopt(yard)
        self.side = {}
        for name, key in yard.stored_values.keys.items():
            value: Value = key.text
            if key.kind == ValueKind.HASH:
                value = dict(key.table)
            elif key.kind == ValueKind.LIST:
                value = [key.items[at] for at in sorted(key.items)]
            elif key.kind != ValueKind.STRING:
                raise Violation("stored values", f"{name!r} is of kind {key.kind}")
            until = NEVER if key.expires_ms >= NEVER_MS else int(key.expires_ms)
            self.side[bytes(name)] = Side(value, until, 0)
