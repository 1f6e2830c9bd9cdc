"""Options that commands of the pipeline share: how the server is reached, lake, times."""

import os
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from jobyard.config_values import quoted

if TYPE_CHECKING:
    from jobyard.client import Token

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION: Final = re.compile(r"-?([0-9]{1,9})([smhd])")
_URL_VARIABLE: Final = "JOBYARD_URL"
_URL_DEFAULT: Final = "http://127.0.0.1:6790"
_TOKEN_VARIABLE: Final = "JOBYARD_TOKEN"  # noqa: S105  the name of a variable
_F = TypeVar("_F", bound=Callable[..., Any])


class _Duration(click.ParamType[float]):
    """A number with a unit, as seconds."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the seconds."""
        match = _DURATION.fullmatch(str(value))
        if match is None or match[0].startswith("-") or int(match[1]) == 0:
            self.fail(f"{quoted(value)} is no duration: write 30s, 5m, 2h or 1d", param, ctx)
        return float(int(match[1]) * _UNITS[match[2]])


class _Since(click.ParamType[datetime | timedelta]):
    """A time, or how far to go back."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime | timedelta:
        """Return the time, or the distance."""
        text = str(value)
        match = _DURATION.fullmatch(text)
        if match is not None:
            return timedelta(seconds=int(match[1]) * _UNITS[match[2]])
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            self.fail(f"{quoted(value)} is no time: write -24h, 7d, or 2026-11-16", param, ctx)
        return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


DURATION: Final = _Duration()
SINCE: Final = _Since()

lake_option = click.option(
    "--lake", type=click.Path(path_type=Path), required=True, metavar="DIR",
    help="The folder with the tables.",
)  # fmt: skip


def url_options(function: _F) -> _F:
    """Add the options that say how the server is reached."""
    function = click.option(
        "--token-file", metavar="FILE", help="File with the key for the server."
    )(function)
    function = click.option(
        "--token-env", metavar="NAME",
        help=f"Variable with the key for the server.  [default: {_TOKEN_VARIABLE}]",
    )(function)  # fmt: skip
    return click.option(
        "--url", metavar="URL", envvar=_URL_VARIABLE, default=_URL_DEFAULT, show_default=True,
        help=f"The HTTP port of the server; also {_URL_VARIABLE}.",
    )(function)  # fmt: skip


def token_of(variable: str | None, file: str | None) -> "Token | None":
    """Return the key for the server; never from the command line, where others can read it."""
    from jobyard.client import Token  # noqa: PLC0415  slow, and only some commands need it

    if variable is not None and file is not None:
        raise click.UsageError("only one of --token-env and --token-file can be given")
    if file is not None:
        return Token(file=file)
    if variable is not None:
        return Token(variable=variable)
    text = os.environ.get(_TOKEN_VARIABLE, "")
    return Token(text) if text else None
