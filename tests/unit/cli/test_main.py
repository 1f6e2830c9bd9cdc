import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from jobyard.errors import StartRefused

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Terminal

COMMANDS = ("serve", "beanstalkd", "check", "repair")


def test_the_version_goes_to_stdout(terminal: "Terminal") -> None:
    outcome = terminal.type("--version")
    assert outcome.exit_code == 0
    assert outcome.out.startswith("jobyard ")
    assert outcome.err == ""


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",)])
def test_help_names_every_command(terminal: "Terminal", words: tuple[str, ...]) -> None:
    outcome = terminal.type(*words)
    assert outcome.exit_code == 0
    for command in COMMANDS:
        assert f"  {command} " in outcome.out


def test_a_misspelt_command_gets_a_suggestion(terminal: "Terminal") -> None:
    outcome = terminal.type("serveur")
    assert outcome == (2, "", "jobyard: no such command 'serveur'; did you mean serve?\n")


def test_a_command_near_nothing_is_told_what_there_is(terminal: "Terminal") -> None:
    outcome = terminal.type("zzz")
    assert outcome.err == (
        "jobyard: no such command 'zzz'; commands are serve, beanstalkd, check, repair, pipeline\n"
    )
    assert outcome.exit_code == 2


def test_a_misspelt_flag_before_the_command_gets_a_suggestion(terminal: "Terminal") -> None:
    outcome = terminal.type("--verzion")
    assert outcome == (2, "", "jobyard: no such option --verzion; did you mean --version?\n")


def test_what_was_typed_cannot_reach_the_terminal_as_a_control_sequence(
    terminal: "Terminal",
) -> None:
    outcome = terminal.type("serve", "--\x1b[31m")
    assert outcome.exit_code == 2
    assert outcome.err.rstrip("\n").isprintable()


def test_a_refusal_of_the_server_is_one_line_and_its_exit_code(terminal: "Terminal") -> None:
    def refuse() -> int:
        raise StartRefused("data is locked\nby another server", 7)

    terminal.answer = refuse
    outcome = terminal.type("serve")
    assert outcome == (7, "", "jobyard: data is locked\\nby another server\n")


def test_ctrl_c_is_no_traceback(terminal: "Terminal") -> None:
    def interrupt() -> int:
        raise KeyboardInterrupt

    terminal.answer = interrupt
    assert terminal.type("serve").exit_code == 130


def test_the_package_runs_as_a_module() -> None:
    outcome = subprocess.run(
        [sys.executable, "-m", "jobyard", "serve", "--nonsense"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 2
    assert outcome.stderr == "jobyard serve: no such option --nonsense\n"
