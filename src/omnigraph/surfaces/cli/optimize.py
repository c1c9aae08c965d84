"""Optimize: bring the indexes of a branch up to its rows."""

from __future__ import annotations

from collections.abc import Iterator

import typer

from omnigraph.base.errors import InvalidRequest
from omnigraph.engine.indexes import IndexReport, TypeIndexes
from omnigraph.surfaces.cli.frame import Address, GraphUri, call_of


def optimize(ctx: typer.Context, address: Address = None, graph_uri: GraphUri = None) -> None:
    """Build the indexes that the schema asks for, and extend them to new rows. Changes no answer."""
    call = call_of(ctx)
    if call.settings.dry_run:
        raise InvalidRequest("optimize has no dry run", remedy="Run it: it changes no answer, only its speed")
    with call.connect(address, graph_uri) as graph:
        call.output.target("optimize", call.settings.address(address, graph_uri))
        report = graph.ensure_indexes(branch=call.settings.branch, actor=call.settings.actor)
        call.output.result({"uri": graph.uri, **report.to_json()}, *_lines(report))


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
