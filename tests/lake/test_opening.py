"""What can be opened as a lake, who holds it, and lakes of other versions."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobyard.client.errors import Code, JobyardError
from jobyard.lake import open_lake, schemas
from jobyard.lake.opening import Lake
from jobyard.lake.schemas import EVENTS, TABLES, Column
from jobyard.lake.tables import Batch, Partition
from tests.lake.readers import READERS
from tests.lake.rows import YARD, event, read, send

DAY: Partition = ("2026-11-16",)
FORMATS = ("parquet", "delta", "iceberg")


def filled(folder: Path, table_format: str = "parquet") -> Lake:
    lake = open_lake(folder, table_format)
    with lake.lock():
        send(lake.tables, Batch(YARD, 0, 10), {DAY: [event(1)]})
    return lake


def refusal(folder: Path, table_format: str | None = None) -> JobyardError:
    with pytest.raises(JobyardError) as fault:
        open_lake(folder, table_format)
    assert str(fault.value).count("\n") <= 2
    assert fault.value.remedy
    return fault.value


@contextmanager
def as_nobody() -> Iterator[None]:
    """Lay down the rights of root, to whom nothing is forbidden."""
    user = os.geteuid()
    if user != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_other_content_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    fault = refusal(tmp_path)
    assert fault.code == Code.BAD_LAKE
    assert "thesis.tex" in fault.message
    (tmp_path / "file").touch()
    assert "no folder" in refusal(tmp_path / "file").message


def test_another_format_is_refused(memory: Path) -> None:
    filled(memory / "lake", "delta")
    fault = refusal(memory / "lake", "parquet")
    assert fault.code == Code.BAD_LAKE
    assert "delta" in fault.message
    assert open_lake(memory / "lake").table_format == "delta"
    assert refusal(memory / "other", "orc").code == Code.BAD_OPTION


@pytest.mark.parametrize("url", ["s3://bucket/lake", "gs://b", "abfss://x@y/z", "hdfs://n:1/x"])
def test_object_stores_are_refused(url: str) -> None:
    fault = refusal(Path(url))
    assert fault.code == Code.BAD_OPTION
    assert "Delta or Iceberg" in str(fault)
    assert refusal(Path(url), "delta").code == Code.BAD_OPTION
    assert not Path(url.partition(":")[0] + ":").exists()


def test_a_folder_without_permission_is_refused(memory: Path) -> None:
    memory.chmod(0o755)
    folder = memory / "lake"
    filled(folder)
    folder.chmod(0)
    with as_nobody():
        fault = refusal(folder)
    assert fault.code == Code.BAD_LAKE
    assert "permission" in fault.message
    folder.chmod(0o755)


@pytest.mark.parametrize("table_format", FORMATS)
def test_who_may_only_read_can_read_and_not_run(memory: Path, table_format: str) -> None:
    memory.chmod(0o755)
    folder = memory / "lake"
    filled(folder, table_format)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    with as_nobody():
        lake = open_lake(folder)
        with lake.reading():
            assert len(read(lake.tables, EVENTS)) == 1
        with pytest.raises(JobyardError) as fault, lake.lock():
            pass
        assert fault.value.code == Code.BAD_LAKE
        assert "permission" in fault.value.message
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)


def test_a_lake_that_cannot_be_made_is_refused(memory: Path) -> None:
    memory.chmod(0o555)
    with as_nobody():
        lake = open_lake(memory / "lake")
        with pytest.raises(JobyardError, match="permission"), lake.lock():
            pass
    memory.chmod(0o755)


GOOD_STATE: dict[str, object] = {
    "format": 1,
    "table_format": "parquet",
    "generation": 1,
    "versions": {},
    "yards": {},
    "days": {},
}
BAD_FIELDS: list[dict[str, object]] = [
    {"generation": -1},
    {"generation": True},
    {"yards": []},
    {"yards": {"../x": {"seq": 1, "label": "a"}}},
    {"yards": {"x": {"seq": 1, "label": "../a"}}},
    {"yards": {"x": {"seq": "1", "label": "a"}}},
    {"days": {"events": {"2026-11-16": None}}},
]
BAD_STATES = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"format":1}',
    *(json.dumps(GOOD_STATE | change).encode() for change in BAD_FIELDS),
]


@pytest.mark.parametrize("content", BAD_STATES, ids=range(len(BAD_STATES)))
def test_a_damaged_state_is_refused(memory: Path, content: bytes) -> None:
    filled(memory / "lake")
    path = memory / "lake" / "_manifest" / "state.json"
    path.write_bytes(content)
    fault = refusal(memory / "lake")
    assert fault.code == Code.LAKE_DAMAGED
    assert str(path) in fault.message


def test_a_removed_state_is_refused(memory: Path) -> None:
    filled(memory / "lake")
    (memory / "lake" / "_manifest" / "state.json").unlink()
    assert refusal(memory / "lake").code == Code.LAKE_DAMAGED


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"versions": {"events": 99}},
        {"versions": {"table_of_tomorrow": 1}},
        {"table_format": "hudi"},
    ],
)
def test_a_lake_of_a_newer_jobyard_is_refused(memory: Path, change: dict[str, object]) -> None:
    filled(memory / "lake")
    path = memory / "lake" / "_manifest" / "state.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    fault = refusal(memory / "lake")
    assert fault.code == Code.LAKE_NEWER
    assert "this lake was written by a newer Jobyard" in fault.message


@pytest.mark.parametrize("content", [b"", b"{}", b'{"generation":1}', b"[1]"])
def test_a_damaged_intent_is_refused(memory: Path, content: bytes) -> None:
    lake = filled(memory / "lake")
    (memory / "lake" / "_manifest" / "intent.json").write_bytes(content)
    with pytest.raises(JobyardError) as fault, lake.lock():
        pass
    assert fault.value.code == Code.LAKE_DAMAGED


def test_an_intent_reaches_no_other_folder(memory: Path) -> None:
    lake = filled(memory / "lake")
    other = memory / "other"
    other.touch()
    for target in (str(other), "../other"):
        steps = [["remove", "", target, [], []]] * 2
        content = {"generation": 99, "yard": "", "to_seq": 0, "steps": steps}
        (memory / "lake" / "_manifest" / "intent.json").write_text(json.dumps(content))
        with pytest.raises(JobyardError), lake.lock():
            pass
    assert other.exists()


@pytest.mark.parametrize("table_format", FORMATS)
def test_columns_that_came_later_are_null(
    memory: Path, table_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = memory / "lake"
    filled(folder, table_format)
    added = Column("colour", schemas.TEXT, "of the job")
    newer = EVENTS._replace(version=2, columns=(*EVENTS.columns, added))
    monkeypatch.setitem(TABLES, "events", newer)
    lake = open_lake(folder)
    assert lake.tables.partitions(newer)[DAY].nulls["colour"] == 1
    with lake.lock():
        send(lake.tables, Batch(YARD, 10, 20), {DAY: [event(11) | {"colour": "red"}]})
    assert [row.get("colour") for row in read(lake.tables, newer)] == [None, "red"]
    assert lake.tables.partitions(newer)[DAY].nulls["colour"] == 1
    for reader in READERS[table_format][-1:]:
        assert [row.get("colour") for row in reader(folder, newer)] == [None, "red"]
    # The program of before does not know the column.
    monkeypatch.setitem(TABLES, "events", EVENTS)
    assert refusal(folder).code == Code.LAKE_NEWER


HOLD = """
import sys
from pathlib import Path
from jobyard.lake import open_lake
with open_lake(Path(sys.argv[1])).lock():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_run_says_who_holds_the_lake_and_a_kill_frees_it(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    command = [sys.executable, "-c", HOLD, str(folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        lake = open_lake(folder)
        with pytest.raises(JobyardError) as fault, lake.lock():
            pass
        assert fault.value.code == Code.LAKE_BUSY
        assert f"process {other.pid} on " in fault.value.message
        assert "since 20" in fault.value.message
        # One who reads is not in its way.
        with lake.reading():
            assert lake.tables.position(YARD) == 0
        other.send_signal(signal.SIGKILL)
        other.wait(60)
    with lake.lock():
        send(lake.tables, Batch(YARD, 0, 1), {})


def test_a_lock_is_free_after_a_fault(memory: Path) -> None:
    lake = open_lake(memory / "lake")
    with pytest.raises(ValueError, match="mine"), lake.lock():
        raise ValueError("mine")
    with lake.lock(), pytest.raises(JobyardError, match="goes on"), open_lake(lake.folder).lock():
        pass


def test_nothing_changes_without_the_lock(memory: Path) -> None:
    lake = filled(memory / "lake")
    with pytest.raises(AssertionError):
        lake.tables.commit(Batch(YARD, 10, 20), [])


def test_a_catalogue_is_of_iceberg_and_stays(memory: Path, unused_url: str) -> None:
    for wrong in ("ftp://x", "http://user:secret@x", "x", "http://"):
        with pytest.raises(JobyardError) as fault:
            open_lake(memory / "lake", "iceberg", catalogue=wrong)
        assert fault.value.code == Code.BAD_OPTION
        assert "secret" not in str(fault.value)
    with pytest.raises(JobyardError, match="have none"):
        open_lake(memory / "lake", "delta", catalogue=unused_url)
    lake = open_lake(memory / "lake", "iceberg", catalogue=unused_url)
    with lake.lock():
        pass
    with pytest.raises(JobyardError, match="another"):
        open_lake(memory / "lake", "iceberg", catalogue="http://other")
    again = open_lake(memory / "lake")
    with pytest.raises(JobyardError) as fault, again.lock():
        send(again.tables, Batch(YARD, 0, 10), {DAY: [event(1)]})
    assert fault.value.code == Code.UNREACHABLE
    assert fault.value.url == unused_url
    assert again.tables.position(YARD) == 0
