"""`jobyard beanstalkd`: the original's command line, so a service file changes by one word.

Parsed by hand, because click parses differently: single letters, joined or not (`-VVp11300`), a
value may start with a dash, `--` is a bad flag, and -h or -v act immediately.
Only flags are read: neither the environment nor jobyard.toml overrides a service file.

Deliberate differences from the original:
    -v      prints `beanstalkd 1.13 (jobyard X)`; the second word is still the version
    --help  is -h, and --version is -v; the original has no long flags
    -p      a number above 65535 is refused, not taken modulo 65536; so is an empty one
    -l      accepts [::1] as well as ::1, and listens on every address of a name, not the first
    -f MS   syncs every MS milliseconds, not only when a later write arrives
    -V -VV  log opened and closed connections to stderr; commands are not logged
    -s      at least 64 KiB
    -b      a directory with the original's binlog files is refused: their jobs would seem lost
"""

import os
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click

from jobyard.cli.version import drop_in_version_text
from jobyard.config import (
    BODY_MEMORY_DEFAULT,
    BODY_MEMORY_MAX,
    DOOR_OFF,
    DROP_IN_EXIT_DATA,
    DROP_IN_EXIT_LISTEN,
    DROP_IN_EXIT_USAGE,
    SEGMENT_SIZE_MAX,
    SEGMENT_SIZE_MIN,
    SYNC_INTERVAL_MS_DEFAULT,
    Config,
    Durability,
)
from jobyard.config_values import quoted
from jobyard.errors import StartRefused
from jobyard.model.limits import JOB_SIZE_DEFAULT, JOB_SIZE_MAX
from jobyard.server.addresses import (
    UNIX_PREFIX,
    Address,
    BadAddress,
    TcpAddress,
    parse_address,
    parse_path,
    parse_port,
)
from jobyard.server.log import printable

PROGRAM: Final = "jobyard beanstalkd"

ANY_IPV4: Final = "0.0.0.0"  # noqa: S104 - the original's default, which its users rely on
PORT_DEFAULT: Final = "11300"
LOG_FILE_SIZE_DEFAULT: Final = 10 * 1024 * 1024
# 24 days, the most that 32 bits hold; a longer interval makes no difference.
SYNC_INTERVAL_MS_MAX: Final = (1 << 31) - 1

# The service manager's convention: inherited sockets start at this descriptor.
FIRST_INHERITED_FD: Final = 3

USAGE: Final = f"""\
Use: {PROGRAM} [OPTIONS]

Options:
 -b DIR   keep jobs in a journal in DIR (default is memory only)
 -f MS    sync the journal every MS milliseconds (default is {SYNC_INTERVAL_MS_DEFAULT}ms);
          -f0 answers a write only after its sync
 -F       never sync the journal; the kernel decides when to write it
 -l ADDR  listen on this address or on unix:PATH (default is {ANY_IPV4})
 -p PORT  listen on this port (default is {PORT_DEFAULT})
 -u USER  switch to this user and its groups after listening
 -z BYTES largest job in bytes (default is {JOB_SIZE_DEFAULT});
          at most {JOB_SIZE_MAX}
 -s BYTES size of each journal file (default is {LOG_FILE_SIZE_DEFAULT});
          at least {SEGMENT_SIZE_MIN}
 -c -n    accepted and ignored
 -v       show the version
 -V -VV   log opened and closed connections to stderr; commands are not logged
 -h       show this help
"""


_LONG: Final = {"--help": "h", "--version": "v"}


class BadFlag(Exception):
    """The command line is invalid; the usage text is shown after the reason."""


@dataclass(slots=True)
class Flags:
    """The command line as given."""

    host: str = ANY_IPV4
    port: str = PORT_DEFAULT
    directory: str | None = None
    #: None is -F.
    sync_interval_ms: int | None = SYNC_INTERVAL_MS_DEFAULT
    job_size_max: int = JOB_SIZE_DEFAULT
    segment_size: int = LOG_FILE_SIZE_DEFAULT
    user: str | None = None
    verbosity: int = 0
    #: "v" or "h" if one of them was given: the flags after it are not parsed.
    ask: str = ""
    warnings: list[str] = field(default_factory=list)


