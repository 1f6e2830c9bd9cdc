"""Jobs of glide-mq: how one enters, its id, and its state in the terms of glide-mq.

Its id was chosen by its client, unique within the queue, or else is its seq; so a queue of this
door always has its jobs by seq. The id of its entry in the stream is its stamp. All of this holds
for jobs of other families as well, except for chosen ids.

Refusals come before any effect: a job that may not enter takes no seq, no order and no name.
"""

from typing import Final, final

from mypy_extensions import i64, u8

from jobyard.engine.jobs.flows import is_suspended
from jobyard.engine.jobs.listing import jobs_by_seq_of
from jobyard.engine.jobs.put import NewJob, enter, intern, make_job, room_for
from jobyard.engine.jobs.put_transaction import reserve
from jobyard.engine.jobs.queues import keep_counting
from jobyard.engine.jobs.take import offer
from jobyard.engine.state.extension import Extension
from jobyard.engine.state.names import glide_key, seq_of
from jobyard.engine.state.yard import STAMP_SHIFT, Yard, abs_stamp
from jobyard.errors import CostExceeds, Duplicate, IdExhausted
from jobyard.journal.format.record import ENTRY_SIZE, NOTE_SIZE, STATE_SIZE
from jobyard.model.details import JobDetails
from jobyard.model.details_codec import FieldWriter, member_field, size_of
from jobyard.model.family import GLIDE
from jobyard.model.glidemq.fields import COST_DEFAULT, GlideFlag, GlidePart
from jobyard.model.job import BLOCKED, DEAD, DELAYED, DONE, GONE, GZIP, LEASED, RAW, READY, Job
from jobyard.model.lease import Holder, LeaseSet, Proof, Terms
from jobyard.model.limits import NEVER_MS
from jobyard.model.members import Member
from jobyard.model.policy import BACKOFF_PLAIN, LIFO, Policy
from jobyard.model.queue import Queue
from jobyard.model.throttle.ordering_group import ordering_of
from jobyard.model.throttle.ordering_throttle import OrderingLimits
from jobyard.model.throttle.ready_lists import ReadyList

NO_OPTS: Final = b"{}"

_STATES: Final = {
    LEASED: "active",
    DELAYED: "delayed",
    DONE: "completed",
    DEAD: "failed",
    GONE: "gone",
}

# Longer options are taken as specific to one job, and are not shared.
_OPTS_SHARED_MAX: Final = 256
# How many taken ids are skipped in the search for a free one.
_TRIES: Final = 1000
# Larger tables are cleared.
_TABLE_MAX: Final = 1024

# Two years; stays within 64 bits however often a backoff is doubled.
_BACKOFF_MAX_MS: Final = 1 << 36

# Leases of this door have no deadline; stalls are found by missing heartbeats.
_NO_DEADLINE_MS: Final = NEVER_MS // 2


@final
class Consumers(Holder):
    """Holds the leases of all workers, which outlive the connections they were taken through."""


@final
class GlideTables(Extension):
    """The tables that all connections of this door share."""

    def __init__(self, yard: Yard) -> None:
        super().__init__()
        self.lease_set: LeaseSet = yard.new_lease_set(Consumers())
        # By consumer; of jobs from the stream and from the lists.
        self._stream_terms: dict[str, Terms] = {}
        self._list_terms: dict[str, Terms] = {}
        # By name and options.
        self.policies: dict[tuple[str, bytes], Policy] = {}

    def terms(self, consumer: str, *, is_list: bool) -> Terms:
        """Return the terms on which a consumer takes jobs."""
        table = self._list_terms if is_list else self._stream_terms
        terms = table.get(consumer)
        if terms is None:
            if len(table) >= _TABLE_MAX:
                table.clear()
            proof = Proof.LISTED if is_list else Proof.ENTRY
            terms = Terms(GLIDE, proof, _NO_DEADLINE_MS, consumer)
            table[consumer] = terms
        return terms


def tables_of(yard: Yard) -> GlideTables:
    """Return the tables that the connections of this door share; create them on first use."""
    tables = yard.glide
    if tables is None:
        made = GlideTables(yard)
        yard.glide = made
        return made
    assert isinstance(tables, GlideTables)
    return tables


