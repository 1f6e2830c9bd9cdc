"""Tasks that convert long answers to JSON and long JSON bodies to MessagePack, in slices.

Maps and lists of an answer are converted item by item, two levels deep; each item is converted
whole. The answer comes in pieces, each of which ends where an item does, and leaves in pieces.
"""

from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from jobyard.engine.state.tasks import Task
from jobyard.model.job import MSGPACK
from jobyard.protocols.http.call import HttpRefused
from jobyard.protocols.session import PIECE_SIZE
from jobyard.wire.json.pack import JsonPack
from jobyard.wire.msgpack.forms import KIND_ARRAY, KIND_MAP, array_header, kind_of, map_header, skip
from jobyard.wire.msgpack.read import MAP_KEYS_MAX
from jobyard.wire.payload import to_json

# Maps within a map, and lists within those, are converted item by item; jobs are not.
_MAP_DEPTH: Final = 2
_LIST_DEPTH: Final = 3
# The cost of converting one item: _PART_UNITS, and one unit per _BYTES_PER_UNIT bytes.
_BYTES_PER_UNIT: Final = 64
_PART_UNITS: Final = 2


# A longer body is read in slices.
BODY_AT_ONCE: Final = 64 << 10
JSON_COPIED_AT_ONCE: Final = 1 << 20


@final
class PackTask(Task):
    """Converts one JSON text to MessagePack."""

    def __init__(self, text: bytes) -> None:
        super().__init__()
        self.is_reading = True
        self._pack = JsonPack(text)

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  it only reads
        """Convert some of the text."""
        if self._pack.is_done():
            return 0
        done = self._pack.proceed(most)
        if not self._pack.is_done():
            return max(done, most)
        # A long text was copied now, and running its command copies it again: in another turn.
        is_long = not self._pack.is_bad and len(self._pack.packed()) > JSON_COPIED_AT_ONCE
        return max(done, most) if is_long else min(done, most - 1)

    def packed(self) -> bytes | None:
        """Return the value of the finished task, or None if the text is not valid JSON."""
        return None if self._pack.is_bad else self._pack.packed()

    def fields(self) -> dict[str, object]:
        """Return the encoded fields of a JSON object; refuse any other text."""
        if self._pack.is_bad or kind_of(self._pack.packed(), 0) != KIND_MAP:
            raise HttpRefused(400, "invalid_request", "Invalid JSON body")
        fields = self._pack.pairs(MAP_KEYS_MAX)
        if fields is None:
            raise HttpRefused(400, "invalid_request", "Invalid command")
        return fields


@final
class _Open:
    """A map or list whose items are being converted."""

    def __init__(self, left: i64, *, is_map: bool) -> None:
        assert left >= 0
        self.left: i64 = left
        self.is_map: bool = is_map
        self.is_first: bool = True


@final
class JsonTask(Task):
    """Converts one MessagePack value to JSON."""

    def __init__(self, pieces: list[bytes]) -> None:
        super().__init__()
        self.is_reading = True
        # The remaining pieces, the next one last.
        self._unread: list[bytes] = pieces[::-1]
        self.size: i64 = sum([len(piece) for piece in pieces])
        self._data: bytes = b""
        self._at: i64 = 0
        self._open: list[_Open] = []
        self._out = BytesWriter()
        self._pieces: list[bytes] = []
        self._is_begun: bool = False

    def step(self, most: i64, now_ms: i64) -> i64:  # noqa: ARG002  it only reads
        """Convert some items."""
        done: i64 = 0
        while done < most:
            if not self._open:
                if self._is_begun:
                    break
                self._is_begun = True
                done += self._show_value()
                continue
            inner = self._open[len(self._open) - 1]
            if inner.left == 0:
                self._out.write(b"}" if inner.is_map else b"]")
                self._open.pop()
                continue
            inner.left -= 1
            if not inner.is_first:
                self._out.write(b",")
            inner.is_first = False
            if inner.is_map:
                done += self._show_whole()
                self._out.write(b":")
            done += self._show_value()
        return done

    def _show_value(self) -> i64:
        self._proceed()
        data = self._data
        at = self._at
        depth: i64 = len(self._open)
        kind = kind_of(data, at)
        # The items may be in later pieces.
        end = at + self.size
        if kind == KIND_MAP and depth < _MAP_DEPTH:
            count, self._at = map_header(data, at, end)
            self._open.append(_Open(count, is_map=True))
            self._out.write(b"{")
            return 1
        if kind == KIND_ARRAY and depth < _LIST_DEPTH:
            count, self._at = array_header(data, at, end)
            self._open.append(_Open(count, is_map=False))
            self._out.write(b"[")
            return 1
        return self._show_whole()

    def _proceed(self) -> None:
        """Start the next piece when the current one has been read."""
        if self._at == len(self._data):
            self._data = self._unread.pop()
            self._at = 0

    def _show_whole(self) -> i64:
        self._proceed()
        end = skip(self._data, self._at, len(self._data))
        size = end - self._at
        self._out.write(to_json(MSGPACK, self._data[self._at : end]))
        self._at = end
        if len(self._out) >= PIECE_SIZE:
            self._cut()
        return _PART_UNITS + size // _BYTES_PER_UNIT

    def _cut(self) -> None:
        self._pieces.append(self._out.getvalue())
        self._out = BytesWriter()

    def pieces(self) -> list[bytes]:
        """Return the JSON of the finished task."""
        self._cut()
        return self._pieces
