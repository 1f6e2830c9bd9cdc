"""Exports whose pages are compressed outside the loop, and are ready some time later."""

import pytest
import zstandard

from jobyard.protocols.topics.export.packing import PackedPage, PagePacker
from jobyard.protocols.topics.export.sources import PAGE_ROWS
from jobyard.wire.arrow.stream import packed_buffer
from tests.support.clients.exports import begin, exported, hear, unchunked
from tests.support.clients.topics import TopicsClient
from tests.support.doors.topics import BareTopics


def fill(api: TopicsClient, count: int) -> None:
    api.put("log")
    api.write("log", *range(count))


class LatePage(PackedPage):
    """A page that is ready once it is looked at for the third time."""

    def __init__(self, buffers: list[bytes]) -> None:
        self._buffers = [packed_buffer(one, compressed(one)) for one in buffers]
        self._looks = 0

    def buffers(self) -> list[bytes] | None:
        self._looks += 1
        return self._buffers if self._looks > 2 else None


def compressed(plain: bytes) -> bytes:
    """Return a buffer as zstd makes it."""
    return zstandard.ZstdCompressor(level=1).compress(plain)


class LatePacker(PagePacker):
    """Compresses in the loop, and is never ready at once."""

    def __init__(self) -> None:
        self.pages_count = 0
        self.busy_count = 0

    def is_busy(self) -> bool:
        self.busy_count -= 1
        return self.busy_count >= 0

    def pack(self, buffers: list[bytes]) -> PackedPage:
        self.pages_count += 1
        return LatePage(buffers)


@pytest.fixture
def packer(site: BareTopics) -> LatePacker:
    """A packer that is installed."""
    made = LatePacker()
    site.topics.packers["zstd"] = made
    return made


def test_compressed_pages_have_the_same_rows(
    site: BareTopics, api: TopicsClient, packer: LatePacker
) -> None:
    fill(api, 2 * PAGE_ROWS + 10)
    plain = exported(site, "log/export")
    assert packer.pages_count == 0
    packer.busy_count = 5
    made = exported(site, "log/export?compress=zstd")
    assert made.batches == plain.batches
    assert made.schema.equals(plain.schema, check_metadata=True)
    assert (made.end, made.trailers) == (plain.end, plain.trailers)
    assert packer.pages_count == 3
    assert site.timers() == 0
    assert exported(site, "log/export?compress=zstd&from_seq=7&to_seq=7").rows == []


def test_who_leaves_while_a_page_is_compressed_leaves_nothing(
    site: BareTopics, api: TopicsClient, packer: LatePacker
) -> None:
    fill(api, 3)
    reader = site.connect()
    begin(reader, "log/export?compress=zstd")
    assert site.timers() == 1
    reader.close()
    assert (site.timers(), packer.pages_count) == (0, 1)
    reader = site.connect()
    begin(reader, "log/export?compress=zstd")
    site.door.is_draining = True
    reader.shut_down()
    assert unchunked(reader.unread) is None
    assert site.timers() == 0


def test_a_client_that_sends_no_more_still_gets_compressed_pages(
    site: BareTopics, api: TopicsClient, packer: LatePacker
) -> None:
    fill(api, PAGE_ROWS + 3)
    reader = site.connect()
    headers = begin(reader, "log/export?compress=zstd")
    reader.shut_down()
    for _ in range(3):
        site.tick(50)
    assert len(hear(reader, headers).rows) == PAGE_ROWS + 3
    assert packer.pages_count == 2
    assert not reader.is_open


def test_what_cannot_be_compressed_is_refused(api: TopicsClient) -> None:
    api.put("log")
    answer = api.ask("GET", "/v0/topics/log/export?compress=zstd")
    assert answer.refusal == (406, "not_acceptable")
    assert "jobyard[zstd]" in answer.json["error"]["message"]
    for codec in ("lz4", "gzip", "ZSTD"):
        answer = api.ask("GET", f"/v0/topics/log/export?compress={codec}")
        assert answer.refusal == (400, "invalid_request")
