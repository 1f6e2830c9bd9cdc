"""The transcript language itself: what it reads, what it refuses, and that a wrong answer fails."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.transcripts.play import Mismatch, play
from tests.support.transcripts.text import Pattern, TranscriptError, Values, to_send
from tests.support.transcripts.transcript import Case, parse

Answer = Callable[[bytes], bytes]


class ScriptedPeer:
    """A connection without a server: a function answers every send."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._unread = b""
        self.has_ended = False

    def send(self, data: bytes) -> None:
        self._unread += self._answer(data)

    def read_line(self) -> bytes:
        line, end, self._unread = self._unread.partition(b"\r\n")
        if not end:
            raise Mismatch("no answer")
        return line + end

    def read(self, size: int) -> bytes:
        data, self._unread = self._unread[:size], self._unread[size:]
        return data

    def take_unread(self) -> bytes:
        return self.read(len(self._unread))

    def await_end(self) -> bytes:
        if not self.has_ended:
            raise Mismatch("still open")
        return self.take_unread()

    def shut_down(self) -> None:
        self.has_ended = True

    def close(self) -> None:
        self.has_ended = True

    reset = close


class ScriptedStage:
    is_quoting = True

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def connect(self) -> ScriptedPeer:
        return ScriptedPeer(self._answer)

    def tick(self, ms: int) -> None:
        raise AssertionError(f"no clock here to move by {ms} ms")

    def drain(self) -> None:
        raise AssertionError("nothing here to drain")


def read(tmp_path: Path, text: str) -> list[Case]:
    path = tmp_path / "case.txt"
    path.write_text(text, encoding="utf-8")
    return parse(path)


def perform(tmp_path: Path, steps: str, answer: bytes) -> None:
    play(read(tmp_path, f"== case\n{steps}")[0], ScriptedStage(lambda _: answer))


@pytest.mark.parametrize(
    "steps",
    [
        "A> x\nA< PONG",
        "A> x\nA< {n}",
        "A> x\nA<| PING\\r\\nx",
        "A> x\nA is silent",
        "A> x\nA is closed",
        "A> x\nA<ok having\n  - a",
        "A> x",
        "A> x\nA< PING\nA< PING",
        "A shuts down\nA> x\nA is closed",
    ],
)
def test_a_wrong_answer_fails(tmp_path: Path, steps: str) -> None:
    with pytest.raises(Mismatch):
        perform(tmp_path, steps, b"PING\r\n")


@pytest.mark.parametrize(
    "steps",
    [
        "A> x\nA< PING",
        "A> x\nA< {w:word}\nA> y\nA< {w}",
        "A> x\nA<| PING\\r\\n",
        "A is silent\nA> x\nA< PING\nA is silent",
    ],
)
def test_a_right_answer_passes(tmp_path: Path, steps: str) -> None:
    perform(tmp_path, steps, b"PING\r\n")


LIST = b"OK 12\r\n---\n- a\n- b\n\r\n"


@pytest.mark.parametrize("lines", ["exactly\n  - a\n  - b", "having\n  - a", "having\n  - b"])
def test_a_right_document_passes(tmp_path: Path, lines: str) -> None:
    perform(tmp_path, f"A> x\nA<ok {lines}", LIST)


@pytest.mark.parametrize(
    "lines",
    ["exactly\n  - a", "exactly\n  - b\n  - a", "having\n  - b\n  - a", "having\n  - c"],
)
def test_a_wrong_document_fails(tmp_path: Path, lines: str) -> None:
    with pytest.raises(Mismatch):
        perform(tmp_path, f"A> x\nA<ok {lines}", LIST)


@pytest.mark.parametrize(
    "answer",
    [b"OK 11\r\n---\n- a\n- b\n\r\n", b"OK 8\r\n- a\n- b\n\r\n", b"NO 12\r\n", b"OK x\r\n"],
)
def test_a_document_in_another_form_fails(tmp_path: Path, answer: bytes) -> None:
    with pytest.raises(Mismatch):
        perform(tmp_path, "A> x\nA<ok exactly\n  - a\n  - b", answer)


def test_a_mismatch_names_its_line(tmp_path: Path) -> None:
    with pytest.raises(Mismatch, match=r"case\.txt:3: expected 'PONG', A was sent b'PING"):
        perform(tmp_path, "A> x\nA< PONG", b"PING\r\n")


@pytest.mark.parametrize(
    "text",
    [
        "A> step before any case",
        "== c\nA> trailing space ",
        "== c\nwhat is this",
        "== c\nonly: jobyard",
        "== c\nA> x\nfresh: too late",
        "== c\n  - not after an ok",
        "== c\nA> bad \\q escape\nB> {",
        "== c\nA> x\n== c\nA> x",
        "== c\ntick 5s",
    ],
)
def test_an_unreadable_transcript_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(TranscriptError):
        read(tmp_path, text)


def test_tags_of_the_file_hold_for_every_case(tmp_path: Path) -> None:
    first, second = read(
        tmp_path,
        "fresh: why\n== one\nA> x\n== two\nexcept: 1.12 -- older\nserver: max-job-size=5\nA> x",
    )
    assert first.is_fresh
    assert second.is_fresh
    assert first.why_not("1.12") is None
    assert second.why_not("1.12") == "older"
    assert second.why_not("jobyard") is None
    assert second.settings == {"max-job-size": "5"}


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("a\\r\\n\\t\\0\\s\\\\\\x7f", b"a\r\n\t\0 \\\x7f"),
        ("{ab*3}{\\0*2}", b"ababab\0\0"),
        ("{n} {n+2}", b"7 9"),
        ('{"x"}{"y"*2}', b'"x""yy"'),
    ],
)
def test_text_to_send(text: str, sent: bytes) -> None:
    assert to_send(text, Values({"n": b"7"})) == sent


def test_text_without_a_value_is_not_sent() -> None:
    for text in ("{unknown}", "{unknown+1}", "{1..2}", "{:word}"):
        with pytest.raises(TranscriptError):
            to_send(text, Values())


@pytest.mark.parametrize(
    ("pattern", "data", "is_match"),
    [
        ("{1..5}", b"5", True),
        ("{1..5}", b"6", False),
        ("{1..5}", b"x", False),
        ("{later>n}", b"8", True),
        ("{later>n}", b"7", False),
        ("{n}", b"7", True),
        ("{n}", b"8", False),
        ("{fresh}", b"123", True),
        ("{fresh}", b"-1", False),
        ("{:hex}", b"0123456789abcdef", True),
        ("{:hex}", b"0123456789abcde", False),
        ("{:hexword}", b"0123456789abcdef", True),
        ("{:hexword}", b"01234567890e1234", False),
        ("{:seconds}", b"0.000001", True),
        ("{:seconds}", b"0.1", False),
        ("a.c", b"abc", False),
    ],
)
def test_patterns(pattern: str, data: bytes, *, is_match: bool) -> None:
    assert Pattern(pattern, Values({"n": b"7"})).matches(data) is is_match


def test_a_pattern_that_fails_keeps_nothing() -> None:
    values = Values()
    assert not Pattern("{a} {1..2}", values).matches(b"5 3")
    assert values.kept == {}


def test_the_layout_of_1_12_does_not_quote() -> None:
    assert to_send('{"x"}', Values(is_quoting=False)) == b"x"
