"""The jobs of a claim set as columns: those of an export of jobs, and their leases.

Which columns there are and how they are chosen is as in an export, so that one reader serves both.
Reads jobs and leases; changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from jobyard.engine.topics import topic_queue
from jobyard.model.topic.columns import Column, NumberColumn, TextColumn
from jobyard.protocols.topics.body import query_flag
from jobyard.protocols.topics.export.jobs import DATA_PLACE, JOB_FIELDS, VALUE_PLACE, JobColumns
from jobyard.protocols.topics.export.request import check_known, picked_fields, read_columns
from jobyard.wire.arrow.stream import (
    END,
    INT64,
    TIMESTAMP,
    UTF8,
    ArrowField,
    batch_message,
    schema_message,
)
from jobyard.wire.http.request import parse_query

if TYPE_CHECKING:
    from mypy_extensions import i64

    from jobyard.model.lease import Lease
    from jobyard.model.queue import Queue
    from jobyard.protocols.http.call import HttpCall
    from jobyard.protocols.topics.door import TopicsDoor

_PARAMETERS: Final = frozenset(("columns", "nullable"))
# `seq` and `ts` are there under the names that they have in JSON too.
_LEASE_FIELDS: Final = [
    ArrowField("seq", INT64),
    ArrowField("lease_id", UTF8),
    ArrowField("deadline", TIMESTAMP),
    ArrowField("ts", TIMESTAMP),
]
_COLUMNS: Final = [*_LEASE_FIELDS, *JOB_FIELDS]


@final
class ClaimColumns:
    """Some jobs of a claim set, in the columns that a call asks for."""

    def __init__(self, door: TopicsDoor, call: HttpCall, queue: Queue) -> None:
        self._door = door
        check_known(parse_query(call.request.query), f"a claim of {queue.name}", _PARAMETERS)
        self._places = read_columns(call, _COLUMNS)
        self._is_nullable: bool = query_flag(call, "nullable", otherwise=False)
        before = len(_LEASE_FIELDS)
        wanted = [place - before for place in self._places if place >= before]
        # Whether the data of jobs is needed.
        self.has_bodies: bool = DATA_PLACE in wanted or VALUE_PLACE in wanted
        self._jobs = JobColumns(door, queue, wanted)
        self._seqs = NumberColumn()
        self._lease_ids = TextColumn()
        self._deadlines = NumberColumn()
        self._times = NumberColumn()

    def add(self, lease: Lease, body: bytes) -> None:
        """Append a leased job with this body."""
        job = lease.job
        door = self._door
        self._seqs.add(job.key)
        self._lease_ids.add(topic_queue.lease_name(door.yard, lease).encode())
        self._deadlines.add(door.wall_ms(lease.until_ms) * 1000)
        self._times.add(door.wall_ms(job.created_ms) * 1000)
        self._jobs.add(job, body)

    def stream(self, claim_id: str, left_out: i64) -> bytes:
        """Return the rows as an Arrow stream."""
        every: list[Column] = [self._seqs, self._lease_ids, self._deadlines, self._times]
        every += self._jobs.columns()
        columns = [every[place] for place in self._places]
        fields = picked_fields(_COLUMNS, self._places, is_nullable=self._is_nullable)
        notes = {"claim_id": claim_id, "left_out": str(int(left_out))}
        rows = [batch_message(columns, {})] if self._seqs.count > 0 else []
        return b"".join([schema_message(fields, notes), *rows, END])
