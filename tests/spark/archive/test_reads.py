"""An archive and its yard read as one topic, through the reader classes, without Spark."""

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import GreaterThan, LessThan

from jobyard.client import JobyardError, YardClient
from jobyard.client.errors import Code
from jobyard.lake.archive import ArchiveRules, archive
from jobyard.spark.archive.batch import ArchiveBatchReader, PushingArchiveReader
from jobyard.spark.read.ranges import SeqPartition
from tests.support.clients.archives import WrittenTopic, files_of
from tests.support.clients.spark import Query, read_batch, rows_of, schema, source_of
from tests.support.servers.http import HttpYard, Topics

NAMES = (f"joined-{at}" for at in itertools.count())


class Joined:
    """A topic with an archive; its yard keeps ten records, and what is not archived."""

    def __init__(self, yard: HttpYard, topics: Topics, folder: Path, cap: int = 10) -> None:
        self.url = yard.url
        self.folder = folder
        self.topics = topics
        self.topic = WrittenTopic(topics, next(NAMES), cap_records=cap)
        self.archive()

    def archive(self) -> None:
        with YardClient(self.url) as client:
            archive(client, self.topic.name, self.folder, ArchiveRules(file_bytes=64 << 10))

    def make_again(self) -> None:
        if not self.topic.lives[-1]:
            # A life without a record is in no archive, so that a reader in it has lost its place.
            self.topic.fill(1)
        self.archive()
        self.topic.remove()
        self.topic.make()
        # Holds what is written to the new life from now on.
        self.archive()

    def options(self, **more: str) -> dict[str, str]:
        return {"topic": self.topic.name, "archivePath": str(self.folder), **more}

    def read(self, **more: str) -> list[int]:
        return [row["seq"] for row in read_batch(self.url, "seq", **self.options(**more))]

    def fails(self, **more: str) -> JobyardError:
        with pytest.raises(JobyardError) as caught:
            self.read(**more)
        assert len(str(caught.value).splitlines()) <= 3
        return caught.value

    def at(self, life: int, seq: int) -> str:
        """Return a place as an offset."""
        with YardClient(self.url) as client:
            known = [each["incarnation"] for each in self._index()["files"]]
            known.append(client.get(f"/v0/topics/{self.topic.name}").text("incarnation"))
        lives = list(dict.fromkeys(known))
        return json.dumps({"v": 1, "t": {self.topic.name: {"id": lives[life], "0": seq}}})

    def _index(self) -> Any:
        path = self.folder / f"topic={self.topic.name}" / "_index"
        return json.loads(path.read_bytes().partition(b"\n")[2])

    def seqs(self) -> list[int]:
        return [row["seq"] for row in self.topic.rows]


@pytest.fixture
def joined(yard: HttpYard, topics: Topics, tmp_path: Path) -> Joined:
    return Joined(yard, topics, tmp_path)


def test_the_rows_are_those_of_the_yard(yard: HttpYard, topics: Topics, tmp_path: Path) -> None:
    # A yard that keeps everything says what is right.
    joined = Joined(yard, topics, tmp_path, cap=0)
    joined.topic.fill(100)
    joined.archive()
    joined.topic.fill(30)
    for more in ({}, {"kafkaNames": "true"}, {"includeHeaders": "false"}):
        names = " ".join(
            field.name for field in source_of(yard.url, topic=joined.topic.name, **more).schema()
        )
        plain = read_batch(yard.url, names, topic=joined.topic.name, **more)
        assert len(plain) == 130
        assert read_batch(yard.url, names, **joined.options(**more)) == plain
    values = [row["value"] for row in read_batch(yard.url, "value", **joined.options())]
    assert values == [row["value"] for row in joined.topic.rows]


def test_what_the_yard_has_no_more_is_read_from_the_archive(joined: Joined) -> None:
    joined.topic.fill(200)
    joined.archive()
    joined.topic.fill(30)
    assert joined.topic.state()["count"] == 30
    assert joined.read() == joined.seqs()
    assert joined.read(startingOffsets="earliest", endingOffsets="-25") == joined.seqs()[:205]
    assert joined.read(archiveOnly="true") == joined.seqs()[:200]
    for start, end in ((1, 231), (50, 60), (199, 203), (201, 201), (230, 231)):
        options = {
            "startingOffsets": json.dumps({joined.topic.name: {"0": start}}),
            "endingOffsets": json.dumps({joined.topic.name: {"0": end}}),
        }
        assert joined.read(**options) == list(range(start, end))
    assert joined.read(startingOffsets="-50") == list(range(181, 231))
    assert joined.fails(startingOffsets=joined.at(0, 300)).code == Code.BAD_OPTION


