"""Reads a range of a topic from a yard as batches, exactly: no row twice, none missing.

A range is complete when a stream came to its proper end and its counts agree. A stream that breaks
off is taken up behind the last seq that was handed out. A range of which records are gone is never
passed over: that is `RowsGone`, and the caller decides.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, final

import pyarrow as pa

from jobyard.client import ByteStream, JobyardError, YardClient
from jobyard.client.calls import topic_path
from jobyard.client.errors import Code
from jobyard.lake.archive.index import Gap

# Of a log: `value` repeats `data`, but for bytes, which only it has.
LOG_COLUMNS: Final = "seq,ts,tag,node,meta,value"
_NOTE: Final = b"topics."
_PAUSE_S: Final = 0.25
_PAUSE_MAX_S: Final = 5.0
_PASSING: Final = frozenset({Code.CUT_OFF, Code.UNREACHABLE})


@final
class RowsGone(Exception):
    """Records of the range are gone: after what was read, up to a seq."""

    def __init__(self, gap: Gap) -> None:
        super().__init__(gap)
        self.gap = gap


@final
class ExactRange:
    """One range of one life of a topic."""

    def __init__(  # noqa: PLR0913  what a range is, and how it is read
        self,
        client: YardClient,
        topic: str,
        incarnation: str,
        after_seq: int,
        to_seq: int,
        *,
        columns: str,
        pause: Callable[[float], object],
        retries_max: int,
    ) -> None:
        self._client = client
        self._path = topic_path(topic, "export")
        self._query: dict[str, object] = {"incarnation": incarnation, "nullable": "true"}
        if columns:
            self._query["columns"] = columns
        self._to_seq = to_seq
        self._pause = pause
        self._retries_max = retries_max
        # The last seq that was handed out, or the end of a stream.
        self.reached = after_seq

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows; raise RowsGone where records are missing."""
        failures = 0
        while self.reached < self._to_seq:
            try:
                for batch in self._stream():
                    failures = 0
                    yield batch
            except JobyardError as error:
                if error.code == "gone":
                    raise RowsGone(self._gap(error)) from None
                failures += 1
                if error.code not in _PASSING or failures > self._retries_max:
                    raise
                self._pause(min(_PAUSE_S * 2.0 ** (failures - 1), _PAUSE_MAX_S))

    def _gap(self, error: JobyardError) -> Gap:
        to_seq = error.detail.get("gap_to")
        if not isinstance(to_seq, int) or to_seq <= self.reached:
            raise error
        reason = str(error.detail.get("reason", "age or size"))
        return Gap(self.reached, min(to_seq, self._to_seq), reason)

    def _stream(self) -> Iterator[pa.RecordBatch]:
        query = {**self._query, "from_seq": self.reached, "to_seq": self._to_seq}
        stream = self._client.stream(self._path, query)
        rows = 0
        try:
            reader = pa.ipc.open_stream(stream)
            while True:
                found = reader.read_next_batch_with_custom_metadata()
                notes = _notes(found.custom_metadata)
                if "total_rows" in notes:
                    break
                self._advance(found.batch, notes)
                rows += found.batch.num_rows
                yield found.batch
            self._end(stream, reader, notes, rows)
        except StopIteration:
            raise self._cut("it ended without its counts") from None
        except pa.ArrowInvalid as fault:
            raise self._cut(str(fault)) from None
        finally:
            stream.close()

    def _advance(self, batch: pa.RecordBatch, notes: Mapping[str, str]) -> None:
        first, last = int(notes.get("first_seq", -1)), int(notes.get("last_seq", -1))
        is_next = self.reached < first <= last <= self._to_seq
        if not is_next or notes.get("rows") != str(batch.num_rows):
            raise self._wrong(f"{batch.num_rows} rows are described as {dict(notes)}")
        self.reached = last

    def _end(
        self,
        stream: ByteStream,
        reader: pa.ipc.RecordBatchStreamReader,
        notes: Mapping[str, str],
        rows: int,
    ) -> None:
        try:
            reader.read_next_batch()
        except StopIteration:
            trailers = stream.finish()
        else:
            raise self._wrong("rows follow its counts")
        counts = {str(rows), notes["total_rows"], trailers.get("topics-rows")}
        if len(counts) > 1:
            raise self._wrong(f"{rows} rows came, and the counts are {counts}")
        self.reached = self._to_seq

    def _cut(self, why: str) -> JobyardError:
        return JobyardError(Code.CUT_OFF, f"the export broke off: {why}", url=self._client.url)

    def _wrong(self, why: str) -> JobyardError:
        return JobyardError(
            Code.NOT_JOBYARD, f"the export contradicts itself: {why}", url=self._client.url
        )


def _notes(metadata: pa.KeyValueMetadata | None) -> dict[str, str]:
    """Return what a batch says of itself."""
    fields = dict(metadata) if metadata is not None else {}
    return {key.removeprefix(_NOTE).decode(): value.decode() for key, value in fields.items()}
