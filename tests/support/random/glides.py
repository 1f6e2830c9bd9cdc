"""Every verb of the engine with jobs and workers of glide-mq among the others, drawn from a seed.

Adds to `RandomVerbs` what only clients of that door do. Nothing here knows the expected result.
"""

from typing import Final

from jobyard.engine.glidemq import finish as glide_finish
from jobyard.engine.glidemq import flows as glide_flows
from jobyard.engine.glidemq import move as glide_move
from jobyard.engine.glidemq import take as glide_take
from jobyard.engine.glidemq.add import GlideJobSpec, add, entry_of
from jobyard.engine.glidemq.finish import Keep
from jobyard.engine.glidemq.flows import Child, FlowLink
from jobyard.errors import CostExceeds, Duplicate, NotFound, NotHeld
from jobyard.model.family import GLIDE
from jobyard.model.job import BLOCKED, DEAD, DELAYED, DONE, LEASED, READY, Job
from jobyard.model.lease import Proof
from jobyard.model.throttle.ready_lists import ReadyList
from tests.support.engine import many_glides
from tests.support.random.verbs import QUEUES, RandomVerbs
from tests.support.site.yard import OpenYard

REFUSALS: Final = (CostExceeds, Duplicate, NotFound, NotHeld)
KEEPS: Final = (Keep(), Keep(), Keep(is_kept=False), Keep(count=2), Keep(age_ms=500))


