"""How fast does Spark fill and read a graph, against what Spark does with plain Parquet?

    load     nodes and edges from Parquet with key, unique and endpoint checks, over Spark's own write of the
             same rows as Parquet; and how much the driver's memory grew
    upsert   existing and new rows into the edges that the load left, by each way there is
    read     all columns back as a DataFrame and by the format, over reading the same rows from Parquet
    big      many small rows (50,000,000), with 4 GiB of Spark memory

    .venv/bin/python bench/spark_load.py [load] [upsert] [read] [big] [--nodes N --edges N --rows N] [--json]

Every figure is taken in one session; the first, small job of each kind warms it up.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from writes import PeakMemory

import omnigraph as og
from omnigraph.engine.graph import Graph
from omnigraph.pipeline import load, read, register, spark_session
from omnigraph.pipeline.bulk.staged_rows import Way

SCHEMA = """
node Person { name: String @key  age: I32?  email: String? @unique  city: String? }
edge Knows: Person -> Person { since: I32? }
"""
WAYS: tuple[Way, ...] = ("driver", "deletions", "rewrite")


def people(first: int, count: int) -> pa.Table:
    """Return nodes with text keys and a unique property."""
    random = np.random.default_rng(first)
    names = [f"person-{n:09d}" for n in range(first, first + count)]
    return pa.table(
        {
            "name": names,
            "age": pa.array(random.integers(0, 100, count), pa.int32()),
            "email": [f"{name}@example.org" for name in names],
            "city": [f"city-{n}" for n in random.integers(0, 500, count)],
        }
    )


def write_inputs(folder: Path, nodes: int, edges: int) -> dict[str, str]:
    """Write a random graph."""
    every = people(0, nodes)
    pq.write_table(every, folder / "Person.parquet", row_group_size=1 << 18)
    random, names = np.random.default_rng(7), every["name"].combine_chunks()
    with pq.ParquetWriter(
        folder / "Knows.parquet",
        pa.schema([("id", pa.string()), ("from", pa.string()), ("to", pa.string()), ("since", pa.int32())]),
    ) as writer:
        for first in range(0, edges, 1 << 18):
            count = min(1 << 18, edges - first)
            writer.write_table(
                pa.table(
                    {
                        "id": [f"edge-{n:09d}" for n in range(first, first + count)],
                        "from": names.take(pa.array(random.integers(0, nodes, count))),
                        "to": names.take(pa.array(random.integers(0, nodes, count))),
                        "since": pa.array(random.integers(1990, 2026, count), pa.int32()),
                    }
                )
            )
    return {"Person": str(folder / "Person.parquet"), "Knows": str(folder / "Knows.parquet")}


def timed(action: Callable[[], Any]) -> float:
    """Return how many seconds something takes."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def plain_write(spark: SparkSession, inputs: dict[str, str], out: Path) -> None:
    """Let Spark write the same rows as Parquet."""
    for name, path in inputs.items():
        spark.read.parquet(path).write.mode("overwrite").parquet(str(out / name))


def consume(frame: DataFrame) -> None:
    """Read all columns of all rows, and keep nothing."""
    frame.write.format("noop").mode("overwrite").save()


def warm(spark: SparkSession, folder: Path) -> None:
    """Start the workers and compile what both sides use."""
    small = folder / "small"
    small.mkdir()
    inputs = write_inputs(small, 2_000, 10_000)
    plain_write(spark, inputs, small / "out")
    with og.init(small / "graph.og", SCHEMA) as graph:
        load(spark, graph, inputs, mode="append", driver_rows=0)
        consume(read(spark, graph, "Knows"))


