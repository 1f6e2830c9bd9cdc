"""What calls about transactions, claim sets and fences share: fields, and answers to refusals."""

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from jobyard.engine.state.yard import Yard
from jobyard.engine.topics.claim_sets import ClaimDiffers, ClaimInProgress
from jobyard.engine.topics.commit_targets import TargetFull, TargetKeysFull, TargetMissing
from jobyard.engine.topics.fences import SPACE_END, Fenced, fence_name, raise_fence
from jobyard.engine.topics.staged_rows import StageDamaged
from jobyard.engine.topics.stages import StagesFull, TooManyTxns, TxnCommitted, TxnDiffers
from jobyard.engine.topics.transactions import (
    Incomplete,
    OtherRows,
    SameJobId,
    StageExpired,
    TooManyBytes,
    TooManyRows,
)
from jobyard.errors import Refused
from jobyard.protocols.http.call import HttpCall, HttpRefused
from jobyard.protocols.topics.answers import put_int
from jobyard.protocols.topics.api_keys import ApiKey
from jobyard.protocols.topics.body import invalid, text, whole
from jobyard.protocols.topics.cursor_fields import cursor_refusal
from jobyard.protocols.topics.find import no_topic
from jobyard.protocols.topics.limits import throttled
from jobyard.wire.json.read import JsonFields
from jobyard.wire.msgpack.forms import KIND_ABSENT, KIND_NIL

TXN_NAME_MAX: Final = 256
WORKER_MAX: Final = 256
EPOCH_MAX: Final = 1 << 53
_MARKS: Final = "._:~-"
_STATUSES: Final[tuple[tuple[type[Refused], int, str], ...]] = (
    (Fenced, 409, "fenced"),
    (TxnCommitted, 409, "committed"),
    (TxnDiffers, 409, "txn_differs"),
    (Incomplete, 409, "incomplete"),
    (OtherRows, 409, "incomplete"),
    (SameJobId, 409, "same_job_id"),
    (ClaimDiffers, 409, "claim_differs"),
    (ClaimInProgress, 409, "in_progress"),
    (StageExpired, 410, "txn_expired"),
    (TooManyRows, 413, "txn_too_large"),
    (TooManyBytes, 413, "txn_too_large"),
    (TargetKeysFull, 422, "too_many_keys"),
    (TooManyTxns, 429, "throttled"),
    (StageDamaged, 500, "corrupt"),
)


def check_id(name: str, what: str) -> str:
    """Refuse an invalid name of a transaction or a claim; return it."""
    is_valid = 1 <= len(name) <= TXN_NAME_MAX and name.isascii()
    if not is_valid or not all(letter.isalnum() or letter in _MARKS for letter in name):
        raise invalid(f"{what} consists of 1 to {TXN_NAME_MAX} letters, digits and . _ : ~ -")
    return name


def worker_of(call: HttpCall, fields: JsonFields) -> tuple[str, i64]:
    """Return the worker that a call names, in the name space of its key, and its epoch."""
    worker = text(fields, b"worker", WORKER_MAX)
    if SPACE_END in worker:
        raise invalid("worker must not contain the character U+0000")
    epoch = whole(fields, b"epoch", 0)
    if epoch > EPOCH_MAX:
        raise invalid(f"epoch must be at most {EPOCH_MAX}")
    if not worker and fields.kind(b"epoch") not in (KIND_ABSENT, KIND_NIL):
        raise HttpRefused(409, "no_worker", "epoch needs a worker")
    key = call.identity
    if worker and isinstance(key, ApiKey):
        worker = fence_name(key.name_space, worker)
    return worker, epoch


def check_worker(yard: Yard, call: HttpCall, fields: JsonFields) -> None:
    """Refuse a call whose worker has called with a greater epoch; from now on, smaller ones."""
    worker, epoch = worker_of(call, fields)
    if worker:
        try:
            raise_fence(yard, worker, epoch, call.now_ms)
        except Refused as refused:
            raise in_http(refused) from None


def put_limits(out: BytesWriter, yard: Yard) -> None:
    """Add how much a commit may hold: not every client of one stages something."""
    put_int(out, b',"rows_max":', yard.txns.rows_max)
    put_int(out, b',"bytes_max":', yard.txns.bytes_max)


def needed_whole(fields: JsonFields, key: bytes, most: i64) -> i64:
    """Return a required whole number from 0 to `most`."""
    if fields.kind(key) in (KIND_ABSENT, KIND_NIL):
        raise invalid(f"{key.decode()} is required")
    number = whole(fields, key, 0)
    if number > most:
        raise invalid(f"{key.decode()} must be at most {int(most)}")
    return number


def in_http(refused: Refused) -> Refused:
    """Return the answer to a refusal of the engine, or the refusal itself if that is general."""
    if isinstance(refused, TargetMissing):
        return no_topic(refused.topic)
    of_cursor = cursor_refusal(refused)
    if of_cursor is not None:
        return of_cursor
    if isinstance(refused, StagesFull):
        return throttled("txn_stage_bytes", refused.most)
    status, code = _status_of(refused)
    return HttpRefused(status, code, str(refused), _detail_of(refused)) if status else refused


def _status_of(refused: Refused) -> tuple[int, str]:
    """Return status and code of the answer; 0 for a general refusal."""
    if isinstance(refused, TargetFull):
        return (400, "record_too_large") if refused.is_too_large else (422, "topic_full")
    for kind, status, code in _STATUSES:
        if isinstance(refused, kind):
            return status, code
    return 0, ""


def _detail_of(refused: Refused) -> dict[str, object] | None:
    detail: dict[str, object] | None = None
    if isinstance(refused, Fenced):
        detail = {"epoch": int(refused.epoch)}
    elif isinstance(refused, Incomplete):
        place = {"part": int(refused.part), "chunk": int(refused.chunk)}
        detail = {"topic": refused.topic, **place}
    elif isinstance(refused, OtherRows):
        counts = {"rows": int(refused.rows), "wanted": int(refused.part.rows)}
        detail = {"topic": refused.part.topic, "part": int(refused.part.part), **counts}
    elif isinstance(refused, TooManyRows):
        detail = {"rows": int(refused.rows), "max": int(refused.most)}
    elif isinstance(refused, TooManyBytes):
        detail = {"bytes": int(refused.bytes), "max": int(refused.most)}
    elif isinstance(refused, TooManyTxns):
        detail = {"limit": "txn_max"}
    elif isinstance(refused, TargetFull):
        detail = {"topic": refused.topic}
    elif isinstance(refused, TargetKeysFull):
        keys = {"keys": int(refused.count), "new": int(refused.new)}
        detail = {"topic": refused.topic, "key_max": int(refused.key_max), **keys}
    return detail
