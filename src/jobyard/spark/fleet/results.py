"""Results of jobs as records of a topic: each is written only if the commit ends its run.

The same rules as for all writes: a text that is JSON is stored as JSON, anything else as bytes.
"""

import json
from typing import Final, final

import pyarrow as pa

from jobyard.spark.fleet.options import EndOptions
from jobyard.spark.write.options import ValueFormat, WriteOptions
from jobyard.spark.write.records import BadRow, Record, RecordReader

_TEXT: Final = pa.schema([("value", pa.string())])
_BYTES: Final = pa.schema([("value", pa.binary())])


@final
class ResultRecords:
    """Makes the records of one task."""

    def __init__(self, options: EndOptions) -> None:
        self._reader = RecordReader(
            WriteOptions(
                connecting=options.connecting,
                topic=options.results,
                is_staged=True,
                key_is_tag=False,
                is_key_said=True,
                value_format=ValueFormat.AUTO,
                bad_rows_path="",
                txn="",
            )
        )

    def read(self, result: str | bytes, queue: str, seq: int) -> Record | str:
        """Return the record of a result, or why there is none."""
        schema = _TEXT if isinstance(result, str) else _BYTES
        array = pa.array([result], schema[0].type)
        batch = pa.RecordBatch.from_arrays([array], schema=schema)
        (found,) = self._reader.read(batch)
        if isinstance(found, BadRow):
            return found.reason
        return found._replace(body=f'{found.body[:-1]},"with":[{json.dumps(queue)},{seq}]}}')
