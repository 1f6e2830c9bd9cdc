"""Jobs of glide-mq: how one enters, what it is called, and in which of its states it is.

Its id is the one its client chose, unique within the queue, or else its seq there; so a queue of
this door always has a roster. The id of its entry in the stream is its place in line. All of this
holds for jobs of other families as well, but for chosen ids.

Refusals come before any effect: a job that may not enter takes no seq, no order and no name.
"""

from typing import Final, final

from mypy_extensions import i64, u8

from jobyard.engine.jobs.flows import is_suspended
from jobyard.engine.jobs.listing import roster_of
from jobyard.engine.jobs.put import Wish, enter, intern, room_for
from jobyard.engine.jobs.put_transaction import reserve
from jobyard.engine.jobs.queues import keep_counting
from jobyard.engine.jobs.take import offer
from jobyard.engine.state.names import glide_key, seq_of
from jobyard.engine.state.yard import STAMP_SHIFT, Yard, abs_stamp
from jobyard.errors import CostExceeds, Duplicate, IdExhausted
from jobyard.journal.format.record import ENTRY_SIZE, NOTE_SIZE, STATE_SIZE
from jobyard.model.details import Extra, Fields, Member, member_field, size_of
from jobyard.model.family import GLIDE
from jobyard.model.glidemq.fields import COST_DEFAULT, EXPECTANT, GlidePart, LaneLimits
from jobyard.model.job import BLOCKED, DEAD, DELAYED, DONE, GONE, GZIP, LEASED, RAW, READY, Job
from jobyard.model.limits import NEVER_MS
from jobyard.model.policy import BACKOFF_PLAIN, LIFO, Policy
from jobyard.model.queue import ENTRY, LISTED, Book, Holder, Queue, Terms
from jobyard.model.throttle.ordering_group import lane_of
from jobyard.model.throttle.ready_lists import STAGED

NO_OPTS: Final = b"{}"

_STATES: Final = {
    LEASED: "active",
    DELAYED: "delayed",
    DONE: "completed",
    DEAD: "failed",
    GONE: "gone",
}

# Longer options are those of one job, and not shared.
_OPTS_SHARED_MAX: Final = 256
# How many ids of others are stepped over for the next that is free.
_TRIES: Final = 1000
# Beyond this the tables begin anew.
_TABLE_MAX: Final = 1024

# Two years; doubled as often as a wait is, it stays within 64 bits.
_BACKOFF_MAX_MS: Final = 1 << 36

# No lease of this door has a deadline; who took it is asked how it is.
_NO_DEADLINE_MS: Final = NEVER_MS // 2


@final
class Consumers(Holder):
    """Holds the leases of all workers: they outlive the connection they were taken through."""


@final
class GlideTables:
    """What all connections of this door share."""

    def __init__(self, yard: Yard) -> None:
        self.book: Book = yard.new_book(Consumers())
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
            proof = LISTED if is_list else ENTRY
            terms = Terms(GLIDE, proof, _NO_DEADLINE_MS, consumer)
            table[consumer] = terms
        return terms


def tables_of(yard: Yard) -> GlideTables:
    """Return what the connections of this door share, making it on first use."""
    tables = yard.glide
    if tables is None:
        tables = GlideTables(yard)
        yard.glide = tables
    return tables


@final
class Adding:
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
        # How long a worker may be silent about it; 0 where nothing was said.
        self.lock_ms: i64 = 0
        self.ttl_ms: i64 = 0
        self.custom_id: str = ""
        self.is_lifo: bool = False
        # Its ordering key, and what holds for all that have it; of no account without one.
        self.lane: str = ""
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
        # A job that is there and is to wait for this one, which it knows by these words, a colon,
        # and the id.
        self.parent: Job | None = None
        self.label_head: str = ""
        # Numbers that stand for something else than jobs, so that no job gets them as its id; and
        # whether the id that was chosen does.
        self.taken: set[int] | None = None
        self.is_taken: bool = False


# -- entering ----------------------------------------------------------------------------------


def add(yard: Yard, queue: Queue, adding: Adding, now_ms: i64) -> Job:
    """Add a job, and hand it to the first who waits for it.

    Duplicate, CostExceeds, IdExhausted and YardFull change nothing.
    """
    if queue.roster is None:
        roster_of(queue)
    check(yard, queue, adding)
    seq = queue.next_seq
    if not adding.custom_id:
        seq = free_seq(queue, seq, adding.taken)
    wish = wish_for(yard, adding)
    parent = adding.parent
    room: i64 = 0 if parent is None else _room_to_tie(parent, adding)
    _reserve(yard, queue, wish, room, now_ms)
    queue.next_seq = seq
    job = enter_wish(yard, queue, wish, now_ms)
    if parent is not None:
        _tie(yard, parent, job, adding)
    if queue.first_link is not None:
        offer(yard, queue, now_ms)
    return job


