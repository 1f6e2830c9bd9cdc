"""A site as tests of the engine and the journal use it: its clients are of beanstalk."""

from jobyard.journal.format.segment import Segment
from jobyard.journal.recovery.reader import Reader
from jobyard.journal.storage import Storage
from jobyard.protocols.beanstalk.door import BeanstalkDoor
from tests.support.clients.beanstalk import BeanstalkClient
from tests.support.site.site import Site


class OpenYard(Site):
    """Journal, engine and door of one boot."""

    @property
    def door(self) -> BeanstalkDoor:
        """Return the only door that is open."""
        return self.beanstalk_door

    def connect(self) -> BeanstalkClient:
        """Open a connection."""
        return self.beanstalk()


def boot(storage: Storage, *bodies: bytes) -> OpenYard:
    """Open a yard and put some jobs, one batch each."""
    site = OpenYard(storage)
    for body in bodies:
        site.put(body)
        site.commit()
    return site


def batches(storage: Storage, segment: Segment) -> list[tuple[int, int, int]]:
    """Return (number, offset, size) of every batch of a segment."""
    reader = Reader(storage, segment)
    found: list[tuple[int, int, int]] = []
    while True:
        offset = int(reader.offset)
        head = reader.next()
        if head is None:
            return found
        found.append((int(head.number), offset, int(head.total_size())))