def test_without_the_yard_no_server_is_asked(joined: Joined, unused_url: str) -> None:
    joined.topic.fill(40)
    joined.archive()
    found = read_batch(unused_url, "seq", **joined.options(archiveOnly="true"))
    assert [row["seq"] for row in found] == joined.seqs()
    reader = source_of(unused_url, **joined.options(archiveOnly="true"))
    assert reader.reader(schema=schema(reader)).options.connecting.url == ""


def test_times_begin_in_the_archive_or_in_the_yard(joined: Joined) -> None:
    joined.topic.fill(20)
    joined.archive()
    joined.topic.fill(5)
    rows = read_batch(joined.url, "seq ts", **joined.options())
    for at in (0, 7, 19, 20, 24):
        ts_ms = int(rows[at]["ts"].timestamp() * 1000)
        first = next(row["seq"] for row in rows if row["ts"].timestamp() * 1000 >= ts_ms)
        assert joined.read(startingTimestamp=str(ts_ms)) == list(range(first, 26))
        assert joined.read(endingTimestamp=str(ts_ms)) == list(range(1, first))
    assert joined.read(startingTimestamp="2000-01-01") == joined.seqs()
    assert joined.read(startingTimestamp="2200-01-01") == []


def test_what_is_archived_and_removed_while_a_read_is_planned(joined: Joined) -> None:
    joined.topic.fill(50)
    source = source_of(joined.url, **joined.options(maxRecordsPerPartition="20"))
    reader = source.reader(schema=schema(source, "seq"))
    partitions = reader.partitions()
    joined.archive()
    joined.topic.fill(30)
    joined.archive()
    # The yard has the last ten, and the plan is of the time when it had all fifty.
    joined.topic.fill(1)
    assert joined.topic.state()["count"] < 20
    assert [row["seq"] for row in rows_of(reader, partitions)] == list(range(1, 51))
    # A topic that is deleted is read to the end of what was planned, too.
    joined.make_again()
    assert [row["seq"] for row in rows_of(reader, partitions)] == list(range(1, 51))


@pytest.mark.parametrize("allowed", ["true", "false"])
def test_what_neither_of_both_has_is_lost(joined: Joined, allowed: str) -> None:
    joined.topic.fill(50)
    joined.archive()
    joined.topics.ask("DELETE", f"/v0/topics/{joined.topic.name}/cursors/archive")
    joined.topic.fill(50)
    error = joined.fails(minPartitions="1")
    assert error.code == Code.DATA_LOSS
    assert "records 51 to 90" in error.message
    left = [*range(1, 51), *range(91, 101)]
    assert joined.read(failOnDataLoss="false") == left
    with YardClient(joined.url) as client:
        archive(client, joined.topic.name, joined.folder, ArchiveRules(allow_gaps=True))
    # Now the archive names the gap.
    if allowed == "true":
        assert "records 51 to 90" in joined.fails().message
        assert "records 51 to 90" in joined.fails(archiveOnly="true").message
    else:
        assert joined.read(failOnDataLoss="false", archiveOnly="true") == left


def test_lives_follow_each_other(joined: Joined) -> None:
    for count in (30, 20, 10):
        joined.topic.fill(count)
        joined.make_again()
    joined.topic.fill(5)
    lives = [list(range(1, count + 1)) for count in (30, 20, 10, 5)]
    assert joined.read() == [seq for life in lives for seq in life]
    assert joined.read(startingOffsets=joined.at(1, 15)) == [*lives[1][14:], *lives[2], *lives[3]]
    assert joined.read(startingOffsets=joined.at(0, 29), endingOffsets=joined.at(2, 3)) == [
        29,
        30,
        *lives[1],
        1,
        2,
    ]
    assert joined.read(startingOffsets="latest") == []
    assert joined.read(startingOffsets="-3") == [3, 4, 5]


def test_a_topic_that_is_gone_is_still_in_the_archive(joined: Joined) -> None:
    joined.topic.fill(30)
    joined.archive()
    query = Query(joined.url, startingOffsets="earliest", **joined.options())
    joined.topic.remove()
    assert joined.read() == joined.seqs()
    assert len(query.batch()) == 30
    # A stream that waits for more of it must not wait in silence.
    with pytest.raises(JobyardError, match="was deleted"):
        query.plan()
    query.stop()


