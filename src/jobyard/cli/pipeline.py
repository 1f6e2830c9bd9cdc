"""`jobyard pipeline ...`: tables and reports about the lives of jobs.

Only parses the command line and shows what is done. pyspark and pyarrow are imported by the
commands that need them, so that `jobyard --help` stays as fast as it is without them.
"""

import sys
import time
import webbrowser
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click

from jobyard.cli.archive import archive
from jobyard.cli.dlq import dlq
from jobyard.cli.pipeline_errors import PipelineGroup
from jobyard.cli.pipeline_options import DURATION, SINCE, lake_option, token_of, url_options
from jobyard.cli.pipeline_session import session_of
from jobyard.cli.pipeline_shown import Shown
from jobyard.server.log import printable

_FORMATS: Final = ("parquet", "delta", "iceberg")
_REPORT: Final = "report.html"
# What a run that goes on waits for: the server may be restarted meanwhile.
_PASSING: Final = ("unreachable", "cut_off", "lake_busy")


@click.group(cls=PipelineGroup, short_help="Tables and reports about the lives of jobs.")
def pipeline() -> None:
    """Make tables of the history of jobs, in a folder that other programs read (a lake).

    `run` takes in what is new, `report` writes one HTML file with plots. Needs
    pip install 'jobyard[spark,java]'.
    """


_format_option = click.option(
    "--table-format", type=click.Choice(_FORMATS), help="Of a new lake.  [default: parquet]"
)
_master_option = click.option(
    "--master", metavar="URL", default="local[*]", show_default=True,
    help="Where Spark runs: local[n], spark://host:port, or sc://host:port of Spark Connect.",
)  # fmt: skip
_slo_option = click.option(
    "--slo", type=click.Path(path_type=Path),
    help="File with objectives.  [default: slo.toml in the lake, if present]",
)  # fmt: skip


@pipeline.command(short_help="Take in what is new at a server.")
@url_options
@lake_option
@_format_option
@click.option("--once", is_flag=True, help="End when all is taken in; the default.")
@click.option(
    "--every",
    type=DURATION,
    metavar="TIME",
    help="Keep running, and look again after this time: 30s, 5m.",
)
@_master_option
@click.option(
    "--since", metavar="TIME", help="How far back the first run begins: -6h, or an ISO time."
)
@click.option("--batch", type=int, help="Numbers of the history in a batch.  [default: 250000]")
@_slo_option
@click.option("--allow-gap", is_flag=True, help="Go on where events are gone that were not read.")
def run(  # noqa: PLR0913, PLR0917  one for each flag
    url: str, token_env: str | None, token_file: str | None, lake: Path,
    table_format: str | None, once: bool, every: float | None, master: str,  # noqa: FBT001
    since: str | None, batch: int | None, slo: Path | None, allow_gap: bool,  # noqa: FBT001
) -> None:  # fmt: skip
    """Take the events of a server into the tables of a lake.

    It may be interrupted or killed at any time; the next run continues. On a terminal it shows its
    progress, elsewhere it writes one line of JSON for each batch.
    """
    if once and every is not None:
        raise click.UsageError("only one of --once and --every can be given")
    from jobyard.spark import pipeline as spark_pipeline  # noqa: PLC0415  imports pyspark

    shown = Shown(sys.stdout)
    more: dict[str, Any] = {} if batch is None else {"batch": batch}

    def take_in() -> None:
        done = spark_pipeline.run(
            session_of(master), url=url, lake=lake, table_format=table_format,
            token=token_of(token_env, token_file), since=since, slo=slo, allow_gap=allow_gap,
            progress=shown.tell, **more,
        )  # fmt: skip
        shown.end(done)

    if every is None:
        take_in()
    else:
        _go_on(take_in, every, shown)


def _go_on(take_in: Callable[[], None], every_s: float, shown: Shown) -> None:
    """Take in again and again; a server that is away for a while is waited for."""
    from jobyard.client.errors import JobyardError  # noqa: PLC0415  slow, and only needed here

    while True:
        begun_s = time.monotonic()
        try:
            take_in()
        except JobyardError as error:
            if error.code not in _PASSING:
                raise
            shown.pause()
            text = f"jobyard pipeline run: {error.message}; trying again"
            click.echo(printable(text), err=True)
        time.sleep(max(0.0, every_s - (time.monotonic() - begun_s)))


