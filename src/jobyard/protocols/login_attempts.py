"""Failed logins by address: each further failure delays the next refusal longer.

The first few failures are answered at once. After them every refusal is delayed, twice as long each
time, up to a few seconds; a correct login is never delayed. Clients that reconnect instead of
waiting are limited by a rate: beyond it, no secret from that address is compared for the rest of
the second. So a client with an old password does not harm others, and guessing is always slow.

Knows no secrets and no clock. The table is bounded; the addresses that failed last stay.
"""

from typing import Final, final

from mypy_extensions import i64

# Limits on the input of a connection, and on its time, before it has authenticated.
STRANGER_SIZE_MAX: Final = 16 << 10
STRANGER_MS: Final = 10_000

# Failures that are answered at once.
FREE_FAILURES: Final = 10
DELAY_MS: Final = 250
REFUSAL_DELAY_MS_MAX: Final = 4000
# Failures of one address in a second; then no secret is compared.
FAILURES_PER_S: Final = 100
# After this time without a failure, an address starts again at 0.
FORGET_MS: Final = 300_000
ADDRESSES_MAX: Final = 10_000


@final
class FailedLogins:
    """The failures of one address."""

    def __init__(self) -> None:
        self.count: i64 = 0
        self.last_ms: i64 = 0
        # Start of the current second, and the failures in it.
        self.second_ms: i64 = 0
        self.in_second: i64 = 0


@final
class LoginAttempts:
    """The failures of all addresses, ordered by the last failure."""

    def __init__(self) -> None:
        self._by_address: dict[str, FailedLogins] = {}
        self.failed_count: i64 = 0
        # Until then some address may be over the rate.
        self._watch_until_ms: i64 = 0

    def may_try(self, address: str, now_ms: i64) -> bool:
        """Return whether a secret from an address may be compared now."""
        if now_ms >= self._watch_until_ms:
            return True
        found = self._by_address.get(address)
        if found is None or now_ms >= found.second_ms + 1000:
            return True
        return found.in_second < FAILURES_PER_S

    def fail(self, address: str, now_ms: i64) -> i64:
        """Count a failure; return how long to delay its refusal."""
        self.failed_count += 1
        if not address:
            # A session without a connection.
            return 0
        found = self._by_address.pop(address, None)
        if found is None or now_ms - found.last_ms >= FORGET_MS:
            found = FailedLogins()
        self._by_address[address] = found
        if len(self._by_address) > ADDRESSES_MAX:
            del self._by_address[next(iter(self._by_address))]
        if now_ms >= found.second_ms + 1000:
            found.second_ms = now_ms
            found.in_second = 0
        found.in_second += 1
        found.count += 1
        found.last_ms = now_ms
        if found.in_second >= FAILURES_PER_S:
            self._watch_until_ms = max(self._watch_until_ms, found.second_ms + 1000)
        if found.count <= FREE_FAILURES:
            return 0
        return min(DELAY_MS << min(found.count - FREE_FAILURES - 1, 10), REFUSAL_DELAY_MS_MAX)
