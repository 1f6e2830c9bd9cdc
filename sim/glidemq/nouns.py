"""The nouns of the glide-mq model: jobs, the workers that run them, and commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jobyard.model.job import BLOCKED, DEAD, DELAYED, DONE, LEASED, READY
from jobyard.model.throttle.ready_lists import ReadyList

if TYPE_CHECKING:
    from jobyard.model.job import Job

NEVER: Final = 1 << 61
STAMP_SHIFT: Final = 20
_STATES: Final = {LEASED: b"active", DELAYED: b"delayed", DONE: b"completed", DEAD: b"failed"}


class NewGlideJob:
    """A job as its client describes it."""

    def __init__(self, name: bytes, data: bytes, ts: int) -> None:
        self.name = name
        self.data = data
        self.opts = b"{}"
        self.ts = ts
        self.delay = 0
        self.priority = 0
        self.attempts = 0
        self.ordering = ""
        self.concurrency = 0
        self.cost = 0
        self.ttl = 0
        self.custom = ""
        self.is_lifo = False

    def __repr__(self) -> str:
        told = {key: value for key, value in vars(self).items() if value and key != "opts"}
        return f"{told}"[:300]


class Ask:
    """One command in progress: its words, and what they mean to the model."""

    def __init__(self, kind: str, queue: str = "", job_id: str = "") -> None:
        self.kind = kind
        self.words: list[bytes] = []
        self.queue = queue
        self.id = job_id
        self.entry = ""
        self.consumer = ""
        self.number = 0
        self.count = 0
        self.value = b""
        self.mode = b""
        self.is_set = False
        self.new_jobs: list[tuple[str, NewGlideJob]] = []
        self.key = b""
        self.fields: dict[bytes, bytes] = {}
        self.inner: list[Ask] = []
        # How long it waits once it has arrived, and until when.
        self.block = 0
        self.until = NEVER

    def __repr__(self) -> str:
        short = [word[:40] for word in self.words]
        return b" ".join(short).decode("latin-1")[:400]


class Held:
    """The worker that runs a job, taken from the stream or from a list."""

    def __init__(self, consumer: str, now: int, *, is_list: bool) -> None:
        self.consumer = consumer
        self.since = now
        self.beat = now
        self.is_list = is_list


class GlideJob:
    """One job as its clients see it."""

    def __init__(self, number: int, seq: int, queue: str, new_job: NewGlideJob, now: int) -> None:
        self.number = number
        self.seq = seq
        self.id = new_job.custom or str(seq)
        self.queue = queue
        self.new_job = new_job
        self.data = new_job.data
        self.rank = new_job.priority
        self.delay = new_job.delay
        self.created = now
        self.due = now + new_job.delay
        self.order = 0
        self.state = DELAYED if new_job.delay > 0 else READY
        self.ready_list = self.first_list() if self.state == READY else ReadyList.STREAM
        # Its place in line; None if it has a new one that has not been read yet.
        self.place: int | None = None
        self.sign = -1 if new_job.is_lifo else 1
        self.attempts = 0
        self.deliveries = 0
        self.stalls = 0
        self.held: Held | None = None
        self.is_revoked = False
        self.progress = b""
        self.notes: dict[bytes, bytes] = {}
        self.logs: list[bytes] = []
        self.result = b""
        # Why it is dead, and the error of the last failed run.
        self.error = b""
        self.failure: bytes | None = None
        self.failure_began = 0
        # Since when it is in its ready list.
        self.stood = now
        self.ended = 0
        self.ending = 0
        self.started = 0
        # For a parent: its children by label, with their numbers, and whether each is done.
        self.members: dict[bytes, tuple[int, bool]] = {}
        self.parent_id = b""
        self.parent_queue = b""
        # The batch that must be safe before any client sees its state.
        self.batch = 0

    def __repr__(self) -> str:
        return (
            f"job {self.number} ({self.id}) of {self.queue}, state {self.state}"
            f", list {self.ready_list}, {self.attempts} attempts, {self.deliveries} runs"
            f", {self.stalls} stalls, {self.new_job}"
        )

    def first_list(self) -> int:
        """Return its ready list if it is ready at once."""
        if self.rank > 0:
            return ReadyList.STAGED
        return ReadyList.LIFO if self.new_job.is_lifo else ReadyList.STREAM

    def is_open(self) -> bool:
        """Return whether it has not ended."""
        return self.state not in {DEAD, DONE}

    def is_scheduled(self) -> bool:
        """Return whether it waits to be promoted."""
        return self.state == DELAYED or (
            self.state == READY and self.ready_list == ReadyList.STAGED
        )

    def has_started(self) -> bool:
        """Return whether it has a slot among the running jobs of its key."""
        return self.deliveries > 0 and self.is_open()

    def is_old(self, now: int) -> bool:
        """Return whether it has expired."""
        return 0 < self.new_job.ttl <= now - self.created

    def open_members(self) -> int:
        """Return how many children it waits for."""
        return sum(not is_done for _, is_done in self.members.values())

    def due_label(self, wall_offset: int) -> int:
        """Return when it is due by the clock of its client, 0 if it has no delay."""
        if self.state == READY and self.delay <= 0 and self.deliveries == 0:
            return 0
        if self.deliveries == 0 and self.due == self.created + self.delay:
            return self.new_job.ts + self.delay
        return self.due + wall_offset

    def entry(self) -> str:
        """Return the id of its entry in the stream."""
        assert self.place is not None
        stamp = abs(self.place)
        return f"{stamp >> STAMP_SHIFT}-{stamp & ((1 << STAMP_SHIFT) - 1)}"

    def word(self) -> bytes:
        """Return its state in the words that clients see."""
        if self.state == READY:
            if self.ready_list != ReadyList.STAGED:
                return b"waiting"
            is_new = self.delay == 0 and self.deliveries == 0
            return b"prioritized" if self.rank > 0 and is_new else b"delayed"
        return b"waiting-children" if self.state == BLOCKED else _STATES[self.state]

    def is_delay_apart(self) -> bool:
        """Return whether the delay that clients see differs from the one it has."""
        return self.failure is not None or b"delay" in self.notes

    def note_delay(self, delay: int) -> None:
        """Store a delay to be shown, whatever the actual one is."""
        self.notes[b"delay"] = b"%d" % delay

    def shown(self, wall_offset: int) -> dict[bytes, bytes]:
        """Return it as the hash that clients read."""
        new_job = self.new_job
        fields = {
            b"id": self.id.encode(),
            b"name": new_job.name,
            b"data": self.data,
            b"opts": new_job.opts,
            b"timestamp": b"%d" % new_job.ts,
            b"attemptsMade": b"%d" % self.attempts,
            b"delay": b"0" if self.failure is not None else b"%d" % max(self.delay, 0),
            b"priority": b"%d" % self.rank,
            b"maxAttempts": b"%d" % new_job.attempts,
            b"state": self.word(),
        }
        if new_job.ordering:
            fields[b"groupKey"] = new_job.ordering.encode()
            fields[b"orderingSeq"] = b"%d" % self.order
            if new_job.concurrency <= 1:
                fields[b"orderingKey"] = new_job.ordering.encode()
        if new_job.is_lifo:
            fields[b"lifo"] = b"1"
        done = [label for label, (_, is_done) in self.members.items() if is_done]
        if done:
            fields[b"depsCompleted"] = b"%d" % len(done)
            fields |= {b"depdone:" + label: b"1" for label in done}
        for name, value in (
            (b"parentId", self.parent_id),
            (b"parentQueue", self.parent_queue),
            (b"progress", self.progress),
            (b"revoked", b"1" if self.is_revoked else b""),
            (b"stalledCount", b"%d" % self.stalls if self.stalls else b""),
            (b"expireAt", b"%d" % (new_job.ts + new_job.ttl) if new_job.ttl else b""),
            (b"cost", b"%d" % new_job.cost if new_job.cost else b""),
        ):
            if value:
                fields[name] = value
        return fields | self._course(wall_offset) | self.notes

    def _course(self, wall_offset: int) -> dict[bytes, bytes]:
        """Return the fields about its runs and its end."""
        fields: dict[bytes, bytes] = {}
        if self.state == DONE:
            fields[b"returnvalue"] = self.result or b"null"
        if self.state == DEAD:
            fields[b"failedReason"] = self.error
        elif self.failure is not None and self.attempts > 0:
            fields[b"failedReason"] = self.failure
        began = self.failure_began if self.failure is not None else 0
        if not self.is_open():
            fields[b"finishedOn"] = b"%d" % (self.ended + wall_offset)
            began = self.started or began
        if began:
            fields[b"processedOn"] = b"%d" % (began + wall_offset)
            fields[b"lastActive"] = fields[b"processedOn"]
        if self.held is not None:
            fields[b"processedOn"] = b"%d" % (self.held.since + wall_offset)
            fields[b"lastActive"] = b"%d" % (self.held.beat + wall_offset)
        return fields

    def recall(self, found: Job, body: bytes | None, now: int) -> None:
        """Continue from what a restart brought back, which was compared before."""
        self.state = int(found.state)
        self.ready_list = int(found.ready_list)
        self.rank = int(found.rank)
        self.delay = int(found.delay_ms)
        self.due = int(found.due_ms)
        self.created = int(found.created_ms)
        self.attempts = int(found.attempts)
        self.deliveries = int(found.deliveries)
        self.stalls = int(found.stalls())
        self.place = int(found.stamp)
        self.stood = now
        self.held = None
        self.data = self.data if body is None else body
        self._recall_rare(found)

    def _recall_rare(self, found: Job) -> None:
        details = found.details
        self.failure, self.error, self.result, self.progress = None, b"", b"", b""
        self.notes, self.logs, self.is_revoked = {}, [], False
        self.members = {}
        if details is None:
            return
        if details.failures:
            self.failure = details.failures[-1].error.encode()
            self.failure_began = int(details.failures[-1].started_ms)
        end = details.outcome
        if end is not None:
            self.ended, self.ending = int(end.ended_ms), int(end.key)
            self.started = int(end.started_ms)
            self.error = end.error.encode()
        self.progress = details.progress.encode()
        self.logs = [line.text.encode() for line in details.logs or ()]
        for one in details.members or ():
            self.members[one.label.encode()] = (int(one.child_id), int(one.state) != 0)
        part = details.glide
        if part is not None:
            self.notes = dict(part.overlay or {})
            self.is_revoked = bool(part.flags & 1)
            self.order = int(part.order)
