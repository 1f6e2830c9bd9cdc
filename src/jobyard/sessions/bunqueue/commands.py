"""The table of all commands but those of a job's usual life, which the session calls itself."""

from typing import Final

from jobyard.sessions.bunqueue import (
    control,
    core,
    dead,
    events,
    flows,
    groups,
    locks,
    logs,
    monitor,
    query,
    registry,
    schedules,
)
from jobyard.sessions.bunqueue.door import Command

COMMANDS: Final[dict[bytes, Command]] = {
    b"FAIL": core.fail_job,
    **query.COMMANDS,
    **control.COMMANDS,
    **locks.COMMANDS,
    **dead.COMMANDS,
    **logs.COMMANDS,
    **registry.COMMANDS,
    **events.COMMANDS,
    **schedules.COMMANDS,
    **groups.COMMANDS,
    **flows.COMMANDS,
    **monitor.COMMANDS,
}