def test_a_stream_that_read_beyond_the_archive_loses_what_was_deleted(joined: Joined) -> None:
    joined.topic.fill(30)
    joined.archive()
    joined.topic.fill(5)
    query = Query(joined.url, startingOffsets="earliest", **joined.options())
    assert len(query.batch()) == 35
    joined.topic.remove()
    joined.topic.make()
    with pytest.raises(JobyardError, match="made again"):
        query.plan()
    query.stop()


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 40)),
        st.tuples(st.just("archive"), st.just(0)),
        st.tuples(st.just("again"), st.just(0)),
    ),
    min_size=1,
    max_size=8,
)
QUIET = settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    # A smaller example takes minutes to find, each of many reads.
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def act(joined: Joined, action: str, count: int) -> None:
    if action == "write":
        joined.topic.fill(count)
    elif action == "archive":
        joined.archive()
    else:
        joined.make_again()


@QUIET
@given(actions=ACTIONS, drawn=st.data())
def test_any_start_and_end_give_what_was_written(
    yard: HttpYard, topics: Topics, tmp_path: Path, actions: Any, drawn: Any
) -> None:
    joined = Joined(yard, topics, tmp_path)
    for action, count in actions:
        act(joined, action, count)
    lives = [[row["seq"] for row in life] for life in joined.topic.lives]
    first = drawn.draw(st.integers(0, len(lives) - 1))
    last = drawn.draw(st.integers(first, len(lives) - 1))
    start = drawn.draw(st.integers(1, len(lives[first]) + 1))
    end = drawn.draw(st.integers(1, len(lives[last]) + 1))
    flat = [(life, seq) for life, each in enumerate(lives) for seq in each]
    wanted = [seq for life, seq in flat if (first, start) <= (life, seq) < (last, end)]
    size = drawn.draw(st.sampled_from(["7", "1000"]))
    found = joined.read(
        startingOffsets=joined.at(first, start),
        endingOffsets=joined.at(last, end),
        maxRecordsPerPartition=size,
    )
    assert found == wanted
    assert joined.read() == [seq for _, seq in flat]


@QUIET
@given(before=ACTIONS, after=ACTIONS, limit=st.integers(1, 60), drawn=st.data())
def test_a_stream_gives_what_was_written_while_the_archiver_runs(
    yard: HttpYard,
    topics: Topics,
    tmp_path: Path,
    before: Any,
    after: Any,
    limit: int,
    drawn: Any,
) -> None:
    joined = Joined(yard, topics, tmp_path)
    for action, count in before:
        act(joined, action, count)
    options = joined.options(maxOffsetsPerTrigger=str(limit))
    query = Query(yard.url, startingOffsets="earliest", **options)
    found: list[int] = []
    left = list(after)
    try:
        while True:
            end = query.plan()
            if left and (end == query.at or drawn.draw(st.booleans())):
                act(joined, *left.pop(0))
            elif end == query.at:
                break
            found += [seq for _, seq in query.rows(query.at, end)]
            query.at = end
            if drawn.draw(st.booleans()):
                # A new driver, with the offsets of the last one.
                query.stop()
                query = Query(yard.url, query.at, **options)
    finally:
        query.stop()
    assert found == joined.seqs()


def test_filters_of_seqs_choose_files(joined: Joined) -> None:
    joined.topic.fill(100)
    joined.archive()
    source = source_of(joined.url, **joined.options())
    plain = source.reader(schema=schema(source, "seq"))
    assert type(plain) is ArchiveBatchReader
    reader = PushingArchiveReader(plain.options, plain.table)
    filters = [GreaterThan(("seq",), 90), LessThan(("seq",), 96)]
    assert list(reader.pushFilters(filters)) == filters
    assert [row["seq"] for row in rows_of(reader, reader.partitions())] == list(range(91, 96))


