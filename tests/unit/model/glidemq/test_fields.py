from hypothesis import given
from hypothesis import strategies as st

from jobyard.model.details import JobDetails
from jobyard.model.details_codec import absorb, encode_details, size_of
from jobyard.model.glidemq.fields import COST_DEFAULT, GlidePart
from jobyard.model.throttle.ordering_throttle import ORDERING_LIMIT_MAX, OrderingLimits

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NUMBER = st.integers(0, ORDERING_LIMIT_MAX)


@given(
    st.lists(TEXT, min_size=6, max_size=6),
    st.lists(NUMBER, min_size=8, max_size=8),
    st.dictionaries(st.binary(max_size=8), st.binary(max_size=8), max_size=4),
    st.binary(max_size=20),
)
def test_a_part_is_read_back_whole(
    texts: list[str], numbers: list[int], overlay: dict[bytes, bytes], opts: bytes
) -> None:
    part = GlidePart()
    part.opts = opts
    part.ordering_key, part.parent_id, part.parent_queue = texts[:3]
    part.parent_ids, part.parent_queues, part.scheduler = texts[3:]
    part.order, part.cost, part.flags = numbers[:3]
    part.limits = OrderingLimits(*numbers[3:])
    for name, value in overlay.items():
        part.set_field(name, value)
    details = JobDetails()
    details.glide = part
    data = encode_details(details)
    assert size_of(details) == len(data)
    again = JobDetails()
    absorb(again, data, 0, len(data), 0)
    assert again.glide is not None
    assert again.glide.encode() == part.encode()
    assert again.glide.overlay == part.overlay == (overlay or None)
    assert again.glide.limits.equals(part.limits)
    assert (again.glide.ordering_key, again.glide.scheduler, again.glide.opts) == (
        texts[0],
        texts[5],
        opts,
    )


def test_times_move_onto_the_clock_of_the_boot() -> None:
    part = GlidePart()
    for until_ms, moved_ms in ((0, 0), (500, 530)):
        part.until_ms = until_ms
        again = GlidePart()
        again.fill(part.encode(), 0, 30)
        assert again.until_ms == moved_ms


def test_what_costs_nothing_costs_one_token() -> None:
    part = GlidePart()
    assert part.due_cost() == COST_DEFAULT
    part.cost = 7
    assert part.due_cost() == 7


def test_limits_beyond_any_are_bounded() -> None:
    limits = OrderingLimits(-1, 1 << 62, -5, 1 << 60, 1)
    assert (limits.concurrency, limits.rate_ms) == (0, 0)
    assert (limits.rate_most, limits.capacity) == (ORDERING_LIMIT_MAX, ORDERING_LIMIT_MAX)


def test_one_by_one_is_what_nothing_else_was_said_of() -> None:
    assert OrderingLimits(0, 0, 0, 0, 0).is_sequential()
    assert OrderingLimits(1, 0, 0, 0, 0).is_sequential()
    for numbers in ((2, 0, 0, 0, 0), (1, 3, 10, 0, 0), (1, 0, 0, 1000, 0)):
        assert not OrderingLimits(*numbers).is_sequential()
