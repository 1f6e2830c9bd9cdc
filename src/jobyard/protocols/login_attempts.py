"""Attempts to authenticate that failed, by address: who guesses is answered later and later.

A few mistakes cost nothing. After them every refusal is held back, twice as long each time, up to
some seconds; one that is right is never held back. Who reconnects instead of waiting is bounded by
a rate: past it, nothing from that address is compared for the rest of the second. So one client
with an old password harms nobody beside it, and guessing is slow however it is done.

Knows no secrets and no clock. The table is bounded; the addresses that failed last stay.
"""

from typing import Final, final

from mypy_extensions import i64

# Input of one connection, and time, before it has authenticated.
STRANGER_SIZE_MAX: Final = 16 << 10
STRANGER_MS: Final = 10_000

# Mistakes that are answered at once.
FREE_FAILURES: Final = 10
DELAY_MS: Final = 250
DELAY_MS_MAX: Final = 4000
# Failures of one address in a second.
FAILURES_PER_S: Final = 100
# After so long without another one, all failures of an address are forgotten.
FORGET_MS: Final = 300_000
ADDRESSES_MAX: Final = 10_000


@final
class Failures:
    """Those of one address."""

    def __init__(self) -> None:
        self.count: i64 = 0
        self.last_ms: i64 = 0
        # Of the second that began then.
        self.second_ms: i64 = 0
        self.in_second: i64 = 0


@final
class Attempts:
    """Failures of all addresses; those who failed last stand last."""

    def __init__(self) -> None:
        self._by_address: dict[str, Failures] = {}
        self.failed_count: i64 = 0
        # Until then some address may have failed too often.
        self._watch_until_ms: i64 = 0

    def may_try(self, address: str, now_ms: i64) -> bool:
        """Tell whether a secret from an address is to be compared now."""
        if now_ms >= self._watch_until_ms:
            return True
        found = self._by_address.get(address)
        if found is None or now_ms >= found.second_ms + 1000:
            return True
        return found.in_second < FAILURES_PER_S

    def fail(self, address: str, now_ms: i64) -> i64:
        """Count a failure; return for how long its refusal is to be held back."""
        self.failed_count += 1
        if not address:
            # Nobody's: a session without a connection.
            return 0
        found = self._by_address.pop(address, None)
        if found is None or now_ms - found.last_ms >= FORGET_MS:
            found = Failures()
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
        return min(DELAY_MS << min(found.count - FREE_FAILURES - 1, 10), DELAY_MS_MAX)
