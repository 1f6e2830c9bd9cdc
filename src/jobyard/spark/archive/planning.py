"""The split of ranges between archive and yard, and of both into tasks.

What is archived is cut where row groups end, so that no group is read by two tasks. Its tasks are
as many as it needs: the limit on exports is there to spare the server, which they do not ask.
Tasks are in the order of seqs.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from jobyard.lake.archive.index import TopicIndex
from jobyard.spark.options import Limits
from jobyard.spark.read.ranges import SeqPartition, SeqRange, split

# Of one task, if nothing else is asked for.
SEQS_PER_TASK: Final = 1_000_000


def planned(
    ranges: Sequence[SeqRange], index_of: Callable[[str], TopicIndex], limits: Limits
) -> list[SeqPartition]:
    """Return partitions that cover the ranges, each of them archived or not."""
    archived: list[SeqRange] = []
    rest: list[SeqRange] = []
    for wanted in ranges:
        life = index_of(wanted.topic).life(wanted.incarnation)
        end = min(max(life.to_seq, wanted.after_seq), wanted.to_seq) if life is not None else 0
        if end > wanted.after_seq:
            archived.append(wanted._replace(to_seq=end, archived_to=end))
            wanted = wanted._replace(after_seq=end)  # noqa: PLW2901  what is left of it
        if wanted.size > 0:
            rest.append(wanted)
    size = _size(sum(each.size for each in archived), limits)
    return [*_packed(archived, index_of, size, limits), *split(rest, limits)]


def _size(total: int, limits: Limits) -> int:
    per_task = limits.records_per_partition if limits.is_split_asked else SEQS_PER_TASK
    count = max(-(-total // per_task), limits.partitions_min, 1)
    return max(-(-total // count), 1)


def _packed(
    ranges: Sequence[SeqRange],
    index_of: Callable[[str], TopicIndex],
    size: int,
    limits: Limits,
) -> Iterator[SeqPartition]:
    current: list[SeqRange] = []
    filled = 0
    for wanted in ranges:
        for piece in _pieces(wanted, index_of(wanted.topic), size, limits):
            if current and filled + piece.size > size * 1.1:
                yield SeqPartition(tuple(current))
                current, filled = [], 0
            if current and _continues(current[-1], piece):
                current[-1] = current[-1]._replace(
                    to_seq=piece.to_seq, archived_to=piece.archived_to
                )
            else:
                current.append(piece)
            filled += piece.size
    if current:
        yield SeqPartition(tuple(current))


def _continues(last: SeqRange, piece: SeqRange) -> bool:
    return (last.topic, last.incarnation, last.to_seq) == (
        piece.topic, piece.incarnation, piece.after_seq,
    )  # fmt: skip


def _pieces(wanted: SeqRange, index: TopicIndex, size: int, limits: Limits) -> Iterator[SeqRange]:
    """Yield a range in pieces that end where row groups do; smaller ones if that is asked for."""
    after = wanted.after_seq
    for end in (*_ends(wanted, index), wanted.to_seq):
        while after < end:
            is_cut = limits.is_split_asked and end - after > size
            upto = after + size if is_cut else end
            yield wanted._replace(after_seq=after, to_seq=upto, archived_to=upto)
            after = upto


def _ends(wanted: SeqRange, index: TopicIndex) -> Iterator[int]:
    """Yield where row groups within a range end."""
    for file in index.files_of(wanted.incarnation):
        if file.to_seq > wanted.after_seq and file.begin_seq < wanted.to_seq:
            for end in file.groups:
                if wanted.after_seq < end < wanted.to_seq:
                    yield end
