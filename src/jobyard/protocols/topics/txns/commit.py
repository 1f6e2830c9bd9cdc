"""Commits a transaction: reads the request in slices, and answers with the outcome."""

from __future__ import annotations

from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from jobyard.engine.state.tasks import Task
from jobyard.engine.topics.commit_ends import EndKind, RunEnd
from jobyard.engine.topics.stages import is_committed
from jobyard.engine.topics.transactions import Commit, CommitPart, CommitRequest
from jobyard.errors import Refused
from jobyard.model.topic.config import TOPIC_NAME_MAX
from jobyard.protocols.http.long_calls import LongCall
from jobyard.protocols.topics.answers import finish, put_bool
from jobyard.protocols.topics.api import check_name, check_open
from jobyard.protocols.topics.body import (
    array_place,
    check_head,
    check_strict,
    check_twins,
    fault_of,
    invalid,
    is_strict,
    text,
)
from jobyard.protocols.topics.cursor_fields import CURSOR_NAME_MAX, read_cursor
from jobyard.protocols.topics.limits import check_cursors
from jobyard.protocols.topics.names import check_read_name
from jobyard.protocols.topics.queue.leases import NACK_DELAY_MS_MAX, RUN_ERROR_MAX
from jobyard.protocols.topics.records.record import NODE_MAX
from jobyard.protocols.topics.records.writes import OBJECT_KEYS_MAX
from jobyard.protocols.topics.txn_fields import (
    check_id,
    in_http,
    needed_whole,
    worker_of,
)
from jobyard.protocols.topics.txns.access import check_open_txn, check_txn
from jobyard.protocols.topics.txns.stage import (
    ATTEMPT_MAX,
    CHUNKS_MAX,
    PART_MAX,
    named_topic,
)
from jobyard.wire.json.check import JsonCheck
from jobyard.wire.json.read import Checked, JsonFields, integer_at, text_at
from jobyard.wire.json.scan import JSON_DEPTH_MAX, end_of, skip_blanks
from jobyard.wire.json.write import write_text
from jobyard.wire.msgpack.forms import KIND_ABSENT, KIND_NIL

if TYPE_CHECKING:
    from jobyard.model.topic.txn import OpenTxn
    from jobyard.protocols.http.call import HttpCall
    from jobyard.protocols.topics.door import TopicsDoor

COMMIT_BODY_MAX: Final = 16 << 20
PARTS_MAX: Final = 100_000
CURSORS_MAX: Final = 1000
LEASE_ID_MAX: Final = 256

_FIELDS: Final = frozenset(
    {"parts", "acks", "nacks", "dead_letters", "cursors", "worker", "epoch", "strict"}
)
_PART_FIELDS: Final = frozenset({"topic", "part", "attempt", "chunks", "rows"})
_CURSOR_FIELDS: Final = frozenset({"topic", "cursor", "seq", "incarnation", "hold", "force"})
_GROUP_FIELDS: Final = frozenset({"queue", "node", "items"})
# The lists of a commit, in the order in which they are read.
_LISTS: Final = (b"parts", b"acks", b"nacks", b"dead_letters", b"cursors")
_PARTS: Final = 0
_CURSORS: Final = 4
_KINDS: Final = (-1, EndKind.ACK, EndKind.NACK, EndKind.DEAD_LETTER)
# The most values of an item, by the kind of end.
_WIDTHS: Final = (2, 4, 3)
_UNITS: Final = 2