def add_alike(yard: Yard, queue: Queue, wish: Wish, now_ms: i64) -> Job:
    """Add a job as `add` does, of which nothing is its own but data and time."""
    if queue.roster is None:
        roster_of(queue)
    seq = free_seq(queue, queue.next_seq, None)
    _reserve(yard, queue, wish, 0, now_ms)
    queue.next_seq = seq
    job = enter_wish(yard, queue, wish, now_ms)
    if queue.first_link is not None:
        offer(yard, queue, now_ms)
    return job


def _reserve(yard: Yard, queue: Queue, wish: Wish, more: i64, now_ms: i64) -> None:
    """Reserve for the job of a wish, and so many bytes of the journal beside it."""
    room = room_for(queue, wish) + counting_room(queue) + more
    reserve(yard, queue, 1, len(wish.body), room, now_ms)


def _tie(yard: Yard, parent: Job, child: Job, adding: Adding) -> None:
    """Let a parent wait for its new child; both are remembered in one batch."""
    fields = Fields()
    member_field(fields, Member(child.id, f"{adding.label_head}:{id_of(child)}"))
    yard.note(parent, fields.done(), is_needed=True)
    if parent.state not in (DEAD, DONE):
        yard.names.wait_for(parent, child.id)


def _room_to_tie(parent: Job, adding: Adding) -> i64:
    extra = parent.extra
    whole: i64 = 0 if extra is None else size_of(extra)
    label_size: i64 = 4 * (len(adding.label_head) + len(adding.custom_id)) + 64
    return NOTE_SIZE + STATE_SIZE + whole + label_size


def check(yard: Yard, queue: Queue, adding: Adding) -> None:
    """Refuse a job that can never enter as it is."""
    if adding.lane and adding.tb_capacity > 0:
        cost = adding.cost if adding.cost > 0 else COST_DEFAULT
        if cost > adding.tb_capacity:
            raise CostExceeds
    chosen = adding.custom_id
    if chosen and (adding.is_taken or find(yard, queue, chosen) is not None):
        raise Duplicate


def free_seq(queue: Queue, seq: i64, taken: set[int] | None) -> i64:
    """Return the first seq from `seq` on that is no chosen id of another job, and not taken."""
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
    """Return how data are written; whether they are JSON is asked where a job crosses over."""
    return GZIP if data[:3] == b"gz:" else RAW


def wish_for(
    yard: Yard, adding: Adding, *, is_expectant: bool = False, is_child: bool = False
) -> Wish:
    """Return what a description asks of the yard; the order in its lane comes with the entry.

    A child may be described before its parent has an id.
    """
    wish = Wish(GLIDE, codec_of(adding.data), adding.data)
    wish.rank = adding.priority
    if not is_expectant:
        wish.delay_ms = adding.delay_ms
    wish.own_ms = adding.ts
    has_part = bool(adding.lane or adding.parent_id or adding.scheduler or adding.cost > 0)
    has_part = has_part or is_expectant or is_child
    has_opts = adding.opts != NO_OPTS and (has_part or not _is_shared(adding.opts))
    wish.policy = policy_for(yard, adding, b"" if has_opts else adding.opts)
    if has_part or has_opts:
        extra = Extra()
        extra.glide = _part_for(adding, has_opts=has_opts)
        if is_expectant:
            extra.glide.flags = EXPECTANT
            if adding.delay_ms > 0:
                # It comes when its children are done, and not later: its delay is only shown.
                extra.glide.set_field(b"delay", str(int(adding.delay_ms)).encode())
        wish.extra = extra
    if adding.custom_id:
        if wish.extra is None:
            wish.extra = Extra()
        wish.extra.custom_id = adding.custom_id
    return wish


def _part_for(adding: Adding, *, has_opts: bool) -> GlidePart:
    part = GlidePart()
    if has_opts:
        part.opts = adding.opts
    part.parent_id = adding.parent_id
    part.parent_queue = adding.parent_queue
    part.scheduler = adding.scheduler
    part.cost = adding.cost
    if adding.lane:
        part.lane_key = adding.lane
        part.limits = LaneLimits(
            adding.concurrency,
            adding.rate_max,
            adding.rate_ms,
            adding.tb_capacity,
            adding.tb_refill,
        )
    return part


def enter_wish(yard: Yard, queue: Queue, wish: Wish, now_ms: i64) -> Job:
    """Add the job of a wish for which room was made, as the last of its lane."""
    extra = wish.extra
    if extra is not None and extra.glide is not None and extra.glide.lane_key:
        extra.glide.order = _last_order(queue, extra.glide.lane_key) + 1
    yard.now_ms = max(yard.now_ms, now_ms)
    if not queue.is_counted:
        keep_counting(yard, queue)
    return enter(yard, queue, wish, now_ms)


