"""Stages: records that belong to a transaction which is not decided yet.

They are records of one log that no client can name, so their text may be on disk only, compaction
and recovery treat them like any other, and nothing but a commit shows them. A chunk is one write to
that log, under a key that names transaction, topic, part, attempt and chunk: what a start finds in
the log is what is staged. Records of a transaction that is decided are erased in slices; until then
they are dead, since the outcome of the transaction states below which seq its chunks count no more.

Also remembers what became of transactions. Knows neither what a commit does nor any protocol.
"""

from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.logs.columns import count_between
from jobyard.engine.logs.erase import erase_seqs
from jobyard.engine.logs.logs import (
    append_drafted,
    make_head_room,
    remember_head,
    settle,
)
from jobyard.engine.state.tasks import Task
from jobyard.engine.state.timers import Alarm
from jobyard.engine.state.yard import Yard
from jobyard.engine.topics.staged_rows import ChunkDraft
from jobyard.errors import Refused, StorageFull, YardFull
from jobyard.journal.format.log_record import head_bytes
from jobyard.journal.format.record import ENTRY_SIZE
from jobyard.model.entry import Entry, EntryKind
from jobyard.model.limits import FULL_WAIT_MS, NEVER_MS
from jobyard.model.topic.config import TopicConfig
from jobyard.model.topic.log import LogTopic
from jobyard.model.topic.txn import (
    CHUNK_SIZE,
    STAGE_LOG,
    ChunkPlace,
    DecidedTxn,
    OpenTxn,
    StagedChunk,
    TxnState,
    decode_decided,
    place_in,
)

# Records erased at once: from the oldest end whole chunks at a time, elsewhere one by one.
_FRONT_ROWS: Final = 8192
_MIDDLE_ROWS: Final = 512
_ROWS_PER_UNIT: Final = 4
# Outcomes forgotten at once.
_FORGOTTEN: Final = 500


class TxnCommitted(Refused):
    """The transaction is committed already."""


class TxnDiffers(Refused):
    """The same name, or the same chunk, was used for something else."""


class TooManyTxns(Refused):
    """As many transactions are open or remembered as the limit allows."""


class StagesFull(Refused):
    """All stages together would be larger than the limit."""

    def __init__(self, most: i64) -> None:
        super().__init__(f"all stages together may have {int(most)} bytes")
        self.most: i64 = most


@final
class Staged:
    """The result of staging a chunk, the first time or again."""

    def __init__(self, chunk: StagedChunk, batch: i64, *, is_duplicate: bool) -> None:
        self.rows: i64 = chunk.rows
        self.size: i64 = chunk.size
        self.is_duplicate: bool = is_duplicate
        # The batch that the reply waits for.
        self.batch: i64 = batch


def count_memory(yard: Yard, more: i64) -> None:
    """Count memory that transactions, claim sets and fences take in the budget.

    They are limited by number, and never refused for lack of memory: with a budget of 0 they must
    work too.
    """
    yard.txns.memory += more
    yard.bodies.pinned += more
    yard.bodies.in_memory += more


# -- staging -----------------------------------------------------------------------------------


def is_committed(yard: Yard, name: str) -> bool:
    """Return whether a transaction is committed."""
    decided = yard.txns.decided.get(name)
    return decided is not None and decided.state == TxnState.COMMITTED


def is_new_chunk(yard: Yard, name: str, place: ChunkPlace) -> bool:
    """Return whether staging a chunk would store anything, unless it is refused."""
    if is_committed(yard, name):
        return False
    txn = yard.txns.open.get(name)
    return txn is None or place.key() not in txn.chunks


