"""The summary is about twenty lines of at most 80 columns, with colours only if asked."""

import datetime as dt
import unicodedata
from pathlib import Path

import pytest

from jobyard.lake import open_lake
from jobyard.lake.report import summary
from tests.lake.report.synthetic import START, Staging, make_gold, make_lake

NOW = START + dt.timedelta(days=9)


def width(line: str) -> int:
    wide = sum(unicodedata.east_asian_width(each) in "WF" for each in line)
    return len(line) + wide - sum(bool(unicodedata.combining(each)) for each in line)


@pytest.mark.parametrize(("queues", "minutes"), [(1, 1), (1, 90), (9, 1600), (40, 10)])
def test_it_fits_a_terminal(tmp_path: Path, queues: int, minutes: int) -> None:
    lake = make_lake(tmp_path / "lake", [f"queue-{at}" for at in range(queues)], minutes)
    text = summary(lake, now=NOW)
    lines = text.splitlines()
    assert 8 <= len(lines) <= 24
    assert max(width(line) for line in lines) <= 80
    assert "\x1b" not in text
    assert "nan" not in text
    for word in ("enqueued", "completed", "wait", "run", "backlog", "queue-0"):
        assert word in text


def test_columns_are_aligned(tmp_path: Path) -> None:
    names = ["mails", "a" * 200, "日本語の列" * 9, "תור", "e\u0301" * 30]
    lines = summary(make_lake(tmp_path / "lake", names, 90), now=NOW).splitlines()
    begin = next(at for at, line in enumerate(lines) if line.startswith("queue "))
    assert {width(line) for line in lines[begin : begin + 6]} == {76}


def test_names_cannot_steer_the_terminal(tmp_path: Path) -> None:
    gold = make_gold(["\x1b[2J\nx", "\u202eevil"], 60)
    text = summary(Staging(tmp_path / "lake").commit(gold), now=NOW)
    assert "\\x1b[2J\\nx" in text
    assert not set(text) & set("\x1b\u202e")


def test_colours_change_nothing_else(tmp_path: Path) -> None:
    lake = make_lake(tmp_path / "lake", ["mails", "sms"], 600)
    plain, coloured = (summary(lake, now=NOW, colours=each) for each in (False, True))
    assert coloured != plain
    for mark in ("\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m"):
        coloured = coloured.replace(mark, "")
    assert coloured == plain


def test_an_empty_lake_says_what_to_do_next(tmp_path: Path) -> None:
    text = summary(open_lake(tmp_path / "lake"), now=NOW)
    assert text.splitlines()[0] == "This lake is empty."
    assert "jobyard pipeline run" in text
