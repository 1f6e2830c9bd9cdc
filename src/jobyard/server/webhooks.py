"""Webhook deliveries on their way: who is next, what waits for another try, what was given up.

The loop calls `send`, which puts a delivery in line and returns; up to THREADS_MAX daemon threads,
started when there is work, take deliveries out and POST them (outbound.py). Nothing here knows jobs
or the journal: what a webhook is told was decided before, and how it ended is passed to
`on_outcome`, in the thread that saw it end.

Every webhook has a lane of its own, lanes take turns, and no lane keeps more than LANE_THREADS_MAX
threads busy: a dead or slow receiver delays its own deliveries and not the others'. Deliveries of
one webhook usually go out in the order they came, but a try that failed lets others pass.

A webhook whose tries keep failing is paused, for longer and longer: then one delivery is tried, and
if it arrives all go on at once. The log tells of the first failure, of the pause, of its end, and
in between once in a while.

The invariant: memory is bounded. At most `waiting_max` deliveries, LANE_WAITING_MAX of one webhook,
and about WAITING_BYTES_MAX bytes of bodies wait; beyond that the oldest is dropped and counted, and
a webhook is told of its own as failures. What waits is lost when the process ends: a webhook is a
notice, and the job it speaks of is in the journal.
"""

import hmac
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final, final

from jobyard import __version__
from jobyard.server.log import Log
from jobyard.server.outbound import Outbound, Undelivered

TRIES_MAX: Final = 3
# Before try number n + 1 passes n times this.
RETRY_WAIT_S: Final = 1.0
WAITING_MAX: Final = 10_000
# Ten thousand bodies of the greatest size would be a hundred gigabytes.
WAITING_BYTES_MAX: Final = 64 << 20
# Of one webhook, so that one whose receiver is gone keeps out no other.
LANE_WAITING_MAX: Final = 1000
# After so many tries in a row that failed a webhook is paused, for twice as long each time.
PAUSE_AFTER: Final = 5
PAUSE_S: Final = 5.0
PAUSE_S_MAX: Final = 300.0
# While it goes on failing, a line in the log so often.
REMIND_S: Final = 3600.0
THREADS_MAX: Final = 4
LANE_THREADS_MAX: Final = 2

OnOutcome = Callable[[str, bool, int], None]


@final
@dataclass(frozen=True, slots=True)
class Delivery:
    """One notice for one webhook."""

    webhook_id: str
    url: str
    secret: str | None = field(repr=False)
    event: str
    body: bytes = field(repr=False)

    def __post_init__(self) -> None:
        # It goes into a header as it is; the engine only lets known events in.
        assert self.event.isascii(), self.event
        assert self.event.isprintable(), self.event


class Clock:
    """Time as deliveries see it; a test puts its own in its place."""

    def steady_s(self) -> float:
        """Seconds that never jump."""
        return time.monotonic()

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def wait(self, changed: threading.Condition, timeout_s: float | None) -> None:
        """Give up the lock until notified, or until so many seconds have passed."""
        changed.wait(timeout_s)


@final
class _Health:
    """How the last tries of one webhook ended."""

    def __init__(self) -> None:
        # In a row.
        self.failed_count = 0
        self.resume_s = 0.0
        self.told_s = 0.0

    @property
    def is_paused(self) -> bool:
        """Whether it failed so often that it is tried once in a while."""
        return self.failed_count >= PAUSE_AFTER

    def pause_s(self) -> float:
        """How long it rests after the last failure."""
        return min(PAUSE_S * (1 << min(self.failed_count - PAUSE_AFTER, 10)), PAUSE_S_MAX)


@final
class _Lane:
    """What waits for one webhook, and how many threads serve it."""

    def __init__(self, webhook_id: str, health: _Health) -> None:
        self.webhook_id = webhook_id
        self.health = health
        self.ready: OrderedDict[int, _Pending] = OrderedDict()
        # Ready, waiting for another try, or in flight.
        self.all_count = 0
        self.in_flight_count = 0
        self.is_in_ring = False
        self.is_forgotten = False


@final
class _Pending:
    """A delivery with its past."""

    def __init__(self, number: int, delivery: Delivery, lane: _Lane) -> None:
        self.number = number
        self.delivery = delivery
        self.lane = lane
        self.tries_count = 0


