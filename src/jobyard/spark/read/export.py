"""Reads one range of seqs through exports, never a row twice and never one too few.

A range is complete when a stream came to its proper end and its counts agree. A stream that breaks
off is taken up behind the last seq that was handed out. Knows neither Spark nor tables.
"""

from collections.abc import Callable, Mapping
from typing import Final, final

import pyarrow as pa

from jobyard.client import ByteStream, JobyardError, YardClient
from jobyard.client.calls import topic_path
from jobyard.client.errors import Code
from jobyard.spark.read.losses import Losses, dropped, loss_of, lost_meanwhile
from jobyard.spark.read.ranges import SeqRange

_NOTE: Final = b"topics."
_PAUSE_S: Final = 0.25
_PAUSE_MAX_S: Final = 5.0
Notes = Mapping[str, str]


@final
class RangeExport:
    """One range, read batch by batch."""

    def __init__(
        self,
        client: YardClient,
        wanted: SeqRange,
        query: Mapping[str, str],
        pause: Callable[[float], bool],
        *,
        retries_max: int,
        losses: Losses,
    ) -> None:
        self._client = client
        self._wanted = wanted
        self._query = query
        # Whether to stop, after waiting.
        self._pause = pause
        self._retries_max = retries_max
        self._losses = losses
        self._reached = wanted.after_seq
        self._is_done = wanted.size <= 0
        self._failures = 0
        self._stream: ByteStream | None = None
        self._reader: pa.ipc.RecordBatchStreamReader | None = None
        # Of the present stream.
        self._rows = 0

    @property
    def reached(self) -> int:
        """Return the last seq that was handed out."""
        return self._reached

    def next_batch(self) -> pa.RecordBatch | None:
        """Return the next rows; None at the end of the range."""
        while not self._is_done:
            try:
                batch = self._read()
            except JobyardError as error:
                self.park()
                if error.code not in (Code.CUT_OFF, Code.UNREACHABLE):
                    self._refused(error)
                    continue
                self._failures += 1
                if self._failures > self._retries_max:
                    raise error.within(topic=self._wanted.topic) from None
                if self._pause(min(_PAUSE_S * 2.0 ** (self._failures - 1), _PAUSE_MAX_S)):
                    return None
                continue
            if batch is not None and batch.num_rows > 0:
                self._failures = 0
                return batch
        return None

    def park(self) -> None:
        """Close the stream; the next batch is read from a new one behind the last seq."""
        stream, self._stream = self._stream, None
        self._reader = None
        if stream is not None:
            stream.close()

    def _read(self) -> pa.RecordBatch | None:
        reader = self._reader or self._open()
        try:
            found = reader.read_next_batch_with_custom_metadata()
        except StopIteration:
            raise self._cut("it ended without its counts") from None
        except pa.ArrowInvalid as fault:
            raise self._cut(str(fault)) from None
        notes = notes_of(found.custom_metadata)
        if "total_rows" in notes:
            self._end(notes)
            return None
        self._advance(found.batch, notes)
        batch: pa.RecordBatch = found.batch
        return batch

    def _open(self) -> pa.ipc.RecordBatchStreamReader:
        wanted = self._wanted
        query: dict[str, object] = {
            **self._query,
            "from_seq": self._reached,
            "to_seq": wanted.to_seq,
        }
        if wanted.incarnation:
            query["incarnation"] = wanted.incarnation
        if self._losses.are_allowed:
            query["allow_gap"] = "true"
        stream = self._client.stream(topic_path(wanted.topic, "export"), query)
        self._stream = stream
        self._rows = 0
        if gap_to := stream.headers.get("topics-gap-to"):
            self._losses.meet(dropped(wanted.topic, self._reached + 1, int(gap_to), "age or size"))
        try:
            self._reader = pa.ipc.open_stream(stream)
        except pa.ArrowInvalid as fault:
            raise self._cut(str(fault)) from None
        return self._reader

    def _advance(self, batch: pa.RecordBatch, notes: Notes) -> None:
        first, last = int(notes.get("first_seq", -1)), int(notes.get("last_seq", -1))
        is_next = self._reached < first <= last <= self._wanted.to_seq
        if not is_next or notes.get("rows") != str(batch.num_rows):
            raise self._wrong(
                f"a batch of {batch.num_rows} rows is described as {dict(notes)} "
                f"after seq {self._reached}"
            )
        self._reached = last
        self._rows += batch.num_rows

    def _end(self, notes: Notes) -> None:
        assert self._stream is not None, "a batch was read from it"
        stream = self._stream
        reader = self._reader
        assert reader is not None
        try:
            reader.read_next_batch()
        except StopIteration:
            trailers = stream.finish()
        except pa.ArrowInvalid as fault:
            raise self._cut(str(fault)) from None
        else:
            raise self._wrong("rows follow its counts")
        total = notes["total_rows"]
        if total != str(self._rows) or trailers.get("topics-rows") != total:
            raise self._wrong(
                f"{self._rows} rows came, where the counts say {total} "
                f"and {trailers.get('topics-rows')}"
            )
        lost = int(notes.get("lost_rows", 0))
        # Where gaps are not allowed the server ends such a stream: these were deleted on purpose.
        if lost > 0 and self._losses.are_allowed:
            wanted = self._wanted
            self._losses.meet(lost_meanwhile(wanted.topic, wanted.after_seq, wanted.to_seq, lost))
        self._stream = self._reader = None
        self._is_done = True

    def _refused(self, error: JobyardError) -> None:
        """Raise the error that a refusal means; return if what is gone may be passed over."""
        topic = self._wanted.topic
        loss = loss_of(error, topic, self._reached, self._wanted.to_seq)
        if loss is None:
            raise error.within(topic=topic)
        self._losses.meet(loss)
        self._is_done = True

    def _cut(self, why: str) -> JobyardError:
        return JobyardError(
            Code.CUT_OFF,
            f"the export broke off: {why}",
            url=self._client.url,
            option="maxRetries",
            remedy="Look for a proxy with a time limit in between, or raise maxRetries.",
        )

    def _wrong(self, why: str) -> JobyardError:
        return JobyardError(
            Code.NOT_JOBYARD,
            f"the export contradicts itself: {why}",
            url=self._client.url,
            option="url",
            remedy="Set the url to the HTTP port of `jobyard serve`, without a proxy in between.",
        )


def notes_of(metadata: pa.KeyValueMetadata | None) -> Notes:
    """Return what a batch says of itself."""
    return {
        key.removeprefix(_NOTE).decode(): value.decode()
        for key, value in (dict(metadata) if metadata is not None else {}).items()
    }
