"""A Spark session that is set up for Jobyard, and the registration of the format in any session."""

import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Final

from pyspark import cloudpickle

import jobyard
from jobyard.client.errors import bad_option
from jobyard.spark.java import java_home
from jobyard.spark.source import FORMAT, JobyardSource

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
    for name in conf:
        _check_setting(name)
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


def _check_setting(name: str) -> None:
    """Refuse a name that Spark would pass over in silence."""
    if name.startswith("spark."):
        return
    dotted = name.replace("_", ".")
    full = dotted if dotted.startswith("spark.") else f"spark.{dotted}"
    raise bad_option(
        name,
        f"settings of Spark begin with spark., and {name} does not",
        f'Write session(**{{"{full}": ...}}).',
    )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def register(spark: "SparkSession") -> "SparkSession":
    """Make the format known to a session that something else made, and return the session."""
    if is_zipped(jobyard):
        # Executors cannot import what only this process has: it is sent to them as a whole.
        cloudpickle.register_pickle_by_value(jobyard)  # type: ignore[no-untyped-call]
    if is_zipped(jobyard) or not _is_known(spark):
        spark.dataSource.register(JobyardSource)
    return spark


def _is_known(spark: "SparkSession") -> bool:
    """Return whether Spark has found the format by itself; it warns if it is then registered."""
    # A session of Spark Connect has no Java here to ask.
    state = getattr(spark, "_jsparkSession", None)
    if state is None:
        return False
    return bool(state.sessionState().dataSourceManager().dataSourceExists(FORMAT))


def is_zipped(module: ModuleType) -> bool:
    """Return whether a package was loaded from a zip file."""
    return type(module.__loader__).__name__ == "zipimporter"
