from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Terminal

VERBS = ("check", "repair")


@pytest.mark.parametrize("verb", VERBS)
def test_a_directory_is_inspected_and_the_answer_is_the_exit_code(
    terminal: "Terminal", tmp_path: Path, verb: str
) -> None:
    terminal.answer = lambda: 3
    outcome = terminal.type(verb, str(tmp_path))
    assert outcome == (3, f"{verb} was here\n", "")
    assert terminal.inspections == [(verb, tmp_path)]


@pytest.mark.parametrize("verb", VERBS)
def test_a_directory_that_is_not_there_is_refused(terminal: "Terminal", verb: str) -> None:
    outcome = terminal.type(verb, "none")
    assert outcome == (2, "", "jobyard: none does not exist\n")
    assert terminal.inspections == []


@pytest.mark.parametrize("verb", VERBS)
def test_a_file_is_no_directory(terminal: "Terminal", tmp_path: Path, verb: str) -> None:
    (tmp_path / "file").touch()
    assert terminal.type(verb, "file") == (2, "", "jobyard: file is not a directory\n")


@pytest.mark.parametrize("verb", VERBS)
def test_a_missing_argument_is_one_line(terminal: "Terminal", verb: str) -> None:
    outcome = terminal.type(verb)
    assert outcome == (2, "", f"jobyard {verb}: missing argument 'DIR'\n")


@pytest.mark.parametrize("verb", VERBS)
def test_one_directory_too_many_is_one_line(terminal: "Terminal", verb: str) -> None:
    outcome = terminal.type(verb, ".", ".")
    assert outcome.exit_code == 2
    assert outcome.err.count("\n") == 1
    assert "unexpected extra argument" in outcome.err


@pytest.mark.parametrize(
    ("verb", "promise"), [("check", "Changes nothing"), ("repair", "never deleted")]
)
def test_help_says_what_happens_to_the_data(terminal: "Terminal", verb: str, promise: str) -> None:
    outcome = terminal.type(verb, "--help")
    assert outcome.exit_code == 0
    assert promise in " ".join(outcome.out.split())
