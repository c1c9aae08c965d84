"""Export: a commit as Parquet or JSON lines, written by Spark's executors.

    pinned snapshot -> groups of fragments -> **one file for each task** -> messages -> manifest

What is written, and how, is in engine.export; here many processes do it side by side.

Given   a session, a graph, a folder that driver and executors reach: on a shared disk or an object store.
Gives   a report. The files that count are those that tasks reported, whatever others there are (S9).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import partial

from pyspark.sql import SparkSession

from omnigraph.base.arguments import checked
from omnigraph.base.dataclass import dataclass
from omnigraph.base.times import At
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import TableType
from omnigraph.engine.access import Action
from omnigraph.engine.export.files import ExportedFile, ExportReport, destination_at, file_name, write_files
from omnigraph.engine.export.plan import ExportPlan, Format, check_format, plan_export
from omnigraph.engine.graph import Graph
from omnigraph.pipeline.bulk.load_task import for_each
from omnigraph.pipeline.progress import Report, watched
from omnigraph.pipeline.reading.scan import Fragments, TableScan, scan_of
from omnigraph.storage.location import Location


@checked
def export(
    spark: SparkSession,
    graph: Graph,
    destination: str | os.PathLike[str],
    *,
    format: str = "parquet",
    types: Iterable[str] | None = None,
    branch: str | None = None,
    at: At | None = None,
    storage_options: Mapping[str, str] | None = None,
    progress: Report | None = None,
) -> ExportReport:
    """Write the types of one commit into a new or empty folder; `progress` is told tasks done and known.

    The folder may be on an object store, reached with `storage_options`: those of the graph if not given.
    """
    chosen = check_format(format)
    plan = plan_export(graph.store, types, *graph.view.read(branch, at, Action.EXPORT))
    with destination_at(destination, graph.store.location, storage_options) as place:
        tasks = _tasks(plan, graph.store.location)
        with watched(spark, f"export to {place.root}", progress):
            written = for_each(spark, tasks, partial(_write, plan.catalog, place.staging, chosen))
        files: dict[str, list[ExportedFile]] = {declared.id: [] for declared in plan.types}
        for task, exported in zip(tasks, written, strict=True):
            files[task.declared.id] += exported
        return place.complete(plan, chosen, files)


@dataclass(frozen=True)
class ExportTask:
    """What one task writes: some fragments of one type."""

    declared: TableType
    scan: TableScan
    number: int  # among the tasks of the type
    fragments: Fragments


def _tasks(plan: ExportPlan, location: Location) -> list[ExportTask]:
    tasks: list[ExportTask] = []
    for declared in plan.types:
        scan = scan_of(location, plan.snapshot, declared)
        # A type without rows has a file, too: it says which columns there are.
        tasks += [ExportTask(declared, scan, n, group) for n, group in enumerate(scan.groups() or [()])]
    return tasks


def _write(catalog: Catalog, staging: Location, format: Format, task: ExportTask) -> list[ExportedFile]:
    """Write the files of one task, in an executor."""
    new_name = partial(file_name, catalog, task.declared, task.number, format)
    rows = task.scan.stored(task.fragments) if task.fragments else ()
    return write_files(staging, new_name, rows, task.declared, format)
