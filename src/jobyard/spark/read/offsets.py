"""The offsets of a stream: how far each topic was read, as Spark stores them in a checkpoint.

    {"v":1,"t":{"clicks":{"id":"<incarnation>","0":<next seq>}}}

The number is the next seq to be read, as in Kafka's offsets and in the options. The incarnation
is there because a topic that was deleted and made again begins at seq 1: without it an old offset
would wait in silence. What is stored here must be readable for ever; tests hold it against golden
files.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from jobyard.client.errors import Code, JobyardError
from jobyard.spark.read.positions import OFFSETS_VERSION


class Reached(NamedTuple):
    """How far one topic was read."""

    incarnation: str
    next_seq: int


@dataclass(frozen=True)
class StreamOffsets:
    """How far all topics were read."""

    topics: Mapping[str, Reached]

    def form(self) -> dict[str, object]:
        """Return the form that is stored."""
        return {
            "v": OFFSETS_VERSION,
            "t": {
                topic: {"id": reached.incarnation, "0": reached.next_seq}
                for topic, reached in sorted(self.topics.items())
            },
        }


def parse_stored(form: object) -> StreamOffsets:
    """Return offsets that were stored; refuse what this version cannot understand."""
    if not isinstance(form, dict) or "v" not in form:
        raise _unusable("they are not offsets of format jobyard")
    if form["v"] != OFFSETS_VERSION:
        raise _unusable(f"they have version {form['v']}, and this Jobyard knows {OFFSETS_VERSION}")
    topics = form.get("t")
    if not isinstance(topics, dict):
        raise _unusable("they have no topics")
    return StreamOffsets({topic: _reached(topic, parts) for topic, parts in topics.items()})


def _reached(topic: str, parts: object) -> Reached:
    if isinstance(parts, dict):
        incarnation, seq = parts.get("id"), parts.get("0")
        if isinstance(incarnation, str) and isinstance(seq, int) and not isinstance(seq, bool):
            return Reached(incarnation, seq)
    raise _unusable(f"those of {topic} cannot be read")


def foreign(topics: Iterable[str]) -> JobyardError:
    """Return the error for offsets that have none of the topics of a query."""
    names = ", ".join(sorted(topics)[:3])
    return _unusable(f"they are of {names}, which the query does not read")


def _unusable(why: str) -> JobyardError:
    return JobyardError(
        Code.BAD_OFFSETS,
        f"the offsets in the checkpoint cannot be used: {why}",
        option="checkpointLocation",
        remedy="A checkpoint belongs to one query; give each query its own.",
    )
