"""The tests of merges once more, with executors to compare every type: whole tables, one case at a time."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from omnigraph import Graph
from omnigraph.engine.merge.merge import MergeOutcome
from omnigraph.pipeline import merge


@pytest.fixture(autouse=True)
def by_executors(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let executors do it."""

    def merged(graph: Graph, source: str, into: str = "main", **options: Any) -> MergeOutcome:
        return merge(spark, graph, source, into, large_rows=0, **options)

    monkeypatch.setattr(Graph, "merge", merged)
