"""An oracle for archives: the rows that were written to a topic, as plain lists.

Shares no code with what it judges: it keeps what it sent, and reads files with pyarrow alone.
"""

import base64
import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq

from tests.support.servers.http import Topics

Record = dict[str, Any]
# Of each kind: bytes, no bytes, nulls, texts beyond ASCII, headers.
KINDS: tuple[Record, ...] = (
    {"data": {"i": 1, "text": "naïve ☃"}, "tag": "t1"},
    {"data": None},
    {"data": "", "tag": "schlüssel-☃", "node": "n-1"},
    {"data_b64": "", "tag": ""},
    {"data_b64": base64.b64encode(bytes(range(256))).decode(), "meta": {"ü": "ö", "n": 1}},
    {"data": [1.5, "x" * 300], "meta": {}, "node": "knoten-ü"},
)


def value_of(record: Record) -> bytes:
    """Return the value that a reader must see."""
    if "data_b64" in record:
        return base64.b64decode(record["data_b64"])
    return json.dumps(record["data"]).encode()


class WrittenTopic:
    """A log, and what was written to it, life by life."""

    def __init__(self, topics: Topics, name: str, **config: Any) -> None:
        self._topics = topics
        self.name = name
        self._config = config
        self.lives: list[list[Record]] = []
        self.make()

    def make(self) -> None:
        """Create the topic."""
        status, answer = self._topics.ask("PUT", f"/v0/topics/{self.name}", self._config)
        assert status in (200, 201), answer
        self.lives.append([])

    def remove(self) -> None:
        """Delete the topic."""
        assert self._topics.ask("DELETE", f"/v0/topics/{self.name}")[0] == 200

    def write(self, records: list[Record]) -> None:
        """Write records, and remember them."""
        path = f"/v0/topics/{self.name}"
        status, answer = self._topics.ask("POST", path, {"records": records})
        assert status in (200, 201), answer
        for seq, record in zip(answer["seqs"], records, strict=True):
            self.lives[-1].append(
                {
                    "seq": seq,
                    "tag": record.get("tag") or None,
                    "node": record.get("node"),
                    "meta": record.get("meta"),
                    "value": value_of(record),
                }
            )

    def fill(self, count: int) -> None:
        """Write so many records of all kinds."""
        self.write([KINDS[at % len(KINDS)] for at in range(count)])

    @property
    def rows(self) -> list[Record]:
        """Return all rows of all lives."""
        return [row for life in self.lives for row in life]

    def state(self) -> Any:
        """Return what the server says of it."""
        return self._topics.ask("GET", f"/v0/topics/{self.name}")[1]


def files_of(folder: Path, topic: str) -> list[Path]:
    """Return the files of a topic as another program finds them, in the order of their rows."""
    folders = [each for each in folder.glob("topic=*") if unquote(each.name[6:]) == topic]
    found = [path for each in folders for path in each.glob("date=*/*.parquet")]
    return sorted(found, key=lambda path: (path.name.split(".")[1], path.name))


def archived(folder: Path, topic: str) -> list[Record]:
    """Return the rows of all files, as another program reads them."""
    rows: list[Record] = []
    for path in files_of(folder, topic):
        for row in pq.ParquetFile(path).read().to_pylist():
            meta = row.pop("meta")
            row.pop("ts")
            rows.append({**row, "meta": None if meta is None else json.loads(meta)})
    return rows
