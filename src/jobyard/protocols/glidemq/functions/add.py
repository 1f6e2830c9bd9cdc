"""Functions of producers: add a job, add it unless it is a duplicate, add a flow; pause a queue.

Everything is checked before the first effect, so that a refused call leaves nothing behind: no
number of an ordering key, no id, no queue.
"""

from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from jobyard.engine.glidemq import add as glide_add
from jobyard.engine.glidemq import move as glide_move
from jobyard.engine.glidemq import stored_values
from jobyard.engine.glidemq.add import GlideJobSpec
from jobyard.engine.glidemq.flows import Child, FlowLink
from jobyard.engine.glidemq.flows import add_flow as put_flow
from jobyard.engine.jobs.move import erase
from jobyard.engine.jobs.queues import drop_if_idle, open_queue, set_paused, settings_of
from jobyard.errors import CostExceeds, Duplicate, IdExhausted, Refused, YardFull
from jobyard.model.job import Job
from jobyard.model.queue import Queue
from jobyard.protocols.glidemq.errors import Wrong
from jobyard.protocols.glidemq.function_call import TIME_MAX, Fcall
from jobyard.protocols.glidemq.functions.dedup import added_ms, forget_old
from jobyard.protocols.glidemq.functions.options import fill_from_options, read_backoff
from jobyard.protocols.glidemq.keyspace import key_parts
from jobyard.protocols.glidemq.keyspace.key_parts import KeyPlace
from jobyard.protocols.glidemq.keyspace.views.job import shown_state
from jobyard.protocols.glidemq.keyspace.views.sets import is_scheduled
from jobyard.protocols.glidemq.keyspace.views.writes import job_of_member
from jobyard.protocols.glidemq.many_arguments import read_each
from jobyard.protocols.glidemq.number_text import NUMBER_MAX
from jobyard.wire.json.write import write_texts
from jobyard.wire.resp.write import write_bulk

if TYPE_CHECKING:
    from jobyard.engine.jobs.put import NewJob

LIBRARY_VERSION: Final = "93"
COST_EXCEEDS: Final = "ERR:COST_EXCEEDS_CAPACITY"
ID_EXHAUSTED: Final = "ERR:ID_EXHAUSTED"
DUPLICATE: Final = "duplicate"
SKIPPED: Final = "skipped"
DRAINING: Final = "ERR the server is draining and takes no new jobs"

# A priority is the upper bits of a score, which is a double: there is no room for more of them.
GLIDE_PRIORITY_MAX: Final = 2048
GLIDE_ATTEMPTS_MAX: Final = 1 << 31
TOKENS_MAX: Final = 1 << 40
# Upper bound of what a deduplication entry and the record of its job take in addition to the
# client's data; less than a transaction keeps free for one call.
_DEDUP_ROOM: Final = 2560
_ORDERING_KEY_MAX: Final = 256
_CHILD_KEYS: Final = 4
_CHILD_ARGS: Final = 9
_PARENT_ARGS: Final = 9
# Children of a flow, which are all added at one moment, and the cost of reading one.
FLOW_MAX: Final = 2000
_CHILD_UNITS: Final = 6


def version(call: Fcall) -> None:
    """Answer with the library version, which clients compare with their own."""
    call.answer(LIBRARY_VERSION)


def add_job(call: Fcall) -> None:
    """Add one job."""
    _check_open(call)
    place = _check_keys(call, 0)
    parent = _parent(call, 4)
    spec = read_spec(call, 0)
    spec.scheduler = call.text(19)
    _heed_hashes(call, place, spec)
    _link_to(spec, parent, place)
    job = _add(call, place, spec, is_quiet=call.is_set(20))
    if job is None:
        return
    if call.args_count > 21:
        _note_budget(call, [job], 21)
    call.answer(glide_add.id_of(job))


def _note_budget(call: Fcall, jobs: list[Job], at: i64) -> None:
    """Store the budget of new jobs, which later clients read from the job."""
    if call.arg(at):
        for job in jobs:
            glide_move.set_fields(call.yard, job, {b"budgetKey": call.arg(at)})


def _check_open(call: Fcall) -> None:
    """Refuse new jobs while the server is draining."""
    if call.door.is_draining:
        raise Wrong(DRAINING)


def _check_keys(call: Fcall, first: i64) -> KeyPlace:
    """Return the queue that four consecutive keys belong to."""
    place = call.place(first, key_parts.KeyPart.ID)
    call.same_queue(first + 1, key_parts.KeyPart.STREAM, place)
    call.same_queue(first + 2, key_parts.KeyPart.SCHEDULED, place)
    call.same_queue(first + 3, key_parts.KeyPart.EVENTS, place)
    return place


