"""What all beanstalk connections share: the yard, the limits, and the counters of `stats`."""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from jobyard.engine.jobs.queues import open_queue
from jobyard.engine.state.yard import Yard
from jobyard.model.family import BEANSTALK
from jobyard.model.queue import CONNECTION, Terms
from jobyard.protocols.beanstalk.commands import UNCOUNTED

DEFAULT_TUBE: Final = "default"
VERSION: Final = "1.13"

# The last second of a lease is the holder's warning time.
SOON_MS: Final = 1000
TIMEOUT_MAX: Final = (1 << 31) - 1

# A connection holds what it took for as long as the job says.
TERMS: Final = Terms(BEANSTALK, CONNECTION, 0, "")


@mypyc_attr(allow_interpreted_subclasses=True)
class Facts:
    """What `stats` tells of the process and the machine."""

    def pid(self) -> int:
        """Return the process id."""
        raise NotImplementedError

    def cpu_times(self) -> tuple[float, float]:
        """Return seconds of processor time in user and kernel mode."""
        raise NotImplementedError

    def machine(self) -> tuple[str, str, str]:
        """Return host name, version of the operating system, and hardware platform."""
        raise NotImplementedError

    def instance_id(self) -> str:
        """Return 16 hex digits that no client can take for a number."""
        raise NotImplementedError


@final
class BeanstalkDoor:
    """State common to the beanstalk sessions of one server."""

    def __init__(self, yard: Yard, facts: Facts, job_size_max: i64, now_ms: i64) -> None:
        self.yard = yard
        self.facts = facts
        self.job_size_max: i64 = job_size_max
        self.started_ms: i64 = now_ms
        self.is_draining: bool = False
        self.counts: list[i64] = [0] * (UNCOUNTED + 1)
        self.connections_count: i64 = 0
        self.connections_total: i64 = 0
        self.producers_count: i64 = 0
        self.workers_count: i64 = 0
        self.waiting_count: i64 = 0
        default = open_queue(yard, DEFAULT_TUBE)
        default.is_pinned = True
        self.default = default
