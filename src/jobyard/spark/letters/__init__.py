"""Dead letters of a queue: as a table, as a report by kind of error, and back into the queue."""

from jobyard.spark.letters.redrive import RedriveResult, redrive
from jobyard.spark.letters.table import dlq, dlq_report

__all__ = ["RedriveResult", "dlq", "dlq_report", "redrive"]
