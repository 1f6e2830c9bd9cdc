"""How far a job is, as bunqueue tells it: a number, and what was said along with it.

At other doors progress may be any text. What is no number there is a message here, and nothing that
anybody noted keeps a job from being shown.
"""

import math

from jobyard.model.details import Extra


def progress_number(extra: Extra) -> object:
    """Return the progress of a job, whole if it is; 0 where nobody gave a number."""
    value = _finite(extra.progress)
    if value is None:
        return 0
    return int(value) if value.is_integer() and abs(value) < 2**31 else value


def progress_message(extra: Extra) -> str | None:
    """Return what was said with the progress of a job, or in its place."""
    if extra.progress and _finite(extra.progress) is None:
        return extra.progress
    return extra.message or None


def _finite(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
