"""The thread that compresses pages."""

import sys
import threading

import pyarrow as pa
import pytest
import zstandard

from jobyard.protocols.topics.export.packing import PackedPage
from jobyard.server.packing import PAGES_MAX, ZstdPacker, zstd_packer

DEADLINE_S = 30


def result_of(page: PackedPage) -> list[bytes]:
    done = threading.Event()
    deadline = threading.Timer(DEADLINE_S, done.set)
    deadline.start()
    while (found := page.buffers()) is None and not done.wait(0.001):
        pass
    deadline.cancel()
    assert found is not None
    return found


def test_each_buffer_is_compressed_alone() -> None:
    packer = zstd_packer()
    assert packer is not None
    empty, small, large = result_of(packer.pack([b"", b"abc", b"text " * 1000]))
    assert (empty, small) == (b"", b"\xff" * 8 + b"abc")
    assert int.from_bytes(large[:8], "little") == 5000
    assert zstandard.ZstdDecompressor().decompress(large[8:]) == b"text " * 1000
    assert pa.decompress(large[8:], 5000, "zstd").to_pybytes() == b"text " * 1000
    packer.close()


def test_few_pages_are_taken_at_once() -> None:
    may_go = threading.Event()

    def compress(plain: bytes) -> bytes:
        assert may_go.wait(DEADLINE_S)
        return plain

    packer = ZstdPacker(compress)
    pages: list[PackedPage] = []
    while not packer.is_busy():
        pages.append(packer.pack([b"x"]))
    assert len(pages) == PAGES_MAX
    assert [page.buffers() for page in pages] == [None] * PAGES_MAX
    may_go.set()
    for page in pages:
        assert result_of(page) == [b"\xff" * 8 + b"x"]
    assert not packer.is_busy()
    packer.close()


def test_a_failure_is_that_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    def compress(plain: bytes) -> bytes:
        raise MemoryError(plain)

    packer = ZstdPacker(compress)
    with pytest.raises(MemoryError):
        result_of(packer.pack([b"x"]))
    assert not packer.is_busy()
    packer.close()
    # Without the library there is no packer.
    monkeypatch.setitem(sys.modules, "zstandard", None)
    assert zstd_packer() is None
