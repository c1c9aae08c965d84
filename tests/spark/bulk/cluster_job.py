"""A bulk load, an upsert, an optimize, a read and a stream on a cluster with S3, and executors killed then.

A program: `python -m tests.spark.bulk.cluster_job ADDRESS OPTIONS`; tells what it saw as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import omnigraph as og
from omnigraph import Graph
from omnigraph.pipeline import load, optimize, read, register, spark_session
from omnigraph.pipeline.bulk import optimize as optimizing
from omnigraph.pipeline.bulk.optimize import GroupOutcome, GroupTask
from omnigraph.pipeline.bulk.optimize import _rewritten as rewritten
from omnigraph.storage.location import Location

SCHEMA = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person"
PEOPLE = 4_000
STREAMED = 500  # rows of each batch


def executors(app: str) -> list[int]:
    """Return the processes of this application's executors."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if app in words and "org.apache.spark.executor.CoarseGrainedExecutorBackend" in words:
                found.append(int(folder.name))
    return sorted(found)


def slow(frame: DataFrame, seconds: float) -> DataFrame:
    """Return the same rows, each partition of which takes a while."""

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        time.sleep(seconds)
        yield from batches

    return frame.mapInArrow(wait, frame.schema)


def people(spark: SparkSession, first: int, count: int, age: int) -> DataFrame:
    """Return people in six partitions."""
    return spark.range(first, first + count, 1, 6).selectExpr("concat('p', id) as name", f"{age} as age")


def kill_one(spark: SparkSession, after: float) -> int:
    """Kill an executor a little later; return which."""
    running = executors(spark.sparkContext.applicationId)
    threading.Timer(after, os.kill, (running[0], signal.SIGKILL)).start()
    return running[0]


def stream(spark: SparkSession, graph: Graph, folder: Path) -> dict[str, Any]:
    """Stream two batches while an executor dies, make Spark forget that the second is done, and go on."""
    inbox, checkpoint = folder / "inbox", folder / "checkpoint"
    inbox.mkdir()
    for number in range(2):
        lines = (json.dumps({"name": f"s{number}-{n}", "age": 3}) for n in range(STREAMED))
        (inbox / f"{number}.json").write_text("\n".join(lines))

    def run() -> None:
        frame = (
            spark.readStream.schema("name string, age int").option("maxFilesPerTrigger", 1).json(str(inbox))
        )
        (
            slow(frame, 1.5)
            .writeStream.format("omnigraph")
            .options(uri=graph.uri, type="Person", driver_rows="1", checkpointLocation=str(checkpoint))
            .options(**{f"storage.{name}": value for name, value in graph.store.location.options.items()})
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )

    register(spark)
    dead = kill_one(spark, 2.0)
    run()
    first = batches(graph)
    (checkpoint / "commits" / "1").unlink()
    (checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    run()
    rows = read(spark, graph, "Person").where("age = 3")
    return {
        "killed": dead not in executors(spark.sparkContext.applicationId),
        "replayed": (checkpoint / "commits" / "1").exists(),
        "batches": [first, batches(graph)],
        "rows": [rows.count(), rows.select("id").distinct().count()],
    }


def slowly_rewritten(place: Location, task: GroupTask) -> GroupOutcome:
    """Rewrite, and take a while to say so."""
    outcome = rewritten(place, task)
    time.sleep(1.5)
    return outcome


def optimized(spark: SparkSession, graph: Graph) -> list[bool]:
    """Rewrite the files of people in several tasks while an executor dies; say what came of it."""
    before = graph.nodes("Person").to_arrow().sort_by("id")
    optimizing._rewritten = slowly_rewritten
    dead = kill_one(spark, 1.0)
    policy = og.OptimizePolicy(small_bytes=100_000)
    report = optimize(spark, graph, types=["Person"], policy=policy, group_bytes=1)
    (row,) = report.types
    return [
        dead not in executors(spark.sparkContext.applicationId),
        row.committed and row.error is None,
        row.files is not None and 1 < row.files.fragments_after < row.files.fragments_before,
        graph.nodes("Person").to_arrow().sort_by("id") == before,
        graph.doctor(deep=True).ok,
    ]


def batches(graph: Graph) -> list[str]:
    """Return the numbers of the batches that made commits, oldest first."""
    found = [one.labels.get("spark.batch_id") for one in graph.commits.list().commits]
    return [one for one in reversed(found) if one is not None]


def main(address: str, options: dict[str, str]) -> dict[str, Any]:
    """Do all of it."""
    spark = spark_session(
        "local-cluster[2,1,1024]", {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "4"}
    )
    spark.sparkContext.setLogLevel("OFF")
    seen: dict[str, Any] = {}
    with og.init(address, SCHEMA, storage_options=options) as graph:
        edges = spark.range(0, PEOPLE, 1, 4).selectExpr(
            "concat('p', id) as `from`", f"concat('p', (id * 7) % {PEOPLE}) as `to`"
        )
        seen["executors"] = len(executors(spark.sparkContext.applicationId))
        dead = kill_one(spark, 2.0)
        first = load(
            spark,
            graph,
            {"Person": slow(people(spark, 0, PEOPLE, 1), 1.5), "Knows": edges},
            mode="append",
            driver_rows=0,
        )
        seen["killed"] = dead not in executors(spark.sparkContext.applicationId)
        upsert = load(
            spark,
            graph,
            {"Person": people(spark, PEOPLE // 2, PEOPLE, 2)},
            mode="merge",
            driver_rows=0,
            upsert="deletions",
        )
        newest = [one.id for one in graph.commits.list().commits[:2]]
        seen["commits"] = newest == [upsert.commit_id, first.commit_id]
        seen["counts"] = [[c.name, c.inserted, c.updated] for one in (first, upsert) for c in one.types]
        seen["optimized"] = optimized(spark, graph)
        rows = read(spark, graph, "Person")
        seen["people"] = [rows.count(), rows.select("id").distinct().count(), rows.where("age = 2").count()]
        seen["edges"] = read(spark, graph, "Knows").select("src", "dst").distinct().count()
        with tempfile.TemporaryDirectory() as folder:
            seen["stream"] = stream(spark, graph, Path(folder))
    spark.stop()
    return seen


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], json.loads(sys.argv[2]))))
