import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobyard.cli.beanstalkd import (
    USAGE,
    BadFlag,
    Flags,
    address_of,
    config_of,
    inherited_fds,
    parse_flags,
    parse_number,
    run_drop_in,
)
from jobyard.config import Config
from jobyard.errors import StartRefused
from jobyard.server.addresses import TcpAddress, UnixAddress

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Terminal

ORIGINAL = shutil.which("beanstalkd")
PUBLIC = (
    "jobyard beanstalkd: 0.0.0.0:11300 can be reached from other machines without authentication\n"
)


def config_for(*words: str) -> Config:
    return config_of(parse_flags(words), ())


# --- reading the flags


def test_no_flags_are_the_originals_defaults() -> None:
    assert parse_flags([]) == Flags()
    assert config_for() == Config(
        data=Path(),
        memory=True,
        durability="os",
        sync_interval_ms=50,
        beanstalk="0.0.0.0:11300",
        bunqueue="off",
        http="off",
        glidemq="off",
        allow_public_bind=True,
        max_job_size=65535,
        segment_size=10 * 1024 * 1024,
        body_memory=1 << 50,
        events_hours=0,
        drop_in=True,
    )


@pytest.mark.parametrize(
    "words",
    [
        ["-p", "11301", "-l", "127.0.0.1", "-V", "-V"],
        ["-p11301", "-l127.0.0.1", "-VV"],
        ["-VVp11301", "-l", "127.0.0.1"],
        ["-Vp", "11301", "-Vl127.0.0.1"],
        ["-VVl127.0.0.1", "-p", "11301"],
    ],
)
def test_flags_may_be_joined_or_not(words: list[str]) -> None:
    assert parse_flags(words) == Flags(host="127.0.0.1", port="11301", verbosity=2)


def test_the_last_of_two_wins() -> None:
    assert parse_flags(["-p", "1", "-p", "2"]).port == "2"


def test_the_two_flags_that_everybody_tries_are_known_in_long() -> None:
    assert parse_flags(["--help"]).ask == "h"
    assert parse_flags(["-V", "--version", "-x"]).ask == "v"
    assert run_drop_in(["--help"], {}) == 0


def test_a_value_may_start_with_a_dash() -> None:
    assert parse_flags(["-u", "-V"]) == Flags(user="-V")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["-x"], "unknown flag: -x"),
        (["-Vx"], "unknown flag: -x"),
        (["-F0"], "unknown flag: -0"),
        (["--"], "unknown flag: --"),
        (["-p", "1", "--"], "unknown flag: --"),
        (["--helpp"], "unknown flag: --helpp"),
        (["stray"], "unknown argument: stray"),
        (["-V", "stray", "-v"], "unknown argument: stray"),
        (["-"], "unknown argument: -"),
        ([""], "unknown argument: "),
        (["-p"], "flag requires an argument: -p"),
        (["-VVl"], "flag requires an argument: -l"),
        (["-z", "abc"], "invalid size: abc"),
        (["-z", ""], "invalid size: "),
        (["-z", "0x10"], "invalid size: 0x10"),
        (["-s", "5x"], "invalid size: 5x"),
        (["-f", "1.5"], "invalid size: 1.5"),
        (["-f", "5 "], "invalid size: 5 "),
    ],
)
def test_a_bad_command_line_is_exit_5_with_the_usage(
    terminal: "Terminal", words: list[str], reason: str
) -> None:
    outcome = terminal.type("beanstalkd", *words)
    assert outcome == (5, "", f"jobyard beanstalkd: {reason}\n{USAGE}")
    assert terminal.configs == []


@pytest.mark.parametrize(
    "words", [["-v"], ["-Vv"], ["-vx"], ["-v", "-x"], ["-v", "stray"], ["-vh"]]
)
def test_the_version_is_answered_on_the_spot(terminal: "Terminal", words: list[str]) -> None:
    outcome = terminal.type("beanstalkd", *words)
    assert outcome.exit_code == 0
    assert outcome.out.split()[0] == "beanstalkd"
    assert outcome.out.count("\n") == 1
    assert outcome.err == ""


