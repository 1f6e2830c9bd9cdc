"""Redrives dead letters and dead jobs: the oldest ones, or those that a call names."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from jobyard.engine.topics import topic_queue
from jobyard.engine.topics.redrive import BodyPatch, Redrive, RedriveRequest
from jobyard.errors import Refused, StorageFull
from jobyard.model.job import JSON, MSGPACK, RAW
from jobyard.model.topic.log import TopicFull, WriteTooLarge
from jobyard.model.topic.new_keys import TooManyKeys
from jobyard.protocols.http.call import HttpRefused
from jobyard.protocols.http.long_calls import LongCall
from jobyard.protocols.topics.answers import begin, finish, put_bool, put_int
from jobyard.protocols.topics.body import array, flag, invalid, is_strict, read_body, text, whole
from jobyard.protocols.topics.find import no_topic, queue_of
from jobyard.protocols.topics.queue.leases import CLAIM_MAX, answer_count
from jobyard.protocols.topics.records.data import RECORD_MAX
from jobyard.protocols.topics.records.keys import KEY_MAX
from jobyard.protocols.topics.records.written import queue_full, too_large, too_many_keys
from jobyard.wire.json.merge_patch import MergePatch, read_patch
from jobyard.wire.json.read import JsonFields, integer_at
from jobyard.wire.json.write import write_int, write_text
from jobyard.wire.msgpack.forms import KIND_ABSENT, KIND_NIL
from jobyard.wire.payload import to_json, to_msgpack

if TYPE_CHECKING:
    from librt.strings import BytesWriter

    from jobyard.model.queue import Queue
    from jobyard.protocols.http.call import HttpCall
    from jobyard.protocols.topics.door import TopicsDoor

REDRIVE_FIELDS: Final = frozenset(("max", "seqs", "job_ids", "patch", "key", "dry_run", "strict"))
# Letters or jobs that a call names.
IDS_MAX: Final = 10_000
REDRIVE_ID_MAX: Final = (1 << 62) - 1
PATCH_MAX: Final = 64 << 10
_NAMED_ONLY: Final = (b"patch", b"key", b"dry_run")


@final
class JsonBodyPatch(BodyPatch):
    """A merge patch of bodies that are JSON, or MessagePack."""

    def __init__(self, patch: MergePatch) -> None:
        self._patch = patch

    def applied(self, codec: i64, body: bytes) -> bytes | None:
        """Return the patched body in its codec; None if it is neither JSON nor MessagePack."""
        if codec == MSGPACK:
            patched = self._patch.applied(to_json(MSGPACK, body))
            return None if patched is None else to_msgpack(JSON, patched)
        return self._patch.applied(body) if codec in (JSON, RAW) else None


def redrive(door: TopicsDoor, call: HttpCall) -> None:
    """POST /v0/topics/{topic}/redrive."""
    queue = queue_of(door.yard, call.params[0])
    fields = read_body(call, may_be_empty=True)
    is_strict(fields, REDRIVE_FIELDS)
    are_letters = _has(fields, b"seqs")
    if are_letters or _has(fields, b"job_ids"):
        _redrive_named(door, call, queue, fields, are_letters=are_letters)
        return
    for name in _NAMED_ONLY:
        if _has(fields, name):
            raise invalid(f"{name.decode()} needs seqs or job_ids")
    most = max(1, min(whole(fields, b"max", CLAIM_MAX), CLAIM_MAX))
    try:
        count = topic_queue.redrive(door.yard, queue, most, call.now_ms)
    except TopicFull as full:
        raise _refusal_of(queue, full) from None
    answer_count(door, call, queue, b',"redriven":', count)


def _redrive_named(
    door: TopicsDoor, call: HttpCall, queue: Queue, fields: JsonFields, *, are_letters: bool
) -> None:
    if are_letters and _has(fields, b"job_ids"):
        raise invalid("a call has either seqs or job_ids")
    if _has(fields, b"max"):
        raise invalid("max is for calls without seqs and job_ids")
    name = b"seqs" if are_letters else b"job_ids"
    request = RedriveRequest(_ids(fields, name), are_jobs=not are_letters)
    request.key = text(fields, b"key", KEY_MAX)
    if not request.key and _has(fields, b"key"):
        raise invalid("key must not be empty")
    if fields.kind(b"dry_run") == KIND_NIL:
        # Taken for false, it would move what the caller perhaps only wants to see.
        raise invalid("dry_run must not be null")
    request.is_dry = flag(fields, b"dry_run", otherwise=False)
    request.patch = _patch(fields)
    request.size_max = RECORD_MAX
    done = Redrive(door.yard, queue, request)
    answer = partial(_answer, door, call, queue, request, done)
    LongCall(door.yard.tasks, call, done, answer).begin()


def _has(fields: JsonFields, name: bytes) -> bool:
    """Return whether a field is given; null is not the same as nothing."""
    return fields.kind(name) != KIND_ABSENT


def _ids(fields: JsonFields, name: bytes) -> list[int]:
    """Return the numbers that a call names, each once."""
    spans = array(fields, name, IDS_MAX)
    if len(spans) > IDS_MAX:
        message = f"a call has at most {IDS_MAX} {name.decode()}"
        raise HttpRefused(400, "batch_too_large", message)
    found: dict[int, None] = {}
    for start, end in spans:
        number = integer_at(fields.data, start, end, -1)
        if not 0 <= number <= REDRIVE_ID_MAX:
            raise invalid(f"{name.decode()} must be whole numbers")
        found[int(number)] = None
    return list(found)


def _patch(fields: JsonFields) -> BodyPatch | None:
    if not _has(fields, b"patch"):
        return None
    if fields.kind(b"patch") == KIND_NIL:
        raise invalid("patch must not be null")
    start, end = fields.find(b"patch")
    if end - start > PATCH_MAX:
        raise invalid(f"patch must be at most {PATCH_MAX} bytes long")
    return JsonBodyPatch(read_patch(fields.data, start, end))


def _answer(
    door: TopicsDoor, call: HttpCall, queue: Queue, request: RedriveRequest, done: Redrive
) -> None:
    if done.is_lost:
        raise no_topic(queue.name)
    refusal = done.refusal
    if refusal is not None and not done.moved:
        raise _refusal_of(queue, refusal)
    out = begin(queue.name)
    put_int(out, b',"redriven":', 0 if request.is_dry else len(done.moved))
    is_duplicate = len(done.known) > 0 and len(done.moved) == 0
    put_bool(out, b',"duplicate":', value=is_duplicate)
    put_bool(out, b',"dry_run":', value=request.is_dry)
    _write_pairs(out, b',"moved":[', done.moved, done.moved_seqs)
    _write_pairs(out, b',"already":[', done.known, done.known_seqs)
    _write_skipped(out, done)
    put_int(out, b',"left":', done.left())
    if refusal is not None:
        out.write(b',"stopped":')
        write_text(out, _refusal_of(queue, refusal).code)
    call.await_batch(door.yard.journal.newest(), is_synced=queue.is_synced)
    finish(call, out, is_synced=queue.is_synced)


def _refusal_of(queue: Queue, refusal: Exception) -> HttpRefused:
    """Return how a redrive is refused that moved nothing."""
    if isinstance(refusal, WriteTooLarge):
        return too_large()
    if isinstance(refusal, TopicFull):
        return queue_full(queue)
    if isinstance(refusal, TooManyKeys):
        return too_many_keys(refusal, 1)
    assert isinstance(refusal, (Refused, StorageFull))
    return HttpRefused(507, "storage_full", "the disk is full")


def _write_pairs(out: BytesWriter, begin_with: bytes, ids: list[int], seqs: list[int]) -> None:
    """Write numbers with the seq that each got; null if that is only known when it is moved."""
    out.write(begin_with)
    for at in range(len(ids)):
        out.write(b"[" if at == 0 else b",[")
        write_int(out, i64(ids[at]))
        out.write(b",")
        if seqs[at] > 0:
            write_int(out, i64(seqs[at]))
        else:
            out.write(b"null")
        out.write(b"]")
    out.write(b"]")


def _write_skipped(out: BytesWriter, done: Redrive) -> None:
    out.write(b',"skipped":[')
    for at in range(len(done.skipped)):
        out.write(b"[" if at == 0 else b",[")
        write_int(out, i64(done.skipped[at]))
        out.write(b",")
        write_text(out, done.reasons[at])
        out.write(b"]")
    out.write(b"]")
