import io
import json
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobyard.server.log import LOG_LEVELS, Log, json_line, printable, text_line

NOON_S = 1_740_830_462.345  # 2025-03-01T12:01:02.345Z


@pytest.fixture
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


class Clock:
    def __init__(self) -> None:
        self.now_s = NOON_S

    def __call__(self) -> float:
        return self.now_s


class Reader:
    """A log and what it wrote."""

    def __init__(self, level: str = "info", form: str = "text") -> None:
        self.stream = io.StringIO()
        self.clock = Clock()
        self.log = Log(level, form, self.stream, self.clock)

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()


@pytest.mark.usefixtures("_utc")
def test_a_text_line_is_time_level_and_sentence() -> None:
    reader = Reader()
    reader.log.info("recovered 3 jobs", files=2, path="/a/b")
    assert reader.stream.getvalue() == "12:01:02 info  recovered 3 jobs  files=2  path=/a/b\n"


@pytest.mark.usefixtures("_utc")
def test_text_lines_align_whatever_the_level() -> None:
    reader = Reader("debug")
    for word in LOG_LEVELS:
        getattr(reader.log, word)("x")
    assert reader.lines == [
        "12:01:02 debug x",
        "12:01:02 info  x",
        "12:01:02 warn  x",
        "12:01:02 error x",
    ]


def test_text_times_are_local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "EST5")
    time.tzset()
    try:
        assert text_line(NOON_S, "info", "x", {}).startswith("07:01:02 ")
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_json_line_is_one_object_in_utc() -> None:
    reader = Reader(form="json")
    reader.log.warning("disk is nearly full", free=12, share=0.5, ok=False, path=None)
    assert reader.stream.getvalue() == (
        '{"time":"2025-03-01T12:01:02.345Z","level":"warning","message":"disk is nearly full",'
        '"free":12,"share":0.5,"ok":false,"path":null}\n'
    )


def test_a_field_may_not_pose_as_the_level() -> None:
    with pytest.raises(AssertionError, match="hide"):
        json_line(NOON_S, "info", "x", {"level": "error"})


@pytest.mark.parametrize("least", LOG_LEVELS)
def test_only_the_level_asked_for_and_above_is_written(least: str) -> None:
    reader = Reader(least)
    for word in LOG_LEVELS:
        getattr(reader.log, word)(word)
    assert [line.split()[-1] for line in reader.lines] == list(
        LOG_LEVELS[LOG_LEVELS.index(least) :]
    )


def test_a_level_nobody_knows_is_our_mistake() -> None:
    with pytest.raises(AssertionError, match="loud"):
        Log("loud")


def test_control_characters_cannot_forge_a_line_or_colour_a_terminal() -> None:
    reader = Reader()
    reader.log.info("a\r\nb\x1b[31m", tube="x\ny")
    line = reader.stream.getvalue()
    assert line.count("\n") == 1
    assert r"a\r\nb\x1b[31m" in line
    assert r'tube="x\ny"' in line


def test_a_value_with_spaces_or_quotes_is_quoted() -> None:
    line = text_line(NOON_S, "info", "x", {"a": "b c", "d": 'e"f', "g": "", "h": "i=j"})
    assert line.endswith('x  a="b c"  d="e\\"f"  g=""  h="i=j"\n')


@given(st.text(), st.text())
def test_any_text_stays_on_one_printable_line(message: str, value: str) -> None:
    line = text_line(NOON_S, "info", message, {"field": value})
    assert line.endswith("\n")
    assert line[:-1].isprintable()


@given(st.text(), st.text())
def test_any_json_line_is_ascii_and_comes_back_whole(message: str, value: str) -> None:
    line = json_line(NOON_S, "info", message, {"field": value})
    assert line[:-1].isascii()
    assert line[:-1].isprintable()
    entry = json.loads(line)
    assert (entry["message"], entry["field"]) == (message, value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é ツ", "plain é ツ"),
        ("\x00\x7f\x85", r"\x00\x7f\x85"),
        ("\u2028\u202e", r"\u2028\u202e"),
        ("\udcff", r"\udcff"),
    ],
)
def test_only_what_a_terminal_acts_upon_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_repeated_warnings_come_once_a_second_with_the_number_left_out() -> None:
    reader = Reader()
    for _ in range(5):
        reader.log.warn_repeated("fds", "no descriptors left")
        reader.clock.now_s += 0.1
    assert len(reader.lines) == 1
    reader.clock.now_s += 1
    reader.log.warn_repeated("fds", "no descriptors left")
    assert len(reader.lines) == 2
    assert reader.lines[1].endswith("no descriptors left  left_out=4")
    reader.clock.now_s += 1
    reader.log.warn_repeated("fds", "no descriptors left")
    assert "left_out" not in reader.lines[2]


def test_one_repeated_warning_does_not_hide_another() -> None:
    reader = Reader()
    reader.log.warn_repeated("fds", "one")
    reader.log.warn_repeated("disk", "two")
    assert len(reader.lines) == 2


def test_a_clock_set_back_does_not_silence_a_warning() -> None:
    reader = Reader()
    reader.log.warn_repeated("fds", "one")
    reader.clock.now_s -= 3600
    reader.log.warn_repeated("fds", "two")
    assert len(reader.lines) == 2


def test_keys_of_repeated_warnings_are_bounded() -> None:
    reader = Reader()
    for number in range(10_000):
        reader.log.warn_repeated(str(number), "x")
    assert len(reader.log._repeats) <= 256


class BrokenPipe(io.StringIO):
    def write(self, _text: str) -> int:
        raise BrokenPipeError


def test_a_log_nobody_reads_does_not_stop_the_server() -> None:
    Log(stream=BrokenPipe()).error("x")
    closed = io.StringIO()
    closed.close()
    Log(stream=closed).error("x")
