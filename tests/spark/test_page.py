"""The pages on Spark run like the others, on the one Spark of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.docs.test_docs import ON_SPARK, ROOT, check_page

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("page", ON_SPARK, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_page_on_spark_runs_and_prints_what_it_says(
    page: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_page(page, tmp_path, monkeypatch)