@final
class GlideJobSpec:
    """A job as its client describes it."""

    def __init__(self, name: str, data: bytes) -> None:
        self.name: str = name
        self.data: bytes = data
        self.opts: bytes = NO_OPTS
        # The client's clock: a label.
        self.ts: i64 = 0
        self.delay_ms: i64 = 0
        self.priority: i64 = 0
        self.max_attempts: i64 = 0
        self.backoff_kind: i64 = BACKOFF_PLAIN
        self.backoff_ms: i64 = 0
        # The longest time without a heartbeat of its worker; 0 if none was set.
        self.lock_ms: i64 = 0
        self.ttl_ms: i64 = 0
        self.custom_id: str = ""
        self.is_lifo: bool = False
        # Its ordering key, and the limits of that group; unused without a key.
        self.ordering: str = ""
        self.concurrency: i64 = 0
        self.rate_max: i64 = 0
        self.rate_ms: i64 = 0
        self.tb_capacity: i64 = 0
        self.tb_refill: i64 = 0
        self.cost: i64 = 0
        # Labels.
        self.parent_id: str = ""
        self.parent_queue: str = ""
        self.scheduler: str = ""
        # An existing job that is to wait for this one; its label is `label_head`, a colon, and
        # the id.
        self.parent: Job | None = None
        self.label_head: str = ""
        # Numbers that stored values use in their keys, so that no job gets them as its id; and
        # whether the chosen id is used so.
        self.taken: set[int] | None = None
        self.is_taken: bool = False


# -- entering ----------------------------------------------------------------------------------


def add(yard: Yard, queue: Queue, spec: GlideJobSpec, now_ms: i64) -> Job:
    """Add a job, and offer it to the first waiting client.

    Duplicate, CostExceeds, IdExhausted and YardFull change nothing.
    """
    if queue.jobs_by_seq is None:
        jobs_by_seq_of(queue)
    check(yard, queue, spec)
    seq = queue.next_seq
    if not spec.custom_id:
        seq = free_seq(queue, seq, spec.taken)
    new_job = new_job_for(yard, spec)
    parent = spec.parent
    room: i64 = 0 if parent is None else _room_to_link(parent, spec)
    _reserve(yard, queue, new_job, room, now_ms)
    job = enter_new_job(yard, queue, new_job, seq, now_ms)
    # A parent in the same full topic may have been evicted.
    if parent is not None and parent.state != GONE:
        _link(yard, parent, job, spec)
    if queue.first_link is not None:
        offer(yard, queue, now_ms)
    return job


def add_alike(yard: Yard, queue: Queue, new_job: NewJob, now_ms: i64) -> Job:
    """Add a job like `add`, but one that has only data and time of its own."""
    if queue.jobs_by_seq is None:
        jobs_by_seq_of(queue)
    seq = free_seq(queue, queue.next_seq, None)
    _reserve(yard, queue, new_job, 0, now_ms)
    job = enter_new_job(yard, queue, new_job, seq, now_ms)
    if queue.first_link is not None:
        offer(yard, queue, now_ms)
    return job


def _reserve(yard: Yard, queue: Queue, new_job: NewJob, more: i64, now_ms: i64) -> None:
    """Reserve room for a new job, and `more` bytes of the journal."""
    room = room_for(queue, new_job) + counting_room(queue) + more
    reserve(yard, queue, 1, len(new_job.body), room, now_ms)


def _link(yard: Yard, parent: Job, child: Job, spec: GlideJobSpec) -> None:
    """Make a parent wait for its new child; both are written in one batch."""
    fields = FieldWriter()
    member_field(fields, Member(child.id, f"{spec.label_head}:{id_of(child)}"))
    yard.note(parent, fields.done(), is_needed=True)
    if parent.state not in (DEAD, DONE):
        yard.names.wait_for(parent, child.id)


def _room_to_link(parent: Job, spec: GlideJobSpec) -> i64:
    details = parent.details
    whole: i64 = 0 if details is None else size_of(details)
    label_size: i64 = 4 * (len(spec.label_head) + len(spec.custom_id)) + 64
    return NOTE_SIZE + STATE_SIZE + whole + label_size


