"""The lines in which `jobyard check` and `jobyard repair` report what is lost.

Each kind of loss is reported with a bounded number of lines; the last one sums up the rest.
"""

from typing import Final

from jobyard.engine.recovery.gaps import Gaps
from jobyard.engine.state.yard import Yard
from jobyard.engine.topics.routers import find_source
from jobyard.journal.repair.lost_segment import LostRange
from jobyard.model.entry import EntryKind
from jobyard.model.limits import INLINE_BODY_MAX
from jobyard.model.topic.router import Router, decode_router

# How many lines are shown of one kind.
LINES_SHOWN: Final = 20
UNKNOWN_JOBS: Final = "the number of lost jobs is unknown"


def lost_bodies(yard: Yard) -> list[str]:
    """Return which jobs have a body that is damaged and cannot be recovered.

    Only long bodies can be: a short one is part of its record, and damage there refuses the start.
    """
    lines = [
        f"the body of job {job.id} of queue {job.queue.name} is damaged beyond repair, "
        f"so the job is not delivered: delete the job, or give it new data"
        for job in yard.jobs.all()
        if job.size > INLINE_BODY_MAX and yard.bodies.fetch(job) is None
    ]
    return first_of(lines, "jobs with a damaged body")


def hole_text(yard: Yard, lost_range: LostRange, known: set[int]) -> str:
    """Return how much is lost at most; `known` are ids whose put or end was found."""
    batches = f"batches {lost_range.first_batch} to {lost_range.last_batch}"
    if lost_range.first_batch == lost_range.last_batch:
        batches = f"batch {lost_range.first_batch}"
    text = f"its part of {batches} is lost"
    if lost_range.records_max >= 0:
        text += f", at most {lost_range.records_max} records"
    if lost_range.last_id == 0 or not lost_range.is_hot:
        is_bound = lost_range.records_max >= 0
        return f"{text} and as many jobs" if is_bound else f"{text}; {UNKNOWN_JOBS}"
    first, last = int(lost_range.first_id), int(lost_range.last_id)
    there = {number for number in known if first <= number < last}
    there |= {int(job.id) for job in yard.jobs.all() if first <= job.id < last}
    jobs = max(0, last - first - len(there))
    if lost_range.records_max >= 0:
        jobs = min(jobs, int(lost_range.records_max))
    return f"{text}, at most {_jobs(jobs)}"


def log_losses(gaps: Gaps) -> list[str]:
    """Return which logs lost their name, their settings or their records."""
    lines = [
        f"renamed a log to {log.name}: its own name is lost; it has {log.count} records, "
        f"possibly including deleted ones, and default settings"
        for log in gaps.logs
    ]
    lines += [
        f"log {log.name} has default settings now: its own are lost"
        for log in gaps.unset_logs
        if log not in gaps.logs
    ]
    lines += [
        f"log {name} no longer exists: "
        f"its records are lost, or are in a log that was renamed to lost-N"
        for name in gaps.empty_names
    ]
    return first_of(lines, "logs with losses")


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
        lines = [*lines[:LINES_SHOWN], f"and so do {_jobs(rest)} of {more} more queues"]
    return lines


def _most_first(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]


def _jobs(count: int) -> str:
    return f"{count} job" if count == 1 else f"{count} jobs"


def stopped_routers(yard: Yard, gaps: Gaps) -> list[str]:
    """Return which routers are stopped because their source or destination is lost."""
    lines: list[str] = []
    if gaps.fills_logs:
        for entry in yard.journal.entries.values():
            if entry.kind == EntryKind.ROUTER and not entry.is_gone:
                router = decode_router(entry.value)
                missing = _missing_topic(yard, router)
                if missing:
                    lines.append(f"router {router.name} is stopped: topic {missing} does not exist")
    return first_of(lines, "stopped routers")


def _missing_topic(yard: Yard, router: Router) -> str:
    if find_source(yard, router.source) is None:
        return router.source
    if router.create_dest or find_source(yard, router.dest) is not None:
        return ""
    return router.dest


def first_of(lines: list[str], what: str) -> list[str]:
    """Return the first lines, and one that counts the others."""
    more = len(lines) - LINES_SHOWN
    return [*lines[:LINES_SHOWN], f"and {more} more {what}"] if more > 0 else lines
