"""What the process knows of itself and its machine."""

import os
import resource
import secrets
from typing import final

from jobyard.sessions.beanstalk.door import Facts


@final
class ProcessFacts(Facts):
    """Facts of this process."""

    def __init__(self) -> None:
        name = os.uname()
        self._machine = (name.nodename, name.version, name.machine)
        # The first digit is a letter that no number has, so no client takes the id for one.
        self._id = "f" + secrets.token_hex(8)[1:]

    def pid(self) -> int:
        """Return the process id."""
        return os.getpid()

    def cpu_times(self) -> tuple[float, float]:
        """Return seconds of processor time in user and kernel mode."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_utime, usage.ru_stime

    def machine(self) -> tuple[str, str, str]:
        """Return host name, version of the operating system, and hardware platform."""
        return self._machine

    def instance_id(self) -> str:
        """Return 16 hex digits."""
        return self._id
