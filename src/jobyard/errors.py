"""Every error that Jobyard raises on purpose, in three families.

The peer is wrong: `Refused` and its subclasses, answered in the peer's own protocol.
The disk is wrong: `StorageFull` (space may become free), `StorageFailed` (stop before any answer),
and its subclass `ReadFailed`: damage at one place, for callers that can do without that data.
The data is wrong: `JournalDamaged` (the start is refused, with file and offset) and `TextDamaged`
(one read fails, all others still work).
When Jobyard itself is wrong, an `assert` fails; asserts stay on in production.
"""


class Refused(Exception):
    """The verb cannot be done as requested; nothing was changed."""


class NotFound(Refused):
    """The job or queue does not exist, or its state does not allow the verb."""


class BodyDamaged(Refused):
    """The body of a job that was read from disk is damaged, so it is not returned."""


class NotHeld(Refused):
    """The caller does not hold the lease it wants to end or renew."""


class YardFull(Refused):
    """No room for another job: the disk is full or the memory budget is used up."""


class ResultTooLarge(Refused):
    """The result of a job is longer than the limit for results."""


class NameTaken(YardFull):
    """The name belongs to a log, which cannot hold jobs."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is a log and takes no jobs")
        self.name = name


class Duplicate(Refused):
    """A job with the requested id already exists."""


class CostExceeds(Refused):
    """The job costs more than the token bucket of its ordering group can ever hold."""


class IdExhausted(Refused):
    """The next ids are all taken by jobs with client-chosen ids."""


class StorageFull(Exception):
    """The disk has no room for a new file; existing files keep the space they reserved."""


class StorageFailed(Exception):
    """A read, write or sync failed. The page cache can no longer be trusted."""


class ReadFailed(StorageFailed):
    """The disk cannot read one place; nothing was changed, and other places can be read."""

    def __init__(self, text: str, name: str, offset: int) -> None:
        super().__init__(text)
        self.name = name
        self.offset = offset


class JournalDamaged(Exception):
    """The journal cannot be read back whole, and the damage is not a torn tail."""

    def __init__(self, name: str, offset: int, why: str) -> None:
        super().__init__(f"{name} at offset {offset}: {why}")
        self.name = name
        self.offset = offset
        self.why = why


class JournalNewer(JournalDamaged):
    """The journal is whole, but a later version of Jobyard wrote it."""


class TextDamaged(Exception):
    """Records of a log whose text on disk is damaged. All other records are unaffected."""

    def __init__(self, first_seq: int, last_seq: int, where: str) -> None:
        what = f"record {first_seq} is"
        if last_seq > first_seq:
            what = f"records {first_seq} to {last_seq} are"
        super().__init__(f"{what} damaged on disk: {where}")
        self.first_seq = first_seq
        self.last_seq = last_seq


class StartRefused(Exception):
    """The server cannot start as configured; the text is the one line that the user sees."""

    def __init__(self, text: str, exit_code: int = 1) -> None:
        super().__init__(text)
        self.exit_code = exit_code
