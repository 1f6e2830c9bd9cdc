"""Bunqueue: PUSH, PULL, ACK of 100-byte jobs, the yard's bunqueue door against the original.

Four shapes of single commands; the same under a lock, with owner and token; and PUSHB, PULLB,
ACKB of 50 jobs. Every measurement has a fresh server, and ends with a check of the server's own
count: jobs that were acknowledged but not counted would be false speed.
"""

from bench.clients.ask import read_ledger
from bench.load import BenchError, LoadResult, Shape
from bench.run import Run, say

__all__ = ["BUNDLES", "SERVERS", "SHAPES", "measure_bunqueue"]

# The original works on 50 requests of a connection at once; the others wait.
SHAPES = (Shape(1, 1), Shape(16, 1), Shape(64, 1), Shape(4, 50), Shape(4, 50, is_owned=True))
BUNDLES = (Shape(4, 1, bundle=50),)
SERVERS = (
    "bunqueue",
    "jobyard-bunqueue-memory",
    "bunqueue-sqlite",
    "jobyard-bunqueue-durable",
)
OPERATIONS_PER_JOB = 3


def measure_bunqueue(run: Run) -> None:
    """Measure every server at every shape."""
    for shape in (*SHAPES, *BUNDLES):
        say(f"bunqueue {shape}")
        for _ in range(run.settings.rounds):
            for kind in run.kinds(SERVERS):
                prefix = f"bunqueue.{kind.name}.{shape}"
                with run.stable.serving(kind) as server:
                    result = run.cycle(server, shape, prefix)
                    check_ledger(server.port, result)
                if shape in BUNDLES:
                    note_jobs(run, prefix, result)


def check_ledger(port: int, result: LoadResult) -> None:
    """Check that the server counted the jobs the load saw finished, and holds no other."""
    ledger = read_ledger(port)
    jobs = result.jobs_finished
    if (ledger.pushed, ledger.pulled, ledger.completed, ledger.standing) != (
        jobs,
        jobs,
        jobs,
        0,
    ):
        raise BenchError(f"the load finished {jobs} jobs, the server counts {ledger}")


def note_jobs(run: Run, prefix: str, result: LoadResult) -> None:
    """Record speed and cost of whole jobs: pushed, pulled and finished."""
    run.figures.add(f"{prefix}.jobs_per_s", result.ops_per_s / OPERATIONS_PER_JOB)
    if result.server_us_per_op is not None:
        run.figures.add(f"{prefix}.server_us_per_job", result.server_us_per_op * OPERATIONS_PER_JOB)
