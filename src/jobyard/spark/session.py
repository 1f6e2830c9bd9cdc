"""A Spark session that is set up for Jobyard, and the registration of the format in any session."""

import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Final

from pyspark import cloudpickle

import jobyard
from jobyard.spark.java import java_home
from jobyard.spark.source import JobyardSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_SETTINGS: Final = {
    # Times of a yard have no zone of a machine.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
}


def session(app: str = "jobyard", **conf: object) -> "SparkSession":
    """Return a session that can read a yard.

    Settings of Spark are given by name: `session(**{"spark.master": "local[4]"})`; they win over
    ours. A session that exists already is returned with them.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415  slow, and Java must be known first

    is_started = SparkSession.getActiveSession() is not None
    is_remote = "spark.remote" in conf or "SPARK_REMOTE" in os.environ
    if not is_started and not is_remote:
        os.environ["JAVA_HOME"] = java_home()
    # Else workers run whichever python3 is first on the path, perhaps without pyarrow.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app)
    for name, value in {**SPARK_SETTINGS, **conf}.items():
        builder = builder.config(name, _text(value))
    return register(builder.getOrCreate())


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def register(spark: "SparkSession") -> "SparkSession":
    """Make the format known to a session that something else made, and return the session."""
    if is_zipped(jobyard):
        # Executors cannot import what only this process has: it is sent to them as a whole.
        cloudpickle.register_pickle_by_value(jobyard)  # type: ignore[no-untyped-call]
    spark.dataSource.register(JobyardSource)
    return spark


def is_zipped(module: ModuleType) -> bool:
    """Return whether a package was loaded from a zip file."""
    return type(module.__loader__).__name__ == "zipimporter"
