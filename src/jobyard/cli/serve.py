"""`jobyard serve`: merge and check settings from flags, environment and file, run the server.

The flags are generated from the table in config.py, so help, environment and file never disagree.
Addresses are checked here because config.py must not know what an address is
(server/addresses.py).
"""

import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import click

from jobyard.config import (
    CONFIG_FILE,
    DOOR_OFF,
    DOORS,
    EXIT_USAGE,
    SETTINGS,
    Setting,
    SettledConfig,
    settle,
)
from jobyard.config_values import Switch
from jobyard.errors import StartRefused
from jobyard.server.addresses import BadAddress, parse_address


def check_doors(settled: SettledConfig) -> None:
    """Refuse invalid addresses, unprotected public addresses, and a server without doors."""
    texts = {door.name: str(getattr(settled.config, door.name)) for door in DOORS}
    for name, text in texts.items():
        if text == DOOR_OFF:
            continue
        origin = settled.origin(name)
        try:
            address = parse_address(text)
        except BadAddress as error:
            raise StartRefused(f"{origin}: {error}", EXIT_USAGE) from error
        if address.is_public and not settled.config.allow_public_bind:
            _check_secrets(settled, name, text)
    if all(text == DOOR_OFF for text in texts.values()):
        flags = ", ".join(f"{settled.origin(name)} is off" for name in texts)
        raise StartRefused(f"no door is open: {flags}", EXIT_USAGE)


def check_loop(settled: SettledConfig) -> None:
    """Refuse an event loop whose package is not installed."""
    if settled.config.loop == "uvloop" and find_spec("uvloop") is None:
        raise StartRefused(
            f"{settled.origin('loop')}: uvloop is not installed; run pip install 'jobyard[uvloop]'"
            ", or leave the setting out: the built-in loop is faster",
            EXIT_USAGE,
        )


# Secrets that must be set so that every client of a door has to authenticate.
_SECRETS: Final = {
    "bunqueue": ("auth_token",),
    "http": ("auth_token", "topics_key"),
    "glidemq": ("glidemq_password",),
}


def _check_secrets(settled: SettledConfig, name: str, text: str) -> None:
    """Refuse a public door where some clients would not have to authenticate."""
    secrets = _SECRETS.get(name, ())
    # A list of commas only holds no secret.
    missing = [one for one in secrets if not str(getattr(settled.config, one)).strip(", ")]
    if secrets and not missing:
        return
    flags = " and ".join(f"--{secret.replace('_', '-')}" for secret in missing)
    raise StartRefused(
        f"{settled.origin(name)}: other machines can reach {text} without authentication; "
        f"{f'set {flags}, ' if flags else ''}use 127.0.0.1, or allow it with --allow-public-bind",
        EXIT_USAGE,
    )


def _option(setting: Setting) -> Callable[[Callable[..., int]], Callable[..., int]]:
    # No type and no default for click: config.py parses values from all places alike, and None
    # means "not given", so that environment and file apply.
    if isinstance(setting.kind, Switch):
        return click.option(
            setting.flag, setting.name, is_flag=True, flag_value=True, default=None,
            help=setting.help,
        )  # fmt: skip
    default = f"  [default: {setting.default_text}]" if setting.default_text else ""
    return click.option(
        setting.flag, setting.name, metavar=setting.kind.metavar, help=setting.help + default
    )


def _with_settings(function: Callable[..., int]) -> Callable[..., int]:
    for setting in reversed(SETTINGS):
        function = _option(setting)(function)
    return function


@click.command(
    short_help="Run the server.",
    epilog="Each setting can also come from the environment (JOBYARD_DATA=DIR, "
    'JOBYARD_MAX_JOB_SIZE=1MiB) or from the file (max_job_size = "1MiB"). Flags override the '
    "environment, the environment overrides the file. When every door is open, one line that "
    "starts with `ready` is written to stdout; logs go to stderr. SIGTERM stops the server without "
    "losing anything; SIGUSR1 makes it refuse new jobs.",
)
@_with_settings
@click.option(
    "--config",
    metavar="FILE",
    help=f"File with settings.  [default: {CONFIG_FILE} in the working directory, if present]",
)
def serve(**flags: Any) -> int:  # noqa: ANN401 - one keyword per row of SETTINGS
    """Run the server until it receives SIGTERM or SIGINT.

    ADDR is host:port (port 0: any free port; no host: every interface) or unix:PATH. Only its owner
    may use a socket file. SIZE is a number of bytes, or a number with a unit such as 64KiB or 10MB.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    settled = settle(given, os.environ, Path())
    check_doors(settled)
    check_loop(settled)
    from jobyard.server.server import run  # noqa: PLC0415 - see main.py

    return run(settled.config)
