"""Compresses the pages of exports with zstd, in a thread of its own.

Not in the thread of syncs: a page of 1 MiB takes 2 ms, for which every commit would have to wait.
zstd gives up the GIL meanwhile, so the loop goes on. The thread is started by the first page.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, final

from jobyard.protocols.topics.export.packing import PackedPage, PagePacker
from jobyard.wire.arrow.stream import packed_buffer

# More compresses slower than a link of 100 Mbit/s needs, and hardly better.
LEVEL: Final = 1
# Pages that are compressed or wait for it: others are not even made.
PAGES_MAX: Final = 4


@final
class _ZstdPage(PackedPage):
    def __init__(self, future: "Future[list[bytes]]") -> None:
        self._future = future

    def buffers(self) -> list[bytes] | None:
        return self._future.result() if self._future.done() else None


@final
class ZstdPacker(PagePacker):
    """The thread, and its pages."""

    def __init__(self, compress: Callable[[bytes], bytes]) -> None:
        self._compress = compress
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="jobyard-zstd")
        self._pages: list[Future[list[bytes]]] = []

    def is_busy(self) -> bool:
        """Return whether the next page should wait."""
        self._pages = [page for page in self._pages if not page.done()]
        return len(self._pages) >= PAGES_MAX

    def pack(self, buffers: list[bytes]) -> PackedPage:
        """Let the thread compress a page."""
        page = self._pool.submit(self._packed, buffers)
        self._pages.append(page)
        return _ZstdPage(page)

    def _packed(self, buffers: list[bytes]) -> list[bytes]:
        return [packed_buffer(one, self._compress(one)) for one in buffers]

    def close(self) -> None:
        """Stop after the page in progress; nobody waits for others."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def zstd_packer() -> ZstdPacker | None:
    """Return a packer, or None if the library is not installed."""
    try:
        import zstandard  # noqa: PLC0415  an optional package
    except ImportError:
        return None
    return ZstdPacker(zstandard.ZstdCompressor(level=LEVEL).compress)