def test_a_damaged_file_is_an_error_with_its_name(joined: Joined) -> None:
    joined.topic.fill(100)
    joined.archive()
    (file,) = files_of(joined.folder, joined.topic.name)
    whole = file.read_bytes()
    for at in (0, 100, len(whole) // 2, len(whole) - 30, len(whole) - 1):
        spoilt = bytearray(whole)
        spoilt[at] ^= 16
        file.write_bytes(spoilt)
        for more in ({}, {"failOnDataLoss": "false"}, {"archiveOnly": "true"}):
            error = joined.fails(**more)
            assert error.code == Code.ARCHIVE_DAMAGED
            assert str(file) in error.message
    file.unlink()
    assert "is missing" in joined.fails(failOnDataLoss="false").message


def test_who_cannot_reach_the_folder_says_so(joined: Joined) -> None:
    joined.topic.fill(30)
    joined.archive()
    joined.topic.fill(30)
    source = source_of(joined.url, **joined.options())
    reader = source.reader(schema=schema(source, "seq"))
    partitions = reader.partitions()
    moved = joined.folder.with_name("moved")
    joined.folder.rename(moved)
    # A driver that does not see it, an executor that does not, and one with an older state of it.
    assert joined.fails().code == Code.ARCHIVE_NOT_FOUND
    with pytest.raises(JobyardError, match="is not there on") as caught:
        rows_of(reader, partitions)
    assert caught.value.code == Code.ARCHIVE_NOT_FOUND
    joined.folder.mkdir()
    with pytest.raises(JobyardError, match="has 0 as last number") as caught:
        rows_of(reader, partitions)
    assert caught.value.code == Code.ARCHIVE_NOT_FOUND
    shutil.rmtree(joined.folder)
    moved.rename(joined.folder)
    assert len(rows_of(reader, partitions)) == 60


def test_the_history_is_joined_as_well(yard: HttpYard, topics: Topics, tmp_path: Path) -> None:
    topics.ask("PUT", "/v0/topics/jobs", {"type": "queue"})
    with YardClient(yard.url) as client:
        for _ in range(3):
            topics.ask("POST", "/v0/topics/jobs", {"records": [{"data": 1}] * 10})
            archive(client, "_events", tmp_path)
        topics.ask("POST", "/v0/topics/jobs", {"records": [{"data": 1}] * 7})
    options = {"topic": "_events"}
    names = " ".join(field.name for field in source_of(yard.url, **options).schema())
    plain = read_batch(yard.url, names, **options)
    assert len(plain) == 37
    assert read_batch(yard.url, names, archivePath=str(tmp_path), **options) == plain
    query = Query(
        yard.url, startingOffsets="earliest", archivePath=str(tmp_path), maxOffsetsPerTrigger="9",
        **options,
    )  # fmt: skip
    assert sum(len(batch) for batch in query.until_end()) == 37
    query.stop()


def test_a_pattern_finds_what_only_the_archive_has(
    yard: HttpYard, topics: Topics, tmp_path: Path
) -> None:
    names = ["pat:a", "pat:b", "pat:c"]
    for name in names:
        topic = WrittenTopic(topics, name)
        topic.fill(5)
        if name != "pat:c":
            with YardClient(yard.url) as client:
                archive(client, name, tmp_path)
        if name == "pat:a":
            topic.remove()
    rows = read_batch(yard.url, "topic seq", topicsPattern="pat:.*", archivePath=str(tmp_path))
    wanted = [(name, seq) for name in names for seq in range(1, 6)]
    assert [(row["topic"], row["seq"]) for row in rows] == wanted
    query = Query(
        yard.url, startingOffsets="earliest", topicsPattern="pat:.*", archivePath=str(tmp_path)
    )
    assert sorted(query.batch()) == wanted
    # The topic that was deleted ends quietly, and is not entered again.
    topic.fill(1)
    found = [row for _ in range(3) for row in query.batch()]
    assert found == [("pat:c", 6)]
    query.stop()


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"archiveOnly": "true", "topic": "a"}, "archiveOnly"),
        ({"archivePath": "s3://bucket/x", "topic": "a"}, "archivePath"),
        ({"archivePath": "", "topic": "a"}, "archivePath"),
        ({"archivePath": "x", "jobs": "q"}, "archivePath"),
    ],
)
def test_options_that_cannot_be_right(yard: HttpYard, options: dict[str, str], option: str) -> None:
    with pytest.raises(JobyardError) as caught:
        read_batch(yard.url, "seq", **options)
    assert (caught.value.code, caught.value.option) == (Code.BAD_OPTION, option)


def test_tasks_follow_row_groups(yard: HttpYard, topics: Topics, tmp_path: Path) -> None:
    joined = Joined(yard, topics, tmp_path, cap=0)
    for _ in range(40):
        joined.topic.write([{"data": "x" * 50}] * 5000)
    with YardClient(yard.url) as client:
        archive(client, joined.topic.name, tmp_path)
    groups = [pq.ParquetFile(file).metadata.num_row_groups
              for file in files_of(tmp_path, joined.topic.name)]  # fmt: skip
    assert sum(groups) == 4
    source = source_of(joined.url, **joined.options())
    reader = source.reader(schema=schema(source, "seq"))
    reader.options.limits.__dict__["partitions_min"] = 3
    ranges = [part.ranges for part in reader.partitions() if isinstance(part, SeqPartition)]
    ends = {each["groups"][at] for each in joined._index()["files"] for at in range(groups[0])}
    assert len(ranges) > 1
    assert {part[-1].to_seq for part in ranges} <= ends
    assert [row["seq"] for row in rows_of(reader, reader.partitions())] == joined.seqs()
