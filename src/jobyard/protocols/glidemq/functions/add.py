"""The functions of producers: one job, one unless there is one like it, a flow of jobs; pause.

Everything is checked before the first effect, so that what is refused leaves nothing behind: no
number of an ordering key, no id, no queue.
"""

from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from jobyard.engine.glidemq import add as glide_add
from jobyard.engine.glidemq import move as glide_move
from jobyard.engine.glidemq import stored_values
from jobyard.engine.glidemq.add import Adding
from jobyard.engine.glidemq.flows import Child, Tie
from jobyard.engine.glidemq.flows import add_flow as put_flow
from jobyard.engine.jobs.move import erase
from jobyard.engine.jobs.queues import drop_if_idle, open_queue, set_paused, settings_of
from jobyard.errors import CostExceeds, Duplicate, IdExhausted, Refused, YardFull
from jobyard.model.job import Job
from jobyard.model.queue import Queue
from jobyard.protocols.glidemq.errors import Wrong
from jobyard.protocols.glidemq.function_call import NUMBER_MAX, TIME_MAX, Fcall
from jobyard.protocols.glidemq.functions.dedup import added_ms, forget_old
from jobyard.protocols.glidemq.functions.options import fill_from_options, read_backoff
from jobyard.protocols.glidemq.keyspace import key_parts
from jobyard.protocols.glidemq.keyspace.key_parts import Place
from jobyard.protocols.glidemq.keyspace.views.job import shown_state
from jobyard.protocols.glidemq.keyspace.views.sets import is_scheduled
from jobyard.protocols.glidemq.keyspace.views.writes import job_of_member
from jobyard.protocols.glidemq.many_arguments import read_each
from jobyard.wire.json.write import write_texts
from jobyard.wire.resp.write import write_bulk

if TYPE_CHECKING:
    from jobyard.engine.jobs.put import Wish

VERSION: Final = "93"
COST_EXCEEDS: Final = "ERR:COST_EXCEEDS_CAPACITY"
ID_EXHAUSTED: Final = "ERR:ID_EXHAUSTED"
DUPLICATE: Final = "duplicate"
SKIPPED: Final = "skipped"
DRAINING: Final = "ERR the server is draining and takes no new jobs"

# Priorities are the upper bits of a score that is a double: there is no room for more of them.
PRIORITY_MAX: Final = 2048
ATTEMPTS_MAX: Final = 1 << 31
TOKENS_MAX: Final = 1 << 40
# What a note of deduplication and the record of its job take beside what a client said, at most;
# less than a transaction keeps free for one call.
_DEDUP_ROOM: Final = 2560
_ORDERING_KEY_MAX: Final = 256
_CHILD_KEYS: Final = 4
_CHILD_ARGS: Final = 9
_PARENT_ARGS: Final = 9
# Children of a flow, which enter at one moment, and what it takes to read one.
FLOW_MAX: Final = 2000
_CHILD_UNITS: Final = 6


def version(call: Fcall) -> None:
    """Tell which library this is, as clients compare it with their own."""
    call.answer(VERSION)


def add_job(call: Fcall) -> None:
    """Add one job."""
    _check_open(call)
    place = _check_keys(call, 0)
    parent = _parent(call, 4)
    adding = read_adding(call, 0)
    adding.scheduler = call.text(19)
    _heed_hashes(call, place, adding)
    _tie_to(adding, parent, place)
    job = _add(call, place, adding, is_quiet=call.is_set(20))
    if job is None:
        return
    if call.args_count > 21:
        _note_budget(call, [job], 21)
    call.answer(glide_add.id_of(job))


def _note_budget(call: Fcall, jobs: list[Job], at: i64) -> None:
    """Note of new jobs which budget is theirs, as later clients ask for with the jobs."""
    if call.arg(at):
        for job in jobs:
            glide_move.set_fields(call.yard, job, {b"budgetKey": call.arg(at)})


def _check_open(call: Fcall) -> None:
    """Refuse what is new while the server only works off what it has."""
    if call.door.is_draining:
        raise Wrong(DRAINING)


def _check_keys(call: Fcall, first: i64) -> Place:
    """Return the queue that four keys in a row are of."""
    place = call.place(first, key_parts.ID)
    call.same_queue(first + 1, key_parts.STREAM, place)
    call.same_queue(first + 2, key_parts.SCHEDULED, place)
    call.same_queue(first + 3, key_parts.EVENTS, place)
    return place


