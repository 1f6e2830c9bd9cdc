"""Tables under plots: the first rows are seen, the others lie in an element that opens.

Both parts are real tables with the same columns and widths. Wide tables scroll by themselves and
can be reached with the keyboard.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from jobyard.lake.report import units
from jobyard.lake.report.page.markup import Html, tag

_FIRST: Final = 6
# From so many rows on a script offers to search.
_SEARCHED_MIN: Final = 24

Cell = str | Html


class Heading(NamedTuple):
    """A column; kinds are `name`, `num`, `small`, `time`, `text`, `wide`, `draw`."""

    title: str
    kind: str = "num"


def table(
    caption: str, columns: Sequence[Heading], rows: Sequence[Sequence[Cell]], first: int = _FIRST
) -> Html:
    """Return a table; the first cell of a row is its head."""
    # One or two rows more are not worth a click.
    first = len(rows) if len(rows) <= first + 2 else first
    parts = [_part(caption, columns, rows[:first])]
    if rest := rows[first:]:
        parts.append(
            tag(
                "details",
                tag("summary", f"{units.plural(len(rest), 'more row')}"),
                _part(f"{caption}, continued", columns, rest),
                data_search="" if len(rest) >= _SEARCHED_MIN else None,
            )
        )
    return tag("div", *parts, class_="tables")


def _width_class(columns: Sequence[Heading]) -> str:
    """Return the class that says below which width a table scrolls."""
    is_roomy = any(each.kind == "wide" for each in columns)
    return "roomy" if is_roomy else f"of{min(len(columns), 12)}"


def _part(caption: str, columns: Sequence[Heading], rows: Sequence[Sequence[Cell]]) -> Html:
    heads = [tag("th", each.title, scope="col", class_=each.kind) for each in columns]
    body = [
        tag(
            "tr",
            *(
                tag("td" if at else "th", cell, scope=None if at else "row", class_=column.kind)
                for at, (column, cell) in enumerate(zip(columns, row, strict=True))
            ),
        )
        for row in rows
    ]
    widths = tag("colgroup", *(tag("col", class_=each.kind) for each in columns))
    grid = tag(
        "table",
        tag("caption", caption),
        widths,
        tag("thead", tag("tr", *heads)),
        tag("tbody", *body),
        class_=_width_class(columns),
    )
    return tag("div", grid, class_="scroll", tabindex="0", role="region", aria_label=caption)
