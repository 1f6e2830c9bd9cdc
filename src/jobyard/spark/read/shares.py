"""Divides a batch that is limited among topics, in proportion to what each has left.

The sum is exactly the room, or all there is if that is less, and the same input gives the same
shares, so that no topic starves and a batch can be planned twice.
"""

from collections.abc import Mapping


def shared(sizes: Mapping[str, int], room: int) -> dict[str, int]:
    """Return how much of each topic a batch takes."""
    total = sum(sizes.values())
    if total <= room:
        return dict(sizes)
    shares = {topic: size * room // total for topic, size in sizes.items()}
    left = room - sum(shares.values())
    # What rounding left over goes to those that lost most by it.
    by_rest = sorted(sizes, key=lambda topic: (-(sizes[topic] * room % total), topic))
    for topic in by_rest[:left]:
        shares[topic] += 1
    return shares
