"""`jobyard serve`: settings from flags, environment and file, checked, then the server runs.

The flags are made from the table in config.py, so that the help, the environment and the file
can never disagree. Addresses are checked here because only here both are known: what was meant
(config.py) and what an address is (server/addresses.py).
"""

import os
from collections.abc import Callable
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
    Settled,
    settle,
)
from jobyard.config_values import Switch
from jobyard.errors import StartRefused
from jobyard.server.addresses import BadAddress, parse_address


def check_doors(settled: Settled) -> None:
    """Refuse addresses that are none, addresses open to the world, and a server without doors."""
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
        raise StartRefused(f"there is no door left to serve: {flags}", EXIT_USAGE)


# What must be set so that whoever comes in by a door is asked for something, whatever they want.
_SECRETS: Final = {
    "bunqueue": ("auth_token",),
    "http": ("auth_token", "topics_key"),
    "glidemq": ("glidemq_password",),
}


def _check_secrets(settled: Settled, name: str, text: str) -> None:
    """Refuse a public door where somebody would be asked for nothing."""
    secrets = _SECRETS.get(name, ())
    # A list of nothing but commas asks for nothing.
    missing = [one for one in secrets if not str(getattr(settled.config, one)).strip(", ")]
    if secrets and not missing:
        return
    flags = " and ".join(f"--{secret.replace('_', '-')}" for secret in missing)
    raise StartRefused(
        f"{settled.origin(name)}: other machines could reach {text}, where not everybody is asked "
        f"for a password; {f'set {flags}, ' if flags else ''}use 127.0.0.1, or add "
        f"--allow-public-bind if that is meant",
        EXIT_USAGE,
    )


def _option(setting: Setting) -> Callable[[Callable[..., int]], Callable[..., int]]:
    # No type and no default of click's: a value is read by the same code wherever it comes from,
    # and None means "not given", so that the weaker places get their turn.
    if isinstance(setting.kind, Switch):
        return click.option(
            setting.flag, setting.name, is_flag=True, flag_value=True, default=None,
            help=setting.help,
        )  # fmt: skip
    return click.option(
        setting.flag,
        setting.name,
        metavar=setting.kind.metavar,
        help=f"{setting.help}  [default: {setting.default_text}]",
    )


def _with_settings(function: Callable[..., int]) -> Callable[..., int]:
    for setting in reversed(SETTINGS):
        function = _option(setting)(function)
    return function


@click.command(
    short_help="Run the server.",
    epilog="Each setting may also come from the environment (JOBYARD_DATA=DIR, "
    'JOBYARD_MAX_JOB_SIZE=1MiB) or from the file (max_job_size = "1MiB"). Flags win over the '
    "environment, the environment over the file. When every door is open, one line that starts "
    "with `ready` goes to stdout; logs go to stderr. SIGTERM ends the server with nothing lost, "
    "SIGUSR1 makes it refuse new jobs.",
)
@_with_settings
@click.option(
    "--config",
    metavar="FILE",
    help=f"File with settings.  [default: {CONFIG_FILE} in the working directory, if there]",
)
def serve(**flags: Any) -> int:  # noqa: ANN401 - one keyword per row of SETTINGS
    """Run the server until it is told to stop.

    ADDR is host:port (port 0: any free port; no host: every interface) or unix:PATH. A socket
    file is made for its owner alone. SIZE is a number of bytes, or one with a unit such as 64KiB
    or 10MB.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    settled = settle(given, os.environ, Path())
    check_doors(settled)
    from jobyard.server.server import run  # noqa: PLC0415 - see main.py

    return run(settled.config)
