"""Records that should have been read and are gone: what counts as a loss, and what becomes of it.

The only place that decides. With `failOnDataLoss` a loss is an error that names topic and gap.
Without it the loss is logged once, and counted for the progress of the query. A topic of a pattern
that was deleted is none: topics of patterns come and go.
"""

import logging
from collections.abc import Mapping
from typing import Final, NamedTuple, final

from jobyard.client import JobyardError
from jobyard.client.errors import Code

LOGGER: Final = logging.getLogger("jobyard.spark")
# Of a topic, in the progress of a query; the newest.
GAPS_MAX: Final = 5


class Why:
    """Why records are gone; the server names others, such as `ttl` and `cap`."""

    DELETED: Final = "deleted"
    MADE_AGAIN: Final = "made again"
    CUT_BACK: Final = "cut back"
    NOT_ASKED_FOR: Final = "not asked for"
    WHILE_READ: Final = "while it was read"


class Loss(NamedTuple):
    """Records of one topic that were not read, and why."""

    topic: str
    why: str
    message: str
    # Between which seqs records are missing; 0 for an end that is unknown.
    first_seq: int
    last_seq: int = 0
    # How many seqs are missing, some of which may not have been records; 0 if unknown.
    seqs: int = 0
    # What to do about it, where that is not what the rule says.
    remedy: str = ""

    def form(self) -> dict[str, object]:
        """Return the form that the progress of a query shows."""
        return {"from": self.first_seq, "to": self.last_seq or None, "why": self.why}

    def covers(self, other: "Loss") -> bool:
        """Return whether another loss is this one, or a part of it that was met again."""
        if other == self:
            return True
        is_same = other.topic == self.topic and other.last_seq > 0
        return is_same and self.first_seq <= other.first_seq and other.last_seq <= self.last_seq

    def error(self, remedy: str) -> JobyardError:
        """Return the error for a reader that may lose nothing."""
        return JobyardError(
            Code.DATA_LOSS,
            self.message,
            option="failOnDataLoss",
            remedy=self.remedy or remedy,
            detail=self.form(),
        ).within(topic=self.topic)


_LEFT: Final = "Set failOnDataLoss=false to read what is left"
OF_BATCH: Final = f"{_LEFT}, or startingOffsets=earliest to begin behind the gap."
OF_STREAM: Final = f"{_LEFT}, or give the query a new checkpoint to start over."
OF_JOBS: Final = "Read the queue again: a read takes its jobs as they are when it begins."


class LossRule(NamedTuple):
    """What the options say about losses. Can be sent to executors."""

    is_fatal: bool = True
    # Whether topics may end: those of a pattern.
    may_end: bool = False
    remedy: str = OF_BATCH


@final
class Losses:
    """What one reader has lost so far."""

    def __init__(self, rule: LossRule) -> None:
        self._rule = rule
        self._gaps: dict[str, list[Loss]] = {}
        self._counts: dict[str, int] = {}
        # Topics whose end was logged.
        self._ended: set[str] = set()

    @property
    def are_allowed(self) -> bool:
        """Return whether a reader continues behind what is gone."""
        return not self._rule.is_fatal

    def meet(self, loss: Loss) -> None:
        """Raise JobyardError, or log and count the loss; the same loss counts once."""
        if loss.why == Why.DELETED and self._rule.may_end:
            if loss.topic not in self._ended:
                LOGGER.info("%s", loss.message)
                self._ended.add(loss.topic)
            return
        if self._rule.is_fatal:
            raise loss.error(self._rule.remedy)
        gaps = self._gaps.setdefault(loss.topic, [])
        if any(known.covers(loss) for known in gaps):
            return
        LOGGER.warning("%s (failOnDataLoss is false)", loss.message)
        gaps.append(loss)
        del gaps[:-GAPS_MAX]
        self._counts[loss.topic] = self._counts.get(loss.topic, 0) + loss.seqs

    def form(self) -> dict[str, object]:
        """Return what the progress of a query shows, by topic; empty if nothing was lost."""
        return {
            topic: {"seqs": self._counts[topic], "gaps": [loss.form() for loss in gaps]}
            for topic, gaps in sorted(self._gaps.items())
        }


def dropped(topic: str, first_seq: int, last_seq: int, reason: str) -> Loss:
    """Return the loss of records that caps, age or a full disk have removed."""
    message = f"records {first_seq} to {last_seq} of {topic} are gone ({reason})"
    return Loss(topic, reason, message, first_seq, last_seq, last_seq - first_seq + 1)


def deleted(topic: str, next_seq: int) -> Loss:
    """Return the loss of a whole topic."""
    message = f"{topic} was deleted: what followed from record {next_seq} on is gone"
    return Loss(topic, Why.DELETED, message, next_seq)


def made_again(topic: str, next_seq: int, remedy: str = "") -> Loss:
    """Return the loss of a topic whose seqs began again."""
    message = (
        f"{topic} was deleted and made again since it was read, or this is another yard or "
        f"data directory: what followed from record {next_seq} on is gone"
    )
    return Loss(topic, Why.MADE_AGAIN, message, next_seq, remedy=remedy)


def cut_back(topic: str, head_seq: int, next_seq: int) -> Loss:
    """Return the loss of a topic that ends before what was read of it."""
    message = (
        f"{topic} ends at seq {head_seq}, before {next_seq}, which is the next to be read: "
        "an older copy of the data directory?"
    )
    return Loss(topic, Why.CUT_BACK, message, head_seq + 1)


def not_asked_for(topic: str, next_seq: int) -> Loss:
    """Return the loss of a topic that a checkpoint has and the options do not name any more."""
    message = f"{topic} was read up to here, and is not among the topics of the query any more"
    return Loss(topic, Why.NOT_ASKED_FOR, message, next_seq)


def lost_meanwhile(topic: str, after_seq: int, to_seq: int, count: int) -> Loss:
    """Return the loss of records that were dropped while a range was read."""
    message = (
        f"{count} records between {after_seq + 1} and {to_seq} of {topic} were lost while they "
        "were read"
    )
    return Loss(topic, Why.WHILE_READ, message, after_seq + 1, to_seq, count)


def loss_of(error: JobyardError, topic: str, after_seq: int, to_seq: int) -> Loss | None:
    """Return the loss that a refused export reports; None if it was refused for another reason."""
    detail = error.detail
    next_seq = after_seq + 1
    if error.code == "gone":
        first, last = _whole(detail, "gap_from", next_seq), _whole(detail, "gap_to", to_seq)
        return dropped(topic, first, last, str(detail.get("reason", "age or size")))
    if error.code == "wrong_incarnation":
        return made_again(topic, next_seq)
    if error.code == "topic_not_found":
        return deleted(topic, next_seq)
    if error.code == "out_of_range":
        return cut_back(topic, _whole(detail, "head_seq", 0), to_seq + 1)
    return None


def _whole(detail: Mapping[str, object], name: str, otherwise: int) -> int:
    value = detail.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise
