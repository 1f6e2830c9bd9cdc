"""Reading tables of any format, planned again each time, into a sink that drops every row."""

import time
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

__all__ = ["count", "keep", "read", "table"]


def table(
    spark: SparkSession,
    format: str,  # noqa: A002  Spark's word
    options: Mapping[str, str],
    schema: str = "",
    where: str = "",
) -> DataFrame:
    """Return a table as a user would ask for it."""
    reader = spark.read.format(format).options(**options)
    found = (reader.schema(schema) if schema else reader).load()
    return found.where(where) if where else found


def read(spark: SparkSession, **asked: str) -> dict[str, float]:
    """Read a table to its end; the time is from `load` on."""
    began = time.monotonic()
    table(spark, **asked).write.format("noop").mode("overwrite").save()  # type: ignore[arg-type]
    return {"seconds": time.monotonic() - began}


def count(spark: SparkSession, **asked: str) -> dict[str, float]:
    """Count the rows of a table, and the different ones."""
    found = table(spark, **asked).selectExpr("count(*)", "count(distinct seq)").first()  # type: ignore[arg-type]
    assert found is not None
    return {"rows": found[0], "distinct": found[1]}


def keep(spark: SparkSession, path: str, **asked: str) -> dict[str, float]:
    """Write a table as Parquet."""
    table(spark, **asked).write.parquet(path)  # type: ignore[arg-type]
    return {}