@pytest.mark.parametrize("words", [["-h"], ["-hv"], ["-h", "-x"]])
def test_help_goes_to_stderr_as_the_originals(terminal: "Terminal", words: list[str]) -> None:
    assert terminal.type("beanstalkd", *words) == (0, "", USAGE)


def test_removed_flags_are_warnings(terminal: "Terminal") -> None:
    outcome = terminal.type("beanstalkd", "-c", "-n", "-l", "127.0.0.1")
    assert outcome.exit_code == 0
    assert [line.split(": ")[1] for line in outcome.err.splitlines()] == [
        "-c is ignored",
        "-n is ignored",
    ]


def test_warnings_come_before_an_answer_too(terminal: "Terminal") -> None:
    assert "-c is ignored" in terminal.type("beanstalkd", "-cv").err


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("50", 50), ("007", 7), (" 5", 5), ("\t+5", 5), ("-0", 0), ("-5", (1 << 64) - 5)],
)
def test_numbers_are_read_as_c_reads_them(text: str, number: int) -> None:
    assert parse_number(text) == number


@given(st.integers(0, 1 << 64))
def test_every_number_is_read(number: int) -> None:
    assert parse_number(str(number)) == number


def test_endless_digits_are_one_huge_number() -> None:
    assert parse_number("9" * 100_000) == 1 << 64


@given(st.lists(st.text(alphabet="-bflpuzsFVcnvh0 x", max_size=6), max_size=5))
def test_any_command_line_is_flags_or_a_bad_flag(words: list[str]) -> None:
    reason = ""
    try:
        assert parse_flags(words).verbosity >= 0
    except BadFlag as error:
        reason = str(error)
    assert reason == "" or reason.startswith(("unknown ", "flag requires", "invalid size"))


@given(st.lists(st.text(), max_size=4))
def test_any_text_is_flags_or_a_bad_flag(words: list[str]) -> None:
    reason = ""
    try:
        assert parse_flags(words).verbosity >= 0
    except BadFlag as error:
        reason = str(error)
    assert reason == "" or reason.startswith(("unknown ", "flag requires", "invalid size"))


# --- sizes


def test_the_largest_job_is_capped_with_a_warning(terminal: "Terminal") -> None:
    outcome = terminal.type("beanstalkd", "-l", "127.0.0.1", "-z", "1073741825")
    assert outcome.err == "jobyard beanstalkd: maximum job size was set to 1073741824\n"
    assert terminal.config.max_job_size == 1 << 30


@pytest.mark.parametrize(("text", "size"), [("0", 0), ("1", 1), ("1073741824", 1 << 30)])
def test_job_sizes_within_the_cap_are_taken_in_silence(text: str, size: int) -> None:
    flags = parse_flags(["-z", text])
    assert flags.job_size_max == size
    assert flags.warnings == []


@pytest.mark.parametrize(
    ("text", "size"), [("0", 65536), ("100", 65536), ("-1", 1 << 32), ("9" * 30, 1 << 32)]
)
def test_journal_files_of_impossible_size_get_the_nearest_one(text: str, size: int) -> None:
    flags = parse_flags(["-s", text])
    assert flags.segment_size == size
    assert flags.warnings == [f"journal file size was set to {size}"]


def test_a_journal_file_size_is_taken() -> None:
    assert config_for("-s", "20971520").segment_size == 20 * 1024 * 1024


# --- where to listen


@pytest.mark.parametrize(
    ("words", "address"),
    [
        ([], TcpAddress("0.0.0.0", 11300)),
        (["-p", "0"], TcpAddress("0.0.0.0", 0)),
        (["-p", "+21309"], TcpAddress("0.0.0.0", 21309)),
        (["-p", " 21309"], TcpAddress("0.0.0.0", 21309)),
        (["-l", "127.0.0.1"], TcpAddress("127.0.0.1", 11300)),
        (["-l", "localhost"], TcpAddress("localhost", 11300)),
        (["-l", "::1"], TcpAddress("::1", 11300)),
        (["-l", "[::1]"], TcpAddress("::1", 11300)),
        (["-l", "::"], TcpAddress("::", 11300)),
        (["-l", "unix:/run/b.sock"], UnixAddress("/run/b.sock")),
        (["-lunix:/run/b.sock", "-p", "nonsense"], UnixAddress("/run/b.sock")),
    ],
)
def test_addresses(words: list[str], address: TcpAddress | UnixAddress) -> None:
    assert address_of(parse_flags(words)) == address
    assert config_for(*words).beanstalk == address.text


