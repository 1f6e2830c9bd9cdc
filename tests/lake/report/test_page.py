"""The page is well formed, needs nothing else, and lets no text become markup."""

import base64
import datetime as dt
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from jobyard.client.errors import JobyardError
from jobyard.lake import open_lake
from jobyard.lake.report import report
from tests.lake.report.synthetic import START, Staging, make_gold, make_lake

NOW = START + dt.timedelta(days=9)
VOID = {"br", "col", "meta"}
SECTIONS = (
    *("throughput", "latency", "load", "failures"),
    *("slowest", "workers", "backlog", "objectives"),
)
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "\u202egnp.exe",
    "line\nbreak\r\n\x00\x1b[31m",
    "x" * 256,
    "תור",
    "&amp;<!-- ]]>",
)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


class Page(HTMLParser):
    """A page as a list of elements; refuses tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None], tuple[str, ...]]] = []
        self.texts: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.sections: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"{tag} has an attribute twice"
        attributes = dict(attrs)
        self.elements.append((tag, attributes, tuple(self.sections)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "section":
            self.sections.append(str(attributes.get("id")))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        raise AssertionError(f"<{tag}/> with {attrs} is no element of HTML")

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> without a beginning"
        assert self.open.pop() == tag, f"</{tag}> closes another"
        if tag == "section":
            self.sections.pop()

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes, _ in self.elements if name == tag]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("lakes")
    gold = make_gold(HOSTILE, 90, workers=4)
    letters = gold["dlq_reason_minute"]
    letters["error_message"] = ["<script>alert(2)</script>\n" * 40] * len(letters["queue"])
    lakes = {
        "days": make_lake(root / "days", [f"queue-{at}" for at in range(9)], 2880),
        "minute": make_lake(root / "minute", ["mails", "sms"], 1),
        "queue": make_lake(root / "queue", ["mails"], 200),
        "many": make_lake(root / "many", [f"tenant-{at:03}" for at in range(500)], 60),
        "hostile": Staging(root / "hostile").commit(gold),
        "empty": open_lake(root / "empty"),
    }
    return {
        name: report(lake, out=root / f"{name}.html", now=NOW).read_text()
        for name, lake in lakes.items()
    }


KINDS = ("days", "minute", "queue", "many", "hostile", "empty")


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_is_well_formed_and_ids_are_unique(pages: dict[str, str], kind: str) -> None:
    page = Page(pages[kind])
    assert pages[kind].startswith("<!DOCTYPE html>\n<html lang=")
    ids = [found for _, attributes, _ in page.elements if (found := attributes.get("id"))]
    assert len(ids) == len(set(ids))
    labels = {each for _, found, _ in page.elements if (each := found.get("aria-labelledby"))}
    links = {str(each["href"]) for each in page.all("a")}
    assert labels | {link.removeprefix("#") for link in links} <= set(ids)
    assert len(page.all("h1")) == len(page.all("main")) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_loaded_from_anywhere(pages: dict[str, str], kind: str) -> None:
    page = Page(pages[kind])
    for name, attributes, _ in page.elements:
        assert name not in {"link", "img", "iframe", "object", "embed", "base", "form", "use"}
        for key, value in attributes.items():
            assert key not in {"src", "srcset", "style", "data", "action"}
            assert not key.startswith("on")
            assert key != "href" or str(value).startswith("#")
    (style,) = [text for tag, text in page.texts if tag == "style"]
    assert not re.search(r"url\(|@import|https?:", style)
    outside = pages[kind].replace("http://yard:6790", "")
    assert "http://" not in outside
    assert "https://" not in outside


@pytest.mark.parametrize("kind", KINDS)
def test_the_policy_allows_this_style_and_this_script_alone(
    pages: dict[str, str], kind: str
) -> None:
    page = Page(pages[kind])
    (policy,) = [each["content"] for each in page.all("meta") if "http-equiv" in each]
    wanted = ["default-src 'none'", "base-uri 'none'", "form-action 'none'"]
    for tag in ("style", "script"):
        (text,) = [text for name, text in page.texts if name == tag]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        wanted.append(f"{tag}-src 'sha256-{digest}'")
    assert set(str(policy).split("; ")) == set(wanted)


def test_text_from_data_stays_text(pages: dict[str, str]) -> None:
    page = Page(pages["hostile"])
    assert len(page.all("script")) == 1
    assert not page.all("img")
    shown = {text for tag, text in page.texts if tag == "bdi"}
    assert "<script>alert(1)</script>" in shown
    assert "\\u202egnp.exe" in shown
    assert "line\\nbreak\\r\\n\\x00\\x1b[31m" in shown
    assert "x" * 256 in shown
    assert not set(pages["hostile"]) & set("\u202a\u202b\u202d\u202e\x00\x1b\r")


@pytest.mark.parametrize("kind", [each for each in KINDS if each != "empty"])
def test_every_section_has_a_heading_and_a_table(pages: dict[str, str], kind: str) -> None:
    page = Page(pages[kind])
    found = [str(each["id"]) for each in page.all("section")]
    assert found == list(SECTIONS)
    for section in SECTIONS:
        inside = [tag for tag, _, sections in page.elements if section in sections]
        assert inside.count("h2") == 1
        is_idle = section == "workers" and kind == "minute"
        assert is_idle or "table" in inside or section == "objectives"
    links = {str(each["href"]) for each in page.all("a")}
    assert {f"#{section}" for section in SECTIONS} <= links


@pytest.mark.parametrize("kind", [each for each in KINDS if each != "empty"])
def test_tables_are_real_and_can_be_reached(pages: dict[str, str], kind: str) -> None:
    page = Page(pages[kind])
    tables = len(page.all("table"))
    assert tables == len(page.all("caption")) == len(page.all("thead"))
    regions = [each for each in page.all("div") if each.get("class") == "scroll"]
    assert all(each["tabindex"] == "0" and each["aria-label"] for each in regions)
    assert all(each["scope"] in {"row", "col"} for each in page.all("th"))
    for text in pages[kind].split("<table")[1:]:
        rows = text.split("</table>")[0].split("<tr>")[1:]
        assert len({len(re.findall(r"<t[hd][ >]", row)) for row in rows}) == 1


@pytest.mark.parametrize("kind", [each for each in KINDS if each != "empty"])
def test_plots_stay_within_their_bounds(pages: dict[str, str], kind: str) -> None:
    page = Page(pages[kind])
    size = (0.0, 0.0)
    drawings = 0
    for tag, attributes, _ in page.elements:
        if tag == "svg":
            box = str(attributes.get("viewbox", ""))
            size = tuple(map(float, box.split()[2:])) if box else (0.0, 0.0)  # type: ignore[assignment]
            drawings += bool(box)
        elif tag == "path" and size[0]:
            x, y = ends(str(attributes["d"]))
            assert -0.01 <= x[0] <= x[1] <= size[0] + 0.1
            assert -0.01 <= y[0] <= y[1] <= size[1] + 0.1
        elif tag == "rect" and size[0]:
            right = float(attributes.get("x") or 0) + float(attributes["width"] or 0)
            assert right <= size[0] + 0.2
    assert drawings >= 6
    assert "nan" not in " ".join(str(each.get("d")) for each in page.all("path")).lower()


def ends(path: str) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the least and greatest x and y of a path of M, L, H, V, h0 and Z."""
    x, y = [], []
    for command, rest in re.findall(r"([MLHVhZ])([^MLHVhZ]*)", path):
        numbers = [float(each) for each in NUMBER.findall(rest)]
        if command in "ML":
            x += numbers[::2]
            y += numbers[1::2]
        elif command == "H":
            x += numbers
        elif command == "V":
            y += numbers
        else:
            assert numbers in ([], [0.0])
    return (min(x), max(x)), (min(y), max(y))