def stage(yard: Yard, name: str, place: ChunkPlace, draft: ChunkDraft, now_ms: i64) -> Staged:
    """Store the records of a chunk; a chunk that is known already is not stored again.

    A chunk of another content under a known place is refused. A refusal changes nothing.
    """
    items = draft.rows
    write_key = place.write_key(name, draft.digest())
    txns = yard.txns
    if is_committed(yard, name):
        raise TxnCommitted(f"transaction {name} is committed")
    txn = txns.open.get(name)
    known = None if txn is None else txn.chunks.get(place.key())
    if txn is not None and known is not None:
        touch_txn(yard, txn, now_ms)
        if known.write_key != write_key:
            raise TxnDiffers(f"another chunk {int(place.chunk)} of this attempt is staged")
        return Staged(known, yard.journal.appended, is_duplicate=True)
    if txn is None:
        check_count(yard, name)
    if txns.staged_bytes + items.content_size > txns.staged_max:
        raise StagesFull(txns.staged_max)
    log = _stage_log(yard, now_ms)
    appended = append_drafted(yard, log, items, write_key, now_ms)
    chunk = StagedChunk(write_key, appended.first_seq, items.count(), items.content_size)
    if txn is None:
        txn = OpenTxn(name)
        txns.open[name] = txn
    _add_chunk(yard, txn, place, chunk)
    touch_txn(yard, txn, now_ms)
    return Staged(chunk, appended.batch, is_duplicate=False)


def _stage_log(yard: Yard, now_ms: i64) -> LogTopic:
    """Return the log of stages; create it on first use."""
    log = yard.txns.log
    if log is not None:
        return log
    log = LogTopic(STAGE_LOG, stage_config())
    journal = yard.journal
    if journal.is_on and not journal.admit(head_bytes(log), now_ms):
        raise YardFull
    log.incarnation = yard.stamp(now_ms)
    if journal.is_on:
        journal.append_head(log)
        yard.log_numbers[log.number] = log
    yard.txns.log = log
    return log


def stage_config() -> TopicConfig:
    """Return the configuration of the log of stages: nothing in it expires by itself."""
    config = TopicConfig()
    config.idempotency_window_ms = NEVER_MS // 2
    return config


def check_count(yard: Yard, name: str) -> None:
    """Refuse one more transaction if there are too many."""
    txns = yard.txns
    if txns.decided.get(name) is None and len(txns.open) + txns.decided.count() >= txns.txns_max:
        raise TooManyTxns(f"{int(txns.txns_max)} transactions are open or remembered")


def _add_chunk(yard: Yard, txn: OpenTxn, place: ChunkPlace, chunk: StagedChunk) -> None:
    txn.chunks[place.key()] = chunk
    txn.topics.add(place.topic)
    txn.rows += chunk.rows
    txn.bytes += chunk.size
    yard.txns.staged_rows += chunk.rows
    yard.txns.staged_bytes += chunk.size
    count_memory(yard, CHUNK_SIZE)


def touch_txn(yard: Yard, txn: OpenTxn, now_ms: i64) -> None:
    """Begin the time again after which the stages of a transaction expire."""
    txn.until_ms = now_ms + yard.txns.stage_ms
    if txn.alarm is None:
        txn.alarm = _ExpiryAlarm(yard, txn)
    yard.arm(txn.alarm, txn.until_ms)


@final
class _ExpiryAlarm(Alarm):
    """Rings when no call has named an open transaction for long, or earlier."""

    def __init__(self, yard: Yard, txn: OpenTxn) -> None:
        super().__init__(yard.new_number(), NEVER_MS, 0)
        self._yard = yard
        self._txn = txn

    def ring(self, now_ms: i64) -> None:
        """Drop the stages if it is time."""
        txn = self._txn
        if now_ms < txn.until_ms:
            self._yard.arm(self, txn.until_ms)
            return
        end_txn(self._yard, txn.name, TxnState.EXPIRED, now_ms)
        self._yard.txns.expired_count += 1


# -- the end of a transaction ------------------------------------------------------------------


def end_txn(yard: Yard, name: str, state: str, now_ms: i64) -> None:
    """Abort or expire an open transaction: its stages go. YardFull changes nothing."""
    decided = new_outcome(yard, state, "", "", now_ms)
    room = outcome_room(name, decided)
    if yard.journal.is_on and not yard.journal.admit_change(room, now_ms):
        raise YardFull
    decide(yard, name, decided)
    if state == TxnState.ABORTED:
        yard.txns.aborted_count += 1


def new_outcome(yard: Yard, state: str, digest: str, answer: str, now_ms: i64) -> DecidedTxn:
    """Return an outcome that is decided now."""
    txns = yard.txns
    floor: i64 = 1 if txns.log is None else txns.log.next_seq
    return DecidedTxn(state, digest, answer, floor, now_ms + txns.remembered_ms)


