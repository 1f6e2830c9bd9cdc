"""Archives of topics on a real server, compared with what was written."""

import json
import random
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobyard.client import JobyardError, YardClient
from jobyard.client.errors import Code
from jobyard.lake.archive import Archived, Archiver, ArchiveRules, archive, keep_archiving, verify
from jobyard.lake.archive.archiving import _pieces
from jobyard.lake.archive.names import PART
from tests.support.clients.archives import WrittenTopic, archived, files_of
from tests.support.servers.cutting import CUT_ANSWER, CUT_BEFORE, CuttingProxy
from tests.support.servers.http import HttpYard, Topics
from tests.support.servers.patience import PATIENCE_S

SMALL = ArchiveRules(file_bytes=64 << 10)


def fails(client: YardClient, topic: str, folder: Path, **rules: Any) -> JobyardError:
    with pytest.raises(JobyardError) as caught:
        archive(client, topic, folder, ArchiveRules(**rules))
    assert len(str(caught.value).splitlines()) <= 3
    return caught.value


def test_an_archive_has_every_row_of_every_kind(
    client: YardClient, topics: Topics, tmp_path: Path
) -> None:
    topic = WrittenTopic(topics, "kinds:of.rows")
    for count in (50, 1, 200):
        topic.fill(count)
        done = archive(client, topic.name, tmp_path)
        assert (done.rows, done.files, done.to_seq) == (count, 1, len(topic.rows))
    assert archive(client, topic.name, tmp_path).files == 0
    assert archived(tmp_path, topic.name) == topic.rows
    (report,) = verify(tmp_path).topics
    assert (report.files, report.rows, report.gaps) == (3, 251, ())
    first = files_of(tmp_path, topic.name)[0]
    assert first.parent.parent == tmp_path / "topic=kinds%3Aof.rows"
    incarnation = topic.state()["incarnation"]
    assert first.name == f"{0:019d}-{50:019d}.{incarnation}.parquet"


def test_a_file_says_what_it_is_and_not_where_it_is_from(
    client: YardClient, yard: HttpYard, topics: Topics, tmp_path: Path
) -> None:
    topic = WrittenTopic(topics, "footer")
    topic.fill(10)
    archive(client, "footer", tmp_path)
    (file,) = files_of(tmp_path, "footer")
    found = pq.ParquetFile(file)
    own = {key.decode(): value.decode() for key, value in found.metadata.metadata.items()
           if key.startswith(b"jobyard.")}  # fmt: skip
    checksum = own.pop("jobyard.checksum")
    assert own == {
        "jobyard.topic": "footer",
        "jobyard.incarnation": topic.state()["incarnation"],
        "jobyard.after_seq": "0",
        "jobyard.to_seq": "10",
        "jobyard.rows": "10",
        "jobyard.schema_version": "1",
        "jobyard.gap": "",
    }
    assert checksum.startswith("blake2b-128:")
    assert found.metadata.row_group(0).column(0).compression == "ZSTD"
    assert str(yard.address[1]).encode() not in file.read_bytes()


def test_files_have_a_limit(client: YardClient, topics: Topics, tmp_path: Path) -> None:
    topic = WrittenTopic(topics, "limited")
    # Texts that hardly compress.
    drawn = random.Random(1)
    for _ in range(20):
        topic.write([{"data": drawn.randbytes(100).hex()} for _ in range(200)])
    done = archive(client, "limited", tmp_path, SMALL)
    assert done.files > 5
    sizes = [path.stat().st_size for path in files_of(tmp_path, "limited")]
    assert max(sizes) <= SMALL.file_bytes
    assert archived(tmp_path, "limited") == topic.rows
    verify(tmp_path)
    with pytest.raises(JobyardError) as caught:
        archive(client, "limited", tmp_path, ArchiveRules(file_bytes=1000))
    assert caught.value.option == "file_bytes"


