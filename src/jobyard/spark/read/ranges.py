"""The split of what is to be read into partitions: ranges of seqs, each read by one export.

A partition may hold ranges of many topics, since ten thousand small topics are not ten thousand
tasks. Ranges keep their order, and together they are exactly what was asked for.
"""

from collections.abc import Sequence
from typing import NamedTuple, final

from pyspark.sql.datasource import InputPartition

from jobyard.spark.options import Limits


class SeqRange(NamedTuple):
    """The records of one topic after a seq and up to another."""

    topic: str
    incarnation: str
    after_seq: int
    to_seq: int
    # How far an archive had it when the read was planned; 0 for not at all.
    archived_to: int = 0

    @property
    def size(self) -> int:
        """Return the number of seqs, some of which may not be records."""
        return self.to_seq - self.after_seq


@final
class SeqPartition(InputPartition):
    """What one task reads, one range after the other."""

    def __init__(self, ranges: tuple[SeqRange, ...]) -> None:
        super().__init__(None)
        self.ranges = ranges


def split(ranges: Sequence[SeqRange], limits: Limits) -> list[SeqPartition]:
    """Return partitions of about the same size that cover the ranges in their order."""
    total = sum(each.size for each in ranges)
    if total <= 0:
        return []
    count = max(-(-total // limits.records_per_partition), limits.partitions_min)
    if not limits.is_split_asked:
        count = min(count, limits.exports_max)
    size = -(-total // min(count, total))
    partitions: list[SeqPartition] = []
    current: list[SeqRange] = []
    room = size
    for each in ranges:
        after = each.after_seq
        while after < each.to_seq:
            to_seq = min(after + room, each.to_seq)
            current.append(each._replace(after_seq=after, to_seq=to_seq))
            room -= to_seq - after
            after = to_seq
            if room == 0:
                partitions.append(SeqPartition(tuple(current)))
                current, room = [], size
    if current:
        partitions.append(SeqPartition(tuple(current)))
    return partitions
