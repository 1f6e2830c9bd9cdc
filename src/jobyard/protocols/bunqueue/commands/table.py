"""The table of all commands except the frequent ones that the session calls directly."""

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
    **query.QUERY_COMMANDS,
    **control.CONTROL_COMMANDS,
    **leases.LEASE_COMMANDS,
    **dlq.DLQ_COMMANDS,
    **logs.LOG_COMMANDS,
    **registry.REGISTRY_COMMANDS,
    **events.EVENT_COMMANDS,
    **schedules.SCHEDULE_COMMANDS,
    **groups.GROUP_COMMANDS,
    **flows.FLOW_COMMANDS,
    **monitor.MONITOR_COMMANDS,
}