def test_an_export_that_breaks_off_is_taken_up(
    yard: HttpYard, topics: Topics, tmp_path: Path
) -> None:
    topic = WrittenTopic(topics, "cut")
    for _ in range(10):
        topic.fill(1500)
    proxy = CuttingProxy(yard.address, 7, share=0.5, faults=(CUT_ANSWER, CUT_BEFORE))
    with proxy, YardClient(proxy.url, retries_max=50, pause=lambda _: None) as client:
        done = Archiver(client, "cut", tmp_path, SMALL, pause=lambda _: None)
        with done as archiver:
            while archiver.run_once().to_seq < len(topic.rows):
                pass
        assert proxy.seen[CUT_ANSWER] > 0
    assert archived(tmp_path, "cut") == topic.rows


def test_a_second_archiver_is_refused(client: YardClient, topics: Topics, tmp_path: Path) -> None:
    WrittenTopic(topics, "locked").fill(3)
    WrittenTopic(topics, "other").fill(3)
    with Archiver(client, "locked", tmp_path):
        error = fails(client, "locked", tmp_path)
        assert error.code == Code.ARCHIVE_LOCKED
        assert "process " in error.message
        assert archive(client, "other", tmp_path).rows == 3
    assert archive(client, "locked", tmp_path).rows == 3


@pytest.mark.parametrize("topic", ["../up", "", "a/b", "_events2", "ü", "a" * 300])
def test_names_that_are_no_topics_are_refused(
    client: YardClient, tmp_path: Path, topic: str
) -> None:
    assert fails(client, topic, tmp_path).code == Code.BAD_OPTION
    assert not list(tmp_path.iterdir())


def test_a_long_name_fits(client: YardClient, topics: Topics, tmp_path: Path) -> None:
    topic = WrittenTopic(topics, "a" + ":" * 254)
    topic.fill(5)
    archive(client, topic.name, tmp_path)
    assert verify(tmp_path).topics[0].topic == topic.name
    assert len(next(tmp_path.iterdir()).name) < 255


def test_what_is_not_there_or_a_queue_is_refused(
    client: YardClient, topics: Topics, tmp_path: Path
) -> None:
    assert fails(client, "none", tmp_path).code == "topic_not_found"
    topics.ask("PUT", "/v0/topics/jobs", {"type": "queue"})
    assert fails(client, "jobs", tmp_path).code == Code.BAD_OPTION


def test_retention_passes_nothing_that_is_not_archived(
    client: YardClient, topics: Topics, tmp_path: Path
) -> None:
    topic = WrittenTopic(topics, "capped", cap_records=50)
    topic.fill(40)
    with Archiver(client, "capped", tmp_path) as archiver:
        for count in (1, 500, 30, 700):
            archiver.run_once()
            topic.fill(count)
        archiver.run_once()
    assert archived(tmp_path, "capped") == topic.rows
    # What was archived may go.
    topic.fill(100)
    assert topic.state()["count"] == 100
    archive(client, "capped", tmp_path)
    topic.fill(1)
    assert topic.state()["count"] <= 51


def test_age_removes_nothing_that_is_not_archived(
    client: YardClient, topics: Topics, tmp_path: Path
) -> None:
    topic = WrittenTopic(topics, "aged", ttl_ms=1)
    archive(client, "aged", tmp_path)
    for _ in range(5):
        topic.fill(20)
        archive(client, "aged", tmp_path)
    assert archived(tmp_path, "aged") == topic.rows


def test_a_gap_is_an_error_unless_it_is_allowed(
    client: YardClient, topics: Topics, tmp_path: Path
) -> None:
    topic = WrittenTopic(topics, "gaps", cap_records=30)
    topic.fill(20)
    archive(client, "gaps", tmp_path)
    topics.ask("DELETE", "/v0/topics/gaps/cursors/archive")
    topic.fill(100)
    # Without the cursor nothing holds.
    error = fails(client, "gaps", tmp_path)
    assert error.code == Code.DATA_LOSS
    assert "records 21 to 90 of gaps were gone before they were archived (cap)" in error.message
    assert error.option == "allow_gaps"
    done = archive(client, "gaps", tmp_path, ArchiveRules(allow_gaps=True))
    assert [tuple(gap) for gap in done.gaps] == [(20, 90, "cap")]
    assert archived(tmp_path, "gaps") == [*topic.rows[:20], *topic.rows[90:]]
    (report,) = verify(tmp_path).topics
    assert [tuple(gap) for _, gap in report.gaps] == [(20, 90, "cap")]
    last = pq.ParquetFile(files_of(tmp_path, "gaps")[-1]).metadata.metadata
    assert json.loads(last[b"jobyard.gap"]) == [20, 90, "cap"]


