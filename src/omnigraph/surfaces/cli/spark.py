"""Spark: the session that a command works with, when it is asked to work on Spark.

Room    surfaces.cli. PySpark is an extra, so nothing is imported before somebody asks.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from omnigraph.base.errors import InvalidRequest


class Worker(StrEnum):
    """Who does the work."""

    LOCAL = "local"
    SPARK = "spark"


WorkerFlag = Annotated[
    Worker, typer.Option("--engine", help="Who does the work: this process, or Spark, for many rows.")
]


def spark_here() -> Any:
    """Return a session in this process."""
    try:
        from omnigraph.pipeline.session import spark_session
    except ImportError as error:
        raise InvalidRequest("PySpark is not installed", remedy="pip install 'omnigraph[spark]'") from error
    spark = spark_session()
    context = getattr(spark, "sparkContext", None)  # behind Spark Connect there is none
    if context is not None:
        context.setLogLevel("ERROR")
    return spark
