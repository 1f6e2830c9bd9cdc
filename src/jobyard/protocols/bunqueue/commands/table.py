"""The table of all commands but those of a job's usual life, which the session calls itself."""

from typing import Final

from jobyard.protocols.bunqueue import events
from jobyard.protocols.bunqueue.commands import (
    control,
    dlq,
    flows,
    groups,
    jobs,
    leases,
    logs,
    monitor,
    query,
    registry,
    schedules,
)
from jobyard.protocols.bunqueue.door import Command

COMMANDS: Final[dict[bytes, Command]] = {
    b"FAIL": jobs.fail_job,
    **query.COMMANDS,
    **control.COMMANDS,
    **leases.COMMANDS,
    **dlq.COMMANDS,
    **logs.COMMANDS,
    **registry.COMMANDS,
    **events.COMMANDS,
    **schedules.COMMANDS,
    **groups.COMMANDS,
    **flows.COMMANDS,
    **monitor.COMMANDS,
}
