"""How far a stream of claims has come, as Spark stores it in a checkpoint.

An offset names one claim set completely, so a batch is known by its end alone. A series is drawn
when a query begins without a checkpoint: a later query of the same worker never meets the ids of an
earlier one. Knows neither Spark nor the server.
"""

from typing import Any, Final, NamedTuple

from jobyard.client import JobyardError
from jobyard.client.errors import Code

VERSION: Final = 1
# What Spark stores as JSON; its classes say no more either.
Form = dict[str, Any]


class ClaimOffset(NamedTuple):
    """The claim set that is the last of a batch; without a series, the place before all of them."""

    queue: str
    worker: str
    series: int = 0
    number: int = 0
    # In the set when it was claimed.
    jobs: int = 0

    @property
    def claim_id(self) -> str:
        """Return the id of the claim set."""
        return f"{self.worker}-{self.series}-{self.number}"

    def form(self) -> Form:
        """Return it as Spark stores it."""
        return {
            "v": VERSION, "queue": self.queue, "worker": self.worker,
            "series": self.series, "n": self.number, "jobs": self.jobs,
        }  # fmt: skip


def parse_offset(form: Form, queue: str, worker: str) -> ClaimOffset:
    """Return an offset of this worker of this queue; refuse any other."""
    if form.get("v") != VERSION:
        raise _unusable("they are not those of a stream of claims, or of a newer version")
    numbers = [form.get(name) for name in ("series", "n", "jobs")]
    if not all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in numbers):
        raise _unusable("their numbers cannot be read")
    if (form.get("queue"), form.get("worker")) != (queue, worker):
        raise _unusable(
            f"they are of worker {form.get('worker')} and queue {form.get('queue')}, "
            f"and this is worker {worker} of queue {queue}"
        )
    return ClaimOffset(queue, worker, form["series"], form["n"], form["jobs"])


def _unusable(why: str) -> JobyardError:
    return JobyardError(
        Code.BAD_OFFSETS,
        f"the offsets in the checkpoint cannot be used: {why}",
        option="checkpointLocation",
        remedy="A checkpoint belongs to one query; give each query its own.",
    )
