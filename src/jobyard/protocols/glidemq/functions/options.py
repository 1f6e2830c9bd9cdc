"""Job options that are not function arguments: only flows need them, which have fewer arguments."""

from mypy_extensions import i64

from jobyard.engine.glidemq.add import GlideJobSpec
from jobyard.model.policy import BACKOFF_EXPONENTIAL, BACKOFF_FIXED
from jobyard.protocols.glidemq.function_call import TIME_MAX
from jobyard.wire.json.read import JsonFields, read_object

_MILLI = 1000.0


def fill_from_options(spec: GlideJobSpec) -> None:
    """Read ordering, cost, time to live and LIFO flag of a job from its options.

    Invalid JSON, or a field of the wrong type, counts as missing.
    """
    fields = read_object(spec.opts, 0, len(spec.opts))
    if fields is None:
        return
    spec.cost = _milli(fields, b"cost")
    spec.ttl_ms = _count(fields, b"ttl")
    spec.is_lifo = fields.is_true(b"lifo")
    ordering = _inner(fields, b"ordering")
    if ordering is None:
        return
    spec.ordering = ordering.text(b"key") or ""
    spec.concurrency = _count(ordering, b"concurrency")
    rate = _inner(ordering, b"rateLimit")
    if rate is not None:
        spec.rate_max = _count(rate, b"max")
        spec.rate_ms = _count(rate, b"duration")
    bucket = _inner(ordering, b"tokenBucket")
    if bucket is not None:
        spec.tb_capacity = _milli(bucket, b"capacity")
        spec.tb_refill = _milli(bucket, b"refillRate")


def read_backoff(spec: GlideJobSpec) -> None:
    """Read the backoff of a job, and how long its worker may send no heartbeat.

    Workers of this door send both themselves; those of other doors cannot.
    """
    opts = spec.opts
    spec.lock_ms = lock_ms(opts)
    if b"backoff" not in opts:
        return
    fields = read_object(opts, 0, len(opts))
    backoff = None if fields is None else _inner(fields, b"backoff")
    if backoff is not None:
        is_fixed = backoff.text(b"type") != "exponential"
        spec.backoff_kind = BACKOFF_FIXED if is_fixed else BACKOFF_EXPONENTIAL
        spec.backoff_ms = _count(backoff, b"delay")


def lock_ms(opts: bytes) -> i64:
    """Return how long a job may be silent before it counts as stalled; 0 if not set."""
    if b"lockDuration" not in opts:
        return 0
    fields = read_object(opts, 0, len(opts))
    if fields is None:
        return 0
    asked = _count(fields, b"lockDuration")
    # With shorter ones, workers would do nothing but send heartbeats.
    return min(asked, 86_400_000) if asked >= 1000 else 0


def _inner(fields: JsonFields, key: bytes) -> JsonFields | None:
    start, end = fields.find(key)
    return None if start < 0 else read_object(fields.data, start, end)


def _count(fields: JsonFields, key: bytes) -> i64:
    number = fields.number(key, 0.0)
    return i64(int(number)) if 0 < number <= TIME_MAX else 0


def _milli(fields: JsonFields, key: bytes) -> i64:
    number = fields.number(key, 0.0) * _MILLI
    return i64(int(number)) if 0 < number <= TIME_MAX else 0