def parse_flags(words: Sequence[str]) -> Flags:
    """Parse the original's flags, or raise BadFlag."""
    flags = Flags()
    rest = list(words)
    while rest and not flags.ask:
        word = rest.pop(0)
        if len(word) < 2 or word[0] != "-":
            raise BadFlag(f"unknown argument: {word}")
        _parse_word(flags, word, rest)
    return flags


def _parse_word(flags: Flags, word: str, rest: list[str]) -> None:
    if word in _LONG:
        flags.ask = _LONG[word]
        return
    for position in range(1, len(word)):
        letter = word[position]
        if letter in "bflpuzs":
            joined = word[position + 1 :]
            if not joined and not rest:
                raise BadFlag(f"flag requires an argument: -{letter}")
            _set_value(flags, letter, joined or rest.pop(0))
            return
        _set_switch(flags, letter, word)
        if flags.ask:
            return


def _set_switch(flags: Flags, letter: str, word: str) -> None:
    if letter == "F":
        flags.sync_interval_ms = None
    elif letter == "V":
        flags.verbosity += 1
    elif letter in "cn":
        flags.warnings.append(f"-{letter} is ignored: the journal is always compacted")
    elif letter in "vh":
        flags.ask = letter
    else:
        raise BadFlag(f"unknown flag: {word if word.startswith('--') else '-' + letter}")


def _set_value(flags: Flags, letter: str, value: str) -> None:
    if letter == "b":
        flags.directory = value
    elif letter == "f":
        flags.sync_interval_ms = min(parse_number(value), SYNC_INTERVAL_MS_MAX)
    elif letter == "l":
        flags.host = value
    elif letter == "p":
        flags.port = value
    elif letter == "u":
        flags.user = value
    elif letter == "z":
        flags.job_size_max = parse_number(value)
        if flags.job_size_max > JOB_SIZE_MAX:
            flags.job_size_max = JOB_SIZE_MAX
            flags.warnings.append(f"maximum job size was set to {JOB_SIZE_MAX}")
    else:
        asked = parse_number(value)
        flags.segment_size = max(SEGMENT_SIZE_MIN, min(asked, SEGMENT_SIZE_MAX))
        if flags.segment_size != asked:
            flags.warnings.append(f"journal file size was set to {flags.segment_size}")


def parse_number(text: str) -> int:
    """Parse a number as C does: with leading spaces and a sign; a negative one wraps around."""
    match = re.fullmatch(r"[ \t\n\v\f\r]*([+-]?)([0-9]+)", text, re.ASCII)
    if match is None:
        raise BadFlag(f"invalid size: {text}")
    # Count the digits first: int() raises its own error for thousands of them.
    value = int(match[2]) if len(match[2]) <= 20 else 1 << 64
    return (1 << 64) - value if match[1] == "-" and value else value


def address_of(flags: Flags) -> Address:
    """Return where to listen; raise StartRefused with the exit code of a failed bind."""
    try:
        if flags.host.startswith(UNIX_PREFIX):
            return parse_path(flags.host.removeprefix(UNIX_PREFIX))
        return parse_address(TcpAddress(_host_of(flags.host), _port_of(flags.port)).text)
    except BadAddress as error:
        raise StartRefused(f"cannot listen: {error}", DROP_IN_EXIT_LISTEN) from error


def _host_of(text: str) -> str:
    bare = text.removeprefix("[").removesuffix("]")
    # parse_address takes these two for every interface. The original refuses them, and an empty
    # variable in a service file must not expose the server.
    if bare in {"", "*"}:
        raise BadAddress(f"{text!r} is not a host name or IP address")
    return bare


def _port_of(text: str) -> int:
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9-]*", text):
        try:
            return socket.getservbyname(text, "tcp")
        except OSError as error:
            raise BadAddress(f"{text!r} is neither a port nor a service name") from error
    return parse_port(text.strip().removeprefix("+"))


def inherited_fds(environ: Mapping[str, str], pid: int) -> tuple[int, ...]:
    """Return the listening sockets that a service manager opened for this process."""
    count = environ.get("LISTEN_FDS", "")
    if environ.get("LISTEN_PID") != str(pid) or not re.fullmatch(r"[0-9]{1,4}", count):
        return ()
    return tuple(range(FIRST_INHERITED_FD, FIRST_INHERITED_FD + int(count)))