def test_an_archive_begins_where_the_topic_does(
    client: YardClient, topics: Topics, tmp_path: Path
) -> None:
    topic = WrittenTopic(topics, "late", cap_records=30)
    topic.fill(100)
    assert archive(client, "late", tmp_path).rows == 30
    assert archived(tmp_path, "late") == topic.rows[70:]
    assert verify(tmp_path).topics[0].lives[0].after_seq == 70


def test_records_that_were_deleted_are_no_gap(
    client: YardClient, topics: Topics, tmp_path: Path
) -> None:
    topic = WrittenTopic(topics, "holes")
    topic.fill(100)
    topics.ask("POST", "/v0/topics/holes/delete", {"before_seq": 11})
    topics.ask("POST", "/v0/topics/holes/delete", {"match": "t1"})
    archive(client, "holes", tmp_path)
    topic.fill(10)
    topics.ask("POST", "/v0/topics/holes/delete", {"before_seq": 111})
    assert archive(client, "holes", tmp_path).files == 0
    topic.fill(5)
    archive(client, "holes", tmp_path)
    gone = {*range(1, 11), *range(101, 111)}
    left = [row for row in topic.rows if row["seq"] not in gone]
    left = [row for row in left if row["tag"] != "t1" or row["seq"] > 100]
    assert archived(tmp_path, "holes") == left
    verify(tmp_path)


def test_a_topic_that_was_made_again_begins_another_life(
    client: YardClient, topics: Topics, tmp_path: Path
) -> None:
    topic = WrittenTopic(topics, "again")
    for count in (30, 20, 40):
        topic.fill(count)
        archive(client, "again", tmp_path)
        topic.fill(5)
        archive(client, "again", tmp_path)
        topic.remove()
        topic.make()
    (report,) = verify(tmp_path).topics
    assert [life.to_seq for life in report.lives] == [35, 25, 45]
    assert archived(tmp_path, "again") == topic.rows


def test_an_older_copy_of_a_topic_is_refused(
    client: YardClient, topics: Topics, tmp_path: Path
) -> None:
    topic = WrittenTopic(topics, "older")
    topic.fill(5)
    archive(client, "older", tmp_path)
    other = HttpYard("--data", str(tmp_path / "other"))
    with YardClient(other.url) as second:
        calls = Topics(other.address)
        WrittenTopic(calls, "older").fill(3)
        archive(second, "older", tmp_path)
        calls.close()
    other.close()
    # The first server's life is now an earlier one.
    error = fails(client, "older", tmp_path)
    assert error.code == Code.ARCHIVE_DIFFERS


def test_a_cursor_that_is_ahead_is_another_archives(
    client: YardClient, topics: Topics, tmp_path: Path
) -> None:
    topic = WrittenTopic(topics, "shared")
    topic.fill(10)
    archive(client, "shared", tmp_path / "a")
    error = fails(client, "shared", tmp_path / "b")
    assert (error.code, error.option) == ("cursor_behind", "cursor")
    assert archive(client, "shared", tmp_path / "b", ArchiveRules(cursor="b")).rows == 10


def test_the_history_keeps_all_columns(client: YardClient, topics: Topics, tmp_path: Path) -> None:
    topics.ask("PUT", "/v0/topics/history", {"type": "queue"})
    for _ in range(3):
        records = [{"data": 1, "name": "naïve-☃", "job_id": None}] * 20
        records = [{"data": 1, "name": "naïve-☃"} for _ in records]
        assert topics.ask("POST", "/v0/topics/history", {"records": records})[0] < 300
        taken = topics.ask("POST", "/v0/topics/history/claim", {"node": "w", "max": 20})[1]
        seqs = [job["$seq"] for job in taken["jobs"]] if "jobs" in taken else []
        topics.ask("POST", "/v0/topics/history/ack", {"node": "w", "seqs": seqs})
        archive(client, "_events", tmp_path)
    end = verify(tmp_path).topics[0].lives[0].to_seq
    path = f"/v0/topics/_events/export?from_seq=0&to_seq={end}&nullable=true"
    content = topics.ask("GET", path)[1]
    exported = pa.ipc.open_stream(content).read_all().replace_schema_metadata(None)
    read = pa.concat_tables(
        pq.ParquetFile(file).read() for file in files_of(tmp_path, "_events")
    ).replace_schema_metadata(None)
    assert read.equals(exported)
    assert read.num_rows > 60
    assert len(read.schema) == 30


