"""Queues webhook deliveries, schedules retries and gives up after too many attempts.

The loop calls `send`, which queues a delivery and returns; up to THREADS_MAX daemon threads,
started when there is work, take deliveries and POST them (outbound.py). Must not know jobs or the
journal: the caller builds the body, and `on_outcome` gets the outcome, in the delivery thread.

Each webhook has its own queue, queues take turns, and none keeps more than HOOK_THREADS_MAX threads
busy: a dead or slow receiver delays only its own deliveries. Deliveries of one webhook are usually
sent in order, but others may overtake a failed one.

A webhook that keeps failing is paused, for longer each time: then one delivery is tried, and if it
succeeds, all continue at once. The log reports the first failure, the pause and its end, and a
reminder in between every REMIND_S seconds.

The invariant: memory is bounded. At most `waiting_max` deliveries, HOOK_WAITING_MAX per webhook,
and about WAITING_BYTES_MAX bytes of bodies wait; beyond that the oldest is dropped and counted, and
a drop at the limit of one webhook is reported as its failure. Waiting deliveries are lost when the
process ends: a webhook is only a notice, and the job itself is in the journal.
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
# The wait before attempt n + 1 is n times this.
RETRY_WAIT_S: Final = 1.0
NOTICES_WAITING_MAX: Final = 10_000
# Ten thousand bodies of the maximum size would be a hundred gigabytes.
WAITING_BYTES_MAX: Final = 64 << 20
# Per webhook, so that one with a dead receiver does not displace the others.
HOOK_WAITING_MAX: Final = 1000
# A webhook is paused after this many failures in a row, for twice as long each time.
PAUSE_AFTER: Final = 5
PAUSE_S: Final = 5.0
PAUSE_S_MAX: Final = 300.0
# Interval of log lines while a webhook keeps failing.
REMIND_S: Final = 3600.0
THREADS_MAX: Final = 4
HOOK_THREADS_MAX: Final = 2

OnOutcome = Callable[[str, bool, int], None]


@final
@dataclass(frozen=True, slots=True)
class WebhookDelivery:
    """One notice for one webhook."""

    webhook_id: str
    url: str
    secret: str | None = field(repr=False)
    event: str
    body: bytes = field(repr=False)

    def __post_init__(self) -> None:
        # Sent unescaped in a header; callers pass only known event names.
        assert self.event.isascii(), self.event
        assert self.event.isprintable(), self.event


class DeliveryClock:
    """The clock of deliveries; tests replace it."""

    def steady_s(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()

    def wall_ms(self) -> int:
        """Return milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def wait(self, changed: threading.Condition, timeout_s: float | None) -> None:
        """Release the lock until notified or until `timeout_s` has passed."""
        changed.wait(timeout_s)


@final
class _Health:
    """Recent failures of one webhook."""

    def __init__(self) -> None:
        # In a row.
        self.failed_count = 0
        self.resume_s = 0.0
        self.logged_s = 0.0

    @property
    def is_paused(self) -> bool:
        """Whether it failed so often that it is only tried from time to time."""
        return self.failed_count >= PAUSE_AFTER

    def pause_s(self) -> float:
        """Return how long to pause after the last failure."""
        return min(PAUSE_S * (1 << min(self.failed_count - PAUSE_AFTER, 10)), PAUSE_S_MAX)


@final
class _HookQueue:
    """The deliveries waiting for one webhook, and how many threads serve it."""

    def __init__(self, webhook_id: str, health: _Health) -> None:
        self.webhook_id = webhook_id
        self.health = health
        self.ready: OrderedDict[int, _Pending] = OrderedDict()
        # Ready, waiting for a retry, or in flight.
        self.all_count = 0
        self.in_flight_count = 0
        self.is_in_ring = False
        self.is_forgotten = False


