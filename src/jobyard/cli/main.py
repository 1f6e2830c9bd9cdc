"""The subcommands, and `main`, which turns every error into one line and an exit code.

Contains no logic of single commands. Commands import the server when they need it, so --help and
--version are fast and work even where the server cannot start.
"""

import sys
from collections.abc import Sequence
from typing import Final

import click

from jobyard.cli.beanstalkd import beanstalkd
from jobyard.cli.directory import check, repair
from jobyard.cli.groups import CommandGroup
from jobyard.cli.pipeline import pipeline
from jobyard.cli.serve import serve
from jobyard.cli.version import version_text
from jobyard.config import EXIT_USAGE
from jobyard.config_values import suggestion
from jobyard.errors import StartRefused
from jobyard.server.log import printable

# The exit code that a shell reports after Ctrl-C.
EXIT_INTERRUPTED: Final = 130


def _show_version(ctx: click.Context, _param: click.Parameter, is_asked: bool) -> None:  # noqa: FBT001 - the callback's shape is click's
    if is_asked:
        click.echo(version_text())
        ctx.exit()


@click.group(
    cls=CommandGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Run `jobyard COMMAND --help` for details.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
@click.pass_context
def jobyard(ctx: click.Context) -> None:
    """One durable job queue that existing clients can use unchanged."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


for _command in (serve, beanstalkd, check, repair, pipeline):
    jobyard.add_command(_command)


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    words = list(sys.argv[1:] if args is None else args)
    try:
        # click returns the command's result, or the code of ctx.exit().
        code = jobyard.main(words, prog_name="jobyard", standalone_mode=False)
    except click.UsageError as error:
        return _refuse(_place(error.ctx), _reason(error), EXIT_USAGE)
    except click.ClickException as error:
        return _refuse("jobyard", error.format_message(), error.exit_code)
    except StartRefused as refusal:
        return _refuse("jobyard", str(refusal), refusal.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    return code if isinstance(code, int) else 0


def _place(ctx: click.Context | None) -> str:
    return ctx.command_path if ctx is not None else "jobyard"


def _reason(error: click.UsageError) -> str:
    if isinstance(error, click.NoSuchOption):
        known = [
            name
            for param in (error.ctx.command.params if error.ctx is not None else [])
            for name in param.opts
        ]
        hint = suggestion(error.option_name, known)
        return f"no such option {error.option_name}{hint}"
    message = error.format_message()
    return message[:1].lower() + message[1:].rstrip(".")


def _refuse(place: str, reason: str, exit_code: int) -> int:
    # The reason may quote user input; print it on one line without control characters.
    click.echo(f"{place}: {printable(reason)}", err=True)
    return exit_code
