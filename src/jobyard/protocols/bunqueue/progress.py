"""Progress of a job as bunqueue shows it: a number and a message.

At other doors progress may be any text. Text that is not a number becomes the message here, so that
every job can be shown.
"""

import math

from jobyard.model.details import JobDetails


def progress_number(details: JobDetails) -> object:
    """Return the progress of a job as an int if it is whole; 0 if it is not a number."""
    value = _finite(details.progress)
    if value is None:
        return 0
    return int(value) if value.is_integer() and abs(value) < 2**31 else value


def progress_message(details: JobDetails) -> str | None:
    """Return the progress message of a job: its text progress, or the message sent with it."""
    if details.progress and _finite(details.progress) is None:
        return details.progress
    return details.message or None


def _finite(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