def read_adding(call: Fcall, first: i64) -> Adding:
    """Return what the seventeen arguments from `first` on ask for."""
    adding = Adding(call.text(first), call.arg(first + 1))
    adding.opts = call.arg(first + 2) or glide_add.NO_OPTS
    adding.ts = call.number(first + 3, TIME_MAX, "timestamp")
    adding.delay_ms = call.number(first + 4, TIME_MAX, "delay")
    adding.priority = call.number(first + 5, PRIORITY_MAX, "priority")
    adding.parent_id = call.text(first + 6)
    adding.max_attempts = call.number(first + 7, ATTEMPTS_MAX, "maxAttempts")
    adding.lane = call.text(first + 8)
    adding.concurrency = call.number(first + 9, ATTEMPTS_MAX, "groupConcurrency")
    adding.rate_max = call.number(first + 10, ATTEMPTS_MAX, "groupRateMax")
    adding.rate_ms = call.number(first + 11, TIME_MAX, "groupRateDuration")
    adding.tb_capacity = call.number(first + 12, TOKENS_MAX, "tbCapacity")
    adding.tb_refill = call.number(first + 13, TOKENS_MAX, "tbRefillRate")
    adding.cost = call.number(first + 14, TOKENS_MAX, "jobCost")
    adding.ttl_ms = call.number(first + 15, TIME_MAX, "ttl")
    adding.custom_id = call.text(first + 16)
    adding.is_lifo = call.number_or(first + 17, 0, "lifo") > 0
    adding.parent_queue = call.text(first + 18)
    check_adding(adding)
    return adding


def check_adding(adding: Adding) -> None:
    """See that a job may be what it is asked to be, and note what its options say."""
    if adding.opts != glide_add.NO_OPTS:
        read_backoff(adding)
    if adding.custom_id and not key_parts.is_job_id(adding.custom_id):
        raise Wrong("ERR invalid job id")
    if len(adding.lane) > _ORDERING_KEY_MAX:
        raise Wrong("ERR ordering key too long")
    if adding.ts + adding.delay_ms > TIME_MAX:
        raise Wrong("ERR delay out of range")


def _add(call: Fcall, place: Place, adding: Adding, *, is_quiet: bool) -> Job | None:
    """Add a job; None if it may not enter, which is answered then."""
    events = call.events
    events.ring_of(place.queue_name)
    queue = open_queue(call.yard, place.queue_name)
    events.is_quiet = is_quiet
    try:
        return glide_add.add(call.yard, queue, adding, call.now_ms)
    except Refused as error:
        events.forget_unused(place.queue_name)
        drop_if_idle(call.yard, queue)
        call.answer(_words_of(error))
        return None
    finally:
        events.is_quiet = False


def _words_of(error: Refused) -> str:
    """Return the answer to what may not enter; what is no answer of the library is raised again."""
    if isinstance(error, Duplicate):
        return DUPLICATE
    if isinstance(error, CostExceeds):
        return COST_EXCEEDS
    if isinstance(error, IdExhausted):
        return ID_EXHAUSTED
    raise error


def _heed_hashes(call: Fcall, place: Place, adding: Adding) -> None:
    """Note which ids belong to hashes without a job, which a new job must not hide."""
    keys = call.yard.side
    if keys.keys.count == 0:
        return
    head = place.job_head()
    if adding.custom_id:
        name = head + b":" + key_parts.bytes_of(adding.custom_id)
        adding.is_taken = stored_values.find(call.yard, name, call.now_ms) is not None
    else:
        adding.taken = keys.numbered.get(head)


def _tie_to(adding: Adding, parent: Job | None, place: Place) -> None:
    """Let a job that is there wait for the one that is added, from its first moment on."""
    if parent is not None:
        adding.parent = parent
        adding.label_head = place.tag()


def _parent(call: Fcall, deps_at: i64) -> Job | None:
    """Return the job that is to wait for the one that is added."""
    if call.keys_count <= deps_at:
        return None
    deps = call.place(deps_at, key_parts.DEPS)
    queue = call.yard.queues.get(deps.queue_name)
    return None if queue is None else glide_add.find(call.yard, queue, deps.rest)


# -- not twice ---------------------------------------------------------------------------------