def read_spec(call: Fcall, first: i64) -> GlideJobSpec:
    """Parse a job from the seventeen arguments from `first` on."""
    spec = GlideJobSpec(call.text(first), call.arg(first + 1))
    spec.opts = call.arg(first + 2) or glide_add.NO_OPTS
    spec.ts = call.number(first + 3, TIME_MAX, "timestamp")
    spec.delay_ms = call.number(first + 4, TIME_MAX, "delay")
    spec.priority = call.number(first + 5, GLIDE_PRIORITY_MAX, "priority")
    spec.parent_id = call.text(first + 6)
    spec.max_attempts = call.number(first + 7, GLIDE_ATTEMPTS_MAX, "maxAttempts")
    spec.ordering = call.text(first + 8)
    spec.concurrency = call.number(first + 9, GLIDE_ATTEMPTS_MAX, "groupConcurrency")
    spec.rate_max = call.number(first + 10, GLIDE_ATTEMPTS_MAX, "groupRateMax")
    spec.rate_ms = call.number(first + 11, TIME_MAX, "groupRateDuration")
    spec.tb_capacity = call.number(first + 12, TOKENS_MAX, "tbCapacity")
    spec.tb_refill = call.number(first + 13, TOKENS_MAX, "tbRefillRate")
    spec.cost = call.number(first + 14, TOKENS_MAX, "jobCost")
    spec.ttl_ms = call.number(first + 15, TIME_MAX, "ttl")
    spec.custom_id = call.text(first + 16)
    spec.is_lifo = call.number_or(first + 17, 0, "lifo") > 0
    spec.parent_queue = call.text(first + 18)
    check_spec(spec)
    return spec


def check_spec(spec: GlideJobSpec) -> None:
    """Check that a job is valid, and read its options."""
    if spec.opts != glide_add.NO_OPTS:
        read_backoff(spec)
    if spec.custom_id and not key_parts.is_job_id(spec.custom_id):
        raise Wrong("ERR invalid job id")
    if len(spec.ordering) > _ORDERING_KEY_MAX:
        raise Wrong("ERR ordering key too long")
    if spec.ts + spec.delay_ms > TIME_MAX:
        raise Wrong("ERR delay out of range")


def _add(call: Fcall, place: KeyPlace, spec: GlideJobSpec, *, is_quiet: bool) -> Job | None:
    """Add a job; None if it was refused, which has been answered then."""
    events = call.events
    events.ring_of(place.queue_name)
    queue = open_queue(call.yard, place.queue_name)
    events.is_quiet = is_quiet
    try:
        return glide_add.add(call.yard, queue, spec, call.now_ms)
    except Refused as error:
        events.forget_unused(place.queue_name)
        drop_if_idle(call.yard, queue)
        call.answer(_words_of(error))
        return None
    finally:
        events.is_quiet = False


def _words_of(error: Refused) -> str:
    """Return the library's answer to a refused job; raise refusals that it does not know."""
    if isinstance(error, Duplicate):
        return DUPLICATE
    if isinstance(error, CostExceeds):
        return COST_EXCEEDS
    if isinstance(error, IdExhausted):
        return ID_EXHAUSTED
    raise error


def _heed_hashes(call: Fcall, place: KeyPlace, spec: GlideJobSpec) -> None:
    """Record which ids belong to stored hashes without a job, which a new job must not hide."""
    keys = call.yard.stored_values
    if keys.keys.count == 0:
        return
    head = place.job_head()
    if spec.custom_id:
        name = head + b":" + key_parts.bytes_of(spec.custom_id)
        spec.is_taken = stored_values.find(call.yard, name, call.now_ms) is not None
    else:
        spec.taken = keys.numbered.get(head)


def _link_to(spec: GlideJobSpec, parent: Job | None, place: KeyPlace) -> None:
    """Make an existing parent wait for the new job from the start."""
    if parent is not None:
        spec.parent = parent
        spec.label_head = place.tag()


def _parent(call: Fcall, deps_at: i64) -> Job | None:
    """Return the parent that has to wait for the new job."""
    if call.keys_count <= deps_at:
        return None
    deps = call.place(deps_at, key_parts.KeyPart.DEPS)
    queue = call.yard.queues.get(deps.queue_name)
    return None if queue is None else glide_add.find(call.yard, queue, deps.rest)


# -- deduplication -----------------------------------------------------------------------------


