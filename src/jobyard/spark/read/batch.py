"""Reading once: the ranges of topics, the history, or a snapshot of jobs, as of now.

There are two classes because Spark refuses every read of a reader that could push filters down
while the session's setting for that is off, and because Spark 4.3 plans a table once: what was
pushed down for one query is left out of all later ones that use the same `load()`.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Final, final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from jobyard.client import JobyardError, YardClient
from jobyard.client.calls import topic_path
from jobyard.client.errors import bad_option
from jobyard.spark.options import ReadOptions
from jobyard.spark.raising import raised_short, rows_raised_short
from jobyard.spark.read.columns import Table
from jobyard.spark.read.losses import Losses
from jobyard.spark.read.positions import EARLIEST, LATEST, Position
from jobyard.spark.read.probe import check_present
from jobyard.spark.read.pushdown import Bounds, bounds_of
from jobyard.spark.read.ranges import SeqRange, split
from jobyard.spark.read.reading import Reading
from jobyard.spark.read.states import TopicExtent, TopicStates, check_names, no_topic

FIRST: Final = Position(edge=EARLIEST)
LAST: Final = Position(edge=LATEST)


class BatchReader(DataSourceReader):
    """One read."""

    def __init__(self, options: ReadOptions, table: Table) -> None:
        self.options = options
        self.table = table
        self.bounds = Bounds()

    @raised_short
    def partitions(self) -> list[InputPartition]:
        """Return what the tasks read; everything that can be wrong by now is an error here."""
        if self.bounds.is_empty(self.options):
            return []
        with self.options.connecting.client() as client:
            found = _job_ranges(client, self.options) if self.options.jobs else self._ranges(client)
            # Asked for one by one, so within the life of the connection.
            ranges = [self.cut(each) for each in found]
        return list(split(ranges, self.options.limits))

    @rows_raised_short
    def read(self, partition: InputPartition) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows of one partition."""
        options = self.options
        query = {**options.export_query(), **self.bounds.query(options)}
        return self.reading(query).read(partition)

    def reading(self, query: Mapping[str, str]) -> Reading:
        """Return how partitions are read."""
        options = self.options
        return Reading(options.connecting, self.table, query, options.loss_rule)

    def _ranges(self, client: YardClient) -> Iterator[SeqRange]:
        options = self.options
        states = TopicStates(client, options, Losses(options.loss_rule))
        found = states.all()
        for topic in options.topics:
            if topic not in found:
                raise no_topic(topic, client.url, is_stream=False)
        for position, name in ((options.starting, "starting"), (options.ending, "ending")):
            check_names(position, list(found), f"{name}Offsets")
        for topic, state in sorted(found.items()):
            if self.bounds.allows(topic):
                yield self._range(client, states, topic, state)

    def _range(
        self, client: YardClient, states: TopicStates, topic: str, state: TopicExtent
    ) -> SeqRange:
        options = self.options
        start = states.place(topic, state, options.starting or FIRST, "startingOffsets").next_seq
        end = states.place(topic, state, options.ending or LAST, "endingOffsets").next_seq
        wanted = SeqRange(topic, state.incarnation, start - 1, max(end - 1, start - 1))
        if start < state.first_seq:
            check_present(client, self.cut(wanted), states.losses)
        return wanted

    def cut(self, wanted: SeqRange) -> SeqRange:
        """Return the part of a range that the filters leave."""
        after = max(wanted.after_seq, min(self.bounds.seq_min - 1, wanted.to_seq))
        return wanted._replace(
            after_seq=after, to_seq=max(min(wanted.to_seq, self.bounds.seq_max), after)
        )


@final
class PushingBatchReader(BatchReader):
    """A read that lets the server apply filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  Spark's name
        """Remember what can be passed on, and leave every filter to Spark as well."""
        self.bounds = bounds_of(filters, self.table, self.options)
        return filters


def _job_ranges(client: YardClient, options: ReadOptions) -> list[SeqRange]:
    queue = options.jobs
    try:
        answer = client.get(topic_path(queue))
    except JobyardError as error:
        remedy = "Check the name: GET /v0/topics lists all queues." if error.status == 404 else ""
        raise error.within(topic=queue, option="jobs", remedy=remedy) from None
    if answer.text("type") != "queue":
        raise bad_option(
            "jobs", f"{queue} is a log, which has no jobs", f"Set the option topic to {queue}."
        )
    # Another queue of this name has other jobs, even if it is made before a task reads.
    return [SeqRange(queue, answer.text("incarnation"), 0, answer.number("head_seq"))]
