"""Records in the log of stages: how one is written there, and read back for its commit.

The text of a record is that of any log; what only jobs have, the job whose end a record belongs to,
and the digest of its key are stored with its labels. Knows no transaction.
"""

import json
from base64 import b64decode, b64encode
from hashlib import blake2b
from typing import Final, final

from mypy_extensions import i64

from jobyard.engine.logs.read import label_of
from jobyard.engine.logs.text import texts_between
from jobyard.errors import Refused, TextDamaged
from jobyard.journal.format.log_record import LABEL_SIZE_MAX
from jobyard.journal.journal import Journal
from jobyard.model.topic.log import LogTopic
from jobyard.model.topic.log_chunk import META_SIZE_MAX, LogChunk
from jobyard.model.topic.log_rows import LogRows, binary_text

_MORE: Final = b'"$more":'
# Of what follows it, without the digest of a key.
_MORE_FIELDS: Final = 4
# Behind the digest, if the row has any of these: id, name and limit of its job.
_JOB_FIELDS: Final = 3
_DIGEST_SIZE: Final = 16


class StageDamaged(Refused):
    """A staged record is damaged on disk, so its transaction cannot be committed."""


@final
class StagedRow:
    """A record that is staged for a topic of any kind."""

    def __init__(self, data: bytes, meta: bytes, tag: str, node: str) -> None:
        self.data: bytes = data
        self.meta: bytes = meta
        self.tag: str = tag
        self.node: str = node
        # Whether data are bytes, not JSON text.
        self.is_binary: bool = False
        self.delay_ms: i64 = 0
        self.priority: i64 = 0
        # The job whose end it belongs to; 0 for none.
        self.with_queue: str = ""
        self.with_seq: i64 = 0
        # Of its key; empty if it has none.
        self.key_digest: bytes = b""
        # What its job is called, the id that its client chose, and how often it may be delivered.
        self.name: str = ""
        self.job_id: str = ""
        self.max_attempts: i64 = 0

    def is_for_queue(self) -> bool:
        """Return whether it has fields that only jobs have."""
        return self.name != "" or self.job_id != "" or self.max_attempts > 0


@final
class ChunkDraft:
    """The records of a chunk that will be staged, and the digest of their content."""

    def __init__(self) -> None:
        self.rows = LogRows(0, 0, 0)
        self._digest = blake2b(digest_size=_DIGEST_SIZE)

    def add(self, row: StagedRow) -> None:
        """Add a record."""
        label = _label_of(row)
        if len(label) > LABEL_SIZE_MAX or len(row.meta) > META_SIZE_MAX:
            self.rows.is_too_large = True
        data = binary_text(row.data) if row.is_binary else row.data
        self._digest.update(b"%d %d %d " % (len(label), len(data), len(row.meta)))
        if label:
            self._digest.update(label)
        self._digest.update(data)
        if row.meta:
            self._digest.update(row.meta)
        self.rows.add_ahead(data, row.meta, label, b"")

    def digest(self) -> str:
        """Return the digest of everything that was added."""
        return self._digest.hexdigest()


def _label_of(row: StagedRow) -> bytes:
    label = label_of(b'"$tag":', row.tag) + label_of(b'"$node":', row.node)
    is_plain = row.delay_ms == 0 and row.priority == 0 and row.with_seq == 0
    if not is_plain or row.key_digest or row.is_for_queue():
        more: list[object] = [int(row.delay_ms), int(row.priority)]
        more += [row.with_queue, int(row.with_seq)]
        if row.key_digest or row.is_for_queue():
            more.append(b64encode(row.key_digest).decode())
        if row.is_for_queue():
            more += [row.job_id, row.name, int(row.max_attempts)]
        label = b"".join([label, _MORE, json.dumps(more, separators=(",", ":")).encode(), b","])
    return label


def read_staged(journal: Journal, log: LogTopic, first_seq: i64, last_seq: i64) -> list[StagedRow]:
    """Return some of the staged records of a range, from its first on, all in one chunk.

    StageDamaged if one of them is damaged or gone.
    """
    chunk = log.chunk_of(first_seq)
    if chunk is None:
        raise StageDamaged(f"staged record {int(first_seq)} is lost")
    start = first_seq - chunk.base
    end: i64 = min(last_seq + 1 - chunk.base, chunk.used())
    if chunk.dead.find(1, start, end) >= 0:
        raise StageDamaged(f"staged record {int(first_seq)}, or one behind it, is lost")
    try:
        texts = texts_between(journal, chunk, start, end)
    except TextDamaged as damage:
        raise StageDamaged(str(damage)) from damage
    found: list[StagedRow] = []
    for text in texts:
        found.append(_row_at(chunk, start, text))
        start += 1
    return found


def _row_at(chunk: LogChunk, slot: i64, text: bytes) -> StagedRow:
    data, meta = chunk.content_of(slot, text)
    label = chunk.label_at(slot)
    if not label:
        # As most are: parsing an empty object took half of the time of a commit.
        plain = StagedRow(data, meta, "", "")
        plain.is_binary = chunk.is_binary(slot, text)
        return plain
    # As a text: of bytes, the encoding would be guessed.
    labels = json.loads("{" + label[:-1].decode() + "}")
    row = StagedRow(data, meta, labels.get("$tag", ""), labels.get("$node", ""))
    row.is_binary = chunk.is_binary(slot, text)
    more = labels.get("$more")
    if more is not None:
        row.delay_ms, row.priority, row.with_queue, row.with_seq = more[:_MORE_FIELDS]
        if len(more) > _MORE_FIELDS:
            row.key_digest = b64decode(more[_MORE_FIELDS])
        if len(more) > _MORE_FIELDS + 1:
            row.job_id, row.name, row.max_attempts = more[-_JOB_FIELDS:]
    return row
