"""Sends the records of one partition in chunks: staged for a commit, or written at once.

A chunk that was staged is sent again under the same number and counts once. A chunk that is
written directly may be written twice if its answer is lost; its records count once if they have
keys.
"""

import json
from typing import Final, NamedTuple, final

from jobyard.client import Answer, JobyardError, YardClient
from jobyard.client.calls import topic_path
from jobyard.client.txns import stage_path
from jobyard.spark.write.records import Record, size_of

CHUNK_ROWS: Final = 5000
CHUNK_BYTES: Final = 4 << 20
# Of all topics together that have a chunk which is not full.
WAITING_BYTES: Final = 32 << 20


class Part(NamedTuple):
    """What one attempt of a task has staged for one topic."""

    topic: str
    part: int
    attempt: int
    chunks: int
    rows: int

    def fields(self) -> dict[str, object]:
        """Return it as a commit names it."""
        return self._asdict()


class WriteCounts(NamedTuple):
    """What became of rows that were written directly."""

    written: int = 0
    duplicates: int = 0


@final
class ChunkSender:
    """Collects records by topic, and sends each chunk when it is full."""

    def __init__(self, client: YardClient, txn: str, part: int, attempt: int) -> None:
        self._client = client
        # Empty: records are written at once.
        self._txn = txn
        self._part = part
        self._attempt = attempt
        self._waiting: dict[str, list[str]] = {}
        self._sizes: dict[str, int] = {}
        self._waiting_bytes = 0
        self._chunks: dict[str, int] = {}
        self._rows: dict[str, int] = {}
        self.counts = WriteCounts()
        # How many records of what a commit may hold are added, how many bytes of them are staged as
        # the server counts, and how much it may hold; 0: not known yet.
        self.size = 0
        self.staged_bytes = 0
        self.rows_max = 0
        self.bytes_max = 0

    @property
    def is_too_large(self) -> bool:
        """Return whether no commit can hold what is added."""
        return 0 < self.rows_max < self.size or 0 < self.bytes_max < self.staged_bytes

    def add(self, record: Record) -> None:
        """Add a record, and send a chunk if it is full."""
        self.add_all(record.topic, [record.body])
        self.size += record.rows - 1

    def add_all(self, topic: str, bodies: list[str]) -> None:
        """Add records of one topic, and send each chunk that is full."""
        waiting = self._waiting.setdefault(topic, [])
        size = before = self._sizes.get(topic, 0)
        for body in bodies:
            more = len(body) if body.isascii() else size_of(body)
            if len(waiting) == CHUNK_ROWS or (waiting and size + more > CHUNK_BYTES):
                self._send(topic)
                waiting = self._waiting.setdefault(topic, [])
                size = before = 0
            waiting.append(body)
            # Also of what joins it to the next one.
            size += more + 1
        self._sizes[topic] = size
        self.size += len(bodies)
        self._waiting_bytes += size - before
        if self._waiting_bytes > WAITING_BYTES:
            self._send(max(self._sizes, key=self._sizes.__getitem__))

    def finish(self) -> list[Part]:
        """Send what is left; return what was staged."""
        for topic, waiting in list(self._waiting.items()):
            if waiting:
                self._send(topic)
        if not self._txn:
            return []
        return [
            Part(topic, self._part, self._attempt, chunks, self._rows[topic])
            for topic, chunks in self._chunks.items()
        ]

    def _send(self, topic: str) -> None:
        records = self._waiting.pop(topic)
        self._waiting_bytes -= self._sizes.pop(topic, 0)
        chunk = self._chunks.get(topic, 0)
        self._chunks[topic] = chunk + 1
        self._rows[topic] = self._rows.get(topic, 0) + len(records)
        body = f'"strict":true,"records":[{",".join(records)}]}}'
        try:
            answer = self._call(topic, chunk, body)
        except JobyardError as error:
            raise error.within(topic=topic) from None
        if self._txn:
            self.staged_bytes += answer.number_or("bytes", 0)
            self.rows_max = answer.number_or("rows_max", 0)
            self.bytes_max = answer.number_or("bytes_max", 0)
            return
        self.counts = _counted(self.counts, answer, len(records))

    def _call(self, topic: str, chunk: int, body: str) -> Answer:
        if self._txn:
            head = (
                f'{{"topic":{json.dumps(topic)},"part":{self._part},"attempt":{self._attempt},'
                f'"chunk":{chunk},'
            )
            path = stage_path(self._txn)
        else:
            # A topic that is missing may be misspelt.
            head = '{"create":false,'
            path = topic_path(topic)
        return self._client.send("POST", path, (head + body).encode(), is_repeatable=True)


def _counted(counts: WriteCounts, answer: Answer, sent: int) -> WriteCounts:
    written = answer.number_or("written", sent)
    return WriteCounts(counts.written + written, counts.duplicates + sent - written)
