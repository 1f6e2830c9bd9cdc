import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobyard.config import DOORS, SETTINGS, TOPICS_LIMITS, Config, SettledConfig, settle
from jobyard.config_values import (
    GIB,
    KIB,
    MIB,
    Choice,
    SecretFile,
    parse_size,
    quoted,
    size_text,
    suggestion,
)
from jobyard.errors import StartRefused


class Desk:
    """Settles what a test lays down: flags, environment and a folder for jobyard.toml."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def settle(
        self,
        flags: dict[str, object] | None = None,
        environ: dict[str, str] | None = None,
        toml: str | None = None,
    ) -> SettledConfig:
        if toml is not None:
            (self.folder / "jobyard.toml").write_text(toml)
        return settle(flags or {}, environ or {}, self.folder)

    def refusal(
        self,
        flags: dict[str, object] | None = None,
        environ: dict[str, str] | None = None,
        toml: str | None = None,
    ) -> str:
        with pytest.raises(StartRefused) as refusal:
            self.settle(flags, environ, toml)
        assert refusal.value.exit_code == 2
        return str(refusal.value)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_nothing_given_is_the_defaults(desk: Desk) -> None:
    config = desk.settle().config
    assert config == Config()
    assert config.data == Path("jobyard-data")
    assert config.durability == "sync"
    assert config.beanstalk == "127.0.0.1:11300"
    assert config.max_job_size == 65535
    assert config.segment_size == 32 * MIB
    assert config.body_memory == GIB
    assert not config.memory
    assert not config.allow_public_bind


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().memory = True  # type: ignore[misc]


def test_flags_win_over_environment_over_file_over_defaults(desk: Desk) -> None:
    toml = 'beanstalk = "file:1"\nlog_format = "json"\nlog_level = "error"\n'
    settled = desk.settle(
        flags={"beanstalk": "flag:1"},
        environ={"JOBYARD_BEANSTALK": "environment:1", "JOBYARD_LOG_FORMAT": "text"},
        toml=toml,
    )
    assert settled.config.beanstalk == "flag:1"
    assert settled.config.log_format == "text"
    assert settled.config.log_level == "error"
    assert settled.config.loop == "epoll"
    assert settled.origin("beanstalk") == "--beanstalk"
    assert settled.origin("log_format") == "JOBYARD_LOG_FORMAT"
    assert settled.origin("log_level") == "jobyard.toml: log_level"
    assert settled.origin("loop") == "default of --loop"


def test_every_setting_is_a_field_and_is_read_from_all_three_places(desk: Desk) -> None:
    samples: dict[str, tuple[str, object]] = {
        "data": ("there", Path("there")),
        "memory": ("true", True),
        "durability": ("os", "os"),
        "beanstalk": ("off", "off"),
        "bunqueue": ("off", "off"),
        "http": ("off", "off"),
        "glidemq": ("127.0.0.1:6380", "127.0.0.1:6380"),
        "glidemq_password": ("secret", "secret"),
        "auth_token": ("a,b", "a,b"),
        "txn_rows_max": ("100", 100),
        "txn_bytes_max": ("2MiB", 2 * MIB),
        "txn_stage_bytes": ("1MiB", MIB),
        "txn_max": ("50", 50),
        "txn_days": ("3", 3),
        "txn_stage_minutes": ("5", 5),
        "keep_alive_ms": ("1000", 1000),
        "trusted_proxy": ("10.0.0.0/8", "10.0.0.0/8"),
        "metrics_auth": ("true", True),
        "cors_origin": ("https://example.com", "https://example.com"),
        "public_host": ("jobs.example.com", "jobs.example.com"),
        "topics_key": ("k:read", "k:read"),
        "probe_auth": ("yes", True),
        **dict.fromkeys(TOPICS_LIMITS, ("7", 7)),
        "request_limit": ("500", 500),
        "request_window_ms": ("1000", 1000),
        "frame_timeout_ms": ("300", 300),
        "webhook_retries": ("5", 5),
        "allow_private_webhooks": ("yes", True),
        "allow_public_bind": ("yes", True),
        "max_job_size": ("1MiB", MIB),
        "max_result_size": ("2MiB", 2 * MIB),
        "segment_size": ("128KiB", 128 * KIB),
        "body_memory": ("0", 0),
        "connection_memory": ("64MiB", 64 * MIB),
        "max_connections_per_address": ("100", 100),
        "events_hours": ("0", 0),
        "events_bytes": ("10MiB", 10 * MIB),
        "hold_bytes": ("64MiB", 64 * MIB),
        "log_format": ("json", "json"),
        "log_level": ("debug", "debug"),
        "loop": ("asyncio", "asyncio"),
    }
    plain = [setting for setting in SETTINGS if not isinstance(setting.kind, SecretFile)]
    assert set(samples) == {setting.name for setting in plain}
    for setting in plain:
        text, value = samples[setting.name]
        for settled in (
            desk.settle(flags={setting.name: text}),
            desk.settle(environ={setting.variable: text}),
            desk.settle(toml=f'{setting.name} = "{text}"\n'),
        ):
            assert getattr(settled.config, setting.name) == value
            assert getattr(Config(), setting.name) != value
        (desk.folder / "jobyard.toml").unlink()


@pytest.mark.parametrize("name", TOPICS_LIMITS)
def test_limits_of_topics_are_read_under_the_original_name_too(desk: Desk, name: str) -> None:
    settled = desk.settle(environ={f"TOPICS_{name.upper()}": "0"})
    assert getattr(settled.config, name) == 0
    assert "is not a size" in desk.refusal(environ={f"TOPICS_{name.upper()}": "many"})


def test_every_door_is_a_setting() -> None:
    assert {door.name for door in DOORS} <= {setting.name for setting in SETTINGS}


def test_defaults_shown_in_the_help_are_the_real_ones() -> None:
    shown = {setting.name: setting.default_text for setting in SETTINGS}
    assert shown["max_job_size"] == "65535"
    assert shown["segment_size"] == "32MiB"
    assert shown["body_memory"] == "1GiB"
    assert (shown["events_hours"], shown["events_bytes"]) == ("24", "1GiB")
    assert shown["data"] == "jobyard-data"


def test_the_file_takes_its_own_types(desk: Desk) -> None:
    config = desk.settle(toml="max-job-size = 1000\nmemory = true\n").config
    assert config.max_job_size == 1000
    assert config.memory


@pytest.mark.parametrize("word", ["1", "true", "TRUE", "yes", "on"])
def test_words_for_yes(desk: Desk, word: str) -> None:
    assert desk.settle(environ={"JOBYARD_MEMORY": word}).config.memory


@pytest.mark.parametrize("word", ["0", "false", "No", "off"])
def test_words_for_no(desk: Desk, word: str) -> None:
    settled = desk.settle(environ={"JOBYARD_MEMORY": word}, toml="memory = true")
    assert not settled.config.memory


def test_an_empty_variable_is_not_set(desk: Desk) -> None:
    assert desk.settle(environ={"JOBYARD_BEANSTALK": "", "JOBYARD_CONFIG": ""}).config == Config()


# --- one question, two answers: data and memory


def test_a_directory_in_a_stronger_place_takes_memory_back(desk: Desk) -> None:
    settled = desk.settle(flags={"data": "d"}, environ={"JOBYARD_MEMORY": "1"})
    assert settled.config.data == Path("d")
    assert not settled.config.memory


def test_memory_in_a_stronger_place_puts_the_directory_aside(desk: Desk) -> None:
    assert desk.settle(flags={"memory": True}, toml='data = "d"').config.memory


def test_directory_and_memory_in_one_place_exclude_each_other(desk: Desk) -> None:
    assert desk.refusal(flags={"data": "d", "memory": True}) == (
        "--memory and --data cannot be used together"
    )
    assert "JOBYARD_MEMORY and JOBYARD_DATA" in desk.refusal(
        environ={"JOBYARD_DATA": "d", "JOBYARD_MEMORY": "1"}
    )


def test_memory_refused_in_so_many_words_goes_with_a_directory(desk: Desk) -> None:
    config = desk.settle(toml='data = "d"\nmemory = false').config
    assert config.data == Path("d")
    assert not config.memory


# --- wrong keys


def test_an_unknown_key_of_the_file_gets_a_suggestion(desk: Desk) -> None:
    assert desk.refusal(toml='max_jobs_size = "1MiB"') == (
        "jobyard.toml: unknown setting 'max_jobs_size'; did you mean max_job_size?"
    )


def test_an_unknown_key_near_nothing_gets_no_advice(desk: Desk) -> None:
    assert desk.refusal(toml="zzz = 1") == "jobyard.toml: unknown setting 'zzz'"


def test_a_table_in_the_file_is_an_unknown_key(desk: Desk) -> None:
    assert "unknown setting 'server'" in desk.refusal(toml="[server]\nport = 1")


def test_an_unknown_variable_gets_a_suggestion(desk: Desk) -> None:
    assert desk.refusal(environ={"JOBYARD_BEANSTALKD": "x"}) == (
        "environment: unknown setting JOBYARD_BEANSTALKD; did you mean JOBYARD_BEANSTALK?"
    )


def test_variables_of_others_are_let_be(desk: Desk) -> None:
    others = {
        "HOME": "/",
        "JOBYARDISH": "1",
        "JOBYARD_COMPILE": "0",
        "JOBYARD_SERVICE_HOST": "10.0.0.1",
        "JOBYARD_SERVICE_PORT": "11300",
        "JOBYARD_SERVICE_PORT_BEANSTALK": "11300",
        "JOBYARD_PORT": "tcp://10.0.0.1:11300",
        "JOBYARD_PORT_11300_TCP": "tcp://10.0.0.1:11300",
        "JOBYARD_PORT_11300_TCP_ADDR": "10.0.0.1",
    }
    assert desk.settle(environ=others).config == Config()


def test_two_spellings_of_one_key_are_refused(desk: Desk) -> None:
    assert desk.refusal(toml="log-level = 'info'\nlog_level = 'debug'") == (
        "jobyard.toml: log_level is set twice"
    )


def test_doors_that_are_not_built_are_unknown(desk: Desk) -> None:
    assert "unknown setting 'tls'" in desk.refusal(toml="tls = 'off'")


def test_the_originals_names_are_heard_and_ours_go_before(desk: Desk) -> None:
    theirs = {"AUTH_TOKENS": "a,b", "RATE_LIMIT_MAX_REQUESTS": "7"}
    config = desk.settle(environ=theirs).config
    assert (config.auth_token, config.request_limit) == ("a,b", 7)
    both = {**theirs, "JOBYARD_AUTH_TOKEN": "c"}
    assert desk.settle(environ=both).config.auth_token == "c"
    assert desk.settle(flags={"auth_token": "d"}, environ=both).config.auth_token == "d"


# --- wrong values


def test_a_wrong_value_names_the_place_it_came_from(desk: Desk) -> None:
    complaint = "'synq' is not one of sync, os; did you mean sync?"
    assert desk.refusal(flags={"durability": "synq"}) == f"--durability: {complaint}"
    assert desk.refusal(environ={"JOBYARD_DURABILITY": "synq"}) == (
        f"JOBYARD_DURABILITY: {complaint}"
    )
    assert desk.refusal(toml="durability = 'synq'") == f"jobyard.toml: durability: {complaint}"


def test_never_syncing_is_no_choice_of_serve(desk: Desk) -> None:
    assert "not one of sync, os" in desk.refusal(flags={"durability": "off"})


def test_a_wrong_value_in_a_weaker_place_is_refused_though_it_would_not_count(desk: Desk) -> None:
    assert "JOBYARD_LOOP" in desk.refusal(flags={"loop": "epoll"}, environ={"JOBYARD_LOOP": "x"})


@pytest.mark.parametrize(
    ("toml", "complaint"),
    [
        ("memory = 1", "1 is neither true nor false"),
        ("memory = 'maybe'", "'maybe' is neither true nor false"),
        ("beanstalk = 11300", "11300 is not a non-empty string"),
        ("beanstalk = ''", "'' is not a non-empty string"),
        ("data = 5", "5 is not a directory name"),
        ("data = ''", "'' is not a directory name"),
        ("data = 'a\\u0000b'", None),
        ('data = "a\\u0000b"', "is not a directory name"),
        ("log_format = ['text']", "['text'] is not one of text, json"),
        ("max_job_size = 0", "0 is out of range: 1 to 1GiB"),
        ("max_job_size = '2GiB'", "'2GiB' is out of range: 1 to 1GiB"),
        ("max_job_size = -1", "is not a size"),
        ("max_job_size = true", "is not a size"),
        ("max_job_size = 1.5", "1.5 is not a size"),
        ("segment_size = '63KiB'", "'63KiB' is out of range: 64KiB to 4GiB"),
    ],
)
def test_values_that_make_no_sense(desk: Desk, toml: str, complaint: str | None) -> None:
    if complaint is None:  # a literal string: the backslash is a character like others
        assert desk.settle(toml=toml).config.data == Path("a\\u0000b")
    else:
        assert complaint in desk.refusal(toml=toml)


# --- the file


def test_a_file_can_be_named(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "other.toml"
    path.write_text("memory = true")
    assert desk.settle(flags={"config": str(path)}).config.memory
    assert desk.settle(environ={"JOBYARD_CONFIG": str(path)}).config.memory


def test_a_named_file_replaces_the_usual_one(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "other.toml"
    path.write_text("")
    settled = desk.settle(flags={"config": str(path)}, toml="memory = true")
    assert not settled.config.memory


def test_a_named_file_that_is_missing_is_refused(desk: Desk) -> None:
    assert desk.refusal(flags={"config": "none.toml"}) == "none.toml: no such file"


def test_a_folder_is_no_file(desk: Desk, tmp_path: Path) -> None:
    assert "cannot be read: Is a directory" in desk.refusal(flags={"config": str(tmp_path)})


def test_bytes_that_are_no_text_are_refused(desk: Desk) -> None:
    (desk.folder / "jobyard.toml").write_bytes(b"data = '\xff'")
    assert desk.refusal() == "jobyard.toml: cannot be read: not UTF-8 text"


def test_a_file_that_is_no_toml_names_the_line(desk: Desk) -> None:
    assert "line 2" in desk.refusal(toml="memory = true\nbeanstalk = oops\n")


# --- sizes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("65535", 65535),
        ("64KiB", 65536),
        ("64kib", 65536),
        ("64K", 65536),
        ("64kB", 64000),
        ("10MB", 10_000_000),
        ("10 MiB", 10 * MIB),
        ("1GiB", GIB),
        ("1GB", 10**9),
        ("7B", 7),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "KiB", "-1", "+1", "1.5MiB", "1_000", "0x10", "1 0", " 1", "1XB", "٣", "9" * 19]
)
def test_texts_that_are_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


@given(st.integers(0, 1 << 50))
def test_a_size_is_written_as_it_is_read(size: int) -> None:
    assert parse_size(size_text(size)) == size


@given(st.text(max_size=30))
def test_any_text_is_a_size_or_a_printable_refusal(text: str) -> None:
    complaint = ""
    try:
        assert parse_size(text) >= 0
    except ValueError as error:
        complaint = str(error)
    assert complaint.isprintable()


# --- words for complaints


def test_the_nearest_word_is_suggested() -> None:
    assert suggestion("durabilitee", ["data", "durability"]) == "; did you mean durability?"
    assert suggestion("xyz", ["data", "durability"]) == ""


def test_what_all_names_begin_with_makes_none_of_them_near() -> None:
    assert suggestion("--foo", ["--loop", "--data"]) == ""
    assert suggestion("--lopp", ["--loop", "--data"]) == "; did you mean --loop?"
    assert suggestion("JOBYARD_FOO", ["JOBYARD_LOOP", "JOBYARD_DATA"]) == ""


@given(st.text())
def test_what_a_complaint_quotes_is_short_and_printable(text: str) -> None:
    shown = quoted(text)
    assert shown.isprintable()
    assert len(shown) <= 80


def test_a_choice_shows_its_words() -> None:
    assert Choice(("a", "b")).metavar == "a|b"


# -- secrets in files ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "target", "content", "value"),
    [
        ("auth_token_file", "auth_token", "one\ntwo,three\n", "one,two,three"),
        ("topics_key_file", "topics_key", "k:read\n\n w:write:a|b \n", "k:read,w:write:a|b"),
        ("glidemq_password_file", "glidemq_password", "secret\n", "secret"),
    ],
)
def test_a_secret_may_stand_in_a_file(
    desk: Desk, name: str, target: str, content: str, value: str
) -> None:
    path = desk.folder / "secret"
    path.write_text(content)
    for settled in (
        desk.settle(flags={name: str(path)}),
        desk.settle(environ={f"JOBYARD_{name.upper()}": str(path)}),
        desk.settle(toml=f'{name} = "{path}"\n'),
    ):
        assert getattr(settled.config, target) == value
    # The stronger source wins, however it is set there.
    assert getattr(desk.settle(flags={target: "x"}).config, target) == "x"
    (desk.folder / "jobyard.toml").unlink()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"\xff", "UTF-8"),
        (b"a\nb\n", "more than one line"),
    ],
)
def test_a_file_that_holds_no_secret_is_refused(desk: Desk, content: bytes, words: str) -> None:
    path = desk.folder / "secret"
    path.write_bytes(content)
    with pytest.raises(StartRefused, match=words):
        desk.settle(flags={"glidemq_password_file": str(path)})


def test_a_secret_is_said_once(desk: Desk) -> None:
    path = desk.folder / "secret"
    path.write_text("a")
    with pytest.raises(StartRefused, match="cannot be used together"):
        desk.settle(flags={"auth_token": "a", "auth_token_file": str(path)})
    with pytest.raises(StartRefused, match="cannot be read: No such file"):
        desk.settle(flags={"auth_token_file": str(path) + "x"})