def outcome_room(name: str, decided: DecidedTxn) -> i64:
    """Return the most journal bytes that an outcome takes."""
    # A character of the answer may be a quote, which is escaped.
    return ENTRY_SIZE + 128 + 4 * len(name) + len(decided.digest) + 6 * len(decided.answer)


def decide(yard: Yard, name: str, decided: DecidedTxn) -> None:
    """Store an outcome and drop all stages; room was made."""
    txns = yard.txns
    journal = yard.journal
    if journal.is_on:
        journal.set_entry(EntryKind.TXN, name.encode(), decided.encode(journal.wall_offset_ms))
        decided.batch = journal.open_number
    before = txns.decided.get(name)
    if before is not None:
        count_memory(yard, -before.size())
    txns.decided.put(name, decided)
    count_memory(yard, decided.size())
    txn = txns.open.pop(name, None)
    if txn is not None:
        if txn.alarm is not None:
            yard.disarm(txn.alarm)
            txn.alarm = None
        # The last one is erased first, and the oldest end of the log goes in large pieces.
        for chunk in reversed(list(txn.chunks.values())):
            _drop_chunk(yard, chunk)
        txn.chunks = {}
        begin_erasing(yard)
    arm_forgetting(yard)


def _drop_chunk(yard: Yard, chunk: StagedChunk) -> None:
    """Stop counting a chunk; its records are erased later."""
    txns = yard.txns
    log = txns.log
    assert log is not None
    key = log.keys.get(chunk.write_key)
    if key is not None:
        yard.journal.live_bytes.forget_key(key)
        log.keys.forget(chunk.write_key)
    txns.staged_rows -= chunk.rows
    txns.staged_bytes -= chunk.size
    count_memory(yard, -CHUNK_SIZE)
    txns.leaving.append(chunk)


# -- erasing -----------------------------------------------------------------------------------


def begin_erasing(yard: Yard) -> None:
    """Erase records of dropped chunks in the turns that follow."""
    if yard.txns.leaving and not yard.txns.is_erasing:
        yard.txns.is_erasing = True
        yard.tasks.follow(StageErasing(yard))


@final
class StageErasing(Task):
    """Erases the records of chunks that are no longer staged."""

    def __init__(self, yard: Yard) -> None:
        super().__init__()
        self._yard = yard

    def step(self, most: i64, now_ms: i64) -> i64:
        """Erase some of them."""
        txns = self._yard.txns
        done: i64 = 0
        while txns.leaving and done < most:
            chunk = txns.leaving[len(txns.leaving) - 1]
            try:
                done += 1 + _erase_some(self._yard, chunk) // _ROWS_PER_UNIT
            except (YardFull, StorageFull):
                txns.is_erasing = False
                self._yard.arm(_EraseAlarm(self._yard), now_ms + FULL_WAIT_MS)
                return 0
            if chunk.rows <= 0:
                txns.leaving.pop()
        if txns.leaving:
            return max(done, most)
        txns.is_erasing = False
        return min(done, most - 1)


@final
class _EraseAlarm(Alarm):
    """Rings when a full disk may have room again."""

    def __init__(self, yard: Yard) -> None:
        super().__init__(yard.new_number(), NEVER_MS, 0)
        self._yard = yard

    def ring(self, now_ms: i64) -> None:  # noqa: ARG002  the alarm's
        """Try again."""
        begin_erasing(self._yard)


def _erase_some(yard: Yard, chunk: StagedChunk) -> i64:
    """Erase some of the first records of a chunk; return about how many."""
    log = yard.txns.log
    assert log is not None
    first = chunk.first_seq
    is_front = log.earliest_seq >= first
    count: i64 = min(chunk.rows, _FRONT_ROWS if is_front else _MIDDLE_ROWS)
    if is_front:
        make_head_room(yard, log, 0)
        log.erased_floor = max(log.erased_floor, first + count)
        remember_head(yard, log)
        log.kill_below(first + count)
        settle(yard, log)
    else:
        seqs = [seq for seq in range(int(first), int(first + count)) if log.is_alive(seq)]
        if seqs:
            erase_seqs(yard, log, seqs)
    chunk.first_seq = first + count
    chunk.rows -= count
    return count


# -- forgetting --------------------------------------------------------------------------------


