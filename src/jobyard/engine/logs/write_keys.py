"""The keys of writes to a log: the same write again within their window is answered alike."""

from typing import Final

from mypy_extensions import i64

from jobyard.engine.state.yard import Yard
from jobyard.model.topic.log import LogTopic, WriteKey

# Keys of writes whose time is over that one write forgets; others are forgotten by the next.
_KEYS_FORGOTTEN: Final = 64


def forget_expired(yard: Yard, log: LogTopic, now_ms: i64) -> None:
    """Forget some of the keys of writes that are older than the window."""
    keys = log.keys
    for _ in range(_KEYS_FORGOTTEN):
        oldest = keys.oldest()
        if oldest is None or is_known(log, oldest[1], now_ms):
            return
        yard.journal.ledger.forget_key(oldest[1])
        keys.remove_oldest()


def remember_key(yard: Yard, log: LogTopic, key: str, written: WriteKey) -> None:
    """Remember the key of a write, in place of one whose time is over."""
    expired = log.keys.get(key)
    if expired is not None:
        yard.journal.ledger.forget_key(expired)
    log.keys.put(key, written)


def is_known(log: LogTopic, key: WriteKey, now_ms: i64) -> bool:
    """Tell whether the key of a write still stands for it."""
    return key.at_ms > now_ms - log.config.idempotency_window_ms