def dedup(call: Fcall) -> None:
    """Add one job unless it is a duplicate."""
    _check_open(call)
    place = _check_keys(call, 1)
    if not place.is_sibling(call.key(0), key_parts.KeyPart.DEDUP):
        raise Wrong("ERR wrong key at 1")
    parent = _parent(call, 5)
    mode = call.arg(2)
    if mode not in (b"simple", b"throttle", b"debounce"):
        raise Wrong("ERR unknown deduplication mode")
    ttl_ms = call.number(1, TIME_MAX, "ttl")
    spec = read_spec(call, 3)
    _heed_hashes(call, place, spec)
    _link_to(spec, parent, place)
    # Reserve room for the dedup entry first: it is written last and must share a batch with the new
    # job and the removal of the old one.
    size: i64 = len(call.key(0)) + len(call.arg(0)) + _DEDUP_ROOM
    stored_values.admit(call.yard, size, size + len(spec.data) + len(spec.opts))
    queue = call.yard.queues.get(place.queue_name)
    if queue is not None and _is_skipped(call, queue, spec, mode, ttl_ms):
        call.answer(SKIPPED)
        return
    job = _add(call, place, spec, is_quiet=call.is_set(22))
    if job is None:
        return
    entry = f"{glide_add.id_of(job)}:{int(spec.ts)}".encode()
    stored_values.set_fields(call.yard, call.key(0), {call.arg(0): entry}, call.now_ms)
    marks = call.door.dedup_marks
    forget_old(call.yard, marks, call.key(0), job.queue.name, spec.ts, call.now_ms)
    call.answer(glide_add.id_of(job))


def _is_skipped(call: Fcall, queue: Queue, spec: GlideJobSpec, mode: bytes, ttl_ms: i64) -> bool:
    """Return whether a job is a duplicate; remove an existing job that it replaces."""
    table = stored_values.find(call.yard, call.key(0), call.now_ms)
    entry = None if table is None else table.table.get(call.arg(0))
    if entry is None:
        return False
    old_id = entry.partition(b":")[0]
    if mode == b"throttle":
        added = added_ms(entry)
        return ttl_ms > 0 and added >= 0 and spec.ts - added < ttl_ms
    job = glide_add.find(call.yard, queue, key_parts.text_of(old_id))
    if job is None or shown_state(job) in (b"completed", b"failed"):
        return False
    if mode == b"simple" or not is_scheduled(job):
        return True
    if spec.is_taken or spec.custom_id != glide_add.id_of(job):
        # A job that would be refused replaces nothing.
        try:
            glide_add.check(call.yard, queue, spec)
            if not spec.custom_id:
                glide_add.free_seq(queue, queue.next_seq, spec.taken)
        except (Duplicate, CostExceeds, IdExhausted):
            return False
    erase(call.yard, job, call.now_ms)
    return False


# -- flows -------------------------------------------------------------------------------------


def add_flow(call: Fcall) -> None:
    """Add a parent and the children it waits for, all or none."""
    _check_open(call)
    count = call.number(7, NUMBER_MAX, "numChildren")
    if call.keys_count != 4 + count * _CHILD_KEYS:
        raise Wrong("ERR wrong number of keys")
    links_at = _PARENT_ARGS + count * _CHILD_ARGS
    links_count = call.number_or(links_at, 0, "numExtraDeps")
    if call.args_count not in (links_at, links_at + 1 + links_count, links_at + 2 + links_count):
        raise Wrong("ERR wrong number of arguments")
    if count + links_count > FLOW_MAX:
        raise Wrong(
            f"ERR a flow can have at most {FLOW_MAX} children, because it is added as a whole: "
            "add more with addJob, which can name a parent"
        )
    flow = FlowAdd(call, int(links_count))
    read_each(call.call, count, flow.read, lambda _: flow.enter(), _CHILD_UNITS)


