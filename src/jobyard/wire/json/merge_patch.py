"""JSON merge patches (RFC 7396), applied to text: what a patch does not name is copied unchanged.

A target is read once, from its beginning to its end, whatever the patch is. A patch is nested at
most PATCH_DEPTH_MAX deep, which bounds the recursion here; a target may be nested as deep as any
JSON. Of equal keys in a target the last one is patched and those before it are dropped; keys are
compared by their decoded text. Knows neither jobs nor logs.
"""

from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from jobyard.errors import Refused
from jobyard.wire.json.read import is_json, read_object, text_of
from jobyard.wire.json.scan import (
    JSON_DEPTH_MAX,
    end_of,
    skip_blanks,
    string_end,
    value_start,
)
from jobyard.wire.json.write import write_text

PATCH_DEPTH_MAX: Final = 32
_BRACE: Final = 0x7B
_END: Final = 0x7D
_COMMA: Final = 0x2C
_NULL: Final = b"null"


class BadPatch(Refused):
    """The patch has a duplicate key, or is nested too deep."""


@final
class MergePatch:
    """What a patch says of one value: its fields change, or another value takes its place."""

    def __init__(self, name: bytes, text: bytes) -> None:
        # The key of the value as JSON text, empty for the outermost one.
        self.name: bytes = name
        # What takes its place; if the patch is an object, what becomes of anything but an object.
        self.text: bytes = text
        self.is_object: bool = False
        # Whether it removes a field.
        self.is_removal: bool = False
        # By decoded key, in their order.
        self.fields: dict[bytes, MergePatch] = {}

    def applied(self, target: bytes) -> bytes | None:
        """Return the patched text; None if the target is not JSON."""
        if not is_json(target):
            return None
        end: i64 = len(target)
        out = BytesWriter()
        _merge(self, target, skip_blanks(target, 0, end), end, out)
        return out.getvalue()


def read_patch(data: bytes, start: i64, end: i64) -> MergePatch:
    """Read a patch that is well-formed JSON; BadPatch if it cannot be one."""
    return _read(b"", data, start, end, 1)


def _read(name: bytes, data: bytes, start: i64, end: i64, depth: i64) -> MergePatch:
    if data[start] != _BRACE:
        leaf = MergePatch(name, data[start:end])
        leaf.is_removal = leaf.text == _NULL
        return leaf
    if depth > PATCH_DEPTH_MAX:
        raise BadPatch(f"patch is nested deeper than {PATCH_DEPTH_MAX}")
    fields = read_object(data, start, end)
    assert fields is not None
    if fields.has_twins():
        raise BadPatch("patch has a duplicate key")
    patch = MergePatch(name, b"")
    patch.is_object = True
    for key in fields.keys():  # noqa: SIM118  not a dict
        decoded = key.encode()
        first, last = fields.find(decoded)
        out = BytesWriter()
        write_text(out, key)
        patch.fields[decoded] = _read(out.getvalue(), data, first, last, depth + 1)
    patch.text = b"{" + b",".join(_added(patch, frozenset())) + b"}"
    return patch


def _added(patch: MergePatch, before: frozenset[bytes]) -> list[bytes]:
    """Return the fields that a patch adds to an object that has only those of `before`."""
    return [
        one.name + b":" + one.text
        for key, one in patch.fields.items()
        if key not in before and not one.is_removal
    ]


def _merge(patch: MergePatch, data: bytes, at: i64, end: i64, out: BytesWriter) -> i64:
    """Write the patched form of the well-formed value at `at`; return where that ends."""
    if not patch.is_object or data[at] != _BRACE:
        out.write(patch.text)
        return end_of(data, at, end, JSON_DEPTH_MAX)
    pieces: list[bytes] = []
    # Where in `pieces` the patched fields are.
    places: dict[bytes, int] = {}
    # Where the fields begin and end that are copied together; -1: there are none.
    run: i64 = -1
    run_end: i64 = -1
    at = skip_blanks(data, at + 1, end)
    while data[at] != _END:
        key = at
        value = value_start(data, key, end, _END)
        name_end = string_end(data, key + 1, end)
        decoded = _decoded(data[key + 1 : name_end - 1])
        one = patch.fields.get(decoded)
        if one is None:
            value_end = end_of(data, value, end, JSON_DEPTH_MAX)
            run = key if run < 0 else run
            run_end = value_end
        else:
            if run >= 0:
                pieces.append(data[run:run_end])
                run = -1
            piece = BytesWriter()
            piece.write(data[key:name_end])
            piece.write(b":")
            value_end = _merge(one, data, value, end, piece)
            if decoded in places:
                pieces[places[decoded]] = b""
            places[decoded] = len(pieces)
            pieces.append(b"" if one.is_removal else piece.getvalue())
        at = skip_blanks(data, value_end, end)
        if data[at] == _COMMA:
            at = skip_blanks(data, at + 1, end)
    if run >= 0:
        pieces.append(data[run:run_end])
    pieces += _added(patch, frozenset(places))
    out.write(b"{")
    out.write(b",".join([piece for piece in pieces if piece]))
    out.write(b"}")
    return at + 1


def _decoded(name: bytes) -> bytes:
    return name if b"\\" not in name else text_of(name).encode()
