"""`jobyard pipeline archive ...`: copies of topics in files, for longer than the server keeps."""

import signal
import threading
from pathlib import Path

import click

from jobyard.cli.groups import CommandGroup
from jobyard.cli.pipeline_options import DURATION, token_of, url_options

_folder_option = click.option(
    "--archive", "folder", type=click.Path(path_type=Path), required=True, metavar="DIR",
    help="The folder with the files.",
)  # fmt: skip


@click.group(cls=CommandGroup, short_help="Copy topics into files.")
def archive() -> None:
    """Copy logs and the history of jobs into Parquet files, and read them back.

    What is not copied yet is held: the server does not remove it.
    """


@archive.command(short_help="Copy what is new in a topic.")
@url_options
@click.option("--topic", required=True, metavar="NAME", help="A log, or _events.")
@_folder_option
@click.option(
    "--every",
    type=DURATION,
    metavar="TIME",
    help="Keep running, and look again after this time: 30s, 5m.",
)
@click.option("--allow-gap", is_flag=True, help="Go on where records are gone, and note the gap.")
def run(
    url: str, token_env: str | None, token_file: str | None, topic: str, folder: Path,
    every: float | None, allow_gap: bool,  # noqa: FBT001
) -> None:  # fmt: skip
    """Copy what is new in a topic; it may be killed at any time, the next run continues."""
    from jobyard.client import YardClient  # noqa: PLC0415  slow
    from jobyard.lake.archive import (  # noqa: PLC0415  imports pyarrow
        Archived,
        ArchiveRules,
        keep_archiving,
    )
    from jobyard.lake.archive import archive as archive_topic  # noqa: PLC0415  likewise

    def show(done: Archived) -> None:
        click.echo(f"{done.topic}: {done.rows} records in {done.files} files, up to {done.to_seq}")

    rules = ArchiveRules(allow_gaps=allow_gap)
    with YardClient(url, token_of(token_env, token_file)) as client:
        if every is None:
            show(archive_topic(client, topic, folder, rules))
            return
        stopped = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stopped.set())
        keep_archiving(client, topic, folder, rules, every_s=every, stopped=stopped, report=show)


@archive.command(short_help="Read all files back.")
@_folder_option
@click.option("--topic", default="", metavar="NAME", help="Only this topic.")
def verify(folder: Path, topic: str) -> None:
    """Read all files back, and compare counts and checksums."""
    from jobyard.lake.archive import verify as verify_archive  # noqa: PLC0415  imports pyarrow

    for one in verify_archive(folder, topic).topics:
        gaps = f", {len(one.gaps)} gaps" if one.gaps else ""
        click.echo(f"{one.topic}: {one.rows} records in {one.files} files{gaps}")
    click.echo("all files are as they were written")