def check(yard: Yard, queue: Queue, spec: GlideJobSpec) -> None:
    """Refuse a job with a cost above its capacity, or with an id that is taken."""
    if spec.ordering and spec.tb_capacity > 0:
        cost = spec.cost if spec.cost > 0 else COST_DEFAULT
        if cost > spec.tb_capacity:
            raise CostExceeds
    chosen = spec.custom_id
    if chosen and (spec.is_taken or find(yard, queue, chosen) is not None):
        raise Duplicate


def free_seq(queue: Queue, seq: i64, taken: set[int] | None) -> i64:
    """Return the first seq from `seq` on that is not the chosen id of a job, and not taken."""
    chosen = queue.chosen
    if chosen is None and not taken:
        return seq
    last: i64 = seq + _TRIES
    while (chosen is not None and chosen.has(int(seq))) or (taken and int(seq) in taken):
        seq += 1
        if seq == last:
            raise IdExhausted
    return seq


def codec_of(data: bytes) -> u8:
    """Return the codec of data; whether they are JSON is checked only when another door reads."""
    return GZIP if data[:3] == b"gz:" else RAW


def new_job_for(
    yard: Yard, spec: GlideJobSpec, *, is_expectant: bool = False, is_child: bool = False
) -> NewJob:
    """Return the new job for a description; its place in its ordering group is set on entry.

    A child may be described before its parent has an id.
    """
    new_job = NewJob(GLIDE, codec_of(spec.data), spec.data)
    new_job.rank = spec.priority
    if not is_expectant:
        new_job.delay_ms = spec.delay_ms
    new_job.own_ms = spec.ts
    has_part = bool(spec.ordering or spec.parent_id or spec.scheduler or spec.cost > 0)
    has_part = has_part or is_expectant or is_child
    has_opts = spec.opts != NO_OPTS and (has_part or not _is_shared(spec.opts))
    new_job.policy = policy_for(yard, spec, b"" if has_opts else spec.opts)
    if has_part or has_opts:
        details = JobDetails()
        details.glide = _part_for(spec, has_opts=has_opts)
        if is_expectant:
            details.glide.flags = GlideFlag.EXPECTANT
            if spec.delay_ms > 0:
                # It is ready as soon as its children are done: its delay is only shown.
                details.glide.set_field(b"delay", str(int(spec.delay_ms)).encode())
        new_job.details = details
    if spec.custom_id:
        if new_job.details is None:
            new_job.details = JobDetails()
        new_job.details.custom_id = spec.custom_id
    return new_job


def _part_for(spec: GlideJobSpec, *, has_opts: bool) -> GlidePart:
    part = GlidePart()
    if has_opts:
        part.opts = spec.opts
    part.parent_id = spec.parent_id
    part.parent_queue = spec.parent_queue
    part.scheduler = spec.scheduler
    part.cost = spec.cost
    if spec.ordering:
        part.ordering_key = spec.ordering
        part.limits = OrderingLimits(
            spec.concurrency,
            spec.rate_max,
            spec.rate_ms,
            spec.tb_capacity,
            spec.tb_refill,
        )
    return part


def enter_new_job(yard: Yard, queue: Queue, new_job: NewJob, seq: i64, now_ms: i64) -> Job:
    """Add a new job with this seq, as the last of its ordering group; room was reserved."""
    queue.next_seq = seq
    details = new_job.details
    if details is not None and details.glide is not None and details.glide.ordering_key:
        details.glide.order = _last_order(queue, details.glide.ordering_key) + 1
    yard.now_ms = max(yard.now_ms, now_ms)
    if not queue.is_counted:
        keep_counting(yard, queue)
    return enter(yard, make_job(queue, new_job), now_ms)


def counting_room(queue: Queue) -> i64:
    """Return the most journal bytes that `keep_counting` takes for a queue."""
    # A name takes at most four bytes per character.
    return 0 if queue.is_counted else ENTRY_SIZE + 4 * len(queue.name)


def _last_order(queue: Queue, name: str) -> i64:
    rules = queue.rules
    if rules is None or rules.ready_lists is None:
        return 0
    ordering = rules.ready_lists.orderings.get(name)
    return 0 if ordering is None else ordering.last_order


def _is_shared(opts: bytes) -> bool:
    """Return whether other jobs are likely to have the same options."""
    return len(opts) <= _OPTS_SHARED_MAX and b'"jobId"' not in opts and b'"id"' not in opts


