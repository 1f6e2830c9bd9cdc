"""The YAML of `stats`, `stats-tube`, `stats-job` and the lists, in the format of beanstalkd 1.13.

Clients check keys, order, quoting and types: 51, 14 and 14 keys, names quoted, list entries
unquoted, no negative numbers.
"""

import json
from typing import Final

from mypy_extensions import i64

from jobyard.engine.jobs.take import ttr_ms
from jobyard.engine.state.health import problems
from jobyard.model.job import BLOCKED, DEAD, DELAYED, LEASED, READY, Job
from jobyard.model.limits import U32_MAX
from jobyard.model.queue import Queue
from jobyard.protocols.beanstalk.door import BEANSTALKD_VERSION, BeanstalkDoor
from jobyard.wire.beanstalk import is_tube_name

_COMMANDS = (
    "put",
    "peek",
    "peek-ready",
    "peek-delayed",
    "peek-buried",
    "reserve",
    "reserve-with-timeout",
    "delete",
    "release",
    "use",
    "watch",
    "ignore",
    "bury",
    "kick",
    "touch",
    "stats",
    "stats-job",
    "stats-tube",
    "list-tubes",
    "list-tube-used",
    "list-tubes-watched",
    "pause-tube",
)

_STRINGS: Final = json.JSONEncoder(ensure_ascii=False)

_STATES = {
    READY: "ready",
    DELAYED: "delayed",
    LEASED: "reserved",
    DEAD: "buried",
    BLOCKED: "delayed",
}


def _seconds(span_ms: i64) -> int:
    return max(0, span_ms) // 1000


def of_server(door: BeanstalkDoor, now_ms: i64) -> str:
    """Return the 51 lines of `stats`, and one for each problem of the server."""
    yard = door.yard
    journal = yard.journal
    user, system = door.facts.cpu_times()
    host, os_version, platform = door.facts.machine()
    oldest = min(journal.segments) if journal.segments else 0
    lines = [
        f"current-jobs-urgent: {yard.urgent_count}",
        f"current-jobs-ready: {yard.ready_count}",
        f"current-jobs-reserved: {yard.leased_count}",
        f"current-jobs-delayed: {yard.delayed_count}",
        f"current-jobs-buried: {yard.dead_count}",
    ]
    lines.extend(f"cmd-{name}: {door.counts[i]}" for i, name in enumerate(_COMMANDS))
    lines += [
        f"job-timeouts: {yard.counters.timed_out_total()}",
        f"total-jobs: {yard.counters.put_total()}",
        f"max-job-size: {door.job_size_max}",
        f"current-tubes: {len(yard.queues)}",
        f"current-connections: {door.connections_count}",
        f"current-producers: {door.producers_count}",
        f"current-workers: {door.workers_count}",
        f"current-waiting: {door.waiting_count}",
        f"total-connections: {door.connections_total}",
        f"pid: {door.facts.pid()}",
        f'version: "{BEANSTALKD_VERSION}"',
        f"rusage-utime: {user:.6f}",
        f"rusage-stime: {system:.6f}",
        f"uptime: {_seconds(now_ms - door.started_ms)}",
        f"binlog-oldest-index: {oldest}",
        f"binlog-current-index: {journal.hot.number}",
        f"binlog-records-migrated: {journal.moved_count}",
        f"binlog-records-written: {journal.records_count}",
        f"binlog-max-size: {journal.segment_size}",
        f"draining: {'true' if door.is_draining else 'false'}",
        f"id: {door.facts.instance_id()}",
        f'hostname: "{host}"',
        f'os: "{os_version}"',
        f'platform: "{platform}"',
    ]
    # Not in the original; present only while there are problems.
    lines.extend(f"{word.replace('_', '-')}: true" for word in problems(yard))
    if yard.errors.survived_count > 0:
        lines.append(f"unexpected-errors: {yard.errors.survived_count}")
    return _yaml(lines)


def of_tube(queue: Queue, now_ms: i64) -> str:
    """Return the 14 lines of `stats-tube`."""
    pause_left: i64 = queue.pause_until_ms - now_ms if queue.pause_ms > 0 else 0
    pause_s: i64 = queue.pause_ms // 1000
    rules = queue.rules
    if rules is not None and rules.settings.is_paused:
        # Paused without end, which the protocol cannot express.
        pause_s, pause_left = U32_MAX, U32_MAX * 1000
    return _yaml(
        [
            f'name: "{queue.name}"',
            f"current-jobs-urgent: {queue.urgent_count}",
            f"current-jobs-ready: {len(queue.ready.items) + queue.held_count}",
            f"current-jobs-reserved: {len(queue.leased.items)}",
            f"current-jobs-delayed: {len(queue.delayed.items) + len(queue.blocked.items)}",
            f"current-jobs-buried: {queue.dead.live_count}",
            f"total-jobs: {queue.total_count}",
            f"current-using: {queue.users_count}",
            f"current-watching: {queue.watchers_count}",
            f"current-waiting: {queue.waiting_count}",
            f"cmd-delete: {queue.finished_count}",
            f"cmd-pause-tube: {queue.pauses_count}",
            f"pause: {pause_s}",
            f"pause-time-left: {_seconds(pause_left)}",
        ]
    )


def of_job(job: Job, now_ms: i64) -> str:
    """Return the 14 lines of `stats-job`."""
    left_ms: i64 = 0
    lease = job.lease
    if lease is not None:
        # Some leases have no deadline, which the protocol cannot express.
        left_ms = min(lease.sort_key - now_ms, U32_MAX * 1000)
    elif job.state == DELAYED:
        left_ms = job.due_ms - now_ms
    details = job.details
    timeouts, releases, buries, kicks = 0, 0, 0, 0
    counters = None if details is None else details.counters
    if counters is not None:
        timeouts, releases = int(counters.timeouts), int(counters.releases)
        buries, kicks = int(counters.buries), int(counters.kicks)
    return _yaml(
        [
            f"id: {job.id}",
            # The queue may belong to another door and have a name that is invalid for a tube.
            f"tube: {_STRINGS.encode(job.queue.name)}",
            f"state: {_STATES[job.state]}",
            f"pri: {min(max(job.rank, 0), U32_MAX)}",
            f"age: {_seconds(now_ms - job.created_ms)}",
            f"delay: {_seconds(job.delay_ms)}",
            f"ttr: {ttr_ms(job) // 1000}",
            f"time-left: {_seconds(left_ms)}",
            f"file: {job.place >> 32}",
            f"reserves: {job.deliveries}",
            f"timeouts: {timeouts}",
            f"releases: {releases}",
            f"buries: {buries}",
            f"kicks: {kicks}",
        ]
    )


def list_of(queues: list[Queue]) -> str:
    """Return a list of tube names."""
    return _yaml([f"- {queue.name}" for queue in queues if is_tube_name(queue.name.encode())])


def _yaml(lines: list[str]) -> str:
    return "---\n" + "\n".join(lines) + "\n" if lines else "---\n"
