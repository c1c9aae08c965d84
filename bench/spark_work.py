"""What does Spark make of large maintenance: indexes, merges and diffs, against one process?

    indexes  the indexes of a graph that a bulk load left without any, built here and by executors
    merge    a branch that changed many edges into a main that changed others, here and by executors; with
             the memory that the driver took
    diff     the changes of that branch, counted here and by executors

    .venv/bin/python bench/spark_work.py [indexes] [merge] [diff] [--nodes N --edges N --changed N] [--json]

On one machine both have the same cores: what executors save is memory of the driver, and on a cluster time.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from spark_load import SCHEMA, arguments, ground, show, timed, write_inputs
from writes import PeakMemory

import omnigraph as og
from omnigraph.engine.graph import Graph
from omnigraph.pipeline import diff, ensure_indexes, load, merge


def measure_indexes(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """Build the same indexes in two copies of a graph."""
    shutil.copytree(folder / "graph.og", folder / "copy.og")
    with og.connect(folder / "copy.og") as graph:
        here = timed(lambda: graph.ensure_indexes())
    shutil.rmtree(folder / "copy.og")
    shutil.copytree(folder / "graph.og", folder / "copy.og")
    with og.connect(folder / "copy.og") as graph:
        there = timed(lambda: ensure_indexes(spark, graph))
    shutil.rmtree(folder / "copy.og")
    return {"indexes here s": round(here, 1), "indexes on Spark s": round(there, 1)}


def change(spark: SparkSession, graph: Graph, branch: str, first: int, count: int) -> None:
    """Give so many edges another year."""
    frame = spark.range(first, first + count).selectExpr(
        "concat('edge-', lpad(id, 9, '0')) as id",
        "concat('person-', lpad(id % 1000, 9, '0')) as `from`",
        "concat('person-', lpad(id % 1000, 9, '0')) as `to`",
        "1900 as since",
    )
    load(spark, graph, {"Knows": frame}, mode="merge", branch=branch)


def measure_merge(spark: SparkSession, graph: Graph, changed: int) -> dict[str, Any]:
    """Merge one branch into two copies of main."""
    for name in ("side", "here", "there"):
        graph.branches.create(name)
    change(spark, graph, "side", 0, changed)
    for name in ("here", "there"):
        change(spark, graph, name, 2 * changed, changed // 2)
    with PeakMemory() as held:
        there = timed(lambda: merge(spark, graph, "side", "there", large_rows=0))
    with PeakMemory() as holding:
        here = timed(lambda: graph.merge("side", "here"))
    assert diff(spark, graph, "here", "there").count() == 0
    return {
        "merge here s": round(here, 1),
        "merge here, memory growth MiB": holding.mib - holding.before,
        "merge on Spark s": round(there, 1),
        "merge on Spark, memory growth MiB": held.mib - held.before,
    }


def measure_diff(spark: SparkSession, graph: Graph) -> dict[str, Any]:
    """Count the changes of a branch."""
    here = timed(lambda: graph.diff("main", "side").types)
    there = timed(lambda: diff(spark, graph, "main", "side", type="Knows").groupBy("op").count().collect())
    return {"diff here s": round(here, 1), "diff on Spark s": round(there, 1)}


def main() -> None:
    """Measure and report."""
    parser = arguments(__doc__, "indexes, merge, diff; all unless told")
    parser.add_argument("--changed", type=int, default=2_000_000, help="edges that the branch changes")
    options = parser.parse_args()
    parts = options.parts or ["indexes", "merge", "diff"]
    report: dict[str, Any] = {}
    with ground() as (spark, folder):
        inputs = write_inputs(folder, options.nodes, options.edges)
        with og.init(folder / "graph.og", SCHEMA) as graph:
            load(spark, graph, inputs, mode="append")
            if "indexes" in parts:
                report |= measure_indexes(spark, folder)
            if "merge" in parts or "diff" in parts:
                report |= measure_merge(spark, graph, options.changed)
            if "diff" in parts:
                report |= measure_diff(spark, graph)
    show(report, as_json=options.json)


if __name__ == "__main__":
    main()
