"""Text of a log that is damaged on disk: the read fails with the reason, and all else works."""

import pytest

from jobyard.model.topic.log_chunk import LOG_CHUNK_ROWS
from tests.support.clients.exports import begin, exported, unchunked
from tests.support.clients.topics import TopicsClient
from tests.support.doors.topics import BareTopics
from tests.support.site.storage import MemoryStorage

ROWS = 2 * LOG_CHUNK_ROWS + 1
CORRUPT = (500, "corrupt")


def damaged(node: str) -> BareTopics:
    """Return a port with a log whose text is on disk only, damaged from record 6 to record 8."""
    found = BareTopics(MemoryStorage())
    found.yard.bodies._budget = 0
    found.api.put("log")
    found.api.put("other")
    for first in range(0, ROWS, 500):
        found.api.write("log", *range(first, min(first + 500, ROWS)), node=node)
        found.commit()
    found.api.write("other", "whole")
    found.commit()
    chunk = found.yard.logs["log"].chunks[0]
    assert chunk.is_cold
    for slot in (5, 6, 7):
        name = found.journal.segments[int(chunk.segments[slot])].name
        assert isinstance(found.storage, MemoryStorage)
        found.storage.flip(name, int(chunk.offsets[slot]) + 10, 1)
    return found


@pytest.fixture
def site() -> BareTopics:
    """A port with such a log."""
    return damaged("")


@pytest.fixture
def api(site: BareTopics) -> TopicsClient:
    """A connection."""
    return site.api


def seqs(page: dict[str, list[dict[str, int]]]) -> list[int]:
    return [one["$seq"] for one in page["records"]]


@pytest.mark.parametrize(
    ("node", "query", "last_seq"),
    [("", {}, 8), ("n", {}, 6), ("n", {"include_tags": True, "node": "x"}, 6)],
)
def test_a_read_fails_where_the_text_is_damaged(
    node: str, query: dict[str, object], last_seq: int
) -> None:
    api = damaged(node).api
    page = api.diff("log", limit=9, **query)
    assert (seqs(page), page["next_from_seq"], page["caught_up"]) == ([1, 2, 3, 4, 5], 5, False)
    answer = api.post("log/diff", {"from_seq": 5, **query})
    assert answer.refusal == CORRUPT
    assert answer.json["error"]["detail"] == {"first_seq": 6, "last_seq": last_seq}
    assert "damaged on disk" in answer.json["error"]["message"]
    assert seqs(api.diff("log", from_seq=8, limit=2, **query)) == [9, 10]
    assert seqs(api.diff("other")) == [1]
    api.write("log", "more")


def test_a_reader_of_its_own_records_only_reads_no_text() -> None:
    page = damaged("n").api.diff("log", node="n")
    assert (page["records"], page["caught_up"]) == ([], True)


def test_failed_reads_are_counted_and_told_once(site: BareTopics, api: TopicsClient) -> None:
    for _ in range(3):
        assert api.post("log/diff", {"from_seq": 5}).refusal == CORRUPT
    assert api.post("log/diff", {"from_seq": 6}).refusal == CORRUPT
    (first, second) = site.journal.damages.take_stories()
    assert first.startswith("records 6 to 8 are damaged on disk: 00")
    assert second.startswith("records 7 to 8 are damaged on disk: 00")
    assert site.journal.damages.take_stories() == []
    answer = api.ask("GET", "/v0/metrics", None, {"Accept": "application/json"})
    assert answer.json["topics_corrupt_reads"] == 4


def test_a_watch_is_told_and_shows_the_others(site: BareTopics, api: TopicsClient) -> None:
    body = {"topics": {"log": {"from_seq": 3}, "other": {}}}
    path = api.ask("POST", "/v0/watch", body).json["stream_url"]
    reader = site.connect()
    reader.listen(path)
    events = reader.events()
    assert [event.name for event in events] == ["retry:", "record", "record", "caught-up", "error"]
    assert seqs(events[1].json) == [4, 5]
    told = events[-1].json
    assert told.pop("error").startswith("records 6 to 8 are damaged on disk")
    assert told == {"topic": "log", "code": "corrupt", "first_seq": 6, "last_seq": 8}
    api.write("other", "more")
    api.write("log", "more")
    assert {event.json["topic"] for event in reader.events()} == {"other"}


def test_a_router_passes_on_what_is_whole(site: BareTopics, api: TopicsClient) -> None:
    api.ask("PUT", "/v0/routers/r", {"source": "log", "dest": "copies"})
    router = site.yard.routers.by_name["r"]
    # As after a time in which the destination took nothing.
    router.cursor = 3
    api.write("log", "new")
    copies = api.diff("copies", limit=3)["records"]
    assert [one["data"] for one in copies] == [3, 4, 8]
    assert router.forwarded_total == ROWS + 1 - 6


def test_an_export_ends_before_what_is_damaged_and_the_next_one_tells_it(
    site: BareTopics, api: TopicsClient
) -> None:
    reader = site.connect()
    begin(reader, "log/export")
    site.tick(100)
    # Broken off behind the last whole record.
    assert unchunked(reader.unread) is None
    assert not reader.is_open
    answer = api.ask("GET", "/v0/topics/log/export?from_seq=5")
    assert answer.refusal == CORRUPT
    assert answer.json["error"]["detail"] == {"first_seq": 6, "last_seq": 8}
    assert site.topics.limits.streams_count == 0
    assert exported(site, "log/export?to_seq=5").seqs == [1, 2, 3, 4, 5]
    assert exported(site, "log/export?from_seq=8").seqs == list(range(9, ROWS + 1))
    assert site.timers() == 0


def test_an_export_that_may_have_gaps_passes_over_what_is_damaged(site: BareTopics) -> None:
    made = exported(site, "log/export?allow_gap=true")
    assert made.seqs == [seq for seq in range(1, ROWS + 1) if seq not in (6, 7, 8)]
    assert made.end["lost_rows"] == "3"
    assert exported(site, "log/export?from_seq=5&to_seq=7&allow_gap=true").seqs == []
    # A reader that wants no text meets no damage.
    assert exported(site, "log/export?columns=seq").seqs == list(range(1, ROWS + 1))
