"""Explain and profile: how a read would run, and what each of its steps did."""

from __future__ import annotations

import typer

from omnigraph.surfaces.cli.frame import Call, GraphUri, call_of
from omnigraph.surfaces.cli.params import Param, Params, ParamsFile
from omnigraph.surfaces.cli.query_source import (
    Asked,
    Inline,
    QueryFile,
    Snapshot,
    Words,
    asked,
    moment,
)


def explain(
    ctx: typer.Context,
    words: Words = None,
    graph_uri: GraphUri = None,
    query: QueryFile = None,
    inline: Inline = None,
    param: Param = None,
    params: Params = None,
    params_file: ParamsFile = None,
    snapshot: Snapshot = None,
) -> None:
    """Say how a read would run; run nothing."""
    call = call_of(ctx)
    wanted = asked(call, words, graph_uri, None, query, inline, param, params, params_file)
    show_plan(call, wanted, moment(call.settings, snapshot))


def profile(
    ctx: typer.Context,
    words: Words = None,
    graph_uri: GraphUri = None,
    query: QueryFile = None,
    inline: Inline = None,
    param: Param = None,
    params: Params = None,
    params_file: ParamsFile = None,
    snapshot: Snapshot = None,
) -> None:
    """Run a read and say what each step did: rows, time, requests, choices."""
    call = call_of(ctx)
    wanted = asked(call, words, graph_uri, None, query, inline, param, params, params_file)
    show_plan(call, wanted, moment(call.settings, snapshot), measured=True)


def show_plan(call: Call, wanted: Asked, at: str | None, *, measured: bool = False) -> None:
    """Print the plan of a read; if `measured`, with what running it showed."""
    with call.connect(wanted.where) as graph:
        checked = wanted.check_read(graph.schema.for_reads(call.settings.branch, at))
        describe = graph.profile if measured else graph.explain
        found = describe(
            wanted.source.text,
            wanted.given.bound(checked.parameters),
            query_name=checked.name,
            branch=call.settings.branch,
            at=at,
        )
    call.output.result(found.to_json(), str(found))
