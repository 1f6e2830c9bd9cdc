"""Compression of the pages of exports, which happens outside the loop.

The loop hands over the buffers of a page and looks for the result a millisecond later, as it does
for the next page anyway. How and where they are compressed is the server's business.
"""

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class PackedPage:
    """A page that is being compressed."""

    def buffers(self) -> list[bytes] | None:
        """Return its compressed buffers; None while they are not ready."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class PagePacker:
    """Compresses pages."""

    def is_busy(self) -> bool:
        """Return whether it has so many pages that the next one should wait."""
        raise NotImplementedError

    def pack(self, buffers: list[bytes]) -> PackedPage:
        """Begin to compress the buffers of a page."""
        raise NotImplementedError