@final
class CommitCall(Task):
    """One call: reads its body in slices, and then commits."""

    def __init__(self, door: TopicsDoor, call: HttpCall) -> None:
        super().__init__()
        self._door = door
        self._call = call
        body = call.request.body
        self._check = JsonCheck(body, JSON_DEPTH_MAX)
        self._lists = Checked(self._check)
        self._fields: JsonFields | None = None
        self._is_strict: bool = False
        self._request = CommitRequest(call.params[0])
        self._digest = blake2b(digest_size=16)
        # By topic.
        self._cursor_names: dict[str, set[str]] = {}
        self._part_names: set[tuple[str, int]] = set()
        self._ending: set[tuple[str, int]] = set()
        # The list that is being read, and the items of its group that is: where the next begins.
        self._list: i64 = -1
        self._group: RunEnd | None = None
        self._at: i64 = 0
        self._end: i64 = 0
        # The open transaction, and how many of its topics the caller's key was found to cover.
        self._txn: OpenTxn | None = None
        self._covered: i64 = 0
        self.commit: Commit | None = None

    def step(self, most: i64, now_ms: i64) -> i64:
        """Read a slice of the body, or do a slice of the commit."""
        done: i64 = 0
        if not self._check.is_done():
            done = self._check.proceed(most)
            if not self._check.is_done():
                return max(done, most)
        if self._fields is None:
            self._begin()
        while self.commit is None:
            if done >= most:
                return done
            done += self._read_one()
        if done >= most:
            return done
        self._check_open()
        try:
            return done + self.commit.step(most - done, now_ms)
        except Refused as refused:
            raise in_http(refused) from None

    def _check_open(self) -> None:
        """Refuse the commit if its key does not cover what others have staged meanwhile."""
        txn = self._door.yard.txns.open.get(self._request.name)
        count: i64 = 0 if txn is None else len(txn.topics)
        # An aborted transaction may have been begun again: then it has fewer, or others.
        if txn is not self._txn or count != self._covered:
            check_open_txn(self._call, txn)
            self._txn = txn
            self._covered = count

    def _begin(self) -> None:
        check_txn(self._door.yard, self._call, self._request.name)
        fields = None if self._check.is_bad else self._lists.top(OBJECT_KEYS_MAX)
        if fields is None:
            raise invalid(fault_of(self._check.data))
        self._fields = check_twins(fields)
        self._is_strict = is_strict(fields, _FIELDS)
        request = self._request
        request.worker, request.epoch = worker_of(self._call, fields)
        self._next_list()

    def _next_list(self) -> None:
        """Go to the next list that the body has; begin the commit after the last."""
        fields = self._fields
        assert fields is not None
        while True:
            self._list += 1
            if self._list == len(_LISTS):
                self._check_new_cursors()
                self._request.digest = self._digest.hexdigest()
                self.commit = Commit(self._door.yard, self._request)
                return
            name = _LISTS[self._list]
            if fields.kind(name) not in (KIND_ABSENT, KIND_NIL):
                start, end = array_place(fields, name)
                self._lists.enter(start, end)
                return

    def _read_one(self) -> i64:
        """Read one part, the head of one group, or one item of it."""
        group = self._group
        if group is not None:
            if self._check.data[self._at] == 93:
                self._group = None
            else:
                self._read_item(group)
            return _UNITS
        if not self._lists.has_more():
            self._next_list()
            return 1
        one = self._lists.next(OBJECT_KEYS_MAX)
        if one is None:
            raise invalid(f"{_LISTS[self._list].decode()} must be an array of objects")
        check_twins(one)
        if self._list == _PARTS:
            self._read_part(one)
        elif self._list == _CURSORS:
            self._read_cursor(one)
        else:
            self._begin_group(one)
        return _UNITS

    def _read_part(self, one: JsonFields) -> None:
        if self._is_strict:
            check_strict(one, _PART_FIELDS)
        topic = named_topic(self._call, one)
        number = needed_whole(one, b"part", PART_MAX)
        attempt = needed_whole(one, b"attempt", ATTEMPT_MAX)
        chunks = needed_whole(one, b"chunks", CHUNKS_MAX)
        rows = needed_whole(one, b"rows", 1 << 40)
        name = (topic, int(number))
        if name in self._part_names:
            raise invalid(f"part {int(number)} of topic {topic} is named twice")
        if len(self._part_names) >= PARTS_MAX:
            raise invalid(f"a commit has at most {PARTS_MAX} parts")
        self._part_names.add(name)
        self._request.parts.append(CommitPart(topic, number, attempt, chunks, rows))
        numbers = f"{int(number)} {int(attempt)} {int(chunks)} {int(rows)}"
        self._digest.update(f"part {topic} {numbers}\n".encode())

    def _read_cursor(self, one: JsonFields) -> None:
        if self._is_strict:
            check_strict(one, _CURSOR_FIELDS)
        topic = text(one, b"topic", TOPIC_NAME_MAX)
        check_read_name(topic)
        check_name(self._call, topic)
        name = text(one, b"cursor", CURSOR_NAME_MAX)
        change = read_cursor(self._door.yard, self._call, topic, name, one)
        names = self._cursor_names.setdefault(topic, set())
        if name in names:
            raise invalid(f"cursor {name} of topic {topic} is named twice")
        if len(self._request.cursors) >= CURSORS_MAX:
            raise invalid(f"a commit has at most {CURSORS_MAX} cursors")
        names.add(name)
        self._request.cursors.append(change)
        self._digest.update(f"cursor {change.summary()}\n".encode())

    def _check_new_cursors(self) -> None:
        """Refuse to create cursors beyond the limits, unless the commit was made before."""
        yard = self._door.yard
        if is_committed(yard, self._request.name):
            return
        in_all: i64 = 0
        for topic, names in self._cursor_names.items():
            of_topic: i64 = 0
            for name in names:
                if yard.cursors.get(topic, name) is None:
                    of_topic += 1
            in_all += of_topic
            if of_topic > 0:
                check_cursors(self._door, topic, of_topic, in_all)

    def _begin_group(self, one: JsonFields) -> None:
        if self._is_strict:
            check_strict(one, _GROUP_FIELDS)
        queue = text(one, b"queue", TOPIC_NAME_MAX)
        if not queue:
            raise invalid("queue is required")
        check_name(self._call, queue)
        node = text(one, b"node", NODE_MAX)
        if not node:
            raise invalid("node is required")
        start, end = array_place(one, b"items")
        self._group = RunEnd(_KINDS[self._list], queue, node, 0, "")
        self._at = skip_blanks(self._check.data, start + 1, end)
        self._end = end

    def _read_item(self, group: RunEnd) -> None:
        data = self._check.data
        start = self._at
        end = end_of(data, start, self._end, JSON_DEPTH_MAX)
        self._at = skip_blanks(data, end, self._end)
        if data[self._at] == 44:
            self._at = skip_blanks(data, self._at + 1, self._end)
        item = _item_of(data, start, end, group)
        place = (item.queue, int(item.seq))
        if place in self._ending:
            raise invalid(f"seq {int(item.seq)} of {item.queue} is named twice")
        if len(self._ending) >= self._door.yard.txns.rows_max:
            most = int(self._door.yard.txns.rows_max)
            raise invalid(f"a commit ends at most {most} runs")
        self._ending.add(place)
        self._request.ends.append(item)
        where = f"{int(item.kind)} {item.queue}\0{item.node}\0{int(item.seq)}\0{item.lease_id}"
        self._digest.update(f"{where}\0{int(item.delay_ms)}\0{item.error}\n".encode())


