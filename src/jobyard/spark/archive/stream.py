"""Reading without end, with an archive: what it has first, then the yard.

Offsets are those of any stream, so a query may be given an archive later, or go on without it. A
query that begins in an earlier life of a topic goes through all later ones.
"""

from collections.abc import Mapping

from pyspark.sql.datasource import InputPartition

from jobyard.client import YardClient
from jobyard.lake.archive.reading import Archive
from jobyard.spark.archive.joined import ArchiveReading
from jobyard.spark.archive.lives import JoinedStates
from jobyard.spark.archive.planning import planned
from jobyard.spark.read.losses import Losses
from jobyard.spark.read.ranges import SeqRange
from jobyard.spark.read.states import TopicStates
from jobyard.spark.read.stream import TopicStreamReader


class ArchiveStreamReader(TopicStreamReader):
    """One query: the driver's part, and how tasks read."""

    def states(self, client: YardClient, losses: Losses) -> TopicStates:
        """Return what is asked for topics."""
        return JoinedStates(self.options, losses, super().states(client, losses))

    def divided(self, ranges: list[SeqRange]) -> list[InputPartition]:
        """Return partitions that cover some ranges."""
        archives = {
            each.topic: Archive(self.options.archive_path, each.topic).index() for each in ranges
        }
        return list(planned(ranges, archives.__getitem__, self.options.limits))

    def reading(self, query: Mapping[str, str]) -> ArchiveReading:
        """Return how partitions are read."""
        options = self.options
        return ArchiveReading(
            options.connecting, self.table, query, options.loss_rule,
            archive_path=options.archive_path,
        )  # fmt: skip
