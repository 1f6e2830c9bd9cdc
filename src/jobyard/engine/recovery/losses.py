"""What is lost of jobs and logs that are there all the same, as a check and a repair tell it.

Of each kind some lines are told one by one, and the rest as a sum.
"""

from typing import Final

from jobyard.engine.recovery.gaps import Gaps
from jobyard.engine.state.yard import Yard
from jobyard.engine.topics.routers import find_source
from jobyard.journal.repair.lost_segment import Hole
from jobyard.model.entry import ROUTER
from jobyard.model.limits import INLINE_BODY_MAX
from jobyard.model.topic.router import Router, decode_router

# How many lines are told of one kind.
LINES_SHOWN: Final = 20
UNKNOWN_JOBS: Final = "how many jobs that was is not known"


def lost_bodies(yard: Yard) -> list[str]:
    """Return which jobs have a damaged body, which nothing brings back.

    Only long ones can be: shorter ones lie among the records, which are refused as a whole.
    """
    lines = [
        f"the body of job {job.id} of queue {job.queue.name} is damaged for good "
        f"and is not delivered: delete the job, or give it new data"
        for job in yard.jobs.all()
        if job.size > INLINE_BODY_MAX and yard.bodies.fetch(job) is None
    ]
    return first_of(lines, "jobs with a damaged body")


def hole_text(yard: Yard, hole: Hole, known: set[int]) -> str:
    """Return how much is lost at most; `known` are ids of jobs of which it is known what became."""
    batches = f"batches {hole.first_batch} to {hole.last_batch}"
    if hole.first_batch == hole.last_batch:
        batches = f"batch {hole.first_batch}"
    text = f"what it held of {batches} is lost"
    if hole.records_max >= 0:
        text += f", up to {hole.records_max} records"
    if hole.last_id == 0 or not hole.is_hot:
        is_bound = hole.records_max >= 0
        return f"{text}, at most as many jobs" if is_bound else f"{text}; {UNKNOWN_JOBS}"
    first, last = int(hole.first_id), int(hole.last_id)
    there = {number for number in known if first <= number < last}
    there |= {int(job.id) for job in yard.jobs.all() if first <= job.id < last}
    jobs = max(0, last - first - len(there))
    if hole.records_max >= 0:
        jobs = min(jobs, int(hole.records_max))
    return f"{text}, up to {_jobs(jobs)} put there"


def log_losses(gaps: Gaps) -> list[str]:
    """Return what logs have lost of all that describes them."""
    lines = [
        f"named {log.name}: the old name of this log is lost; it has {log.count} records, "
        f"maybe some that were deleted, and default settings"
        for log in gaps.logs
    ]
    lines += [
        f"log {log.name} has default settings now: its own are lost"
        for log in gaps.unset_logs
        if log not in gaps.logs
    ]
    lines += [
        f"no log is left under the name {name}: "
        f"its records are lost, or in one that has lost its name"
        for name in gaps.empty_names
    ]
    return first_of(lines, "lines about logs")


def default_options(yard: Yard, gaps: Gaps) -> list[str]:
    """Return how many jobs of each queue have lost their options."""
    numbers = {int(policy.number) for policy in gaps.policies}
    counts: dict[str, int] = {}
    if numbers:
        for job in yard.jobs.all():
            if int(job.policy.number) in numbers:
                counts[job.queue.name] = counts.get(job.queue.name, 0) + 1
    lines = [
        f"{_jobs(count)} of queue {name} {'has' if count == 1 else 'have'} default options now: "
        f"{'its own' if count == 1 else 'their own'} are lost"
        for name, count in sorted(counts.items(), key=_most_first)
    ]
    more = len(lines) - LINES_SHOWN
    if more > 0:
        rest = sum(counts.values()) - sum(sorted(counts.values())[-LINES_SHOWN:])
        lines = [*lines[:LINES_SHOWN], f"and so have {_jobs(rest)} of {more} more queues"]
    return lines


def _most_first(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]


def _jobs(count: int) -> str:
    return f"{count} job" if count == 1 else f"{count} jobs"


def stopped_routers(yard: Yard, gaps: Gaps) -> list[str]:
    """Return which routers pass nothing on because a topic of theirs is lost."""
    lines: list[str] = []
    if gaps.fills_logs:
        for entry in yard.journal.entries.values():
            if entry.kind == ROUTER and not entry.is_gone:
                router = decode_router(entry.value)
                missing = _missing_topic(yard, router)
                if missing:
                    lines.append(f"router {router.name} stands still: there is no topic {missing}")
    return first_of(lines, "routers")


def _missing_topic(yard: Yard, router: Router) -> str:
    if find_source(yard, router.source) is None:
        return router.source
    if router.create_dest or find_source(yard, router.dest) is not None:
        return ""
    return router.dest


def first_of(lines: list[str], what: str) -> list[str]:
    """Return the first lines, and how many more there are of what."""
    more = len(lines) - LINES_SHOWN
    return [*lines[:LINES_SHOWN], f"and {more} more {what}"] if more > 0 else lines
