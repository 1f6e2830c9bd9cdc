"""State that all beanstalk connections share: the yard, the limits, the counters of `stats`."""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from jobyard.engine.jobs.queues import open_queue
from jobyard.engine.state.yard import Yard
from jobyard.model.family import BEANSTALK
from jobyard.model.lease import Proof, Terms
from jobyard.protocols.beanstalk.commands import CommandNo

DEFAULT_TUBE: Final = "default"
BEANSTALKD_VERSION: Final = "1.13"

# In the last second of a lease its holder gets DEADLINE_SOON.
SOON_MS: Final = 1000
TIMEOUT_MAX: Final = (1 << 31) - 1

# A connection holds a job for the job's own time to run.
TERMS: Final = Terms(BEANSTALK, Proof.CONNECTION, 0, "")


@mypyc_attr(allow_interpreted_subclasses=True)
class BeanstalkFacts:
    """The facts about the process and the machine in `stats`."""

    def pid(self) -> int:
        """Return the process id."""
        raise NotImplementedError

    def cpu_times(self) -> tuple[float, float]:
        """Return the CPU seconds in user and kernel mode."""
        raise NotImplementedError

    def machine(self) -> tuple[str, str, str]:
        """Return host name, operating system version and hardware platform."""
        raise NotImplementedError

    def instance_id(self) -> str:
        """Return 16 hex digits that YAML parsers do not read as a number."""
        raise NotImplementedError


@final
class BeanstalkDoor:
    """State that the beanstalk sessions of one server share."""

    def __init__(self, yard: Yard, facts: BeanstalkFacts, job_size_max: i64, now_ms: i64) -> None:
        self.yard = yard
        self.facts = facts
        self.job_size_max: i64 = job_size_max
        self.started_ms: i64 = now_ms
        self.is_draining: bool = False
        self.counts: list[i64] = [0] * (CommandNo.UNCOUNTED + 1)
        self.connections_count: i64 = 0
        self.connections_total: i64 = 0
        self.producers_count: i64 = 0
        self.workers_count: i64 = 0
        self.waiting_count: i64 = 0
        default = open_queue(yard, DEFAULT_TUBE)
        default.is_pinned = True
        self.default = default