class RandomGlides(RandomVerbs):
    """Clients of glide-mq besides all others."""

    def __init__(self, site: OpenYard, seed: int) -> None:
        super().__init__(site, seed)
        self._deeds += [
            *[self.add] * 8,
            *[self.read] * 6,
            *[self.finish] * 6,
            *[self.promote] * 2,
            *[self.alter] * 3,
            self.add_flow,
            self.tidy,
            self.rouse,
        ]

    def step(self) -> None:
        """Let some time pass, then do one thing, unless it is refused."""
        try:
            super().step()
        except REFUSALS:
            return

    def add(self) -> None:
        """Add a job, maybe as the child of one that runs."""
        spec = self._adding()
        running = self._jobs(LEASED)
        if running and self.random.random() < 0.1:
            spec.parent = self.random.choice(running)
            spec.label_head = "p"
        add(self.site.yard, self.site.queue(self.random.choice(QUEUES)), spec, self.site.now_ms)

    def _adding(self) -> GlideJobSpec:
        draw = self.random
        spec = GlideJobSpec(draw.choice(("mail", "post")), self._body())
        spec.opts = draw.choice((b"{}", b'{"a":1}', b'{"jobId":"x"}'))
        spec.ts = draw.randrange(10)
        spec.delay_ms = draw.choice((0, 0, 0, 50, 2000))
        spec.priority = draw.choice((0, 0, 1, 2))
        spec.max_attempts = draw.randrange(4)
        spec.ttl_ms = draw.choice((0, 0, 0, 1500))
        spec.lock_ms = draw.choice((0, 2000))
        spec.is_lifo = draw.random() < 0.2
        spec.custom_id = draw.choice(("", "", "", "c1", "c2", str(draw.randrange(1, 200))))
        if draw.random() < 0.4:
            spec.ordering = draw.choice(("k1", "k2"))
            spec.concurrency = draw.choice((0, 1, 3))
            if draw.random() < 0.3:
                spec.rate_max, spec.rate_ms = draw.randrange(1, 3), 500
            if draw.random() < 0.3:
                spec.tb_capacity, spec.tb_refill = 2000, draw.choice((0, 700))
                spec.cost = draw.choice((0, 500, 2000, 9000))
        return spec

    def add_flow(self) -> None:
        """Add a parent, its children, and maybe a link to an existing job."""
        draw = self.random
        site = self.site
        children = [
            Child(site.queue(draw.choice(QUEUES)), self._adding(), "p")
            for _ in range(draw.randrange(3))
        ]
        ties = [FlowLink("q:9", None)] if draw.random() < 0.2 else []
        known = self._jobs(READY, DELAYED, LEASED, DONE)
        if known and draw.random() < 0.3:
            job = draw.choice(known)
            ties.append(FlowLink(f"r:{job.id}", job))
        queue = site.queue(draw.choice(QUEUES))
        glide_flows.add_flow(site.yard, queue, self._adding(), children, ties, site.now_ms)

    def read(self) -> None:
        """Take jobs from the stream or from a list."""
        draw = self.random
        yard = self.site.yard
        queue = self.site.queue(draw.choice(QUEUES))
        count = draw.randrange(1, 4)
        if draw.random() < 0.7:
            glide_take.take_stream(yard, queue, draw.choice("vw"), count, self.site.now_ms)
        else:
            ready_list = draw.choice((ReadyList.PROMOTED, ReadyList.LIFO))
            glide_take.take_list(yard, queue, ready_list, count, self.site.now_ms)

    def finish(self) -> None:
        """End a run, in any way a worker may; or reclaim silent jobs."""
        draw = self.random
        yard = self.site.yard
        now_ms = self.site.now_ms
        held = [
            job
            for job in self._jobs(LEASED)
            if job.lease is not None and job.lease.terms.door == GLIDE
        ]
        if not held or draw.random() < 0.1:
            queue = self.site.queue(draw.choice(QUEUES))
            is_list = draw.random() < 0.5
            glide_finish.reclaim(yard, queue, 1000, 1, now_ms, is_list=is_list)
            return
        job = draw.choice(held)
        assert job.lease is not None
        entry = "" if job.lease.terms.proof == Proof.LISTED else entry_of(job)
        way = draw.randrange(8)
        if way < 3:
            glide_finish.complete(yard, job, entry, b"[1]", draw.choice(KEEPS), now_ms)
        elif way < 5:
            wait_ms = draw.choice((0, 0, 100))
            glide_finish.fail(yard, job, entry, "boom", 3, wait_ms, draw.choice(KEEPS), now_ms)
        elif way == 5:
            glide_finish.defer(yard, job, entry, draw.choice((0, 100)), now_ms)
        elif way == 6:
            if not glide_flows.park(yard, job, entry, now_ms):
                until_ms = draw.choice((0, now_ms + 300))
                glide_flows.suspend(yard, job, entry, until_ms, now_ms)
        else:
            glide_move.hold_back(yard, job, entry, now_ms + 200, now_ms)

    def promote(self) -> None:
        """Promote some jobs of a queue."""
        queue = self.site.queue(self.random.choice(QUEUES))
        count = self.random.randrange(1, 6)
        glide_move.promote_due(self.site.yard, queue, self.site.now_ms, count)

    def alter(self) -> None:
        """Change a job that need not be running."""
        draw = self.random
        yard = self.site.yard
        now_ms = self.site.now_ms
        jobs = self._own()
        if not jobs:
            return
        job = draw.choice(jobs)
        way = draw.randrange(7)
        if way == 0:
            glide_move.promote_job(yard, job, now_ms)
        elif way == 1:
            glide_move.set_priority(yard, job, draw.randrange(3), now_ms)
        elif way == 2:
            glide_move.set_delay(yard, job, draw.choice((0, 70)), now_ms)
        elif way == 3:
            glide_move.revoke(yard, job, now_ms)
        elif way == 4:
            value = draw.choice((b"1", b"", None))
            glide_move.set_fields(yard, job, {draw.choice((b"x", b"y")): value})
        elif way == 5:
            part = glide_move.copy_part(job)
            part.parent_ids = draw.choice(("", '["1"]'))
            glide_move.set_labels(yard, job, part)
        else:
            glide_move.remove(yard, job, now_ms)

    def tidy(self) -> None:
        """Clean, drain or retry many jobs of a queue."""
        draw = self.random
        yard = self.site.yard
        queue = self.site.queue(draw.choice(QUEUES))
        way = draw.randrange(4)
        if way == 0:
            line = draw.choice((queue.done, queue.dead))
            now_ms = self.site.now_ms
            many_glides.clean(yard, queue, line, now_ms - 500, draw.randrange(3), now_ms)
        elif way == 1 and draw.random() < 0.3:
            many_glides.drain(yard, queue, self.site.now_ms, with_delayed=draw.random() < 0.5)
        else:
            many_glides.retry_jobs(yard, queue, draw.randrange(3), self.site.now_ms)

    def rouse(self) -> None:
        """Signal a waiting job, report a child to its parent, or give up on signals."""
        draw = self.random
        yard = self.site.yard
        blocked = self._jobs(BLOCKED)
        if not blocked:
            return
        job = draw.choice(blocked)
        way = draw.randrange(4)
        if way == 0:
            glide_flows.sweep(yard, job.queue, self.site.now_ms)
        elif way == 1 and job.details is not None and job.details.members:
            label = draw.choice(job.details.members).label
            glide_flows.complete_child(yard, job, label, b"2", self.site.now_ms)
        elif way == 2:
            child = draw.choice(self._jobs(READY, DELAYED, LEASED, BLOCKED, DEAD, DONE))
            if child is not job:
                glide_flows.link_parent(yard, job, child, f"s:{child.id}", self.site.now_ms)
        else:
            glide_flows.signal(yard, job, self.site.now_ms)

    def _own(self) -> list[Job]:
        jobs = self._jobs(READY, DELAYED, LEASED, BLOCKED, DEAD, DONE)
        return [job for job in jobs if job.family == GLIDE]
