"""Every way in which Jobyard says no, in three families.

The peer is wrong: `Refused` and its kinds, answered in the words of the peer's own protocol.
The disk is wrong: `StorageFull` (room may come back), `StorageFailed` (stop before any answer), and
of the latter `ReadFailed`, which is damage at a place to whoever can do without what lies there.
The data is wrong: `JournalDamaged`, a start that is refused with file and offset; `TextDamaged`,
a read that fails while all others go on.
When Jobyard itself is wrong an `assert` fails; asserts stay on in production.
"""


class Refused(Exception):
    """A verb that cannot be done as asked; nothing was changed."""


class NotFound(Refused):
    """There is no such job or queue, or not in a state the verb applies to."""


class BodyDamaged(Refused):
    """What the disk gives for the body of a job is not what was put, so it is not given out."""


class NotHeld(Refused):
    """The caller does not hold the lease it wants to end or renew."""


class YardFull(Refused):
    """No room for another job: the disk is full or the memory budget is used up."""


class ResultTooLarge(Refused):
    """What a job came to is longer than is kept of any job."""


class NameTaken(YardFull):
    """The name is that of a log, where no job has room."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is a log and takes no jobs")
        self.name = name


class Duplicate(Refused):
    """There is a job with the id that was asked for."""


class CostExceeds(Refused):
    """The job costs more than the bucket of its lane can ever hold."""


class IdExhausted(Refused):
    """The next ids are all taken by jobs whose clients chose them."""


class StorageFull(Exception):
    """The disk has no room for a new file; files that exist keep the space they reserved."""


class StorageFailed(Exception):
    """A read, write or sync failed. What the page cache holds can no longer be believed."""


class ReadFailed(StorageFailed):
    """The disk cannot read what lies at one place; nothing was changed, and others can be read."""

    def __init__(self, text: str, name: str, offset: int) -> None:
        super().__init__(text)
        self.name = name
        self.offset = offset


class JournalDamaged(Exception):
    """The journal cannot be read back whole and the damage is not a torn tail."""

    def __init__(self, name: str, offset: int, why: str) -> None:
        super().__init__(f"{name} at offset {offset}: {why}")
        self.name = name
        self.offset = offset
        self.why = why


class JournalNewer(JournalDamaged):
    """The journal is whole, but a later version of Jobyard wrote it."""


class TextDamaged(Exception):
    """Records of a log whose text on disk is not what was written. All others are as they were."""

    def __init__(self, first_seq: int, last_seq: int, where: str) -> None:
        what = f"record {first_seq} is"
        if last_seq > first_seq:
            what = f"records {first_seq} to {last_seq} are"
        super().__init__(f"{what} damaged on disk: {where}")
        self.first_seq = first_seq
        self.last_seq = last_seq


class StartRefused(Exception):
    """The server cannot start as asked; the text is the one line the user sees."""

    def __init__(self, text: str, exit_code: int = 1) -> None:
        super().__init__(text)
        self.exit_code = exit_code