@final
class _Pending:
    """A delivery and the number of its attempts."""

    def __init__(self, number: int, delivery: WebhookDelivery, hook_queue: _HookQueue) -> None:
        self.number = number
        self.delivery = delivery
        self.hook_queue = hook_queue
        self.tries_count = 0


@final
class WebhookDeliveries:
    """All pending webhook deliveries; all methods may be called from any thread."""

    def __init__(
        self,
        log: Log,
        on_outcome: OnOutcome,
        outbound: Outbound,
        *,
        tries_max: int = TRIES_MAX,
        waiting_max: int = NOTICES_WAITING_MAX,
        threads_max: int = THREADS_MAX,
        clock: DeliveryClock | None = None,
    ) -> None:
        """Create the queues; threads are started with the first delivery.

        `on_outcome(webhook_id, ok, at_ms)` is called once per delivery that succeeded or was given
        up, in a thread and without the lock; `at_ms` is wall time.
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
        self._clock = DeliveryClock() if clock is None else clock
        # Protects everything below. Held briefly, never during a system call.
        self._changed = threading.Condition()
        self._numbers_count = 0
        # By number, oldest first: ready or waiting for a retry, not in flight.
        self._waiting: OrderedDict[int, _Pending] = OrderedDict()
        self._waiting_bytes = 0
        # (when, number) of waiting retries. A number not in `_waiting` was dropped.
        self._retries: list[tuple[float, int]] = []
        self._hook_queues: dict[str, _HookQueue] = {}
        # Of webhooks whose last attempt failed, even if nothing waits for them.
        self._healths: dict[str, _Health] = {}
        # (when, webhook) of ends of pauses. May be outdated: ended early, or extended.
        self._resumes: list[tuple[float, str]] = []
        # Webhook queues with ready deliveries that may use another thread, in turn.
        self._ring: deque[_HookQueue] = deque()
        self._threads: set[threading.Thread] = set()
        self._idle_count = 0
        self._is_closed = False
        self._is_overflowing = False
        self.dropped_count = 0

    @property
    def waiting_count(self) -> int:
        """The number of deliveries that are ready or wait for a retry."""
        return len(self._waiting)

    # -- the loop's side -----------------------------------------------------------------------

    def send(self, delivery: WebhookDelivery) -> None:
        """Queue a delivery and return immediately; after `close` it is dropped."""
        with self._changed:
            if self._is_closed:
                return
            hook_queue = self._hook_queue_of(delivery.webhook_id)
            hook_queue.all_count += 1
            self._numbers_count += 1
            pending = _Pending(self._numbers_count, delivery, hook_queue)
            self._keep(pending)
            self._make_ready(pending)
            is_too_many = len(hook_queue.ready) > HOOK_WAITING_MAX
            if is_too_many:
                self._drop(next(iter(hook_queue.ready.values())))
                self.dropped_count += 1
            must_log = self._drop_excess()
            is_short = self._needs_thread() and not self._start_thread()
            self._changed.notify()
        if is_too_many:
            self._on_outcome(delivery.webhook_id, False, self._clock.wall_ms())  # noqa: FBT003
        if must_log:
            self._log.warning(
                "too many webhook deliveries are waiting; the oldest are dropped",
                waiting=self.waiting_count,
                dropped=self.dropped_count,
            )
        if is_short:
            self._log.warn_repeated("webhook-thread", "cannot start a thread for webhooks")

    def forget(self, webhook_id: str) -> None:
        """Drop the deliveries of a removed webhook; their outcomes are not reported."""
        with self._changed:
            self._healths.pop(webhook_id, None)
            hook_queue = self._hook_queues.get(webhook_id)
            if hook_queue is None:
                return
            hook_queue.is_forgotten = True
            for pending in [
                kept for kept in self._waiting.values() if kept.hook_queue is hook_queue
            ]:
                self._drop(pending)
            # A delivery in flight keeps the old queue; a new webhook with this id gets a new one.
            self._hook_queues.pop(webhook_id, None)

    def close(self, timeout_s: float) -> bool:
        """Drop waiting deliveries, accept no new ones, and wait for attempts in flight.

        Returns whether all threads have ended; if so, no more outcomes are reported.
        """
        with self._changed:
            self._is_closed = True
            given_up_count = len(self._waiting)
            for pending in list(self._waiting.values()):
                self._drop(pending)
            threads = list(self._threads)
            self._changed.notify_all()
        if given_up_count:
            self._log.warning("webhook deliveries dropped by the stop", count=given_up_count)
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
                    # Even if the thread dies of a bug, the queue must not stay blocked.
                    is_end = self._settle(pending, is_done=is_done)
                if is_end:
                    at_ms = self._clock.wall_ms()
                    self._on_outcome(pending.delivery.webhook_id, is_done, at_ms)
        finally:
            with self._changed:
                self._threads.discard(threading.current_thread())

    def _take(self) -> _Pending | None:
        """Wait for the next delivery; return None after `close`."""
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
        """Return the time until the next retry or end of a pause; None if there is none."""
        dues = [queue[0][0] for queue in (self._retries, self._resumes) if queue]
        return min(dues) - now_s if dues else None

    def _try(self, delivery: WebhookDelivery) -> bool:
        error = ""
        try:
            self._outbound.post(
                delivery.url, headers_of(delivery, self._clock.wall_ms()), delivery.body
            )
        except Undelivered as undelivered:
            error = str(undelivered)
        self._note_result(delivery, error)
        return not error

    def _note_result(self, delivery: WebhookDelivery, error: str) -> None:
        """Record the result of an attempt, and log it if it is worth a line."""
        name = delivery.webhook_id
        with self._changed:
            health = self._healths.get(name)
            if not error:
                was_paused = health is not None and health.is_paused
                self._recover(name)
            else:
                health = self._worsen(name)
                now_s = self._clock.steady_s()
                must_log = (
                    health.failed_count in (1, PAUSE_AFTER) or now_s - health.logged_s > REMIND_S
                )
                if must_log:
                    health.logged_s = now_s
        if not error:
            if was_paused:
                self._log.info("webhook deliveries succeed again", webhook=name)
        elif must_log and health is not None:
            text = "webhook delivery failed"
            if health.is_paused:
                text = "webhook paused after repeated delivery failures"
            self._log.warning(
                text,
                webhook=name,
                event=delivery.event,
                failures=health.failed_count,
                error=error,
            )

    def _settle(self, pending: _Pending, *, is_done: bool) -> bool:
        """Free the thread's slot and requeue a failure; return whether to report an outcome."""
        with self._changed:
            hook_queue = pending.hook_queue
            hook_queue.in_flight_count -= 1
            self._line_up(hook_queue)
            pending.tries_count += 1
            is_last = is_done or pending.tries_count >= self._tries_max
            if is_last or hook_queue.is_forgotten or self._is_closed:
                self._leave(hook_queue)
                return is_last and not hook_queue.is_forgotten
            due_s = self._clock.steady_s() + RETRY_WAIT_S * pending.tries_count
            self._keep(pending)
            # Older than what arrived during the attempt, so it is the first to be dropped.
            self._waiting.move_to_end(pending.number, last=False)
            heappush(self._retries, (due_s, pending.number))
            # An idle thread may have to wake up earlier than planned.
            self._changed.notify()
            return False

    def _start_thread(self) -> bool:
        thread = threading.Thread(target=self._run, name="jobyard-webhook", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return False  # the system is out of threads; the next delivery tries again
        self._threads.add(thread)
        return True

    def _needs_thread(self) -> bool:
        return len(self._waiting) > self._idle_count and len(self._threads) < self._threads_max

    # -- queues; the lock is held --------------------------------------------------------------

    def _hook_queue_of(self, webhook_id: str) -> _HookQueue:
        hook_queue = self._hook_queues.get(webhook_id)
        if hook_queue is None:
            health = self._healths.get(webhook_id) or _Health()
            hook_queue = self._hook_queues[webhook_id] = _HookQueue(webhook_id, health)
        return hook_queue

    def _worsen(self, webhook_id: str) -> _Health:
        """Count a failed attempt, and pause the webhook after too many."""
        hook_queue = self._hook_queues.get(webhook_id)
        health = hook_queue.health if hook_queue is not None else _Health()
        if hook_queue is not None:
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
        pending.hook_queue.ready[pending.number] = pending
        self._line_up(pending.hook_queue)

    def _line_up(self, hook_queue: _HookQueue) -> None:
        health = hook_queue.health
        threads_max = 1 if health.is_paused else HOOK_THREADS_MAX
        if (
            not hook_queue.ready
            or hook_queue.is_in_ring
            or hook_queue.in_flight_count >= threads_max
        ):
            return
        if not health.is_paused or health.resume_s <= self._clock.steady_s():
            hook_queue.is_in_ring = True
            self._ring.append(hook_queue)

    def _next(self) -> _Pending | None:
        while self._ring:
            hook_queue = self._ring.popleft()
            hook_queue.is_in_ring = False
            if hook_queue.ready and not self._must_rest(hook_queue):
                _, pending = hook_queue.ready.popitem(last=False)
                self._unkeep(pending)
                hook_queue.in_flight_count += 1
                self._line_up(hook_queue)
                return pending
        return None

    def _must_rest(self, hook_queue: _HookQueue) -> bool:
        """Return whether a queue in the ring has been paused in the meantime."""
        health = hook_queue.health
        return health.is_paused and (
            hook_queue.in_flight_count > 0 or health.resume_s > self._clock.steady_s()
        )

    def _ready_retries(self, now_s: float) -> None:
        while self._resumes and self._resumes[0][0] <= now_s:
            _, webhook_id = heappop(self._resumes)
            hook_queue = self._hook_queues.get(webhook_id)
            if hook_queue is not None:
                self._line_up(hook_queue)
        while self._retries and self._retries[0][0] <= now_s:
            _, number = heappop(self._retries)
            pending = self._waiting.get(number)
            if pending is not None:
                self._make_ready(pending)

    def _drop_excess(self) -> bool:
        """Drop the oldest until the rest fits; return whether to log that."""
        is_half_empty = (
            len(self._waiting) <= self._waiting_max // 2
            and self._waiting_bytes <= WAITING_BYTES_MAX // 2
        )
        was_overflowing = self._is_overflowing and not is_half_empty
        self._is_overflowing = was_overflowing
        # The newest always stays, so that a body of any size can be sent.
        while len(self._waiting) > 1 and (
            len(self._waiting) > self._waiting_max or self._waiting_bytes > WAITING_BYTES_MAX
        ):
            self._drop(next(iter(self._waiting.values())))
            self.dropped_count += 1
            self._is_overflowing = True
        return self._is_overflowing and not was_overflowing

    def _drop(self, pending: _Pending) -> None:
        self._unkeep(pending)
        pending.hook_queue.ready.pop(pending.number, None)
        self._leave(pending.hook_queue)

    def _leave(self, hook_queue: _HookQueue) -> None:
        hook_queue.all_count -= 1
        if hook_queue.all_count == 0 and self._hook_queues.get(hook_queue.webhook_id) is hook_queue:
            del self._hook_queues[hook_queue.webhook_id]


def headers_of(delivery: WebhookDelivery, now_ms: int) -> dict[str, str]:
    """Return the headers that identify and sign a delivery."""
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"jobyard/{__version__}",
        "X-Webhook-Event": delivery.event,
        "X-Webhook-Timestamp": str(now_ms),
    }
    if delivery.secret:
        # A client may have sent a lone surrogate in its secret.
        key = delivery.secret.encode(errors="surrogatepass")
        headers["X-Webhook-Signature"] = hmac.digest(key, delivery.body, "sha256").hex()
    return headers
