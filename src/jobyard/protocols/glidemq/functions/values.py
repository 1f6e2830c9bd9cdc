"""Functions over stored keys: locks, a worker's own rate limit, budgets."""

from typing import Final

from mypy_extensions import i64

from jobyard.engine.glidemq import stored_values
from jobyard.engine.jobs.queues import settings_of
from jobyard.engine.state.yard import Yard
from jobyard.model.glidemq.stored_values import ValueKind
from jobyard.model.throttle.settings import DEFAULTS
from jobyard.protocols.glidemq.errors import WRONG_TYPE, Wrong
from jobyard.protocols.glidemq.function_call import TIME_MAX, Fcall
from jobyard.protocols.glidemq.keyspace import key_parts
from jobyard.protocols.glidemq.keyspace.key_names import parse_key, refuse_family, stored_kind
from jobyard.protocols.glidemq.keyspace.key_parts import bytes_of
from jobyard.wire.json.read import JsonFields, read_object
from jobyard.wire.resp.write import double_text

_WINDOW_START: Final = b"windowStart"
_COUNT: Final = b"count"
# Kinds of tokens or costs in one call: each is searched in a list.
NAMES_MAX: Final = 256
# Sums of smaller numbers are still finite.
_FLOAT_MAX: Final = 1e300


def _lock(call: Fcall) -> bytes:
    """Return the first key, which must be a stored string."""
    name = parse_key(call.key(0))
    known = stored_kind(name)
    if known == ValueKind.NONE:
        raise refuse_family(name)
    if known != ValueKind.STRING:
        raise Wrong(WRONG_TYPE)
    return name.key


def _hash(call: Fcall, family: bytes) -> bytes:
    """Return the first key, which must be a stored hash of one family."""
    name = parse_key(call.key(0))
    if name.family != family or stored_kind(name) != ValueKind.HASH:
        raise refuse_family(name)
    return name.key


# -- locks -------------------------------------------------------------------------------------


def try_lock(call: Fcall) -> None:
    """Take a free lock, for a time."""
    key = _lock(call)
    ttl_ms = call.number(1, TIME_MAX, "ttl")
    is_free = stored_values.find(call.yard, key, call.now_ms) is None
    if is_free:
        stored_values.set_text(
            call.yard, key, call.arg(0), call.now_ms + max(ttl_ms, 1), call.now_ms
        )
    call.answer_number(1 if is_free else 0)


def unlock(call: Fcall) -> None:
    """Release a lock that the caller holds."""
    key = _lock(call)
    held = stored_values.find(call.yard, key, call.now_ms)
    is_own = held is not None and held.text == call.arg(0)
    if held is not None and is_own:
        stored_values.drop(call.yard, held)
    call.answer_number(1 if is_own else 0)


def renew_lock(call: Fcall) -> None:
    """Extend a lock that the caller holds."""
    key = _lock(call)
    ttl_ms = call.number(1, TIME_MAX, "ttl")
    held = stored_values.find(call.yard, key, call.now_ms)
    is_own = held is not None and held.text == call.arg(0)
    if is_own:
        stored_values.set_text(
            call.yard, key, call.arg(0), call.now_ms + max(ttl_ms, 1), call.now_ms
        )
    call.answer_number(1 if is_own else 0)


# -- schedules -----------------------------------------------------------------------------------


def cas_scheduler_entry(call: Fcall) -> None:
    """Write a schedule if it is still what the caller has read; "" for none."""
    key = _hash(call, b"schedulers")
    known = _table(call.yard, key, call.now_ms).get(call.arg(0), b"")
    if known == call.arg(1):
        stored_values.set_fields(call.yard, key, {call.arg(0): call.arg(2)}, call.now_ms)
    call.answer_number(1 if known == call.arg(1) else 0)


# -- a worker's own rate limit -----------------------------------------------------------------


def rate_limit(call: Fcall) -> None:
    """Count one job of a window; answer how long to wait, 0 for not at all.

    A worker without a limit of its own uses that of the queue.
    """
    key = _hash(call, b"rate")
    place = call.place(1, key_parts.KeyPart.META)
    most = call.any_number(0, "max")
    window_ms = call.any_number(1, "window")
    ts = call.number(2, TIME_MAX, "timestamp")
    if parse_key(key).queue != place.queue_name:
        raise Wrong("CROSSSLOT Keys of one function call belong to different queues")
    if most <= 0:
        queue = call.yard.queues.get(place.queue_name)
        settings = DEFAULTS if queue is None else settings_of(queue)
        most, window_ms = settings.rate_most, settings.rate_ms
    if most <= 0 or window_ms <= 0:
        call.answer_number(0)
        return
    table = _table(call.yard, key, call.now_ms)
    start: i64 = _number(table, _WINDOW_START)
    count: i64 = _number(table, _COUNT)
    if ts - start >= window_ms:
        changed = {_WINDOW_START: str(int(ts)).encode(), _COUNT: b"1"}
        stored_values.set_fields(call.yard, key, changed, call.now_ms)
        call.answer_number(0)
    elif count >= most:
        # Clocks of workers differ: one that is behind waits no longer than all others.
        call.answer_number(min(window_ms - (ts - start), window_ms))
    else:
        changed = {_COUNT: str(int(count) + 1).encode()}
        stored_values.set_fields(call.yard, key, changed, call.now_ms)
        call.answer_number(0)


