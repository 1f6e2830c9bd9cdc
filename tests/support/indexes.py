"""Holds heaps, bags, shelves and lanes of a queue against the jobs that should stand in them."""

from jobyard.engine.state.names import glide_key, seq_of
from jobyard.engine.state.yard import Yard
from jobyard.model.family import GLIDE
from jobyard.model.glidemq.fields import GlidePart
from jobyard.model.index.heap import Heap
from jobyard.model.index.item_set import Bag
from jobyard.model.job import DEAD, DELAYED, DONE, LEASED, READY, Job
from jobyard.model.throttle.ordering_group import Lane, lane_of
from jobyard.model.throttle.ready_lists import PROMOTED, STACK, STAGED, STREAM, Shelves
from jobyard.model.throttle.settings import Group
from jobyard.model.topic.config import EPHEMERAL


def stands_in_stream(job: Job) -> bool:
    """Tell whether a ready job stands in no line but that of its queue."""
    return group_of(job) is None and job.shelf == STREAM and not is_behind(job)


def is_behind(job: Job) -> bool:
    """Tell whether a ready job waits in its lane."""
    part = part_of(job)
    return part is not None and part.lane is not None and not part.is_standing


def part_of(job: Job) -> GlidePart | None:
    """Return what only jobs of glide-mq have."""
    return None if job.extra is None else job.extra.glide


def group_of(job: Job) -> Group | None:
    """Return the group a job stands in line with."""
    return None if job.extra is None else job.extra.group


def check_bag(bag: Bag, jobs: list[Job]) -> None:
    assert {id(item) for item in bag.items} == {id(job) for job in jobs}
    assert [int(item.pos) for item in bag.items] == list(range(len(jobs)))


def recount_shelves(shelves: Shelves, jobs: list[Job]) -> None:
    ready = [job for job in jobs if job.state == READY and group_of(job) is None]
    assert shelves.staged_count == sum(job.shelf == STAGED for job in ready)
    listed = sum(job.shelf in (PROMOTED, STACK) for job in ready)
    on_lists = len(shelves.promoted.items) + len(shelves.stack.items)
    assert shelves.listed_apart == listed - on_lists
    for shelf in (STAGED, PROMOTED, STACK):
        heap = shelves.heap(shelf)
        standing = [job for job in ready if job.shelf == shelf and not is_behind(job)]
        assert ids(heap) == sorted(int(job.id) for job in standing)
        check_heap(heap)
    check_heap(shelves.shut)
    named: set[str] = set()
    for job in jobs:
        part = part_of(job)
        if part is not None and part.lane_key:
            named.add(part.lane_key)
            assert part.lane is shelves.lanes[part.lane_key]
    assert set(shelves.lanes) == named
    for lane in shelves.lanes.values():
        _recount_lane(lane, [job for job in jobs if lane_of(job.extra) is lane])


def _recount_lane(lane: Lane, jobs: list[Job]) -> None:
    live = [job for job in jobs if job.state not in (DEAD, DONE)]
    ready = [job for job in live if job.state == READY]
    assert lane.jobs_count == len(jobs)
    assert lane.slots_used == sum(job.deliveries > 0 for job in live)
    assert lane.running == sum(job.state == LEASED for job in live)
    assert ids(lane.waiting) == sorted(int(job.id) for job in ready if is_behind(job))
    check_heap(lane.waiting)
    standing = sorted(int(job.id) for job in ready if not is_behind(job))
    assert sorted(int(job.id) for job in lane.standing) == standing
    fronts = [job for job in ready if job.deliveries == 0 and not is_behind(job)]
    assert fronts == ([] if lane.front is None else [lane.front])
    # One that waits for its children holds up nobody.
    to_start = [job for job in live if job.deliveries == 0 and job.state in (READY, DELAYED)]
    orders = sorted(int(job.extra.glide.order) for job in to_start if job.extra and job.extra.glide)
    first = lane.next_to_start()
    if first is None:
        assert not orders
    else:
        assert first.extra is not None
        assert first.extra.glide is not None
        assert first.extra.glide.order == orders[0]


def ids(heap: Heap) -> list[int]:
    return sorted(int(item.id) for item in heap.items if isinstance(item, Job))


def check_heap(heap: Heap) -> None:
    for slot, item in enumerate(heap.items):
        assert item.pos == slot
        above = heap.items[(slot - 1) // 2] if slot else item
        assert (above.sort_key, above.stamp) <= (item.sort_key, item.stamp)


def recount_glide_names(yard: Yard, jobs: list[Job]) -> None:
    """Hold the ids that clients of glide-mq chose against the jobs that have them."""
    own = [(job, job.more().custom_id) for job in jobs if job.family == GLIDE and job.extra]
    named = {glide_key(job.queue, name): job for job, name in own if name}
    assert dict(yard.names.glide.items()) == named
    for queue in yard.queues.values():
        chosen = {int(seq_of(name)) for job, name in own if job.queue is queue} - {0}
        held = queue.chosen.items() if queue.chosen is not None else []
        assert {seq for seq, _ in held} == chosen
        assert queue.chosen is None or held


def _result_held(job: Job) -> int:
    """Return how much of a result is in memory, and see that it is counted."""
    outcome = None if job.extra is None else job.extra.outcome
    if outcome is None:
        return 0
    assert len(outcome.result) == outcome.result_counted
    assert outcome.result_counted in (0, outcome.result_size)
    return len(outcome.result)


def recount_bodies(yard: Yard, jobs: list[Job]) -> None:
    """See that what is in memory of bodies, results, texts and keys is counted."""
    in_memory = sum(int(job.size) for job in jobs if job.body is not None)
    in_memory += sum(int(log.memory) for log in yard.logs.values())
    in_memory += sum(_result_held(job) for job in jobs)
    side = sum(int(key.weight) for key in yard.side.keys.values())
    assert yard.bodies.in_memory == in_memory + side
    ephemeral = [log for log in yard.logs.values() if log.config.durability == EPHEMERAL]
    assert yard.bodies.pinned == side + sum(int(log.memory) for log in ephemeral)
