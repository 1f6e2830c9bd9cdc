"""Where events come from: the seam between the pipeline and a yard.

A source tells how far the history goes, and reads a range of it as rows of bronze. The one here
asks a server; tests bring another that has its rows in memory.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol, TypeVar, final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit

from jobyard.client import Token, YardClient
from jobyard.client.calls import topic_path
from jobyard.client.errors import JobyardError
from jobyard.lake.schemas import EVENTS
from jobyard.spark.options import EVENTS_TOPIC
from jobyard.spark.pipeline.frames import tasks_for

_NOT_FOUND: Final = "topic_not_found"
_T = TypeVar("_T")


class History(NamedTuple):
    """How far the history of a yard goes."""

    yard: str
    # No row from here on is lost.
    earliest_seq: int
    # The last number that is a row.
    head_seq: int


class EventSource(Protocol):
    """The history of one yard."""

    def history(self) -> History:
        """Return how far it goes just now."""
        ...

    def seq_at(self, ts_ms: int) -> int:
        """Return the number of the first row at or after a time."""
        ...

    def rows(
        self, spark: SparkSession, history: History, from_seq: int, to_seq: int, *, allow_gap: bool
    ) -> DataFrame:
        """Return the rows after a number and up to another, with the columns of `events`."""
        ...


@final
class ServerEvents:
    """The history that a server has."""

    def __init__(self, url: str, token: str | Token | None = None) -> None:
        self.url = url
        self.token = Token(token) if isinstance(token, str) else token

    def history(self) -> History:
        """Return how far it goes just now."""
        return self._ask(_history)

    def seq_at(self, ts_ms: int) -> int:
        """Return the number of the first row at or after a time."""
        path = topic_path(EVENTS_TOPIC, "seq")
        return self._ask(lambda client: client.get(path, {"ts": ts_ms}).number("seq"))

    def _ask(self, call: Callable[[YardClient], _T]) -> _T:
        with YardClient(self.url, self.token) as client:
            try:
                return call(client)
            except JobyardError as error:
                if error.code == _NOT_FOUND:
                    error.within(remedy="Its history is off: start it with --events-hours 24.")
                raise

    def rows(
        self, spark: SparkSession, history: History, from_seq: int, to_seq: int, *, allow_gap: bool
    ) -> DataFrame:
        """Return rows of the server's export, read by as many tasks as the work is worth."""
        place = f'{{"{EVENTS_TOPIC}":{{"id":"{history.yard}","0":%d}}}}'
        count = to_seq - from_seq
        options = {
            "url": self.url,
            "topic": EVENTS_TOPIC,
            "startingOffsets": place % (from_seq + 1),
            "endingOffsets": place % (to_seq + 1),
            "failOnDataLoss": str(not allow_gap).lower(),
            "maxRecordsPerPartition": str(-(-count // tasks_for(count))),
        }
        if self.token is not None:
            options["token"] = self.token.bearer().removeprefix("Bearer ")
        found = spark.read.format("jobyard").options(**options).load()
        return found.select(lit(history.yard).alias("yard"), *EVENTS.names()[1:])


def _history(client: YardClient) -> History:
    state = client.get(topic_path(EVENTS_TOPIC))
    return History(
        state.text("incarnation"), state.number("earliest_seq"), state.number("head_row_seq")
    )
