import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobyard.wire.glob import is_match, literal_start

PATTERNS = st.text("ab*?", max_size=8)


@given(PATTERNS, st.text("ab", max_size=8))
def test_stars_and_question_marks(pattern: str, text: str) -> None:
    assert is_match(pattern.encode(), text.encode()) == fnmatch.fnmatchcase(text, pattern)


@pytest.mark.parametrize(
    ("pattern", "text", "answer"),
    [
        (b"h[ae]llo", b"hallo", True),
        (b"h[^e]llo", b"hello", False),
        (b"h[^e]llo", b"hallo", True),
        (b"h[a-c]llo", b"hbllo", True),
        (b"h[c-a]llo", b"hbllo", True),
        (b"h[a-c]llo", b"hdllo", False),
        (b"h\\*llo", b"h*llo", True),
        (b"h\\*llo", b"hello", False),
        (b"[\\]]", b"]", True),
        (b"h[ab", b"ha", True),
        (b"glide:{q}:w:*", b"glide:{q}:w:1", True),
        (b"\\", b"\\", True),
        (b"", b"", True),
        (b"", b"a", False),
    ],
)
def test_classes_and_escapes(pattern: bytes, text: bytes, *, answer: bool) -> None:
    assert is_match(pattern, text) is answer


def test_many_stars_do_not_take_long() -> None:
    assert not is_match(b"*a" * 50 + b"b", b"a" * 10_000)


def test_the_start_of_a_pattern() -> None:
    assert literal_start(b"glide:{q}:w:*") == b"glide:{q}:w:"
    assert literal_start(b"glide") == b"glide"
    assert literal_start(b"?") == b""
