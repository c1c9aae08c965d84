"""Diff: what leads from one state of a graph to another. `diff`, and `branch diff`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Annotated

import typer

from omnigraph.base.errors import InvalidRequest
from omnigraph.base.moment import FORMS
from omnigraph.engine.history.diff import Diff, stats_json, steps_json
from omnigraph.surfaces.cli.changed import Kinds, Limit, Ops, Types, change_line, step_lines
from omnigraph.surfaces.cli.frame import Call, GraphUri, call_of

LIMIT = 1_000
Sides = Annotated[
    list[str],
    typer.Argument(metavar="[ADDR] A [B]", help=f"The graph, and two states: a branch, {FORMS}."),
]
Branches = Annotated[
    list[str], typer.Argument(metavar="[ADDR] NAME [INTO]", help="The graph, a branch, and another one.")
]
Stat = Annotated[bool, typer.Option("--stat", help="Only the numbers.")]


def diff(
    ctx: typer.Context,
    words: Sides,
    graph_uri: GraphUri = None,
    kind: Kinds = None,
    type_: Types = None,
    op: Ops = None,
    stat: Stat = False,
    limit: Limit = LIMIT,
) -> None:
    """Show what leads from A to B; without B, to the head of the branch."""
    call = call_of(ctx)
    where, (a, *b) = graph_and_sides(call, words, graph_uri)
    with call.connect(where) as graph:
        found = graph.diff(a, b[0] if b else call.settings.branch, kinds=kind, types=type_, ops=op)
        show(call, found, stat=stat, limit=limit)


def branch_diff(
    ctx: typer.Context,
    words: Branches,
    graph_uri: GraphUri = None,
    kind: Kinds = None,
    type_: Types = None,
    op: Ops = None,
    stat: Stat = False,
    limit: Limit = LIMIT,
) -> None:
    """Show what a branch has that another one, main if not given, has not, and the other way round."""
    call = call_of(ctx)
    where, (name, *into) = graph_and_sides(call, words, graph_uri)
    with call.connect(where) as graph:
        found = graph.diff(into[0] if into else "main", name, kinds=kind, types=type_, ops=op)
        show(call, found, stat=stat, limit=limit)


def show(call: Call, found: Diff, *, stat: bool, limit: int) -> None:
    """Print a diff, numbers first."""
    if limit < 1:
        raise InvalidRequest(f"--limit {limit} shows nothing", remedy="Give --stat for the numbers alone")
    if call.settings.json:
        document = found.to_json(limit)
        if stat:
            document = {"from": found.from_commit_id, "to": found.to_commit_id}
            document |= {"stats": stats_json(found.types), "schema": steps_json(found.schema)}
        call.output.result(document)
        return
    call.output.result({}, *_numbers(found), *(() if stat else _changes(found, limit)))


def graph_and_sides(call: Call, words: Sequence[str], graph_uri: str | None) -> tuple[str, list[str]]:
    """Tell a graph from one or two states: it is the first of three words, or of two if it reads as one."""
    first = graph_uri is None and (
        len(words) == 3 or (len(words) == 2 and call.settings.is_address(words[0]))
    )
    sides = list(words[1:] if first else words)
    if len(sides) not in (1, 2):
        raise InvalidRequest(f"{len(words)} words were given", remedy="Give A, or A and B, after the graph")
    return call.settings.address(words[0] if first else None, graph_uri), sides


def _numbers(found: Diff) -> Iterator[str]:
    sides = [f"{side.commit_id} ({side.branch})" for side in (found.before, found.after)]
    yield f"from {sides[0]} to {sides[1]}"
    yield from step_lines(found.schema)
    for one in found.types:
        counts = f"{one.inserted} inserted, {one.updated} updated, {one.deleted} deleted"
        yield f"  {one.kind} {one.name}: {counts}"
    if not found.types and not found.schema:
        yield "no difference"


def _changes(found: Diff, limit: int) -> Iterator[str]:
    yield from (change_line(change) for change in islice(found.changes(), limit))
    left = sum(one.inserted + one.updated + one.deleted for one in found.types) - limit
    if left > 0:
        yield f"… {left} more: give a higher --limit, or choose with --type and --op"