def dedup(call: Fcall) -> None:
    """Add one job unless another stands for it."""
    _check_open(call)
    place = _check_keys(call, 1)
    if not place.is_sibling(call.key(0), key_parts.DEDUP):
        raise Wrong("ERR wrong key at 1")
    parent = _parent(call, 5)
    mode = call.arg(2)
    if mode not in (b"simple", b"throttle", b"debounce"):
        raise Wrong("ERR unknown deduplication mode")
    ttl_ms = call.number(1, TIME_MAX, "ttl")
    adding = read_adding(call, 3)
    _heed_hashes(call, place, adding)
    _tie_to(adding, parent, place)
    # The entry comes last, and must not be what there is no room for; it lies in one batch with the
    # job, and with the end of the one it replaces.
    size: i64 = len(call.key(0)) + len(call.arg(0)) + _DEDUP_ROOM
    stored_values.admit(call.yard, size, size + len(adding.data) + len(adding.opts))
    queue = call.yard.queues.get(place.queue_name)
    if queue is not None and _is_skipped(call, queue, adding, mode, ttl_ms):
        call.answer(SKIPPED)
        return
    job = _add(call, place, adding, is_quiet=call.is_set(22))
    if job is None:
        return
    entry = f"{glide_add.id_of(job)}:{int(adding.ts)}".encode()
    stored_values.set_fields(call.yard, call.key(0), {call.arg(0): entry}, call.now_ms)
    marks = call.door.dedup_marks
    forget_old(call.yard, marks, call.key(0), job.queue.name, adding.ts, call.now_ms)
    call.answer(glide_add.id_of(job))


def _is_skipped(call: Fcall, queue: Queue, adding: Adding, mode: bytes, ttl_ms: i64) -> bool:
    """Tell whether another job stands for one; a job that the new one replaces is removed."""
    table = stored_values.find(call.yard, call.key(0), call.now_ms)
    entry = None if table is None else table.table.get(call.arg(0))
    if entry is None:
        return False
    old_id = entry.partition(b":")[0]
    if mode == b"throttle":
        added = added_ms(entry)
        return ttl_ms > 0 and added >= 0 and adding.ts - added < ttl_ms
    job = glide_add.find(call.yard, queue, key_parts.text_of(old_id))
    if job is None or shown_state(job) in (b"completed", b"failed"):
        return False
    if mode == b"simple" or not is_scheduled(job):
        return True
    if adding.is_taken or adding.custom_id != glide_add.id_of(job):
        # What may not enter replaces nothing.
        try:
            glide_add.check(call.yard, queue, adding)
            if not adding.custom_id:
                glide_add.free_seq(queue, queue.next_seq, adding.taken)
        except (Duplicate, CostExceeds, IdExhausted):
            return False
    erase(call.yard, job, call.now_ms)
    return False


# -- flows -------------------------------------------------------------------------------------


def add_flow(call: Fcall) -> None:
    """Add a job that waits for others, and those others, all or none."""
    _check_open(call)
    count = call.number(7, NUMBER_MAX, "numChildren")
    if call.keys_count != 4 + count * _CHILD_KEYS:
        raise Wrong("ERR wrong number of keys")
    ties_at = _PARENT_ARGS + count * _CHILD_ARGS
    ties_count = call.number_or(ties_at, 0, "numExtraDeps")
    if call.args_count not in (ties_at, ties_at + 1 + ties_count, ties_at + 2 + ties_count):
        raise Wrong("ERR wrong number of arguments")
    if count + ties_count > FLOW_MAX:
        raise Wrong(
            f"ERR a flow has at most {FLOW_MAX} children here, because it is added as a whole: "
            "add more with addJob, which may name a parent"
        )
    flow = Flow(call, int(ties_count))
    read_each(call.call, count, flow.read, lambda _: flow.enter(), _CHILD_UNITS)