def test_a_folder_that_cannot_be_written_is_said(
    client: YardClient, topics: Topics, tmp_path: Path
) -> None:
    WrittenTopic(topics, "unwritten").fill(3)
    (tmp_path / "file").write_text("")
    assert fails(client, "unwritten", tmp_path / "file").code == Code.ARCHIVE_NOT_WRITTEN
    archive(client, "unwritten", tmp_path)
    WrittenTopic(topics, "unwritten").fill(3)
    # Where the file would be begun.
    (tmp_path / "topic=unwritten" / PART).mkdir()
    assert fails(client, "unwritten", tmp_path).code == Code.ARCHIVE_NOT_WRITTEN
    (tmp_path / "topic=unwritten" / PART).rmdir()
    assert archive(client, "unwritten", tmp_path).rows == 3


def test_a_file_has_rows_of_one_day() -> None:
    day = 86_400_000_000
    times = [1, day - 1, day, day + 5, day - 2, 3 * day]
    batch = pa.RecordBatch.from_pydict(
        {"seq": list(range(6)), "ts": pa.array(times, pa.timestamp("us", tz="UTC"))}
    )
    found = [(each, rows.column("seq").to_pylist()) for each, rows in _pieces(batch, 1 << 20)]
    # A clock that was set back shows a day twice, and order counts more.
    assert found == [(0, [0, 1]), (1, [2, 3]), (0, [4]), (3, [5])]
    assert [rows.num_rows for _, rows in _pieces(batch.slice(0, 2), 1)] == [1, 1]
    assert list(_pieces(batch.slice(0, 0), 1)) == []


def test_a_run_that_goes_on_makes_few_files(
    client: YardClient, topics: Topics, tmp_path: Path
) -> None:
    topic = WrittenTopic(topics, "kept")
    topic.fill(10)
    with Archiver(client, "kept", tmp_path) as archiver:
        # Young and small.
        assert not archiver.is_due()
    with Archiver(client, "kept", tmp_path, ArchiveRules(close_after_s=0)) as archiver:
        assert archiver.is_due()
        archiver.run_once()
        assert not archiver.is_due()
    topic.write([{"data": "x" * 70_000}] * 20)
    with Archiver(client, "kept", tmp_path, SMALL) as archiver:
        assert archiver.is_due()
    topic.fill(10)


def test_a_run_goes_on_until_it_is_stopped(
    client: YardClient, yard: HttpYard, topics: Topics, tmp_path: Path
) -> None:
    # Retention runs beside: it keeps five records, and what is not archived.
    topic = WrittenTopic(topics, "steady", cap_records=5)
    archive(client, "steady", tmp_path)
    stopped, passed = threading.Event(), threading.Event()
    found: list[Archived] = []

    def report(done: Archived) -> None:
        found.append(done)
        passed.set()

    def run() -> None:
        with YardClient(yard.url) as own:
            rules = ArchiveRules(close_after_s=0)
            keep_archiving(
                own, "steady", tmp_path, rules, every_s=0.01, stopped=stopped, report=report
            )

    thread = threading.Thread(target=run)
    thread.start()
    for _ in range(3):
        passed.clear()
        topic.fill(10)
        assert passed.wait(PATIENCE_S)
    stopped.set()
    thread.join(PATIENCE_S)
    assert archived(tmp_path, "steady") == topic.rows
    assert sum(done.rows for done in found) == 30
    assert not (tmp_path / "topic=steady" / PART).exists()
