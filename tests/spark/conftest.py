"""One Spark for all tests that need it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from omnigraph.pipeline.session import spark_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session whose executors run this interpreter."""
    session = spark_session("local[2]", {"spark.sql.shuffle.partitions": "4", "spark.driver.memory": "2g"})
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