def _item_of(data: bytes, start: i64, end: i64, group: RunEnd) -> RunEnd:
    """Return the end of a run that an item names: `[seq, lease_id, ...]`."""
    if data[start] != 91:
        raise invalid("an item must be an array")
    spans: list[tuple[i64, i64]] = []
    at = skip_blanks(data, start + 1, end)
    while data[at] != 93:
        stop = end_of(data, at, end, JSON_DEPTH_MAX)
        spans.append((at, stop))
        at = skip_blanks(data, stop, end)
        if data[at] == 44:
            at = skip_blanks(data, at + 1, end)
    if not 1 <= len(spans) <= _WIDTHS[group.kind]:
        raise invalid("an item must be [seq, lease_id, ...]")
    seq = integer_at(data, spans[0][0], spans[0][1], -1)
    if seq < 0:
        raise invalid("the seq of an item must be a whole number")
    item = RunEnd(group.kind, group.queue, group.node, seq, "")
    if len(spans) > 1:
        item.lease_id = _text_of(data, spans[1], LEASE_ID_MAX, "lease_id")
    has_delay = group.kind == EndKind.NACK
    if has_delay and len(spans) > 2:
        item.delay_ms = _delay_of(data, spans[2])
    if group.kind != EndKind.ACK and len(spans) > (3 if has_delay else 2):
        item.error = _text_of(data, spans[len(spans) - 1], RUN_ERROR_MAX, "error")
    return item


def _text_of(data: bytes, span: tuple[i64, i64], most: i64, what: str) -> str:
    """Return a text that may be null."""
    if data[span[0]] == 110:
        return ""
    found = text_at(data, span[0], span[1])
    if found is None:
        raise invalid(f"the {what} of an item must be a string")
    if len(found) > most or len(found.encode()) > most:
        raise invalid(f"the {what} of an item must be at most {int(most)} bytes long")
    return found


def _delay_of(data: bytes, span: tuple[i64, i64]) -> i64:
    """Return a delay that may be null; -1 then."""
    if data[span[0]] == 110:
        return -1
    delay_ms = integer_at(data, span[0], span[1], -1)
    if not 0 <= delay_ms <= NACK_DELAY_MS_MAX:
        raise invalid(f"the delay of an item must be from 0 to {NACK_DELAY_MS_MAX} ms")
    return delay_ms


def commit(door: TopicsDoor, call: HttpCall) -> None:
    """POST /v0/txns/{txn}/commit."""
    check_id(call.params[0], "the name of a transaction")
    check_open(call)
    check_head(call, COMMIT_BODY_MAX)
    task = CommitCall(door, call)
    LongCall(door.yard.tasks, call, task, partial(_answer_commit, call, task)).begin()


def _answer_commit(call: HttpCall, task: CommitCall) -> None:
    done = task.commit
    assert done is not None
    out = BytesWriter()
    out.write(b'{"txn":')
    write_text(out, call.params[0])
    out.write(b',"state":"committed",')
    out.write(done.answer.encode())
    put_bool(out, b',"duplicate":', value=done.is_duplicate)
    call.await_batch(done.batch, is_synced=done.is_synced)
    finish(call, out, is_synced=done.is_synced)
