"""What every function that runs a bunqueue command takes and returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobyard.protocols.bunqueue.door import Answer
    from jobyard.protocols.bunqueue.request import Request
    from jobyard.protocols.bunqueue.session import BunqueueSession

# Returns the answer, or None where the session writes it itself, now or later.
Command = Callable[["BunqueueSession", "Request"], "Answer | None"]
