"""Compares heaps, item sets, ready lists and ordering groups of a queue with the jobs in them."""

from jobyard.engine.state.names import glide_key, seq_of
from jobyard.engine.state.yard import Yard
from jobyard.model.family import GLIDE
from jobyard.model.glidemq.fields import GlidePart
from jobyard.model.index.heap import Heap
from jobyard.model.index.item_set import ItemSet
from jobyard.model.job import DEAD, DELAYED, DONE, LEASED, READY, Job
from jobyard.model.throttle.ordering_group import OrderingGroup, ordering_of
from jobyard.model.throttle.ready_lists import ReadyList, ReadyLists
from jobyard.model.throttle.settings import Group
from jobyard.model.topic.claim_set import CLAIM_SET_SIZE
from jobyard.model.topic.config import EPHEMERAL
from jobyard.model.topic.log import LogTopic
from jobyard.model.topic.txn import CHUNK_SIZE
from tests.support.engine.record_keys import key_memory


def stands_in_stream(job: Job) -> bool:
    """Return whether a ready job is in the heap of its queue and nowhere else."""
    return group_of(job) is None and job.ready_list == ReadyList.STREAM and not is_behind(job)


def is_behind(job: Job) -> bool:
    """Return whether a ready job waits in its ordering group."""
    part = part_of(job)
    return part is not None and part.ordering is not None and not part.is_standing


def part_of(job: Job) -> GlidePart | None:
    """Return the fields that only glide-mq jobs have."""
    return None if job.details is None else job.details.glide


def group_of(job: Job) -> Group | None:
    """Return the group a job waits in."""
    return None if job.details is None else job.details.group


def check_bag(item_set: ItemSet, jobs: list[Job]) -> None:
    assert {id(item) for item in item_set.items} == {id(job) for job in jobs}
    assert [int(item.pos) for item in item_set.items] == list(range(len(jobs)))


def recount_ready_lists(ready_lists: ReadyLists, jobs: list[Job]) -> None:
    ready = [job for job in jobs if job.state == READY and group_of(job) is None]
    assert ready_lists.staged_count == sum(job.ready_list == ReadyList.STAGED for job in ready)
    listed = sum(job.ready_list in (ReadyList.PROMOTED, ReadyList.LIFO) for job in ready)
    on_lists = len(ready_lists.promoted.items) + len(ready_lists.lifo.items)
    assert ready_lists.listed_apart == listed - on_lists
    for ready_list in (ReadyList.STAGED, ReadyList.PROMOTED, ReadyList.LIFO):
        heap = ready_lists.heap(ready_list)
        standing = [job for job in ready if job.ready_list == ready_list and not is_behind(job)]
        assert ids(heap) == sorted(int(job.id) for job in standing)
        check_heap(heap)
    check_heap(ready_lists.shut)
    named: set[str] = set()
    for job in jobs:
        part = part_of(job)
        if part is not None and part.ordering_key:
            named.add(part.ordering_key)
            assert part.ordering is ready_lists.orderings[part.ordering_key]
    assert set(ready_lists.orderings) == named
    for ordering in ready_lists.orderings.values():
        assert isinstance(ordering, OrderingGroup)
        _recount_ordering(ordering, [job for job in jobs if ordering_of(job.details) is ordering])


def _recount_ordering(ordering: OrderingGroup, jobs: list[Job]) -> None:
    live = [job for job in jobs if job.state not in (DEAD, DONE)]
    ready = [job for job in live if job.state == READY]
    assert ordering.jobs_count == len(jobs)
    assert ordering.slots_used == sum(job.deliveries > 0 for job in live)
    assert ordering.running == sum(job.state == LEASED for job in live)
    assert ids(ordering.waiting) == sorted(int(job.id) for job in ready if is_behind(job))
    check_heap(ordering.waiting)
    standing = sorted(int(job.id) for job in ready if not is_behind(job))
    assert sorted(int(job.id) for job in ordering.standing) == standing
    fronts = [job for job in ready if job.deliveries == 0 and not is_behind(job)]
    assert fronts == ([] if ordering.next_job is None else [ordering.next_job])
    # A job that waits for its children blocks no other.
    to_start = [job for job in live if job.deliveries == 0 and job.state in (READY, DELAYED)]
    orders = sorted(
        int(job.details.glide.order) for job in to_start if job.details and job.details.glide
    )
    first = ordering.next_to_start()
    if first is None:
        assert not orders
    else:
        assert first.details is not None
        assert first.details.glide is not None
        assert first.details.glide.order == orders[0]


