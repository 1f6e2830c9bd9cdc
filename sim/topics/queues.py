"""The model of a lease queue: jobs in a dict by seq, and the rules as short as possible."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final

from sim.topics.keys import RecordKeys
from sim.topics.logs import is_own, reason_of, refuse_cursor, tombstone
from sim.topics.nouns import Config, Job, Page, Query, Refusal, Write, has_tag

if TYPE_CHECKING:
    from sim.topics.nouns import Ask, Content

AGAIN_MS: Final = 1000


class Queue:
    """One queue."""

    def __init__(self, name: str, config: Config, now: int) -> None:
        self.name = name
        self.config = config
        self.since = now
        # Until when jobs behind one made before the clock was set back may be late.
        self.held_up = 0
        self.jobs: dict[int, Job] = {}
        self.next_seq = 1
        self.cap_floor = 1
        self.ttl_floor = 1
        self.dead_lettered = 0
        self.writes: dict[str, Write] = {}
        self.record_keys = RecordKeys()
        # Of the cursor of its reader; it never holds jobs.
        self.cursor: tuple[int, bool] | None = None
        self.burials = 0
        # Nodes that wait for a job to claim.
        self.waiting: list[Ask] = []

    @property
    def head(self) -> int:
        """Return the newest seq assigned."""
        return self.next_seq - 1

    @property
    def earliest(self) -> int:
        """Return the seq of the first job, or of the next one if there is none."""
        return next(iter(self.jobs), self.next_seq)

    @property
    def bytes(self) -> int:
        """Return the size of all jobs."""
        return sum(job.size for job in self.jobs.values())

    def counts(self) -> tuple[int, int, int]:
        """Return how many are ready, in flight and delayed."""
        held = sum(1 for job in self.jobs.values() if job.holder)
        delayed = sum(1 for job in self.jobs.values() if job.is_delayed)
        return len(self.jobs) - held - delayed - len(self.dead()), held, delayed

    def dead(self) -> list[Job]:
        """Return the dead jobs, the first that died first."""
        return sorted((job for job in self.jobs.values() if job.buried), key=attrgetter("buried"))

    def bury(self, job: Job, now: int) -> None:
        """Make a held job dead."""
        self.free(job, 0, now)
        self.burials += 1
        job.buried = self.burials

    def check_cursor(self, seq: int, *, is_forced: bool) -> None:
        """Refuse a cursor that cannot be set."""
        refuse_cursor(self.cursor, seq, self.head, is_forced=is_forced)

    def put_cursor(self, seq: int, *, holds: bool, now: int) -> None:
        """Set the cursor of its reader."""
        assert now > 0
        assert not holds
        self.cursor = (seq, holds)

    def is_old(self, job: Job, now: int) -> bool:
        """Return whether a job has expired."""
        return 0 < self.config.ttl <= now - job.created

    def forget_old(self, there: set[int], now: int) -> None:
        """Drop expired jobs, as far as the yard has."""
        for job in list(self.jobs.values()):
            if self.is_old(job, now) and not job.holder and job.seq not in there:
                self.outlived(job)

    def outlived(self, job: Job) -> None:
        """Drop an expired job."""
        del self.jobs[job.seq]
        self.ttl_floor = max(self.ttl_floor, job.seq + 1)

    def late_job(self, now: int) -> Job | None:
        """Return a job that should have expired."""
        ttl = self.config.ttl
        for job in self.jobs.values():
            if not self.is_old(job, now):
                # Made before the clock was set back: it blocks those behind it, and once it is
                # gone these are checked within their time to live.
                if job.created > now:
                    self.held_up = now + ttl
                break
            over = max(job.created + ttl, job.freed, self.since, self.held_up)
            if not job.holder and now > over + AGAIN_MS:
                return job
        return None

    # -- writing ---------------------------------------------------------------------------------

    def known(self, key: str, now: int) -> Write | None:
        """Return the earlier write with a key that is still valid."""
        for name, write in list(self.writes.items()):
            if write.time > now:
                break
            del self.writes[name]
        known = self.writes.get(key)
        return known if known is not None and known.time > now else None

    def evict_for(self, count: int, size: int) -> None:
        """Drop the oldest jobs to make room for this many more, except those that run."""
        config = self.config
        too_many = len(self.jobs) + count - config.cap_records if config.cap_records else 0
        too_long = self.bytes + size - config.cap_bytes if config.cap_bytes else 0
        if too_many <= 0 and too_long <= 0:
            return
        if config.is_too_large(count, size):
            raise Refusal(400, "record_too_large")
        if config.is_rejecting:
            raise Refusal(422, "topic_full")
        for job in list(self.jobs.values()):
            if job.holder:
                continue
            del self.jobs[job.seq]
            self.cap_floor = max(self.cap_floor, job.seq + 1)
            too_many -= 1
            too_long -= job.size
            if too_many <= 0 and too_long <= 0:
                break

    def produce(
        self, contents: list[Content], key: str, now: int, batch: int, *, has_room: bool = False
    ) -> int:
        """Add jobs; return the first seq. If there `has_room`, nothing is evicted."""
        size = sum(one.size(is_job=True) for one in contents)
        if not has_room:
            self.evict_for(len(contents), size)
        first = self.next_seq
        for content in contents:
            self.jobs[self.next_seq] = Job(self.next_seq, content, now, batch)
            self.next_seq += 1
        if self.config.is_exceeded_by(len(contents), size):
            self.evict_for(0, 0)
        if key and self.config.window:
            self.writes.pop(key, None)
            self.writes[key] = Write(first, self.head, now + self.config.window, batch)
        return first

    def configure(self, config: Config, now: int) -> None:
        """Replace the configuration."""
        self.record_keys.configure(self.config, config, now)
        self.config = config
        self.since = now
        if not config.is_rejecting:
            self.evict_for(0, 0)

    # -- leases ----------------------------------------------------------------------------------

    def ready(self) -> list[Job]:
        """Return the jobs that may be claimed, in the order in which they are claimed."""
        jobs = [
            job for job in self.jobs.values() if not (job.holder or job.is_delayed or job.buried)
        ]
        return sorted(jobs, key=lambda job: (-job.content.priority, job.seq))

    def held(self, ask: Ask, now: int) -> tuple[list[Job], list[int]]:
        """Return the jobs that a node holds by the leases it names, and the other seqs."""
        node = ask.text("node")
        names = ask.fields.get("lease_ids")
        found: list[Job] = []
        skipped: list[int] = []
        for at, seq in enumerate(ask.numbers("seqs")):
            job = self.jobs.get(seq)
            is_held = job is not None and job.holder == node and job.deadline > now
            name = names[at] if isinstance(names, list) else ""
            if job is None or not is_held or job in found or name not in {"", job.lease_id}:
                skipped.append(seq)
            else:
                found.append(job)
        return found, skipped

    def free(self, job: Job, delay: int, now: int) -> None:
        """End the lease of a job that is given back."""
        job.holder = job.lease_id = ""
        job.due = now + delay
        job.is_delayed = delay > 0
        job.freed = now

    def end_leases(self, node: str, now: int) -> None:
        """End the expired leases of a node."""
        for job in self.jobs.values():
            if job.holder == node and job.deadline <= now:
                self.free(job, 0, now)

    def end_delays(self, now: int) -> None:
        """End the delays that are over."""
        for job in self.jobs.values():
            if job.is_delayed and job.due <= now:
                job.is_delayed = False

    # -- reading ---------------------------------------------------------------------------------

    def read(self, query: Query, wall_offset: int) -> Page:
        """Return what a reader should see."""
        after = query.after
        floor = max(self.cap_floor, self.ttl_floor)
        stone = None
        if after > self.head:
            stone = tombstone(1, self.earliest - 1, "recreated", self.earliest, self.head)
            after = self.earliest - 1
        elif after + 1 < floor:
            reason = reason_of(self.cap_floor, self.ttl_floor, after)
            stone = tombstone(after + 1, floor - 1, reason, self.earliest, self.head)
        wanted = []
        for job in self.jobs.values():
            if job.seq > after and not is_own(job.content, query, self.config):
                told = job.content.shown(tags=query.tags, node=True, meta=query.meta)
                ts = job.created + wall_offset
                wanted.append((job.seq, {"$seq": job.seq, "$ts": ts, **told}, job.batch))
        return Page(wanted, after, self.head, self.earliest, stone)

    def erase(self, before: int, match: str | None) -> int:
        """Remove jobs, even held ones; return how many."""
        bound = self.next_seq if before < 0 else before
        gone = [
            job.seq
            for job in self.jobs.values()
            if job.seq < bound and (match is None or has_tag(job.content.tag, match))
        ]
        for seq in gone:
            del self.jobs[seq]
        return len(gone)
