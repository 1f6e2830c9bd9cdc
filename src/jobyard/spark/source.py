"""`format("jobyard")`: what Spark creates for a read or a write, and asks for its parts.

Options are checked here, before Spark plans anything. A token is taken out of them at once, so that
it is in nothing that Spark prints.
"""

import sys
from collections.abc import MutableMapping
from typing import Final

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from jobyard.client.errors import JobyardError, bad_option
from jobyard.spark.archive.batch import ArchiveBatchReader, PushingArchiveReader
from jobyard.spark.archive.stream import ArchiveStreamReader
from jobyard.spark.fleet import columns as job_columns
from jobyard.spark.fleet.ends import check_columns as check_ends
from jobyard.spark.fleet.options import claim_options, end_options, is_claims, is_ends
from jobyard.spark.fleet.sink import EndsWriter
from jobyard.spark.fleet.source import ClaimStreamReader
from jobyard.spark.options import ReadOptions, cores, read_options, take_token
from jobyard.spark.raising import raised_short
from jobyard.spark.read.batch import BatchReader, PushingBatchReader
from jobyard.spark.read.columns import Table, schema_of, table_of
from jobyard.spark.read.stream import RefusedStreamReader, TopicStreamReader
from jobyard.spark.write.bad_files import check_folder
from jobyard.spark.write.options import WriteOptions, check_columns, write_options
from jobyard.spark.write.probe import check_writable
from jobyard.spark.write.sink import BatchWriter, StreamWriter

FORMAT: Final = "jobyard"
# The program that Spark runs to plan a read with filters to push down.
_PUSHING: Final = "pyspark.sql.worker.data_source_pushdown_filters"


class JobyardSource(DataSource):
    """Topics, the history of jobs, and jobs, as tables and streams."""

    @raised_short
    def __init__(self, options: MutableMapping[str, str]) -> None:
        rest, self._token = take_token(options)
        super().__init__(rest)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    @raised_short
    def schema(self) -> StructType:
        """Return all columns of what is read."""
        if is_claims(self.options):
            return job_columns.job_schema()
        # Spark asks for it without telling whether it plans a stream or a batch: options that
        # only one of them may have are checked with the reader.
        return schema_of(table_of(self._read_options(is_stream=None)))

    @raised_short
    def reader(self, schema: StructType) -> BatchReader:
        """Return the reader of a batch."""
        if is_claims(self.options):
            raise bad_option(
                "queue", "claims are a stream", "Use readStream, or the option jobs for a snapshot."
            )
        options = self._read_options(is_stream=False)
        is_pushing = options.pushdown and plans_with_filters()
        if options.archive_path:
            kind: type[BatchReader] = PushingArchiveReader if is_pushing else ArchiveBatchReader
        else:
            kind = PushingBatchReader if is_pushing else BatchReader
        return kind(options, Table(options, schema))

    def streamReader(  # noqa: N802  Spark's name
        self, schema: StructType
    ) -> TopicStreamReader | ClaimStreamReader | RefusedStreamReader:
        """Return the reader of a stream; one that raises, if there is no such stream.

        Spark 4.3 hides an error that is raised here behind one of its own.
        """
        try:
            if is_claims(self.options):
                claims = claim_options(self.options, self._token, cores())
                return ClaimStreamReader(claims, job_columns.arrow_schema(schema))
            options = self._read_options(is_stream=True)
            kind = ArchiveStreamReader if options.archive_path else TopicStreamReader
            return kind(options, Table(options, schema))
        except JobyardError as error:
            return RefusedStreamReader(error)

    @raised_short
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:  # noqa: FBT001  Spark's
        """Return the writer of a batch."""
        if overwrite:
            raise bad_option("mode", "topics are only appended to", 'Write .mode("append").')
        return BatchWriter(self._write_options(schema))

    @raised_short
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter | EndsWriter:  # noqa: N802, FBT001  Spark's
        """Return the writer of a stream."""
        if overwrite:
            raise bad_option(
                "outputMode", "topics are only appended to", 'Write .outputMode("append").'
            )
        if is_ends(schema):
            check_ends(schema)
            return EndsWriter(end_options(self.options, self._token))
        if write_options(self.options, self._token).txn:
            raise bad_option(
                "txn", "each batch of a stream is a transaction with a name", "Leave out txn."
            )
        return StreamWriter(self._write_options(schema))

    def _write_options(self, schema: StructType) -> WriteOptions:
        options = write_options(self.options, self._token)
        check_columns(schema, options)
        check_writable(options, schema.fieldNames())
        if options.bad_rows_path:
            check_folder(options.bad_rows_path)
        return options

    def _read_options(self, *, is_stream: bool | None) -> ReadOptions:
        return read_options(self.options, is_stream=is_stream, token=self._token)


def plans_with_filters() -> bool:
    """Return whether this process plans a read for which Spark has filters to push down.

    Spark refuses a reader that could take filters while the session's setting is off, and a reader
    cannot see the setting; it can see which of Spark's two planning programs it runs in.
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHING in sys.modules or getattr(main, "name", "") == _PUSHING
