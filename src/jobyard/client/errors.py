"""The one error that users of the client see.

It has a code to act on and at most three lines of text: what happened, where, and what to do about
it. It can be pickled, because Spark carries it between processes, and never holds a token.
"""

from typing import Final, final

# Of a text that came from elsewhere: a message must stay readable.
_TEXT_MAX: Final = 500


class Code:
    """Codes of errors that the client finds itself; all others are the server's."""

    # No connection, or none in time.
    UNREACHABLE: Final = "unreachable"
    # A stream ended before its proper end, too often without progress.
    CUT_OFF: Final = "cut_off"
    # The answer is not one that a yard gives.
    NOT_JOBYARD: Final = "not_jobyard"
    # A url, token or option cannot be right, whatever the server says.
    BAD_URL: Final = "bad_url"
    BAD_TOKEN: Final = "bad_token"  # noqa: S105  a code, not a token
    BAD_OPTION: Final = "bad_option"
    # Offsets that Spark stored cannot be used.
    BAD_OFFSETS: Final = "bad_offsets"
    # Records that should have been read are gone.
    DATA_LOSS: Final = "data_loss"
    # The folder of a lake cannot be used: no permission, other content, another format.
    BAD_LAKE: Final = "bad_lake"
    # Something in a lake is not what its manifest says.
    LAKE_DAMAGED: Final = "lake_damaged"
    # Another run holds the lake.
    LAKE_BUSY: Final = "lake_busy"
    # A newer Jobyard wrote the lake.
    LAKE_NEWER: Final = "lake_newer"
    # The disk of a lake is full.
    LAKE_FULL: Final = "lake_full"
    # What is to enter the tables does not fit them.
    BAD_BATCH: Final = "bad_batch"
    # A file of an archive is not as it was written, or is missing.
    ARCHIVE_DAMAGED: Final = "archive_damaged"
    # This machine cannot reach the archive, or understand it.
    ARCHIVE_NOT_FOUND: Final = "archive_not_found"
    # It cannot be written: no permission, a full disk.
    ARCHIVE_NOT_WRITTEN: Final = "archive_not_written"
    # Another process writes to it.
    ARCHIVE_LOCKED: Final = "archive_locked"
    # It is of another topic, or of an older copy of it.
    ARCHIVE_DIFFERS: Final = "archive_differs"


@final
class JobyardError(Exception):
    """A call that failed, with its code, url, topic and status."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        url: str = "",
        status: int = 0,
        option: str = "",
        remedy: str = "",
        detail: dict[str, object] | None = None,
    ) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = _one_line(message)
        self.url = url
        self.topic = ""
        self.status = status
        self.option = _one_line(option)
        self.remedy = _one_line(remedy)
        self.detail: dict[str, object] = detail or {}

    def __str__(self) -> str:
        lines = [f"[{self.code}] {self.message}"]
        facts = (
            ("option", self.option),
            ("topic", self.topic),
            ("url", self.url),
            ("status", str(self.status or "")),
        )
        if where := ", ".join(f"{name} {value}" for name, value in facts if value):
            lines.append(f"at {where}")
        if self.remedy:
            lines.append(self.remedy)
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (self.code, self.message, {**self.__dict__})

    def within(self, *, topic: str = "", option: str = "", remedy: str = "") -> "JobyardError":
        """Return this error with facts that only the caller knows."""
        self.topic = self.topic or topic
        self.option = self.option or _one_line(option)
        self.remedy = self.remedy or _one_line(remedy)
        return self


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_TEXT_MAX]


def _restored(code: str, message: str, fields: dict[str, object]) -> JobyardError:
    error = JobyardError(code, message)
    error.__dict__.update(fields)
    return error


def bad_option(option: str, message: str, remedy: str = "") -> JobyardError:
    """Return the error for a value that cannot be right."""
    return JobyardError(Code.BAD_OPTION, message, option=option, remedy=remedy)
