"""The table of all commands except the frequent ones that the session calls directly."""

from typing import Final, final

from jobyard.protocols.bunqueue import events
from jobyard.protocols.bunqueue.command import Command
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
from jobyard.protocols.bunqueue.door import Answer, CommandTable
from jobyard.protocols.bunqueue.request import Request
from jobyard.protocols.bunqueue.session import BunqueueSession
from jobyard.protocols.session import Session

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


@final
class Commands(CommandTable):
    """Runs the commands of the table."""

    def has(self, name: bytes) -> bool:
        """Return whether there is a command of this name."""
        return name in COMMANDS

    def run(self, session: Session, request: Request) -> Answer | None:
        """Run a command; None if it is answered later."""
        assert isinstance(session, BunqueueSession)
        return COMMANDS[request.name](session, request)
