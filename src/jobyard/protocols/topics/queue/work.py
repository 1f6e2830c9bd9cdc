"""Pushes jobs to a worker over an event stream that holds a limited number of leases.

The stream gets a new job as soon as one of its leases ends for any reason. When the stream ends, it
returns the jobs it still holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from jobyard.engine.state.timers import Alarm
from jobyard.engine.topics.push_stream import PushStream, StreamWorker
from jobyard.engine.topics.topic_setup import config_of
from jobyard.model.limits import NEVER_MS
from jobyard.model.topic.config import clamp_lease_ms
from jobyard.protocols.http.call import EVENT_STREAM, HttpCall, HttpRefused, PendingCall
from jobyard.protocols.topics.body import invalid
from jobyard.protocols.topics.find import queue_of
from jobyard.protocols.topics.limits import hold_stream
from jobyard.protocols.topics.queue.leases import CLAIM_MAX
from jobyard.protocols.topics.records.jobs import write_lease
from jobyard.protocols.topics.records.record import NODE_MAX
from jobyard.wire.http.accept import admits
from jobyard.wire.http.request import parse_query
from jobyard.wire.http.sse import comment, event, retry
from jobyard.wire.json.write import quoted
from jobyard.wire.numbers import decimal

if TYPE_CHECKING:
    from jobyard.model.lease import Lease
    from jobyard.model.queue import Queue
    from jobyard.protocols.topics.door import TopicsDoor

HEARTBEAT_MS: Final = 15_000
WORK_RETRY_MS: Final = 2000
STREAM_HEADERS: Final = b"Cache-Control: no-store\r\nX-Accel-Buffering: no\r\n"


def work(door: TopicsDoor, call: HttpCall) -> None:
    """GET /v0/topics/{topic}/work."""
    queue = queue_of(door.yard, call.params[0])
    check_accept(call)
    asked = parse_query(call.request.query)
    node = asked.get("node", "")
    if not node or len(node.encode()) > NODE_MAX:
        raise invalid(f"node is required, with at most {NODE_MAX} bytes")
    most = max(1, min(_number(asked, "max", 1), CLAIM_MAX))
    lease_ms = clamp_lease_ms(_number(asked, "lease_ms", config_of(queue).lease_ms))
    hold_stream(door, call)
    _Work(door, call, queue, node, most, lease_ms)


def check_accept(call: HttpCall) -> None:
    """Refuse a caller that does not accept an event stream."""
    if not admits(call.header("accept"), EVENT_STREAM):
        raise HttpRefused(406, "not_acceptable", f"this path answers with {EVENT_STREAM}")


def _number(asked: dict[str, str], key: str, otherwise: int) -> int:
    text = asked.get(key, "")
    if not text:
        return otherwise
    if not text.isascii() or not text.isdecimal():
        raise invalid(f"{key} must be a whole number")
    return decimal(text.encode())


@final
class Heartbeat(Alarm):
    """Sends a comment at intervals, so that clients can detect a dead connection."""

    def __init__(self, call: HttpCall) -> None:
        super().__init__(0, NEVER_MS, 0)
        self._call = call
        self._yard = call.session.door.yard

    def begin(self, now_ms: i64) -> None:
        """Restart the interval: something was sent."""
        self._yard.disarm(self)
        self._yard.arm(self, now_ms + HEARTBEAT_MS)

    def ring(self, now_ms: i64) -> None:
        """Send a comment."""
        self._call.await_batch(0)
        self._call.send(comment(b"hb"))
        self.begin(now_ms)

    def end(self) -> None:
        """Stop."""
        self._yard.disarm(self)


@final
class _Work(StreamWorker, PendingCall):
    """One stream of jobs."""

    def __init__(
        self, door: TopicsDoor, call: HttpCall, queue: Queue, node: str, most: i64, lease_ms: i64
    ) -> None:
        self._door = door
        self._call = call
        self._queue = queue
        self._heartbeat = Heartbeat(call)
        self._stream = PushStream(door.yard, queue, node, most, lease_ms, self)
        call.begin_stream(self, EVENT_STREAM, STREAM_HEADERS)
        if call.is_answered:
            return
        call.send(retry(WORK_RETRY_MS))
        self._heartbeat.begin(call.now_ms)
        self._stream.open(call.now_ms)

    def job_given(self, lease: Lease) -> None:
        """Push a job."""
        out = BytesWriter()
        out.write(b'{"topic":')
        out.write(quoted(self._queue.name))
        out.write(b",")
        write_lease(out, self._door, lease)
        out.write(b"}")
        self._call.await_batch(lease.job.batch, is_synced=self._queue.is_synced)
        self._call.send(event(str(int(lease.job.key)).encode(), b"job", out.getvalue()))
        self._heartbeat.begin(lease.started_ms)

    def has_room(self) -> bool:
        """Return False while the worker does not read."""
        return self._call.has_room()

    def queue_gone(self) -> None:
        """End the stream: the topic was removed."""
        self._end(b"topic_not_found", b"the topic was removed")

    def stop_waiting(self, now_ms: i64) -> None:
        """End the stream: the server stops, or the client has closed its side."""
        self._stream.close(now_ms)
        self._end(b"server_shutting_down", b"the server is shutting down")

    def gone(self, now_ms: i64) -> None:
        """Return all leased jobs."""
        self._heartbeat.end()
        self._stream.close(now_ms)

    def drained(self, now_ms: i64) -> None:
        """Push more jobs."""
        self._stream.proceed(now_ms)

    def _end(self, code: bytes, story: bytes) -> None:
        self._heartbeat.end()
        topic = quoted(self._queue.name)
        data = b'{"code":"%s","error":"%s","topic":%s}' % (code, story, topic)
        self._call.send(event(b"", b"error", data))
        self._call.end_stream()
