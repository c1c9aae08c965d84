"""Commit commands: list, show; and `log`, the same history drawn for people."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from omnigraph.engine.receipt import commit_json
from omnigraph.storage.manifest.records import CommitRecord
from omnigraph.surfaces.cli.dag import draw
from omnigraph.surfaces.cli.frame import Address, GraphUri, call_of
from omnigraph.surfaces.cli.words import graph_and_words

app = typer.Typer(help="Who changed what, when.", no_args_is_help=True)
Limit = Annotated[int, typer.Option("--limit", metavar="N", help="So many commits at most.")]
Before = Annotated[
    str | None, typer.Option("--before", metavar="ID", help="Go on after this commit of the last page.")
]


@app.command("list")
def list_(
    ctx: typer.Context,
    address: Address = None,
    graph_uri: GraphUri = None,
    limit: Limit = 50,
    before: Before = None,
    actor: Annotated[
        str | None, typer.Option("--actor", metavar="ACTOR", help="Only the commits of this actor.")
    ] = None,
) -> None:
    """List the commits of a branch, newest first, those it inherited included."""
    call = call_of(ctx)
    with call.connect(address, graph_uri) as graph:
        page = graph.commits.list(call.settings.branch, limit, before, actor=actor)
    lines = list(_table(page.commits))
    if page.next is not None:
        lines.append(f"more: --before {page.next}")
    call.output.result({"commits": [commit_json(commit) for commit in page], "next": page.next}, *lines)


@app.command("show")
def show(
    ctx: typer.Context,
    words: Annotated[
        list[str], typer.Argument(metavar="[ADDR] ID", help="The graph, and the commit: its id, or a tag.")
    ],
    graph_uri: GraphUri = None,
) -> None:
    """Show one commit, whichever branch made it."""
    call = call_of(ctx)
    where, (at,) = graph_and_words(call.settings, words, graph_uri, "ID")
    with call.connect(where) as graph:
        found = graph.commits.get(at, branch=call.settings.branch)
    document = commit_json(found) or {}
    call.output.result(document, *_pairs(document, found))


def log(
    ctx: typer.Context,
    address: Address = None,
    graph_uri: GraphUri = None,
    limit: Limit = 50,
    graph: Annotated[
        bool, typer.Option("--graph", help="Draw how commits hang together, merged branches included.")
    ] = False,
) -> None:
    """Show the history of a branch, newest first, one line for each commit."""
    call = call_of(ctx)
    with call.connect(address, graph_uri) as opened:
        if graph:
            found = opened.commits.graph(call.settings.branch, limit)
        else:
            found = opened.commits.list(call.settings.branch, limit).commits
    rows = draw(found) if graph else (("*", commit) for commit in found)
    lines = [drawn if one is None else f"{drawn} {_line(one)}".rstrip() for drawn, one in rows]
    call.output.result({"commits": [commit_json(commit) for commit in found]}, *lines)


def shown_time(time_us: int) -> str:
    """Return a time as people read it, in UTC."""
    return datetime.fromtimestamp(time_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _table(commits: tuple[CommitRecord, ...]) -> Iterator[str]:
    branches = max((len(commit.branch) for commit in commits), default=0)
    actors = max((len(commit.actor or "-") for commit in commits), default=0)
    for one in commits:
        place = f"{one.id}  {one.branch:<{branches}}  {one.manifest_version:>4}  {one.actor or '-':<{actors}}"
        yield f"{place}  {shown_time(one.authored_at_us)}  {one.kind.value:<11}  {one.message or ''}".rstrip()


def _line(one: CommitRecord) -> str:
    said = one.message or one.kind.value
    merged = "" if one.merged_parent is None else f" (merge of {one.merged_parent})"
    return f"{one.id} {shown_time(one.authored_at_us)} {one.branch} {one.actor or '-'}: {said}{merged}"


def _pairs(document: dict[str, Any], commit: CommitRecord) -> Iterator[str]:
    shown = {**document, "created_at": shown_time(commit.authored_at_us)}
    width = max(len(key) for key in shown)
    for key, value in shown.items():
        yield f"{key:<{width}}  {'-' if value is None else value}"
    for change in commit.tables:
        counts = f"{change.inserted} inserted, {change.updated} updated, {change.deleted} deleted"
        yield f"  {change.name}: {counts}"
