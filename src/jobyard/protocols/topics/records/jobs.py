"""Jobs of a queue as topics clients see them: entries of a claim, and records of a page."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from jobyard.engine.jobs.listing import jobs_by_seq_of
from jobyard.engine.logs.read import gap, gap_reason
from jobyard.engine.topics import topic_queue
from jobyard.engine.topics.topic_setup import config_of
from jobyard.errors import TextDamaged
from jobyard.journal.bodies import place_text
from jobyard.model.job import BYTES, JSON, Job
from jobyard.model.topic.log import RECREATED, LogPage, LogQuery
from jobyard.protocols.topics.answers import put_int
from jobyard.wire.json.write import write_text
from jobyard.wire.payload import to_json

if TYPE_CHECKING:
    from jobyard.model.lease import Lease
    from jobyard.model.queue import Queue
    from jobyard.protocols.topics.door import TopicsDoor

# Jobs read together.
_SLICE: Final = 256


def write_lease(
    out: BytesWriter, door: TopicsDoor, lease: Lease, body: bytes | None = None
) -> None:
    """Write the fields of a leased job, without braces; `body` if the lease does not hold it."""
    job = lease.job
    put_int(out, b'"$seq":', job.key)
    out.write(b',"lease_id":"')
    out.write(topic_queue.lease_name(door.yard, lease).encode())
    put_int(out, b'","deadline":', door.wall_ms(lease.until_ms))
    put_int(out, b',"$ts":', door.wall_ms(job.created_ms))
    _write_tag(out, job)
    put_int(out, b',"deliveries":', i64(job.deliveries))
    _write_data(out, job, lease.body if body is None else body)
    _write_meta(out, job)


def page_of_jobs(door: TopicsDoor, queue: Queue, query: LogQuery) -> LogPage:
    """Return the jobs of a queue as the records of a log."""
    yard = door.yard
    if queue.topic_state is not None:
        queue.topic_state.last_read_ms = yard.now_ms
    head = queue.next_seq - 1
    page = LogPage(head, earliest_seq(queue), yard.journal.newest())
    page.is_synced = queue.is_synced
    page.next_from_seq = query.from_seq
    if query.from_seq > head:
        page.tombstone = gap(page, 1, page.earliest_seq - 1, RECREATED)
        page.next_from_seq = page.earliest_seq - 1
    else:
        _add_tombstone(page, queue)
    left = query.max_bytes
    while left >= 0:
        jobs = topic_queue.peek(yard, queue, page.next_from_seq, _SLICE)
        if not jobs:
            page.next_from_seq = head
            break
        for job in jobs:
            left = _add_job(door, page, job, query, left)
            if left < 0:
                break
            page.next_from_seq = job.key
    return page


def _add_tombstone(page: LogPage, queue: Queue) -> None:
    """Add a tombstone for jobs removed by cap or TTL; older jobs may still be there."""
    topic_state = queue.topic_state
    after = page.next_from_seq
    if topic_state is not None:
        floor = max(topic_state.cap_floor, topic_state.ttl_floor)
        if after + 1 < floor:
            reason = gap_reason(topic_state.cap_floor, topic_state.ttl_floor, after)
            page.tombstone = gap(page, after + 1, floor - 1, reason)


def _add_job(door: TopicsDoor, page: LogPage, job: Job, query: LogQuery, left: i64) -> i64:
    """Add a job unless the reader skips it; return the bytes left, or -1 if the page is full."""
    if query.nodes and config_of(job.queue).dedupe_node:
        record_meta = topic_queue.record_meta_of(job)
        if record_meta is not None and record_meta.node and record_meta.node in query.nodes:
            return left
    if page.count >= query.limit:
        return -1
    body = door.yard.bodies.fetch(job) if query.include_data else b""
    if body is None:
        # As in a log: the page ends before a damaged record, and fails if it is the first one.
        if page.count == 0 and page.tombstone is None:
            raise TextDamaged(int(job.key), int(job.key), place_text(job))
        return -1
    record = _record(door, job, body, query)
    if page.count > 0 and len(record) > left:
        return -1
    page.records.append(b"," + record if page.count > 0 else record)
    page.count += 1
    return max(left - len(record), 0)


def written_ms(queue: Queue) -> i64:
    """Return when the newest job was put; 0 if unknown."""
    topic_state = queue.topic_state
    if topic_state is not None and topic_state.last_write_ms > 0:
        return topic_state.last_write_ms
    newest = jobs_by_seq_of(queue).after(queue.next_seq - 2, 1)
    return newest[0].created_ms if newest else 0


def earliest_seq(queue: Queue) -> i64:
    """Return the seq of the oldest job, or of the next one if there is none."""
    oldest = jobs_by_seq_of(queue).oldest()
    return queue.next_seq if oldest is None else oldest.key


def _record(door: TopicsDoor, job: Job, body: bytes, query: LogQuery) -> bytes:
    out = BytesWriter()
    put_int(out, b'{"$seq":', job.key)
    put_int(out, b',"$ts":', door.wall_ms(job.created_ms))
    record_meta = topic_queue.record_meta_of(job)
    if query.include_tags:
        _write_tag(out, job)
    if record_meta is not None and record_meta.node:
        out.write(b',"$node":')
        write_text(out, record_meta.node)
    if query.include_data:
        _write_data(out, job, body)
    if query.include_meta:
        _write_meta(out, job)
    out.write(b"}")
    return out.getvalue()


def _write_tag(out: BytesWriter, job: Job) -> None:
    record_meta = topic_queue.record_meta_of(job)
    if record_meta is not None and record_meta.tag:
        out.write(b',"$tag":')
        write_text(out, record_meta.tag)


def _write_data(out: BytesWriter, job: Job, body: bytes) -> None:
    if job.codec == BYTES:
        out.write(b',"data_b64":"')
        out.write(b64encode(body))
        out.write(b'"')
        return
    out.write(b',"data":')
    out.write(body if job.codec == JSON else to_json(i64(job.codec), body))


def _write_meta(out: BytesWriter, job: Job) -> None:
    record_meta = topic_queue.record_meta_of(job)
    if record_meta is not None and record_meta.meta:
        out.write(b',"meta":')
        out.write(record_meta.meta)