@final
class Deliveries:
    """Everything that is to be sent out; all methods may be called from any thread."""

    def __init__(
        self,
        log: Log,
        on_outcome: OnOutcome,
        outbound: Outbound,
        *,
        tries_max: int = TRIES_MAX,
        waiting_max: int = WAITING_MAX,
        threads_max: int = THREADS_MAX,
        clock: Clock | None = None,
    ) -> None:
        """Start nothing yet: threads come with the first delivery.

        `on_outcome(webhook_id, ok, at_ms)` is called once per delivery that was tried to its end,
        in a thread and without the lock; `at_ms` is wall time.
        """
        assert tries_max > 0, tries_max
        assert waiting_max > 0, waiting_max
        assert 0 < threads_max <= THREADS_MAX, threads_max
        self._log = log
        self._on_outcome = on_outcome
        self._outbound = outbound
        self._tries_max = tries_max
        self._waiting_max = waiting_max
        self._threads_max = threads_max
        self._clock = Clock() if clock is None else clock
        # Guards everything below. Held for a few steps at a time, never over a system call.
        self._changed = threading.Condition()
        self._numbers_count = 0
        # By number, oldest first: ready or waiting for another try, not in flight.
        self._waiting: OrderedDict[int, _Pending] = OrderedDict()
        self._waiting_bytes = 0
        # (when, number) of what waits for another try. A number that no longer waits was dropped.
        self._retries: list[tuple[float, int]] = []
        self._lanes: dict[str, _Lane] = {}
        # Of webhooks whose last try failed; kept while nothing waits for them, too.
        self._healths: dict[str, _Health] = {}
        # (when, webhook) of pauses that end. Some ended before, or have become longer.
        self._resumes: list[tuple[float, str]] = []
        # Lanes that have something ready and may use another thread, in turn.
        self._ring: deque[_Lane] = deque()
        self._threads: set[threading.Thread] = set()
        self._idle_count = 0
        self._is_closed = False
        self._is_overflowing = False
        self.dropped_count = 0

    @property
    def waiting_count(self) -> int:
        """How many are ready or wait for another try."""
        return len(self._waiting)

    # -- the loop's side -----------------------------------------------------------------------

    def send(self, delivery: Delivery) -> None:
        """Put a delivery in line and return at once; after `close` it is let fall."""
        with self._changed:
            if self._is_closed:
                return
            lane = self._lane_of(delivery.webhook_id)
            lane.all_count += 1
            self._numbers_count += 1
            pending = _Pending(self._numbers_count, delivery, lane)
            self._keep(pending)
            self._make_ready(pending)
            is_too_many = len(lane.ready) > LANE_WAITING_MAX
            if is_too_many:
                self._drop(next(iter(lane.ready.values())))
                self.dropped_count += 1
            is_news = self._drop_excess()
            is_short = self._needs_thread() and not self._start_thread()
            self._changed.notify()
        if is_too_many:
            self._on_outcome(delivery.webhook_id, False, self._clock.wall_ms())  # noqa: FBT003
        if is_news:
            self._log.warning(
                "too many webhook deliveries wait; the oldest are dropped",
                waiting=self.waiting_count,
                dropped=self.dropped_count,
            )
        if is_short:
            self._log.warn_repeated("webhook-thread", "cannot start a thread for webhooks")

    def forget(self, webhook_id: str) -> None:
        """Let fall what waits for a webhook that was removed; its outcomes are not told."""
        with self._changed:
            self._healths.pop(webhook_id, None)
            lane = self._lanes.get(webhook_id)
            if lane is None:
                return
            lane.is_forgotten = True
            for pending in [kept for kept in self._waiting.values() if kept.lane is lane]:
                self._drop(pending)
            # One in flight ends with the old lane; a webhook of the same id starts a new one.
            self._lanes.pop(webhook_id, None)

    def close(self, timeout_s: float) -> bool:
        """Take nothing more, let tries in flight end, and wait for them.

        Returns whether all threads have ended; if so, no outcome comes any more. What waits is
        given up.
        """
        with self._changed:
            self._is_closed = True
            given_up_count = len(self._waiting)
            for pending in list(self._waiting.values()):
                self._drop(pending)
            threads = list(self._threads)
            self._changed.notify_all()
        if given_up_count:
            self._log.warning("webhook deliveries given up by the stop", count=given_up_count)
        end_s = time.monotonic() + timeout_s
        for thread in threads:
            thread.join(max(0.0, end_s - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    # -- the threads' side ---------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while (pending := self._take()) is not None:
                is_done = False
                try:
                    is_done = self._try(pending.delivery)
                finally:
                    # Also when we are wrong and the thread dies: the lane must not stay blocked.
                    is_end = self._settle(pending, is_done=is_done)
                if is_end:
                    at_ms = self._clock.wall_ms()
                    self._on_outcome(pending.delivery.webhook_id, is_done, at_ms)
        finally:
            with self._changed:
                self._threads.discard(threading.current_thread())

    def _take(self) -> _Pending | None:
        """Wait for the next delivery; None means the end."""
        with self._changed:
            while not self._is_closed:
                now_s = self._clock.steady_s()
                self._ready_retries(now_s)
                pending = self._next()
                if pending is not None:
                    if self._ring:
                        self._changed.notify()
                    return pending
                self._idle_count += 1
                self._clock.wait(self._changed, self._until_next(now_s))
                self._idle_count -= 1
            return None

    def _until_next(self, now_s: float) -> float | None:
        """Return how long nothing is due for; None if nothing will be."""
        dues = [queue[0][0] for queue in (self._retries, self._resumes) if queue]
        return min(dues) - now_s if dues else None

    def _try(self, delivery: Delivery) -> bool:
        error = ""
        try:
            self._outbound.post(
                delivery.url, headers_of(delivery, self._clock.wall_ms()), delivery.body
            )
        except Undelivered as undelivered:
            error = str(undelivered)
        self._tell(delivery, error)
        return not error

    def _tell(self, delivery: Delivery, error: str) -> None:
        """Note how a try ended, and log it where that is news."""
        name = delivery.webhook_id
        with self._changed:
            health = self._healths.get(name)
            if not error:
                was_paused = health is not None and health.is_paused
                self._recover(name)
            else:
                health = self._worsen(name)
                now_s = self._clock.steady_s()
                is_news = (
                    health.failed_count in (1, PAUSE_AFTER) or now_s - health.told_s > REMIND_S
                )
                if is_news:
                    health.told_s = now_s
        if not error:
            if was_paused:
                self._log.info("a webhook is delivered again", webhook=name)
        elif is_news and health is not None:
            text = "a webhook could not be delivered"
            if health.is_paused:
                text = "a webhook is paused: it could not be delivered many times in a row"
            self._log.warning(
                text,
                webhook=name,
                event=delivery.event,
                failures=health.failed_count,
                error=error,
            )

    def _settle(self, pending: _Pending, *, is_done: bool) -> bool:
        """Free the lane, and put what failed back; return whether there is an outcome to tell."""
        with self._changed:
            lane = pending.lane
            lane.in_flight_count -= 1
            self._line_up(lane)
            pending.tries_count += 1
            is_last = is_done or pending.tries_count >= self._tries_max
            if is_last or lane.is_forgotten or self._is_closed:
                self._leave(lane)
                return is_last and not lane.is_forgotten
            due_s = self._clock.steady_s() + RETRY_WAIT_S * pending.tries_count
            self._keep(pending)
            # It is older than what came while it was tried, so it is the first to be dropped.
            self._waiting.move_to_end(pending.number, last=False)
            heappush(self._retries, (due_s, pending.number))
            # Whoever is idle may have to wake up earlier than it thought.
            self._changed.notify()
            return False

    def _start_thread(self) -> bool:
        thread = threading.Thread(target=self._run, name="jobyard-webhook", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return False  # the system has no more threads; the next delivery asks again
        self._threads.add(thread)
        return True

    def _needs_thread(self) -> bool:
        return len(self._waiting) > self._idle_count and len(self._threads) < self._threads_max

    # -- lines; the lock is held ---------------------------------------------------------------

    def _lane_of(self, webhook_id: str) -> _Lane:
        lane = self._lanes.get(webhook_id)
        if lane is None:
            health = self._healths.get(webhook_id) or _Health()
            lane = self._lanes[webhook_id] = _Lane(webhook_id, health)
        return lane

    def _worsen(self, webhook_id: str) -> _Health:
        """Count a failed try, and pause the webhook if there were too many."""
        lane = self._lanes.get(webhook_id)
        health = lane.health if lane is not None else _Health()
        if lane is not None:
            self._healths[webhook_id] = health
        health.failed_count += 1
        if health.is_paused:
            health.resume_s = self._clock.steady_s() + health.pause_s()
            heappush(self._resumes, (health.resume_s, webhook_id))
        return health

    def _recover(self, webhook_id: str) -> None:
        health = self._healths.pop(webhook_id, None)
        if health is not None:
            health.failed_count = 0
            health.resume_s = 0.0

    def _keep(self, pending: _Pending) -> None:
        self._waiting[pending.number] = pending
        self._waiting_bytes += len(pending.delivery.body)

    def _unkeep(self, pending: _Pending) -> None:
        del self._waiting[pending.number]
        self._waiting_bytes -= len(pending.delivery.body)

    def _make_ready(self, pending: _Pending) -> None:
        pending.lane.ready[pending.number] = pending
        self._line_up(pending.lane)

    def _line_up(self, lane: _Lane) -> None:
        health = lane.health
        threads_max = 1 if health.is_paused else LANE_THREADS_MAX
        if not lane.ready or lane.is_in_ring or lane.in_flight_count >= threads_max:
            return
        if not health.is_paused or health.resume_s <= self._clock.steady_s():
            lane.is_in_ring = True
            self._ring.append(lane)

    def _next(self) -> _Pending | None:
        while self._ring:
            lane = self._ring.popleft()
            lane.is_in_ring = False
            if lane.ready and not self._must_rest(lane):
                _, pending = lane.ready.popitem(last=False)
                self._unkeep(pending)
                lane.in_flight_count += 1
                self._line_up(lane)
                return pending
        return None

    def _must_rest(self, lane: _Lane) -> bool:
        """Tell whether a lane that stood in the ring was paused meanwhile."""
        health = lane.health
        return health.is_paused and (
            lane.in_flight_count > 0 or health.resume_s > self._clock.steady_s()
        )

    def _ready_retries(self, now_s: float) -> None:
        while self._resumes and self._resumes[0][0] <= now_s:
            _, webhook_id = heappop(self._resumes)
            lane = self._lanes.get(webhook_id)
            if lane is not None:
                self._line_up(lane)
        while self._retries and self._retries[0][0] <= now_s:
            _, number = heappop(self._retries)
            pending = self._waiting.get(number)
            if pending is not None:
                self._make_ready(pending)

    def _drop_excess(self) -> bool:
        """Drop the oldest until the rest fits; return whether that is news worth a line."""
        is_half_empty = (
            len(self._waiting) <= self._waiting_max // 2
            and self._waiting_bytes <= WAITING_BYTES_MAX // 2
        )
        was_overflowing = self._is_overflowing and not is_half_empty
        self._is_overflowing = was_overflowing
        # The newest stays in any case, so that a body of any size has its chance.
        while len(self._waiting) > 1 and (
            len(self._waiting) > self._waiting_max or self._waiting_bytes > WAITING_BYTES_MAX
        ):
            self._drop(next(iter(self._waiting.values())))
            self.dropped_count += 1
            self._is_overflowing = True
        return self._is_overflowing and not was_overflowing

    def _drop(self, pending: _Pending) -> None:
        self._unkeep(pending)
        pending.lane.ready.pop(pending.number, None)
        self._leave(pending.lane)

    def _leave(self, lane: _Lane) -> None:
        lane.all_count -= 1
        if lane.all_count == 0 and self._lanes.get(lane.webhook_id) is lane:
            del self._lanes[lane.webhook_id]


def headers_of(delivery: Delivery, now_ms: int) -> dict[str, str]:
    """The headers by which a receiver knows what it got and from whom."""
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"jobyard/{__version__}",
        "X-Webhook-Event": delivery.event,
        "X-Webhook-Timestamp": str(now_ms),
    }
    if delivery.secret:
        # A client may have sent half a surrogate pair; a strange secret is still a secret.
        key = delivery.secret.encode(errors="surrogatepass")
        headers["X-Webhook-Signature"] = hmac.digest(key, delivery.body, "sha256").hex()
    return headers
