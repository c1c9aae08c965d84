"""One Spark for all tests that need it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from omnigraph.pipeline.session import START, spark_session

# Jobs of a test are over before a compiler that optimises, or a collector with threads, has paid for itself.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
CONFIG = {
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": f"{START['spark.driver.extraJavaOptions']} {SHORT_LIVED}",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session whose executors run this interpreter."""
    session = spark_session("local[2]", CONFIG)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