def counting_room(queue: Queue) -> i64:
    """Return the most bytes of the journal that it takes to let the ids of a queue go on."""
    # A name is at most four bytes a character.
    return 0 if queue.is_counted else ENTRY_SIZE + 4 * len(queue.name)


def _last_order(queue: Queue, name: str) -> i64:
    rules = queue.rules
    if rules is None or rules.shelves is None:
        return 0
    lane = rules.shelves.lanes.get(name)
    return 0 if lane is None else lane.last_order


def _is_shared(opts: bytes) -> bool:
    """Tell whether other jobs are likely to come with the same options."""
    return len(opts) <= _OPTS_SHARED_MAX and b'"jobId"' not in opts and b'"id"' not in opts


def policy_for(yard: Yard, adding: Adding, opts: bytes) -> Policy:
    """Return the policy of a job with these options, which the yard may have yet to remember."""
    policies = tables_of(yard).policies
    key = (adding.name, opts)
    policy = policies.get(key)
    if policy is not None and _asks_for(policy, adding) and _is_known(yard, policy):
        return policy
    policy = Policy(0)
    policy.name = adding.name
    policy.max_attempts = adding.max_attempts
    policy.backoff_kind = adding.backoff_kind
    policy.backoff_ms = min(adding.backoff_ms, _BACKOFF_MAX_MS)
    policy.stall_ms = adding.lock_ms
    policy.ttl_ms = adding.ttl_ms
    policy.flags = LIFO if adding.is_lifo else 0
    policy.opts = b"" if opts == NO_OPTS else opts
    policy = intern(yard, policy)
    if len(policies) >= _TABLE_MAX:
        policies.clear()
    policies[key] = policy
    return policy


def _is_known(yard: Yard, policy: Policy) -> bool:
    """Tell whether the yard has not forgotten a policy, whose first job may still be to come."""
    return policy.number != 0 or yard.policies.get(policy.text) is policy


def _asks_for(policy: Policy, adding: Adding) -> bool:
    return (
        policy.max_attempts == adding.max_attempts
        and policy.ttl_ms == adding.ttl_ms
        and (policy.flags & LIFO != 0) == adding.is_lifo
        and policy.backoff_kind == adding.backoff_kind
        and policy.backoff_ms == min(adding.backoff_ms, _BACKOFF_MAX_MS)
        and policy.stall_ms == adding.lock_ms
    )


# -- names and states --------------------------------------------------------------------------


def find(yard: Yard, queue: Queue, job_id: str) -> Job | None:
    """Return a job of a queue by the id it has at this door."""
    job = yard.names.glide.get(glide_key(queue, job_id))
    if job is not None and job.id >= job.queue.gone_before:
        return job
    seq = seq_of(job_id)
    if seq == 0:
        return None
    job = roster_of(queue).find(seq)
    if job is None or (job.family == GLIDE and job.extra is not None and job.extra.custom_id):
        return None
    return job


def id_of(job: Job) -> str:
    """Return what a job is called at this door."""
    extra = job.extra
    if job.family == GLIDE and extra is not None and extra.custom_id:
        return extra.custom_id
    return str(int(job.key))


def id_bytes(job: Job) -> bytes:
    """Return what a job is called at this door, as it is sent."""
    extra = job.extra
    if extra is None:
        return str(int(job.key)).encode()
    return id_of(job).encode("utf-8", "surrogateescape")


def entry_of(job: Job) -> str:
    """Return the id of a job's entry in the stream."""
    return entry_text(job.stamp)


def entry_text(stamp: i64) -> str:
    """Return a place in line as the id of an entry."""
    stamp = abs_stamp(stamp)
    return f"{int(stamp >> STAMP_SHIFT)}-{int(stamp & ((1 << STAMP_SHIFT) - 1))}"


def state_of(job: Job) -> str:
    """Return the state of a job in the words of this door."""
    state = job.state
    if state == READY:
        return _ready_state(job)
    if state == BLOCKED:
        return "suspended" if is_suspended(job) else "waiting-children"
    return _STATES[int(state)]


def _ready_state(job: Job) -> str:
    if job.shelf == STAGED:
        # What was taken before came back after a while, if only after none.
        is_new = job.delay_ms == 0 and job.deliveries == 0
        return "prioritized" if job.rank > 0 and is_new else "delayed"
    lane = lane_of(job.extra)
    return "waiting" if lane is None or not lane.is_parked(job) else "group-waiting"


def opts_of(job: Job) -> bytes:
    """Return the options of a job as they were given."""
    extra = job.extra
    if extra is not None and extra.glide is not None and extra.glide.opts:
        return extra.glide.opts
    return job.policy.opts or NO_OPTS