@pytest.mark.parametrize("kind", [each for each in KINDS if each != "empty"])
def test_every_plot_says_in_words_what_it_shows(pages: dict[str, str], kind: str) -> None:
    page = Page(pages[kind])
    charts = [each for each in page.all("div") if each.get("class") == "chart"]
    assert len(charts) >= 6
    assert all(each["role"] == "img" and len(str(each["aria-label"])) > 40 for each in charts)
    hidden = [each for each in page.all("svg") if each.get("aria-hidden") == "true"]
    assert len(hidden) + len(charts) >= len(page.all("svg"))


def test_pages_are_small(pages: dict[str, str]) -> None:
    sizes = {kind: len(text.encode()) for kind, text in pages.items()}
    assert sizes["empty"] < 20_000
    assert sizes["minute"] < 100_000
    assert sizes["days"] < 1_000_000
    assert sizes["many"] < 3_000_000


def test_five_hundred_queues_are_all_there_and_most_lie_in_details(pages: dict[str, str]) -> None:
    text = pages["many"]
    section = text[text.index('id="throughput"') : text.index('id="latency"')]
    assert all(f"tenant-{at:03}" in section for at in range(500))
    first = section[: section.index("<details")]
    assert len(re.findall(r'<tr><th scope="row" class="name"', first)) == 12
    assert "494 other queues" in section
    assert "data-search" in section


def test_an_empty_lake_says_what_to_do_next(pages: dict[str, str]) -> None:
    assert "jobyard pipeline run --url" in pages["empty"]


def test_without_rows_since_a_time_it_says_so(tmp_path: Path) -> None:
    lake = make_lake(tmp_path / "lake", ["mails"], 5)
    out = report(lake, since=dt.timedelta(hours=1), out=tmp_path / "report.html", now=NOW)
    text = out.read_text()
    assert "Nothing happened since 2026-11-17 23:00" in text
    assert "2026-11-09 00:04" in text


def test_the_same_lake_gives_the_same_page(tmp_path: Path) -> None:
    lake = make_lake(tmp_path / "lake", ["mails", "sms"], 40)
    out = tmp_path / "report.html"
    texts = {report(lake, out=out, now=NOW).read_bytes() for _ in range(2)}
    assert len(texts) == 1
    assert {each.name for each in tmp_path.iterdir()} == {"lake", "report.html"}


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    lake = make_lake(tmp_path / "lake", ["mails"], 2)
    for out in (tmp_path, tmp_path / "none" / "report.html", Path("/proc/report.html")):
        with pytest.raises(JobyardError) as error:
            report(lake, out=out, now=NOW)
        assert (error.value.code, error.value.option) == ("bad_option", "out")


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, as WCAG 2 defines it."""
    lights = []
    for colour in (one, other):
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        )
        lights.append(0.2126 * red + 0.7152 * green + 0.0722 * blue)
    return (max(lights) + 0.05) / (min(lights) + 0.05)


def test_text_and_lines_have_enough_contrast_in_both_themes(pages: dict[str, str]) -> None:
    style = pages["empty"].split("<style>")[1].split("</style>")[0]
    themes = re.findall(r":root\{([^}]*)\}", style)[:2]
    assert len(themes) == 2
    for theme in themes:
        colours = dict(re.findall(r"--(\w+):(#[0-9a-f]{6})", theme))
        for ground in ("page", "sheet"):
            for text in ("ink", "soft", "accent", "bad"):
                assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
        for line in (f"s{at}" for at in range(1, 8)):
            assert contrast(colours[line], colours["sheet"]) >= 3, line
