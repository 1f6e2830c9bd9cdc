"""Writing: the same bodies through Spark, and by two plain Python processes without it."""

import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession

__all__ = ["make_bodies", "plain_send", "write"]

SENDERS: Final = 2
# JSON of exactly 100 bytes that compression cannot make much smaller.
BODY: Final = """concat('{"id":', 1000000000 + id, ',"text":"', sha2(string(id), 256),
    substr(md5(string(id)), 1, 9), '"}') AS value"""


def make_bodies(spark: SparkSession, path: str, rows: int) -> dict[str, float]:
    """Write bodies as Parquet, a file for each of two cores."""
    spark.range(0, rows, 1, SENDERS).selectExpr(BODY).write.parquet(path)
    return {}


def write(spark: SparkSession, path: str, options: Mapping[str, str]) -> dict[str, float]:
    """Write all bodies to a yard."""
    began = time.monotonic()
    bodies = spark.read.parquet(path)
    bodies.write.format("jobyard").mode("append").options(**options).save()
    return {"seconds": time.monotonic() - began}


def plain_send(_spark: SparkSession, path: str, url: str, topic: str) -> dict[str, float]:
    """Send the same bodies by processes that know only the client, without their start."""
    senders = [
        subprocess.Popen(
            [sys.executable, "-m", "bench.spark_jobs.sender", path, str(part), url, topic],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for part in range(SENDERS)
    ]  # fmt: skip
    try:
        for sender in senders:
            assert sender.stdout is not None
            if not sender.stdout.readline():
                raise RuntimeError("a sender did not start")
        began = time.monotonic()
        for sender in senders:
            assert sender.stdin is not None
            sender.stdin.close()
        if any(sender.wait() for sender in senders):
            raise RuntimeError("a sender failed")
        return {"seconds": time.monotonic() - began}
    finally:
        for sender in senders:
            sender.kill()
            sender.wait()
            assert sender.stdout is not None
            sender.stdout.close()