@final
class FlowAdd:
    """A flow being added: its children are read in slices and all added at once."""

    def __init__(self, call: Fcall, links_count: int) -> None:
        self._call = call
        self._links_count = links_count
        self._place = _check_keys(call, 0)
        self._parent = _read_parent(call)
        self._places: list[KeyPlace] = []
        self._specs: list[GlideJobSpec] = []
        self._new_jobs: list[NewJob] = []
        self._heads: list[str] = []

    def read(self, start: int, end: int) -> int:
        """Read some children; the yard does not change."""
        call = self._call
        for at in range(start, end):
            place = _check_keys(call, 4 + at * _CHILD_KEYS)
            first = _PARENT_ARGS + at * _CHILD_ARGS
            self._places.append(place)
            spec = _read_child(call, first, self._parent.ts)
            self._specs.append(spec)
            self._new_jobs.append(glide_add.new_job_for(call.yard, spec, is_child=True))
            self._heads.append(call.text(first + 6) or place.tag())
        return 0

    def enter(self) -> None:
        """Add all jobs, or none."""
        call = self._call
        # Turns may have passed since the request.
        call.now_ms = call.call.now_ms
        _check_open(call)
        _heed_hashes(call, self._place, self._parent)
        queues: list[Queue] = []
        children: list[Child] = []
        links_at: i64 = _PARENT_ARGS + len(self._places) * _CHILD_ARGS
        links = [_link(call, call.text(links_at + 1 + each)) for each in range(self._links_count)]
        for each in range(len(self._places)):
            place = self._places[each]
            _heed_hashes(call, place, self._specs[each])
            queues.append(open_queue(call.yard, place.queue_name))
            spec, new_job = self._specs[each], self._new_jobs[each]
            children.append(Child(queues[each], spec, self._heads[each], new_job))
        queue = open_queue(call.yard, self._place.queue_name)
        involved = list(dict.fromkeys([queue, *queues]))
        for one in involved:
            call.events.ring_of(one.name)
        try:
            jobs = put_flow(call.yard, queue, self._parent, children, links, call.now_ms)
        except Refused as error:
            _refuse_flow(call, involved, error)
            return
        _note_budget(call, jobs, links_at + 1 + self._links_count)
        _answer_json(call, [glide_add.id_of(job) for job in jobs])


def _refuse_flow(call: Fcall, queues: list[Queue], error: Refused) -> None:
    """Undo what a refused flow left behind, and answer with the reason."""
    for queue in queues:
        call.events.forget_unused(queue.name)
        if call.yard.queues.get(queue.name) is queue:
            drop_if_idle(call.yard, queue)
    text = _words_of(error)
    if text == COST_EXCEEDS:
        call.answer(text)
    else:
        _answer_json(call, [text])


def _answer_json(call: Fcall, texts: list[str]) -> None:
    out = BytesWriter()
    write_texts(out, texts)
    write_bulk(call.out, out.getvalue())


def _link(call: Fcall, label: str) -> FlowLink:
    """Return an existing child by its label, as the flow's parent names it."""
    return FlowLink(label, job_of_member(call.yard, label))


def _read_parent(call: Fcall) -> GlideJobSpec:
    parent = GlideJobSpec(call.text(0), call.arg(1))
    parent.opts = call.arg(2) or glide_add.NO_OPTS
    parent.ts = call.number(3, TIME_MAX, "timestamp")
    parent.delay_ms = call.number(4, TIME_MAX, "delay")
    parent.priority = call.number(5, GLIDE_PRIORITY_MAX, "priority")
    parent.max_attempts = call.number(6, GLIDE_ATTEMPTS_MAX, "maxAttempts")
    parent.custom_id = call.text(8)
    fill_from_options(parent)
    check_spec(parent)
    return parent


def _read_child(call: Fcall, first: i64, ts: i64) -> GlideJobSpec:
    child = GlideJobSpec(call.text(first), call.arg(first + 1))
    child.opts = call.arg(first + 2) or glide_add.NO_OPTS
    child.ts = ts
    child.delay_ms = call.number(first + 3, TIME_MAX, "delay")
    child.priority = call.number(first + 4, GLIDE_PRIORITY_MAX, "priority")
    child.max_attempts = call.number(first + 5, GLIDE_ATTEMPTS_MAX, "maxAttempts")
    child.parent_queue = call.text(first + 7)
    child.custom_id = call.text(first + 8)
    fill_from_options(child)
    check_spec(child)
    return child


# -- pause -------------------------------------------------------------------------------------


def pause(call: Fcall) -> None:
    """Pause a queue, at every door."""
    _set_paused(call, is_paused=True)


def resume(call: Fcall) -> None:
    """Resume a queue."""
    _set_paused(call, is_paused=False)


def _set_paused(call: Fcall, *, is_paused: bool) -> None:
    place = call.place(0, key_parts.KeyPart.META)
    call.same_queue(1, key_parts.KeyPart.EVENTS, place)
    call.events.ring_of(place.queue_name)
    queue = open_queue(call.yard, place.queue_name)
    was_paused = settings_of(queue).is_paused
    set_paused(call.yard, queue, call.now_ms, is_paused=is_paused)
    if not is_paused:
        _show_resumed(call)
    if was_paused == is_paused:
        drop_if_idle(call.yard, queue)
        kind = b"paused" if is_paused else b"resumed"
        call.events.publish(queue, kind, b"0", [], call.now_ms)
    call.answer_number(1)


def _show_resumed(call: Fcall) -> None:
    """Store that a queue is not paused: clients read this field in both cases."""
    try:
        stored_values.set_fields(call.yard, call.key(0), {b"paused": b"0"}, call.now_ms)
    except YardFull:
        # A missing field means the same as zero, and resuming must work without free space.
        return