def ids(heap: Heap) -> list[int]:
    return sorted(int(item.id) for item in heap.items if isinstance(item, Job))


def check_heap(heap: Heap) -> None:
    for slot, item in enumerate(heap.items):
        assert item.pos == slot
        above = heap.items[(slot - 1) // 2] if slot else item
        assert (above.sort_key, above.stamp) <= (item.sort_key, item.stamp)


def recount_glide_names(yard: Yard, jobs: list[Job]) -> None:
    """Compare the ids that clients of glide-mq chose with the jobs that have them."""
    own = [
        (job, job.ensure_details().custom_id) for job in jobs if job.family == GLIDE and job.details
    ]
    named = {glide_key(job.queue, name): job for job, name in own if name}
    assert dict(yard.names.glide.items()) == named
    for queue in yard.queues.values():
        chosen = {int(seq_of(name)) for job, name in own if job.queue is queue} - {0}
        held = queue.chosen.items() if queue.chosen is not None else []
        assert {seq for seq, _ in held} == chosen
        assert queue.chosen is None or held


def _result_held(job: Job) -> int:
    """Return how many bytes of a result are in memory, and check that they are counted."""
    outcome = None if job.details is None else job.details.outcome
    if outcome is None:
        return 0
    assert len(outcome.result) == outcome.result_counted
    assert outcome.result_counted in (0, outcome.result_size)
    return len(outcome.result)


def _values_held(job: Job) -> int:
    """Return how many bytes a job stores of its members and of errors, if they are counted."""
    details = job.details
    if details is None:
        return 0
    held = sum(len(member.value) for member in details.members or ())
    held += len(details.last_error)
    assert details.values_counted == held
    return held


def all_logs(yard: Yard) -> list[LogTopic]:
    """Return all logs, that of stages included."""
    stages = yard.txns.log
    return [*yard.logs.values(), *([] if stages is None else [stages])]


def recount_txns(yard: Yard) -> None:
    """Compare the counters of transactions with what is staged and remembered."""
    txns = yard.txns
    assert txns.held_offers is None
    memory = sum(int(decided.size()) for decided in txns.decided.values())
    memory += CLAIM_SET_SIZE * int(txns.fences.count())
    memory += sum(int(one.size()) for one in txns.claim_sets.values())
    rows = size = 0
    for txn in txns.open.values():
        assert txn.chunks
        memory += CHUNK_SIZE * len(txn.chunks)
        assert int(txn.rows) == sum(int(chunk.rows) for chunk in txn.chunks.values())
        assert int(txn.bytes) == sum(int(chunk.size) for chunk in txn.chunks.values())
        rows += int(txn.rows)
        size += int(txn.bytes)
    assert (int(txns.staged_rows), int(txns.staged_bytes)) == (rows, size)
    assert int(txns.memory) == memory
    leaving = sum(int(chunk.rows) for chunk in txns.leaving)
    if txns.log is not None:
        assert rows <= int(txns.log.count) <= rows + leaving
        assert int(txns.log.keys.count()) == sum(len(one.chunks) for one in txns.open.values())


def recount_bodies(yard: Yard, jobs: list[Job]) -> None:
    """Check that the bytes of bodies, results, texts and keys in memory are counted."""
    in_memory = sum(int(job.size) for job in jobs if job.body is not None)
    in_memory += sum(int(log.memory) for log in all_logs(yard))
    in_memory += sum(_result_held(job) for job in jobs)
    side = sum(int(key.weight) for key in yard.stored_values.keys.values())
    side += sum(_values_held(job) for job in jobs) + key_memory(yard)
    side += int(yard.txns.memory)
    assert yard.bodies.in_memory == in_memory + side
    ephemeral = [log for log in yard.logs.values() if log.config.durability == EPHEMERAL]
    assert yard.bodies.pinned == side + sum(int(log.memory) for log in ephemeral)
