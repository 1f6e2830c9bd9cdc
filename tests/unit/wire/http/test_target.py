from urllib.parse import parse_qsl, quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobyard.wire.http.request import parse_query, split_path


@pytest.mark.parametrize(
    ("path", "segments"),
    [
        ("/", [""]),
        ("/a", ["a"]),
        ("/a/b", ["a", "b"]),
        ("/a/", ["a", ""]),
        ("//a", ["", "a"]),
        ("/a%2Fb/c", ["a/b", "c"]),
        ("/%c3%A9", ["é"]),
        ("/%25%32%35", ["%25"]),
        ("/a+b", ["a+b"]),
        ("/%00", ["\0"]),
        ("/../%2e%2e", ["..", ".."]),
    ],
)
def test_segments(path: str, segments: list[str]) -> None:
    assert split_path(path) == segments


@pytest.mark.parametrize(
    "path",
    ["/%", "/a%", "/%4", "/%4/a", "/%zz", "/%4g", "/%g4", "/%%41", "/%ff", "/%c3", "/a/%ed%a0%80"],
)
def test_segments_that_are_no_text(path: str) -> None:
    assert split_path(path) is None


@given(st.lists(st.text(), min_size=1))
def test_any_segments_come_back(segments: list[str]) -> None:
    path = "/" + "/".join(quote(each, safe="") for each in segments)
    assert split_path(path) == segments


@pytest.mark.parametrize(
    ("query", "parameters"),
    [
        ("", {}),
        ("&&", {}),
        ("a=b", {"a": "b"}),
        ("a=b&a=c", {"a": "c"}),
        ("a&b=&=c", {"a": "", "b": "", "": "c"}),
        ("a=b=c", {"a": "b=c"}),
        ("a+b=c+d%2B", {"a b": "c d+"}),
        ("a=%zz%4%", {"a": "%zz%4%"}),
        ("a=%%41", {"a": "%A"}),
        ("a=%41%", {"a": "A%"}),
        ("%61=%C3%A9", {"a": "é"}),
        ("a=%ff", {"a": "\ufffd"}),
        ("a=b;c=d", {"a": "b;c=d"}),
    ],
)
def test_queries(query: str, parameters: dict[str, str]) -> None:
    assert parse_query(query) == parameters


@given(st.text("ab%4Fg+&=é", max_size=20).map(lambda text: text.replace("é", "%C3%A9")))
def test_queries_are_read_as_the_standard_library_reads_them(query: str) -> None:
    assert parse_query(query) == dict(parse_qsl(query, keep_blank_values=True))
