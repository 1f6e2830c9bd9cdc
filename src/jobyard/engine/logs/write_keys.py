"""The idempotency keys of writes to a log: a repeated write gets the same reply in the window."""

from typing import Final

from mypy_extensions import i64

from jobyard.engine.state.yard import Yard
from jobyard.model.topic.log import LogTopic, WriteKey

# The most expired keys that one write removes; the next writes remove the others.
_KEYS_FORGOTTEN: Final = 64


def forget_expired(yard: Yard, log: LogTopic, now_ms: i64) -> None:
    """Remove some of the keys that are older than the window."""
    keys = log.keys
    for _ in range(_KEYS_FORGOTTEN):
        oldest = keys.oldest()
        if oldest is None or is_known(log, oldest[1], now_ms):
            return
        yard.journal.live_bytes.forget_key(oldest[1])
        keys.remove_oldest()


def remember_key(yard: Yard, log: LogTopic, key: str, written: WriteKey) -> None:
    """Store the key of a write, replacing an expired one."""
    expired = log.keys.get(key)
    if expired is not None:
        yard.journal.live_bytes.forget_key(expired)
    log.keys.put(key, written)


def is_known(log: LogTopic, key: WriteKey, now_ms: i64) -> bool:
    """Return whether a key is still inside the window."""
    return key.at_ms > now_ms - log.config.idempotency_window_ms