@final
class _ForgettingAlarm(Alarm):
    """Rings when the oldest outcome is to be forgotten."""

    def __init__(self, yard: Yard) -> None:
        super().__init__(yard.new_number(), NEVER_MS, 0)
        self._yard = yard

    def ring(self, now_ms: i64) -> None:
        """Forget some outcomes."""
        yard = self._yard
        decided = yard.txns.decided
        for _ in range(_FORGOTTEN):
            oldest = decided.oldest()
            if oldest is None or oldest[1].until_ms > now_ms:
                break
            name, outcome = oldest
            decided.remove_oldest()
            count_memory(yard, -outcome.size())
            # No record is written: a restart finds that its time is over.
            forget_stored(yard, EntryKind.TXN, name)
        arm_forgetting(yard)


def forget_stored(yard: Yard, kind: i64, key: str) -> None:
    """Forget an entry without a record."""
    entry = yard.journal.entries.get((kind, key.encode()))
    if entry is not None:
        yard.journal.forget_entry(entry)


def arm_forgetting(yard: Yard) -> None:
    """Ensure that outcomes are forgotten in time."""
    txns = yard.txns
    oldest = txns.decided.oldest()
    if oldest is None:
        return
    if txns.alarm is None:
        txns.alarm = _ForgettingAlarm(yard)
    yard.arm(txns.alarm, max(oldest[1].until_ms, yard.now_ms + 1))


# -- a start -----------------------------------------------------------------------------------


def load_txns(yard: Yard, now_ms: i64) -> None:
    """Restore outcomes and stages after a start; records that belong to neither are erased."""
    journal = yard.journal
    found: list[tuple[int, str, DecidedTxn, Entry]] = []
    for entry in journal.entries.values():
        if entry.kind != EntryKind.TXN or entry.is_gone:
            continue
        decided = decode_decided(entry.value, journal.wall_offset_ms)
        found.append((int(decided.until_ms), entry.key.decode(), decided, entry))
    found.sort(key=_until_of)
    for until_ms, name, decided, entry in found:
        if until_ms <= now_ms:
            journal.forget_entry(entry)
            continue
        # After a clock that went back, no longer than if it were decided now.
        decided.until_ms = min(decided.until_ms, now_ms + yard.txns.remembered_ms)
        yard.txns.decided.put(name, decided)
        count_memory(yard, decided.size())
    arm_forgetting(yard)
    if yard.txns.log is not None:
        _load_stages(yard, yard.txns.log, now_ms)


def _until_of(item: tuple[int, str, DecidedTxn, Entry]) -> int:
    return item[0]


def _load_stages(yard: Yard, log: LogTopic, now_ms: i64) -> None:
    txns = yard.txns
    ranges: list[tuple[int, int]] = []
    for write_key, key in log.keys.items():
        name, place = place_in(write_key)
        decided = txns.decided.get(name)
        is_over = decided is not None and (
            key.first_seq < decided.floor or decided.state == TxnState.COMMITTED
        )
        rows: i64 = key.last_seq - key.first_seq + 1
        if is_over or count_between(log, key.first_seq - 1, key.last_seq) != rows:
            yard.journal.live_bytes.forget_key(key)
            log.keys.forget(write_key)
            continue
        ranges.append((int(key.first_seq), int(key.last_seq)))
        txn = txns.open.get(name)
        if txn is None:
            txn = OpenTxn(name)
            txns.open[name] = txn
        size = _content_between(log, key.first_seq, key.last_seq)
        _add_chunk(yard, txn, place, StagedChunk(write_key, key.first_seq, rows, size))
        touch_txn(yard, txn, now_ms)
    ranges.sort()
    next_seq = int(log.earliest_seq)
    for first, last in [*ranges, (int(log.next_seq), 0)]:
        if first > next_seq and count_between(log, next_seq - 1, first - 1) > 0:
            txns.leaving.append(StagedChunk("", next_seq, first - next_seq, 0))
        next_seq = max(next_seq, last + 1)
    # As in `decide`: the last one is erased first.
    txns.leaving.reverse()
    begin_erasing(yard)


def _content_between(log: LogTopic, first_seq: i64, last_seq: i64) -> i64:
    """Return the size of the records of a range, all of which exist."""
    size: i64 = 0
    seq = first_seq
    while seq <= last_seq:
        chunk = log.chunk_of(seq)
        assert chunk is not None
        size += chunk.content_size(seq - chunk.base)
        seq += 1
    return size
