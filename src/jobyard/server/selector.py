"""The hot loop as an asyncio selector: asyncio runs on the same thread and the same epoll set."""

from __future__ import annotations

import selectors
from collections.abc import Mapping
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike as FileLike

    from jobyard.server.loop import HotLoop

# Stands for "no timeout"; select() may return earlier than requested.
_LONG_S = 3600.0


@final
class YardSelector(selectors.BaseSelector):
    """Serves the hot connections, then returns the ready descriptors of asyncio."""

    def __init__(self, hot: HotLoop) -> None:
        self._hot = hot
        self._keys: dict[int, selectors.SelectorKey] = {}

    def register(
        self, fileobj: FileLike, events: int, data: object = None
    ) -> selectors.SelectorKey:
        """Watch a descriptor for asyncio."""
        fd = _fd_of(fileobj)
        key = selectors.SelectorKey(fileobj, fd, events, data)
        self._hot.watch_cold(fd, _to_epoll(events))
        self._keys[fd] = key
        return key

    def unregister(self, fileobj: FileLike) -> selectors.SelectorKey:
        """Stop watching."""
        fd = _fd_of(fileobj)
        key = self._keys.pop(fd)
        self._hot.unwatch_cold(fd)
        return key

    def modify(self, fileobj: FileLike, events: int, data: object = None) -> selectors.SelectorKey:
        """Change the events to watch for."""
        fd = _fd_of(fileobj)
        key = selectors.SelectorKey(fileobj, fd, events, data)
        self._hot.change_cold(fd, _to_epoll(events))
        self._keys[fd] = key
        return key

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Serve the hot doors, then return what is ready for asyncio."""
        wait_s = _LONG_S if timeout is None else max(0.0, timeout)
        ready: list[tuple[selectors.SelectorKey, int]] = []
        for fd, events in self._hot.select(wait_s):
            key = self._keys.get(fd)
            if key is not None:
                ready.append((key, _from_epoll(events) & key.events))
        return ready

    def get_map(self) -> Mapping[FileLike, selectors.SelectorKey]:
        """Return all keys by descriptor."""
        return dict(self._keys.items())

    def get_key(self, fileobj: FileLike) -> selectors.SelectorKey:
        """Return the key of one descriptor."""
        return self._keys[_fd_of(fileobj)]


def _fd_of(fileobj: FileLike) -> int:
    return fileobj if isinstance(fileobj, int) else fileobj.fileno()


def _to_epoll(events: int) -> int:
    return (1 if events & selectors.EVENT_READ else 0) | (
        4 if events & selectors.EVENT_WRITE else 0
    )


def _from_epoll(events: int) -> int:
    """Translate events; errors and hang-ups count as both, so that every waiter notices them."""
    ready = 0
    if events & ~4:
        ready |= selectors.EVENT_READ
    if events & ~1:
        ready |= selectors.EVENT_WRITE
    return ready