def config_of(flags: Flags, fds: tuple[int, ...]) -> Config:
    """Return the Config for the flags; add warnings to `flags.warnings`."""
    address = address_of(flags)
    if len(fds) > 1:
        flags.warnings.append("inherited more than one listening socket; only the first is used")
    if address.is_public and not fds:
        flags.warnings.append(
            f"{address.text} can be reached from other machines without authentication"
        )
    durability, sync_interval_ms = _durability_of(flags)
    is_memory = flags.directory is None
    return Config(
        data=_directory_of(flags.directory) if flags.directory is not None else Path(),
        memory=is_memory,
        durability=durability,
        sync_interval_ms=sync_interval_ms,
        beanstalk=address.text,
        bunqueue=DOOR_OFF,
        http=DOOR_OFF,
        glidemq=DOOR_OFF,
        allow_public_bind=True,
        socket_fds=fds[:1],
        user=flags.user,
        max_job_size=flags.job_size_max,
        segment_size=flags.segment_size,
        # The original accepts jobs until the machine is out of memory; so does its replacement.
        body_memory=BODY_MEMORY_MAX if is_memory else BODY_MEMORY_DEFAULT,
        # No door of the drop-in can read history, and the original needs no disk space for it.
        events_hours=0,
        log_level="debug" if flags.verbosity else "info",
        drop_in=True,
    )


def _durability_of(flags: Flags) -> tuple[Durability, int]:
    if flags.sync_interval_ms is None:
        return "off", SYNC_INTERVAL_MS_DEFAULT
    if flags.sync_interval_ms == 0:
        return "sync", SYNC_INTERVAL_MS_DEFAULT
    return "os", flags.sync_interval_ms


def _directory_of(text: str) -> Path:
    # Like the original: a service with a misspelt directory must not start with empty queues.
    directory = Path(text)
    if not text or not directory.is_dir():
        raise StartRefused(f"-b {quoted(text)}: no such directory", DROP_IN_EXIT_DATA)
    try:
        foreign = sorted(path.name for path in directory.glob("binlog.*"))
    except OSError as error:
        raise StartRefused(f"-b {quoted(text)}: {error.strerror}", DROP_IN_EXIT_DATA) from error
    if foreign:
        raise StartRefused(
            f"-b {quoted(text)}: {foreign[0]} is a log of the original beanstalkd, which Jobyard "
            "cannot read; let the original finish its jobs, or choose another directory",
            DROP_IN_EXIT_DATA,
        )
    return directory


class OriginalsCommand(click.Command):
    """A command whose arguments click does not parse."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep all arguments as typed."""
        ctx.args = list(args)
        return ctx.args


@click.command(
    cls=OriginalsCommand,
    add_help_option=False,
    short_help="Run as a replacement for beanstalkd, with its flags (-h lists them).",
)
@click.pass_context
def beanstalkd(ctx: click.Context) -> int:
    """Run as a replacement for beanstalkd, with its flags and exit codes."""
    return run_drop_in(ctx.args, os.environ)


def run_drop_in(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run with the original's command line; return the original's exit code."""
    try:
        flags = parse_flags(words)
    except BadFlag as error:
        _say(str(error))
        sys.stderr.write(USAGE)
        return DROP_IN_EXIT_USAGE
    try:
        # -h and -v open nothing, so the other flags are not checked.
        config = None if flags.ask else config_of(flags, inherited_fds(environ, os.getpid()))
        for warning in flags.warnings:
            _say(warning)
        if config is None:
            return _answer(flags.ask)
        from jobyard.server.server import run  # noqa: PLC0415 - see main.py

        return run(config)
    except StartRefused as refusal:
        _say(str(refusal))
        return refusal.exit_code


def _answer(ask: str) -> int:
    if ask == "v":
        sys.stdout.write(drop_in_version_text() + "\n")
    else:
        # To stderr, as the original does.
        sys.stderr.write(USAGE)
    return 0


def _say(text: str) -> None:
    sys.stderr.write(f"{PROGRAM}: {printable(text)}\n")