def test_a_service_may_be_named_as_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getservbyname", lambda name, protocol: len(name + protocol))
    assert address_of(Flags(port="gopher")) == TcpAddress("0.0.0.0", 9)


@pytest.mark.parametrize(
    "words",
    [
        ["-p", "no-such-service"],
        ["-p", "80x"],
        ["-p", "-1"],
        ["-p", "65536"],
        ["-p", ""],
        ["-l", ""],
        ["-l", "*"],
        ["-l", "300.1.1.1"],
        ["-l", "unix:"],
        ["-l", "unix:" + "a" * 200],
    ],
)
def test_an_invalid_address_is_exit_111(terminal: "Terminal", words: list[str]) -> None:
    outcome = terminal.type("beanstalkd", *words)
    assert outcome.exit_code == 111
    assert outcome.err.startswith("jobyard beanstalkd: cannot listen: ")
    assert outcome.err.count("\n") == 1
    assert terminal.configs == []


def test_every_interface_is_served_with_one_warning(terminal: "Terminal") -> None:
    assert terminal.type("beanstalkd") == (0, "", PUBLIC)
    assert terminal.config.beanstalk == "0.0.0.0:11300"


@pytest.mark.parametrize("words", [["-l", "127.0.0.1"], ["-l", "unix:s"]])
def test_a_private_address_needs_no_warning(terminal: "Terminal", words: list[str]) -> None:
    assert terminal.type("beanstalkd", *words) == (0, "", "")


# --- keeping jobs


def test_without_a_directory_jobs_live_in_memory_with_no_cap_of_ours() -> None:
    config = config_for("-f0")
    assert config.memory
    assert config.body_memory >= 1 << 50


@pytest.mark.parametrize(
    ("words", "durability", "interval_ms"),
    [
        ([], "os", 50),
        (["-f", "0"], "sync", 50),
        (["-f0"], "sync", 50),
        (["-f", "200"], "os", 200),
        (["-f", "-1"], "os", (1 << 31) - 1),
        (["-F"], "off", 50),
        (["-f0", "-F"], "off", 50),
        (["-F", "-f0"], "sync", 50),
        (["-F", "-f10"], "os", 10),
    ],
)
def test_with_a_directory_jobs_are_as_durable_as_asked(
    tmp_path: Path, words: list[str], durability: str, interval_ms: int
) -> None:
    config = config_for("-b", str(tmp_path), *words)
    assert not config.memory
    assert config.data == tmp_path
    assert config.body_memory == Config().body_memory
    assert (config.durability, config.sync_interval_ms) == (durability, interval_ms)


