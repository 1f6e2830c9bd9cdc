"""Reading once, with an archive: everything it has, and from the yard what it does not have yet.

A read may go over several lives of a topic, in their order. Without the yard it is the archive
alone, and no server is asked.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from typing import final

from pyspark.sql.datasource import Filter, InputPartition

from jobyard.spark.archive.joined import ArchiveReading
from jobyard.spark.archive.lives import TopicLife, TopicLives
from jobyard.spark.archive.planning import planned
from jobyard.spark.raising import raised_short
from jobyard.spark.read.batch import FIRST, LAST, BatchReader
from jobyard.spark.read.losses import Losses
from jobyard.spark.read.offsets import Reached
from jobyard.spark.read.pushdown import bounds_of
from jobyard.spark.read.ranges import SeqRange
from jobyard.spark.read.states import TopicStates, check_names, no_topic


class ArchiveBatchReader(BatchReader):
    """One read."""

    @raised_short
    def partitions(self) -> list[InputPartition]:
        """Return what the tasks read; everything that can be wrong by now is an error here."""
        options = self.options
        if self.bounds.is_empty(options):
            return []
        losses = Losses(options.loss_rule)
        with nullcontext() if options.is_archive_only else options.connecting.client() as client:
            live = TopicStates(client, options, losses) if client is not None else None
            lives = TopicLives(options, losses, live)
            ranges = [self.cut(each) for each in self._of_lives(lives)]
            return list(planned(ranges, lambda topic: lives.archive(topic).index(), options.limits))

    def reading(self, query: Mapping[str, str]) -> ArchiveReading:
        """Return how partitions are read."""
        options = self.options
        return ArchiveReading(
            options.connecting, self.table, query, options.loss_rule,
            archive_path=options.archive_path, is_alone=options.is_archive_only,
        )  # fmt: skip

    def _of_lives(self, lives: TopicLives) -> Iterator[SeqRange]:
        options = self.options
        found = lives.ask()
        for topic in options.topics:
            if topic not in found:
                url = options.connecting.url or options.archive_path
                raise no_topic(topic, url, is_stream=False)
        for position, name in ((options.starting, "starting"), (options.ending, "ending")):
            check_names(position, list(found), f"{name}Offsets")
        for topic, each in found.items():
            if self.bounds.allows(topic):
                start = lives.place(topic, options.starting or FIRST, "startingOffsets")
                end = lives.place(topic, options.ending or LAST, "endingOffsets")
                yield from between(topic, each, start, end)


@final
class PushingArchiveReader(ArchiveBatchReader):
    """A read that lets filters of seqs and topics choose what is read."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  Spark's name
        """Remember what can be passed on, and leave every filter to Spark as well."""
        self.bounds = bounds_of(filters, self.table, self.options)
        return filters


def between(topic: str, lives: list[TopicLife], start: Reached, end: Reached) -> Iterator[SeqRange]:
    """Yield what lies between two places, life by life."""
    names = [life.extent.incarnation for life in lives]
    first, last = names.index(start.incarnation), names.index(end.incarnation)
    for at in range(first, last + 1):
        extent = lives[at].extent
        after = (start.next_seq if at == first else extent.first_seq) - 1
        to_seq = end.next_seq - 1 if at == last else extent.head_seq
        yield SeqRange(topic, extent.incarnation, after, max(to_seq, after))
