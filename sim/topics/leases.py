"""The expected answers about leases: claims, acks, nacks, extensions.

Which of the ready jobs a waiting claim gets is read from the answer, and a Violation is raised if
it may not have them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.state import Violation
from sim.topics.topics import Topics

if TYPE_CHECKING:
    from sim.topics.answer import Answer
    from sim.topics.nouns import Ask, Job, Reply
    from sim.topics.queues import Queue


class LeasedTopics(Topics):
    """The topics, and what is answered about the leases of their jobs."""

    def _same(self, ask: Ask, answer: Answer, wanted: Reply, status: int = 200) -> None:
        told = dict(answer.body)
        told.pop("performance", None)
        if answer.status != status or told != wanted:
            wrong = {key: told.get(key) for key in told if told.get(key) != wanted.get(key)}
            story = f"{ask}: {answer.status} {wrong}, not {status} {wanted}"
            raise Violation("reply", story[:1500])

    def _claim(self, ask: Ask, answer: Answer) -> int:
        queue = self._queue(ask.name)
        if ask.until:
            return self._served(queue, ask, answer)
        taken = self._take(queue, max(1, ask.number("max", 1)))
        claimed = answer.list("claimed")
        seqs = [one["$seq"] for one in claimed]
        if seqs != sorted(job.seq for job in taken):
            raise Violation("reply", f"{ask}: {seqs}, not {taken}")
        batch = self._lease(ask, queue, sorted(taken, key=lambda job: job.seq), claimed)
        wanted: Reply = {"topic": ask.name, "claimed": claimed, "count": len(taken)}
        self._same(ask, answer, {**wanted, "ready": queue.counts()[0]})
        return batch

    def _lease(self, ask: Ask, queue: Queue, jobs: list[Job], claimed: list[Reply]) -> int:
        """Lease jobs to the node that claimed them, and check its answer."""
        lease = ask.lease or max(100, ask.number("lease_ms", queue.config.lease))
        for job, told in zip(jobs, claimed, strict=True):
            self.ring_by(ask.text("node"), self.now + lease)
            job.holder = ask.text("node")
            job.deadline = self.now + lease
            job.deliveries += 1
            job.lease_id = str(told.get("lease_id"))
            job.number = self._number_of(queue, job)
            wanted: Reply = {
                "$seq": job.seq,
                "lease_id": job.lease_id,
                "deadline": job.deadline + self.wall_offset,
                "$ts": job.created + self.wall_offset,
                "deliveries": job.deliveries,
                **job.content.shown(tags=True, node=False, meta=True),
            }
            if told != wanted:
                raise Violation("reply", f"{ask}: {told}, not {wanted}"[:1500])
            if job.lease_id in self.lease_ids:
                raise Violation("lease", f"{job.lease_id} was given twice")
            self.lease_ids.add(job.lease_id)
        return max((job.batch for job in jobs), default=0)

    def _number_of(self, queue: Queue, job: Job) -> int:
        """Return the number of a job in the yard, which no answer of this door shows."""
        there = self.yard.queues.get(queue.name)
        found = None
        if there is not None and there.jobs_by_seq is not None:
            found = there.jobs_by_seq.find(job.seq)
        return job.number if found is None else int(found.id)

    def _served(self, queue: Queue, ask: Ask, answer: Answer) -> int:
        """Check the jobs given to a waiting claim: any that may be claimed."""
        queue.waiting.remove(ask)
        claimed = answer.list("claimed")
        if not claimed and ask.until > self.now:
            raise Violation("waiters", f"{ask} got nothing before its timeout")
        ready = {job.seq: job for job in queue.ready() if not queue.is_old(job, self.now)}
        jobs = []
        for one in claimed:
            job = ready.pop(int(str(one["$seq"])), None)
            if job is None:
                raise Violation("lease", f"{ask}: {one} may not be claimed")
            jobs.append(job)
        self.reach("claim served" if jobs else "claim waited in vain")
        return self._lease(ask, queue, jobs, claimed)

    def _ended(self, ask: Ask, answer: Answer, queue: Queue, word: str, jobs: list[Job]) -> int:
        skipped = answer.body.get("skipped")
        wanted: Reply = {"topic": ask.name, word: len(jobs), "skipped": skipped}
        counts = queue.counts()
        if queue.waiting:
            # Some may have been given to waiting clients.
            counts = (answer.number("ready"), answer.number("in_flight"), 0)
        self._same(ask, answer, {**wanted, "ready": counts[0], "in_flight": counts[1]})
        return self.batch if jobs else 0

    def _ack(self, ask: Ask, answer: Answer) -> int:
        queue = self._queue(ask.name)
        jobs = self._held(ask, answer, queue)
        for job in jobs:
            del queue.jobs[job.seq]
        return self._ended(ask, answer, queue, "acked", jobs)

    def _nack(self, ask: Ask, answer: Answer) -> int:
        queue = self._queue(ask.name)
        jobs = self._held(ask, answer, queue)
        for job in jobs:
            queue.free(job, ask.number("delay_ms", 0), self.now)
            job.error = ask.text("error") or job.error
        return self._ended(ask, answer, queue, "nacked", jobs)

    def _held(self, ask: Ask, answer: Answer, queue: Queue) -> list[Job]:
        jobs, skipped = queue.held(ask, self.now)
        if answer.body.get("skipped") != skipped:
            raise Violation("reply", f"{ask}: {answer.body}, not {skipped} skipped")
        return jobs

    def _extend(self, ask: Ask, answer: Answer) -> int:
        queue = self._queue(ask.name)
        jobs = self._held(ask, answer, queue)
        for job in jobs:
            job.deadline = self.now + max(100, ask.number("lease_ms", 0))
            self.ring_by(job.holder, job.deadline)
        deadlines = {str(job.seq): job.deadline + self.wall_offset for job in jobs}
        skipped = answer.body.get("skipped")
        wanted: Reply = {"topic": ask.name, "extended": len(jobs), "skipped": skipped}
        self._same(ask, answer, {**wanted, "deadlines": deadlines})
        return 0
