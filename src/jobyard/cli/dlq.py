"""`jobyard pipeline dlq ...`: dead letters by kind, and back into their queue."""

import json
from typing import TYPE_CHECKING, Any, Final

import click

from jobyard.cli.groups import CommandGroup
from jobyard.cli.pipeline_options import url_options
from jobyard.cli.pipeline_session import session_of
from jobyard.server.log import printable

if TYPE_CHECKING:
    from jobyard.spark.letters import RedriveResult

# Of the text of an error in a list.
ERROR_SHOWN_MAX: Final = 200
_queue_option = click.option("--queue", required=True, metavar="NAME", help="The queue.")
_master_option = click.option("--master", metavar="URL", default="local[*]", show_default=True,
                              help="Where Spark runs.")  # fmt: skip


@click.group(cls=CommandGroup, short_help="Dead letters of a queue.")
def dlq() -> None:
    """Show the dead letters and dead jobs of a queue by kind of error, and move them back."""


@dlq.command(short_help="Show dead letters by kind of error.")
@url_options
@_queue_option
@_master_option
def report(
    url: str, token_env: str | None, token_file: str | None, queue: str, master: str
) -> None:
    """Show one line for each kind: how many, since when, and an example."""
    from jobyard.spark.letters import dlq_report  # noqa: PLC0415  imports pyspark

    kinds = dlq_report(
        session_of(master)(), queue, **_options(url, token_env, token_file)
    ).collect()
    if not kinds:
        click.echo(f"{queue} has no dead letters and no dead jobs")
    for kind in kinds:
        error = (
            f"{kind.error_class}: {kind.error_message}"
            if kind.error_class
            else (kind.error_message or "no error was given")
        )
        click.echo(
            f"{kind['count']:>9,}  {kind.error_fingerprint or '-':16}  "
            f"{kind.first_seen:%Y-%m-%d %H:%M} to {kind.last_seen:%Y-%m-%d %H:%M}  "
            f"{kind.reason or '-'}  {printable(error)[:ERROR_SHOWN_MAX]}"
        )


@dlq.command(short_help="Move dead letters back into their queue.")
@url_options
@_queue_option
@_master_option
@click.option("--where", metavar="SQL", help="Which ones: error_class = 'TimeoutError'.")
@click.option("--patch", metavar="JSON", help="Merged into their data (RFC 7396).")
@click.option(
    "--rate", type=click.IntRange(1, 1_000_000), metavar="N", help="At most so many jobs a second."
)
@click.option("--dry-run", is_flag=True, help="Only show how many.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def redrive(  # noqa: PLR0913, PLR0917  one for each flag
    url: str, token_env: str | None, token_file: str | None, queue: str, master: str,
    where: str | None, patch: str | None, rate: int | None,
    dry_run: bool, yes: bool,  # noqa: FBT001
) -> int:  # fmt: skip
    """Move dead letters and dead jobs back into their queue, each once.

    Asks for the name of the queue first. It may be killed and run again.
    """
    merged = _patch(patch)
    from jobyard.spark import letters  # noqa: PLC0415  imports pyspark

    options = _options(url, token_env, token_file)
    found = letters.dlq(session_of(master)(), queue, **options)
    chosen = found.where(where) if where is not None else found
    # The same rows are counted and moved.
    chosen = chosen.cache()
    shown = letters.redrive(chosen, patch=merged, dry_run=True, **options)
    click.echo(f"{shown.moved} would be moved into {queue}{_more(shown)}")
    if dry_run or not shown.moved:
        return 1 if shown.stopped else 0
    asked = f"Type {queue} to move them"
    if not yes and click.prompt(asked, default="", show_default=False) != queue:
        click.echo("nothing was moved")
        return 1
    done = letters.redrive(chosen, patch=merged, rate=rate, **options)
    click.echo(f"{done.moved} were moved into {queue}{_more(done)}")
    return 1 if done.stopped else 0


def _more(done: "RedriveResult") -> str:
    parts = [f"{done.already} were moved before"] if done.already else []
    parts += [f"{count} skipped: {why}" for why, count in sorted(done.skipped.items())]
    if done.stopped:
        parts.append(f"{done.left} left: {done.stopped}")
    return "".join(f", {part}" for part in parts)


def _patch(text: str | None) -> dict[str, object] | None:
    if text is None:
        return None
    try:
        patch = json.loads(text)
    except ValueError as fault:
        raise click.UsageError(f"--patch is no JSON: {fault}") from None
    if not isinstance(patch, dict):
        raise click.UsageError("--patch must be a JSON object")
    return patch


def _options(url: str, token_env: str | None, token_file: str | None) -> dict[str, Any]:
    found = {"url": url, "tokenEnv": token_env, "tokenFile": token_file}
    return {name: value for name, value in found.items() if value is not None}
