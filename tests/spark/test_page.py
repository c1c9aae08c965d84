"""The page on Spark runs like the others, on the one Spark of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.docs.test_docs import ON_SPARK, check_page

pytestmark = pytest.mark.spark


def test_the_page_on_spark_runs_and_prints_what_it_says(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_page(ON_SPARK, tmp_path, monkeypatch)
