"""Tag commands: create, list, delete."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.surfaces.cli.commit import shown_time
from omnigraph.surfaces.cli.frame import Address, GraphUri, call_of
from omnigraph.surfaces.cli.words import graph_and_words

app = typer.Typer(help="Give commits names that never move.", no_args_is_help=True)
Name = Annotated[list[str], typer.Argument(metavar="[ADDR] NAME", help="The graph, and the tag.")]


@app.command("create")
def create(
    ctx: typer.Context,
    words: Name,
    graph_uri: GraphUri = None,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="AT", help="A past state; the head of the branch if not given."),
    ] = None,
    message: Annotated[
        str | None, typer.Option("--message", metavar="TEXT", help="Why; kept with the tag.")
    ] = None,
) -> None:
    """Name the commit at the head of a branch, or a past one."""
    call = call_of(ctx)
    settings = call.settings
    where, (name,) = graph_and_words(settings, words, graph_uri, "NAME")
    if not settings.dry_run:
        call.output.target("tag create", where)
    with call.connect(where) as graph:
        made = graph.tags.create(
            name, at, branch=settings.branch, actor=settings.actor, message=message, dry_run=settings.dry_run
        )
        said = "would tag" if settings.dry_run else "tagged"
        call.output.result(
            {"uri": graph.uri, **made.to_json(), "dry_run": settings.dry_run},
            f"{said} commit {made.commit_id} as {made.name}",
        )


@app.command("list")
def list_(ctx: typer.Context, address: Address = None, graph_uri: GraphUri = None) -> None:
    """List the tags by name, with their commits."""
    call = call_of(ctx)
    with call.connect(address, graph_uri) as graph:
        found = graph.tags.list()
    width = max((len(tag.name) for tag in found), default=0)
    lines = [
        f"{tag.name:<{width}}  {tag.commit_id}  {shown_time(tag.created_us)}  {tag.message or ''}".rstrip()
        for tag in found
    ]
    call.output.result({"tags": [tag.to_json() for tag in found]}, *lines)


@app.command("delete")
def delete(ctx: typer.Context, words: Name, graph_uri: GraphUri = None) -> None:
    """Take a name away; the commit stays."""
    call = call_of(ctx)
    where, (name,) = graph_and_words(call.settings, words, graph_uri, "NAME")
    if not call.settings.dry_run:
        call.output.target("tag delete", where)
    with call.connect(where) as graph:
        was = graph.tags.delete(name, dry_run=call.settings.dry_run)
        said = "would delete" if call.settings.dry_run else "deleted"
        call.output.result(
            {"uri": graph.uri, **was.to_json(), "dry_run": call.settings.dry_run},
            f"{said} tag {was.name}",
            f"  it named commit {was.commit_id}",
        )