def measure_load(
    spark: SparkSession, folder: Path, inputs: dict[str, str], rows: int, rounds: int
) -> dict[str, Any]:
    """Compare loads with Spark's own writes, in turns: what else the machine does passes over both."""
    found = []
    with PeakMemory() as memory:
        for _ in range(rounds):
            plain = timed(lambda: plain_write(spark, inputs, folder / "plain"))
            shutil.rmtree(folder / "graph.og", ignore_errors=True)
            with og.init(folder / "graph.og", SCHEMA) as graph:
                mine = timed(lambda graph=graph: load(spark, graph, inputs, mode="append"))  # type: ignore[misc]
            found.append((mine / plain, plain, mine))
    ratio, plain, mine = sorted(found)[len(found) // 2]
    return {
        "plain Parquet write s": round(plain, 1),
        "load s": round(mine, 1),
        "load / plain": round(ratio, 2),
        "load / plain, each round": [round(one, 2) for one, _, _ in found],
        "rows/s": int(rows / mine),
        "driver memory growth MiB": memory.mib - memory.before,
    }


def measure_upsert(spark: SparkSession, graph: Graph, nodes: int, edges: int, rows: int) -> dict[str, Any]:
    """Replace and add edges by each way, on branches of the same graph, and by the one that is chosen."""
    random = np.random.default_rng(3)
    old = random.choice(edges, rows, replace=False)
    ids = [f"edge-{n:09d}" for n in old] + [f"edge-{n:09d}" for n in range(edges, edges + rows)]
    ends = [f"person-{n:09d}" for n in random.integers(0, nodes, 2 * rows)]
    frame = spark.createDataFrame(pa.table({"id": ids, "from": ends, "to": ends[::-1]}))
    found: dict[str, Any] = {}
    for name, way in (("warm", None), ("chosen", None), *((way, way) for way in WAYS)):
        graph.branches.create(f"upsert-{name}")
        branch = f"upsert-{name}"
        seconds = timed(
            lambda way=way, branch=branch: check_upsert(  # type: ignore[misc]
                load(spark, graph, {"Knows": frame}, mode="merge", branch=branch, upsert=way, driver_rows=0),
                rows,
            )
        )
        if name != "warm":  # the first to look the ids up reads them from disk
            found[f"upsert {name} s"] = round(seconds, 1)
    best = min(found[f"upsert {way} s"] for way in WAYS)
    return {**found, "chosen / best": round(found["upsert chosen s"] / best, 2)}


def check_upsert(receipt: Any, rows: int) -> None:
    """Make sure that the right rows were replaced."""
    (count,) = receipt.types
    assert (count.inserted, count.updated) == (rows, rows), count


def measure_read(spark: SparkSession, folder: Path, graph: Graph) -> dict[str, Any]:
    """Read all columns of the edges: from Parquet, as a DataFrame of the graph, and by the format."""
    read(spark, graph, "Knows").write.mode("overwrite").parquet(str(folder / "same"))
    register(spark)
    frames = {
        "Parquet": lambda: spark.read.parquet(str(folder / "same")),
        "graph": lambda: read(spark, graph, "Knows"),
        "format": lambda: spark.read.format("omnigraph").option("type", "Knows").load(graph.uri),
    }
    rounds = [
        {name: timed(lambda made=made: consume(made())) for name, made in frames.items()}  # type: ignore[misc]
        for _ in range(3)
    ]
    found: dict[str, Any] = {f"read {name} s": round(min(r[name] for r in rounds), 2) for name in frames}
    for name in ("graph", "format"):
        ratios = [r[name] / r["Parquet"] for r in rounds]
        found[f"read {name} / Parquet"] = round(sorted(ratios)[1], 2)
        found[f"read {name} / Parquet, each round"] = [round(ratio, 2) for ratio in ratios]
    return found


def measure_big(spark: SparkSession, folder: Path, rows: int) -> dict[str, Any]:
    """Load many small rows."""
    frame = spark.range(0, rows, 1, 64).selectExpr("concat('n', id) as name", "cast(id % 100 as int) as age")
    with (
        og.init(folder / "big.og", "node Small { name: String @key  age: I32? }") as graph,
        PeakMemory() as memory,
    ):
        seconds = timed(lambda: load(spark, graph, {"Small": frame}, mode="append"))
        assert graph.store.snapshot().pin(graph.schema.catalog().node("Small").table_id).rows == rows
    return {
        "big rows": rows,
        "big s": round(seconds, 1),
        "big rows/s": int(rows / seconds),
        "big driver memory growth MiB": memory.mib - memory.before,
    }


def arguments(about: str | None, parts: str) -> argparse.ArgumentParser:
    """Return what both benchmarks of Spark take: parts, and the size of the graph."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0] if about else None)
    parser.add_argument("parts", nargs="*", default=[], help=parts)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--json", action="store_true")
    return parser


@contextmanager
def ground() -> Iterator[tuple[SparkSession, Path]]:
    """Give a session that has worked already, and a folder for the time of it."""
    with tempfile.TemporaryDirectory() as name:
        spark = spark_session("local[*]", {"spark.driver.memory": "4g"})
        warm(spark, Path(name))
        yield spark, Path(name)
        spark.stop()


def show(report: dict[str, Any], *, as_json: bool) -> None:
    """Print what was measured."""
    if as_json:
        print(json.dumps(report))
        return
    for key, value in report.items():
        print(f"  {key:34} {value}")


def main() -> None:
    """Measure and report."""
    parser = arguments(__doc__, "load, upsert, read, big; all but big unless told")
    parser.add_argument("--changed", type=int, default=100_000, help="rows that an upsert replaces and adds")
    parser.add_argument("--rows", type=int, default=50_000_000, help="of the big load")
    parser.add_argument("--rounds", type=int, default=3, help="of loads; the one in the middle counts")
    options = parser.parse_args()
    parts = options.parts or ["load", "upsert", "read"]
    report: dict[str, Any] = {}
    with ground() as (spark, folder):
        if {"load", "upsert", "read"} & set(parts):
            inputs = write_inputs(folder, options.nodes, options.edges)
            report |= measure_load(spark, folder, inputs, options.nodes + options.edges, options.rounds)
            with og.connect(folder / "graph.og") as graph:
                if "upsert" in parts:
                    report |= measure_upsert(spark, graph, options.nodes, options.edges, options.changed)
                if "read" in parts:
                    report |= measure_read(spark, folder, graph)
        if "big" in parts:
            report |= measure_big(spark, folder, options.rows)
    show(report, as_json=options.json)


if __name__ == "__main__":
    main()