def policy_for(yard: Yard, spec: GlideJobSpec, opts: bytes) -> Policy:
    """Return the policy of a job with these options, which may not be in the journal yet."""
    policies = tables_of(yard).policies
    key = (spec.name, opts)
    policy = policies.get(key)
    if policy is not None and _asks_for(policy, spec) and _is_known(yard, policy):
        return policy
    policy = Policy(0)
    policy.name = spec.name
    policy.max_attempts = spec.max_attempts
    policy.backoff_kind = spec.backoff_kind
    policy.backoff_ms = min(spec.backoff_ms, _BACKOFF_MAX_MS)
    policy.stall_ms = spec.lock_ms
    policy.ttl_ms = spec.ttl_ms
    policy.flags = LIFO if spec.is_lifo else 0
    policy.opts = b"" if opts == NO_OPTS else opts
    policy = intern(yard, policy)
    if len(policies) >= _TABLE_MAX:
        policies.clear()
    policies[key] = policy
    return policy


def _is_known(yard: Yard, policy: Policy) -> bool:
    """Return whether the yard still has a policy, even one without jobs yet."""
    return policy.number != 0 or yard.policies.get(policy.text) is policy


def _asks_for(policy: Policy, spec: GlideJobSpec) -> bool:
    return (
        policy.max_attempts == spec.max_attempts
        and policy.ttl_ms == spec.ttl_ms
        and (policy.flags & LIFO != 0) == spec.is_lifo
        and policy.backoff_kind == spec.backoff_kind
        and policy.backoff_ms == min(spec.backoff_ms, _BACKOFF_MAX_MS)
        and policy.stall_ms == spec.lock_ms
    )


# -- names and states --------------------------------------------------------------------------


def is_own(job: Job) -> bool:
    """Return whether glide-mq clients put a job: they see those of all families."""
    return job.family == GLIDE


def find(yard: Yard, queue: Queue, job_id: str) -> Job | None:
    """Return a job of a queue by its id at this door."""
    job = yard.names.glide.get(glide_key(queue, job_id))
    if job is not None and job.id >= job.queue.gone_before:
        return job
    seq = seq_of(job_id)
    if seq == 0:
        return None
    job = jobs_by_seq_of(queue).find(seq)
    if job is None or (is_own(job) and job.details is not None and job.details.custom_id):
        return None
    return job


def id_of(job: Job) -> str:
    """Return the id of a job at this door."""
    details = job.details
    if is_own(job) and details is not None and details.custom_id:
        return details.custom_id
    return str(int(job.key))


def id_bytes(job: Job) -> bytes:
    """Return the id of a job at this door, as bytes to send."""
    details = job.details
    if details is None:
        return str(int(job.key)).encode()
    return id_of(job).encode("utf-8", "surrogateescape")


def entry_of(job: Job) -> str:
    """Return the id of a job's entry in the stream."""
    return entry_text(job.stamp)


def entry_text(stamp: i64) -> str:
    """Return a stamp as the id of an entry."""
    stamp = abs_stamp(stamp)
    return f"{int(stamp >> STAMP_SHIFT)}-{int(stamp & ((1 << STAMP_SHIFT) - 1))}"


def state_of(job: Job) -> str:
    """Return the state of a job as glide-mq names it."""
    state = job.state
    if state == READY:
        return _ready_state(job)
    if state == BLOCKED:
        return "suspended" if is_suspended(job) else "waiting-children"
    return _STATES[int(state)]


def _ready_state(job: Job) -> str:
    if job.ready_list == ReadyList.STAGED:
        # A job that was taken before counts as delayed: it was retried, maybe with delay 0.
        is_new = job.delay_ms == 0 and job.deliveries == 0
        return "prioritized" if job.rank > 0 and is_new else "delayed"
    ordering = ordering_of(job.details)
    return "waiting" if ordering is None or not ordering.is_parked(job) else "group-waiting"


def opts_of(job: Job) -> bytes:
    """Return the options of a job as they were given."""
    details = job.details
    if details is not None and details.glide is not None and details.glide.opts:
        return details.glide.opts
    return job.policy.opts or NO_OPTS
