"""The Spark session of a command, made when it is needed."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session_of(master: str) -> "Callable[[], SparkSession]":
    """Return what makes the session, once, when it is needed."""

    def made() -> "SparkSession":
        from jobyard.spark.session import session  # noqa: PLC0415  imports pyspark

        where = "spark.remote" if master.startswith("sc://") else "spark.master"
        return session(
            "jobyard-pipeline",
            **{
                where: master,
                "spark.ui.enabled": False,
                "spark.ui.showConsoleProgress": False,
                "spark.log.level": "ERROR",
            },
        )

    return made
