"""By this name Spark finds the format without a call: it imports every module `pyspark_*`."""

from jobyard.spark.source import JobyardSource as DefaultSource

__all__ = ["DefaultSource"]
