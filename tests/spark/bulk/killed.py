"""Bulk loads that are killed half way, and the graph they start from.

Spawned children import this module by name; no pytest here. Each child is a driver of its own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import omnigraph as og
from omnigraph import Graph
from omnigraph.engine.write import Receipt
from omnigraph.pipeline import load, spark_session
from tests.support.death import die_at
from tests.support.people import SCHEMA, knows, person

SETTLED = 4_200  # rows past the first tier
KEY = "the one load"


def make_base(folder: Path) -> str:
    """Make the graph that all start from, and the input beside it; return its address."""
    address = str(folder / "base.og")
    with og.init(address, SCHEMA, durability="os") as graph:
        graph.load([person(f"p{n}", age=n % 100) for n in range(SETTLED)], mode="append")
    rows = [person(f"p{n}", note="new") for n in range(SETTLED - 50, 2 * SETTLED)] + [knows("p0", "p5000")]
    (folder / "input.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return address


def bulk(graph: Graph) -> Receipt:
    """Replace some people and add others, by executors to the end; the input lies beside the graph."""
    spark = spark_session("local[1]", {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"})
    path = Path(graph.uri.removeprefix("file://")).parent / "input.jsonl"
    return load(spark, graph, path, mode="merge", driver_rows=0, idempotency_key=KEY)


def perform(address: str, point: str, passage: int) -> None:
    """Run the load in a driver of its own, and die at the n-th passage of a point."""
    die_at(bulk, address, {}, point, passage)


Rows = dict[str, list[dict[str, Any]]]
