"""What the options of a job say beyond its arguments: only flows ask, whose arguments are fewer."""

from mypy_extensions import i64

from jobyard.engine.glidemq.add import Adding
from jobyard.model.policy import BACKOFF_EXPONENTIAL, BACKOFF_FIXED
from jobyard.protocols.glidemq.function_call import TIME_MAX
from jobyard.wire.json.read import JsonFields, read_object

_MILLI = 1000.0


def fill_from_options(adding: Adding) -> None:
    """Take ordering, cost, time to live and place in line of a job out of its options.

    What is no JSON, or of another kind than it should be, was not said.
    """
    fields = read_object(adding.opts, 0, len(adding.opts))
    if fields is None:
        return
    adding.cost = _milli(fields, b"cost")
    adding.ttl_ms = _count(fields, b"ttl")
    adding.is_lifo = fields.is_true(b"lifo")
    ordering = _inner(fields, b"ordering")
    if ordering is None:
        return
    adding.lane = ordering.text(b"key") or ""
    adding.concurrency = _count(ordering, b"concurrency")
    rate = _inner(ordering, b"rateLimit")
    if rate is not None:
        adding.rate_max = _count(rate, b"max")
        adding.rate_ms = _count(rate, b"duration")
    bucket = _inner(ordering, b"tokenBucket")
    if bucket is not None:
        adding.tb_capacity = _milli(bucket, b"capacity")
        adding.tb_refill = _milli(bucket, b"refillRate")


def read_backoff(adding: Adding) -> None:
    """Note when a failed job is to come again, and how long a worker may be silent about it.

    Workers of this door say both themselves; those of other doors cannot.
    """
    opts = adding.opts
    adding.lock_ms = lock_ms(opts)
    if b"backoff" not in opts:
        return
    fields = read_object(opts, 0, len(opts))
    backoff = None if fields is None else _inner(fields, b"backoff")
    if backoff is not None:
        is_fixed = backoff.text(b"type") != "exponential"
        adding.backoff_kind = BACKOFF_FIXED if is_fixed else BACKOFF_EXPONENTIAL
        adding.backoff_ms = _count(backoff, b"delay")


def lock_ms(opts: bytes) -> i64:
    """Return how long a job may be silent before it counts as stalled; 0 where it does not say."""
    if b"lockDuration" not in opts:
        return 0
    fields = read_object(opts, 0, len(opts))
    if fields is None:
        return 0
    asked = _count(fields, b"lockDuration")
    # Shorter ones would have workers do nothing but tell that they live.
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
