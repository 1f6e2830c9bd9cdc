"""A beanstalk client without a socket."""

from typing import TYPE_CHECKING

from jobyard.protocols.beanstalk.door import BeanstalkDoor
from jobyard.protocols.beanstalk.entrance import BeanstalkEntrance
from jobyard.protocols.beanstalk.session import BeanstalkSession
from tests.support.site.connection import Connection

if TYPE_CHECKING:
    from jobyard.model.lease import LeaseSet
    from tests.support.site.site import Site


class BeanstalkClient(Connection):
    """One connection; whether other clients go on after a command is left to the test."""

    session: BeanstalkSession

    def __init__(self, site: "Site", door: BeanstalkDoor) -> None:
        super().__init__(site, BeanstalkEntrance(door))
        self.lease_set: LeaseSet = self.session._lease_set

    def say(self, data: bytes) -> bytes:
        """Send bytes; return the immediate answer."""
        self.session.receive(data, self.site.now_ms)
        return self.hear()

    def hear(self) -> bytes:
        """Return the answers since the last call."""
        return self.take_unread()
