import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobyard.cli.serve import check_doors
from jobyard.config import DOORS, SETTINGS, Config, SettledConfig
from jobyard.config_values import Switch
from jobyard.errors import StartRefused

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Terminal


def test_without_flags_the_server_gets_the_defaults(terminal: "Terminal") -> None:
    assert terminal.type("serve") == (0, "", "")
    assert terminal.config == Config()


def test_what_the_server_returns_is_the_exit_code(terminal: "Terminal") -> None:
    terminal.answer = lambda: 3
    assert terminal.type("serve").exit_code == 3


def test_flags_reach_the_server(terminal: "Terminal") -> None:
    terminal.type(
        "serve", "--data", "d", "--durability=os", "--beanstalk", "unix:s", "--max-job-size",
        "1MiB", "--segment-size", "1MiB", "--body-memory", "0", "--log-format", "json",
        "--log-level", "debug", "--loop", "uvloop",
    )  # fmt: skip
    assert terminal.config == Config(
        data=Path("d"),
        durability="os",
        beanstalk="unix:s",
        max_job_size=1 << 20,
        segment_size=1 << 20,
        body_memory=0,
        log_format="json",
        log_level="debug",
        loop="uvloop",
    )


def test_memory_only(terminal: "Terminal") -> None:
    terminal.type("serve", "--memory")
    assert terminal.config.memory


def test_environment_and_file_reach_the_server(terminal: "Terminal", tmp_path: Path) -> None:
    (tmp_path / "jobyard.toml").write_text('log_format = "json"\nbeanstalk = "unix:file"')
    terminal.type("serve", JOBYARD_BEANSTALK="unix:environment")
    assert terminal.config.beanstalk == "unix:environment"
    assert terminal.config.log_format == "json"


def test_another_file_can_be_named(terminal: "Terminal", tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text("memory = true")
    terminal.type("serve", "--config", "other.toml")
    assert terminal.config.memory


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--durabilitee os", " serve: no such option --durabilitee; did you mean --durability?"),
        ("--durability", ": option '--durability' requires an argument"),
        ("extra", " serve: got unexpected extra argument (extra)"),
        ("--loop libuv", ": --loop: 'libuv' is not one of epoll, uvloop, asyncio"),
        ("--durability synq", ": --durability: 'synq' is not one of sync, os; did you mean sync?"),
        ("--max-job-size 2GiB", ": --max-job-size: '2GiB' is out of range: 1 to 1GiB"),
        ("--data d --memory", ": --memory and --data cannot be used together"),
        ("--beanstalk :x", ": --beanstalk: 'x' is not a port (0 to 65535)"),
        (
            "--beanstalk off --bunqueue off --http off --glidemq off",
            ": no door is open: "
            + ", ".join(f"--{door.name} is off" for door in DOORS),
        ),
        ("--config none", ": none: no such file"),
    ],
)  # fmt: skip
def test_a_wrong_word_is_one_clear_line_and_exit_2(
    terminal: "Terminal", words: str, complaint: str
) -> None:
    assert terminal.type("serve", *words.split()) == (2, "", f"jobyard{complaint}\n")
    assert terminal.configs == []


def test_a_wrong_address_names_the_variable_it_came_from(terminal: "Terminal") -> None:
    outcome = terminal.type("serve", JOBYARD_BEANSTALK="::1:1")
    assert outcome.err.startswith("jobyard: JOBYARD_BEANSTALK: '::1:1': write an IPv6 address in")


@pytest.mark.parametrize("address", ["0.0.0.0:11300", ":11300", "[::]:0", "10.0.0.1:1"])
def test_a_public_address_is_refused_without_the_loud_flag(
    terminal: "Terminal", address: str
) -> None:
    outcome = terminal.type("serve", "--beanstalk", address)
    assert outcome.exit_code == 2
    assert outcome.err.count("\n") == 1
    assert f"--beanstalk: other machines can reach {address}" in outcome.err
    assert "--allow-public-bind" in outcome.err
    assert terminal.configs == []


def test_a_loop_that_is_not_installed_is_refused(
    terminal: "Terminal", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobyard.cli.serve.find_spec", lambda _name: None)
    outcome = terminal.type("serve", "--loop", "uvloop")
    assert outcome.exit_code == 2
    assert "--loop: uvloop is not installed; run pip install 'jobyard[uvloop]'" in outcome.err
    assert terminal.configs == []
    assert terminal.type("serve", "--loop", "asyncio").exit_code == 0


@pytest.mark.parametrize(
    ("door", "secrets"),
    [
        ("--bunqueue", ["--auth-token"]),
        ("--http", ["--auth-token", "--topics-key"]),
        ("--glidemq", ["--glidemq-password"]),
    ],
)
def test_a_public_address_is_served_where_everybody_is_asked_for_something(
    terminal: "Terminal", door: str, secrets: list[str]
) -> None:
    for missing in secrets:
        given = [word for flag in secrets if flag != missing for word in (flag, "secret")]
        outcome = terminal.type("serve", door, ":0", *given)
        assert outcome.exit_code == 2
        assert f"set {missing}, " in outcome.err
        assert terminal.type("serve", door, ":0", *given, missing, ", ,").exit_code == 2
    given = [word for flag in secrets for word in (flag, "secret")]
    assert terminal.type("serve", door, ":0", *given).exit_code == 0


def test_a_public_address_is_served_with_the_loud_flag(terminal: "Terminal") -> None:
    terminal.type("serve", "--beanstalk", ":11300", "--allow-public-bind")
    assert terminal.config.beanstalk == ":11300"


def test_the_default_address_would_be_checked_like_any_other() -> None:
    config = dataclasses.replace(Config(), beanstalk="10.0.0.1:1")
    with pytest.raises(StartRefused, match="default of --beanstalk"):
        check_doors(SettledConfig(config, {}))


def test_help_shows_every_setting_with_its_default(terminal: "Terminal") -> None:
    outcome = terminal.type("serve", "--help")
    assert outcome.exit_code == 0
    text = " ".join(outcome.out.split())
    for setting in SETTINGS:
        assert setting.flag in text
        if not isinstance(setting.kind, Switch) and setting.default_text:
            assert f"[default: {setting.default_text}]" in text
    assert "[default: ]" not in text
    assert "jobyard.toml" in text


def test_help_offers_no_door_that_is_not_built(terminal: "Terminal") -> None:
    text = terminal.type("serve", "--help").out
    assert "--tls" not in text
