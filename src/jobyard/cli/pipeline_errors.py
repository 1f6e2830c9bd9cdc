"""How errors of the pipeline reach the user: at most three lines on stderr, and an exit code."""

from typing import TYPE_CHECKING, Final

import click

from jobyard.cli.groups import CommandGroup
from jobyard.config import EXIT_USAGE
from jobyard.server.log import printable

if TYPE_CHECKING:
    from jobyard.client.errors import JobyardError

EXIT_FAILED: Final = 1
_PACKAGES: Final = frozenset({"pyspark", "pyarrow", "pandas", "numpy"})
# Codes for which the command line was wrong.
_USAGE: Final = ("bad_option", "bad_url", "bad_token")


class PipelineGroup(CommandGroup):
    """A group whose commands show a JobyardError, or a missing package, and no traceback."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        # Not at the top: it loads what only these commands need.
        from jobyard.client.errors import JobyardError  # noqa: PLC0415

        try:
            return super().invoke(ctx)
        except JobyardError as error:
            return _show(ctx, error)
        except ImportError as fault:
            name = (fault.name or "").partition(".")[0]
            if name not in _PACKAGES:
                raise
            text = f"{_place(ctx)}: {name} is not installed: pip install 'jobyard[spark,java]'"
            click.echo(text, err=True)
            return EXIT_USAGE


def _show(ctx: click.Context, error: "JobyardError") -> int:
    for line in f"{_place(ctx)}: {error}".splitlines():
        click.echo(printable(line), err=True)
    return EXIT_USAGE if error.code in _USAGE else EXIT_FAILED


def _place(ctx: click.Context) -> str:
    called = ctx.invoked_subcommand
    return f"{ctx.command_path} {called}" if called else ctx.command_path
