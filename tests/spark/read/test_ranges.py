from hypothesis import given
from hypothesis import strategies as st

from jobyard.spark.options import Limits
from jobyard.spark.read.ranges import SeqPartition, SeqRange, split
from jobyard.spark.read.shares import shared
from tests.support.values.pickled import sent

SIZES = st.lists(st.integers(0, 500), max_size=30)


def ranges_of(sizes: list[int]) -> list[SeqRange]:
    return [SeqRange(f"t{at}", str(at), 10 * at, 10 * at + size) for at, size in enumerate(sizes)]


@given(SIZES, st.integers(1, 200), st.integers(1, 9), st.integers(1, 9), st.booleans())
def test_partitions_cover_every_seq_once(
    sizes: list[int],
    most: int,
    least: int,
    exports: int,
    is_asked: bool,  # noqa: FBT001  drawn
) -> None:
    limits = Limits(
        records_per_partition=most,
        partitions_min=least,
        exports_max=exports,
        is_split_asked=is_asked,
    )
    partitions = split(ranges_of(sizes), limits)
    seqs = [
        (part.topic, seq)
        for each in partitions
        for part in each.ranges
        for seq in range(part.after_seq + 1, part.to_seq + 1)
    ]
    wanted = [
        (each.topic, seq)
        for each in ranges_of(sizes)
        for seq in range(each.after_seq + 1, each.to_seq + 1)
    ]
    assert seqs == wanted
    if is_asked:
        assert all(sum(part.size for part in each.ranges) <= most for each in partitions)
    else:
        assert len(partitions) <= exports


def test_small_topics_share_a_task() -> None:
    partitions = split(ranges_of([3] * 10_000), Limits(partitions_min=2))
    assert len(partitions) == 2


def test_a_partition_can_be_sent() -> None:
    (partition,) = split(ranges_of([5]), Limits(partitions_min=1))
    copy = sent(partition)
    assert isinstance(copy, SeqPartition)
    assert copy.ranges == partition.ranges


@given(
    st.dictionaries(st.text(max_size=3), st.integers(0, 1000), max_size=10), st.integers(1, 2000)
)
def test_shares_fill_the_room(sizes: dict[str, int], room: int) -> None:
    found = shared(sizes, room)
    assert set(found) == set(sizes)
    assert sum(found.values()) == min(room, sum(sizes.values()))
    assert all(0 <= found[topic] <= sizes[topic] for topic in sizes)
    assert shared(dict(reversed(sizes.items())), room) == found