@pipeline.command(short_help="Make tables again from the events in the lake.")
@lake_option
@_master_option
@click.option("--since", metavar="TIME", help="The first day: an ISO date, or -3d.")
@click.option("--until", metavar="TIME", help="The day after the last one.")
@_slo_option
def backfill(
    lake: Path, master: str, since: str | None, until: str | None, slo: Path | None
) -> None:
    """Make all tables but `events` again from `events`, for some days or all."""
    from jobyard.spark import pipeline as spark_pipeline  # noqa: PLC0415  imports pyspark

    done = spark_pipeline.backfill(session_of(master)(), lake, since, until, slo=slo)
    click.echo(f"{done.partitions} partitions made from {done.events} events")


@pipeline.command(short_help="Merge small files of days that are over.")
@lake_option
def compact(lake: Path) -> None:
    """Merge small files of `events` of days that are over. Safe beside a `run`."""
    from jobyard.lake import open_lake  # noqa: PLC0415  imports pyarrow
    from jobyard.lake.compaction import compact as compact_lake  # noqa: PLC0415  likewise

    done = compact_lake(open_lake(lake), datetime.now(UTC))
    click.echo(f"{done.files_before} files of {done.days} days became {done.files_after}")


@pipeline.command(short_help="Compare tables with each other and with the server.")
@lake_option
@click.option("--url", metavar="URL", help="Also count the events of this server.")
@click.option("--token-env", metavar="NAME", help="Variable with the key for the server.")
@click.option("--token-file", metavar="FILE", help="File with the key for the server.")
def check(lake: Path, url: str | None, token_env: str | None, token_file: str | None) -> int:
    """Read all tables, and say what is damaged or differs. The exit code is 1 if anything does."""
    from jobyard.lake import open_lake  # noqa: PLC0415  imports pyarrow
    from jobyard.lake.checking import check as check_files  # noqa: PLC0415  likewise
    from jobyard.spark import pipeline as spark_pipeline  # noqa: PLC0415  imports pyspark

    damaged = check_files(open_lake(lake))
    found = [f"{one.kind} {one.table} {one.path}: {one.message}" for one in damaged]
    if not found:
        differing = spark_pipeline.check(lake, url, token=token_of(token_env, token_file))
        found = [", ".join(part for part in one if part) for one in differing]
    for line in found:
        click.echo(line)
    click.echo(f"findings: {len(found)}" if found else "no differences")
    return 1 if found else 0


@pipeline.command(short_help="Write an HTML report, and print a summary.")
@lake_option
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path(_REPORT), show_default=True,
    help="The file to write.",
)  # fmt: skip
@click.option("--since", type=SINCE, metavar="TIME", help="Only what is newer: -24h, 7d, ISO time.")
@click.option("--queue", metavar="NAME", help="Only this queue.")
@click.option("--open", "is_opened", is_flag=True, help="Show it in the browser.")
def report(
    lake: Path,
    out: Path,
    since: datetime | timedelta | None,
    queue: str | None,
    is_opened: bool,  # noqa: FBT001
) -> None:
    """Write one HTML file with plots and tables; it needs neither network nor Spark."""
    from jobyard.lake import open_lake  # noqa: PLC0415  imports pyarrow
    from jobyard.lake.report import report as write_report  # noqa: PLC0415  likewise
    from jobyard.lake.report import summary  # noqa: PLC0415  likewise

    opened = open_lake(lake)
    now = datetime.now(UTC)
    path = write_report(opened, since=since, queue=queue, out=out, now=now)
    click.echo(summary(opened, since=since, queue=queue, now=now, colours=sys.stdout.isatty()))
    click.echo(f"\nreport: {path}")
    if is_opened:
        webbrowser.open(path.absolute().as_uri())


@pipeline.command(short_help="Show how far the tables go.")
@lake_option
@click.option("--json", "is_json", is_flag=True, help="As one JSON object.")
def status(lake: Path, is_json: bool) -> None:  # noqa: FBT001
    """Show rows, files, bytes and age of each table, and the position in each server's history."""
    from jobyard.lake import open_lake  # noqa: PLC0415  imports pyarrow
    from jobyard.lake.status import status as status_of  # noqa: PLC0415  likewise

    found = status_of(open_lake(lake))
    click.echo(found.as_json() if is_json else found.as_text(datetime.now(UTC)))


pipeline.add_command(archive)
pipeline.add_command(dlq)
