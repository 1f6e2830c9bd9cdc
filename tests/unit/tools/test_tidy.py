"""House rules: each finds its violations, and the repository has none."""

from pathlib import Path

import pytest

from tools import tidy

CHARTER = '"""Holds what this test needs, knows nothing else, and keeps its word."""\n'
CATCH_ALL = "try:\n    a()\nexcept BaseException as e:  # noqa: BLE001\n    b(e)\n"
CATCH_ALL_WITH_REASON = CATCH_ALL.replace("BLE001", "BLE001  asyncio would log it and go on")


def rules_broken(path: str, text: str) -> list[str]:
    return [finding.rule for finding in tidy.judge(tidy.source_of(path, text))]


def test_the_repository_is_tidy() -> None:
    assert tidy.report(tidy.ROOT) == []


def test_the_repository_is_read_at_all() -> None:
    paths = {source.path for source in tidy.read(tidy.ROOT)}
    assert {"tools/tidy.py", "src/jobyard/build.py", "Makefile", ".ci/run"} <= paths
    assert not any(path.startswith((".venv", ".git/", "build/")) for path in paths)


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [
        ("charter", "src/jobyard/a.py", "A = 1\n"),
        ("charter", "src/jobyard/a.py", '"""Short."""\n' + "A = 1\n" * 30),
        ("unfinished", "src/jobyard/a.py", CHARTER + "A = 1  # TO" + "DO: later\n"),
        ("unfinished", "docs/a.md", "FIX" + "ME\n"),
        ("machine-path", "docs/a.md", "look into /ho" + "me/ann/queue\n"),
        ("quaint", "docs/a.md", "Whoever waits is served.\n"),
        ("quaint", "src/jobyard/a.py", CHARTER + "A = 1  # the shelves of a queue\n"),
        ("whitespace", "docs/a.md", "blanks  \n"),
        ("whitespace", "docs/a.md", "no end"),
        ("sleep", "tests/test_a.py", "import time\ntime.sleep(1)\n"),
        ("sleep", "tests/test_a.py", "from time import sleep\nsleep(1)\n"),
        ("broad-except", "tests/test_a.py", "try:\n    a()\nexcept:\n    b()\n"),
        ("broad-except", "tests/test_a.py", "try:\n    a()\nexcept Exception:\n    b()\n"),
        ("broad-except", "tests/a.py", "try:\n    a()\nexcept (A, BaseException):\n    b()\n"),
        ("broad-except", "tests/a.py", "with contextlib.suppress(Exception):\n    a()\n"),
        ("broad-except", "src/jobyard/server/a.py", CHARTER + CATCH_ALL),
        ("broad-except", "src/jobyard/engine/a.py", CHARTER + CATCH_ALL_WITH_REASON),
        ("unsafe", "tests/a.py", "import pickle\n"),
        ("unsafe", "tests/a.py", "from marshal import loads\n"),
        ("unsafe", "tests/a.py", "ev" + "al('1')\n"),
        ("empty-name", "tests/a.py", "class QueueManager:\n    pass\n"),
        ("empty-name", "tests/helpers.py", "A = 1\n"),
        ("old-word", "tests/test_a.py", "def test_a_lane_is_closed():\n    pass\n"),
        ("old-word", "tests/test_a.py", "def mould_of(a):\n    return a\n"),
        ("unchecked-type", "src/jobyard/wire/a.py", CHARTER + "A = 1  # type: ignore[misc]\n"),
    ],
)
def test_a_breach_is_found(rule: str, path: str, text: str) -> None:
    assert rules_broken(path, text) == [rule]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("src/jobyard/a.py", CHARTER + "A = 1\n" * 30),
        ("src/jobyard/a.py", '"""Short."""\nA = 1\n'),
        ("src/jobyard/empty/__init__.py", ""),
        ("tests/test_a.py", "A = 1\n"),
        ("src/jobyard/a.py", CHARTER + "A = 1  # TO" + "DO(#12): later\n"),
        ("docs/a.md", "The client that waits is served; nothing was put on a bookshelf.\n"),
        ("tests/transcripts/a.txt", "put 0 0 1 1 \nno end"),
        ("docs/a.md", "see https://example.org/home/page and ./work/here\n"),
        ("src/jobyard/server/a.py", CHARTER + "import time\ntime.sleep(1)\n"),
        ("tests/a.py", "try:\n    a()\nexcept Exception:\n    b()\n    raise\n"),
        ("src/jobyard/server/a.py", CHARTER + CATCH_ALL_WITH_REASON),
        ("tests/a.py", "try:\n    a()\nexcept OSError:\n    b()\n"),
        ("tests/a.py", "with contextlib.suppress(OSError):\n    a()\n"),
        ("tests/a.py", "literal.eval('1')\n"),
        ("src/jobyard/server/a.py", CHARTER + "A = 1  # type: ignore[misc]\n"),
    ],
)
def test_what_is_allowed_is_left_alone(path: str, text: str) -> None:
    assert rules_broken(path, text) == []


