"""Exports that were saved to files, read by the reader that reads them from a server.

The same classes decode, check and pass on the same bytes, so that a comparison shows what server
and HTTP cost, and nothing else.
"""

import json
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import replace
from io import BufferedReader
from pathlib import Path
from typing import Final, cast

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import StructType

from jobyard.client.calls import topic_path
from jobyard.spark.options import Connecting, ReadOptions, read_options
from jobyard.spark.read.batch import BatchReader
from jobyard.spark.read.columns import Table, schema_of, table_of
from jobyard.spark.read.ranges import SeqPartition, SeqRange

__all__ = ["SavedSource", "save_exports"]

COPY_SIZE: Final = 1 << 20
PARTS: Final = "parts.json"


def save_exports(_spark: SparkSession, url: str, topic: str, folder: str) -> dict[str, float]:
    """Save what the tasks of a read would get, a file for each partition."""
    options = _options(url, topic)
    reader = BatchReader(options, Table(options, schema_of(table_of(options))))
    place = Path(folder)
    place.mkdir()
    parts: list[list[object]] = []
    for partition in reader.partitions():
        assert isinstance(partition, SeqPartition)
        parts += [[*one, _save(options, reader.table, one, place)] for one in partition.ranges]
    (place / PARTS).write_text(json.dumps({"topic": topic, "parts": parts}))
    return {}


def _save(options: ReadOptions, table: Table, one: SeqRange, folder: Path) -> str:
    query: dict[str, object] = {
        "columns": ",".join(table.sources()), "from_seq": one.after_seq, "to_seq": one.to_seq,
        "incarnation": one.incarnation,
    }  # fmt: skip
    with options.connecting.client() as client, _file(folder, query).open("wb") as file:
        stream = client.stream(topic_path(one.topic, "export"), query)
        while data := stream.read(COPY_SIZE):
            file.write(data)
        return stream.finish()["topics-rows"]


def _options(url: str, topic: str) -> ReadOptions:
    return read_options({"url": url, "topic": topic}, is_stream=False)


def _file(folder: Path, query: Mapping[str, object]) -> Path:
    return folder / f"{query['from_seq']}-{query['to_seq']}.arrow"


class SavedStream:
    """A body from a file, with the trailers that it had."""

    def __init__(self, file: BufferedReader, rows: str) -> None:
        self._file = file
        self._rows = rows
        self.headers: dict[str, str] = {}

    @property
    def closed(self) -> bool:
        """Return whether the file is closed."""
        return self._file.closed

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        return self._file.read(size)

    def finish(self) -> dict[str, str]:
        """Return the trailers."""
        self.close()
        return {"topics-rows": self._rows}

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class SavedClient:
    """A client whose exports come from files."""

    url = "file:"

    def __init__(self, folder: Path, rows: Mapping[str, str]) -> None:
        self._folder = folder
        self._rows = rows

    def __enter__(self) -> "SavedClient":
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def interrupt(self) -> None:
        """Files do not wait."""

    def stream(self, _path: str, query: Mapping[str, object]) -> SavedStream:
        """Return a saved export."""
        file = _file(self._folder, query)
        return SavedStream(file.open("rb"), self._rows[file.name])


class SavedConnecting:
    """Where the saved exports are. Can be sent to executors."""

    retries_max = 0

    def __init__(self, folder: Path, rows: Mapping[str, str]) -> None:
        self._folder = folder
        self._rows = rows

    def client(self, _pause: Callable[[float], object]) -> SavedClient:
        """Return a client of the files."""
        return SavedClient(self._folder, self._rows)


class SavedReader(BatchReader):
    """The reader of a batch, with saved partitions."""

    def __init__(self, options: ReadOptions, table: Table, ranges: list[SeqRange]) -> None:
        super().__init__(options, table)
        self._saved = ranges

    def partitions(self) -> list[InputPartition]:
        """Return one partition for each file."""
        return [SeqPartition((one,)) for one in self._saved]


class SavedSource(DataSource):
    """`format("saved")`, with the option `folder`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._folder = Path(options["folder"])
        saved = json.loads((self._folder / PARTS).read_text())
        self._parts = [(SeqRange(*part[:-1]), str(part[-1])) for part in saved["parts"]]
        self._plain = _options("http://localhost", saved["topic"])

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "saved"

    def schema(self) -> StructType:
        """Return the columns that were saved."""
        return schema_of(table_of(self._plain))

    def reader(self, schema: StructType) -> SavedReader:
        """Return the reader."""
        rows = {
            _file(self._folder, {"from_seq": one.after_seq, "to_seq": one.to_seq}).name: count
            for one, count in self._parts
        }
        # It has everything of a connection that a read uses.
        files = cast("Connecting", SavedConnecting(self._folder, rows))
        options = replace(self._plain, connecting=files)
        return SavedReader(options, Table(options, schema), [one for one, _ in self._parts])