@pytest.mark.parametrize("name", ["none", "file", ""])
def test_a_missing_directory_is_exit_10(terminal: "Terminal", tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    outcome = terminal.type("beanstalkd", "-b", name)
    assert outcome == (10, "", f"jobyard beanstalkd: -b '{name}': no such directory\n")
    assert not (tmp_path / "none").exists()


def test_a_directory_with_the_originals_log_is_refused(
    terminal: "Terminal", tmp_path: Path
) -> None:
    (tmp_path / "binlog.1").touch()
    (tmp_path / "lock").touch()
    outcome = terminal.type("beanstalkd", "-b", ".")
    assert outcome.exit_code == 10
    assert "binlog.1 is a log of the original beanstalkd" in outcome.err
    assert terminal.configs == []


# --- the rest


def test_a_user_is_handed_on() -> None:
    assert config_for("-u", "daemon").user == "daemon"
    assert config_for("-u", "").user == ""
    assert config_for().user is None


@pytest.mark.parametrize("words", [["-V"], ["-VV"], ["-V", "-V"]])
def test_more_words_are_the_debug_level(words: list[str]) -> None:
    assert config_for(*words).log_level == "debug"


def test_neither_environment_nor_file_changes_what_the_flags_say(
    terminal: "Terminal", tmp_path: Path
) -> None:
    (tmp_path / "jobyard.toml").write_text("nonsense")
    outcome = terminal.type("beanstalkd", "-l", "127.0.0.1", JOBYARD_BEANSTALK="::", JOBYARD_X="1")
    assert outcome == (0, "", "")
    assert terminal.config.beanstalk == "127.0.0.1:11300"


def test_a_refusal_of_the_server_keeps_its_exit_code(terminal: "Terminal") -> None:
    def refuse() -> int:
        raise StartRefused("port 11300 is in use", 111)

    terminal.answer = refuse
    assert terminal.type("beanstalkd", "-l", "127.0.0.1") == (
        111,
        "",
        "jobyard beanstalkd: port 11300 is in use\n",
    )


def test_sockets_inherited_by_this_very_process() -> None:
    assert inherited_fds({"LISTEN_PID": "7", "LISTEN_FDS": "1"}, 7) == (3,)
    assert inherited_fds({"LISTEN_PID": "7", "LISTEN_FDS": "2"}, 7) == (3, 4)


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"LISTEN_FDS": "1"},
        {"LISTEN_PID": "7"},
        {"LISTEN_PID": "8", "LISTEN_FDS": "1"},
        {"LISTEN_PID": "7", "LISTEN_FDS": "0"},
        {"LISTEN_PID": "7", "LISTEN_FDS": "-1"},
        {"LISTEN_PID": "7", "LISTEN_FDS": "x"},
        {"LISTEN_PID": "7", "LISTEN_FDS": "99999999999"},
    ],
)
def test_sockets_meant_for_nobody_or_another_process_are_let_be(environ: dict[str, str]) -> None:
    assert inherited_fds(environ, 7) == ()


def test_inherited_sockets_reach_the_server(terminal: "Terminal") -> None:
    outcome = terminal.type("beanstalkd", LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
    assert outcome == (0, "", "")
    assert terminal.config.socket_fds == (3,)


def test_of_two_inherited_sockets_the_first_is_used_with_a_warning(terminal: "Terminal") -> None:
    outcome = terminal.type("beanstalkd", LISTEN_PID=str(os.getpid()), LISTEN_FDS="2")
    assert "only the first is used" in outcome.err
    assert terminal.config.socket_fds == (3,)


# --- against the original itself


@pytest.mark.skipif(ORIGINAL is None, reason="the original beanstalkd is not installed")
@pytest.mark.parametrize(
    "words",
    [
        ["-v"],
        ["-Vv"],
        ["-v", "-x"],
        ["-cnv"],
        ["-f0", "-v"],
        ["-h"],
        ["-hx"],
        ["-x"],
        ["-Vx"],
        ["--"],
        ["--halp"],
        ["-"],
        [""],
        ["stray"],
        ["stray", "-v"],
        ["-p"],
        ["-F0"],
        ["-z", "abc"],
        ["-z", "0x10"],
        ["-s", "5x"],
        ["-f", ""],
        ["-f", "5 "],
        ["-p", "80x"],
        ["-p", "-1"],
        ["-l", ""],
        ["-l", "300.1.1.1"],
        ["-l", "unix:" + "a" * 200],
        ["-z", "-5", "-p", "80x"],
        ["-z", " 5", "-f", "-1", "-s", "0", "-p", "80x"],
    ],
)
def test_exit_codes_and_streams_are_the_originals(terminal: "Terminal", words: list[str]) -> None:
    assert ORIGINAL is not None
    original = subprocess.run(
        [ORIGINAL, *words], capture_output=True, text=True, timeout=10, check=False
    )
    ours = terminal.type("beanstalkd", *words)
    assert ours.exit_code == original.returncode
    assert bool(ours.out) == bool(original.stdout)
    assert bool(ours.err) == bool(original.stderr)
    assert ("Use: " in ours.err) == ("Use: " in original.stderr)
    assert ours.out.split()[:1] == original.stdout.split()[:1]
