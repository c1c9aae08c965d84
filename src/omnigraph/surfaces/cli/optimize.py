"""Optimize: bring the indexes of a branch up to its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import typer

from omnigraph.base.errors import InvalidRequest
from omnigraph.engine.graph import Graph
from omnigraph.engine.indexes import IndexReport, TypeIndexes
from omnigraph.surfaces.cli.bar import task_bar
from omnigraph.surfaces.cli.frame import Address, GraphUri, call_of
from omnigraph.surfaces.cli.spark import Worker, WorkerFlag, spark_here


def optimize(
    ctx: typer.Context,
    address: Address = None,
    graph_uri: GraphUri = None,
    engine: WorkerFlag = Worker.LOCAL,
) -> None:
    """Build the indexes that the schema asks for, and extend them to new rows. Changes no answer."""
    call = call_of(ctx)
    if call.settings.dry_run:
        raise InvalidRequest("optimize has no dry run", remedy="Run it: it changes no answer, only its speed")
    with call.connect(address, graph_uri) as graph:
        call.output.target("optimize", call.settings.address(address, graph_uri))
        with task_bar(call.output.watched if engine is Worker.SPARK else None, "indexing") as progress:
            build = _on_spark(graph, progress) if engine is Worker.SPARK else graph.ensure_indexes
            report = build(branch=call.settings.branch, actor=call.settings.actor)
        call.output.result({"uri": graph.uri, **report.to_json()}, *_lines(report))


def _on_spark(graph: Graph, progress: Callable[[int, int], None] | None) -> Callable[..., IndexReport]:
    spark = spark_here()
    from omnigraph.pipeline import ensure_indexes

    return partial(ensure_indexes, spark, graph, progress=progress)


def _lines(report: IndexReport) -> Iterator[str]:
    for one in report.types:
        yield f"  {one.kind} {one.type}: {_said(one)}"
    if report.commit_id is None:
        yield f"nothing to build on {report.branch}"
    else:
        yield f"indexed {report.branch}: commit {report.commit_id}"


def _said(one: TypeIndexes) -> str:
    said = []
    if one.created:
        said.append(f"built {', '.join(one.created)}")
    if one.extended:
        said.append(f"extended {', '.join(one.extended)}")
    said += [f"{pending.property} pending ({pending.reason})" for pending in one.pending]
    if one.skipped:
        said.append(f"skipped: {one.skipped}")
    if one.error:
        said.append(f"failed: {one.error}")
    return "; ".join(said) or "up to date"
