"""HTML and SVG as values: everything that is not `Html` is escaped where it enters a tag.

So text from data cannot become markup, whatever a later change does. Control characters are made
visible, and those that turn the direction of text are spelled out.
"""

import html
import re
from typing import Final, final

# Tags without an end.
_VOID: Final = frozenset({"br", "col", "meta"})
_UNSEEN: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2028\u2029\u2060-\u206f\ufeff\ufffe\uffff]"
)
# So much of a text is shown; names have at most 256 bytes, messages may have more.
TEXT_MAX: Final = 600
# A name in text that cannot have tags: its direction does not leave it.
_ISOLATE: Final = ("\N{FIRST STRONG ISOLATE}", "\N{POP DIRECTIONAL ISOLATE}")

Attribute = str | int | bool


@final
class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def tag(name: str, /, *children: str | None, **attributes: Attribute | None) -> Html:
    """Return an element; `class_` is `class`, other underscores are hyphens, None is left out."""
    parts = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        word = "class" if key == "class_" else key.replace("_", "-")
        parts.append(word if value is True else f'{word}="{html.escape(str(value))}"')
    begin = f"<{' '.join(parts)}>"
    if name in _VOID:
        return Html(begin)
    return Html(f"{begin}{join(*children)}</{name}>")


def join(*children: str | None) -> Html:
    """Return children one after the other, escaped if they are no markup."""
    return Html(
        "".join(
            each if isinstance(each, Html) else html.escape(each)
            for each in children
            if each is not None
        )
    )


def clean(text: str) -> str:
    """Return text from data, bounded, with every character visible and none that acts."""
    shown = text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"
    return _UNSEEN.sub(_visible, shown)


def name_of(text: str, *, kind: str = "name") -> Html:
    """Return a name from data as an element that keeps its direction to itself."""
    shown = clean(text) or "(none)"
    return tag("bdi", shown, class_=kind, title=shown if len(shown) > 24 else None)


def isolated(text: str, size_max: int = 60) -> str:
    """Return a name from data for a place without elements, such as the title of a shape."""
    shown = clean(text) or "(none)"
    shown = shown if len(shown) <= size_max else shown[: size_max - 1] + "…"
    return f"{_ISOLATE[0]}{shown}{_ISOLATE[1]}"


def _visible(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code in {9, 10, 13}:
        return {9: "\\t", 10: "\\n", 13: "\\r"}[code]
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