def _table(yard: Yard, key: bytes, now_ms: i64) -> dict[bytes, bytes]:
    found = stored_values.find(yard, key, now_ms)
    return {} if found is None else found.table


def _number(table: dict[bytes, bytes], field: bytes) -> i64:
    value = table.get(field, b"")
    return int(value) if value.isdigit() and len(value) <= 16 else 0


# -- budgets -----------------------------------------------------------------------------------


def check_budget(call: Fcall) -> None:
    """Answer whether a flow has used up its budget."""
    key = _hash(call, b"budget")
    found = stored_values.find(call.yard, key, call.now_ms)
    if found is None:
        call.answer("no_budget")
        return
    call.answer("exceeded" if found.table.get(b"exceeded") == b"1" else "ok")


def record_usage_and_check_budget(call: Fcall) -> None:
    """Add the usage of a job to its flow; answer whether the budget is exceeded."""
    key = _hash(call, b"budget")
    found = stored_values.find(call.yard, key, call.now_ms)
    if found is None:
        call.answer("no_budget")
        return
    table = found.table
    changed: dict[bytes, bytes] = {}
    _add(table, changed, b"usedTokens", _float(call.arg(2)))
    _add(table, changed, b"usedCost", _float(call.arg(3)))
    for name, used in _numbers(call.arg(0)).items():
        _add(table, changed, b"usedTokens:" + name, used)
    for name, used in _numbers(call.arg(1)).items():
        _add(table, changed, b"usedCost:" + name, used)
    if _is_over({**table, **changed}, _numbers(call.arg(4)), _numbers(call.arg(5))):
        changed[b"exceeded"] = b"1"
    if changed:
        stored_values.set_fields(call.yard, key, changed, call.now_ms)
    call.answer("exceeded" if b"exceeded" in changed else "ok")


def update_flow_budget(call: Fcall) -> None:
    """Change the budget of a flow; answer whether it is exceeded."""
    key = _hash(call, b"budget")
    if call.args_count % 2 != 0:
        raise Wrong("ERR wrong number of arguments")
    found = stored_values.find(call.yard, key, call.now_ms)
    if found is None:
        call.answer("no_budget")
        return
    parts = [call.arg(at) for at in range(int(call.args_count))]
    asked = dict(zip(parts[::2], parts[1::2], strict=True))
    changed = {name: value for name, value in asked.items() if value}
    table = {name: value for name, value in found.table.items() if asked.get(name) != b""} | changed
    limits = _numbers(table.get(b"maxTokens", b"")), _numbers(table.get(b"maxCosts", b""))
    is_over = _is_over(table, limits[0], limits[1])
    changed[b"exceeded"] = b"1" if is_over else b"0"
    # Set `exceeded` before dropping fields: so the key is never empty and stays.
    stored_values.set_fields(call.yard, key, changed, call.now_ms)
    stored_values.drop_fields(
        call.yard, found, [name for name, value in asked.items() if not value]
    )
    call.answer("exceeded" if is_over else "ok")


def _add(table: dict[bytes, bytes], changed: dict[bytes, bytes], field: bytes, more: float) -> None:
    if more > 0:
        changed[field] = double_text(_float(table.get(field, b"0")) + more)


def _float(text: bytes) -> float:
    try:
        number = float(text)
    except ValueError:
        return 0.0
    return number if -_FLOAT_MAX < number < _FLOAT_MAX else 0.0


def _numbers(text: bytes) -> dict[bytes, float]:
    fields: JsonFields | None = read_object(text, 0, len(text))
    if fields is None:
        return {}
    if len(fields.keys()) > NAMES_MAX:
        raise Wrong(f"ERR more than {NAMES_MAX} kinds of usage")
    found: dict[bytes, float] = {}
    for name in fields.keys():  # noqa: SIM118  not a dict
        number = fields.number(name.encode(), 0.0)
        found[bytes_of(name)] = number if number < _FLOAT_MAX else 0.0
    return found


def _is_over(
    table: dict[bytes, bytes], max_tokens: dict[bytes, float], max_costs: dict[bytes, float]
) -> bool:
    limits = {
        b"usedTokens": _float(table.get(b"maxTotalTokens", b"0")),
        b"usedCost": _float(table.get(b"maxTotalCost", b"0")),
    }
    for name, most in max_tokens.items():
        limits[b"usedTokens:" + name] = most
    for name, most in max_costs.items():
        limits[b"usedCost:" + name] = most
    return any(most > 0 and _float(table.get(name, b"0")) > most for name, most in limits.items())
