"""Export: a commit as Parquet or JSON lines, written by Spark's executors.

    pinned snapshot -> groups of fragments -> **one file for each task** -> messages -> manifest

Room    pipeline. What is written, and how, is in engine.export; here many processes do it side by side.
Given   a session, a graph, a folder that the driver and all executors share.
Gives   a report. The files that count are those that tasks reported, whatever others there are (S9).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from omnigraph.base.moment import At
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import TableType
from omnigraph.engine.export.destination import destination_at
from omnigraph.engine.export.files import ExportedFile, file_name, write_file
from omnigraph.engine.export.plan import ExportPlan, Format, check_format, plan_export
from omnigraph.engine.export.report import ExportReport
from omnigraph.engine.graph import Graph
from omnigraph.pipeline.bulk.stage import for_each
from omnigraph.pipeline.progress import Report, watched
from omnigraph.pipeline.scan import Fragments, Scan, scan_of
from omnigraph.storage.location import Location


def export(
    spark: SparkSession,
    graph: Graph,
    destination: str | os.PathLike[str],
    *,
    format: str = "parquet",
    types: Iterable[str] | None = None,
    branch: str = "main",
    at: At | None = None,
    progress: Report | None = None,
) -> ExportReport:
    """Write the types of one commit into a new or empty folder; `progress` is told tasks done and known."""
    chosen = check_format(format)
    plan = plan_export(graph.store, types, branch, at)
    with destination_at(destination) as place:
        pieces = _pieces(plan, graph.store.location)
        with watched(spark, f"export to {place.root}", progress):
            written = for_each(spark, pieces, partial(_write, plan.catalog, place.staging, chosen))
        files: dict[str, list[ExportedFile]] = {declared.id: [] for declared in plan.types}
        for piece, file in zip(pieces, written, strict=True):
            files[piece.declared.id].append(file)
        return place.complete(plan, chosen, files)


@dataclass(frozen=True)
class Piece:
    """What one task writes: some fragments of one type."""

    declared: TableType
    scan: Scan
    number: int  # among the pieces of the type
    fragments: Fragments


def _pieces(plan: ExportPlan, location: Location) -> list[Piece]:
    found: list[Piece] = []
    for declared in plan.types:
        scan = scan_of(location, plan.snapshot, declared, plan.catalog)
        # A type without rows has a file, too: it says which columns there are.
        found += [Piece(declared, scan, n, group) for n, group in enumerate(scan.groups() or [()])]
    return found


def _write(catalog: Catalog, staging: Path, format: Format, piece: Piece) -> ExportedFile:
    """Write one piece, in an executor."""
    name = file_name(catalog, piece.declared, piece.number, format)
    rows = piece.scan.stored(piece.fragments) if piece.fragments else ()
    return write_file(staging, name, rows, piece.declared, format)
