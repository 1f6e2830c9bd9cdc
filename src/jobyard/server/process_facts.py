"""Facts about this process and its machine, as the doors report them."""

import os
import resource
import secrets
from pathlib import Path
from typing import final

from jobyard.protocols.beanstalk.door import BeanstalkFacts
from jobyard.protocols.glidemq.door import GlidemqFacts


@final
class ProcessFacts(BeanstalkFacts):
    """Facts about this process."""

    def __init__(self) -> None:
        name = os.uname()
        self._machine = (name.nodename, name.version, name.machine)
        # Starts with a letter, so that no client parses the id as a number.
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


@final
class InfoFacts(GlidemqFacts):
    """The same facts for the INFO command of the glide-mq door."""

    def __init__(self, facts: ProcessFacts, port: int) -> None:
        self._facts = facts
        self._port = port
        self._id = secrets.token_hex(20)

    def pid(self) -> int:
        """Return the process id."""
        return self._facts.pid()

    def port(self) -> int:
        """Return the port of the door, or 0 if it has none."""
        return self._port

    def memory_bytes(self) -> int:
        """Return the resident memory of the process in bytes."""
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
        return pages * resource.getpagesize()

    def cpu_times(self) -> tuple[float, float]:
        """Return seconds of processor time in user and kernel mode."""
        return self._facts.cpu_times()

    def machine(self) -> tuple[str, str, str]:
        """Return host name, version of the operating system, and hardware platform."""
        return self._facts.machine()

    def run_id(self) -> str:
        """Return 40 hex digits."""
        return self._id