@final
class Flow:
    """A flow that is being added: its children are read in slices, and all enter at once."""

    def __init__(self, call: Fcall, ties_count: int) -> None:
        self._call = call
        self._ties_count = ties_count
        self._place = _check_keys(call, 0)
        self._parent = _read_parent(call)
        self._places: list[Place] = []
        self._addings: list[Adding] = []
        self._wishes: list[Wish] = []
        self._heads: list[str] = []

    def read(self, start: int, end: int) -> int:
        """Read some children; nothing of the yard changes."""
        call = self._call
        for at in range(start, end):
            place = _check_keys(call, 4 + at * _CHILD_KEYS)
            first = _PARENT_ARGS + at * _CHILD_ARGS
            self._places.append(place)
            adding = _read_child(call, first, self._parent.ts)
            self._addings.append(adding)
            self._wishes.append(glide_add.wish_for(call.yard, adding, is_child=True))
            self._heads.append(call.text(first + 6) or place.tag())
        return 0

    def enter(self) -> None:
        """Add all of them, or none."""
        call = self._call
        # Turns may have passed since it was asked for.
        call.now_ms = call.call.now_ms
        _check_open(call)
        _heed_hashes(call, self._place, self._parent)
        queues: list[Queue] = []
        children: list[Child] = []
        ties_at: i64 = _PARENT_ARGS + len(self._places) * _CHILD_ARGS
        ties = [_tie(call, call.text(ties_at + 1 + each)) for each in range(self._ties_count)]
        for each in range(len(self._places)):
            place = self._places[each]
            _heed_hashes(call, place, self._addings[each])
            queues.append(open_queue(call.yard, place.queue_name))
            adding, wish = self._addings[each], self._wishes[each]
            children.append(Child(queues[each], adding, self._heads[each], wish))
        queue = open_queue(call.yard, self._place.queue_name)
        involved = list(dict.fromkeys([queue, *queues]))
        for one in involved:
            call.events.ring_of(one.name)
        try:
            jobs = put_flow(call.yard, queue, self._parent, children, ties, call.now_ms)
        except Refused as error:
            _refuse_flow(call, involved, error)
            return
        _note_budget(call, jobs, ties_at + 1 + self._ties_count)
        _answer_json(call, [glide_add.id_of(job) for job in jobs])


def _refuse_flow(call: Fcall, queues: list[Queue], error: Refused) -> None:
    """Leave nothing behind a flow that may not enter, and answer why."""
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


def _tie(call: Fcall, label: str) -> Tie:
    """Return one that is there already and is to be waited for, by the name parents give it."""
    return Tie(label, job_of_member(call.yard, label))


def _read_parent(call: Fcall) -> Adding:
    parent = Adding(call.text(0), call.arg(1))
    parent.opts = call.arg(2) or glide_add.NO_OPTS
    parent.ts = call.number(3, TIME_MAX, "timestamp")
    parent.delay_ms = call.number(4, TIME_MAX, "delay")
    parent.priority = call.number(5, PRIORITY_MAX, "priority")
    parent.max_attempts = call.number(6, ATTEMPTS_MAX, "maxAttempts")
    parent.custom_id = call.text(8)
    fill_from_options(parent)
    check_adding(parent)
    return parent


def _read_child(call: Fcall, first: i64, ts: i64) -> Adding:
    child = Adding(call.text(first), call.arg(first + 1))
    child.opts = call.arg(first + 2) or glide_add.NO_OPTS
    child.ts = ts
    child.delay_ms = call.number(first + 3, TIME_MAX, "delay")
    child.priority = call.number(first + 4, PRIORITY_MAX, "priority")
    child.max_attempts = call.number(first + 5, ATTEMPTS_MAX, "maxAttempts")
    child.parent_queue = call.text(first + 7)
    child.custom_id = call.text(first + 8)
    fill_from_options(child)
    check_adding(child)
    return child


# -- pause -------------------------------------------------------------------------------------


def pause(call: Fcall) -> None:
    """Let no job of a queue be taken, at any door."""
    _set_paused(call, is_paused=True)


def resume(call: Fcall) -> None:
    """Let jobs be taken again."""
    _set_paused(call, is_paused=False)


def _set_paused(call: Fcall, *, is_paused: bool) -> None:
    place = call.place(0, key_parts.META)
    call.same_queue(1, key_parts.EVENTS, place)
    call.events.ring_of(place.queue_name)
    queue = open_queue(call.yard, place.queue_name)
    was_paused = settings_of(queue).is_paused
    set_paused(call.yard, queue, call.now_ms, is_paused=is_paused)
    if not is_paused:
        _show_resumed(call)
    if was_paused == is_paused:
        drop_if_idle(call.yard, queue)
        kind = b"paused" if is_paused else b"resumed"
        call.events.tell(queue, kind, b"0", [], call.now_ms)
    call.answer_number(1)


def _show_resumed(call: Fcall) -> None:
    """Note that a queue is not paused, which clients read as well as that it is."""
    try:
        stored_values.set_fields(call.yard, call.key(0), {b"paused": b"0"}, call.now_ms)
    except YardFull:
        # Nothing is as good as a zero, and who has no room left must be able to resume.
        return