def broken_together(**texts: str) -> list[tuple[str, str]]:
    """Return rule and subject of what is wrong with modules of the package together."""
    sources = [tidy.source_of(f"src/jobyard/{name}.py", text) for name, text in texts.items()]
    wide = {rule.__name__.replace("_", "-") for rule in tidy.WIDE_RULES}
    found = tidy.judge_all(sources)
    return [(one.rule, one.subject) for one in found if one.rule in wide]


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        ("A: Final = 1\n", "A: Final = 2\n", ["A"]),
        ("A: Final = 1\n", "A: Final[int] = 2\n", ["A"]),
        ("A = 1\n", "A: Final = 2\n", ["A"]),
        ("Kind = int | str\n", "Kind = int\n", ["Kind"]),
        ("A: Final = 1\n", "A: Final = 1\n", []),
        ("A: Final = 1\n", "_A: Final = 2\n", []),
        ("A: Final = 1\n", "class Size:\n    A: Final = 2\n", []),
        ("A: Final = 1\n", "def f():\n    A = 2\n", []),
        ("class Size:\n    A: Final = 1\n", "class Count:\n    A: Final = 2\n", []),
    ],
)
def test_public_constants_of_one_name_have_one_value(
    one: str, other: str, found: list[str]
) -> None:
    assert broken_together(a=one, b=other) == [("unique-constant", name) for name in found]


def test_classes_of_the_package_have_different_names() -> None:
    one = "class Counts:\n    pass\n"
    inner = "class Other:\n    class Counts:\n        pass\n"
    private = "class _Counts:\n    pass\n"
    assert broken_together(a=one, b=one, c=inner) == [("unique-class", "Counts")] * 2
    assert broken_together(a=private, b=private) == []


def test_a_folder_has_20_modules_at_most_without_its_init() -> None:
    full = {f"m{number}": "" for number in range(20)}
    assert broken_together(**full, __init__="") == []
    assert broken_together(**full, more="") == [("folder-size", "src/jobyard")]


def test_a_file_has_600_lines_at_most() -> None:
    assert rules_broken("tests/a.py", "A = 1\n" * 600) == []
    assert rules_broken("tests/a.py", "A = 1\n" * 601) == ["file-size"]
    assert rules_broken("docs/a.md", "words\n" * 601) == []


def test_a_function_has_70_lines_at_most_without_its_docstring() -> None:
    docstring = '    """One\n\n    two.\n    """\n'
    fits = "def f():\n" + docstring + "    a()\n" * 69
    assert rules_broken("tests/a.py", fits) == []
    assert rules_broken("tests/a.py", fits + "    a()\n") == ["function-size"]


def a_finding(subject: str, line: int = 3) -> tidy.Finding:
    return tidy.Finding("src/a.py", line, "function-size", subject, "71 lines, at most 70")


def test_a_finding_is_printed_with_its_place() -> None:
    assert tidy.settle([a_finding("f")], [], 0) == [
        "src/a.py:3: function-size: f: 71 lines, at most 70"
    ]


def test_a_listed_debt_is_tolerated_wherever_it_has_moved() -> None:
    debts = ["src/a.py: function-size: f"]
    assert tidy.settle([a_finding("f", line=3)], debts, 1) == []
    assert tidy.settle([a_finding("f", line=9)], debts, 1) == []
    assert len(tidy.settle([a_finding("f"), a_finding("g")], debts, 1)) == 1


def test_a_paid_debt_must_leave_the_list() -> None:
    (line,) = tidy.settle([], ["src/a.py: function-size: f"], 1)
    assert "fixed, remove it" in line


def test_the_list_of_debts_may_only_shrink() -> None:
    (line,) = tidy.settle([a_finding("f")], ["src/a.py: function-size: f"], 0)
    assert "may only shrink" in line
    (line,) = tidy.settle([], [], 1)
    assert "lower RATCHET_MAX" in line


def test_bytes_that_are_no_text_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "garbage.txt").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "words.txt").write_text("words")
    assert [source.path for source in tidy.read(tmp_path)] == ["words.txt"]
