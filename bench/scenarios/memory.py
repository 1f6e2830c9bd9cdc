"""Memory: how much a server grows for each waiting job.

Resident memory before and after a fill, divided by the jobs. One round: these values are not
noisy, and no time is measured.
"""

from bench.run import Run, say

__all__ = ["SERVERS", "measure_memory"]

SERVERS = ("beanstalkd", "jobyard-memory", "jobyard-durable")


def measure_memory(run: Run) -> None:
    """Fill each server and measure its memory."""
    jobs = run.settings.jobs
    for kind in run.kinds(SERVERS):
        say(f"memory {kind.name}, {jobs:,} jobs")
        with run.stable.serving(kind) as server:
            before = server.rss_bytes()
            result = run.fill(server, jobs)
            after = server.rss_bytes()
        run.figures.add(f"memory.{kind.name}.bytes_per_job", (after - before) / jobs)
        run.figures.add(f"memory.{kind.name}.empty_bytes", before)
        run.figures.add(f"memory.{kind.name}.fill_ops_per_s", result.ops_per_s)
